//! Lanes: how the engines of a host hand each other frames, those of one NIC and those of different
//! ones. One bounded ring for each ordered pair of engines, in memory of their own process.
//!
//! ```text
//!  engine 0 ── push ──▶ [ full: parcels ] ── take ──▶ engine 1
//!           ◀─────────── [ empty buffers ] ◀── give back ──
//!                 flush ──▶ door of engine 1: which lanes have something; a bell if it sleeps
//! ```
//!
//! A lane is as a wire is: what finds it full is dropped and counted, and whoever needs more than
//! that (messages) recovers it. Buffers are made when they are first needed and then go round.
//!
//! *Not* here: what the frames mean, which is `relay.rs` and `engine/parcels.rs`.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clearway_base::counters;
use clearway_channel::burst::FrameInfo;
use clearway_nic::{Bell, LCD_DESCRIPTORS};
use crossbeam_queue::ArrayQueue;

use crate::services::Service;
use crate::tcp::Search;

/// Frames that a lane holds: as many as a queue of a NIC that has no more than it must.
const LANE_FRAMES: usize = LCD_DESCRIPTORS;
/// Engines that can have lanes: a door says in one word which of them have something.
pub(crate) const ENGINES_MAX: usize = u64::BITS as usize;
const _: () = assert!(ENGINES_MAX == clearway_transport::ENGINES_MAX as usize);

counters! {
    /// What an engine counts of its lanes.
    pub struct LaneCounters {
        /// Frames handed to other engines of the host.
        lane_frames_sent: Frames,
            "when a frame comes to one engine and is another's, or leaves over another NIC",
            "nothing; if it keeps up with the NIC's frames, see received_by_lane";
        /// Frames taken from other engines of the host.
        lane_frames_received: Frames,
            "when another engine hands a frame over", "nothing; see lane_frames_sent";
        /// Frames that were not handed over because the lane was full, or the queue behind it.
        lane_frames_dropped: Frames,
            "when one engine hands over more than another takes",
            "see why so much comes to the wrong engine (received_by_lane), and whether the other \
             engine's core is shared with other programs";
    }
}

/// A frame on its way to another engine, or back to be used again.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    pub(crate) what: What,
    pub(crate) bytes: Vec<u8>,
}

/// What another engine is to do with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum What {
    /// It is yours, and comes from this host.
    #[default]
    Frame,
    /// It is yours, and came from the wire.
    Arrival,
    /// A VIF of yours wants a copy.
    Copy,
    /// It came for this service of the host, to the NIC of the engine that hands it over; learn
    /// from it, and do not answer for that NIC.
    Overheard(Service),
    /// It is a segment to a TCP port that engines share, and it may be yours.
    Sought(Search),
    /// No frame, but a half-open TCP connection of a port that engines share, whose listener has
    /// gone; those whose bits are set could not have it.
    Orphan { asked: u64 },
    /// Send it over your NIC.
    Transmit,
    /// It is a segment of TCP from this host to an address of your NIC: find out whose it is.
    ToHost,
    /// No frame, but a datagram of messages from an app of this host to another.
    Datagram {
        /// The address and port that it comes from.
        source: SocketAddr,
        /// The address and port that it is for.
        destination: SocketAddr,
        /// The user of the app that it comes from, if it is of a connection.
        user: Option<u32>,
    },
    /// A capture of yours wants to see it.
    Sighting {
        /// The capture, by its channel and id.
        capture: (u32, u32),
        /// What is to be said of the frame.
        info: FrameInfo,
    },
}

/// Where an engine is told that something has come for it. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Door {
    /// A bit for each lane that has something.
    pending: AtomicU64,
    /// The engine sleeps, or is about to.
    is_asleep: AtomicBool,
    bell: Bell,
}

/// One lane, as both its ends see it. One side pushes and the other pops.
#[derive(Debug)]
struct Ring {
    full: ArrayQueue<Parcel>,
    empty: ArrayQueue<Parcel>,
}

/// An engine's ends of all its lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    index: usize,
    /// The engines of the same NIC, this one included.
    siblings: Range<usize>,
    /// The engine's own.
    door: Arc<Door>,
    doors: Vec<Arc<Door>>,
    /// To each engine; the one to itself stays empty.
    outward: Vec<Arc<Ring>>,
    /// Buffers made for each lane outward.
    made: Vec<usize>,
    /// From each engine.
    inward: Vec<Arc<Ring>>,
    /// Engines that were handed something since they were last told.
    untold: u64,
    /// Lanes that have something which was not taken yet.
    waiting: u64,
    pub(crate) counters: LaneCounters,
}

/// The lanes between the engines of a host, each engine's ends; `nics` says how many engines each
/// NIC has.
pub(crate) fn between(nics: &[usize]) -> std::io::Result<Vec<Lanes>> {
    let count = nics.iter().sum();
    assert!((1..=ENGINES_MAX).contains(&count), "{count} engines");
    let doors = new_doors(count)?;
    let rings: Vec<Vec<Arc<Ring>>> = (0..count)
        .map(|from| (0..count).map(|to| Arc::new(Ring::new(from != to))).collect())
        .collect();
    let mut first = 0;
    let siblings = nics.iter().flat_map(|engines| {
        first += engines;
        let siblings = first - engines..first;
        siblings.clone().map(move |_| siblings.clone())
    });
    let lanes = siblings.enumerate().map(|(index, siblings)| Lanes {
        index,
        siblings,
        door: Arc::clone(&doors[index]),
        doors: doors.clone(),
        outward: rings[index].clone(),
        made: vec![0; count],
        inward: rings.iter().map(|from| Arc::clone(&from[index])).collect(),
        untold: 0,
        waiting: 0,
        counters: LaneCounters::default(),
    });
    Ok(lanes.collect())
}

fn new_doors(count: usize) -> std::io::Result<Vec<Arc<Door>>> {
    (0..count).map(|_| Door::new().map(Arc::new)).collect()
}

/// What an engine gets when others come to its host: the ends of its lanes to and from them.
#[derive(Debug)]
pub(crate) struct Ends {
    doors: Vec<Arc<Door>>,
    outward: Vec<Arc<Ring>>,
    inward: Vec<Arc<Ring>>,
}

/// The lanes of `count` engines of one NIC that come to a host later, whose engines so far have
/// these doors; and what each of those gets.
pub(crate) fn joining(
    before: &[Arc<Door>],
    count: usize,
) -> std::io::Result<(Vec<Lanes>, Vec<Ends>)> {
    let siblings = before.len()..before.len() + count;
    assert!(count > 0 && siblings.end <= ENGINES_MAX, "{count} more engines");
    let new = new_doors(count)?;
    let doors: Vec<Arc<Door>> = before.iter().chain(&new).cloned().collect();
    let ring = |is_used| Arc::new(Ring::new(is_used));
    let mut ends: Vec<Ends> = before
        .iter()
        .map(|_| Ends { doors: new.clone(), outward: Vec::new(), inward: Vec::new() })
        .collect();
    let among: Vec<Vec<Arc<Ring>>> =
        (0..count).map(|from| (0..count).map(|to| ring(from != to)).collect()).collect();
    let mut lanes = Vec::new();
    for (number, index) in siblings.clone().enumerate() {
        let (mut outward, mut inward) = (Vec::new(), Vec::new());
        for end in &mut ends {
            let (from, to) = (ring(true), ring(true));
            end.inward.push(Arc::clone(&from));
            end.outward.push(Arc::clone(&to));
            outward.push(from);
            inward.push(to);
        }
        outward.extend(among[number].iter().cloned());
        inward.extend(among.iter().map(|from| Arc::clone(&from[number])));
        lanes.push(Lanes {
            index,
            siblings: siblings.clone(),
            door: Arc::clone(&new[number]),
            doors: doors.clone(),
            outward,
            made: vec![0; siblings.end],
            inward,
            untold: 0,
            waiting: 0,
            counters: LaneCounters::default(),
        });
    }
    Ok((lanes, ends))
}

impl Lanes {
    /// Others have come to the host. They send nothing before all have this.
    pub(crate) fn extend(&mut self, ends: Ends) {
        let Ends { doors, outward, inward } = ends;
        self.made.resize(self.made.len() + doors.len(), 0);
        self.doors.extend(doors);
        self.outward.extend(outward);
        self.inward.extend(inward);
    }

    /// Where this engine is told that something has come.
    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    /// Which of the host's engines this is.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The engines of the same NIC, this one included.
    pub(crate) fn siblings(&self) -> &Range<usize> {
        &self.siblings
    }

    /// Engines of the host, this one included.
    pub(crate) fn count(&self) -> usize {
        self.outward.len()
    }

    /// True if there is no other engine.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.outward.len() == 1
    }

    /// All other engines, a bit for each.
    pub(crate) fn others(&self) -> u64 {
        (u64::MAX >> (ENGINES_MAX - self.count())) & !(1 << self.index)
    }

    /// True if the lane to an engine can take something.
    pub(crate) fn has_room(&self, engine: usize) -> bool {
        self.made[engine] < LANE_FRAMES || !self.outward[engine].empty.is_empty()
    }

    /// Hands bytes to another engine, if its lane has room.
    pub(crate) fn push(&mut self, engine: usize, what: What, bytes: &[u8]) {
        debug_assert_ne!(engine, self.index, "there is no lane to oneself");
        let Some(ring) = self.outward.get(engine) else { return };
        let buffer = ring.empty.pop().or_else(|| {
            (self.made[engine] < LANE_FRAMES).then(|| {
                self.made[engine] += 1;
                Parcel::default()
            })
        });
        let Some(mut parcel) = buffer else { return self.counters.lane_frames_dropped += 1 };
        parcel.what = what;
        parcel.bytes.clear();
        parcel.bytes.extend_from_slice(bytes);
        // There are as many buffers as places.
        let _ = ring.full.push(parcel);
        self.untold |= 1 << engine;
        self.counters.lane_frames_sent += 1;
    }

    /// Hands bytes to several engines, a bit for each.
    pub(crate) fn push_to(&mut self, engines: u64, what: What, bytes: &[u8]) {
        let mut left = engines;
        while left != 0 {
            self.push(left.trailing_zeros() as usize, what, bytes);
            left &= left - 1;
        }
    }

    /// Tells the engines that were handed something. At the end of a turn.
    #[inline]
    pub(crate) fn flush(&mut self) {
        let mut left = core::mem::take(&mut self.untold);
        while left != 0 {
            self.doors[left.trailing_zeros() as usize].knock(self.index);
            left &= left - 1;
        }
    }

    /// Whether the buffers in each lane from here are all that were made for it, while no engine is
    /// at its turn.
    pub(crate) fn audit(&self) -> Result<(), String> {
        for (engine, (ring, made)) in self.outward.iter().zip(&self.made).enumerate() {
            let (full, empty) = (ring.full.len(), ring.empty.len());
            if full + empty != *made || *made > LANE_FRAMES {
                return Err(format!(
                    "lane to {engine}: {made} buffers, {full} full, {empty} empty"
                ));
            }
        }
        Ok(())
    }

    /// Whether all lanes from here are empty.
    pub(crate) fn audit_rest(&self) -> Result<(), String> {
        match self.outward.iter().position(|ring| !ring.full.is_empty()) {
            Some(engine) => Err(format!("the lane to {engine} still has something")),
            None => Ok(()),
        }
    }

    /// The lanes that have something, a bit for each.
    #[inline]
    pub(crate) fn pending(&mut self) -> u64 {
        let pending = &self.door.pending;
        if pending.load(Ordering::Relaxed) != 0 {
            // Pairs with the `fetch_or` of `Door::knock`: what was pushed before it is seen.
            self.waiting |= pending.swap(0, Ordering::Acquire);
        }
        self.waiting
    }

    /// Takes up to `most` parcels from an engine.
    pub(crate) fn take(&mut self, engine: usize, most: usize, parcels: &mut Vec<Parcel>) {
        let (ring, before) = (&self.inward[engine], parcels.len());
        parcels.extend(std::iter::from_fn(|| ring.full.pop()).take(most));
        let taken = parcels.len() - before;
        self.counters.lane_frames_received += taken as u64;
        if taken < most {
            self.waiting &= !(1 << engine);
        }
    }

    /// Gives parcels back whose bytes have been used.
    pub(crate) fn give_back(&self, engine: usize, parcels: &mut Vec<Parcel>) {
        for parcel in parcels.drain(..) {
            let _ = self.inward[engine].empty.push(parcel); // there are as many places as buffers
        }
    }

    /// Announces sleep: from now on others ring. False if something has come already.
    pub(crate) fn arm(&mut self) -> bool {
        let door = &self.door;
        // Pairs with `Door::knock`: each side writes, then reads what the other wrote, all in one
        // order, so at least one of them sees the other.
        door.is_asleep.store(true, Ordering::SeqCst);
        self.waiting == 0 && door.pending.load(Ordering::SeqCst) == 0
    }

    /// Ends what [`Lanes::arm`] began.
    pub(crate) fn disarm(&mut self) {
        let door = &self.door;
        if !door.is_asleep.swap(false, Ordering::SeqCst) {
            door.bell.silence();
        }
    }

    /// Readable when an engine has rung.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.door.bell.as_fd()
    }
}

impl Door {
    fn new() -> std::io::Result<Self> {
        let (pending, is_asleep) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { pending, is_asleep, bell: Bell::new()? })
    }

    /// Says that the lane from `engine` has something.
    fn knock(&self, engine: usize) {
        // Pairs with `Lanes::pending`, and with `Lanes::arm` as to the order.
        self.pending.fetch_or(1 << engine, Ordering::SeqCst);
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}

impl Ring {
    fn new(is_used: bool) -> Self {
        let places = if is_used { LANE_FRAMES } else { 1 };
        Self { full: ArrayQueue::new(places), empty: ArrayQueue::new(places) }
    }
}

#[cfg(test)]
mod tests;
