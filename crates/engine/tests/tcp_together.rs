//! Segments of TCP that come and leave together, as with a NIC that has super-frames: the streams
//! are what they are when each is a frame, on rough links, too.

mod world;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway_nic::segments::{Cut, Merge, fill_checksum};
use clearway_nic::{
    Capabilities, Checksums, Info, Queue, Receiver, Segments, Sink, Together, Transmit, fabric,
};
use clearway_wire::ipv4;
use clearway_wire::tcp::{Flags, View};
use world::tcp::{Peer, exchange, run};
use world::{SIZES, World, address, as_inner};

const PORTS: [u16; 2] = [40_000, 8080];
/// Where the packet of a frame begins.
const IP_AT: usize = 14;

/// Segments that a frame may have, on its way out.
const MOST: usize = 30;

/// What a queue has offered, and how much of that was taken, in segments.
#[derive(Debug, Default)]
struct Offers {
    segments: AtomicUsize,
    taken: AtomicUsize,
    /// That were written as one with others.
    sent: AtomicUsize,
}

/// A queue that puts segments together which come in one burst and follow each other, and takes
/// several as one to be sent.
struct Joining {
    queue: Box<dyn Queue>,
    offers: Arc<Offers>,
    buffer: Vec<u8>,
}

/// Where the payload of a segment begins that only acknowledges and pushes. `None` for all else.
fn payload_at(frame: &[u8]) -> Option<usize> {
    let ip = ipv4::View::new(frame.get(IP_AT..)?).ok()?;
    let segment = View::new(ip.payload()).ok()?;
    let flags = u16::from_be_bytes([ip.payload()[12], ip.payload()[13]]) & 0x0fff;
    let is_plain = flags & !(Flags::ACK | Flags::PSH).bits() == 0;
    (is_plain && ip.protocol() == 6).then(|| frame.len() - segment.payload().len())
}

/// How many of the first frames can come together.
fn together(frames: &[&[u8]]) -> usize {
    let plain = frames.iter().take_while(|frame| payload_at(frame).is_some()).count();
    let Some((first, others)) = frames[..plain].split_first() else { return 0 };
    let Some(mut merge) = Merge::new(first) else { return 0 };
    let _ = others.iter().take_while(|next| merge.add(first, next, 1 << 16, 64)).count();
    merge.frames()
}

impl Joining {
    fn offer(&self, receiver: &mut dyn Receiver, frames: &[&[u8]]) -> bool {
        let at = payload_at(frames[0]).expect("a segment");
        let others: Vec<&[u8]> = frames[1..].iter().map(|frame| &frame[at..]).collect();
        let is_taken = receiver.together(Together { first: frames[0], others: &others });
        self.offers.segments.fetch_add(frames.len(), Ordering::Relaxed);
        self.offers.taken.fetch_add(if is_taken { frames.len() } else { 0 }, Ordering::Relaxed);
        is_taken
    }
}

impl Queue for Joining {
    fn capabilities(&self) -> Capabilities {
        let own = self.queue.capabilities();
        Capabilities { receive_together: true, transmit_checksum: true, ..own }
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn receive(&mut self, _: usize, _: &mut Sink<'_>) -> usize {
        unreachable!("the engine takes segments together")
    }

    fn receive_together(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        let mut bursts: Vec<Vec<Vec<u8>>> = Vec::new();
        let shown = self.queue.receive(budget, &mut |frames, _| {
            bursts.push(frames.iter().map(|frame| frame.to_vec()).collect());
        });
        for burst in bursts {
            let frames: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
            let mut left = frames.as_slice();
            while !left.is_empty() {
                let count = together(left);
                let (now, rest) = left.split_at(count.max(1));
                if count < 2 || !self.offer(receiver, now) {
                    receiver.frames(now, Checksums::Unknown);
                }
                left = rest;
            }
        }
        shown
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        self.queue.transmit(fill)
    }

    fn transmit_segments(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8], usize) -> Segments,
    ) -> Transmit {
        let Segments { bytes, segment_bytes } = fill(&mut self.buffer, MOST);
        if bytes == 0 {
            return Transmit::Nothing;
        }
        let whole = &mut self.buffer[..bytes];
        let frames = match Cut::built(whole, segment_bytes) {
            Some(cut) => {
                self.offers.sent.fetch_add(cut.frames(), Ordering::Relaxed);
                (0..cut.frames()).map(|index| frame_of(&cut, whole, index)).collect()
            }
            None => {
                fill_checksum(whole);
                vec![whole.to_vec()]
            }
        };
        for frame in frames {
            let mut write = |buffer: &mut [u8]| {
                buffer[..frame.len()].copy_from_slice(&frame);
                frame.len()
            };
            // Lost if there is no descriptor left, as by a wire.
            let _ = self.queue.transmit(&mut write);
        }
        Transmit::Queued
    }

    as_inner!();
}

/// Two hosts whose queues put segments together, and what each has offered.
fn joining_world(seed: u64, faults: fabric::Faults) -> (World, [Arc<Offers>; 2]) {
    let offers = <[Arc<Offers>; 2]>::default();
    let next = Rc::new(Cell::new(0));
    let world = World::with_queues(seed, faults, |queue| {
        let offers = offers[next.replace(next.get() + 1)].clone();
        Box::new(Joining { queue, offers, buffer: vec![0; MOST * 1514] })
    });
    (world, offers)
}

/// One of the frames of segments that were written as one.
fn frame_of(cut: &Cut, whole: &[u8], index: usize) -> Vec<u8> {
    let header_bytes = cut.header_bytes();
    let payload = &whole[header_bytes..][cut.segment(index)];
    let mut frame = [&whole[..header_bytes], payload].concat();
    cut.put_headers(index, &mut frame);
    frame
}

fn connected(world: &mut World) -> [Peer; 2] {
    let at = [0, 1].map(|host| SocketAddr::new(address(host), PORTS[host]));
    let mut peers = [0, 1].map(|host| Peer::at(world, host, at[host], SIZES));
    peers[1].listen();
    peers[0].connect(at[1]);
    run(world, &mut peers, |peers| peers.iter().all(|peer| peer.id != 0));
    peers
}

#[test]
fn streams_are_what_they_were() {
    let rough = fabric::Faults {
        loss_ppm: 3_000,
        duplication_ppm: 3_000,
        delay_ppm: 10_000,
        delay_ns_max: 50_000,
        ..fabric::Faults::default()
    };
    for (seed, faults) in [(1, fabric::Faults::default()), (2, rough), (3, rough), (4, rough)] {
        let (mut world, offers) = joining_world(seed, faults);
        let mut peers = connected(&mut world);
        exchange(&mut world, &mut peers, [4 << 20, 1 << 20]);
        let [of_client, of_server] = &offers;
        let [segments, taken, sent] = [&of_server.segments, &of_server.taken, &of_client.sent]
            .map(|count| count.load(Ordering::Relaxed));
        assert!(segments > 1000 && taken == segments, "{taken} of {segments} were taken");
        assert!(sent > 1000, "{sent} segments left together");
        let pieces = peers[1].pieces as usize;
        assert!(pieces * 4 < (4 << 20) / 1448, "{pieces} pieces");
    }
}

/// Bytes that come while their app has no memory come again, and none is lost or twice there.
#[test]
fn what_there_is_no_memory_for_comes_again() {
    let (mut world, offers) = joining_world(5, fabric::Faults::default());
    let mut peers = connected(&mut world);
    let sent = world::tcp::bytes(3 << 20, 9);
    sent.chunks(60_000).for_each(|part| peers[0].send(part));
    (0..20_000).for_each(|_| world.turn()); // and nobody reads
    run(&mut world, &mut peers, |peers| peers[1].received.len() == sent.len());
    assert!(peers[1].received == sent);
    assert!(offers[1].taken.load(Ordering::Relaxed) > 1000);
}
