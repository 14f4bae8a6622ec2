//! What a handshake ends in: the shared memory of a link, cut into the ends that its queues use.
//!
//! The client lays the memory out ([`Offer`]); the server maps what the client offers ([`adopt`]).
//! Both take their time, and are `work`.
//!
//! ```text
//! region 0:  S2M ring 0 .. S2M ring n | M2S ring 0 .. M2S ring m | (page) buffers of each ring in
//!            turn
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;
use rustix::fs::{FileType, OFlags};

use super::Config;
use super::buffers::Buffers;
use super::limit::Limit;
use super::message::{AddRing, Direction, Hello, Message};
use super::receiver::Receiver;
use super::region::{REGION_BYTES_TOTAL_MAX, Region};
use super::ring::{HEADER_BYTES, Ring, ring_bytes};
use super::sender::Sender;
use super::work::Wanted;
use crate::strangers::{Account, File};

const PAGE_BYTES: usize = 4096;

/// One queue's ends of a link. A peer may offer fewer rings than we have queues.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) receiver: Option<Receiver>,
    pub(super) sender: Option<Sender>,
}

/// How large frames are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// The largest that this side takes, and makes.
    pub(super) bytes_max: usize,
    /// The largest that the peer is sent, which is no larger.
    pub(super) sent_bytes_max: usize,
}

impl Frames {
    fn new(config: &Config, limit: Limit) -> Self {
        Self { bytes_max: config.frame_bytes_max, sent_bytes_max: limit.frame_bytes }
    }
}

/// A message and the descriptor that goes with it.
pub(super) type Parcel = (Message, Option<OwnedFd>);

/// What a client offers: the messages that tell the server of it, and its own part.
#[derive(Debug)]
pub(super) struct Offer {
    /// First, so that it goes first, while the memory is still mapped: closing the last descriptor
    /// of it is nothing for an engine.
    pub(super) announcements: VecDeque<Parcel>,
    pub(super) offered: Offered,
}

/// A client's part of the link, not to be used before it is secured.
#[derive(Debug)]
pub(super) struct Offered {
    ends: Vec<Ends>,
    memory: Arc<[Region]>,
    file: File,
}

impl Offer {
    /// Creates memory, rings and doorbells: as many and as large as `config` says and `hello`
    /// allows.
    pub(super) fn new(config: &Config, hello: &Hello, account: &Account) -> io::Result<Self> {
        let layout = Layout::new(config, hello);
        let (region, file) = Region::create(layout.bytes(), account)?;
        let file = File::new(file, account.clone());
        let theirs = file.as_fd().try_clone_to_owned()?;
        let region_message = Message::AddRegion { index: 0, bytes: layout.bytes() as u64 };
        let offered = Offered { ends: Vec::new(), memory: Arc::new([region]), file };
        let mut offer = Self { announcements: [(region_message, Some(theirs))].into(), offered };
        offer.offered.ends.resize_with(usize::from(config.queue_pairs), Ends::default);
        let frames = Frames::new(config, Limit::of(config, &hello.name));
        for number in 0..layout.rings() {
            offer.add_ring(frames, &layout, number)?;
        }
        Ok(offer)
    }

    fn add_ring(&mut self, frames: Frames, layout: &Layout, number: usize) -> io::Result<()> {
        let announcement = layout.announcement(number);
        let memory = &self.offered.memory;
        let ring = ring_at(memory, &announcement).expect("the layout fits the region made for it");
        ring.initialize();
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let doorbell = rustix::event::eventfd(0, flags)?;
        let theirs = doorbell.try_clone()?;
        let (memory, buffers) = (memory.clone(), Some(layout.buffers(number)));
        let ends = &mut self.offered.ends[usize::from(announcement.index)];
        match announcement.direction {
            Direction::S2m => {
                ends.sender = Some(Sender::new(ring, memory, buffers, frames, doorbell));
            }
            Direction::M2s => {
                let bytes_max = frames.bytes_max;
                ends.receiver = Some(Receiver::new(ring, memory, buffers, bytes_max, doorbell));
            }
        }
        self.announcements.push_back((Message::AddRing(announcement), Some(theirs)));
        Ok(())
    }
}

impl Offered {
    /// Secures the memory, now that the server has mapped it, and gives all buffers to the server.
    pub(super) fn secure(mut self, wanted: &Wanted) -> Result<Vec<Ends>, String> {
        self.memory.iter().try_for_each(|region| region.secure(self.file.as_fd(), wanted))?;
        self.ends.iter_mut().filter_map(|ends| ends.receiver.as_mut()).for_each(Receiver::start);
        Ok(self.ends)
    }
}

/// The sizes of a client's region 0.
struct Layout {
    s2m_rings: u16,
    m2s_rings: u16,
    size_log2: u8,
    buffer_bytes: u32,
}

impl Layout {
    fn new(config: &Config, hello: &Hello) -> Self {
        Self {
            s2m_rings: config.queue_pairs.min(hello.s2m_ring_max.saturating_add(1)),
            m2s_rings: config.queue_pairs.min(hello.m2s_ring_max.saturating_add(1)),
            size_log2: config.ring_size_log2.min(hello.ring_size_log2_max),
            buffer_bytes: config.buffer_bytes,
        }
    }

    fn rings(&self) -> usize {
        usize::from(self.s2m_rings) + usize::from(self.m2s_rings)
    }

    /// From one ring to the next: rounded up so that headers never share a cache line or its
    /// neighbour, which processors fetch in pairs.
    fn ring_stride(&self) -> usize {
        ring_bytes(self.size_log2).next_multiple_of(HEADER_BYTES)
    }

    fn buffers_at(&self) -> usize {
        (self.rings() * self.ring_stride()).next_multiple_of(PAGE_BYTES)
    }

    fn buffers_bytes(&self) -> usize {
        (Buffers::stride(self.buffer_bytes) as usize) << self.size_log2
    }

    fn bytes(&self) -> usize {
        (self.buffers_at() + self.rings() * self.buffers_bytes()).next_multiple_of(PAGE_BYTES)
    }

    fn announcement(&self, number: usize) -> AddRing {
        let s2m = usize::from(self.s2m_rings);
        let (direction, index) =
            if number < s2m { (Direction::S2m, number) } else { (Direction::M2s, number - s2m) };
        AddRing {
            direction,
            index: index as u16,
            region: 0,
            offset: (number * self.ring_stride()) as u32,
            size_log2: self.size_log2,
            private_header_bytes: 0,
        }
    }

    fn buffers(&self, number: usize) -> Buffers {
        Buffers {
            first: (self.buffers_at() + number * self.buffers_bytes()) as u32,
            stride: Buffers::stride(self.buffer_bytes),
            bytes: self.buffer_bytes,
        }
    }
}

/// Bytes of the region that a client with this `config` makes at most; for checking the config.
pub(super) fn region_bytes(config: &Config) -> u64 {
    let rings = config.queue_pairs;
    let (size_log2, buffer_bytes) = (config.ring_size_log2, config.buffer_bytes);
    Layout { s2m_rings: rings, m2s_rings: rings, size_log2, buffer_bytes }.bytes() as u64
}

/// What a client has announced so far.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// Size and descriptor of each region, by index.
    pub(super) regions: Vec<(u64, File)>,
    /// Rings with their interrupts, in the order in which they came.
    pub(super) rings: Vec<(AddRing, File)>,
}

/// Maps and secures what a client has announced. An error says what is wrong with it.
pub(super) fn adopt(
    config: &Config,
    announced: Announced,
    limit: Limit,
    account: &Account,
    wanted: &Wanted,
) -> Result<Vec<Ends>, String> {
    let total = announced.regions.iter().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    if total > REGION_BYTES_TOTAL_MAX {
        return Err(format!("regions of {total} bytes, more than 1 GiB; choose smaller rings"));
    }
    let regions = &announced.regions;
    let mapped = regions.iter().map(|(bytes, file)| Region::adopt(file.as_fd(), *bytes, account));
    // All of them first, since a file that is secured is mapped no more.
    let memory: Arc<[Region]> = mapped.collect::<Result<Vec<_>, _>>()?.into();
    for (region, (_, file)) in memory.iter().zip(regions) {
        region.secure(file.as_fd(), wanted)?;
    }
    let mut ends = Vec::new();
    ends.resize_with(usize::from(config.queue_pairs), Ends::default);
    for (ring, doorbell) in announced.rings {
        adopt_ring(Frames::new(config, limit), &memory, &mut ends, ring, doorbell)?;
    }
    if ends.iter().all(|ends| ends.sender.is_none() && ends.receiver.is_none()) {
        return Err("no rings".into());
    }
    Ok(ends)
}

fn adopt_ring(
    frames: Frames,
    memory: &Arc<[Region]>,
    ends: &mut [Ends],
    announcement: AddRing,
    doorbell: File,
) -> Result<(), String> {
    let ends = ends.get_mut(usize::from(announcement.index)).ok_or("ring index out of range")?;
    if announcement.private_header_bytes != 0 {
        return Err("private headers are not supported".into());
    }
    let ring = ring_at(memory, &announcement).ok_or("ring outside its region or not aligned")?;
    if !ring.cookie_is_right() {
        return Err("wrong ring cookie".into());
    }
    check_doorbell(&doorbell)?;
    let doorbell = doorbell.into_inner();
    let memory = memory.clone();
    let taken = match announcement.direction {
        Direction::S2m => {
            let mut receiver = Receiver::new(ring, memory, None, frames.bytes_max, doorbell);
            receiver.start();
            ends.receiver.replace(receiver).is_some()
        }
        Direction::M2s => {
            ends.sender.replace(Sender::new(ring, memory, None, frames, doorbell)).is_some()
        }
    };
    if taken { Err("the same ring twice".into()) } else { Ok(()) }
}

fn ring_at(memory: &Arc<[Region]>, at: &AddRing) -> Option<Ring> {
    Ring::new(memory.clone(), at.region, at.offset, at.size_log2, at.direction)
}

/// A doorbell must be an eventfd, which has no file type, unlike files, pipes and sockets; and
/// writing to it must not wait.
fn check_doorbell(doorbell: &File) -> Result<(), String> {
    let wrong = |error| format!("interrupt descriptor: {error}");
    let stat = rustix::fs::fstat(doorbell).map_err(wrong)?;
    // An anonymous inode's mode has no type bits, which `FileType` reports as unknown.
    if FileType::from_raw_mode(stat.st_mode) != FileType::Unknown {
        return Err("interrupt descriptor is not an eventfd".into());
    }
    let flags = rustix::fs::fcntl_getfl(doorbell).map_err(wrong)?;
    rustix::fs::fcntl_setfl(doorbell, flags | OFlags::NONBLOCK).map_err(wrong)
}
