//! How fast frames cross a memif, in nanoseconds per frame: `cargo run --release --example
//! memif_rate`.
//!
//! Both ends are in this process: first in turn on one thread, in bursts of 32, then on two
//! threads, as a stream and as a ping-pong of single frames. Each figure is the fastest tenth of
//! many short runs, so that what else the machine does counts little.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clearway_nic::memif::{self, Config, Role, Socket};
use clearway_nic::{Checksums, Queue as _, Transmit};

const BURST: usize = 32;
const RUNS: usize = 200;
/// Frames per run: many rings full.
const FRAMES: usize = 1 << 15;

fn main() {
    for bytes in [64, 512, 1518] {
        let (mut server, mut client) = open();
        let to_client = one_thread(&mut server, &mut client, bytes);
        let to_server = one_thread(&mut client, &mut server, bytes);
        print("one thread, bursts of 32", bytes, to_client, to_server);
        let to_client = two_threads(&mut server, &mut client, bytes);
        let to_server = two_threads(&mut client, &mut server, bytes);
        print("two threads, stream", bytes, to_client, to_server);
    }
    let (mut server, mut client) = open();
    println!(
        "{:>27}: {:6.1} ns there and back",
        "64 B, two threads",
        ping_pong(&mut server, &mut client)
    );
}

fn print(what: &str, bytes: usize, to_client: f64, to_server: f64) {
    println!("{bytes:5} B, {what:>24}: {to_client:6.1} ns to client, {to_server:6.1} ns to server");
}

fn open() -> (memif::Queue, memif::Queue) {
    let socket = Socket::Abstract(format!("clearway-memif-rate-{}", std::process::id()));
    let make = |role| {
        let config = Config::new(socket.clone(), role, [2, 0, 0, 0, 0, role as u8]);
        memif::open(config).expect("memif opens").remove(0)
    };
    let (mut server, mut client) = (make(Role::Server), make(Role::Client));
    while !(server.link_up() && client.link_up()) {
        server.receive(0, &mut |_, _| ());
        client.receive(0, &mut |_, _| ());
    }
    (server, client)
}

/// Queues up to `count` frames of `bytes` bytes, of which the first 64 and the last are written.
fn send(queue: &mut memif::Queue, count: usize, bytes: usize) -> usize {
    let mut fill = |buffer: &mut [u8]| {
        buffer[..64].fill(1);
        buffer[bytes - 1] = 1;
        bytes
    };
    let sent = (0..count).take_while(|_| queue.transmit(&mut fill) == Transmit::Queued).count();
    queue.flush();
    sent
}

fn look(frames: &[&[u8]], _: Checksums) {
    frames.iter().for_each(|frame| assert_eq!(frame[0], 1));
}

fn one_thread(from: &mut memif::Queue, to: &mut memif::Queue, bytes: usize) -> f64 {
    per_frame(FRAMES, || {
        send(from, BURST, bytes);
        to.receive(BURST, &mut look)
    })
}

/// Streams from the first to the second, which runs on its own thread.
fn two_threads(from: &mut memif::Queue, to: &mut memif::Queue, bytes: usize) -> f64 {
    let stop = AtomicBool::new(false);
    let ns = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let ns = per_frame(FRAMES, || to.receive(BURST, &mut look));
            stop.store(true, Ordering::Relaxed);
            ns
        });
        while !stop.load(Ordering::Relaxed) {
            send(from, BURST, bytes);
        }
        receiver.join().expect("the receiver ends")
    });
    while to.receive(BURST, &mut |_, _| ()) > 0 {}
    ns
}

fn ping_pong(one: &mut memif::Queue, other: &mut memif::Queue) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if other.receive(1, &mut |_, _| ()) == 1 {
                    send(other, 1, 64);
                }
            }
        });
        send(one, 1, 64);
        let ns = per_frame(FRAMES / 16, || {
            let frames = one.receive(1, &mut |_, _| ());
            if frames == 1 {
                send(one, 1, 64);
            }
            frames
        });
        stop.store(true, Ordering::Relaxed);
        ns
    })
}

/// Repeats `step`, which returns how many frames it moved, and returns the time per frame.
fn per_frame(frames: usize, mut step: impl FnMut() -> usize) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let (start, mut done) = (Instant::now(), 0);
            while done < frames {
                done += step();
            }
            start.elapsed().as_nanos() as f64 / done as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 10]
}
