//! The queue over rings in plain memory, which a test serves in the kernel's place: their indexes
//! start just before their wrap, which takes a NIC minutes to reach, and every chunk can be found.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_base::Random;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

use super::super::mapping::Mapping;
use super::super::socket::{Layout, RECEIVE_HEADROOM_BYTES};
use super::*;

/// Where the parts of each ring are.
const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: Some(128), desc: 192 };

/// The kernel's view of a ring.
struct KernelRing<T> {
    mapping: Mapping,
    count: u32,
    start: u32,
    _entry: std::marker::PhantomData<T>,
}

impl<T: Copy> KernelRing<T> {
    /// A ring of `count` entries whose indexes are `start`, and the queue's mapping of it.
    fn new(count: u32, start: u32) -> (KernelRing<T>, Mapping) {
        let [mapping, theirs] = shared(AT.desc as usize + count as usize * size_of::<T>());
        let ring = KernelRing { mapping, count, start, _entry: std::marker::PhantomData };
        ring.word(AT.producer).store(start, Ordering::Relaxed);
        ring.word(AT.consumer).store(start, Ordering::Relaxed);
        (ring, theirs)
    }

    /// How many times it went round.
    fn laps(&self) -> u32 {
        self.word(AT.consumer).load(Ordering::Relaxed).wrapping_sub(self.start) / self.count
    }

    /// All entries, oldest first.
    fn entries(&self) -> Vec<T> {
        let first = self.word(AT.consumer).load(Ordering::Acquire);
        (0..self.waiting()).map(|ahead| self.read(first.wrapping_add(ahead))).collect()
    }

    fn waiting(&self) -> u32 {
        let [producer, consumer] =
            [AT.producer, AT.consumer].map(|word| self.word(word).load(Ordering::Acquire));
        let waiting = producer.wrapping_sub(consumer);
        assert!(waiting <= self.count, "{waiting} entries in a ring of {}", self.count);
        waiting
    }

    fn room(&self) -> u32 {
        self.count - self.waiting()
    }

    fn take(&self) -> Option<T> {
        let index = self.word(AT.consumer).load(Ordering::Relaxed);
        (self.waiting() > 0).then(|| {
            let entry = self.read(index);
            self.word(AT.consumer).store(index.wrapping_add(1), Ordering::Release);
            entry
        })
    }

    fn put(&self, entry: T) {
        assert!(self.room() > 0, "the ring is too small for all chunks");
        let index = self.word(AT.producer).load(Ordering::Relaxed);
        // SAFETY: the entry is inside the ring, and the queue does not touch it at this time.
        unsafe { self.entry(index).write(entry) };
        self.word(AT.producer).store(index.wrapping_add(1), Ordering::Release);
    }

    fn read(&self, index: u32) -> T {
        // SAFETY: as in `put`; all its bytes are written, at first with zeros.
        unsafe { self.entry(index).read() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        let slot = (index % self.count) as usize;
        self.mapping.at(AT.desc as usize + slot * size_of::<T>(), size_of::<T>()).cast()
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the word is inside the mapping, aligned, and only touched atomically.
        unsafe { self.mapping.at(offset as usize, size_of::<u32>()).cast().as_ref() }
    }
}

/// Two mappings of the same memory.
fn shared(bytes: usize) -> [Mapping; 2] {
    let file = memory(bytes);
    [(); 2].map(|()| Mapping::shared(file.as_fd(), 0, bytes).unwrap())
}

fn memory(bytes: usize) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    file
}

/// What the kernel has of a socket.
struct Kernel {
    layout: Layout,
    umem: Mapping,
    fill: KernelRing<u64>,
    received: KernelRing<XdpDesc>,
    transmit: KernelRing<XdpDesc>,
    completed: KernelRing<u64>,
    /// Chunks that it has taken to send and not given back.
    sending: Vec<u64>,
    /// The first chunks of a frame of which it has not taken all.
    begun: Vec<u8>,
}

impl Kernel {
    /// The frame arrives, unless there are too few chunks or descriptors for it.
    fn deliver(&self, frame: &[u8]) -> bool {
        let parts = frame.chunks(self.layout.chunk_bytes - RECEIVE_HEADROOM_BYTES);
        let count = parts.len();
        if self.fill.waiting().min(self.received.room()) < count as u32 {
            return false;
        }
        for (index, part) in parts.enumerate() {
            let addr = self.fill.take().expect("enough wait") + RECEIVE_HEADROOM_BYTES as u64;
            let bytes = self.umem.at(addr as usize, part.len());
            // SAFETY: the chunk is ours since it was in the fill ring.
            unsafe { bytes.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            let mut options = XdpDescOptions::empty();
            options.set(XdpDescOptions::XDP_PKT_CONTD, index + 1 < count);
            self.received.put(XdpDesc { addr, len: part.len() as u32, options });
        }
        true
    }

    /// Takes up to `limit` descriptors to send; the frames that are whole with them.
    fn send(&mut self, limit: u64) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..limit {
            let Some(XdpDesc { addr, len, options }) = self.transmit.take() else { break };
            assert!(len > 0 && len as usize <= self.layout.chunk_bytes);
            let bytes = NonNull::slice_from_raw_parts(
                self.umem.at(addr as usize, len as usize),
                len as usize,
            );
            // SAFETY: the chunk is ours since it was in the transmit ring.
            self.begun.extend_from_slice(unsafe { bytes.as_ref() });
            self.sending.push(addr);
            if !options.contains(XdpDescOptions::XDP_PKT_CONTD) {
                frames.push(std::mem::take(&mut self.begun));
            }
        }
        frames
    }

    /// Up to `limit` chunks have left, in any order.
    fn complete(&mut self, limit: u64, random: &mut Random) {
        for _ in 0..limit.min(self.sending.len() as u64) {
            let index = random.below(self.sending.len() as u64) as usize;
            self.completed.put(self.sending.swap_remove(index));
        }
    }

    fn laps(&self) -> u32 {
        let (fill, received) = (self.fill.laps(), self.received.laps());
        fill.min(received).min(self.transmit.laps()).min(self.completed.laps())
    }
}

/// A queue, its kernel, and the frames that are with either.
struct Run {
    queue: XdpQueue,
    kernel: Kernel,
    random: Random,
    arriving: VecDeque<Vec<u8>>,
    leaving: VecDeque<Vec<u8>>,
    too_long: u64,
    /// How often a frame could not be sent, and could not arrive, for want of room.
    full: u32,
    refused: u32,
}

impl Run {
    fn new(layout: Layout, seed: u64) -> Run {
        let mut random = Random::new(seed);
        let chunks = layout.receive_offsets().count() as u32;
        let mut soon = |count: u32| 0u32.wrapping_sub(random.below(2 * u64::from(count)) as u32);
        let (fill, a) = KernelRing::new(chunks, soon(chunks));
        let (received, b) = KernelRing::new(layout.entries(), soon(layout.entries()));
        let (transmit, c) = KernelRing::new(layout.entries(), soon(layout.entries()));
        let (completed, d) = KernelRing::new(layout.entries(), soon(layout.entries()));
        let [umem, theirs] = shared(layout.umem_bytes());
        let socket = Socket::over(memory(0), theirs, layout, [a, b, c, d], &AT);
        let device = Device::open("lo").expect("every machine has one");
        let info = Info { driver: "af_xdp", mode: String::new(), mac: [2; 6] };
        let queue = XdpQueue::new(socket, device, info, layout.frame_bytes_max, Arc::new(()));
        assert!(queue.link_up(), "the loopback interface is up");
        let (sending, begun) = (Vec::new(), Vec::new());
        Run {
            kernel: Kernel { layout, umem, fill, received, transmit, completed, sending, begun },
            queue,
            random,
            arriving: VecDeque::new(),
            leaving: VecDeque::new(),
            too_long: 0,
            full: 0,
            refused: 0,
        }
    }

    /// Of any length; the shortest and the largest more often.
    fn frame(&mut self) -> Vec<u8> {
        let largest = self.kernel.layout.frame_bytes_max;
        let bytes = match self.random.below(8) {
            0 => largest,
            1..4 => 1 + self.random.below(largest as u64) as usize,
            _ => 1 + self.random.below(largest.min(200) as u64) as usize,
        };
        let seed = self.random.next_u32();
        (0..bytes as u32).map(|index| (seed.wrapping_add(index * 7) >> 3) as u8).collect()
    }

    /// Frames arrive until there is no room, or so many.
    fn deliver(&mut self, frames: u64) {
        for _ in 0..frames {
            let mut frame = self.frame();
            let is_too_long = self.kernel.layout.is_spread() && self.random.chance(1, 16);
            if is_too_long {
                frame.resize(self.kernel.layout.frame_bytes_max + 1, 0);
            }
            if !self.kernel.deliver(&frame) {
                self.refused += 1;
                return;
            }
            match is_too_long {
                true => self.too_long += 1,
                false => self.arriving.push_back(frame),
            }
        }
    }

    fn receive(&mut self, budget: usize) {
        let arriving = &mut self.arriving;
        self.queue.receive(budget, &mut |frames, _| {
            for frame in frames {
                assert_eq!(Some(*frame), arriving.pop_front().as_deref());
            }
        });
    }

    /// Sends until there is no room, or so many.
    fn transmit(&mut self, frames: u64) {
        for _ in 0..frames {
            let frame = self.frame();
            let outcome = self.queue.transmit(&mut |buffer| {
                buffer[..frame.len()].copy_from_slice(&frame);
                frame.len()
            });
            if outcome == Transmit::Full {
                self.full += 1;
                assert!(self.queue.free.is_empty() && self.kernel.completed.waiting() == 0);
                break;
            }
            assert_eq!(outcome, Transmit::Queued);
            self.leaving.push_back(frame);
        }
        self.queue.flush();
    }

    /// The kernel sends up to so many descriptors.
    fn leave(&mut self, descriptors: u64) {
        for frame in self.kernel.send(descriptors) {
            assert_eq!(Some(frame), self.leaving.pop_front());
        }
    }

    fn step(&mut self) {
        let [frames, chunks] =
            [self.kernel.layout.descriptors, self.kernel.layout.entries()].map(u64::from);
        match self.random.below(5) {
            0 => {
                let frames = self.random.below(3 * frames);
                self.deliver(frames);
            }
            1 => {
                let budget = self.random.below(2 * chunks) as usize;
                self.receive(budget);
            }
            2 => {
                let frames = self.random.below(2 * frames);
                self.transmit(frames);
            }
            3 => {
                let descriptors = self.random.below(2 * chunks);
                self.leave(descriptors);
            }
            _ => {
                let limit = self.random.below(2 * chunks);
                self.kernel.complete(limit, &mut self.random);
            }
        }
    }

    /// Every chunk that was made is in one place.
    fn count(&self) {
        let (kernel, socket) = (&self.kernel, &self.queue.socket);
        let waiting =
            kernel.received.entries().into_iter().map(|entry| socket.chunk_of(entry.addr));
        let mut chunks = kernel.fill.entries();
        chunks.extend(waiting);
        chunks.sort_unstable();
        assert!(chunks.into_iter().eq(kernel.layout.receive_offsets()), "chunks to receive into");

        let mut sent: Vec<u64> = kernel.transmit.entries().iter().map(|entry| entry.addr).collect();
        sent.extend(&kernel.sending);
        sent.extend(kernel.completed.entries());
        sent.sort_unstable();
        assert!(sent.windows(2).all(|pair| pair[0] < pair[1]), "a chunk is sent from once");
        let mut slots = self.queue.free.clone();
        for (slot, offset) in kernel.layout.transmit_offsets().enumerate() {
            let of_slot = |&&chunk: &&u64| kernel.layout.slot_of(chunk).0 == slot;
            let under_way = sent.iter().filter(of_slot).count();
            assert_eq!(usize::from(self.queue.under_way[slot]), under_way);
            slots.extend((under_way > 0).then_some(offset));
        }
        slots.sort_unstable();
        assert!(slots.into_iter().eq(kernel.layout.transmit_offsets()), "slots to send from");
    }

    /// All that is under way arrives; then nothing is.
    fn end(&mut self) {
        self.receive(usize::MAX);
        self.leave(u64::MAX);
        self.kernel.complete(u64::MAX, &mut self.random);
        self.queue.reap();
        self.count();
        assert!(self.arriving.is_empty() && self.leaving.is_empty());
        assert_eq!(self.queue.free.len(), self.kernel.layout.descriptors as usize);
        assert_eq!(self.kernel.fill.entries().len(), self.kernel.layout.receive_offsets().count());
        assert_eq!(self.queue.counters.rx_frames_dropped, self.too_long);
    }
}

#[test]
fn every_chunk_is_in_one_place_while_the_indexes_wrap() {
    let one_chunk = [Layout::new(8, 1522), Layout::new(4, 3000)];
    let spread = [(8, 9022), (4, 4097), (2, 65_535)];
    let spread = spread.map(|(frames, bytes)| Layout::new(frames, bytes).spread(bytes));
    for layout in one_chunk.into_iter().chain(spread) {
        for seed in 0..8 {
            let mut run = Run::new(layout, seed);
            run.count();
            for step in 0.. {
                assert!(step < 5000, "all rings turn, in {layout:?}");
                run.step();
                run.count();
                if run.kernel.laps() >= 4 {
                    break;
                }
            }
            run.end();
            assert!(run.full > 0 && run.refused > 0, "it was full in both directions");
        }
    }
}

/// Whoever sleeps is not told when the kernel takes more. This socket is none, and takes nothing.
#[test]
fn nobody_sleeps_on_frames_that_have_yet_to_leave() {
    let mut run = Run::new(Layout::new(8, 1522), 1);
    assert!(run.queue.arm(), "there is nothing to be done");
    run.queue.kick_pending = true;
    assert!(!run.queue.arm());
}
