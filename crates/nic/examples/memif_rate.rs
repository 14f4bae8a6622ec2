//! How fast frames cross a memif, in nanoseconds per frame: `cargo run --release --example memif_rate`.
//!
//! Both ends are in this process: first in turn on one thread, in bursts of 32, then on two threads,
//! as a stream and as a ping-pong of single frames.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clearway_nic::memif::{self, Config, Role, Socket};
use clearway_nic::{Queue as _, Transmit};

const BURST: usize = 32;
const RUN: Duration = Duration::from_millis(500);

fn main() {
    for bytes in [64, 512, 1518] {
        let (mut server, mut client) = open();
        let to_client = one_thread(&mut server, &mut client, bytes);
        let to_server = one_thread(&mut client, &mut server, bytes);
        println!(
            "{bytes:5} B, one thread, bursts of {BURST}: to client {to_client:.1} ns, to server {to_server:.1} ns"
        );
        let to_client = two_threads(&mut server, &mut client, bytes);
        let to_server = two_threads(&mut client, &mut server, bytes);
        println!(
            "{bytes:5} B, two threads, stream: to client {to_client:.1} ns, to server {to_server:.1} ns"
        );
    }
    let (mut server, mut client) = open();
    let ns = ping_pong(&mut server, &mut client);
    println!("   64 B, two threads, there and back: {ns:.1} ns");
}

fn open() -> (memif::Queue, memif::Queue) {
    let socket = Socket::Abstract(format!("clearway-memif-rate-{}", std::process::id()));
    let make = |role| {
        let config = Config::new(socket.clone(), role, [2, 0, 0, 0, 0, role as u8]);
        memif::open(config).expect("memif opens").remove(0)
    };
    let (mut server, mut client) = (make(Role::Server), make(Role::Client));
    while !(server.link_up() && client.link_up()) {
        server.receive(0, &mut |_| ());
        client.receive(0, &mut |_| ());
    }
    (server, client)
}

/// Queues up to `count` frames of `bytes` bytes, of which the first and the last are written.
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

fn one_thread(from: &mut memif::Queue, to: &mut memif::Queue, bytes: usize) -> f64 {
    let (start, mut frames, mut sum) = (Instant::now(), 0, 0u64);
    while start.elapsed() < RUN {
        for _ in 0..64 {
            send(from, BURST, bytes);
            frames += to.receive(BURST, &mut |frame| sum += u64::from(frame[0]));
        }
    }
    assert_eq!(sum, frames as u64);
    start.elapsed().as_nanos() as f64 / frames as f64
}

/// Streams from the first to the second, which runs on its own thread.
fn two_threads(from: &mut memif::Queue, to: &mut memif::Queue, bytes: usize) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (start, mut frames) = (Instant::now(), 0);
            while start.elapsed() < RUN {
                for _ in 0..64 {
                    frames += to.receive(BURST, &mut |frame| assert_eq!(frame[0], 1));
                }
            }
            stop.store(true, Ordering::Relaxed);
            let ns = start.elapsed().as_nanos() as f64 / frames as f64;
            while to.receive(BURST, &mut |_| ()) > 0 {}
            ns
        });
        while !stop.load(Ordering::Relaxed) {
            send(from, BURST, bytes);
        }
        receiver.join().expect("the receiver ends")
    })
}

fn ping_pong(one: &mut memif::Queue, other: &mut memif::Queue) -> f64 {
    const ROUNDS: u32 = 1_000_000;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if other.receive(1, &mut |_| ()) == 1 {
                    send(other, 1, 64);
                }
            }
        });
        let start = Instant::now();
        for _ in 0..ROUNDS {
            send(one, 1, 64);
            while one.receive(1, &mut |_| ()) == 0 {
                std::hint::spin_loop();
            }
        }
        stop.store(true, Ordering::Relaxed);
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    })
}
