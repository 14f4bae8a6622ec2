//! The driver of tap devices, with a packet socket on the interface, or the kernel's own stack, at
//! the other end. Needs root to make namespaces; says so and passes otherwise.

mod conformance;
mod veth;

use std::net::{IpAddr, UdpSocket};
use std::os::fd::OwnedFd;

use clearway_nic::interface::{Device, KernelSteering, Namespace, Steering};
use clearway_nic::tap::{self, Config};
use clearway_nic::{Error, MacAddress, Queue, af_packet, udp};
use conformance::Pair;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use veth::{
    INTERFACE, IPV4, IPV6, PORT, datagrams, ip, mac_at, packets_at, receive_all, send_all,
    wait_for_link,
};

/// Our end of the device.
const OWN_MAC: MacAddress = [0x02, 0, 0, 0, 0, 7];

/// A namespace of its own, or nothing if this is not root.
fn space() -> Option<Namespace> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to make network namespaces");
        return None;
    }
    let space = Namespace::create().expect("root may make namespaces");
    ip(&space, "link set lo up");
    Some(space)
}

fn attach(space: &Namespace, queues: usize) -> Result<Vec<OwnedFd>, Error> {
    space.within(|| tap::attach(INTERFACE, queues, None)).expect("entered")
}

fn open_as(space: &Namespace, queues: usize, super_frames: bool) -> Vec<Box<dyn Queue>> {
    let files = attach(space, queues).expect("a tap device");
    let config = Config { interface: INTERFACE.to_owned(), mac: OWN_MAC, super_frames };
    let opened = space.within(|| tap::open(&config, files)).expect("entered");
    let mut queues = opened.expect("it can be opened");
    queues.iter_mut().for_each(|queue| wait_for_link(&mut **queue));
    queues
}

fn open(space: &Namespace) -> Box<dyn Queue> {
    open_as(space, 1, true).remove(0)
}

/// A packet socket on the kernel's end.
fn outside(space: &Namespace, super_frames: bool) -> (Box<dyn Queue>, KernelSteering) {
    let config =
        af_packet::Config { super_frames: Some(super_frames), ..af_packet::Config::new(INTERFACE) };
    let opened = space.within(|| af_packet::open(&config)).expect("entered");
    let (mut queues, mut steering) = opened.expect("it can be opened");
    steering.register_udp_port(None, conformance::UDP_PORT).expect("the port is free");
    wait_for_link(&mut *queues[0]);
    (queues.remove(0), steering)
}

/// A queue of a tap device, and a packet socket. What the kernel says by itself would take places
/// of frames that are counted.
fn pair(space: Namespace, super_frames: bool) -> Pair {
    let silence = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    space.within(silence).expect("entered").expect("the namespace's own");
    let a = open_as(&space, 1, super_frames).remove(0);
    let (b, steering) = outside(&space, super_frames);
    let here = Namespace::open(&space.path().to_string_lossy()).expect("it is open");
    let cut = move |b| {
        ip(&here, &format!("link set {INTERFACE} down"));
        drop(b);
    };
    Pair { a, b, cut: Some(Box::new(cut)), keep: Box::new((steering, space)) }
}

/// The same, seen from the other side; with its only queue the device goes.
fn swapped(Pair { a, b, cut, keep }: Pair) -> Pair {
    let cut = cut.map(|_| Box::new(drop) as conformance::Cut);
    Pair { a: b, b: a, cut, keep }
}

#[test]
fn conforms() {
    for super_frames in [true, false] {
        if space().is_some() {
            conformance::run(|| pair(space().expect("root"), super_frames));
            conformance::run(|| swapped(pair(space().expect("root"), super_frames)));
        }
    }
}

/// The queue that the flow of the frames goes to, of three; what comes to others is missing.
fn pair_of_several(space: Namespace) -> Pair {
    let mut queues = open_as(&space, 3, true);
    let (mut b, steering) = outside(&space, true);
    let frame = conformance::back(conformance::frame(&*b, &*queues[0], 0, 64));
    let a = veth::queue_of(&mut *b, &mut queues, &frame);
    let a = queues.swap_remove(a);
    Pair { a, b, cut: None, keep: Box::new((steering, queues, space)) }
}

#[test]
fn conforms_with_several_queues() {
    if space().is_some() {
        conformance::run(|| pair_of_several(space().expect("root")));
        conformance::run(|| swapped(pair_of_several(space().expect("root"))));
    }
}

/// The kernel has the second addresses, on its end, and knows who has the first.
fn with_addresses(space: &Namespace) {
    ip(space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[1]));
    ip(space, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[1]));
    let mac = OWN_MAC.map(|octet| format!("{octet:02x}")).join(":");
    for address in [IpAddr::from(IPV4[0]), IpAddr::from(IPV6[0])] {
        ip(space, &format!("neigh replace {address} lladdr {mac} dev {INTERFACE} nud permanent"));
    }
}

/// Sizes of datagrams that go together: the last shorter, all of a size, small ones.
const GROUPS: [(usize, usize, usize); 4] =
    [(1400, 5, 40), (100, 99, 9), (1, 1, 64), (1000, 1000, 64)];

fn sizes((each, last, count): (usize, usize, usize)) -> Vec<usize> {
    let mut sizes = vec![each; count];
    sizes[count - 1] = last;
    sizes
}

/// The UDP socket of a program sends 64 datagrams by one call, which no driver has parted.
#[test]
fn super_frames_of_the_kernel_are_cut() {
    let Some(space) = space() else { return };
    let mut queue = open(&space);
    with_addresses(&space);
    let opened = space.within(|| udp::open(&udp::Config::new(PORT))).expect("entered");
    let sockets = &mut *opened.expect("sockets can be opened")[0];
    for is_v4 in [true, false] {
        for group in GROUPS {
            let frames = datagrams([OWN_MAC; 2], &[], is_v4, &sizes(group));
            let before = queue.counters().rx_super_frames;
            send_all(sockets, &frames);
            let received = receive_all(&mut *queue, frames.len());
            assert!(queue.counters().rx_super_frames > before, "the kernel has parted them itself");
            for (received, sent) in received.iter().zip(&frames) {
                veth::assert_as_sent(received, sent, is_v4);
            }
        }
    }
    assert_eq!(queue.counters().rx_frames_dropped, 0);
}

/// What leaves together is one packet to the kernel, and each datagram to who reads it.
#[test]
fn the_kernel_takes_super_frames() {
    let Some(space) = space() else { return };
    let mut queue = open(&space);
    with_addresses(&space);
    let macs = [mac_at(&space), OWN_MAC];
    for (is_v4, at) in [(true, IpAddr::from(IPV4[1])), (false, IPV6[1].into())] {
        let socket = space.within(|| UdpSocket::bind((at, PORT))).expect("entered");
        let socket = socket.expect("the port is free");
        socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("not zero");
        for group in GROUPS {
            let mut frames = datagrams(macs, &[], is_v4, &sizes(group));
            // From us to the kernel: what is added up stays the same.
            for frame in &mut frames {
                frame[..6].copy_from_slice(&macs[0]);
                frame[6..12].copy_from_slice(&macs[1]);
                if is_v4 { frame[26..34].rotate_left(4) } else { frame[22..54].rotate_left(16) }
            }
            let before = packets_at(&space);
            send_all(&mut *queue, &frames);
            let udp_at = if is_v4 { 34 } else { 54 };
            for sent in &frames {
                let mut datagram = [0; 2000];
                let length = socket.recv(&mut datagram).expect("it comes");
                assert_eq!(datagram[..length], sent[udp_at + 8..]);
            }
            let packets = packets_at(&space) - before;
            assert!(packets < 5, "{} datagrams were {packets} packets", frames.len());
        }
    }
    assert_eq!(queue.counters().tx_frames_dropped, 0);
    assert_eq!(queue.counters().tx_super_frames, 8);
    let mode = queue.info().mode;
    assert!(mode.contains("leave and come as one (IFF_VNET_HDR)"), "{mode}");
}

/// Super-frames of a VLAN, which come as they were.
#[test]
fn vlan_tags_stay_in_their_place() {
    let Some(space) = space() else { return };
    let mut queue = open(&space);
    let (mut sender, _steering) = outside(&space, true);
    for is_v4 in [true, false] {
        for tags in [&[5][..], &[7, 5]] {
            let frames = datagrams([OWN_MAC, mac_at(&space)], tags, is_v4, &[1400; 40]);
            let before = queue.counters().rx_super_frames;
            send_all(&mut *sender, &frames);
            let mut received = Vec::new();
            veth::until("all of them have come", || {
                let ours = |frame: &&&[u8]| frames.iter().any(|sent| **frame == sent);
                queue.receive(64, &mut |burst, _| {
                    received.extend(burst.iter().filter(ours).map(|frame| frame.to_vec()));
                });
                received.len() >= frames.len()
            });
            assert_eq!(received, frames);
            assert!(queue.counters().rx_super_frames > before);
        }
    }
    assert_eq!(queue.counters().rx_frames_dropped, 0);
}

/// Flows of the kernel's come to all queues, and each of them to one.
#[test]
fn flows_are_shared_out_among_queues() {
    let Some(space) = space() else { return };
    let mut queues = open_as(&space, 3, true);
    with_addresses(&space);
    let (flows, packets) = (60, 5);
    let sockets: Vec<UdpSocket> = (0..flows)
        .map(|_| {
            let socket = space.within(|| UdpSocket::bind((IPV4[1], 0))).expect("entered");
            let socket = socket.expect("a port is free");
            socket.connect((IPV4[0], PORT)).expect("there is a route");
            socket
        })
        .collect();
    for number in 0..flows * packets {
        sockets[number % flows].send(&[7; 300]).expect("sent");
    }
    let ports: Vec<u16> =
        sockets.iter().map(|socket| socket.local_addr().expect("it is bound").port()).collect();
    let mut counts = vec![[0; 3]; flows];
    veth::until("all have come", || {
        for (index, queue) in queues.iter_mut().enumerate() {
            queue.receive(64, &mut |frames, _| {
                for frame in frames.iter().filter(|frame| frame.ends_with(&[7; 300])) {
                    let port = u16::from_be_bytes([frame[34], frame[35]]);
                    let flow = ports.iter().position(|other| *other == port).expect("one of them");
                    counts[flow][index] += 1;
                }
            });
        }
        counts.iter().flatten().sum::<usize>() == flows * packets
    });
    assert!((0..3).all(|index| counts.iter().any(|of_flow| of_flow[index] > 0)), "{counts:?}");
    let is_whole = |of_flow: &[usize; 3]| of_flow.iter().max() == Some(&packets);
    assert!(counts.iter().all(is_whole), "{counts:?}");
}

/// One that an administrator has made is used as it is, and stays.
#[test]
fn a_device_that_is_there_is_used_and_stays() {
    let Some(space) = space() else { return };
    for (kind, queues) in [("", 1), ("multi_queue", 1), ("multi_queue", 2)] {
        ip(&space, &format!("tuntap add dev {INTERFACE} mode tap {kind}"));
        ip(&space, &format!("link set {INTERFACE} mtu 9000"));
        let mac = mac_at(&space);
        let files = attach(&space, queues).expect("it is free");
        let config = Config { interface: INTERFACE.to_owned(), mac: OWN_MAC, super_frames: true };
        let opened = space.within(|| tap::open(&config, files)).expect("entered");
        let mut opened = opened.expect("it can be opened");
        assert_eq!(opened.len(), queues);
        let queue = &mut *opened[0];
        assert!(!queue.link_up(), "nobody has set it up");
        let mode = queue.info().mode;
        assert!(mode.contains("stays without this daemon"), "{mode}");
        assert_eq!(queue.capabilities().frame_bytes_max, 9014);
        ip(&space, &format!("link set {INTERFACE} up"));
        veth::until("the link is up", || {
            queue.arm();
            queue.link_up()
        });
        drop(opened);
        assert_eq!(mac_at(&space), mac, "the same one");
        ip(&space, &format!("link del {INTERFACE}"));
    }
    // One that was made goes.
    let queue = open(&space);
    assert!(queue.info().mode.contains("goes with this daemon"), "{}", queue.info().mode);
    drop(queue);
    assert!(space.within(|| Device::open(INTERFACE).is_err()).expect("entered"));
}

/// What is in the way, and what to do about it.
#[test]
fn errors_name_cause_and_remedy() {
    let Some(space) = space() else { return };
    let says = |queues: usize, parts: &[&str]| {
        let error = attach(&space, queues).expect_err("it cannot be had").to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let del = || ip(&space, &format!("link del {INTERFACE}"));
    ip(&space, &format!("link add {INTERFACE} type bridge"));
    says(1, &["of another kind (driver bridge)", "Choose another name"]);
    del();
    ip(&space, &format!("tuntap add dev {INTERFACE} mode tun"));
    says(1, &["is a tun device", "mode tap multi_queue"]);
    del();
    ip(&space, &format!("tuntap add dev {INTERFACE} mode tap"));
    says(2, &["was made for one queue, and 2 are wanted", "Lower `engines` to 1"]);
    del();
    says(0, &["0 queues", "1 to 256"]);
    says(257, &["257 queues", "Lower `engines`"]);
    let queues = open_as(&space, 2, true);
    says(1, &["another program has the tap device", "Stop it"]);
    drop(queues);
    // More than the kernel has of one device, some of which others have in secret.
    ip(&space, &format!("tuntap add dev {INTERFACE} mode tap multi_queue"));
    let first = attach(&space, 200).expect("they are free");
    says(100, &["1 to 256 in all", "Lower `engines`"]);
    drop(first);
    del();
    let taken = |interface: &str| {
        let attached = space.within(|| tap::attach(interface, 1, None)).expect("entered");
        attached.expect_err("no such name").to_string()
    };
    let error = taken("a/b");
    assert!(error.contains("cannot be the name of an interface"), "{error}");
    let one = ip(&space, "-o link show lo");
    assert!(one.contains("LOOPBACK"), "{one}");
    let error = taken("lo");
    assert!(error.contains("of another kind"), "{error}");
}

/// On a thread that has given everything up.
#[test]
fn without_privilege_only_a_device_of_this_user_is_had() {
    let Some(space) = space() else { return };
    let attach = || {
        space.within(|| {
            let mut own = capabilities(None).expect("its own");
            own.effective = CapabilitySet::empty();
            set_capabilities(None, own).expect("it may have less");
            tap::attach(INTERFACE, 2, None).map_err(|error| error.to_string())
        })
    };
    let refused = attach().expect("entered").expect_err("nobody's");
    let parts = ["there is no tap device cw0", "CAP_NET_ADMIN", "ip tuntap add dev cw0 mode tap"];
    assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    for (user, is_ours) in [(1, false), (0, true)] {
        ip(&space, &format!("tuntap add dev {INTERFACE} mode tap multi_queue user {user}"));
        let outcome = attach().expect("entered");
        assert_eq!(outcome.is_ok(), is_ours, "{outcome:?}");
        if let Err(error) = outcome {
            assert!(error.contains("is another user's"), "{error}");
        }
        ip(&space, &format!("link del {INTERFACE}"));
    }
}

/// A device that is taken away is a link that is down, and nothing worse.
#[test]
fn a_device_that_is_removed_is_a_link_that_is_down() {
    let Some(space) = space() else { return };
    let mut queue = open(&space);
    let frame = conformance::frame(&*queue, &*queue, 0, 100);
    ip(&space, &format!("link del {INTERFACE}"));
    veth::send(&mut *queue, &frame);
    assert_eq!(queue.counters().tx_frames_dropped, 1);
    assert!(!queue.link_up());
    assert_eq!(queue.receive(64, &mut |_, _| panic!("from nowhere")), 0);
    veth::send(&mut *queue, &frame);
    assert_eq!(queue.counters().tx_frames_dropped, 2);
}
