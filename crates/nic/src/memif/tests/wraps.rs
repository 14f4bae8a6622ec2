//! Rings whose 16-bit indexes are about to wrap, in both directions: in one the client sends and
//! owns the buffers that are filled, in the other the server fills buffers of the client's.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use clearway_base::Random;

use super::*;
use crate::Counters;
use crate::memif::buffers::Buffers;
use crate::memif::limit::Limit;
use crate::memif::link::{Announced, Ends, Frames, Offer, adopt};
use crate::memif::message::{Direction, Hello, Message, Text};
use crate::memif::receiver::{Receiver, area_bytes};
use crate::memif::region::Region;
use crate::memif::ring::{Descriptor, Ring};
use crate::memif::sender::Sender;
use crate::memif::work::Patience;
use crate::strangers::{Account, File, SpareThreads};

/// One direction of a link, and the frames that are in it.
struct Lane {
    sender: Sender,
    receiver: Receiver,
    size: u16,
    buffer_bytes: usize,
    frame_bytes_max: usize,
    /// Frames that were sent and not taken yet, oldest first.
    under_way: VecDeque<Vec<u8>>,
    /// Descriptors that all frames so far took.
    passed: u32,
    area: Vec<u8>,
    counters: Counters,
}

/// Both directions of a link made by `config`: the client's to the server first.
fn lanes(config: &Config) -> [Lane; 2] {
    let [server, client] = ends(config);
    let lane = |sender: Option<Sender>, receiver: Option<Receiver>| Lane {
        sender: sender.unwrap(),
        receiver: receiver.unwrap(),
        size: 1 << config.ring_size_log2,
        buffer_bytes: config.buffer_bytes as usize,
        frame_bytes_max: config.frame_bytes_max,
        under_way: VecDeque::new(),
        passed: 0,
        area: vec![0; area_bytes(config.frame_bytes_max)],
        counters: Counters::default(),
    };
    [lane(client.sender, server.receiver), lane(server.sender, client.receiver)]
}

/// What a handshake between a server and a client ends in, without the sockets.
fn ends(config: &Config) -> [Ends; 2] {
    let hello = Hello {
        name: Text::new("test"),
        version_min: 0x200,
        version_max: 0x200,
        region_max: 0,
        m2s_ring_max: 0,
        s2m_ring_max: 0,
        ring_size_log2_max: config.ring_size_log2,
    };
    let (account, patience) = (account(), Patience::default());
    let Offer { announcements, offered } = Offer::new(config, &hello, &account).unwrap();
    let mut announced = Announced::default();
    for (message, fd) in announcements {
        let file = File::new(fd.expect("each comes with a descriptor"), account.clone());
        match message {
            Message::AddRegion { bytes, .. } => announced.regions.push((bytes, file)),
            Message::AddRing(ring) => announced.rings.push((ring, file)),
            other => panic!("{other:?}"),
        }
    }
    let limit = Limit::of(config, &hello.name);
    let mut server = adopt(config, announced, limit, &account, &patience.wanted()).unwrap();
    let mut client = offered.secure(&patience.wanted()).unwrap();
    [server.remove(0), client.remove(0)]
}

fn account() -> Account {
    Account::new(7, SpareThreads::new("test"))
}

fn bell() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()
}

fn small(ring_size_log2: u8, buffer_bytes: u32) -> Config {
    Config { ring_size_log2, buffer_bytes, ..config(&socket(), Role::Client) }
}

impl Lane {
    /// As if so many descriptors had passed before: the lane is empty.
    fn start_at(&mut self, index: u16) {
        assert!(self.under_way.is_empty());
        self.sender.start_at(index);
        self.receiver.start_at(index);
    }

    /// Descriptors that a frame of this length takes.
    fn descriptors(&self, bytes: usize) -> u16 {
        if self.buffer_bytes >= self.frame_bytes_max {
            return 1;
        }
        bytes.div_ceil(self.buffer_bytes) as u16
    }

    /// Descriptors that are in use as long as nobody takes a frame.
    fn taken(&self) -> u16 {
        self.under_way.iter().map(|frame| self.descriptors(frame.len())).sum()
    }

    /// Sends one frame, which the receiver sees after a flush. False if there is no room.
    fn send(&mut self, frame: Vec<u8>) -> bool {
        let fill = &mut |buffer: &mut [u8]| {
            buffer[..frame.len()].copy_from_slice(&frame);
            frame.len()
        };
        match self.sender.transmit(fill, &mut self.counters).expect("nobody broke a rule") {
            Transmit::Queued => {}
            Transmit::Full => return false,
            Transmit::Nothing => panic!("there was a frame"),
        }
        self.passed += u32::from(self.descriptors(frame.len()));
        self.under_way.push_back(frame);
        assert!(self.taken() <= self.size, "more descriptors in use than there are");
        true
    }

    /// Takes up to `budget` frames, each of which is the oldest.
    fn take(&mut self, budget: usize) -> usize {
        let under_way = &mut self.under_way;
        let sink = &mut |burst: &[&[u8]], _| {
            for frame in burst {
                assert_eq!(Some(*frame), under_way.pop_front().as_deref());
            }
        };
        let (frames, outcome) =
            self.receiver.burst(budget, &mut self.area, sink, &mut self.counters);
        assert_eq!(outcome, Ok(()));
        frames
    }

    /// What is free plus what is taken is what was made.
    fn count(&mut self) {
        self.receiver.give_back();
        let free = self.sender.free(self.size).expect("nobody broke a rule");
        assert_eq!(free + self.taken(), self.size);
    }

    /// Empties it, and fills it to the last buffer once more.
    fn end(&mut self) {
        self.sender.flush();
        self.take(usize::MAX);
        assert!(self.under_way.is_empty());
        self.count();
        for seed in 0..self.size {
            let room = (self.size - self.taken()) as usize * self.buffer_bytes;
            let fits = self.buffer_bytes >= self.frame_bytes_max || room >= self.frame_bytes_max;
            assert_eq!(self.send(frame(60, seed.into())), fits);
        }
        assert!(!self.send(frame(60, 0)));
        self.sender.flush();
        self.take(usize::MAX);
        assert!(self.under_way.is_empty());
        self.count();
    }
}

/// So many indexes before the wrap.
fn before_the_wrap(distance: u16) -> u16 {
    0u16.wrapping_sub(distance)
}

#[test]
fn every_filling_passes_the_wrap_from_every_distance() {
    for (ring_size_log2, buffer_bytes) in [(0, 2048), (1, 1518), (2, 16_384), (4, 2048)] {
        for mut lane in lanes(&small(ring_size_log2, buffer_bytes)) {
            for distance in 0..=2 * lane.size + 1 {
                for filling in 1..=lane.size {
                    lane.start_at(before_the_wrap(distance));
                    for lap in 0..3 {
                        for number in 0..filling {
                            assert!(lane.send(frame(60 + usize::from(number), lap)));
                        }
                        assert_eq!(lane.send(frame(60, 0)), filling < lane.size);
                        lane.sender.flush();
                        lane.count();
                        let frames = usize::from(lane.size.min(filling + 1));
                        assert_eq!(lane.take(1) + lane.take(usize::MAX), frames);
                        assert_eq!(lane.take(usize::MAX), 0);
                        lane.count();
                    }
                }
            }
            lane.end();
        }
    }
}

#[test]
fn an_eighth_of_the_ring_goes_back_at_every_distance_to_the_wrap() {
    for mut lane in lanes(&small(5, 2048)) {
        for distance in 0..=2 * lane.size {
            lane.start_at(before_the_wrap(distance));
            (0..lane.size).for_each(|seed| assert!(lane.send(frame(60, seed.into()))));
            lane.sender.flush();
            for eighth in 1..=8 {
                assert_eq!((lane.take(3), lane.sender.free(lane.size)), (3, Ok((eighth - 1) * 4)));
                assert_eq!((lane.take(1), lane.sender.free(lane.size)), (1, Ok(eighth * 4)));
            }
        }
    }
}

/// A walk of sending and taking at random, full and empty every now and then, with frames in one
/// buffer and in many.
#[test]
fn frames_of_all_lengths_pass_the_wrap_for_several_laps() {
    let shapes = [(3, 2048), (5, 64), (5, 100), (6, 300), (7, 1000), (8, 1518), (9, 16_384)];
    let (mut full, mut empty) = (0, 0);
    for (ring_size_log2, buffer_bytes) in shapes {
        for mut lane in lanes(&small(ring_size_log2, buffer_bytes)) {
            for seed in 0..8 {
                let mut random = Random::new(seed);
                let distance = random.below(2 * u64::from(lane.size)) as u16;
                lane.start_at(before_the_wrap(distance));
                let end = lane.passed + u32::from(distance) + 5 * u32::from(lane.size);
                for _ in 0..1000 {
                    if lane.passed >= end {
                        break;
                    }
                    let (sent, taken) = step(&mut lane, &mut random);
                    full += u32::from(!sent);
                    empty += u32::from(taken == 0);
                }
                assert!(lane.passed >= end, "nothing moves any more");
                lane.end();
            }
        }
    }
    assert!(full > 100 && empty > 100, "{full} times full, {empty} times empty");
}

/// Sends some frames and takes some. Whether all could be sent, and how many were taken.
fn step(lane: &mut Lane, random: &mut Random) -> (bool, usize) {
    let mut sent = true;
    for _ in 0..random.below(u64::from(lane.size) + 2) {
        let bytes = 1 + random.below(lane.frame_bytes_max as u64) as usize;
        sent = lane.send(frame(bytes, random.next_u32() as usize));
        if !sent {
            break;
        }
    }
    let unseen = random.chance(1, 8);
    if !unseen {
        lane.sender.flush();
    }
    let taken = lane.take(random.below(u64::from(lane.size) + 2) as usize);
    if !unseen && random.chance(1, 4) {
        lane.count();
    }
    (sent, taken)
}

/// No index is helped here: as many frames as it takes.
#[test]
fn queues_pass_the_wrap_when_it_comes() {
    for (ring_size_log2, buffer_bytes) in [(8, 2048), (14, 128)] {
        let at = socket();
        let shape = |role| Config { ring_size_log2, buffer_bytes, ..config(&at, role) };
        let (mut a, mut b) = open_both(shape(Role::Server), shape(Role::Client));
        pass(70_000, &mut a[0], &mut b[0]);
        pass(70_000, &mut b[0], &mut a[0]);
        for queue in a.iter().chain(&b) {
            assert!(queue.link_up() && queue.link_counters().violations == 0);
            assert_eq!(queue.counters().rx_frames_dropped, 0);
        }
    }
}

/// Sends so many frames, whenever there is room, and takes them.
fn pass(frames: usize, from: &mut Queue, to: &mut Queue) {
    let numbered = |number: usize| frame(60 + 37 * number % 800, number);
    let (mut sent, mut seen) = (0, 0);
    until("all have come", || {
        while sent < frames && send(from, &numbered(sent)) == Transmit::Queued {
            sent += 1;
        }
        to.receive(1 + seen % 300, &mut |burst, _| {
            for bytes in burst {
                assert_eq!(*bytes, numbered(seen));
                seen += 1;
            }
        });
        seen == frames
    });
}

/// A client whose buffers are of several lengths, of which some hold a frame and some a part.
struct Client {
    file: OwnedFd,
    ring: Ring,
    /// Descriptors that it has taken frames from.
    next: u16,
}

impl Client {
    /// One holds the largest frame; two others together do, to the byte.
    const LENGTHS: [u32; 8] = [100, 64, 300, 1100, 500, 600, 64, 700];
    const FRAME_BYTES_MAX: usize = 1100;

    /// It, and a server's end of its ring.
    fn new() -> (Client, Sender) {
        let (region, file) = Region::create(32_768, &account()).unwrap();
        let memory: Arc<[Region]> = Arc::new([region]);
        let ring = || Ring::new(Arc::clone(&memory), 0, 0, 3, Direction::M2s).unwrap();
        let client = Client { file, ring: ring(), next: 0 };
        client.ring.initialize();
        let bytes = Client::FRAME_BYTES_MAX;
        let frames = Frames { bytes_max: bytes, sent_bytes_max: bytes };
        (client, Sender::new(ring(), Arc::clone(&memory), None, frames, bell()))
    }

    fn start_at(&mut self, index: u16) {
        self.next = index;
        (0..8).for_each(|ahead| self.give(index.wrapping_add(ahead)));
        self.ring.publish_consumed(index);
    }

    fn give(&self, index: u16) {
        let offset = 4096 + u32::from(self.ring.slot(index)) * 2048;
        let length = Client::length(index) as u32;
        self.ring.set_descriptor(index, Descriptor { offset, length, ..Descriptor::default() });
    }

    fn length(index: u16) -> usize {
        Client::LENGTHS[usize::from(index) % 8] as usize
    }

    /// Takes the next frame and gives its buffers back.
    fn take(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        loop {
            let descriptor = self.ring.descriptor(self.next);
            let mut part = vec![0; descriptor.length as usize];
            rustix::io::pread(&self.file, &mut part[..], descriptor.offset.into()).unwrap();
            frame.append(&mut part);
            self.give(self.next);
            self.next = self.next.wrapping_add(1);
            if !descriptor.continues() {
                self.ring.publish_consumed(self.next);
                return frame;
            }
        }
    }
}

#[test]
fn buffers_of_several_lengths_in_a_ring_pass_the_wrap() {
    let (mut client, mut sender) = Client::new();
    for distance in 0..=16 {
        let mut random = Random::new(distance.into());
        let mut produced = before_the_wrap(distance);
        sender.start_at(produced);
        client.start_at(produced);
        let mut under_way = VecDeque::new();
        for number in 0..100 {
            let bytes = frame(1 + random.below(Client::FRAME_BYTES_MAX as u64) as usize, number);
            let free = 8 - produced.wrapping_sub(client.next);
            let rooms = (0..free).map(|ahead| Client::length(produced.wrapping_add(ahead)));
            let fits = rooms.sum::<usize>() >= Client::FRAME_BYTES_MAX;
            let fill = &mut |buffer: &mut [u8]| {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            };
            let outcome = sender.transmit(fill, &mut Counters::default());
            assert_eq!(outcome, Ok(if fits { Transmit::Queued } else { Transmit::Full }));
            if fits {
                let mut left = bytes.len();
                while left > 0 {
                    left -= left.min(Client::length(produced));
                    produced = produced.wrapping_add(1);
                }
                under_way.push_back(bytes);
            }
            sender.flush();
            assert_eq!(client.ring.produced(), produced);
            if !fits || random.chance(1, 2) {
                assert_eq!(under_way.pop_front(), Some(client.take()));
            }
        }
        under_way.into_iter().for_each(|frame| assert_eq!(frame, client.take()));
        assert_eq!(sender.free(8), Ok(8));
    }
}

/// A peer may show a part of a frame, and the rest of it later. That nothing is to be taken at the
/// index where it stopped is not to be remembered until the index comes round again.
#[test]
fn an_index_at_which_a_frame_was_unfinished_may_come_again() {
    for direction in [Direction::S2m, Direction::M2s] {
        let memory: Arc<[Region]> = Arc::new([Region::create(8192, &account()).unwrap().0]);
        let ring = || Ring::new(Arc::clone(&memory), 0, 0, 3, direction).unwrap();
        let peer = ring();
        peer.initialize();
        let buffers = Buffers { first: 4096, stride: 64, bytes: 64 };
        let own = (direction == Direction::M2s).then_some(buffers);
        let mut receiver = Receiver::new(ring(), Arc::clone(&memory), own, 1518, bell());
        receiver.start();
        let mut area = vec![0; area_bytes(1518)];
        let mut show = |index: u16, goes_on| {
            let empty = buffers.descriptor(peer.slot(index));
            let filled = Descriptor::holding(empty, 60, goes_on);
            peer.set_descriptor(index, filled);
            peer.publish_produced(index.wrapping_add(1));
            let counters = &mut Counters::default();
            let (frames, outcome) = receiver.burst(8, &mut area, &mut |_, _| (), counters);
            assert_eq!(outcome, Ok(()));
            assert!(frames == 1 || receiver.arm(), "frames are there, and it does not sleep");
            frames
        };
        assert_eq!((show(0, true), show(1, false)), (0, 1));
        for index in 2..=65_536 {
            assert_eq!(show(index as u16, false), 1, "at {index}");
        }
    }
}
