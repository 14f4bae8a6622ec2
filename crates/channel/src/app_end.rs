//! The app's end of a channel: gives commands, takes completions, owns the transmit pool. It
//! checks what it reads, so that a daemon of another version or with a bug becomes an error, not
//! undefined behaviour; but unlike the other end it believes that the daemon keeps its word about
//! when it writes a receive buffer (see `memory.rs`).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(not(miri))]
use crate::Handover;
use crate::doorbell::{AppBells, OwnerBell};
use crate::layout::{
    SYNC_APP_PROCESSOR, SYNC_APP_SLEEPING, SYNC_CLOSED, SYNC_COMPLETION_HEAD,
    SYNC_DAEMON_PROCESSOR, SYNC_DAEMON_SLEEPING, SYNC_SUBMISSION_HEAD,
};
use crate::memory::{Bytes, Memory, SharedRing, prefetch_behind};
use crate::processor::{Whereabouts, there};
use crate::ring::{Consumer, Producer};
use crate::sleep::{self, Fence};
use crate::{
    Command, Completion, LAYOUT, NO_BUFFER, Pool, Shared, Sizes, Versions, barrier, closing,
};

mod buffers;
mod releases;
mod returns;
pub use buffers::{
    Extent, Granted, Operated, ReceiveBuffer, Received, ReceivedBytes, Told, TransmitBuffer,
};
use buffers::{ReceivePool, TransmitPool};
use releases::Releases;
pub use returns::Sleeper;

/// Releases are held back until they fill an entry or add up to this share of the receive pool: a
/// quarter of what an engine lets a peer send beyond what was released. Held back for longer, they
/// would keep the peer from sending the next message, for which the app waits.
const RELEASE_SHARE: u32 = 64;

/// The app's end of a channel. For one thread at a time: it can be moved to another thread, not
/// shared.
///
/// A message: [`allocate`](Self::allocate), fill [`transmit_bytes`](Self::transmit_bytes),
/// [`submit`](Self::submit) a `Send`, [`flush`](Self::flush); when completions say that the send is
/// finished, [`free`](Self::free).
pub struct AppEnd {
    commands: Producer<SharedRing>,
    completions: Consumer<SharedRing>,
    transmit: Arc<TransmitPool>,
    receive: Arc<ReceivePool>,
    releases: Releases,
    /// Empty; kept for its memory.
    returned: Vec<(u32, u32)>,
    pool: Pool,
    shared: Shared,
    /// Tells extents of different channels apart.
    tag: u32,
    /// And what was received: by which channel, and whether it may still be read.
    grant_tag: u32,
    /// Commands were written since the last flush.
    dirty: bool,
    /// `arm` was called, and `disarm` not yet.
    armed: bool,
    /// `expect_returns` was called while somebody had a buffer, and `disarm` not yet.
    hears_of_returns: bool,
    /// Whoever has this end, as those see it who have buffers.
    owner: Arc<Sleeper>,
    pub(crate) fence: Fence,
    whereabouts: Whereabouts,
    bells: AppBells,
    sizes: Sizes,
    memory: Arc<Memory>,
}

/// The submission ring is full, until the daemon has taken some commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the submission ring is full; take completions and try again")]
pub struct Full;

/// The completion ring holds something that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the completion ring is corrupt: the daemon or a stray write of this program damaged it; \
     attach again"
)]
pub struct Corrupt;

/// The app's end could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The memory is not what the daemon announced.
    #[error(
        "the daemon's memory is not of {} of the channel (layout {LAYOUT:016x}) with the announced \
         size, regions and seals; install the same version of daemon and app library",
        Versions::APP
    )]
    Mismatch,
    /// The kernel refused.
    #[error("the channel's memory cannot be mapped: {0}; check `ulimit -v`")]
    Io(#[from] io::Error),
    /// There is no descriptor left.
    #[error("there is no descriptor to wake the channel's thread by: {0}; check `ulimit -n`")]
    Descriptor(#[source] io::Error),
}

impl AppEnd {
    /// Opens what the daemon handed over.
    #[cfg(not(miri))]
    pub fn open(handover: Handover, sizes: Sizes) -> Result<Self, OpenError> {
        sizes.check().map_err(|_| OpenError::Mismatch)?;
        let Handover { memory, daemon_doorbell, app_doorbell } = handover;
        let memory = crate::memory::open(&memory, &sizes)?.ok_or(OpenError::Mismatch)?;
        let owner_bell = OwnerBell::new().map_err(OpenError::Descriptor)?;
        let bells = AppBells::new(daemon_doorbell, app_doorbell);
        Ok(Self::on(memory, bells, owner_bell, sizes))
    }

    /// An end on memory that has been checked.
    pub(crate) fn on(
        memory: Arc<Memory>,
        bells: AppBells,
        owner_bell: OwnerBell,
        sizes: Sizes,
    ) -> Self {
        let areas = *memory.areas();
        let owner = Sleeper::new(owner_bell);
        let relieved = memory.has_barriers() && barrier::register();
        let fence = if relieved { Fence::Sleepers } else { Fence::Own };
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
            commands: Producer::new(submission, sizes.submission_entries),
            completions: Consumer::new(completion, sizes.completion_entries),
            transmit: Arc::new(TransmitPool::new(
                Bytes::new(&memory, areas.transmit_pool, sizes.transmit_pool_bytes),
                &owner,
            )),
            receive: Arc::new(ReceivePool::new(
                Bytes::new(&memory, areas.receive_pool, sizes.receive_pool_bytes),
                &owner,
            )),
            releases: Releases::new(sizes.receive_pool_bytes / RELEASE_SHARE),
            returned: Vec::new(),
            pool: Pool::new(sizes.transmit_pool_bytes),
            shared: Shared::new(Bytes::new(&memory, areas.shared_memory, sizes.shared_bytes)),
            tag: next_tag(),
            grant_tag: next_tag(),
            dirty: false,
            armed: false,
            hears_of_returns: false,
            owner,
            fence,
            whereabouts: Whereabouts::default(),
            bells,
            sizes,
            memory,
        }
    }

    /// Gives the daemon a command. It sees it at once if it is awake; [`flush`](Self::flush) wakes
    /// it. Panics if it releases buffers, whose bytes others may read: [`release`](Self::release)
    /// does that.
    #[inline(always)] // Who submits knows what: of all that can be, its own stores are left.
    pub fn submit(&mut self, command: &Command) -> Result<(), Full> {
        assert!(!matches!(command, Command::Release { .. }), "a release by hand");
        self.push(command)
    }

    /// Gives the daemon any command, as a program with a bug or worse does, for tests of who has to
    /// bear it. What was received before is not to be had any more. Panics if some of it is in
    /// buffers of its own.
    pub fn submit_untrue(&mut self, command: &Command) -> Result<(), Full> {
        assert!(Arc::strong_count(&self.receive) == 1, "a buffer of this channel is in use");
        self.grant_tag = next_tag();
        self.push(command)
    }

    #[inline(always)]
    fn push(&mut self, command: &Command) -> Result<(), Full> {
        if self.commands.room_known() == 0 && self.refresh_room() == 0 {
            return Err(Full);
        }
        self.commands.push(|entry| command.encode(entry));
        self.dirty = true;
        Ok(())
    }

    /// Whether the next [`submit`](Self::submit) will find room.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.has_room_for(1)
    }

    /// Whether so many commands, submitted one after the other, will find room.
    #[inline]
    pub fn has_room_for(&mut self, commands: u32) -> bool {
        self.commands.room_known() >= commands || self.refresh_room() >= commands
    }

    #[cold]
    fn refresh_room(&mut self) -> u32 {
        // A head that makes no sense counts as full: no progress, but no harm either.
        let _ = self.commands.refresh();
        self.commands.room_known()
    }

    /// What the daemon says next if that is a message, as it mostly is: a short way around
    /// [`next_told`](Self::next_told), which has all else.
    #[inline]
    pub fn next_received(&mut self) -> Option<Received> {
        let (upper, entry) = self.completions.peek().ok()??;
        let pool_bytes = self.sizes.receive_pool_bytes;
        let told = Completion::decode_if::<{ Completion::RECEIVED }>(upper, entry, pool_bytes)?;
        let Completion::Received { connection, stream, offset, length, buffer, sent } = told else {
            return None;
        };
        prefetch_behind(entry);
        self.receive.bytes.prefetch(offset as usize);
        self.completions.advance();
        let bytes = Granted::new(offset, length, buffer, self.grant_tag);
        Some(Received { connection, stream, sent, bytes })
    }

    /// What the daemon says next if that is the end of an operation: the same for these.
    #[inline]
    pub fn next_operated(&mut self) -> Option<Operated> {
        let (upper, entry) = self.completions.peek().ok()??;
        let pool_bytes = self.sizes.receive_pool_bytes;
        let told = Completion::decode_if::<{ Completion::OPERATED }>(upper, entry, pool_bytes)?;
        let Completion::Operated { status, token, value, extra, offset, length, buffer } = told
        else {
            return None;
        };
        prefetch_behind(entry);
        self.completions.advance();
        let bytes = self.read_bytes(offset, length, buffer);
        Some(Operated { status, token, value, extra, bytes })
    }

    /// What an operation has read, if anything.
    #[inline]
    fn read_bytes(&self, offset: u32, length: u32, buffer: u32) -> Option<Granted> {
        (buffer != NO_BUFFER).then(|| {
            self.receive.bytes.prefetch(offset as usize);
            Granted::new(offset, length, buffer, self.grant_tag)
        })
    }

    /// What the daemon says next.
    #[inline]
    pub fn next_told(&mut self) -> Result<Option<Told>, Corrupt> {
        let Some(completion) = self.next_completion()? else { return Ok(None) };
        Ok(Some(match completion {
            Completion::Received { connection, stream, offset, length, buffer, sent } => {
                let bytes = Granted::new(offset, length, buffer, self.grant_tag);
                Told::Message(Received { connection, stream, sent, bytes })
            }
            Completion::Frames { vif, offset, length, buffer, count } => {
                let bytes = Granted::new(offset, length, buffer, self.grant_tag);
                Told::Frames { vif, count, bytes }
            }
            Completion::TcpReceived { connection, offset, length, buffer, sent } => {
                let bytes = Granted::new(offset, length, buffer, self.grant_tag);
                Told::Bytes(ReceivedBytes { connection, sent, bytes })
            }
            Completion::Operated { status, token, value, extra, offset, length, buffer } => {
                let bytes = self.read_bytes(offset, length, buffer);
                Told::Operated(Operated { status, token, value, extra, bytes })
            }
            other => Told::Other(other),
        }))
    }

    #[inline]
    pub(crate) fn next_completion(&mut self) -> Result<Option<Completion>, Corrupt> {
        let (upper, entry) = match self.completions.peek() {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.completions.publish();
                return Ok(None);
            }
            Err(_) => return Err(Corrupt),
        };
        let completion =
            Completion::decode(upper, entry, self.sizes.receive_pool_bytes).map_err(|_| Corrupt)?;
        prefetch_behind(entry);
        match completion {
            Completion::Received { offset, .. }
            | Completion::Frames { offset, .. }
            | Completion::TcpReceived { offset, .. } => {
                self.receive.bytes.prefetch(offset as usize);
            }
            _ => {}
        }
        self.completions.advance();
        Ok(Some(completion))
    }

    /// Room for a message of `length` bytes in the transmit pool, if there is any.
    #[inline]
    pub fn allocate(&mut self, length: u32) -> Option<Extent> {
        let offset = self.pool.allocate(length).or_else(|| self.allocate_again(length))?;
        Some(Extent::new(offset, length, self.tag))
    }

    /// Once more, with the buffers that were dropped.
    #[cold]
    fn allocate_again(&mut self, length: u32) -> Option<u32> {
        if !self.transmit.returned.has_any() || !self.free_returned() {
            return None;
        }
        self.pool.allocate(length)
    }

    /// Frees the extents of buffers that were dropped. False if there are none.
    fn free_returned(&mut self) -> bool {
        let mut extents = Vec::new();
        self.transmit.returned.take(&mut extents);
        let are_some = !extents.is_empty();
        extents.into_iter().for_each(|extent| self.free(extent));
        are_some
    }

    /// Gives an extent back: it was never sent, or the send is finished.
    #[inline]
    pub fn free(&mut self, extent: Extent) {
        self.check_tag(&extent);
        self.pool.free(extent.offset()).expect("an extent is freed once, for it is moved here");
    }

    /// The bytes of an extent, to be filled before it is sent. Written later, they change what
    /// the receiver sees.
    #[inline]
    pub fn transmit_bytes(&mut self, extent: &Extent) -> &mut [u8] {
        self.check_tag(extent);
        // SAFETY: the pool hands out each of its bytes once, extents cannot be copied, and a
        // `TransmitBuffer` has swallowed its extent; so no other reference to these bytes can
        // exist while `self` is borrowed. The daemon never writes the transmit pool.
        unsafe { self.transmit.bytes.slice_mut(extent.offset() as usize, extent.length() as usize) }
    }

    /// The extent as a buffer that owns its bytes and does not borrow the channel.
    pub fn into_buffer(&self, extent: Extent) -> TransmitBuffer {
        self.check_tag(&extent);
        TransmitBuffer::new(Arc::clone(&self.transmit), extent)
    }

    /// Whether a buffer is of this end's memory.
    #[inline]
    #[must_use]
    pub fn has_made(&self, buffer: &TransmitBuffer) -> bool {
        buffer.is_of(&self.transmit)
    }

    /// Received bytes in place. They are stable until they are released.
    #[inline]
    #[must_use]
    pub fn receive_bytes(&self, granted: &Granted) -> &[u8] {
        self.check_granted(granted);
        // SAFETY: bounded before it was granted. No code of this process writes the receive pool,
        // and the daemon writes a buffer only before it tells of it and after its release (see
        // `memory.rs`). It is not released: what names it is here, cannot be copied, and ends in
        // the release.
        unsafe { self.receive.bytes.slice(granted.offset as usize, granted.length as usize) }
    }

    /// Received bytes as a buffer that does not borrow the channel, and gives itself back when it
    /// is dropped: instead of [`release`](Self::release).
    #[inline]
    #[must_use]
    pub fn receive_buffer(&self, granted: Granted) -> ReceiveBuffer {
        self.check_granted(&granted);
        ReceiveBuffer::new(Arc::clone(&self.receive), granted)
    }

    /// Gives received bytes back, with the next few: the daemon hears of them fourteen at a time,
    /// or when they add up to a part of the pool, or at [`flush_releases`](Self::flush_releases).
    /// They cannot be read any more:
    ///
    /// ```compile_fail,E0382
    /// # use clearway_channel::{AppEnd, Granted};
    /// fn twice(end: &mut AppEnd, granted: Granted) -> u8 {
    ///     end.release(granted);
    ///     end.receive_bytes(&granted)[0]
    /// }
    /// ```
    #[inline]
    pub fn release(&mut self, granted: Granted) {
        self.check_granted(&granted);
        self.push_release(granted.id, granted.length);
    }

    /// Gives a receive buffer back. Dropping it does the same with a lock.
    #[inline]
    pub fn release_buffer(&mut self, buffer: ReceiveBuffer) {
        if buffer.is_of(&self.receive) {
            let (id, length) = buffer.into_id();
            self.push_release(id, length);
        }
    }

    #[inline]
    fn push_release(&mut self, id: u32, length: u32) {
        self.releases.push(id, length);
        if self.releases.is_due() {
            self.submit_releases();
        }
    }

    /// Tells the daemon of every buffer that was given back or dropped. [`arm`](Self::arm) does
    /// it too; call it before spinning for long.
    pub fn flush_releases(&mut self) {
        self.collect_returned();
        self.submit_releases();
        self.flush();
    }

    #[inline]
    fn collect_returned(&mut self) {
        if self.receive.returned.has_any() {
            self.release_returned();
        }
    }

    #[cold]
    fn release_returned(&mut self) {
        let mut list = std::mem::take(&mut self.returned);
        self.receive.returned.take(&mut list);
        for (id, length) in list.drain(..) {
            self.push_release(id, length);
        }
        self.returned = list;
    }

    /// As many as the ring has room for; the rest waits for the next time.
    fn submit_releases(&mut self) {
        while !self.releases.is_empty() && self.has_room() {
            let buffers = self.releases.take();
            self.commands.push(|entry| Command::Release { buffers }.encode(entry));
            self.dirty = true;
        }
    }

    /// Wakes the daemon if it sleeps and there is something new for it.
    #[inline]
    pub fn flush(&mut self) {
        self.collect_returned();
        if self.dirty {
            self.dirty = false;
            if sleep::must_ring(self.memory.sync_word(SYNC_DAEMON_SLEEPING), self.fence) {
                self.bells.ring();
            }
        }
    }

    /// Before sleeping: from now on the daemon rings [`doorbell`](Self::doorbell). False, and no
    /// ringing, if completions are waiting, the channel is closed, or releases wait for room in the
    /// ring: then look again soon.
    pub fn arm(&mut self) -> bool {
        self.armed = true;
        self.flush_releases();
        self.completions.publish();
        // Releases that found no room in the ring: the daemon may be waiting for just these.
        let all_told = self.releases.is_empty();
        let (completions, memory) = (&self.completions, &self.memory);
        sleep::arm(
            memory.sync_word(SYNC_APP_SLEEPING),
            || {},
            || all_told && matches!(completions.peek(), Ok(None)) && !closed(memory),
        )
    }

    /// Before [`arm`](Self::arm), for those who are to wake also when another thread drops a buffer
    /// that has come from here: from now on that rings [`owner_bell`](Self::owner_bell), until
    /// [`disarm`](Self::disarm). What was dropped before is taken back; true if that makes room in
    /// the transmit pool.
    pub fn expect_returns(&mut self) -> bool {
        if self.has_lent() {
            self.hears_of_returns = true;
            self.owner.lie_down();
        }
        // Behind that only a list's lock says what is in it (see `returns.rs`), not its hint.
        if self.hears_of_returns || self.receive.returned.has_any() {
            self.release_returned();
        }
        (self.hears_of_returns || self.transmit.returned.has_any()) && self.free_returned()
    }

    /// Whether [`owner_bell`](Self::owner_bell) may be rung: not if nobody had a buffer at
    /// [`expect_returns`](Self::expect_returns), for only the owner makes more of them.
    #[inline]
    #[must_use]
    pub fn hears_of_returns(&self) -> bool {
        self.hears_of_returns
    }

    /// Whether somebody has a buffer that has come from here.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        let is_one_out =
            Arc::strong_count(&self.receive) > 1 || Arc::strong_count(&self.transmit) > 1;
        // Pairs with the release of the last `Arc` by the drop of its buffer: if none is out, the
        // hints of the lists show all that was dropped.
        fence(Ordering::Acquire);
        is_one_out
    }

    /// Readable when another thread has given something back, between
    /// [`expect_returns`](Self::expect_returns) and [`disarm`](Self::disarm).
    #[must_use]
    pub fn owner_bell(&self) -> BorrowedFd<'_> {
        self.owner.bell()
    }

    /// What wakes whoever waits here and [hears of returns](Self::hears_of_returns): for others
    /// that give something back.
    #[must_use]
    pub fn owner(&self) -> Arc<Sleeper> {
        Arc::clone(&self.owner)
    }

    /// After sleeping, also if [`arm`](Self::arm) said no. Nothing if neither that nor
    /// [`expect_returns`](Self::expect_returns) was called. True if the daemon has rung since, or
    /// is about to.
    pub fn disarm(&mut self) -> bool {
        let was_armed = std::mem::take(&mut self.armed);
        let was_rung = was_armed && sleep::disarm(self.memory.sync_word(SYNC_APP_SLEEPING));
        if was_armed {
            self.bells.clear(was_rung);
        }
        if std::mem::take(&mut self.hears_of_returns) {
            self.owner.get_up();
        }
        was_rung
    }

    /// Before waiting awake: says that the app waits on `processor`. True if the engine runs there,
    /// too, as far as is known, so that nothing comes until it gets the core.
    #[inline]
    pub fn meet(&mut self, processor: u32) -> bool {
        let meeting = self.whereabouts.meet(
            self.memory.sync_word(SYNC_APP_PROCESSOR),
            self.memory.sync_word(SYNC_DAEMON_PROCESSOR),
            processor,
        );
        meeting == Some(true)
    }

    /// The processor on which the engine runs, as it says.
    #[must_use]
    pub fn engine_processor(&self) -> Option<u32> {
        there(self.memory.sync_word(SYNC_DAEMON_PROCESSOR))
    }

    /// Readable when the daemon has rung: to be waited on while armed.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.bells.own()
    }

    /// Whether the daemon has closed the channel in good order. (One that was killed cannot say
    /// so; the control socket does.)
    #[must_use]
    pub fn is_closed(&self) -> bool {
        closed(&self.memory)
    }

    /// What the app can share with its peers, and how it reads and writes it.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The sizes it was made with.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Bytes of the transmit pool in use, rounding included.
    #[must_use]
    pub fn transmit_pool_used_bytes(&self) -> u32 {
        self.pool.used_bytes()
    }

    #[inline]
    fn check_tag(&self, extent: &Extent) {
        assert!(extent.tag() == self.tag, "an extent of another channel");
    }

    /// Received bytes that were not received.
    #[cfg(test)]
    pub(crate) fn granted(&self, offset: u32, length: u32, id: u32) -> Granted {
        Granted::new(offset, length, id, self.grant_tag)
    }

    #[inline]
    fn check_granted(&self, granted: &Granted) {
        assert!(granted.tag == self.grant_tag, "received bytes of another channel");
    }
}

/// Tells what is of one channel from what is of another.
fn next_tag() -> u32 {
    static TAGS: AtomicU32 = AtomicU32::new(0);
    TAGS.fetch_add(1, Ordering::Relaxed)
}

fn closed(memory: &Memory) -> bool {
    closing::is_closed(memory.sync_word(SYNC_CLOSED))
}

impl std::fmt::Debug for AppEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppEnd").field("pool", &self.pool).finish_non_exhaustive()
    }
}
