//! The Clearway app library with the engine inside the app: no daemon, no control socket, no other
//! thread, no privilege but what the NIC needs. For an app that owns its queue, and wants the last
//! microsecond.
//!
//! ```no_run
//! use clearway_embed::nic::memif::{self, Config, Role};
//! use clearway_embed::{Error, Host, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let link = Config::new("@wire", Role::Client, [2, 0, 0, 0, 0, 1]);
//! let host = Host::new(memif::open(link)?, &[("10.0.0.1".parse()?, 24)]);
//! let mut channel = host.open(&Options::new("hello"))?;
//! let connection = channel.connect("10.0.0.2:4000", None)?;
//! channel.send(connection, b"hello")?;
//! # Ok(())
//! # }
//! ```
//!
//! The [`Channel`] is the one of `clearway-client`, and so are its calls. The engine works while
//! one of them runs: a call that sends lets it send, and one that waits lets it do whatever there
//! is to do until the call has what it waits for. An app that does something else for long keeps
//! its peers waiting, for their acknowledgements too: they think that packets were lost after some
//! milliseconds, and that the app is gone after the keep-alive. It can call [`Channel::flush`] in
//! between.
//!
//! Virtual interfaces and captures are there, too; nobody but the app decides what it may have, and
//! its queues have to get their frames. What a daemon would have to arbitrate is not here: more
//! than one app; an address that the kernel has as well. On the wire nobody can tell an embedded
//! engine from a daemon.

#![forbid(unsafe_code)]

mod engine;
mod host;

pub use clearway_client::{
    Accepted, Channel, Code, ConnectionId, Error, Event, ListenAddress, Listener, ListenerId,
    Message, Options, SendBuffer, Sizes, Token, Waiting,
};
pub use clearway_engine::ip;
pub use clearway_nic as nic;
pub use host::Host;
