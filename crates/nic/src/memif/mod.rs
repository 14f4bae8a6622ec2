//! memif 2.0: Ethernet frames over shared memory, to another process on this machine (another
//! Clearway, DPDK, VPP). Needs no privilege.
//!
//! Two roles. The *client* ("slave" in older texts) connects to a Unix socket, makes the memory and
//! passes it over; the *server* ("master") listens. Frames then move through rings in that memory
//! (`ring`) and the socket only serves to notice that the peer has gone. A queue opens at once; its
//! link is down until the peer is there, and comes back by itself when either side restarts.
//!
//! The peer is not trusted. Control messages are parsed and checked by a state machine without I/O
//! ([`message`], `handshake`); memory must be sealed against shrinking; every word in it is loaded
//! once and bounded; frames are copied to private memory before they are shown. A peer that breaks
//! a rule loses this link and nothing else happens. No engine waits for its memory either: spare
//! threads map it, seal it against holes and fill it (`work`, `region`) before a link is up.
//!
//! Who does what: `queue` is the driver's face, one value per queue pair; the first of them also
//! owns `control`, the sockets, and the others learn of a new link through `shared`. So an engine
//! that owns any queue but the first never handles control messages, and one that owns the first
//! does so every 16,384 receives (every eighth while there is no link), or when it has slept.
//!
//! How large frames are that the peer is sent the two sides agree on (`limit`), and whoever makes
//! packets hears of it ([`Watch`]). Until it has, a frame too large for the peer is dropped.
//!
//! Not here: the modes `ip` and `punt/inject`; regions that cannot be sealed or are of huge pages
//! (DPDK's `zero-copy=yes`, VPP without `no-zero-copy`); peers that map their memory again once the
//! link is up (a secondary process of DPDK); and several interfaces on one listening socket.
//!
//! One thing that a hostile peer on the same machine could still try, because the kernel offers no
//! better: to clear the non-blocking flag of the eventfd that it gave us and fill it up between our
//! asking whether it is full and our writing to it, which would stop the engine until it is read.

mod buffers;
mod config;
mod control;
mod handshake;
mod limit;
mod link;
pub mod message;
mod poller;
mod queue;
mod receiver;
mod region;
mod ring;
mod sender;
mod shared;
mod socket;
mod watch;
mod work;

pub use config::{Config, Connect, Role, Socket, Witness};
pub use limit::{Limit, Reason};
pub use queue::{LinkCounters, Queue};
pub use watch::Watch;

use crate::Error;

/// Opens a memif: one queue per queue pair. Succeeds whether the peer is there or not.
///
/// # Errors
/// If the configuration is impossible, or, as a server, the socket cannot be made.
pub fn open(config: Config) -> Result<Vec<Queue>, Error> {
    config.check()?;
    Queue::open_all(config)
}

#[cfg(test)]
mod tests;

/// A socket that listens where a server is to, for [`Config::listening`]: made by a process that
/// may for one that may not. Its path, if it has one, goes with the server.
pub fn listen(at: &Socket) -> Result<std::os::fd::OwnedFd, Error> {
    socket::listen_on(at)
}
