//! Raw echoes over a veth pair between two queues: what the wire itself costs.
//!
//! `cargo run --release -p clearway-nic --example xdp_echo [bytes] [seconds] [mode]`, as root. It
//! makes two network namespaces joined by veth, which vanish with the process, and prints
//! round-trip percentiles per mode (`generic` and `native` AF_XDP, `packet` for a packet socket):
//! with both queues polled in turn by one thread (as the engines of the `paired` layout are), one
//! frame at a time and 32 at a time, and by a thread each.

use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clearway_nic::af_packet;
use clearway_nic::af_xdp::{self, Mode};
use clearway_nic::interface::{Namespace, Steering};
use clearway_nic::{Queue, Transmit};

const PORT: u16 = 7000;
const HEADERS_BYTES: usize = 14 + 20 + 8;
const ADDRESSES: [[u8; 4]; 2] = [[10, 77, 0, 1], [10, 77, 0, 2]];

/// One end of the wire: its queue, and the frame that it sends.
struct End {
    queue: Box<dyn Queue>,
    _steering: Box<dyn Steering>,
    frame: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes: usize = arguments.next().map_or(Ok(64), |word| word.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |word| word.parse())?;
    let only = arguments.next();
    let length = Duration::from_secs_f64(seconds);
    println!("mode     layout            p50      p99    p99.9     echoes/s");
    let modes = [("generic", Some(Mode::Generic)), ("native", Some(Mode::Copy)), ("packet", None)];
    for (name, mode) in modes {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let (mut near, mut far) = ends(mode, bytes)?;
        while !(near.link_up() && far.link_up()) {}
        report(name, "one thread", 1, in_turn(&mut near, &mut far, 1, length));
        report(name, "one thread, 32", 32, in_turn(&mut near, &mut far, 32, length));
        report(name, "two threads", 1, on_two_threads(&mut near, &mut far, length));
    }
    Ok(())
}

fn report(mode: &str, layout: &str, window: usize, mut times_ns: Vec<u64>) {
    let seconds = times_ns.iter().sum::<u64>() as f64 / 1e9;
    times_ns.sort_unstable();
    let at = |part: f64| times_ns[((times_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "{mode:8} {layout:14} {:6.2}µs {:6.2}µs {:6.2}µs {:12.0}",
        at(0.5),
        at(0.99),
        at(0.999),
        (times_ns.len() * window) as f64 / seconds
    );
}

/// Two namespaces joined by veth, with a queue open in each.
fn ends(mode: Option<Mode>, bytes: usize) -> Result<(End, End), Box<dyn Error>> {
    let (near, far) = (Namespace::create()?, Namespace::create()?);
    let there = far.path();
    near.ip(&format!("link add cw0 type veth peer name cw0 netns {}", there.display()))?;
    for (space, address) in [(&near, "10.77.0.1/24"), (&far, "10.77.0.2/24")] {
        space.ip(&format!("addr add {address} dev cw0"))?;
        space.ip("link set cw0 up")?;
    }
    let near_end = end(&near, mode)?;
    let far_end = end(&far, mode)?;
    let macs = [near_end.0.info().mac, far_end.0.info().mac];
    let to_far = frame(macs[0], macs[1], ADDRESSES[0], ADDRESSES[1], bytes);
    let to_near = frame(macs[1], macs[0], ADDRESSES[1], ADDRESSES[0], bytes);
    let make = |(queue, _steering), frame| End { queue, _steering, frame };
    Ok((make(near_end, to_far), make(far_end, to_near)))
}

fn end(space: &Namespace, mode: Option<Mode>) -> Result<Opened, Box<dyn Error>> {
    let opened = space.within(|| -> Result<_, clearway_nic::Error> {
        let (queue, mut steering) = open(mode)?;
        for address in ADDRESSES {
            steering.register_udp_port(Some(IpAddr::from(address)), PORT)?;
        }
        Ok((queue, steering))
    })?;
    Ok(opened?)
}

type Opened = (Box<dyn Queue>, Box<dyn Steering>);

fn open(mode: Option<Mode>) -> Result<Opened, clearway_nic::Error> {
    let Some(mode) = mode else {
        let (mut queues, steering) = af_packet::open(&af_packet::Config::new("cw0"))?;
        return Ok((queues.remove(0), Box::new(steering)));
    };
    let config = af_xdp::Config { mode, ..af_xdp::Config::new("cw0") };
    let (mut queues, steering) = af_xdp::open(&config)?;
    Ok((queues.remove(0), Box::new(steering)))
}

fn frame(from: [u8; 6], to: [u8; 6], source: [u8; 4], target: [u8; 4], bytes: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&to);
    frame.extend_from_slice(&from);
    frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
    frame.extend_from_slice(&((20 + 8 + bytes) as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&target);
    let sum: u32 =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    for word in [PORT, PORT, (8 + bytes) as u16, 0] {
        frame.extend_from_slice(&word.to_be_bytes());
    }
    frame.resize(HEADERS_BYTES + bytes, 0xc1);
    frame
}

impl End {
    fn send(&mut self, count: usize) {
        let frame = &self.frame;
        for _ in 0..count {
            let sent = self.queue.transmit(&mut |buffer| {
                buffer[..frame.len()].copy_from_slice(frame);
                frame.len()
            });
            assert_eq!(sent, Transmit::Queued);
        }
        self.queue.flush();
    }

    /// Receives until `count` frames have come.
    fn wait(&mut self, count: usize) {
        let mut waiting = count;
        while waiting > 0 {
            waiting -= self.receive();
        }
    }

    /// The kernel tells of a new link a little later than it has one.
    fn link_up(&mut self) -> bool {
        self.receive();
        self.queue.link_up()
    }

    fn receive(&mut self) -> usize {
        let length = self.frame.len();
        let look = &mut |frames: &[&[u8]], _| {
            frames.iter().for_each(|frame| assert_eq!(frame.len(), length));
        };
        self.queue.receive(32, look)
    }
}

fn in_turn(near: &mut End, far: &mut End, window: usize, length: Duration) -> Vec<u64> {
    let mut times = Vec::new();
    let end = Instant::now() + length;
    loop {
        let start = Instant::now();
        if start > end {
            return times;
        }
        near.send(window);
        far.wait(window);
        far.send(window);
        near.wait(window);
        times.push(start.elapsed().as_nanos() as u64);
    }
}

fn on_two_threads(near: &mut End, far: &mut End, length: Duration) -> Vec<u64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            while !over.load(Ordering::Relaxed) {
                let count = far.receive();
                far.send(count);
            }
        });
        pin(0);
        let mut times = Vec::new();
        let end = Instant::now() + length;
        loop {
            let start = Instant::now();
            if start > end {
                over.store(true, Ordering::Relaxed);
                return times;
            }
            near.send(1);
            near.wait(1);
            times.push(start.elapsed().as_nanos() as u64);
        }
    })
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Unpinned is slower, not wrong.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
