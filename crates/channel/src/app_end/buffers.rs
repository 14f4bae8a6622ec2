//! Names for pieces of the pools that make misuse a type error: what was allocated once cannot be
//! freed twice, and what was sent cannot be written.

use core::ops::{Deref, DerefMut};

use crate::memory::Bytes;

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

/// An extent with its bytes: a slice to be filled in place, wherever the channel is meanwhile.
#[must_use = "a buffer that is dropped is lost to the pool; turn it back into an extent"]
pub struct TransmitBuffer {
    bytes: Bytes,
    extent: Extent,
}

impl TransmitBuffer {
    pub(super) fn new(bytes: Bytes, extent: Extent) -> Self {
        Self { bytes, extent }
    }

    /// The extent, to be sent or freed.
    pub fn into_extent(self) -> Extent {
        self.extent
    }
}

impl Deref for TransmitBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this buffer has the only extent that names these bytes (see `AppEnd`), so only
        // its own `deref_mut` writes them, which borrows it.
        unsafe { self.bytes.slice(self.extent.offset, self.extent.length) }
    }
}

impl DerefMut for TransmitBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed for writing.
        unsafe { self.bytes.slice_mut(self.extent.offset, self.extent.length) }
    }
}

impl core::fmt::Debug for TransmitBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.extent.fmt(f)
    }
}

/// A received message in place.
pub struct ReceiveBuffer {
    bytes: Bytes,
    offset: u32,
    length: u32,
    id: u32,
}

impl ReceiveBuffer {
    pub(super) fn new(bytes: Bytes, offset: u32, length: u32, id: u32) -> Self {
        Self { bytes, offset, length, id }
    }

    /// What a `Release` must name.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: no code of this process writes the receive pool, and the daemon writes a buffer
        // only before it tells of it and after its release, which this buffer's holder does when
        // the buffer is gone.
        unsafe { self.bytes.slice(self.offset, self.length) }
    }
}

impl core::fmt::Debug for ReceiveBuffer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ReceiveBuffer({}, {} bytes)", self.id, self.length)
    }
}
