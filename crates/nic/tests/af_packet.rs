//! The packet socket driver over veth pairs: conformance, and that the kernel's copy of a frame
//! does not show. Needs root; says so and passes otherwise.

mod conformance;
mod veth;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use clearway_nic::af_packet::{self, Config};
use clearway_nic::interface::{Device, KernelSteering, Namespace, SteerPattern, Steering};
use clearway_nic::{
    AttachMode, Error, Installed, Memory, NotInstalled, Opener, Queue, ThisProcess, XdpSocket,
    af_xdp,
};
use clearway_wire::digest::fields;
use conformance::Pair;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use veth::{
    INTERFACE, IPV4, IPV6, Veth, bind_again, ends_with, ip, next_frame, no_frame, ping,
    wait_for_link,
};

const PORT: u16 = 7117;

fn open(space: &Namespace) -> (Box<dyn Queue>, KernelSteering) {
    open_as(space, None)
}

fn open_as(space: &Namespace, super_frames: Option<bool>) -> (Box<dyn Queue>, KernelSteering) {
    let config = Config { super_frames, ..Config::new(INTERFACE) };
    let (mut queues, steering) = open_queues(space, &config);
    (queues.remove(0), steering)
}

fn open_queues(space: &Namespace, config: &Config) -> (Vec<Box<dyn Queue>>, KernelSteering) {
    let opened = space.within(|| af_packet::open(config)).expect("entered");
    let (mut queues, steering) = opened.expect("veth can be opened");
    queues.iter_mut().for_each(|queue| wait_for_link(&mut **queue));
    (queues, steering)
}

fn conformance_pair(veth: Veth, super_frames: bool) -> Pair {
    let (a, mut steering_a) = open_as(&veth.near, Some(super_frames));
    let (b, mut steering_b) = open_as(&veth.far, Some(super_frames));
    for steering in [&mut steering_a, &mut steering_b] {
        steering.register_udp_port(None, conformance::UDP_PORT).expect("the port is free");
    }
    let far = Namespace::open(&veth.far.path().to_string_lossy()).expect("it is open");
    let cut = move |b| {
        ip(&far, &format!("link set {INTERFACE} down"));
        drop(b);
    };
    Pair { a, b, cut: Some(Box::new(cut)), keep: Box::new((steering_a, steering_b, veth)) }
}

#[test]
fn conforms_with_super_frames() {
    if Veth::new().is_some() {
        conformance::run(|| conformance_pair(Veth::new().expect("root"), true));
    }
}

#[test]
fn conforms_without_super_frames() {
    if Veth::new().is_some() {
        conformance::run(|| conformance_pair(Veth::new().expect("root"), false));
    }
}

/// Three queues at each end. The pair is of those that the flow of the frames goes to, and what
/// comes to others is missing.
fn pair_of_several(veth: Veth) -> Pair {
    let config = Config { queues: 3, ..Config::new(INTERFACE) };
    let mut ends = [open_queues(&veth.near, &config), open_queues(&veth.far, &config)];
    for (_, steering) in &mut ends {
        steering.register_udp_port(None, conformance::UDP_PORT).expect("the port is free");
    }
    let [(mut near, steering_a), (mut far, steering_b)] = ends;
    let frame = conformance::back(conformance::frame(&*far[0], &*near[0], 0, 64));
    let here = veth::queue_of(&mut *far[0], &mut near, &frame);
    let frame = conformance::frame(&*near[0], &*far[0], 0, 64);
    let there = veth::queue_of(&mut *near[0], &mut far, &frame);
    let (a, b) = (near.swap_remove(here), far.swap_remove(there));
    let space = Namespace::open(&veth.far.path().to_string_lossy()).expect("it is open");
    let cut = move |b| {
        ip(&space, &format!("link set {INTERFACE} down"));
        drop(b);
    };
    let keep = Box::new((steering_a, steering_b, near, far, veth));
    Pair { a, b, cut: Some(Box::new(cut)), keep }
}

#[test]
fn conforms_with_several_queues() {
    if Veth::new().is_some() {
        conformance::run(|| pair_of_several(Veth::new().expect("root")));
    }
}

/// Each flow comes to one queue, all of it, and flows come to all of them; no frame is seen that is
/// sent.
#[test]
fn flows_are_shared_out_among_queues() {
    let Some(veth) = Veth::new() else { return };
    let config = Config { queues: 3, ..Config::new(INTERFACE) };
    let (mut near, mut steering) = open_queues(&veth.near, &config);
    let (mut far, _steering) = open_queues(&veth.far, &config);
    steering.register_udp_port(None, PORT).expect("the port is free");
    let mode = near[2].info().mode;
    assert!(mode.contains("shared out among the queues (PACKET_FANOUT)"), "{mode}");
    let macs = [far[0].info().mac, near[0].info().mac];
    let (flows, packets) = (60_u16, 5);
    for flow in 0..flows {
        let mut udp = veth::udp(PORT, &[7; 300]);
        udp[..2].copy_from_slice(&(40_000 + flow).to_be_bytes());
        let packet = veth::ipv4(IPV4[0], 17, &[], 0x4000, &udp);
        let frame = veth::ethernet(macs, &[], 0x0800, &packet);
        for _ in 0..packets {
            far[usize::from(flow) % 3].transmit(&mut |buffer| {
                buffer[..frame.len()].copy_from_slice(&frame);
                frame.len()
            });
        }
        far[usize::from(flow) % 3].flush();
    }
    let mut counts = vec![[0; 3]; flows.into()];
    veth::until("all have come", || {
        for (index, queue) in near.iter_mut().enumerate() {
            queue.receive(64, &mut |frames, _| {
                for frame in frames.iter().filter(|frame| frame.ends_with(&[7; 300])) {
                    let port = u16::from_be_bytes([frame[34], frame[35]]);
                    counts[usize::from(port - 40_000)][index] += 1;
                }
            });
        }
        counts.iter().flatten().sum::<i32>() >= i32::from(flows) * packets
    });
    for index in 0..3 {
        assert!(counts.iter().any(|of_flow| of_flow[index] > 0), "{counts:?}");
        no_frame(&mut *near[index], |frame| frame.ends_with(&[7; 300]));
        no_frame(&mut *far[index], |frame| frame.ends_with(&[7; 300]));
    }
    let is_whole = |of_flow: &[i32; 3]| of_flow.iter().max() == Some(&packets);
    assert!(counts.iter().all(is_whole), "{counts:?}");
    assert!(near.iter().map(|queue| queue.counters().rx_super_frames).sum::<u64>() >= 40);
}

#[test]
fn jumbo_frames_fit() {
    let Some(veth) = Veth::new() else { return };
    for space in [&veth.near, &veth.far] {
        ip(space, &format!("link set {INTERFACE} mtu 9000"));
    }
    let (mut near, mut steering) = open(&veth.near);
    let (mut far, _) = open(&veth.far);
    steering.register_udp_port(None, PORT).expect("the port is free");
    assert_eq!(near.capabilities().frame_bytes_max, 9014);
    let macs = [far.info().mac, near.info().mac];
    let packet = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, &[0x5a; 9000 - 28]));
    let frame = veth::ethernet(macs, &[], 0x0800, &packet);
    assert_eq!(frame.len(), 9014);
    veth::send(&mut *far, &frame);
    let arrived = next_frame("it arrives whole", &mut *near, ends_with(&[0x5a; 100]));
    assert!(arrived == frame);
}

#[test]
fn the_kernel_is_silent_about_registered_ports_only() {
    let Some(veth) = Veth::new() else { return };
    let pairs: [(IpAddr, IpAddr); 2] =
        [(IPV4[0].into(), IPV4[1].into()), (IPV6[0].into(), IPV6[1].into())];
    for (here, there) in pairs {
        let (mut queue, mut steering) = open(&veth.near);
        // Of the family before, a process that another test starts may have a copy for a moment.
        for address in [Some(here), None] {
            veth::until("the port is free", || steering.register_udp_port(address, PORT).is_ok());
        }
        let sender = |port: u16| {
            let bind = || UdpSocket::bind((there, 0));
            let socket: UdpSocket = veth.far.within(bind).unwrap().expect("a port is free");
            socket.connect((here, port)).expect("there is a route");
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
            socket
        };
        let refused = sender(PORT + 1);
        refused.send(b"to nobody").expect("sent");
        let error = refused.recv(&mut [0; 8]).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "the kernel answers for its ports");

        let registered = sender(PORT);
        registered.send(b"for the engine").expect("sent");
        next_frame("ours arrives", &mut *queue, ends_with(b"for the engine"));
        // A refusal of the first would be reported here, and it comes before the second arrives.
        registered.send(b"and another one").expect("the first was not refused");
        next_frame("ours arrives", &mut *queue, ends_with(b"and another one"));
        registered.set_nonblocking(true).expect("sockets can be that");
        let silence = registered.recv(&mut [0; 8]).expect_err("nobody answers");
        assert_eq!(silence.kind(), ErrorKind::WouldBlock);

        let taken = veth.near.within(|| UdpSocket::bind((here, PORT))).unwrap();
        assert!(taken.is_err(), "a registered port is taken");
        assert!(veth.far.within(|| ping(here)).unwrap(), "the rest goes on");
        steering.unregister_udp_port(Some(here), PORT).expect("it was registered");
        steering.unregister_udp_port(None, PORT).expect("it was registered");
        steering.unregister_udp_port(None, PORT).expect("twice is once");
        bind_again(&veth.near, (here, PORT));
        registered.send(b"for nobody now").expect("sent");
        no_frame(&mut *queue, ends_with(b"for nobody now"));
    }
}

#[test]
fn own_addresses_are_ours_to_answer() {
    let Some(veth) = Veth::new() else { return };
    let (own4, own6) = (IpAddr::from([10, 77, 0, 50]), "fd77::50".parse::<IpAddr>().unwrap());
    let (mut queue, mut steering) = open(&veth.near);
    steering.add_own_address(own4).expect("there is room");
    steering.add_own_address(own6).expect("there is room");
    let ask = |to: IpAddr| {
        let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let send = || UdpSocket::bind(any)?.send_to(b"who has it?", (to, 9));
        veth.far.within(send).expect("entered").expect("the kernel asks its neighbours");
    };
    ask(own4);
    next_frame("the ARP request for our address", &mut *queue, |frame| {
        frame[12..14] == [0x08, 0x06] && frame[38..42] == [10, 77, 0, 50]
    });
    ask(own6);
    next_frame("the neighbour solicitation for our address", &mut *queue, |frame| {
        frame[12..14] == [0x86, 0xdd] && frame[54] == 135 && frame[77] == 0x50
    });
    steering.remove_address(own4).expect("it was added");
    steering.remove_address(own6).expect("it was added");
    steering.remove_address(own6).expect("twice is once");
}

/// What is said of a datagram of the kernel's comes to it and to us, and nothing else of ICMP.
#[test]
fn errors_to_shared_addresses_come_to_the_kernel_too() {
    let Some(veth) = Veth::new() else { return };
    let (mut queue, mut steering) = open(&veth.near);
    let is_icmp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 1;
    let is_icmp6 = |frame: &[u8]| frame[12..14] == [0x86, 0xdd] && [1, 128].contains(&frame[54]);
    let pairs: [(IpAddr, IpAddr); 2] =
        [(IPV4[0].into(), IPV4[1].into()), (IPV6[0].into(), IPV6[1].into())];
    for (here, there) in pairs {
        let socket = veth.near.within(|| UdpSocket::bind((here, 0))).unwrap().expect("a port");
        socket.connect((there, PORT)).expect("there is a route");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
        let kernel_is_told = || {
            socket.send(b"to nobody").expect("sent");
            let error = socket.recv(&mut [0; 8]).expect_err("nobody is there");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        };
        kernel_is_told();
        no_frame(&mut *queue, |frame| is_icmp(frame) || is_icmp6(frame));
        steering.add_shared_address(here).expect("there is room");
        steering.add_shared_address(here).expect("twice is once");
        kernel_is_told();
        next_frame("we are told", &mut *queue, |frame| match here {
            IpAddr::V4(_) => frame.get(34..36) == Some(&[3, 3]),
            IpAddr::V6(_) => frame.get(54..56) == Some(&[1, 4]),
        });
        assert!(veth.far.within(|| ping(here)).unwrap(), "the kernel answers");
        no_frame(&mut *queue, |frame| is_icmp(frame) || is_icmp6(frame));
        steering.remove_address(here).expect("it was added");
        steering.remove_address(here).expect("twice is once");
        kernel_is_told();
        no_frame(&mut *queue, |frame| is_icmp(frame) || is_icmp6(frame));
    }
}

#[test]
fn vlan_tags_are_put_back() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open(&veth.near);
    let (mut far, _) = open(&veth.far);
    steering.register_udp_port(Some(IPV4[0].into()), PORT).expect("the port is free");
    let macs = [far.info().mac, near.info().mac];
    let packet = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, b"in a VLAN"));
    for tags in [&[][..], &[5]] {
        let frame = veth::ethernet(macs, tags, 0x0800, &packet);
        veth::send(&mut *far, &frame);
        assert_eq!(next_frame("it arrives", &mut *near, ends_with(b"in a VLAN")), frame);
    }
}

#[test]
fn a_filter_that_would_be_too_long_lets_everything_through_and_says_so() {
    let Some(veth) = Veth::new() else { return };
    let (mut queue, mut steering) = open(&veth.near);
    let sender =
        veth.far.within(|| UdpSocket::bind((IPV4[1], 0))).unwrap().expect("a port is free");
    let own = || (1..=200_u16).map(|low| IpAddr::from([0xfd78, 0, 0, 0, 0, 0, 0, low]));
    own().for_each(|address| steering.add_own_address(address).expect("any number will do"));
    assert!(queue.info().mode.contains("all frames come up"), "{}", queue.info().mode);
    sender.send_to(b"to any port", (IPV4[0], PORT + 1)).expect("sent");
    next_frame("all arrives", &mut *queue, ends_with(b"to any port"));
    own().for_each(|address| steering.remove_address(address).expect("it was added"));
    assert!(!queue.info().mode.contains("all frames come up"), "{}", queue.info().mode);
    queue.receive(64, &mut |_, _| ());
    sender.send_to(b"to any port", (IPV4[0], PORT + 1)).expect("sent");
    assert_eq!(queue.receive(64, &mut |frames, _| panic!("{frames:x?} are not ours")), 0);
}

#[test]
fn an_interface_may_vanish() {
    let Some(veth) = Veth::new() else { return };
    let (mut queue, mut steering) = open(&veth.near);
    steering.register_udp_port(None, PORT).expect("the port is free");
    ip(&veth.near, &format!("link del {INTERFACE}"));
    veth::until("the link is down", || {
        queue.transmit(&mut |buffer| buffer.len());
        queue.flush();
        queue.receive(1, &mut |_, _| ());
        !queue.link_up()
    });
    assert!(queue.arm());
    queue.disarm();
    assert!(queue.counters().tx_frames_dropped > 0);
    steering.unregister_udp_port(None, PORT).expect("the filter is still there");
}

/// The kernel leaves an error at the socket, which is there when the link is up again.
#[test]
fn a_link_that_comes_back_while_nobody_sleeps_keeps_nobody_awake() {
    let Some(veth) = Veth::new() else { return };
    let (mut queue, _steering) = open(&veth.near);
    let device = veth.near.within(|| Device::open(INTERFACE)).expect("entered");
    let device = device.expect("it is there");
    ip(&veth.near, &format!("link set {INTERFACE} down"));
    ip(&veth.near, &format!("link set {INTERFACE} up"));
    veth::until("the link is up again", || device.running().unwrap_or(false));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut sleeps = || {
        // Something may have come: a link that is up is news to the kernel.
        let armed = queue.arm();
        let wait = queue.wait_fd().expect("a socket");
        let woken = poll(&mut [PollFd::new(&wait, PollFlags::IN)], Some(&at_once));
        queue.disarm();
        queue.receive(64, &mut |_, _| ());
        armed && woken.expect("it can be waited for") == 0
    };
    assert!((0..100).any(|_| sleeps()));
}

#[test]
fn it_works_beside_af_xdp_and_talks_to_it() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut packet_steering) = open(&veth.near);
    packet_steering.register_udp_port(None, PORT).expect("the port is free");
    let opened = veth.far.within(|| af_xdp::open(&af_xdp::Config::new(INTERFACE))).unwrap();
    let (mut queues, mut xdp_steering) = opened.expect("veth can be opened");
    let far = &mut *queues[0];
    wait_for_link(far);
    xdp_steering.register_udp_port(None, PORT).expect("the port is free");
    let macs = [near.info().mac, far.info().mac];
    let there = veth::ipv4(IPV4[1], 17, &[], 0, &veth::udp(PORT, b"there"));
    veth::send(&mut *near, &veth::ethernet(macs, &[], 0x0800, &there));
    next_frame("it arrives", far, ends_with(b"there"));
    let back = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, b"and back"));
    veth::send(far, &veth::ethernet([macs[1], macs[0]], &[], 0x0800, &back));
    next_frame("it arrives", &mut *near, ends_with(b"and back"));
}

#[test]
fn what_cannot_be_opened_says_why() {
    let missing = af_packet::open(&Config::new("cw-none")).map(|_| ());
    assert!(matches!(missing, Err(Error::NotFound(_))));
    let odd = af_packet::open(&Config { descriptors: 300, ..Config::new("lo") }).map(|_| ());
    assert!(matches!(odd, Err(Error::Invalid(_))));
    let Some(veth) = Veth::new() else { return };
    let as_nobody = veth.near.within(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        af_packet::open(&Config::new(INTERFACE)).map(|_| ())
    });
    let as_nobody = as_nobody.expect("entered").expect_err("nobody may not");
    assert!(matches!(as_nobody, Error::Permission(_)), "{as_nobody}");
}

const MAC: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// A datagram of the far kernel's address to the near kernel, from [`MAC`].
fn to_kernel(destination: [u8; 6], to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let packet = veth::ipv4(to, 17, &[], 0x4000, &veth::udp(PORT, payload));
    veth::ethernet([MAC, destination], &[], 0x0800, &packet)
}

/// What is given to the kernel comes there, and to no queue, whatever that is to have.
#[test]
fn the_kernel_has_what_it_is_given_and_no_queue_sees_it() {
    let Some(veth) = Veth::new() else { return };
    let config = Config { queues: 2, ..Config::new(INTERFACE) };
    let (mut queues, mut steering) = open_queues(&veth.near, &config);
    let everything = SteerPattern::new([0; 8], [0; 8]).expect("a pattern");
    steering.add_copies(&everything).expect("there is room");
    let kernel = veth.near.within(|| UdpSocket::bind((IPV4[0], PORT))).expect("entered");
    let kernel = kernel.expect("the port is free");
    kernel.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    for queue in &mut queues {
        assert!(queue.capabilities().reaches_kernel);
        let mac = queue.info().mac;
        queue.send_to_kernel(&to_kernel(mac, IPV4[0], b"for the kernel"));
        let mut bytes = [0; 64];
        let (length, from) = kernel.recv_from(&mut bytes).expect("the kernel has it");
        assert_eq!((&bytes[..length], from.ip()), (&b"for the kernel"[..], IPV4[1].into()));
    }
    let nothing = |queue: &mut Box<dyn Queue>| no_frame(&mut **queue, ends_with(b"for the kernel"));
    queues.iter_mut().for_each(nothing);
}

/// What the kernel sends to an Ethernet address that was added comes to the queue instead of the
/// wire, and what it sends to a group to both; until the address is removed.
#[test]
fn what_the_kernel_sends_to_an_address_of_ours_comes_in_again() {
    let Some(veth) = Veth::new() else { return };
    let (mut near, mut steering) = open(&veth.near);
    let (mut far, mut far_steering) = open(&veth.far);
    for steering in [&mut steering, &mut far_steering] {
        steering.add_pattern(&SteerPattern::new([0; 8], [0; 8]).expect("a pattern")).expect("room");
    }
    let machine = Ipv4Addr::new(10, 77, 0, 9);
    ip(&veth.near, &format!("neigh add {machine} lladdr 02:09:09:09:09:09 dev {INTERFACE}"));
    let kernel = veth.near.within(|| UdpSocket::bind((IPV4[0], 0))).expect("entered");
    let kernel = kernel.expect("a socket");
    kernel.set_broadcast(true).expect("a socket may");
    let send = |to: Ipv4Addr, payload: &[u8]| kernel.send_to(payload, (to, PORT)).expect("sent");
    let all = Ipv4Addr::new(10, 77, 0, 255);

    send(machine, b"by the wire");
    next_frame("the far end has it", &mut *far, ends_with(b"by the wire"));
    steering.add_mac(MAC, false).expect("there is room");
    send(machine, b"still by the wire");
    next_frame("the far end has it", &mut *far, ends_with(b"still by the wire"));
    steering.remove_mac(MAC).expect("it was there");
    steering.add_mac(MAC, true).expect("there is room");
    send(machine, b"once around");
    let frame = next_frame("it comes in again", &mut *near, ends_with(b"once around"));
    assert_eq!((&frame[..6], &frame[6..12]), (&MAC[..], &near.info().mac[..]));
    send(all, b"to everybody");
    next_frame("it comes in again", &mut *near, ends_with(b"to everybody"));
    let frame = next_frame("it leaves, too", &mut *far, |frame| {
        frame.ends_with(b"to everybody") || frame.ends_with(b"once around")
    });
    assert!(frame.ends_with(b"to everybody"), "what came in again does not leave");
    steering.remove_mac(MAC).expect("it was there");
    for (to, payload) in [(all, &b"to them again"[..]), (machine, b"by the wire again")] {
        send(to, payload);
        next_frame("the far end has it", &mut *far, |frame| frame.ends_with(payload));
    }
    no_frame(&mut *near, |frame| frame.ends_with(b"again"));
}

/// Who takes back what was never asked for takes nobody's group along.
#[test]
fn a_group_is_let_in_as_long_as_somebody_wants_copies() {
    let Some(veth) = Veth::new() else { return };
    let (_queue, mut steering) = open(&veth.near);
    let pattern = |ether_type: u64| {
        let (mac, of_type) = (fields::MAC_DESTINATION, fields::ETHER_TYPE);
        let mut mask = [0; 8];
        (mask[0], mask[1]) = (if ether_type == 0 { 0 } else { of_type.mask() }, mac.mask());
        let group = mac.place(0x0100_5e01_0203);
        let value = [of_type.place(ether_type), group, 0, 0, 0, 0, 0, 0];
        SteerPattern::new(mask, value).expect("the eighth word is left out")
    };
    let is_let_in = || {
        let groups = veth.near.ip(&format!("maddr show dev {INTERFACE}")).expect("it is there");
        groups.contains("01:00:5e:01:02:03")
    };
    steering.add_copies(&pattern(0)).expect("there is room");
    assert!(is_let_in());
    steering.remove_copies(&pattern(0x88b5)).expect("nobody had asked for that");
    assert!(is_let_in());
    steering.remove_copies(&pattern(0)).expect("it was there");
    assert!(!is_let_in());
}

/// Everything is as it is with older kernels, and it is said.
#[derive(Debug)]
struct WithoutTurning;

impl Opener for WithoutTurning {
    fn xdp_socket(&self, memory: Memory) -> Result<XdpSocket, Error> {
        ThisProcess.xdp_socket(memory)
    }

    fn steer(&self, device: &Device, mode: AttachMode) -> Result<Installed, NotInstalled> {
        ThisProcess.steer(device, mode)
    }

    fn hide(&self, device: &Device) -> Result<Installed, Error> {
        ThisProcess.hide(device)
    }

    fn turn(&self, _: &Device) -> Result<Installed, Error> {
        Err(Error::Invalid("not today".into()))
    }
}

#[test]
fn without_a_way_to_the_kernel_it_is_said_why() {
    let Some(veth) = Veth::new() else { return };
    let opener = Arc::new(WithoutTurning);
    let config = Config { opener: opener.clone(), ..Config::new(INTERFACE) };
    let (mut queues, mut steering) = open_queues(&veth.near, &config);
    let says_so = |queue: &dyn Queue| {
        let mode = queue.info().mode;
        let text = "virtual interfaces do not reach this host's own kernel: not today";
        assert!(mode.contains(text), "{mode}");
        assert!(!queue.capabilities().reaches_kernel);
    };
    says_so(&*queues[0]);
    steering.add_mac(MAC, true).expect("the wire brings frames to it");
    queues[0].send_to_kernel(&to_kernel(MAC, IPV4[0], b"nowhere"));
    drop((queues, steering));

    let config = af_xdp::Config { opener, ..af_xdp::Config::new(INTERFACE) };
    let opened = veth.near.within(|| clearway_nic::open_xdp(&config)).expect("entered");
    says_so(&*opened.expect("veth can be opened").queues[0]);
}
