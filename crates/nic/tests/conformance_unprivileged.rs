//! The conformance suite over the drivers that need no privilege: fabric, and memif in both roles.
//! Those that need a network namespace run it in their own files.

mod conformance;

use std::sync::atomic::{AtomicU32, Ordering};

use clearway_nic::fabric::{self, Faults, Options, Port};
use clearway_nic::memif::{self, Config, Role, Socket};
use conformance::Pair;

#[test]
fn fabric_wire() {
    conformance::run(|| {
        let (a, b, handle) = fabric::pair(Options::new(1), [Faults::default(); 2]);
        let cutter = handle.clone();
        Pair {
            a: Box::new(a),
            b: Box::new(b),
            cut: Some(Box::new(move |_| cutter.set_link(1, false))),
            keep: Box::new(handle),
        }
    });
}

#[test]
fn fabric_switch() {
    conformance::run(|| {
        let port = |number| Port::new([2, 0, 0, 0, 0, number], 1);
        let (queues, handle) = fabric::switch(Options::new(1), &[port(1), port(2)]);
        let mut queues = queues.into_iter().flatten();
        let mut next = || Box::new(queues.next().expect("two queues"));
        let cutter = handle.clone();
        Pair {
            a: next(),
            b: next(),
            cut: Some(Box::new(move |_| cutter.set_link(0, false))),
            keep: Box::new(handle),
        }
    });
}

#[test]
fn memif_server_to_client() {
    conformance::run(|| memif(Role::Server, Role::Client, |_| ()));
}

#[test]
fn memif_client_to_server() {
    conformance::run(|| memif(Role::Client, Role::Server, |_| ()));
}

#[test]
fn memif_with_buffers_smaller_than_frames() {
    let small = |config: &mut Config| (config.buffer_bytes, config.ring_size_log2) = (256, 11);
    conformance::run(|| memif(Role::Server, Role::Client, small));
    conformance::run(|| memif(Role::Client, Role::Server, small));
}

#[test]
fn memif_jumbo() {
    conformance::run(|| {
        memif(Role::Client, Role::Server, |config| {
            (config.buffer_bytes, config.frame_bytes_max) = (16_384, 9018);
        })
    });
}

/// Frames of which each has four buffers, or one if it is small. A queue is full when there is no
/// room for the largest.
#[test]
fn memif_with_frames_of_several_buffers() {
    let large = |config: &mut Config| {
        *config = Config { ring_size_log2: 9, ..config.clone().with_frames(33_018) };
    };
    conformance::run(|| memif(Role::Server, Role::Client, large));
    conformance::run(|| memif(Role::Client, Role::Server, large));
}

/// Two memif queues; the first has the first role.
fn memif(a: Role, b: Role, change: impl Fn(&mut Config)) -> Pair {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let socket = Socket::Abstract(format!("clearway-conformance-{}-{number}", std::process::id()));
    let open = |role| {
        let mut config = Config::new(socket.clone(), role, [2, 0, 0, 0, 0, role as u8]);
        change(&mut config);
        Box::new(memif::open(config).expect("memif opens").remove(0))
    };
    Pair { a: open(a), b: open(b), cut: Some(Box::new(drop)), keep: Box::new(()) }
}
