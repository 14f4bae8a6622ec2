//! Memory of an app's own, a memfd, that becomes shared memory of its channel.
//!
//! The engine must never wait in a page fault for what the app does to it, as `mapped.rs` says of
//! the channel's memory. Here the app has made the file, so it goes the other way round:
//!
//! 1. The app seals its size, and maps it ([`offer`]).
//! 2. The daemon maps it, and then seals it against all further writing but by the mappings that
//!    there are, and against other seals.
//! 3. What pages are missing by then are filled, and the memory is locked as far as the limit on
//!    that allows ([`adopt`]). Only then does an engine see it.
//!
//! Sealing waits for the file's lock, which the app can hold for as long as it likes; asking for
//! the size may; and where the descriptor is of something else, closing it may. So all of
//! [`adopt`], and closing, is for threads on which nobody depends.
//!
//! Memory of huge pages (`MFD_HUGETLB`) is refused: where one is missing there may be no other, and
//! to touch it is a bus error. Ordinary memory may be of huge pages, where the app asks for them by
//! `MADV_HUGEPAGE` before it hands it over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::mapped::{daemon_seals, map};
use super::{Bytes, Mapping};
use crate::layout::PAGE_BYTES;
use crate::meminfo::Meminfo;

/// `HUGETLBFS_MAGIC` of linux/magic.h.
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why a descriptor cannot be shared memory.
#[derive(Debug, thiserror::Error)]
pub enum NotShareable {
    /// It is of something else, or of a file that takes no seals.
    #[error("it is no memfd; make it with memfd_create and MFD_ALLOW_SEALING")]
    NoMemfd,
    /// It is of huge pages.
    #[error(
        "memory of huge pages (MFD_HUGETLB) cannot be secured; make the memfd without, and advise \
         MADV_HUGEPAGE"
    )]
    HugePages,
    /// It can shrink.
    #[error("its size is not sealed; add F_SEAL_SHRINK and F_SEAL_GROW before it is handed over")]
    SizeNotSealed,
    /// The daemon could not map it.
    #[error(
        "it is sealed against writing, or was handed over before; use a memfd of its own for each \
         channel, and leave F_SEAL_WRITE and F_SEAL_FUTURE_WRITE out"
    )]
    SealedTooEarly,
    /// The daemon could not seal it. A memfd that is made without `MFD_ALLOW_SEALING` has that
    /// seal from the start.
    #[error(
        "it is sealed against sealing, so it cannot be secured; make the memfd with \
         MFD_ALLOW_SEALING, and leave F_SEAL_SEAL out"
    )]
    SealedAgainstSealing,
    /// It has another size.
    #[error("it has {found} bytes, not {told}; hand over all of a memfd, in pages of 4096 bytes")]
    Size {
        /// What it has.
        found: u64,
        /// What was said, or the next size that would do.
        told: u64,
    },
    /// To fill it would take all memory of the machine, and have the kernel end programs.
    #[error(
        "{missing} bytes of it have no memory yet, and the machine has {room} left; use a smaller \
         one"
    )]
    NoRoom {
        /// Of pages that are not there yet.
        missing: u64,
        /// What the machine can give.
        room: u64,
    },
    /// The kernel cannot do that, or there is no memory.
    #[error(
        "it cannot be mapped and filled: {0}; give it memory for all of its pages, on Linux 5.1 \
         or newer"
    )]
    Io(#[from] io::Error),
}

/// Maps an app's own memfd for the app, and seals its size. Pages that are missing are made here,
/// so that it is the app's memory that they count as.
pub(crate) fn offer(fd: BorrowedFd<'_>) -> Result<Bytes, NotShareable> {
    // Where that cannot be read, the kernel finds out.
    let room = Meminfo::read().and_then(|told| told.room());
    offer_within(fd, room.unwrap_or(u64::MAX))
}

/// The same on a machine that has so many bytes of memory left.
fn offer_within(fd: BorrowedFd<'_>, room: u64) -> Result<Bytes, NotShareable> {
    let seals = seals(fd)?;
    let found = size(fd)?;
    let told = found.next_multiple_of(PAGE_BYTES as u64).max(PAGE_BYTES as u64);
    if found != told {
        return Err(NotShareable::Size { found, told });
    }
    let missing = found.saturating_sub(filled(fd)?);
    if missing > room {
        return Err(NotShareable::NoRoom { missing, room });
    }
    if !seals.contains(daemon_seals()) {
        add_seals(fd, daemon_seals())?;
    }
    rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, found).map_err(io::Error::from)?;
    Ok(all_of(map(fd, found as usize)?))
}

/// Maps and secures a memfd that an app has handed over, which it says has `told` bytes. Takes as
/// long as the app likes.
pub(crate) fn adopt(fd: BorrowedFd<'_>, told: u64) -> Result<Bytes, NotShareable> {
    if !seals(fd)?.contains(daemon_seals()) {
        return Err(NotShareable::SizeNotSealed);
    }
    let found = size(fd)?;
    if found != told || told == 0 || !told.is_multiple_of(PAGE_BYTES as u64) {
        return Err(NotShareable::Size { found, told });
    }
    let mapping = map(fd, told as usize)?;
    add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    mapping.fill()?;
    mapping.lock();
    Ok(all_of(mapping))
}

/// A memfd of so many bytes that can be offered, without any page yet.
pub(crate) fn blank(bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("clearway-memory", flags)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    Ok(fd)
}

fn all_of(mapping: Mapping) -> Bytes {
    let bytes = mapping.bytes;
    Bytes::of(&Arc::new(mapping), 0, bytes)
}

/// The seals of a memfd that can still be mapped and sealed.
fn seals(fd: BorrowedFd<'_>) -> Result<SealFlags, NotShareable> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| NotShareable::NoMemfd)?;
    if rustix::fs::fstatfs(fd).map_err(io::Error::from)?.f_type == HUGETLBFS {
        return Err(NotShareable::HugePages);
    }
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(NotShareable::SealedTooEarly);
    }
    if seals.contains(SealFlags::SEAL) {
        return Err(NotShareable::SealedAgainstSealing);
    }
    Ok(seals)
}

fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_size.cast_unsigned())
}

/// Bytes for which there are pages.
fn filled(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // stat(2): "Number of 512 B blocks allocated".
    Ok(rustix::fs::fstat(fd)?.st_blocks.cast_unsigned() * 512)
}

fn add_seals(fd: impl AsFd, seals: SealFlags) -> Result<(), NotShareable> {
    rustix::fs::fcntl_add_seals(fd, seals).map_err(|error| match error {
        // It was opened for reading only, or sealed just now.
        Errno::PERM => NotShareable::SealedAgainstSealing,
        error => NotShareable::Io(error.into()),
    })
}

#[cfg(test)]
mod tests;
