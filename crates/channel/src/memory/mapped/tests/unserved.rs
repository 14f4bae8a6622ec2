//! Memory that never comes, for whoever writes from it with a lock held. Tests of `nic` use it,
//! too.

use core::ptr::null_mut;
use std::os::fd::OwnedFd;

use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, userfaultfd};

const PAGE_BYTES: usize = 4096;

/// `struct uffdio_api` and `struct uffdio_register` of linux/userfaultfd.h.
type UffdApi = [u64; 3];
type UffdRegister = [u64; 4];
const API: u32 = opcode::read_write::<UffdApi>(0xaa, 0x3f);
const REGISTER: u32 = opcode::read_write::<UffdRegister>(0xaa, 0);

/// Memory whose page faults nobody serves, for as long as the descriptor is open.
pub(crate) fn unserved() -> (OwnedFd, &'static [u8]) {
    // One that blocks says at once to who polls that something is wrong.
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: the descriptor is only used below.
    let uffd = unsafe { userfaultfd(flags).unwrap() };
    let (read_write, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: new memory at an address of the kernel's choice, never unmapped.
    let base = unsafe { mmap_anonymous(null_mut(), PAGE_BYTES, read_write, flags).unwrap() };
    let mut api: UffdApi = [0xaa, 0, 0];
    let mut register: UffdRegister = [base as u64, PAGE_BYTES as u64, 1, 0];
    // SAFETY: numbers and structures are those of linux/userfaultfd.h.
    unsafe {
        ioctl(&uffd, Updater::<API, UffdApi>::new(&mut api)).unwrap();
        ioctl(&uffd, Updater::<REGISTER, UffdRegister>::new(&mut register)).unwrap();
    }
    // SAFETY: mapped for good; whoever reads it waits, and nobody writes it.
    (uffd, unsafe { core::slice::from_raw_parts(base.cast(), PAGE_BYTES) })
}
