//! Memory that two processes share: a sealed memfd, allocated in full when it is made.
//!
//! The engine must never wait in a page fault for what an app does to this memory. Step by step:
//!
//! 1. The daemon makes it, allocates it, maps it, and seals its size. A page can no longer be cut
//!    off.
//! 2. The app maps it, and then seals it against all further writing but by the mappings that there
//!    are (`F_SEAL_FUTURE_WRITE`, Linux 5.1): from now on no page can be punched out, by
//!    `fallocate` or by `madvise`, nor written or mapped by other ways.
//! 3. The daemon looks at the seals and fills what holes were made before ([`Memory::secure`]), on
//!    a thread that nobody waits for. Only then does an engine touch the memory.
//!
//! It is the app that seals, because whoever does takes the file's lock, and the app can hold that
//! for as long as it likes (by a `write` from memory whose page faults it serves itself). Looking
//! at the seals takes no lock, and a seal that is there was set after the last hole was made. For
//! the same reason nobody here asks for the file's size or blocks once the app has it.
//!
//! What else could take a page away from under the engine: swap, which the memory is locked against
//! where the limit on locked memory allows it (an app cannot ask for it: the kernel leaves out
//! pages that others map as well, in `MADV_PAGEOUT` as in `mbind` and `move_pages`); and
//! `MADV_COLLAPSE`, which makes a huge page of small ones, once for each 2 MiB, while it copies
//! them.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::Relaxed;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{Mapping, Memory, Origin};
use crate::layout::{Areas, PAGE_BYTES, Sizes, Versions};

/// How much is filled, locked or given back at a time. All threads of the process that change its
/// mappings wait for that long.
const PIECE_BYTES: usize = 16 << 20;

/// What the daemon seals it with: it can neither shrink (which would kill whoever touches the
/// missing page) nor grow.
pub(super) fn daemon_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

/// What the app seals it with, once it has mapped it.
fn app_seals() -> SealFlags {
    SealFlags::FUTURE_WRITE | SealFlags::SEAL
}

/// Makes the memory of a channel, for an app of this version. All of it is allocated now, so that
/// no later access can fail for want of memory.
pub(crate) fn create(sizes: &Sizes, version: u32) -> io::Result<(Arc<Memory>, OwnedFd)> {
    let areas = Areas::new(sizes);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("clearway-channel", flags)?;
    rustix::fs::ftruncate(&fd, areas.total_bytes as u64)?;
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, areas.total_bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, daemon_seals())?;
    let memory = Memory { mapping: Arc::new(map(fd.as_fd(), areas.total_bytes)?), areas, version };
    memory.mapping.fill()?;
    memory.mapping.lock();
    memory.write_header(sizes);
    Ok((Arc::new(memory), fd))
}

/// Maps memory that the daemon made, and seals it. `None` if it is not what the daemon said, or can
/// shrink.
pub(crate) fn open(fd: &OwnedFd, sizes: &Sizes) -> io::Result<Option<Arc<Memory>>> {
    let least = Areas::new(sizes);
    let found = usize::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
    let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(daemon_seals());
    if found < least.total_bytes || !sealed {
        return Ok(None);
    }
    let mapping = Arc::new(map(fd.as_fd(), found)?);
    let areas = Areas { total_bytes: found, ..least };
    let mut memory = Memory { mapping, areas, version: Versions::APP.max };
    let Some(header) = memory.read_header(sizes) else { return Ok(None) };
    (memory.version, memory.areas) = header;
    memory.mapping.fill()?;
    rustix::fs::fcntl_add_seals(fd, app_seals())?;
    Ok(Some(Arc::new(memory)))
}

impl Memory {
    /// Makes sure that no page of it, whose file this is, can be missing any more. False if the app
    /// has not sealed it. Takes as long as the app's holes are large: not for a thread that others
    /// wait for.
    pub(crate) fn secure(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let seals = rustix::fs::fcntl_get_seals(fd)?;
        if !seals.contains(daemon_seals() | SealFlags::FUTURE_WRITE) {
            return Ok(false);
        }
        self.mapping.fill().map(|()| true)
    }
}

impl Mapping {
    /// Has all pages there, at once: a page fault costs as much as ten messages.
    pub(super) fn fill(&self) -> io::Result<()> {
        for (piece, bytes) in pieces(self.base, self.bytes) {
            // SAFETY: filling in pages of our own mapping changes no bytes of it.
            match unsafe { rustix::mm::madvise(piece, bytes, Advice::LinuxPopulateWrite) } {
                Ok(()) => {}
                // Before Linux 5.14.
                Err(Errno::INVAL) => {
                    self.touch();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The same, page by page. What they hold stays as it is, whoever else may be writing there.
    fn touch(&self) {
        for page in (0..self.bytes).step_by(PAGE_BYTES) {
            self.word(page).fetch_or(0, Relaxed);
        }
    }

    /// Keeps it out of swap. Beyond the limit on locked memory it stays as it is.
    pub(super) fn lock(&self) {
        // SAFETY: locking pages of our own mapping changes no bytes of it.
        let lock = |(piece, bytes)| unsafe { rustix::mm::mlock(piece, bytes) };
        let _ = pieces(self.base, self.bytes).try_for_each(lock);
    }
}

/// Address and length of each piece of a mapping.
fn pieces(base: NonNull<u8>, bytes: usize) -> impl Iterator<Item = (*mut c_void, usize)> {
    (0..bytes).step_by(PIECE_BYTES).map(move |start| {
        let address = base.as_ptr().wrapping_add(start);
        (address.cast(), PIECE_BYTES.min(bytes - start))
    })
}

/// Maps the first `bytes` bytes of a file, for reading and writing.
pub(super) fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe { rustix::mm::mmap(null_mut(), bytes, protection, flags, fd, 0)? };
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Mapping { base, bytes, origin: Origin::Mapped })
}

/// Ends a mapping that `map` made.
pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
    for (piece, bytes) in pieces(base, bytes) {
        // SAFETY: called by `Mapping::drop` only, with what `map` returned; every pointer into the
        // mapping is beside an `Arc<Mapping>`, so none is left.
        let _ = unsafe { rustix::mm::munmap(piece, bytes) };
    }
}

#[cfg(test)]
mod tests;
