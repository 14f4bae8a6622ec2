//! The AF_XDP driver over veth pairs: conformance, coexistence with the kernel, and cleaning up.
//! Needs root; says so and passes otherwise.

mod conformance;
mod veth;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway_nic::af_xdp::{self, Config, Mode};
use clearway_nic::interface::{
    Device, Facts, KernelSteering, Namespace, SteerPattern, Steered, Steering,
};
use clearway_nic::{Error, Queue, Transmit, af_packet, open_interface, open_xdp, probe};
use conformance::Pair;
use rustix::thread::{CapabilitySet, CapabilitySets};
use veth::{
    INTERFACE, IPV4, IPV6, Veth, bind_again, ends_with, ip, next_frame, ping, until, wait_for_link,
};

const PORT: u16 = 7117;
const MODES: [Mode; 2] = [Mode::Generic, Mode::Copy];

fn config(mode: Mode) -> Config {
    Config { mode, ..Config::new(INTERFACE) }
}

fn try_open(
    space: &Namespace,
    config: &Config,
) -> Result<(Vec<Box<dyn Queue>>, KernelSteering), Error> {
    space.within(|| af_xdp::open(config)).expect("the namespace can be entered")
}

/// Opens `INTERFACE` with one queue and waits for its link.
fn open(space: &Namespace, mode: Mode) -> (Box<dyn Queue>, KernelSteering) {
    let (mut queues, steering) = try_open(space, &config(mode)).expect("veth can be opened");
    assert_eq!(queues.len(), 1);
    let mut queue = queues.remove(0);
    wait_for_link(&mut *queue);
    (queue, steering)
}

fn steered(steering: &KernelSteering) -> Steered {
    steering.steered().expect("the program counts")
}

fn facts(space: &Namespace) -> Facts {
    space.within(|| Facts::of(INTERFACE)).expect("entered").expect("the interface is there")
}

fn conformance_pair(veth: Veth, mode: Mode) -> Pair {
    let (a, mut steering_a) = open(&veth.near, mode);
    let (b, mut steering_b) = open(&veth.far, mode);
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
fn conforms_in_generic_mode() {
    if Veth::new().is_some() {
        conformance::run(|| conformance_pair(Veth::new().expect("root"), Mode::Generic));
    }
}

#[test]
fn conforms_in_native_mode() {
    if Veth::new().is_some() {
        conformance::run(|| conformance_pair(Veth::new().expect("root"), Mode::Copy));
    }
}

#[test]
fn the_kernel_keeps_the_rest_of_the_interface() {
    let Some(veth) = Veth::new() else { return };
    for mode in MODES {
        let (mut queue, mut steering) = open(&veth.near, mode);
        steering.register_udp_port(None, PORT).expect("the port is free");
        assert!(veth.far.within(|| ping(IPV4[0].into())).expect("entered"), "ping over IPv4");
        assert!(veth.far.within(|| ping(IPV6[0].into())).expect("entered"), "ping over IPv6");
        assert!(veth.near.within(|| ping(IPV4[1].into())).expect("entered"), "ping from here");
        tcp_carries_a_megabyte(&veth, IPV4[0].into());
        tcp_carries_a_megabyte(&veth, IPV6[0].into());
        assert_eq!(queue.receive(64, &mut |frames, _| panic!("{frames:x?} are not ours")), 0);
    }
}

fn tcp_carries_a_megabyte(veth: &Veth, address: IpAddr) {
    let bytes: Vec<u8> = (0..1 << 20).map(|index: u32| ((index * 7) >> 3) as u8).collect();
    let bind = || TcpListener::bind((address, 0));
    let listener = veth.near.within(bind).expect("entered").expect("a port is free");
    let there = listener.local_addr().expect("bound");
    let connect = || TcpStream::connect_timeout(&there, Duration::from_secs(10));
    let mut stream = veth.far.within(connect).expect("entered").expect("the kernel answers");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut accepted, _) = listener.accept().expect("somebody connects");
            accepted.write_all(&bytes).expect("the other side reads");
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the other side writes");
        assert_eq!(received, bytes);
    });
}

#[test]
fn registered_ports_are_ours_and_others_the_kernels() {
    let Some(veth) = Veth::new() else { return };
    for mode in MODES {
        for (here, there) in [(IPV4[0].into(), IPV4[1].into()), (IPV6[0].into(), IPV6[1].into())] {
            ports_are_steered(&veth, mode, here, there);
        }
    }
}

fn ports_are_steered(veth: &Veth, mode: Mode, here: IpAddr, there: IpAddr) {
    let (mut queue, mut steering) = open(&veth.near, mode);
    let sender = veth.far.within(|| UdpSocket::bind((there, 0))).unwrap().unwrap();
    let others = veth.near.within(|| UdpSocket::bind((here, PORT + 1))).unwrap().unwrap();
    others.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    let kernel_gets = |socket: &UdpSocket, payload: &[u8]| {
        let mut buffer = [0; 64];
        let (length, _) = socket.recv_from(&mut buffer).expect("the kernel gets it");
        assert_eq!(&buffer[..length], payload);
    };

    steering.register_udp_port(Some(here), PORT).expect("the port is free");
    steering.register_udp_port(Some(here), PORT).expect("twice is once");
    sender.send_to(b"for the engine", (here, PORT)).expect("sent");
    next_frame("ours arrives", &mut *queue, ends_with(b"for the engine"));
    sender.send_to(b"for the kernel", (here, PORT + 1)).expect("sent");
    kernel_gets(&others, b"for the kernel");
    assert_eq!(queue.receive(64, &mut |frames, _| panic!("{frames:x?} are not ours")), 0);

    let bound = veth.near.within(|| UdpSocket::bind((here, PORT))).unwrap();
    assert!(bound.is_err(), "a registered port is taken");
    let taken = steering.register_udp_port(Some(here), PORT + 1);
    assert!(matches!(taken, Err(Error::Invalid(_))), "a taken port cannot be registered");

    steering.unregister_udp_port(Some(here), PORT).expect("it was registered");
    let socket = bind_again(&veth.near, (here, PORT));
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    sender.send_to(b"the kernel's again", (here, PORT)).expect("sent");
    kernel_gets(&socket, b"the kernel's again");
    assert!(steered(&steering).redirected >= 1);
}

#[test]
fn own_addresses_are_ours_to_answer() {
    let Some(veth) = Veth::new() else { return };
    let (own4, own6) = (IpAddr::from([10, 77, 0, 50]), "fd77::50".parse::<IpAddr>().unwrap());
    for mode in MODES {
        ip(&veth.far, &format!("neigh flush dev {INTERFACE}"));
        let (mut queue, mut steering) = open(&veth.near, mode);
        steering.add_own_address(own4).expect("there is room");
        steering.add_own_address(own6).expect("there is room");
        let ask = |to: IpAddr| {
            let any: SocketAddr =
                if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
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
        let macs = format!("lladdr {}", mac_text(&*queue));
        ip(&veth.far, &format!("neigh replace {own4} dev {INTERFACE} {macs}"));
        assert!(!veth.far.within(|| ping_once_unanswered(own4)).expect("entered"));
        next_frame("the echo request to our address", &mut *queue, |frame| {
            frame[12..14] == [0x08, 0x00] && frame[23] == 1 && frame[34] == 8
        });

        steering.remove_address(own4).expect("it was added");
        steering.remove_address(own6).expect("it was added");
        steering.remove_address(own6).expect("twice is once");
        ip(&veth.far, &format!("neigh del {own4} dev {INTERFACE}"));
        let before = steered(&steering).passed_other;
        ask(own4);
        until("the ARP request passes", || steered(&steering).passed_other > before);
    }
}

fn ping_once_unanswered(to: IpAddr) -> bool {
    let arguments = ["-c", "1", "-W", "0.1", &to.to_string()];
    Command::new("ping").args(arguments).output().expect("ping is installed").status.success()
}

fn mac_text(queue: &dyn Queue) -> String {
    queue.info().mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[test]
fn steering_reads_what_it_should_and_passes_the_rest() {
    let Some(veth) = Veth::new() else { return };
    for mode in MODES {
        let (mut here, mut steering) = open(&veth.near, mode);
        let (mut there, _) = open(&veth.far, mode);
        steering.register_udp_port(Some(IPV4[0].into()), PORT).expect("the port is free");
        steering.register_udp_port(Some(IPV6[0].into()), PORT).expect("the port is free");
        let macs = [there.info().mac, here.info().mac];
        let datagram = veth::udp(PORT, b"through the maze, untouched");
        let plain = veth::ipv4(IPV4[0], 17, &[], 0, &datagram);
        let options = veth::ipv4(IPV4[0], 17, &[1; 40], 0x4000, &datagram);
        let six = veth::ipv6(IPV6[0], 17, &datagram);
        let extension = [&[17, 0, 0, 0, 0, 0, 0, 0][..], &datagram].concat();
        let extended = veth::ipv6(IPV6[0], 0, &extension);
        for (tags, ethertype, packet) in [
            (&[][..], 0x0800, &plain),
            (&[5], 0x0800, &plain),
            (&[], 0x0800, &options),
            (&[], 0x86dd, &six),
            (&[6], 0x86dd, &six),
            (&[], 0x86dd, &extended),
        ] {
            let frame = veth::ethernet(macs, tags, ethertype, packet);
            veth::send(&mut *there, &frame);
            let arrived = next_frame("it arrives", &mut *here, ends_with(b"untouched"));
            assert_eq!(arrived, frame, "in {mode:?}");
        }

        let wrong_port = veth::udp(PORT + 1, b"not for us");
        let passing = [
            (0x0800, veth::ipv4(IPV4[0], 17, &[], 0x2000, &datagram)),
            (0x0800, veth::ipv4(IPV4[0], 17, &[], 0x0007, &datagram)),
            (0x0800, veth::ipv4(IPV4[0], 17, &[], 0, &wrong_port)),
            (0x0800, veth::ipv4(IPV4[1], 17, &[], 0, &datagram)),
            (0x0800, veth::ipv4(IPV4[0], 6, &[], 0, &datagram)),
            (0x0800, veth::ipv4(IPV4[0], 17, &[], 0, &datagram[..6])),
            (0x0800, plain[..12].to_vec()),
            (0x0800, [&[0x42], &plain[1..]].concat()),
            (0x0800, [&[0x4f], &plain[1..40]].concat()),
            (0x86dd, six[..39].to_vec()),
            (0x86dd, veth::ipv6(IPV6[0], 58, &[135])),
            (0x0806, vec![0; 4]),
            (0x8100, vec![0; 1]),
            (0x1234, datagram.clone()),
        ];
        let passed = |steering: &KernelSteering| {
            let steered = steered(steering);
            steered.passed_fragment + steered.passed_malformed + steered.passed_other
        };
        let (before, redirected) = (passed(&steering), steered(&steering).redirected);
        for (ethertype, packet) in &passing {
            veth::send(&mut *there, &veth::ethernet(macs, &[], *ethertype, packet));
        }
        until("all have passed", || passed(&steering) >= before + passing.len() as u64);
        assert_eq!(steered(&steering).redirected, redirected, "in {mode:?}");
        assert!(steered(&steering).passed_fragment >= 2);
        assert_eq!(here.receive(64, &mut |frames, _| panic!("{frames:x?} are not ours")), 0);
    }
}

/// UDP of IPv4 to this port, from any.
fn udp_over_ipv4(port: u16) -> SteerPattern {
    let mask = [0xffff_ff7f_0000, 0, 0, 0, 0, 0, 0, 0];
    let value = u64::from(port) << 32 | 17 << 24 | 6 << 20 | 1 << 16;
    SteerPattern::new(mask, [value, 0, 0, 0, 0, 0, 0, 0]).expect("the eighth word is left out")
}

#[test]
fn patterns_come_and_go_while_frames_flow() {
    let Some(veth) = Veth::new() else { return };
    for mode in MODES {
        let (mut here, mut steering) = open(&veth.near, mode);
        let (mut there, _) = open(&veth.far, mode);
        let macs = [there.info().mac, here.info().mac];
        let packet = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, b"by pattern"));
        let frame = veth::ethernet(macs, &[], 0x0800, &packet);
        let pattern = udp_over_ipv4(PORT);
        steering.add_pattern(&pattern).expect("there is room");
        steering.add_pattern(&pattern).expect("another owner");
        let others: Vec<_> = (1..=200).map(udp_over_ipv4).collect();
        for (number, other) in others.iter().enumerate() {
            steering.add_pattern(other).expect("there is room");
            if number % 20 == 0 {
                veth::send(&mut *there, &frame);
                next_frame("ours arrives", &mut *here, ends_with(b"by pattern"));
            }
        }
        steering.remove_pattern(&pattern).expect("it was added");
        others.iter().for_each(|other| steering.remove_pattern(other).expect("it was added"));
        veth::send(&mut *there, &frame);
        next_frame("one owner is left", &mut *here, ends_with(b"by pattern"));
        steering.remove_pattern(&pattern).expect("it was added");
        steering.remove_pattern(&pattern).expect("more often than it was added");
        let passed = steered(&steering).passed_other;
        veth::send(&mut *there, &frame);
        until("it is the kernel's", || steered(&steering).passed_other > passed);
        assert_eq!(here.receive(64, &mut |frames, _| panic!("{frames:x?} are not ours")), 0);
    }
}

#[test]
fn own_ethernet_addresses_are_let_in_and_gone_with_their_owner() {
    let Some(veth) = Veth::new() else { return };
    let own = [2, 0xc1, 0xea, 0, 0, 7];
    let listed = || {
        let text = veth.near.ip(&format!("-d link show dev {INTERFACE}")).expect("it is there");
        !text.contains("promiscuity 0 ")
    };
    for mode in MODES {
        let (mut here, mut steering) = open(&veth.near, mode);
        let (mut there, _) = open(&veth.far, mode);
        assert!(!listed());
        steering.add_mac(own, true).expect("there is room");
        steering.add_mac(own, true).expect("twice is once");
        assert!(listed(), "a veth has no filter, so the kernel makes it promiscuous");
        let mut mask = [0; 8];
        mask[1] = 0xffff_ffff_ffff_0000;
        let mut value = [0; 8];
        value[1] = u64::from_be_bytes([2, 0xc1, 0xea, 0, 0, 7, 0, 0]);
        let pattern = SteerPattern::new(mask, value).expect("the eighth word is left out");
        steering.add_pattern(&pattern).expect("there is room");
        let frame = veth::ethernet([there.info().mac, own], &[], 0x1234, b"to my own address");
        veth::send(&mut *there, &frame);
        next_frame("it arrives", &mut *here, ends_with(b"to my own address"));
        steering.remove_mac(own).expect("it was added");
        steering.remove_mac(own).expect("twice is once");
        assert!(!listed());
        steering.add_mac(own, true).expect("there is room");
        assert!(steering.add_mac([0x33, 0x33, 0, 0, 0, 1], true).is_err(), "a group is no machine");
        drop(steering);
        // A process that another test has just started has a copy of the socket for a moment.
        until("nothing stays behind", || !listed());
    }
}

#[test]
fn every_receive_queue_has_a_socket() {
    let Some(veth) = Veth::with_queues(2) else { return };
    for mode in MODES {
        let (mut queues, mut steering) = try_open(&veth.far, &config(mode)).expect("it opens");
        assert_eq!(queues.len(), 2);
        steering.register_udp_port(None, PORT).expect("the port is free");
        let (mut senders, _) = try_open(&veth.near, &config(mode)).expect("it opens");
        let macs = [senders[0].info().mac, queues[0].info().mac];
        queues.iter_mut().chain(&mut senders).for_each(|queue| wait_for_link(&mut **queue));
        let packet = veth::ipv4(IPV4[1], 17, &[], 0, &veth::udp(PORT, b"to one of them"));
        let frame = veth::ethernet(macs, &[], 0x0800, &packet);
        for sender in &mut senders {
            veth::send(&mut **sender, &frame);
            let mut arrived = 0;
            until("one of them has it", || {
                let taken = queues.iter_mut().map(|queue| queue.receive(8, &mut |_, _| ()));
                arrived += taken.sum::<usize>();
                arrived > 0
            });
        }
    }
}

#[test]
fn what_was_changed_is_put_back() {
    let Some(veth) = Veth::with_queues(2) else { return };
    let device = veth.near.within(|| Device::open(INTERFACE)).unwrap().expect("it is there");
    let before = device.channels();
    assert_eq!(before.pairs(), 2);
    let one_queue = Config { queues: Some(1), ..config(Mode::Generic) };
    let (queues, steering) = try_open(&veth.near, &one_queue).expect("it opens");
    assert_eq!((queues.len(), device.channels().pairs()), (1, 1));
    assert!(facts(&veth.near).xdp_program.is_some());
    drop(steering);
    assert!(facts(&veth.near).xdp_program.is_some(), "the queues still need it");
    drop(queues);
    assert_eq!(facts(&veth.near).xdp_program, None);
    assert_eq!(device.channels(), before);

    // In native mode veth wants as many receive queues as its peer has transmit queues.
    let refused = Config { queues: Some(1), ..config(Mode::Copy) };
    let refused = try_open(&veth.near, &refused).map(|_| ()).expect_err("the kernel refuses");
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert_eq!(device.channels(), before);

    let sentence = veth.near.within(|| probe(INTERFACE)).unwrap().expect("it can be opened");
    assert!(sentence.starts_with("af_packet: "), "{sentence}");
    assert_eq!(facts(&veth.near).xdp_program, None);
    assert_eq!(device.channels(), before);
}

/// The part of the test below that is killed: opens the interface and waits.
#[test]
fn child_that_holds_the_interface() {
    if std::env::var_os("CLEARWAY_TEST_HOLD").is_none() {
        return;
    }
    for mode in [Mode::Copy, Mode::Generic] {
        let opened = af_xdp::open(&config(mode)).expect("veth can be opened");
        println!("holding");
        std::io::stdin().read_line(&mut String::new()).expect("the parent lives");
        drop(opened);
    }
}

#[test]
fn a_killed_process_does_not_block_its_successor() {
    let Some(veth) = Veth::new() else { return };
    for lines in 0..2 {
        let spawn = || {
            Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "child_that_holds_the_interface", "--nocapture"])
                .env("CLEARWAY_TEST_HOLD", "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut child = veth.near.within(spawn).unwrap().expect("it starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped")).lines();
        for line in 0..=lines {
            assert!(output.any(|line| line.is_ok_and(|line| line.ends_with("holding"))));
            if line < lines {
                child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
            }
        }
        assert!(facts(&veth.near).xdp_program.is_some(), "the child holds it");
        let busy = try_open(&veth.near, &config(Mode::Auto)).map(|_| ());
        let text = busy.expect_err("two daemons cannot share it").to_string();
        assert!(text.contains("another XDP program is attached"), "{text}");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        assert_eq!(facts(&veth.near).xdp_program, None);
        try_open(&veth.near, &config(Mode::Auto)).expect("the successor gets it");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(veth) = Veth::new() else { return };
    let missing = Config::new("cw-none");
    let none = try_open(&veth.near, &missing).map(|_| ()).expect_err("there is none");
    assert!(matches!(none, Error::NotFound(_)), "{none}");
    let odd = Config { descriptors: 300, ..config(Mode::Auto) };
    let odd = try_open(&veth.near, &odd).map(|_| ()).expect_err("not a power of two");
    assert!(matches!(odd, Error::Invalid(_)), "{odd}");
    let many = Config { queues: Some(60_000), ..config(Mode::Auto) };
    let many = try_open(&veth.near, &many).map(|_| ()).expect_err("too many");
    assert!(many.to_string().contains("60000 queues"), "{many}");
    let zero_copy = try_open(&veth.near, &config(Mode::ZeroCopy)).map(|_| ());
    let zero_copy = zero_copy.expect_err("veth has no zero-copy").to_string();
    assert!(zero_copy.contains("no zero-copy mode"), "{zero_copy}");
    assert_eq!(facts(&veth.near).xdp_program, None);
    let as_nobody = veth.near.within(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        af_xdp::open(&config(Mode::Auto)).map(|_| ())
    });
    let as_nobody = as_nobody.expect("entered").expect_err("nobody may not");
    assert!(matches!(as_nobody, Error::Permission(_)), "{as_nobody}");
}

#[test]
fn an_interface_with_a_foreign_program_is_opened_with_a_packet_socket() {
    let Some(veth) = Veth::new() else { return };
    let within = |config: Config| veth.near.within(move || open_xdp(&config)).expect("entered");
    let first = within(config(Mode::Auto)).expect("veth can be opened");
    assert!(first.copies.is_some(), "what goes to the kernel can be seen");
    assert_eq!(first.queues[0].info().driver, "af_xdp");
    let second = || veth.near.within(|| open_interface(&config(Mode::Auto), None, 1));
    let info = second().expect("entered").expect("veth can be opened").queues[0].info();
    assert_eq!(info.driver, "af_packet");
    assert!(within(config(Mode::Generic)).is_err(), "a way that was asked for is not replaced");
}

#[test]
fn an_interface_may_vanish() {
    for mode in MODES {
        let Some(veth) = Veth::new() else { return };
        let (mut queue, mut steering) = open(&veth.near, mode);
        steering.register_udp_port(None, PORT).expect("the port is free");
        ip(&veth.near, &format!("link del {INTERFACE}"));
        until("the link is down", || {
            queue.transmit(&mut |buffer| buffer.len());
            queue.flush();
            queue.receive(1, &mut |_, _| ());
            !queue.link_up()
        });
        assert!(queue.arm());
        queue.disarm();
        assert!(queue.counters().tx_frames_dropped > 0 || queue.counters().tx_frames > 0);
        steering.unregister_udp_port(None, PORT).expect("the map is still there");
    }
}

#[test]
fn more_than_the_kernel_takes_at_once_leaves_in_order() {
    let Some(veth) = Veth::new() else { return };
    for mode in MODES {
        let big = Config { descriptors: 1024, ..config(mode) };
        let (mut senders, _) = try_open(&veth.near, &big).expect("veth can be opened");
        let (mut receivers, mut steering) = try_open(&veth.far, &big).expect("veth can be opened");
        let (near, far) = (&mut *senders[0], &mut *receivers[0]);
        wait_for_link(near);
        wait_for_link(far);
        steering.register_udp_port(None, PORT).expect("the port is free");
        let macs = [near.info().mac, far.info().mac];
        for lap in 0..3_u16 {
            for number in 0..200_u16 {
                let payload = [lap.to_be_bytes(), number.to_be_bytes()].concat();
                let packet = veth::ipv4(IPV4[1], 17, &[], 0, &veth::udp(PORT, &payload));
                let frame = veth::ethernet(macs, &[], 0x0800, &packet);
                let queued = near.transmit(&mut |buffer| {
                    buffer[..frame.len()].copy_from_slice(&frame);
                    frame.len()
                });
                assert_eq!(queued, Transmit::Queued);
            }
            near.flush();
            let mut numbers = Vec::new();
            until("all have arrived", || {
                near.receive(1, &mut |_, _| ());
                far.receive(64, &mut |frames, _| {
                    for frame in frames {
                        assert_eq!(frame[42..44], lap.to_be_bytes());
                        numbers.push(u16::from_be_bytes([frame[44], frame[45]]));
                    }
                });
                numbers.len() >= 200
            });
            assert!(numbers.into_iter().eq(0..200));
        }
    }
}

#[test]
fn a_port_for_one_address_and_for_any_is_claimed_once() {
    let Some(veth) = Veth::new() else { return };
    let (_queue, mut steering) = open(&veth.near, Mode::Generic);
    let here = Some(IPV4[0].into());
    let taken = || veth.near.within(|| UdpSocket::bind((IPV4[0], PORT))).unwrap().is_err();
    for order in [[here, None], [None, here]] {
        steering.register_udp_port(order[0], PORT).expect("the port is free");
        steering.register_udp_port(order[1], PORT).expect("the port is ours");
        steering.unregister_udp_port(None, PORT).expect("it was registered");
        assert!(taken(), "one address is still registered");
        steering.register_udp_port(None, PORT).expect("the port is ours");
        steering.unregister_udp_port(here, PORT).expect("it was registered");
        assert!(taken(), "any address is still registered");
        steering.unregister_udp_port(None, PORT).expect("it was registered");
        assert!(!taken());
    }
    let _other = veth.near.within(|| UdpSocket::bind((IPV4[0], PORT))).unwrap().expect("free");
    let nowhere = Some([10, 77, 0, 50].into());
    steering.register_udp_port(nowhere, PORT).expect("that address is not the kernel's");
    assert!(steering.register_udp_port(None, PORT).is_err(), "somebody has it");
    assert!(steering.register_udp_port(None, 0).is_err(), "there is no port 0");
}

fn jumbo_veth() -> Option<Veth> {
    let veth = Veth::new()?;
    for space in [&veth.near, &veth.far] {
        ip(space, &format!("link set {INTERFACE} mtu 9000"));
    }
    Some(veth)
}

#[test]
fn conforms_with_jumbo_frames() {
    for mode in MODES {
        if Veth::new().is_some() {
            conformance::run(|| conformance_pair(jumbo_veth().expect("root"), mode));
        }
    }
}

#[test]
fn jumbo_frames_take_several_buffers() {
    let Some(veth) = jumbo_veth() else { return };
    for mode in MODES {
        let (mut here, mut steering) = open(&veth.near, mode);
        let (mut there, _) = open(&veth.far, mode);
        steering.register_udp_port(None, PORT).expect("the port is free");
        assert!(!here.info().mode.contains("Keep the MTU"), "{}", here.info().mode);
        let frame_bytes = here.capabilities().frame_bytes_max;
        assert_eq!(frame_bytes, 9014);
        let macs = [there.info().mac, here.info().mac];
        let payload = vec![0x5a; frame_bytes - 14 - 20 - 8];
        let packet = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, &payload));
        let frame = veth::ethernet(macs, &[], 0x0800, &packet);
        veth::send(&mut *there, &frame);
        assert_eq!(next_frame("it arrives", &mut *here, |_| true), frame, "in {mode:?}");

        let sender = veth.far.within(|| UdpSocket::bind((IPV4[1], 0))).unwrap().expect("free");
        sender.send_to(&[1; 8000], (IPV4[0], PORT)).expect("sent");
        let is_it = |frame: &[u8]| frame.ends_with(&[1; 8000]);
        next_frame("what the kernel sends arrives whole", &mut *here, is_it);
        tcp_carries_a_megabyte(&veth, IPV4[0].into());
    }
}

/// Several times as many frames as there are buffers (2,048 to receive into, and 256 to send from,
/// of three each), in one buffer and in up to three.
#[test]
fn jumbo_frames_leave_no_buffer_behind() {
    const BATCH: u32 = 32;
    let Some(veth) = jumbo_veth() else { return };
    for mode in MODES {
        let few = Config { descriptors: 256, ..config(mode) };
        let (mut receivers, mut steering) = try_open(&veth.near, &few).expect("it opens");
        let (mut senders, _) = try_open(&veth.far, &few).expect("it opens");
        let (here, there) = (&mut *receivers[0], &mut *senders[0]);
        wait_for_link(here);
        wait_for_link(there);
        steering.register_udp_port(None, PORT).expect("the port is free");
        let macs = [there.info().mac, here.info().mac];
        let numbered = |number: u32| {
            let payload = number.to_be_bytes().repeat(5 + number as usize * 37 % 2230);
            let packet = veth::ipv4(IPV4[0], 17, &[], 0, &veth::udp(PORT, &payload));
            veth::ethernet(macs, &[], 0x0800, &packet)
        };
        let transmit = |queue: &mut dyn Queue, frame: &[u8]| {
            queue.transmit(&mut |buffer| {
                buffer[..frame.len()].copy_from_slice(frame);
                frame.len()
            })
        };
        let (mut sent, mut seen) = (0, 0);
        while sent < 200 * BATCH {
            for _ in 0..BATCH {
                assert_eq!(transmit(there, &numbered(sent)), Transmit::Queued);
                sent += 1;
            }
            there.flush();
            until("all have arrived", || {
                there.receive(1, &mut |_, _| ());
                here.receive(64, &mut |frames, _| {
                    for frame in frames {
                        assert_eq!(*frame, numbered(seen), "number {seen}");
                        seen += 1;
                    }
                });
                seen == sent
            });
        }
        let mut free = 0;
        until("all buffers to send from are free", || {
            free += u32::from(transmit(there, &numbered(0)) == Transmit::Queued);
            free == few.descriptors
        });
        assert_eq!(transmit(there, &numbered(0)), Transmit::Full);
        assert_eq!(here.counters().rx_frames_dropped, 0);
    }
}

#[test]
fn three_capabilities_suffice() {
    let Some(veth) = Veth::new() else { return };
    veth.near
        .within(|| {
            let three = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
            let sets = CapabilitySets { effective: three, permitted: three, inheritable: three };
            rustix::thread::set_capabilities(None, sets).expect("root may give up the rest");
            let (queues, mut steering) = af_xdp::open(&config(Mode::Auto)).expect("it opens");
            steering.register_udp_port(None, PORT).expect("the port is free");
            steering.add_own_address(IPV6[1].into()).expect("there is room");
            drop((queues, steering));
            let opened = open_xdp(&config(Mode::Generic)).expect("it opens");
            let mode = opened.queues[0].info().mode;
            assert!(mode.contains("with it a packet socket"), "{mode}");
            let config = af_packet::Config::new(INTERFACE);
            let mode = af_packet::open(&config).expect("it opens").0[0].info().mode;
            assert!(mode.contains("hidden from the kernel"), "{mode}");
        })
        .expect("entered");
}

#[test]
fn auto_mode_says_what_it_chose_and_why() {
    let Some(veth) = Veth::new() else { return };
    let (queues, _steering) = try_open(&veth.near, &config(Mode::Auto)).expect("it opens");
    let info = queues[0].info();
    assert_eq!(info.driver, "af_xdp");
    assert!(info.mode.contains("generic mode") && info.mode.contains("veth"), "{}", info.mode);
    assert_eq!(Some(info.mac), facts(&veth.near).mac);
    assert!(queues[0].capabilities().kernel_shares);
}
