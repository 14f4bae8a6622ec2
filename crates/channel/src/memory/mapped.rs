//! Memory that two processes share: a sealed memfd, allocated in full when it is made.

use core::ptr::{NonNull, null_mut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::{Memory, Origin};
use crate::layout::{Areas, Sizes};

/// What every channel's memfd is sealed with: it can neither shrink (which would kill whoever
/// touches the missing page) nor grow, and the seals stay.
fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Makes the memory of a channel. All of it is allocated now, so that no later access can fail for
/// want of memory.
pub(crate) fn create(sizes: &Sizes) -> io::Result<(Arc<Memory>, OwnedFd)> {
    let areas = Areas::new(sizes);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("clearway-channel", flags)?;
    rustix::fs::ftruncate(&fd, areas.total_bytes as u64)?;
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, areas.total_bytes as u64)?;
    rustix::fs::fcntl_add_seals(&fd, seals())?;
    let memory = map(fd.as_fd(), areas)?;
    memory.write_header(sizes);
    Ok((Arc::new(memory), fd))
}

/// Maps memory that the daemon made. `None` if it is not as large as it should be, or not sealed.
pub(crate) fn open(fd: &OwnedFd, sizes: &Sizes) -> io::Result<Option<Arc<Memory>>> {
    let areas = Areas::new(sizes);
    let found = rustix::fs::fstat(fd)?.st_size;
    let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(seals());
    if u64::try_from(found) != Ok(areas.total_bytes as u64) || !sealed {
        return Ok(None);
    }
    Ok(Some(Arc::new(map(fd.as_fd(), areas)?)))
}

fn map(fd: BorrowedFd<'_>, areas: Areas) -> io::Result<Memory> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // Populated at once: a page fault costs as much as ten messages.
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base =
        unsafe { rustix::mm::mmap(null_mut(), areas.total_bytes, protection, flags, fd, 0)? };
    let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    Ok(Memory { base, bytes: areas.total_bytes, areas, origin: Origin::Mapped })
}

/// Ends a mapping that `map` made.
pub(super) fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: called by `Memory::drop` only, with what `map` returned; every pointer into the
    // mapping is beside an `Arc<Memory>`, so none is left.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}
