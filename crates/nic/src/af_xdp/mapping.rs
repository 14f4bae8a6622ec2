//! A mapping that ends with its owner: the umem, and the four rings of a socket.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Result;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Mapped bytes that are shared with the kernel, and with who has opened them for us.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and its owner is the only one who
// touches it through `&mut`; the words shared with the kernel are accessed atomically.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Private memory, present from the start so that the first frames take no page fault.
    pub(super) fn anonymous(length: usize) -> Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )?
        };
        Ok(Mapping::from_raw(start.cast(), length))
    }

    /// A ring of an AF_XDP socket, as `page_offset` says; or memory that a file stands for.
    pub(super) fn shared(file: BorrowedFd<'_>, page_offset: u64, length: usize) -> Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file,
                page_offset,
            )?
        };
        Ok(Mapping::from_raw(start.cast(), length))
    }

    fn from_raw(start: *mut u8, length: usize) -> Mapping {
        Mapping { start: NonNull::new(start).expect("mmap never returns null"), length }
    }

    /// The address of the byte at `offset`, of which `length` bytes are inside the mapping.
    pub(super) fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length));
        // SAFETY: the assertion keeps the address inside the mapping.
        unsafe { self.start.add(offset) }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own and nothing borrowed from it outlives it.
        let outcome = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(outcome.is_ok());
    }
}
