//! What a queue sleeps on: an epoll set of doorbells and control sockets.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// What became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The peer's interrupt. Nothing to do: it only ends the sleep.
    Doorbell,
    /// Another queue of the same NIC has news; see [`super::shared`].
    News,
    /// Somebody connects.
    Listener,
    /// Time to look after connections.
    Timer,
    /// A control socket, by number.
    Socket(u32),
}

/// Events taken in one go. More wait for the next time.
const EVENTS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Reports `source` while `fd` is readable.
    pub(super) fn add(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(source.to_number()), EventFlags::IN)?)
    }

    /// Reports `source` once per write to the eventfd `fd`, which then need not be read. Reading a
    /// descriptor that is shared with a peer could block us.
    pub(super) fn add_eventfd(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.0, fd, EventData::new_u64(source.to_number()), flags)?)
    }

    /// Reports `source` no more, or again: `fd` was added.
    pub(super) fn pause(&self, fd: impl AsFd, source: Source, is_paused: bool) -> io::Result<()> {
        let flags = if is_paused { EventFlags::empty() } else { EventFlags::IN };
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(source.to_number()), flags)?)
    }

    /// Forgets `fd`. Needed before closing a descriptor that the peer also holds: the set would
    /// keep it. A descriptor that is not in the set is none of our concern.
    pub(super) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// What is ready now. Never waits.
    pub(super) fn ready(&self) -> impl Iterator<Item = Source> + use<> {
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS_MAX];
        let mut sources = [None; EVENTS_MAX];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error can only be EINTR: then what is ready will still be so next time.
        if let Ok((events, _)) = epoll::wait(&self.0, &mut space, Some(&now)) {
            for (source, event) in sources.iter_mut().zip(events) {
                *source = Some(Source::from_number(event.data.u64()));
            }
        }
        sources.into_iter().flatten()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Source {
    fn to_number(self) -> u64 {
        match self {
            Self::Doorbell => 0,
            Self::News => 1,
            Self::Listener => 2,
            Self::Timer => 3,
            Self::Socket(number) => 4 + u64::from(number),
        }
    }

    fn from_number(number: u64) -> Self {
        match number {
            0 => Self::Doorbell,
            1 => Self::News,
            2 => Self::Listener,
            3 => Self::Timer,
            socket => Self::Socket((socket - 4) as u32),
        }
    }
}
