//! Sockets that strangers write to: how their descriptors are kept out of this process, and who
//! waits where that cannot be done.
//!
//! A packet on a Unix socket can carry descriptors, and whoever holds the last reference to a file
//! waits until it is closed: for a TCP socket with `SO_LINGER` as long as its owner chose, for a
//! file of FUSE until its server answers. It does not help not to take the descriptor: the kernel
//! closes it in whichever thread reads the packet, or closes the socket that the packet waits in.
//! So a thread that others depend on
//!
//! - lets the kernel refuse descriptors at the sender ([`refuse_descriptors`], Linux 6.16),
//! - where the kernel cannot, looks before it reads (`channel::control::receive_bare`), and leaves
//!   the closing of the whole socket to [`SpareThreads`] ([`Socket`]),
//! - leaves it to them to receive descriptors that it does want,
//! - and to close those that it has received ([`File`]), and whatever else may take as long as the
//!   stranger likes ([`Account`]).

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::Shutdown;

mod spare_threads;
pub use spare_threads::SpareThreads;

/// The option of asm-generic/socket.h, since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has the kernel refuse packets with descriptors, at their sender, with `EPERM`. Connections that
/// a listening socket accepts take this over. False if the kernel cannot do that.
#[must_use]
pub fn refuse_descriptors(socket: impl AsFd) -> bool {
    set_passrights(socket.as_fd(), 0).is_ok()
}

/// Ends what [`refuse_descriptors`] began. On a kernel that cannot refuse there is nothing to end.
pub fn accept_descriptors(socket: impl AsFd) {
    let _ = set_passrights(socket.as_fd(), 1);
}

fn set_passrights(socket: BorrowedFd<'_>, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads an integer that is there.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Spare threads that work for one user.
#[derive(Clone, Debug)]
pub struct Account {
    threads: SpareThreads,
    user: u32,
}

impl Account {
    /// These threads, at work for this user.
    #[must_use]
    pub const fn new(user: u32, threads: SpareThreads) -> Self {
        Self { threads, user }
    }

    /// For whom they work.
    #[must_use]
    pub const fn user(&self) -> u32 {
        self.user
    }

    /// Has a thread do `job`, now or when one is free. Returns at once.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.threads.run(self.user, job);
    }
}

/// A file that a stranger has sent, or has too. Dropping it never waits: where that closes it for
/// good, a spare thread frees what is in it, which may be as much as the machine has.
#[derive(Debug)]
pub struct File {
    /// There until it is taken out, for good.
    fd: Option<OwnedFd>,
    account: Account,
}

impl File {
    /// Has it closed on this account.
    #[must_use]
    pub const fn new(fd: OwnedFd, account: Account) -> Self {
        Self { fd: Some(fd), account }
    }

    /// The descriptor as an ordinary one, for a file that is known to close at once.
    #[must_use]
    pub fn into_inner(mut self) -> OwnedFd {
        self.fd.take().expect("taken once")
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("not taken yet").as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.account.run(move || drop(fd));
        }
    }
}

/// A socket that a stranger writes to. Dropping it never waits.
#[derive(Debug)]
pub struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    /// Who closes it, if descriptors may be in it.
    closers: Option<(u32, SpareThreads)>,
}

impl Socket {
    /// One that has no descriptors in it, and never will, because the kernel refuses them.
    #[must_use]
    pub fn clean(fd: OwnedFd) -> Self {
        Self { fd: ManuallyDrop::new(fd), closers: None }
    }

    /// One that this user may have sent descriptors to.
    #[must_use]
    pub fn of(user: u32, fd: OwnedFd, closers: SpareThreads) -> Self {
        Self { fd: ManuallyDrop::new(fd), closers: Some((user, closers)) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        let Some((user, closers)) = self.closers.take() else { return drop(fd) };
        // The stranger learns of it now, and sends nothing more, however long closing takes.
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        closers.run(user, move || drop(fd));
    }
}

#[cfg(test)]
mod tests;
