//! The dpdk driver over devices that need no hardware: `net_memif` against our own memif,
//! `net_virtio_user` against `net_vhost`, and in namespaces `net_af_xdp` and `net_tap` against the
//! kernel's packet sockets. All in one test, since DPDK starts once per process. Needs the feature
//! `dpdk`, and for those in namespaces root.

#![allow(unsafe_code, reason = "a driver of DPDK is played")]

mod conformance;
mod offloads;
mod testpmd;
mod veth;

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clearway_nic::dpdk::{self, Config, DpdkQueue};
use clearway_nic::interface::{KernelSteering, Namespace, Steering};
use clearway_nic::memif::{self, Role};
use clearway_nic::{LCD_DESCRIPTORS, Queue, af_packet};
use conformance::Pair;
use veth::{INTERFACE, IPV4, Veth, ip, wait_for_link};

/// What packet sockets have.
const FRAME_BYTES_MAX: usize = 1514;
/// For what takes two seconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn eal() -> Vec<String> {
    // Neither huge pages nor devices of this machine.
    ["--no-huge", "-m", "512", "--no-pci"].map(String::from).to_vec()
}

fn open(device: &str) -> DpdkQueue {
    open_with(device, true)
}

fn open_with(device: &str, offloads: bool) -> DpdkQueue {
    let new = Config::new(eal(), device);
    let config = Config { frame_bytes_max: FRAME_BYTES_MAX, offloads, ..new };
    dpdk::open(&config).expect("DPDK opens the device").remove(0)
}

/// Makes the name of a device one that no other has had.
fn fresh() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

#[test]
fn dpdk() {
    offloads::run();
    conforms();
    queues_on_threads_of_their_own();
    refusals_say_what_to_do();
    closing_does_not_wait_for_a_driver_that_is_stuck();
}

fn conforms() {
    conformance::run(|| memif("client"));
    conformance::run(|| swapped(memif("server")));
    for offloads in [true, false] {
        conformance::run(|| offloads::vhost(offloads));
        conformance::run(|| swapped(offloads::vhost(offloads)));
    }
    if Veth::new().is_some() {
        conformance::run(af_xdp);
        conformance::run(|| swapped(af_xdp()));
        conform_as_tap();
    }
}

fn conform_as_tap() {
    if !Path::new("/dev/net/tun").exists() {
        println!("skipped: net_tap needs /dev/net/tun (modprobe tun)");
        return;
    }
    for offloads in [true, false] {
        conformance::run(|| tap(offloads));
        conformance::run(|| swapped(tap(offloads)));
    }
}

/// Most cases send from the first to the second.
fn swapped(pair: Pair) -> Pair {
    Pair { a: pair.b, b: pair.a, cut: None, keep: pair.keep }
}

/// DPDK in this role, and our own driver in the other.
fn memif(role: &str) -> Pair {
    let number = fresh();
    let socket = format!("clearway-dpdk-{}-{number}", std::process::id());
    let ours = if role == "client" { Role::Server } else { Role::Client };
    let mac = [2, 0, 0, 0, 0, 9];
    let mut config = memif::Config::new(memif::Socket::Abstract(socket.clone()), ours, mac);
    config.frame_bytes_max = FRAME_BYTES_MAX;
    config.ring_size_log2 = 10;
    let b = memif::open(config).expect("memif opens").remove(0);
    let a = open(&format!("net_memif{number},role={role},socket={socket},socket-abstract=yes"));
    Pair { a: Box::new(a), b: Box::new(b), cut: Some(Box::new(drop)), keep: Box::new(()) }
}

/// DPDK on one end of a veth pair, and a packet socket on the other.
fn af_xdp() -> Pair {
    let veth = Veth::new().expect("root");
    let device = format!("net_af_xdp{},iface={INTERFACE}", fresh());
    let a = veth.near.within(|| open(&device)).expect("entered");
    let (b, steering) = packets(&veth.far);
    Pair { a: Box::new(a), b, cut: None, keep: Box::new((steering, veth)) }
}

/// DPDK inside of a tap interface, and a packet socket outside.
fn tap(offloads: bool) -> Pair {
    let space = Namespace::create().expect("root may make namespaces");
    let device = format!("net_tap{},iface={INTERFACE}", fresh());
    let a = space.within(|| open_with(&device, offloads)).expect("entered");
    ip(&space, &format!("addr add {}/24 dev {INTERFACE}", IPV4[0]));
    ip(&space, &format!("link set {INTERFACE} up"));
    let (b, steering) = packets(&space);
    Pair { a: Box::new(a), b, cut: None, keep: Box::new((steering, space)) }
}

/// A packet socket on the interface of this namespace, which can send no more at once than DPDK's
/// port takes.
fn packets(space: &Namespace) -> (Box<dyn Queue>, KernelSteering) {
    let config =
        af_packet::Config { descriptors: LCD_DESCRIPTORS, ..af_packet::Config::new(INTERFACE) };
    let opened = space.within(|| af_packet::open(&config));
    let (mut queues, mut steering) = opened.expect("entered").expect("it can be opened");
    let mut queue = queues.remove(0);
    steering.register_udp_port(None, conformance::UDP_PORT).expect("the port is free");
    wait_for_link(&mut *queue);
    (queue, steering)
}

/// DPDK's client and DPDK's server with two queues each: what goes in at one comes out at the same
/// of the other, as memif has it.
fn queues_on_threads_of_their_own() {
    let number = fresh();
    let socket = format!("clearway-dpdk-{}-{number}", std::process::id());
    let open = |role: &str| {
        let device =
            format!("net_memif_{role}{number},role={role},socket={socket},socket-abstract=yes");
        let config = Config { queues: Some(2), ..Config::new(eal(), device) };
        dpdk::open(&config).expect("DPDK opens two queues")
    };
    let (mut servers, mut clients) = (open("server"), open("client"));
    for queue in servers.iter_mut().chain(&mut clients) {
        wait_for_link(queue);
        assert!(queue.info().mode.contains("net_memif"), "{}", queue.info().mode);
    }
    std::thread::scope(|scope| {
        for (mark, (server, client)) in (0..).zip(servers.iter_mut().zip(&mut clients)) {
            scope.spawn(move || exchange(server, client, mark));
        }
    });
    // The client's end first: what accepts connections is never closed while somebody connects.
    drop(clients);
}

/// Frames with this mark, there and back.
fn exchange(server: &mut DpdkQueue, client: &mut DpdkQueue, mark: u8) {
    // DPDK's client gives the server no buffers before it is first asked for frames.
    assert_eq!(client.receive(1, &mut |frames, _| panic!("{frames:x?}")), 0);
    for round in 0..1000_u16 {
        let frame = [&[mark; 60][..], &round.to_be_bytes()].concat();
        veth::send(client, &frame);
        assert_eq!(veth::next_frame("it arrives", server, |_| true), frame);
        veth::send(server, &frame);
        assert_eq!(veth::next_frame("it comes back", client, |_| true), frame);
    }
}

fn refusals_say_what_to_do() {
    let refusal = |config: Config| dpdk::open(&config).expect_err("impossible").to_string();
    let other = refusal(Config::new(vec!["--no-huge".into()], "net_null0"));
    assert!(other.contains("once per process") && other.contains("--no-pci"), "{other}");
    let missing = refusal(Config::new(eal(), "0000:ff:1f.7"));
    assert!(missing.contains("there is no device \"0000:ff:1f.7\""), "{missing}");
    let null = || Config::new(eal(), format!("net_null{}", fresh()));
    let queues = refusal(Config { queues: Some(5000), ..null() });
    assert!(queues.contains("choose 1 to"), "{queues}");
    let zero = refusal(Config { device: "net_null\0".into(), ..null() });
    assert!(zero.contains("zero byte"), "{zero}");
}

/// A driver that waits for ever on DPDK's own thread would have kept the daemon from ending.
fn closing_does_not_wait_for_a_driver_that_is_stuck() {
    /// Who hears that the driver is stuck, and who tells it to go on.
    type Stuck = (Sender<()>, Receiver<()>);

    unsafe extern "C" {
        fn rte_eal_alarm_set(
            microseconds: u64,
            callback: unsafe extern "C" fn(*mut c_void),
            argument: *mut c_void,
        ) -> c_int;
    }
    unsafe extern "C" fn wait(stuck: *mut c_void) {
        // SAFETY: the box that was given away below, and DPDK calls once.
        let (tell, go_on) = *unsafe { Box::from_raw(stuck.cast::<Stuck>()) };
        let _ = tell.send(()); // who does not hear it has failed
        let _ = go_on.recv();
    }

    let queue = open(&format!("net_null{}", fresh()));
    let ((tell, is_stuck), (end, go_on)) = (channel(), channel());
    let stuck: Box<Stuck> = Box::new((tell, go_on));
    // SAFETY: DPDK runs, since a device is open, and the callback takes what it is given.
    let outcome = unsafe { rte_eal_alarm_set(1, wait, Box::into_raw(stuck).cast()) };
    assert_eq!(outcome, 0);
    is_stuck.recv_timeout(PATIENCE).expect("DPDK's thread runs");
    let (tell, is_closed) = channel();
    std::thread::spawn(move || {
        drop(queue);
        let _ = tell.send(()); // who does not hear it has failed
    });
    let outcome = is_closed.recv_timeout(PATIENCE);
    drop(end);
    assert_eq!(outcome, Ok(()), "it waits for the driver");
}
