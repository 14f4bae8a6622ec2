//! What it saves to leave checksums and segments of TCP to a device of DPDK, in nanoseconds per
//! segment: `cargo run --release -p clearway-nic --features dpdk --example dpdk_offloads`.
//!
//! A guest's device (`net_virtio_user`) and its host's (`net_vhost`) are in this process, once with
//! all that they offer and once without, and are timed in turn. Who receives sums what nobody knows
//! to be right, as an engine does. Each figure is the fastest tenth of many short runs, so that
//! what else the machine does counts little.

use std::hint::black_box;
use std::time::Instant;

use clearway_nic::dpdk::{self, Config, DpdkQueue};
use clearway_nic::{Checksums, Queue as _, Segments, Transmit};
use clearway_wire::checksum::Sum;
use clearway_wire::{ipv4, protocol};

const RUNS: usize = 400;
/// Bursts of a run.
const BURSTS: usize = 20;
const HEADER_BYTES: usize = 14 + 20 + 20;

/// Both devices.
struct Link {
    guest: DpdkQueue,
    host: DpdkQueue,
}

/// Nanoseconds per segment.
#[derive(Clone, Copy)]
struct Cost {
    sent: f64,
    received: f64,
}

fn main() {
    let mut links = [true, false].map(Link::open);
    for (segments, payload_bytes) in [(25, 1448), (1, 1448), (1, 64)] {
        let frames = frames(segments, payload_bytes);
        println!("{segments} segments of {payload_bytes} B together:");
        for to_host in [true, false] {
            let mut costs = [const { Vec::new() }; 2];
            for _ in 0..RUNS {
                for (link, costs) in links.iter_mut().zip(&mut costs) {
                    costs.push(link.run(&frames, to_host));
                }
            }
            let [with, without] = costs.map(|costs| {
                let best = |cost: fn(&Cost) -> f64| fastest_tenth(costs.iter().map(cost).collect());
                Cost { sent: best(|cost| cost.sent), received: best(|cost| cost.received) }
            });
            println!(
                "  guest to host {to_host:5}: sent {:6.1} with, {:6.1} without; \
                 received {:6.1} with, {:6.1} without",
                with.sent, without.sent, with.received, without.received
            );
        }
    }
}

fn fastest_tenth(mut costs: Vec<f64>) -> f64 {
    costs.sort_unstable_by(f64::total_cmp);
    costs[costs.len() / 10]
}

impl Link {
    fn open(offloads: bool) -> Link {
        let eal = ["--no-huge", "-m", "256", "--no-pci"].map(String::from).to_vec();
        let (process, number) = (std::process::id(), u8::from(offloads));
        let path = std::env::temp_dir().join(format!("clearway-dpdk-rate-{process}-{number}"));
        let path = path.display();
        let open = |device: String| {
            let config = Config { offloads, ..Config::new(eal.clone(), device) };
            dpdk::open(&config).expect("DPDK opens the device").remove(0)
        };
        let host = open(format!("net_vhost{number},iface={path},queues=1,tso=1"));
        let guest = open(format!("net_virtio_user{number},path={path},queue_size=1024"));
        let mut link = Link { guest, host };
        while !(link.guest.link_up() && link.host.link_up()) {
            link.guest.receive(1, &mut |_, _| ());
            link.host.receive(1, &mut |_, _| ());
        }
        link
    }

    fn run(&mut self, frames: &[Vec<u8>], to_host: bool) -> Cost {
        let Link { guest, host } = self;
        let (from, to) = if to_host { (guest, host) } else { (host, guest) };
        let (mut sent, mut received) = (0, 0);
        for _ in 0..BURSTS {
            let start = Instant::now();
            send(from, frames);
            let middle = Instant::now();
            take(to, frames.len());
            sent += (middle - start).as_nanos();
            received += middle.elapsed().as_nanos();
        }
        let segments = (BURSTS * frames.len()) as f64;
        Cost { sent: sent as f64 / segments, received: received as f64 / segments }
    }
}

#[inline(never)]
fn send(queue: &mut DpdkQueue, frames: &[Vec<u8>]) {
    for frame in frames {
        let outcome = queue.transmit_segments(&mut |buffer, _| {
            buffer[..frame.len()].copy_from_slice(frame);
            Segments { bytes: frame.len(), segment_bytes: 0 }
        });
        assert_eq!(outcome, Transmit::Queued);
    }
    queue.flush();
}

#[inline(never)]
fn take(queue: &mut DpdkQueue, count: usize) {
    let mut taken = 0;
    while taken < count {
        taken += queue.receive(64, &mut |frames, checksums| {
            if checksums == Checksums::Unknown {
                frames.iter().for_each(|frame| {
                    black_box(Sum::new().with(&frame[34..]).is_right());
                });
            }
        });
    }
}

/// A stream of so many segments.
fn frames(count: usize, payload_bytes: usize) -> Vec<Vec<u8>> {
    let [source, destination] = [1, 2].map(|host| [10, 0, 0, host].into());
    let payload_length = (20 + payload_bytes) as u16;
    let ip =
        ipv4::Repr { source, destination, protocol: protocol::TCP, hop_limit: 64, payload_length };
    let frame = |index: usize| {
        let mut frame = vec![7; HEADER_BYTES + payload_bytes];
        frame[12..14].copy_from_slice(&[8, 0]);
        ip.emit(&mut frame[14..34]);
        frame[38..42].copy_from_slice(&((index * payload_bytes) as u32).to_be_bytes());
        frame[46..54].copy_from_slice(&[0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        frame
    };
    (0..count).map(frame).collect()
}
