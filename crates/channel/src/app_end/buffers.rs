//! Names for pieces of the pools that make misuse a type error: what was allocated once cannot be
//! freed twice, and what was sent cannot be written.

use core::ops::{Deref, DerefMut};

use std::sync::Arc;

use super::returns::{Returned, Sleeper};
use crate::memory::Bytes;
use crate::{Completion, NO_BUFFER};

/// A piece of a channel's transmit pool. Can be neither copied nor made up: it comes from
/// `AppEnd::allocate` and ends in `AppEnd::free`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an extent that is dropped is lost to the pool; free it"]
pub struct Extent {
    offset: u32,
    length: u32,
    tag: u32,
}

impl Extent {
    pub(super) fn new(offset: u32, length: u32, tag: u32) -> Self {
        Self { offset, length, tag }
    }

    /// Where it starts in the transmit pool.
    #[must_use]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Bytes asked for.
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn tag(&self) -> u32 {
        self.tag
    }
}

/// What the daemon tells the app.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// A message has arrived.
    Message(Received),
    /// A burst of frames has arrived, packed as `burst.rs` says.
    Frames {
        /// The virtual interface.
        vif: u32,
        /// Frames in it.
        count: u16,
        /// The burst.
        bytes: Granted,
    },
    /// The next bytes of a TCP connection have arrived.
    Bytes(ReceivedBytes),
    /// A one-sided operation is over.
    Operated(Operated),
    /// Anything else.
    Other(Completion),
}

impl Told {
    /// What the ring said.
    #[must_use]
    pub fn completion(&self) -> Completion {
        match *self {
            Self::Message(Received { connection, stream, sent, ref bytes }) => {
                let Granted { offset, length, id: buffer, .. } = *bytes;
                Completion::Received { connection, stream, offset, length, buffer, sent }
            }
            Self::Frames { vif, count, ref bytes } => {
                let Granted { offset, length, id: buffer, .. } = *bytes;
                Completion::Frames { vif, offset, length, buffer, count }
            }
            Self::Bytes(ReceivedBytes { connection, sent, ref bytes }) => {
                let Granted { offset, length, id: buffer, .. } = *bytes;
                Completion::TcpReceived { connection, offset, length, buffer, sent }
            }
            Self::Operated(Operated { status, token, value, extra, ref bytes }) => {
                let (offset, length, buffer) = match bytes {
                    Some(bytes) => (bytes.offset, bytes.length, bytes.id),
                    None => (0, 0, NO_BUFFER),
                };
                Completion::Operated { status, token, value, extra, offset, length, buffer }
            }
            Self::Other(completion) => completion,
        }
    }
}

/// A message that has arrived: see [`Completion::Received`].
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// The connection.
    pub connection: u64,
    /// The ordering domain inside the connection.
    pub stream: u16,
    /// Finished sends so far.
    pub sent: u32,
    /// The message.
    pub bytes: Granted,
}

/// An operation that is over: see [`Completion::Operated`].
#[derive(Debug, PartialEq, Eq)]
pub struct Operated {
    /// What came of it: 0 if it was done.
    pub status: u8,
    /// Its token.
    pub token: u64,
    /// What was there before, the entry, the index of the match, or the handle.
    pub value: u64,
    /// Bytes of the region that was found.
    pub extra: u64,
    /// What was read.
    pub bytes: Option<Granted>,
}

/// Bytes of a TCP connection that have arrived: see [`Completion::TcpReceived`].
#[derive(Debug, PartialEq, Eq)]
pub struct ReceivedBytes {
    /// The connection.
    pub connection: u64,
    /// Finished sends so far.
    pub sent: u32,
    /// The bytes.
    pub bytes: Granted,
}

/// Received bytes, to be read until they are released. Can be neither copied nor made up: it comes
/// from `AppEnd::next_told` and ends in `AppEnd::release` or a [`ReceiveBuffer`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "received bytes that are dropped are lost to the pool; release them"]
pub struct Granted {
    /// The bytes are inside of the receive pool: the daemon's word was bounded before.
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) id: u32,
    pub(super) tag: u32,
}

impl Granted {
    #[inline]
    pub(super) fn new(offset: u32, length: u32, id: u32, tag: u32) -> Self {
        Self { offset, length, id, tag }
    }

    /// How many bytes there are.
    #[inline]
    #[must_use]
    pub fn length(&self) -> u32 {
        self.length
    }
}

/// An extent with its bytes: a slice to be filled in place, wherever the channel is meanwhile.
/// Dropping it, in whatever thread, gives the extent back.
pub struct TransmitBuffer {
    shared: Arc<TransmitPool>,
    /// Present until `into_extent`.
    extent: Option<Extent>,
}

/// What transmit buffers share with the channel they came from: the bytes, and the way back.
pub(super) struct TransmitPool {
    pub(super) bytes: Bytes,
    /// Extents of buffers that were dropped; the channel collects them.
    pub(super) returned: Returned<Extent>,
}

impl TransmitPool {
    pub(super) fn new(bytes: Bytes, owner: &Arc<Sleeper>) -> Self {
        Self { bytes, returned: Returned::new(owner) }
    }
}

impl TransmitBuffer {
    pub(super) fn new(shared: Arc<TransmitPool>, extent: Extent) -> Self {
        Self { shared, extent: Some(extent) }
    }

    #[inline]
    pub(super) fn is_of(&self, pool: &Arc<TransmitPool>) -> bool {
        Arc::ptr_eq(&self.shared, pool)
    }

    /// The extent, to be sent or freed.
    pub fn into_extent(mut self) -> Extent {
        self.extent.take().expect("present until now")
    }

    fn range(&self) -> (usize, usize) {
        let extent = self.extent.as_ref();
        extent.map_or((0, 0), |extent| (extent.offset as usize, extent.length as usize))
    }
}

impl Deref for TransmitBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (offset, length) = self.range();
        // SAFETY: extents are inside of the pool, and this buffer has the only one that names these
        // bytes (see `AppEnd`), so only its own `deref_mut` writes them, which borrows it.
        unsafe { self.shared.bytes.slice(offset, length) }
    }
}

impl DerefMut for TransmitBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (offset, length) = self.range();
        // SAFETY: as in `deref`, and `self` is borrowed for writing.
        unsafe { self.shared.bytes.slice_mut(offset, length) }
    }
}

impl Drop for TransmitBuffer {
    fn drop(&mut self) {
        if let Some(extent) = self.extent.take() {
            self.shared.returned.put(extent);
        }
    }
}

impl core::fmt::Debug for TransmitBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "TransmitBuffer({} bytes)", self.len())
    }
}

/// A received message in place. Dropping it, in whatever thread, gives its buffer back.
pub struct ReceiveBuffer {
    shared: Arc<ReceivePool>,
    offset: u32,
    length: u32,
    id: u32,
    /// Whether `drop` has to give it back.
    is_held: bool,
}

/// What received messages share with the channel they came from: the bytes, and the way back.
pub(super) struct ReceivePool {
    pub(super) bytes: Bytes,
    /// Ids and lengths of buffers that were dropped; the channel collects them.
    pub(super) returned: Returned<(u32, u32)>,
}

impl ReceivePool {
    pub(super) fn new(bytes: Bytes, owner: &Arc<Sleeper>) -> Self {
        Self { bytes, returned: Returned::new(owner) }
    }
}

impl ReceiveBuffer {
    pub(super) fn new(shared: Arc<ReceivePool>, granted: Granted) -> Self {
        let Granted { offset, length, id, tag: _ } = granted;
        Self { shared, offset, length, id, is_held: true }
    }

    /// Id and length, for the holder of the channel to release without a detour.
    #[inline]
    pub(super) fn into_id(mut self) -> (u32, u32) {
        self.is_held = false;
        (self.id, self.length)
    }

    /// Whether it came from the channel with this pool.
    pub(super) fn is_of(&self, pool: &Arc<ReceivePool>) -> bool {
        Arc::ptr_eq(&self.shared, pool)
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: bounded before it was granted. No code of this process writes the receive pool,
        // and the daemon writes a buffer only before it tells of it and after its release, which
        // `drop` starts.
        unsafe { self.shared.bytes.slice(self.offset as usize, self.length as usize) }
    }
}

impl Drop for ReceiveBuffer {
    #[inline]
    fn drop(&mut self) {
        if self.is_held {
            self.give_back();
        }
    }
}

impl ReceiveBuffer {
    #[cold]
    fn give_back(&self) {
        self.shared.returned.put((self.id, self.length));
    }
}

impl core::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ReceiveBuffer({}, {} bytes)", self.id, self.length)
    }
}
