//! A wire between two network namespaces that loses frames and changes their order: a veth pair to
//! either side, and a thread between them that carries frames from one to the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_nic::fabric::{self, Faults, Options};
use clearway_nic::interface::{Facts, KernelSteering, Namespace, SteerPattern, Steering};
use clearway_nic::{MacAddress, Queue, Transmit, af_packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::veth::{INTERFACE, IPV4, IPV6, Veth};

/// The ends of the two pairs in the middle.
const ENDS: [&str; 2] = ["end0", "end1"];
const SEED: u64 = 1;
/// Frames that are held back come forward when nothing has come so often: see [`Faults`].
const LOOKS_BEFORE_SLEEP: u32 = 16;
const SLEEP: Duration = Duration::from_millis(1);

/// The thread that carries frames, until this is dropped.
pub(crate) struct BadWire {
    is_over: Arc<AtomicBool>,
    carrying: Option<JoinHandle<()>>,
}

/// One side of the wire, as its middle sees it.
struct Side {
    queue: Box<dyn Queue>,
    /// The interface to which this side leads.
    mac: MacAddress,
    /// Where its frames go in, and those of the other side come out.
    wire: fabric::Queue,
    /// What comes to the queue is gone with it.
    _steering: KernelSteering,
}

impl Veth {
    /// Two namespaces whose interfaces are joined by such a wire, each way with these faults.
    /// `None` where there are no namespaces to be made.
    pub(crate) fn with_bad_wire(faults: Faults) -> Option<(Self, BadWire)> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let spaces = [(); 2].map(|()| Namespace::create().expect("root may make namespaces"));
        let middle = Namespace::create().expect("root may make namespaces");
        let veth = Self { spaces };
        for (index, end) in ENDS.into_iter().enumerate() {
            let peer = format!("peer name {end} netns {}", middle.path().display());
            veth.ip(index, &format!("link add {INTERFACE} type veth {peer}"));
            middle.ip(&format!("link set {end} addrgenmode none")).expect("an interface");
            middle.ip(&format!("link set {end} up")).expect("an interface");
            veth.set_up(index);
        }
        let macs = ENDS.map(|end| mac(&middle, end));
        for index in [0, 1] {
            let mac = macs[index].map(|byte| format!("{byte:02x}")).join(":");
            for address in [IPV4[1 - index].to_string(), IPV6[1 - index].to_string()] {
                let at = format!("{address} lladdr {mac} dev {INTERFACE}");
                veth.ip(index, &format!("neigh replace {at} nud permanent"));
            }
        }
        let (first, second, _) = fabric::pair(Options::new(SEED), [faults; 2]);
        let wires = [first, second].into_iter().enumerate();
        let sides = wires.map(|(index, wire)| {
            let (queue, steering) = middle.within(|| open(ENDS[index])).expect("entered");
            Side { queue, mac: mac(&veth.spaces[index], INTERFACE), wire, _steering: steering }
        });
        let sides: Vec<Side> = sides.collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let wire_is_over = Arc::clone(&is_over);
        let carrying = std::thread::spawn(move || carry(sides, &wire_is_over));
        Some((veth, BadWire { is_over, carrying: Some(carrying) }))
    }
}

impl Drop for BadWire {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let ended = self.carrying.take().expect("it is dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the wire has ended before its test");
    }
}

fn mac(space: &Namespace, interface: &str) -> MacAddress {
    let facts = space.within(|| Facts::of(interface)).expect("the namespace can be entered");
    facts.expect("the interface is there").mac.expect("a veth has one")
}

fn open(interface: &str) -> (Box<dyn Queue>, KernelSteering) {
    let opened = af_packet::open(&af_packet::Config::new(interface));
    let (mut queues, mut steering) = opened.expect("a veth can be opened");
    let all = SteerPattern::new([0; 8], [0; 8]).expect("a pattern");
    steering.add_pattern(&all).expect("room");
    (queues.remove(0), steering)
}

fn carry(mut sides: Vec<Side>, is_over: &AtomicBool) {
    let mut idle_looks = 0;
    while !is_over.load(Ordering::Acquire) {
        let frames: usize = sides.iter_mut().map(Side::pass).sum();
        idle_looks = if frames == 0 { idle_looks + 1 } else { 0 };
        if idle_looks > LOOKS_BEFORE_SLEEP {
            sleep(&mut sides);
        }
    }
}

fn sleep(sides: &mut [Side]) {
    if sides.iter_mut().all(|side| side.queue.arm()) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: SLEEP.as_nanos() as i64 };
        let bells = sides.iter().filter_map(|side| side.queue.wait_fd());
        let bells: Vec<_> = bells.collect();
        let mut bells: Vec<_> = bells.iter().map(|bell| PollFd::new(bell, PollFlags::IN)).collect();
        poll(&mut bells, Some(&timeout)).expect("descriptors");
    }
    sides.iter_mut().for_each(|side| side.queue.disarm());
}

impl Side {
    /// Puts what has come from this side on the wire, and gives it what has come out of it. Returns
    /// how many frames there were.
    fn pass(&mut self) -> usize {
        let Self { queue, mac, wire, .. } = self;
        let put = queue.receive(64, &mut |frames, _| {
            frames.iter().for_each(|frame| transmit(wire, frame, None));
        });
        wire.flush();
        let given = wire.receive(64, &mut |frames, _| {
            frames.iter().for_each(|frame| transmit(&mut **queue, frame, Some(mac)));
        });
        queue.flush();
        put + given
    }
}

/// Sends a frame, to another address if there is one. A NIC that is full drops it, as a wire does.
fn transmit(queue: &mut dyn Queue, frame: &[u8], to: Option<&MacAddress>) {
    let mut fill = |buffer: &mut [u8]| {
        buffer[..frame.len()].copy_from_slice(frame);
        if let Some(to) = to {
            buffer[..to.len()].copy_from_slice(to);
        }
        frame.len()
    };
    if queue.transmit(&mut fill) == Transmit::Full {
        queue.flush();
        queue.transmit(&mut fill);
    }
}
