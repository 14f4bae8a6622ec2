//! The part of `seccomp(2)` that no safe library offers: a filter of system calls whose refusals
//! are told to this process, which answers them. It is here and not beside those who use it because
//! it needs `unsafe`. Which calls are refused is not decided here.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An instruction of classic BPF: code, jump if true, jump if false, constant.
pub type Instruction = (u16, u8, u8, u32);

/// What a filter returns for calls that it leaves to [`Refusals`].
pub const RETURN_TELL: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// Installs a filter for the calling thread, for good, and for all threads that it starts. The
/// thread must have given up new privileges (`PR_SET_NO_NEW_PRIVS`). Needs Linux 5.0.
pub fn install(program: &[Instruction]) -> io::Result<Refusals> {
    let mut program: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies `length` instructions, which are there, and checks them; it keeps
    // no pointer.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us (close-on-exec).
    Ok(Refusals { listener: unsafe { OwnedFd::from_raw_fd(descriptor as i32) } })
}

/// The calls that a filter has left to this process. Each waits until it is answered.
#[derive(Debug)]
pub struct Refusals {
    listener: OwnedFd,
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    id: u64,
    /// The thread that made it.
    pub thread: u32,
    /// The call's number.
    pub number: i32,
}

impl Refusals {
    /// The next call, waiting for it.
    pub fn next(&self) -> io::Result<Refusal> {
        loop {
            // SAFETY: all zeros is a valid value of this plain structure, and what the kernel
            // wants.
            let mut told: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the descriptor is a seccomp listener, and the kernel fills in this structure.
            let outcome = unsafe {
                libc::ioctl(
                    self.listener.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_RECV as _,
                    &raw mut told,
                )
            };
            if outcome == 0 {
                return Ok(Refusal { id: told.id, thread: told.pid, number: told.data.nr });
            }
            let error = io::Error::last_os_error();
            // The thread may have gone in the meantime (ENOENT).
            let passing = [io::ErrorKind::Interrupted, io::ErrorKind::NotFound];
            if !passing.contains(&error.kind()) {
                return Err(error);
            }
        }
    }

    /// Lets the call fail with this error of the kernel's (`EPERM` and the like). A thread that has
    /// gone wants no answer.
    pub fn refuse(&self, refusal: Refusal, errno: i32) {
        let mut answer =
            libc::seccomp_notif_resp { id: refusal.id, val: 0, error: -errno, flags: 0 };
        // SAFETY: the descriptor is a seccomp listener, and the kernel reads this structure.
        unsafe {
            libc::ioctl(
                self.listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND as _,
                &raw mut answer,
            );
        }
    }
}
