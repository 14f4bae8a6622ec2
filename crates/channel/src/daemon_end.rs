//! The daemon's end of a channel. It works on copies, keeps its own books, and trusts nothing that
//! the app can write: whatever that is, the answer is a [`Violation`] or a value within bounds.

#[cfg(not(miri))]
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[cfg(not(miri))]
use crate::Versions;
use crate::doorbell::DaemonBells;
use crate::layout::{
    OUTSTANDING_SENDS_MAX, SYNC_APP_PROCESSOR, SYNC_APP_SLEEPING, SYNC_CLOSED,
    SYNC_COMPLETION_HEAD, SYNC_DAEMON_PROCESSOR, SYNC_DAEMON_SLEEPING, SYNC_SUBMISSION_HEAD,
};
use crate::memory::{Bytes, Memory, SharedRing, prefetch_behind};
use crate::processor::{Whereabouts, there};
use crate::ring::{BadHead, BadTurn, Consumer, Producer};
use crate::sleep::{self, Fence};
use crate::{Command, Completion, Next, Shared, Sizes, Violation, barrier, closing};

mod buffers;
mod frames;
mod memories;
mod state;
use buffers::Buffers;
pub use buffers::{Buffer, Released};
pub use frames::BurstBuffer;
use memories::Memories;
pub use state::{BufferState, DaemonEndState, Remains};

/// The daemon's end of a channel: takes commands, gives completions, owns the receive pool.
///
/// Call order, per turn: [`next_command`](Self::next_command) until it gives nothing (or as often
/// as the turn allows), [`complete`](Self::complete) while there is
/// [`completion_room`](Self::completion_room), then [`flush`](Self::flush). Before sleeping:
/// [`arm`](Self::arm), which says no when something is waiting; afterwards
/// [`disarm`](Self::disarm).
///
/// A message for the app: [`allocate`](Self::allocate), [`write`](Self::write) in any order and as
/// often as needed, [`complete`](Self::complete) with `Received`, [`grant`](Self::grant); later the
/// app's `Release` names the buffer, and [`release`](Self::release) takes it back.
pub struct DaemonEnd {
    commands: Consumer<SharedRing>,
    completions: Producer<SharedRing>,
    transmit: Bytes,
    receive: Bytes,
    memories: Memories,
    buffers: Buffers,
    sends_outstanding: u32,
    /// Completions were written since the last flush.
    dirty: bool,
    /// `arm` was called, and `disarm` not yet.
    armed: bool,
    fence: Fence,
    /// What the app did wrong outside of a command; `next_command` reports it.
    violation: Option<Violation>,
    whereabouts: Whereabouts,
    bells: DaemonBells,
    bells_rung: u64,
    sizes: Sizes,
    memory: Arc<Memory>,
}

/// What the app needs to open its end; goes over the control socket in this order.
#[derive(Debug)]
pub struct Handover {
    /// The shared memory.
    pub memory: OwnedFd,
    /// What the app rings.
    pub daemon_doorbell: OwnedFd,
    /// What the app waits on.
    pub app_doorbell: OwnedFd,
}

impl Handover {
    /// The descriptors in their order.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.daemon_doorbell.as_fd(), self.app_doorbell.as_fd()]
    }
}

/// Why a channel cannot be used.
#[cfg(not(miri))]
#[derive(Debug, thiserror::Error)]
pub enum NotSecured {
    /// The app could still take pages away.
    #[error(
        "the channel's memory is not sealed (F_SEAL_FUTURE_WRITE); the app library does that on \
         Linux 5.1 and newer: use it"
    )]
    NotSealed,
    /// There is no memory for pages that the app has taken away before.
    #[error("the channel's memory cannot be filled: {0}; give the daemon more memory")]
    Io(#[from] io::Error),
}

/// What a channel has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands taken from the app.
    pub commands: u64,
    /// Completions given to the app.
    pub completions: u64,
    /// How often the app was woken.
    pub doorbells_rung: u64,
    /// Sends taken and not finished yet.
    pub sends_outstanding: u32,
    /// Bytes of the receive pool in use, rounding included.
    pub receive_pool_used_bytes: u32,
}

impl DaemonEnd {
    /// Makes a channel for an app with this build's library: see [`create_for`](Self::create_for).
    #[cfg(not(miri))]
    pub fn create(sizes: Sizes) -> io::Result<(Self, Handover)> {
        Self::create_for(Versions::APP.max, sizes)
    }

    /// Makes a channel for an app that understands `version`, one of [`Versions::DAEMON`]: this
    /// end, and what the app needs for the other. An error of kind `InvalidInput` means that the
    /// sizes are wrong. If the app is another process, this end must not be used before
    /// [`secure`](Self::secure).
    #[cfg(not(miri))]
    pub fn create_for(version: u32, sizes: Sizes) -> io::Result<(Self, Handover)> {
        sizes.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (memory, memory_fd) = crate::memory::create(&sizes, version)?;
        let (bells, app_bells) = crate::doorbell::create()?;
        let (daemon_doorbell, app_doorbell) = app_bells.into_parts();
        let handover = Handover { memory: memory_fd, daemon_doorbell, app_doorbell };
        Ok((Self::on(memory, bells, sizes), handover))
    }

    /// Makes sure that the app, which has mapped the channel's memory, cannot take pages of it away
    /// any more: see `memory/mapped.rs`. May take long if the app means ill.
    #[cfg(not(miri))]
    pub fn secure(&mut self, memory: &OwnedFd) -> Result<(), NotSecured> {
        if self.memory.secure(memory.as_fd())? { Ok(()) } else { Err(NotSecured::NotSealed) }
    }

    /// An end on memory that has just been made.
    pub(crate) fn on(memory: Arc<Memory>, bells: DaemonBells, sizes: Sizes) -> Self {
        Self::with_buffers(memory, bells, sizes, Buffers::new(sizes.receive_pool_bytes))
    }

    fn with_buffers(
        memory: Arc<Memory>,
        bells: DaemonBells,
        sizes: Sizes,
        buffers: Buffers,
    ) -> Self {
        let areas = *memory.areas();
        let own = Bytes::new(&memory, areas.shared_memory, sizes.shared_bytes);
        let memories = Memories::new(Shared::new(own));
        let submission = SharedRing::new(
            &memory,
            areas.submission_ring,
            sizes.submission_entries,
            SYNC_SUBMISSION_HEAD,
        );
        let completion = SharedRing::new(
            &memory,
            areas.completion_ring,
            sizes.completion_entries,
            SYNC_COMPLETION_HEAD,
        );
        Self {
            commands: Consumer::new(submission, sizes.submission_entries),
            completions: Producer::new(completion, sizes.completion_entries),
            transmit: Bytes::new(&memory, areas.transmit_pool, sizes.transmit_pool_bytes),
            receive: Bytes::new(&memory, areas.receive_pool, sizes.receive_pool_bytes),
            memories,
            buffers,
            sends_outstanding: 0,
            dirty: false,
            armed: false,
            fence: Fence::Own,
            violation: None,
            whereabouts: Whereabouts::default(),
            bells,
            bells_rung: 0,
            sizes,
            memory,
        }
    }

    /// False if [`next_command`](Self::next_command) has nothing.
    #[inline]
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.violation.is_some() || !self.is_quiet()
    }

    /// The app's next command if that sends a message on the first stream, or bytes, as most do: a
    /// short way around [`next_command`](Self::next_command), which has all others.
    #[inline]
    pub fn next_submitted(&mut self) -> Next {
        if self.violation.is_some() || self.sends_outstanding >= OUTSTANDING_SENDS_MAX {
            return Next::Other;
        }
        let (upper, entry) = match self.commands.peek() {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.commands.publish();
                return Next::Nothing;
            }
            Err(_) => return Next::Other,
        };
        let sent = Command::decode_send(upper, entry, self.sizes.transmit_pool_bytes);
        let Some((next, offset)) = sent else { return Next::Other };
        prefetch_behind(entry);
        self.transmit.prefetch(offset as usize);
        self.sends_outstanding += 1;
        self.commands.advance();
        next
    }

    /// The app's next command if that is an [`Ask`](Command::Ask) on this connection, as those are
    /// that stand behind one: a short way around [`next_command`](Self::next_command), too.
    #[inline]
    pub fn next_asked(&mut self, on: u64) -> Option<Command> {
        if self.violation.is_some() {
            return None;
        }
        let (upper, entry) = self.commands.peek().ok()??;
        let pool_bytes = self.sizes.transmit_pool_bytes;
        let asked = Command::decode_if::<{ Command::ASK }>(upper, entry, pool_bytes)?;
        if !matches!(asked, Command::Ask { connection, .. } if connection == on) {
            return None;
        }
        prefetch_behind(entry);
        self.commands.advance();
        Some(asked)
    }

    /// The app's next command. The extent of a `Send`, `SendFrames` or `TcpSend` lies in the
    /// transmit pool; ids of connections, interfaces and buffers are as the app wrote them. After a
    /// violation, the same again.
    #[inline]
    pub fn next_command(&mut self) -> Result<Option<Command>, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let (upper, entry) = match self.commands.peek() {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.commands.publish();
                return Ok(None);
            }
            Err(BadTurn { found, expected }) => return Err(Violation::Turn { found, expected }),
        };
        let command = Command::decode(upper, entry, self.sizes.transmit_pool_bytes)?;
        prefetch_behind(entry);
        if let Command::Send { offset, .. }
        | Command::SendWithin { offset, .. }
        | Command::SendFrames { offset, .. }
        | Command::TcpSend { offset, .. } = command
        {
            if self.sends_outstanding >= OUTSTANDING_SENDS_MAX {
                return Err(Violation::TooManySends);
            }
            self.transmit.prefetch(offset as usize);
            self.sends_outstanding += 1;
        }
        self.commands.advance();
        Ok(Some(command))
    }

    /// `count` sends are over (delivered, or dropped because their connection is no more): the
    /// engine calls this whenever it counts up a connection's `sent` or an interface's `bursts`,
    /// and for every `Send`, `SendWithin`, `SendFrames` and `TcpSend` that it throws away.
    #[inline]
    pub fn sends_finished(&mut self, count: u32) {
        debug_assert!(count <= self.sends_outstanding, "more sends finished than were taken");
        self.sends_outstanding = self.sends_outstanding.saturating_sub(count);
    }

    /// Free entries for completions. Looks at the shared head only when the known number is below
    /// a quarter of the ring.
    #[inline]
    pub fn completion_room(&mut self) -> u32 {
        if self.completions.room_known() < self.sizes.completion_entries / 4 {
            self.refresh_room();
        }
        self.completions.room_known()
    }

    fn refresh_room(&mut self) {
        if let Err(BadHead { found, taken, written }) = self.completions.refresh() {
            self.violation = Some(Violation::Head { found, taken, written });
        }
    }

    /// Tells the app something; it sees it at once, but is not woken before
    /// [`flush`](Self::flush). Panics if there is no room: ask
    /// [`completion_room`](Self::completion_room) first.
    #[inline(always)] // As `AppEnd::submit`.
    pub fn complete(&mut self, completion: &Completion) {
        assert!(self.completions.room_known() > 0, "no room for a completion");
        self.completions.push(|entry| completion.encode(entry));
        self.dirty = true;
    }

    /// A buffer in the receive pool for a message of `length` bytes; `None` if there is no room
    /// now. `owner` is given back by [`release`](Self::release).
    #[inline]
    pub fn allocate(&mut self, length: u32, owner: u32) -> Option<Buffer> {
        self.buffers.allocate(length, owner)
    }

    /// Whether a buffer for a message of `length` bytes could be had now.
    pub fn has_room(&mut self, length: u32) -> bool {
        self.buffers.has_room(length)
    }

    /// Copies bytes into a buffer, `at` bytes from its start. Panics if they do not fit.
    #[inline]
    pub fn write(&mut self, buffer: Buffer, at: u32, bytes: &[u8]) {
        buffer.check(at, bytes.len());
        self.receive.write(buffer.at(at), bytes);
    }

    /// The app holds this buffer from now on, until it releases it.
    #[inline]
    pub fn grant(&mut self, id: u32) {
        self.buffers.grant(id);
    }

    /// Takes back a buffer that the app says it has read. A violation if the app did not hold it.
    #[inline]
    pub fn release(&mut self, id: u32) -> Result<Released, Violation> {
        self.buffers.release(id).ok_or(Violation::NotGranted(id))
    }

    /// Takes back a buffer that was never granted. Panics if it is not such a one.
    pub fn discard(&mut self, id: u32) {
        self.buffers.discard(id);
    }

    /// Copies bytes of the transmit pool. Panics if they are not inside it: use offsets within a
    /// `Send` only. The app may still be writing there; that is its own loss.
    #[inline]
    pub fn read(&self, offset: u32, into: &mut [u8]) {
        self.transmit.read(offset as usize, into);
    }

    /// Asks the processor to load the bytes at `offset` of the transmit pool soon.
    #[inline]
    pub fn prefetch(&self, offset: u32) {
        self.transmit.prefetch(offset as usize);
    }

    /// Copies bytes of this app's transmit pool straight into a buffer of another app's receive
    /// pool. Panics if either is out of range.
    #[inline]
    pub fn copy_to(&self, offset: u32, length: u32, to: &mut DaemonEnd, buffer: Buffer, at: u32) {
        buffer.check(at, length as usize);
        self.transmit.copy_to(offset as usize, length as usize, &to.receive, buffer.at(at));
    }

    /// The same for an app that talks to itself.
    #[inline]
    pub fn copy_within(&mut self, offset: u32, length: u32, buffer: Buffer, at: u32) {
        buffer.check(at, length as usize);
        self.transmit.copy_to(offset as usize, length as usize, &self.receive, buffer.at(at));
    }

    /// Memory that the app can share with its peers, by its number. [`CHANNEL_MEMORY`] is always
    /// there, if without bytes.
    ///
    /// [`CHANNEL_MEMORY`]: crate::CHANNEL_MEMORY
    #[inline]
    #[must_use]
    pub fn memory(&self, number: u64) -> Option<&Shared> {
        self.memories.find(number)
    }

    /// The app has one more, of this number, which none had before.
    ///
    /// # Errors
    /// If it has [`MEMORIES_MAX`](crate::MEMORIES_MAX) already, or one of this number: gives the
    /// memory back.
    pub fn add_memory(&mut self, number: u64, shared: Shared) -> Result<(), Shared> {
        self.memories.add(number, shared)
    }

    /// The app has none of this number any more. Who drops it last unmaps it, which takes time.
    pub fn remove_memory(&mut self, number: u64) -> Option<Shared> {
        self.memories.remove(number)
    }

    /// Copies bytes of the transmit pool into shared memory, this app's or another's. False if
    /// there is no room for them. Panics if they are not in the pool.
    pub fn share_sent(&self, offset: u32, length: u32, to: &Shared, at: u64) -> bool {
        to.write_from(at, &self.transmit, offset as usize, length as usize)
    }

    /// The same with bytes of a buffer, `from` bytes from its start.
    pub fn share_received(
        &self,
        buffer: Buffer,
        from: u32,
        length: u32,
        to: &Shared,
        at: u64,
    ) -> bool {
        buffer.check(from, length as usize);
        to.write_from(at, &self.receive, buffer.at(from), length as usize)
    }

    /// Copies bytes of shared memory, this app's or another's, into a buffer. False if they are not
    /// all there.
    pub fn write_shared(&mut self, buffer: Buffer, from: &Shared, at: u64, length: u32) -> bool {
        buffer.check(0, length as usize);
        from.read_into(at, length as usize, &self.receive, buffer.at(0))
    }

    /// Copies bytes of a buffer that the engine holds, `at` bytes from its start. The app may be
    /// writing there; that is its own loss.
    pub fn read_received(&self, buffer: Buffer, at: u32, into: &mut [u8]) {
        buffer.check(at, into.len());
        self.receive.read(buffer.at(at), into);
    }

    /// Wakes the app if it sleeps and there is something new for it. True if there is something
    /// new.
    #[inline]
    pub fn flush(&mut self) -> bool {
        let is_dirty = core::mem::take(&mut self.dirty);
        if is_dirty {
            self.ring_if_asleep();
        }
        is_dirty
    }

    /// After [`flush`](Self::flush): says that the engine runs on `processor`. True if the app may
    /// wait there, too, and so for this core: it says so, or has never said where it is, since it
    /// waits by means of its own.
    #[inline]
    pub fn meet(&mut self, processor: u32) -> bool {
        let meeting = self.whereabouts.meet(
            self.memory.sync_word(SYNC_DAEMON_PROCESSOR),
            self.memory.sync_word(SYNC_APP_PROCESSOR),
            processor,
        );
        meeting != Some(false)
    }

    /// The processor on which the app has waited last, as it says.
    #[must_use]
    pub fn app_processor(&self) -> Option<u32> {
        there(self.memory.sync_word(SYNC_APP_PROCESSOR))
    }

    /// Before sleeping: from now on the app rings [`doorbell`](Self::doorbell). False, if commands
    /// are waiting.
    pub fn arm(&mut self) -> bool {
        self.announce_sleep();
        Self::order_announcements();
        self.is_quiet()
    }

    /// [`arm`](Self::arm) for many channels at the price of one, first of three steps: this for
    /// each channel, then [`order_announcements`](Self::order_announcements) once, then
    /// [`is_quiet`](Self::is_quiet) for each.
    pub fn announce_sleep(&mut self) {
        self.armed = true;
        self.flush();
        self.commands.publish();
        sleep::announce(self.memory.sync_word(SYNC_DAEMON_SLEEPING));
    }

    /// The second step: what an app wrote before it saw the announcement is seen from now on.
    pub fn order_announcements() {
        barrier::everywhere();
    }

    /// The third step: false if commands are waiting, so that the app will not ring for them.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self.commands.peek(), Ok(None))
    }

    /// After sleeping, also if [`arm`](Self::arm) or [`is_quiet`](Self::is_quiet) said no. Nothing
    /// if none of them was called.
    pub fn disarm(&mut self) {
        if std::mem::take(&mut self.armed)
            && sleep::disarm(self.memory.sync_word(SYNC_DAEMON_SLEEPING))
        {
            self.bells.clear();
        }
    }

    /// Readable when the app has rung: to be waited on while armed.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.bells.own()
    }

    /// The app's end is used by the very thread that uses this one: from now on no message pays for
    /// the order of what two processors see.
    pub fn share_thread(&mut self) {
        self.fence = Fence::None;
    }

    /// Tells the app that the daemon is done with this channel.
    pub fn close(&mut self) {
        closing::close(self.memory.sync_word(SYNC_CLOSED));
        self.ring_if_asleep();
    }

    /// The sizes it was made with.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            commands: self.commands.taken(),
            completions: self.completions.written(),
            doorbells_rung: self.bells_rung,
            sends_outstanding: self.sends_outstanding,
            receive_pool_used_bytes: self.buffers.used_bytes(),
        }
    }

    #[inline]
    fn ring_if_asleep(&mut self) {
        if sleep::must_ring(self.memory.sync_word(SYNC_APP_SLEEPING), self.fence) {
            self.bells_rung += 1;
            self.bells.ring();
        }
    }
}

impl std::fmt::Debug for DaemonEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DaemonEnd").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
