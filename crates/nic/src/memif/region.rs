//! Memory shared with a memif peer: made by us (client) or taken from the peer (server).
//!
//! The peer can write all of it at any time. Nothing here hands out references to its bytes;
//! callers get bounded raw pointers and atomics.
//!
//! Nor may an engine ever wait in a page fault for what the peer does to it. Step by step:
//!
//! 1. Both sides map it: the client when it makes it, the server before it answers `connected`.
//! 2. Whichever of them does not trust the other seals it against all further writing but by those
//!    mappings (`F_SEAL_FUTURE_WRITE`, Linux 5.1): from now on no page can be punched out, by
//!    `fallocate` or by `madvise`.
//! 3. What holes were made before are filled, and the memory is locked as far as the limit on that
//!    allows. Only then does an engine touch it.
//!
//! Sealing waits for the file's lock, which the peer can hold for as long as it likes (by a `write`
//! from memory whose page faults it serves itself); so does asking for its size. Filling and
//! unmapping take as long as the region is large. So all of that is for [`crate::strangers`]: see
//! `work`.
//!
//! Huge pages are refused: where one is missing there may be no other, and to touch it is a bus
//! error.

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::work::Wanted;
use crate::strangers::Account;

/// Most bytes that one peer's regions may have together. The sum for 8 queue pairs with rings of
/// 2048 descriptors and buffers of 16 KiB is 512 MiB; twice that leaves room. A bound is needed
/// because pages that we touch first are accounted to us, not to the peer.
pub(super) const REGION_BYTES_TOTAL_MAX: u64 = 1 << 30;

/// How much is filled, or given back, at a time. All threads of the process that change its
/// mappings wait for that long.
const PIECE_BYTES: usize = 16 << 20;

/// `HUGETLBFS_MAGIC` of linux/magic.h.
const HUGETLBFS: i64 = 0x9584_58f6;

/// What both roles need before an engine touches a region.
fn needed_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::FUTURE_WRITE
}

/// A mapped region. When it is dropped, it is unmapped on its account.
#[derive(Debug)]
pub(super) struct Region {
    mapping: ManuallyDrop<Mapping>,
    account: Account,
}

/// An address range that is mapped. Unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is an address range that stays mapped for the life of the value and belongs to
// no thread; all access to its bytes goes through raw pointers under the rules of their users.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only computes addresses.
unsafe impl Sync for Mapping {}

impl Region {
    /// Makes a region of `bytes` bytes, all zero, whose size can never change: a peer that maps it
    /// need not fear SIGBUS. Memory is reserved now rather than found missing in the middle of a
    /// frame. It stays open to further seals, since the peer maps it and then seals it, as we do.
    pub(super) fn create(bytes: usize, account: &Account) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(
            "clearway-memif",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((Self::map(fd.as_fd(), bytes, account)?, fd))
    }

    /// Maps a peer's region that it says has `bytes` bytes, if it can be secured and is really that
    /// large. The text of an error goes to the peer and the log.
    pub(super) fn adopt(fd: BorrowedFd<'_>, bytes: u64, account: &Account) -> Result<Self, String> {
        check(fd, bytes)?;
        Self::map(fd, bytes as usize, account)
            .map_err(|error| format!("region cannot be mapped: {error}"))
    }

    fn map(fd: BorrowedFd<'_>, bytes: usize, account: &Account) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing object.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = ManuallyDrop::new(Mapping { base, bytes });
        Ok(Self { mapping, account: account.clone() })
    }

    /// Makes sure that no page of it, whose file this is, can be missing any more. Waits for as
    /// long as the peer holds the file's lock, then takes as long as there is to fill, unless
    /// nobody wants it any more.
    pub(super) fn secure(&self, fd: BorrowedFd<'_>, wanted: &Wanted) -> Result<(), String> {
        seal(fd)?;
        let mut lockable = true;
        for (piece, bytes) in self.mapping.pieces() {
            wanted.check()?;
            // SAFETY: filling in pages of our own mapping changes no bytes of it.
            match unsafe { rustix::mm::madvise(piece, bytes, Advice::LinuxPopulateWrite) } {
                // Before Linux 5.14 a hole costs the engine a page fault, and no more than that.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(format!("no memory for the region: {error}")),
            }
            // SAFETY: nor does locking them. Beyond the limit they stay as they are.
            lockable = lockable && unsafe { rustix::mm::mlock(piece, bytes) }.is_ok();
        }
        Ok(())
    }

    /// The address of `length` bytes at `offset`, if they lie inside the region. Valid for reads
    /// and writes while the region lives.
    #[inline]
    pub(super) fn at(&self, offset: u32, length: usize) -> Option<NonNull<u8>> {
        if (offset as usize).checked_add(length)? > self.mapping.bytes {
            return None;
        }
        // SAFETY: offset + length <= bytes, so the address is inside the mapping or at its end.
        Some(unsafe { self.mapping.base.add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        self.account.run(move || drop(mapping));
    }
}

impl Mapping {
    /// Address and length of each piece of [`PIECE_BYTES`].
    fn pieces(&self) -> impl Iterator<Item = (*mut c_void, usize)> {
        (0..self.bytes).step_by(PIECE_BYTES).map(|start| {
            let address = self.base.as_ptr().wrapping_add(start);
            (address.cast(), PIECE_BYTES.min(self.bytes - start))
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for (piece, bytes) in self.pieces() {
            // SAFETY: this is our own mapping. Whoever holds pointers into it also holds an `Arc`
            // of the region, so none are left. An error would mean that they are wrong; the mapping
            // then merely stays.
            let _ = unsafe { rustix::mm::munmap(piece, bytes) };
        }
    }
}

/// Whether this is memory that can be secured, and of this size. Only asking for the size may wait.
fn check(fd: BorrowedFd<'_>, bytes: u64) -> Result<(), String> {
    let failed = |error: Errno| format!("region memory has no size: {error}");
    let seals = rustix::fs::fcntl_get_seals(fd)
        .map_err(|error| format!("region memory has no seals: {error}"))?;
    if rustix::fs::fstatfs(fd).map_err(failed)?.f_type == HUGETLBFS {
        return Err(
            "memory of huge pages cannot be secured; switch zero-copy off at the peer".into()
        );
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err("memory not sealed against shrinking; switch zero-copy off at the peer".into());
    }
    if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err("memory sealed against writing; make new memory for each link".into());
    }
    if seals.contains(SealFlags::SEAL) {
        return Err("memory sealed against sealing cannot be secured; leave F_SEAL_SEAL out".into());
    }
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    if bytes == 0 || bytes > REGION_BYTES_TOTAL_MAX || stat.st_size < bytes.cast_signed() {
        return Err(format!("region of {bytes} bytes in memory of {}", stat.st_size));
    }
    Ok(())
}

/// Seals a region that both sides have mapped.
fn seal(fd: BorrowedFd<'_>) -> Result<(), String> {
    // The other side may have done it already.
    if rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(needed_seals())) {
        return Ok(());
    }
    rustix::fs::fcntl_add_seals(fd, needed_seals()).map_err(|error| match error {
        Errno::PERM => "the peer sealed the memory against sealing: it cannot be secured; leave \
                        F_SEAL_SEAL out"
            .into(),
        Errno::INVAL => "this kernel cannot secure memory of a link; use Linux 5.1 or newer".into(),
        error => format!("the region cannot be sealed: {error}"),
    })
}

#[cfg(test)]
mod tests;
