//! The daemon's end of a channel as plain data, and back. The memory itself, and the doorbells,
//! live on in their descriptors: the app notices nothing.

use std::sync::Arc;

use clearway_base::state::{Invalid, ensure};
use serde::{Deserialize, Serialize};

use super::buffers::Buffers;
use super::{Buffer, DaemonEnd, Fence, Memories};
use crate::burst::SentBurst;
use crate::doorbell::DaemonBells;
use crate::layout::{BURST_FRAMES_MAX, FRAME_ALIGNMENT, OUTSTANDING_SENDS_MAX};
use crate::memory::Memory;
use crate::{Sizes, Versions};

/// What is saved of the daemon's end: where it is in the rings, and who has which buffer. Nothing
/// of it is in shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonEndState {
    /// The sizes it was made with.
    pub sizes: Sizes,
    /// The version of the layout, which the app understands.
    pub version: u32,
    /// Commands taken, and completions given.
    pub commands: u64,
    /// See `commands`.
    pub completions: u64,
    /// How far the app has read, as last seen.
    pub completions_read: u32,
    /// The buffers that are in use, by offset.
    pub buffers: Vec<BufferState>,
    /// Sends taken and not finished.
    pub sends_outstanding: u32,
    /// The app has not been woken for what was written.
    pub is_dirty: bool,
    /// The app has been told to ring.
    pub is_armed: bool,
    /// Both ends are used by the same thread.
    pub shares_thread: bool,
    /// How often the app was woken.
    pub bells_rung: u64,
    /// Memories of its own that the app has added: number and bytes of each.
    pub memories: Vec<(u64, u64)>,
}

/// A buffer in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferState {
    /// Where it begins.
    pub offset: u32,
    /// Bytes asked for.
    pub length: u32,
    /// What is given back when it is released.
    pub owner: u32,
    /// The app has it. Else the engine does.
    pub is_granted: bool,
}

/// What lives on while the daemon's end is saved and made again.
pub struct Remains {
    memory: Arc<Memory>,
    memories: Memories,
    bells: DaemonBells,
    sizes: Sizes,
}

impl std::fmt::Debug for Remains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remains").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// More than any channel has seen; sums do not overflow.
const COUNT_MAX: u64 = 1 << 62;

impl DaemonEnd {
    /// All that another end on the same memory needs to go on.
    #[must_use]
    pub fn save(&self) -> DaemonEndState {
        DaemonEndState {
            sizes: self.sizes,
            version: self.memory.version(),
            commands: self.commands.taken(),
            completions: self.completions.written(),
            completions_read: self.completions.head_known(),
            buffers: self.buffers.save(),
            sends_outstanding: self.sends_outstanding,
            is_dirty: self.dirty,
            is_armed: self.armed,
            shares_thread: self.fence == Fence::None,
            bells_rung: self.bells_rung,
            memories: self.memories.added().collect(),
        }
    }

    /// What another end needs besides.
    #[must_use]
    pub fn into_remains(self) -> Remains {
        let Self { memory, memories, bells, sizes, .. } = self;
        Remains { memory, memories, bells, sizes }
    }

    /// An end that goes on where another one was saved. Nothing of `saved` is trusted; but what the
    /// engine's own buffers are for is the engine's to check, see [`DaemonEnd::held`].
    pub fn restore(saved: &DaemonEndState, remains: Remains) -> Result<Self, Invalid> {
        let Remains { memory, memories, bells, sizes } = remains;
        ensure(saved.sizes == sizes, "a channel of another size")?;
        ensure(saved.version == memory.version(), "a channel of another version")?;
        ensure(Versions::DAEMON.contains(saved.version), "a version that is not understood")?;
        let counts = [saved.commands, saved.completions, saved.bells_rung];
        ensure(counts.iter().all(|count| *count <= COUNT_MAX), "more than can be counted")?;
        ensure(saved.sends_outstanding <= OUTSTANDING_SENDS_MAX, "too many sends")?;
        let unread = (saved.completions as u32).wrapping_sub(saved.completions_read);
        ensure(unread <= sizes.completion_entries, "more completions than the ring has")?;
        let is_same = memories.added().eq(saved.memories.iter().copied());
        ensure(is_same, "memories that are not those of the channel")?;
        let buffers = Buffers::restore(sizes.receive_pool_bytes, &saved.buffers)?;
        let mut end = Self::with_buffers(memory, bells, sizes, buffers);
        end.commands.go_on(saved.commands);
        end.completions.go_on(saved.completions, saved.completions_read);
        end.sends_outstanding = saved.sends_outstanding;
        (end.dirty, end.armed) = (saved.is_dirty, saved.is_armed);
        end.bells_rung = saved.bells_rung;
        end.memories = memories;
        if saved.shares_thread {
            end.share_thread();
        }
        Ok(end)
    }

    /// The buffers that the engine has, and not the app.
    pub fn held(&self) -> impl Iterator<Item = Buffer> + '_ {
        self.buffers.held()
    }

    /// A burst of frames that was saved: such as an app may submit, or what is left of one. `None`
    /// if it is none.
    #[must_use]
    pub fn burst(&self, offset: u32, length: u32, frames_left: u16) -> Option<SentBurst> {
        let is_one = self.is_extent(offset, length)
            && offset.is_multiple_of(FRAME_ALIGNMENT)
            && frames_left <= BURST_FRAMES_MAX;
        is_one.then(|| SentBurst::new(offset, length, frames_left))
    }

    /// Whether `length` bytes at `offset` are in the transmit pool.
    #[must_use]
    pub fn is_extent(&self, offset: u32, length: u32) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.sizes.transmit_pool_bytes)
    }
}
