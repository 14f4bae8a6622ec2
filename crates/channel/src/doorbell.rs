//! The two doorbells: how one side wakes the other when that one sleeps. Rung rarely; see
//! `sleep.rs` for when.
//!
//! The app rings the daemon by an eventfd, and the daemon rings the app by a byte on a socket pair.
//! They differ because the app is not trusted: an eventfd is one open file whose `O_NONBLOCK` flag
//! both processes share, so an app could fill the counter, clear the flag, and stop the daemon in
//! `write` for ever. On a socket the daemon says `MSG_DONTWAIT` each time. It reads its own eventfd
//! with `RWF_NOWAIT` for the same reason.
//!
//! The daemon's end of the socket pair is shut down for reading: what cannot come in carries no
//! descriptor whose closing would make the daemon wait when it closes this end.
//!
//! Beside them an app has a bell of its own, by which its threads wake the one that has the channel
//! (`app_end/returns.rs`). The daemon has no part in it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::ReadWriteFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

/// The daemon's side of both doorbells.
pub(crate) struct DaemonBells {
    own: OwnedFd,
    app: OwnedFd,
}

/// The app's side of both doorbells.
pub(crate) struct AppBells {
    own: OwnedFd,
    daemon: OwnedFd,
    /// Rings whose bytes have not come yet: the daemon first ends the app's sleep and then rings,
    /// and the app may be awake before it does.
    awaited: usize,
}

/// Makes both doorbells.
pub(crate) fn create() -> io::Result<(DaemonBells, AppBells)> {
    let daemon = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (app, own) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::shutdown(&app, Shutdown::Read)?;
    let for_app = AppBells::new(daemon.try_clone()?, own);
    Ok((DaemonBells { own: daemon, app }, for_app))
}

impl DaemonBells {
    /// Wakes the app. If it cannot be woken it is dead (its control connection says so) or its
    /// doorbell is full, hence rung.
    pub(crate) fn ring(&self) {
        let _ = rustix::net::send(&self.app, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Makes the own doorbell quiet again.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let mut slices = [IoSliceMut::new(&mut count)];
        // At the current position (-1): an eventfd has no other.
        let position = u64::MAX;
        let _ = rustix::io::preadv2(&self.own, &mut slices, position, ReadWriteFlags::NOWAIT);
    }

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

impl AppBells {
    pub(crate) fn new(daemon: OwnedFd, own: OwnedFd) -> Self {
        Self { own, daemon, awaited: 0 }
    }

    /// The daemon's doorbell and the app's, to be passed to the app.
    pub(crate) fn into_parts(self) -> (OwnedFd, OwnedFd) {
        (self.daemon, self.own)
    }

    /// Wakes the daemon. If it cannot be woken it is gone, which the control connection says.
    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.daemon, &1u64.to_ne_bytes());
    }

    /// After each sleep: makes the own doorbell quiet again. `was_rung` says whether the daemon has
    /// rung since the last time, or is about to. What comes too late for this is cleared later.
    pub(crate) fn clear(&mut self, was_rung: bool) {
        self.awaited += usize::from(was_rung);
        if self.awaited > 0 {
            let mut bytes = [0u8; 64];
            let heard = rustix::net::recv(&self.own, &mut bytes, RecvFlags::DONTWAIT);
            self.awaited = self.awaited.saturating_sub(heard.map_or(0, |(count, _)| count));
        }
    }

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

/// By what the owner of a channel is woken, inside of an app.
pub(crate) struct OwnerBell(OwnedFd);

impl OwnerBell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it quiet again.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
