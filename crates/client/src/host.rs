//! Who serves a channel: a daemon, reached over its control socket; or an engine in this very
//! thread, which does something only while the app calls.
//!
//! The second is what crate `clearway-embed` makes; here is only what a channel needs of it.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use clearway_channel::control::{Reply, Request};
use clearway_channel::{Code, Shared};

use crate::Error;
use crate::session::Session;

/// An engine in the app's own thread.
pub trait Embedded: Send {
    /// Lets the engine do what there is to do. True if the channel has something new for the app.
    fn turn(&mut self) -> bool;

    /// Lets the engine take what was just submitted, and send; what has come meanwhile may wait for
    /// the next turn.
    fn send(&mut self);

    /// Sleeps until there is something to do for the engine, or `at_most` has passed. May return
    /// early.
    fn sleep(&mut self, at_most: Option<Duration>);

    /// Does what a daemon would be asked for over its control socket.
    ///
    /// # Errors
    /// If it is refused, or nobody here can do it.
    fn request(&mut self, request: &Request) -> Result<Reply, Error>;

    /// Does the same for memory of the app's own. Returns its number.
    ///
    /// # Errors
    /// As above.
    fn add_memory(&mut self, _shared: Shared) -> Result<u64, Error> {
        let message = "this engine takes no memory of the app's own; attach with shared_bytes";
        Err(Error::Declined { code: Code::Unsupported, message: message.into() })
    }

    /// Fails once the engine has ended the channel.
    ///
    /// # Errors
    /// Why it has.
    fn check(&mut self) -> Result<(), Error>;
}

/// The other side of a channel.
pub(crate) enum Host {
    Daemon(Session),
    Embedded(Box<dyn Embedded>),
}

impl Host {
    /// A daemon has until `deadline`, and not for ever even if there is none.
    pub(crate) fn request(
        &mut self,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Reply, Error> {
        match self {
            Self::Daemon(session) => Ok(session.request(request, deadline)?.0),
            Self::Embedded(engine) => engine.request(request),
        }
    }

    /// Asks for something of which nobody need know what comes of it.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<(), Error> {
        match self {
            Self::Daemon(session) => session.tell(request),
            Self::Embedded(engine) => engine.request(request).map(|_| ()),
        }
    }

    /// Hands memory of the app's own over, which is mapped as `shared` here. Returns its number.
    pub(crate) fn add_memory(
        &mut self,
        memfd: BorrowedFd<'_>,
        shared: &Shared,
    ) -> Result<u64, Error> {
        match self {
            Self::Daemon(session) => session.add_memory(memfd, shared.length()),
            Self::Embedded(engine) => engine.add_memory(shared.clone()),
        }
    }

    /// An error if the other side has gone away or has ended the session.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self {
            Self::Daemon(session) => session.check(),
            Self::Embedded(engine) => engine.check(),
        }
    }

    /// Lets an engine do its work that has no thread of its own. True if there is something new.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        match self {
            Self::Daemon(_) => false,
            Self::Embedded(engine) => engine.turn(),
        }
    }

    /// Lets an engine that has no thread of its own take what was just submitted.
    #[inline]
    pub(crate) fn send(&mut self) {
        if let Self::Embedded(engine) = self {
            engine.send();
        }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded(_))
    }

    /// Readable when a daemon says something or is gone.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Daemon(session) => Some(session.as_fd()),
            Self::Embedded(_) => None,
        }
    }
}
