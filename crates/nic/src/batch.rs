//! Messages that go to the kernel, or come from it, with one system call.
//!
//! One message is the usual case in a conversation, and it has to be as cheap as a call for one:
//! only as many headers are written as there are messages.

use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::interface::last_errno;

/// Up to so many messages.
pub(crate) struct Batch<const MESSAGES: usize> {
    headers: [MaybeUninit<libc::mmsghdr>; MESSAGES],
    count: usize,
}

impl<const MESSAGES: usize> Batch<MESSAGES> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { headers: [const { MaybeUninit::uninit() }; MESSAGES], count: 0 }
    }

    /// Adds a message that has nothing yet: no bytes, no address, no control data. The caller sees
    /// to it that there are not more than fit.
    #[inline]
    pub(crate) fn add(&mut self) -> &mut libc::msghdr {
        // SAFETY: integers and pointers, of which all-zero is a value.
        let header = self.headers[self.count].write(unsafe { zeroed() });
        self.count += 1;
        &mut header.msg_hdr
    }

    /// Sends the messages, without waiting. How many the kernel took; or why not the first.
    ///
    /// # Safety
    /// What each header points to is there, in the lengths that it says, until this returns.
    #[inline]
    pub(crate) unsafe fn send(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        // SAFETY: `add` has written the first `count` headers. The kernel reads what they point to,
        // which is there, as the caller says, and writes only the headers.
        let outcome = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr().cast(),
                self.count as u32,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        usize::try_from(outcome).map_err(|_| last_errno())
    }

    /// Receives as many messages as there are, at most those that were added, without waiting.
    ///
    /// # Safety
    /// What each header points to is there, in the lengths that it says, and nobody else's, until
    /// this returns.
    #[inline]
    pub(crate) unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<&[libc::mmsghdr], Errno> {
        // SAFETY: as in `send`; the kernel also writes what they point to, which is nobody else's,
        // as the caller says.
        let outcome = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr().cast(),
                self.count as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(outcome).map_err(|_| last_errno())?;
        let received = std::ptr::from_ref(&self.headers[..count]) as *const [libc::mmsghdr];
        // SAFETY: the kernel says of no more than it was given, which `add` has written; and what
        // is written has the layout of what may not be (`MaybeUninit`'s guarantee).
        Ok(unsafe { &*received })
    }
}
