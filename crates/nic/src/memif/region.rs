//! Memory shared with a memif peer: made and sealed by us (client) or taken from the peer (server).
//!
//! The peer can write all of it at any time. Nothing here hands out references to its bytes; callers
//! get bounded raw pointers and atomics.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Most bytes that one peer's regions may have together. The sum for 8 queue pairs with rings of
/// 2048 descriptors and buffers of 16 KiB is 512 MiB; twice that leaves room. A bound is needed
/// because pages that we touch first are accounted to us, not to the peer.
pub(super) const REGION_BYTES_TOTAL_MAX: u64 = 1 << 30;

/// A mapped region. Unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is an address range that stays mapped for the life of the value and belongs to no
// thread; all access to its bytes goes through raw pointers under the rules of their users.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` only computes addresses.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region of `bytes` bytes, all zero, whose size can never change: a peer that maps it
    /// need not fear SIGBUS. Memory is reserved now rather than found missing in the middle of a frame.
    pub(super) fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(
            "clearway-memif",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, bytes as u64)?;
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Self::map(fd.as_fd(), bytes, MapFlags::POPULATE)?;
        Ok((region, fd))
    }

    /// Maps a peer's region that it says has `bytes` bytes, if it is sealed against shrinking and
    /// really that large. The text of an error goes to the peer and the log.
    pub(super) fn adopt(fd: BorrowedFd<'_>, bytes: u64) -> Result<Self, String> {
        let seals = rustix::fs::fcntl_get_seals(fd)
            .map_err(|error| format!("region memory has no seals: {error}"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err("region memory is not sealed against shrinking".into());
        }
        let stat =
            rustix::fs::fstat(fd).map_err(|error| format!("region memory has no size: {error}"))?;
        if bytes == 0 || bytes > REGION_BYTES_TOTAL_MAX || stat.st_size < bytes.cast_signed() {
            return Err(format!("region of {bytes} bytes in memory of {}", stat.st_size));
        }
        Self::map(fd, bytes as usize, MapFlags::empty())
            .map_err(|error| format!("region cannot be mapped: {error}"))
    }

    fn map(fd: BorrowedFd<'_>, bytes: usize, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing object.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | flags,
                fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// The address of `length` bytes at `offset`, if they lie inside the region. Valid for reads and
    /// writes while the region lives.
    #[inline]
    pub(super) fn at(&self, offset: u32, length: usize) -> Option<NonNull<u8>> {
        if (offset as usize).checked_add(length)? > self.bytes {
            return None;
        }
        // SAFETY: offset + length <= bytes, so the address is inside the mapping or at its end.
        Some(unsafe { self.base.add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: base and bytes are those of our own mapping. Whoever holds pointers into it also
        // holds an `Arc` of the region, so none are left. An error would mean that they are wrong;
        // the mapping then merely stays.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
        let fd = rustix::fs::memfd_create("t", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn own_region_is_shared_and_sealed() {
        let (ours, fd) = Region::create(8192).unwrap();
        let theirs = Region::adopt(fd.as_fd(), 8192).unwrap();
        // SAFETY: both addresses are inside their mappings.
        unsafe {
            ours.at(8191, 1).unwrap().write(7);
            assert_eq!(theirs.at(8191, 1).unwrap().read(), 7);
        }
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
    }

    #[test]
    fn memory_that_could_fault_is_refused() {
        let adopt = |fd: &OwnedFd, bytes| Region::adopt(fd.as_fd(), bytes);
        assert!(adopt(&memfd(4096, SealFlags::empty()), 4096).is_err());
        assert!(adopt(&memfd(4096, SealFlags::GROW), 4096).is_err());
        let sealed = memfd(4096, SealFlags::SHRINK);
        assert!(adopt(&sealed, 4096).is_ok());
        assert!(adopt(&sealed, 4097).is_err());
        assert!(adopt(&sealed, 0).is_err());
        assert!(adopt(&sealed, u64::MAX).is_err());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Region::adopt(file.as_fd(), 64).is_err());
    }

    #[test]
    fn addresses_are_bounded() {
        let (region, _fd) = Region::create(4096).unwrap();
        assert!(region.at(0, 4096).is_some());
        assert!(region.at(4095, 1).is_some());
        assert!(region.at(4095, 2).is_none());
        assert!(region.at(u32::MAX, usize::MAX).is_none());
    }
}
