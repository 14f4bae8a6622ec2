//! The Clearway app library: reliable messages between apps, through the daemon of each host, over
//! shared memory. Names follow sockets: attach, listen, connect, accept, send, recv, close.
//!
//! ```no_run
//! use clearway_client::{Channel, Options};
//!
//! # fn main() -> Result<(), clearway_client::Error> {
//! let mut channel = Channel::attach(&Options::new("hello"))?;
//! let connection = channel.connect("10.0.0.2:4000", None)?;
//! channel.send(connection, b"hello")?;
//! let mut answer = [0; 64];
//! let (_, length) = channel.recv(&mut answer, None)?;
//! # let _ = &answer[..length];
//! # Ok(())
//! # }
//! ```
//!
//! A program that brings its own protocol opens a virtual interface and sends and receives raw
//! Ethernet frames:
//!
//! ```no_run
//! # use clearway_client::{Channel, Options, VifOptions};
//! # fn main() -> Result<(), clearway_client::Error> {
//! let mut channel = Channel::attach(&Options::new("mdns"))?;
//! let vif = channel.open_vif(&VifOptions::receiving("udp dst port 5353"))?;
//! for frame in &channel.recv_frames(None)? {
//!     println!("{} bytes at {} ns", frame.bytes.len(), frame.info.time_ns);
//! }
//! channel.send_frame(vif.id, &[0; 60])?;
//! channel.flush_frames(vif.id, None)?;
//! # Ok(())
//! # }
//! ```
//!
//! Apps share memory, and others read and change it by one-sided operations, for which no program
//! of the owner runs (`docs/operations.md`):
//!
//! ```no_run
//! # use clearway_client::{Channel, Operation, Options};
//! # fn main() -> Result<(), clearway_client::Error> {
//! let mut channel = Channel::attach(&Options::new("reader"))?;
//! let owner = channel.connect("10.0.0.2:4000", None)?;
//! let found = channel.operate(owner, &Operation::Find { name: b"counters" }, None)?;
//! let region = clearway_client::RegionId::from_u64(found.value);
//! let before =
//!     channel.operate(owner, &Operation::FetchAdd { region, offset: 8, addend: 1 }, None)?.value;
//! # let _ = before;
//! # Ok(())
//! # }
//! ```
//!
//! # Threads
//! A [`Channel`] is for one thread at a time: it may move to another thread, but not be shared.
//! Threads that all want to talk attach a channel each; that is also what scales. [`Message`],
//! [`TcpBytes`], [`SendBuffer`] and [`Frames`] may be used and dropped in any thread. Their memory
//! is given back at once if the channel's thread waits meanwhile, in a call or for the channel's
//! descriptor, which wakes it; else by its next call.
//!
//! # Waiting
//! Every call that may wait takes a timeout: `None` waits as long as it takes, zero does not wait
//! ([`Error::WouldBlock`]). How it waits, by spinning, yielding or sleeping, is [`Waiting`]. An
//! app with an event loop of its own waits on the channel's descriptor: see [`Channel::arm`].
//!
//! # Nothing is lost
//! What arrives while a call waits for something else stays with the channel until the call that
//! takes it: [`accept`](Channel::accept) for connections, [`recv`](Channel::recv) for messages and
//! ends of connections, [`recv_frames`](Channel::recv_frames) for frames,
//! [`next_event`](Channel::next_event) for everything. Frames alone are lost when the app does not
//! keep up: a raw interface is not reliable.

#![forbid(unsafe_code)]

mod address;
mod awaited;
mod buffers;
mod calls;
mod channel;
mod connections;
mod deadlines;
mod error;
mod event;
mod frames;
mod host;
mod identity;
mod ids;
mod in_turn;
mod memories;
mod operations;
mod options;
mod place;
mod posts;
mod reattach;
mod receive;
mod returns;
mod send;
mod session;
mod streams;
mod tcp;
mod vif;
mod wait;

pub use address::{ListenAddress, ToPeers, resolve, resolve_host, split as split_port};
pub use awaited::Awaited;
pub use buffers::{Message, SendBuffer};
pub use calls::{
    Answer, CallEvent, CallId, Calls, Outcome, REQUESTS_MAX, Refusal, Request, RequestId,
};
pub use channel::{Channel, Listener};
pub use clearway_base::{BadPrefix, Prefix};
pub use clearway_channel::burst::{FrameInfo, Point, ReceivedBurst, ReceivedFrame as Frame};
pub use clearway_channel::control::{BadAddress, InterfaceAddress, Mac, MacChoice};
pub use clearway_channel::{
    BURST_FRAMES_MAX, Code, Ended, FRAME_BYTES_MAX, FRAME_BYTES_MIN, FrameRefusal,
    MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX, Sizes, Sleeper, Unposted,
};
pub use clearway_channel::{
    BadGroupName, Description, Grant, Grantee, Group, GroupName, Member, NotShareable,
    OperationStatus, Pointer, Rights, Shared,
};
pub use error::Error;
pub use event::{Accepted, ConnectionId, Event, ListenerId, Token};
pub use frames::Frames;
pub use host::Embedded;
pub use memories::MemoryId;
pub use operations::{Notified, Operated, Operation, OperationId, RegionId};
pub use options::{Options, Waiting};
pub use posts::PostEnd;
pub use reattach::{Reattached, Reconnected};
pub use streams::AcceptedStream;
pub use tcp::{
    Tcp, TcpBytes, TcpId, TcpListener, TcpOption, TcpPort, TcpPortId, TcpPortOptions, TcpReady,
    TcpStream,
};
pub use vif::{CaptureOptions, FramesSent, Vif, VifId, VifOptions};
