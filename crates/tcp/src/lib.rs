//! TCP for IPv4 and IPv6 (RFC 9293 and what belongs to it; `docs/tcp.md` has a row per RFC).
//!
//! No I/O, no clock, no randomness of its own: a [`Stack`] takes segments, times and a secret, and
//! gives segments, deadlines and events. The IP layer is elsewhere, and so are bytes: what is sent
//! is a queue of [`Extent`]s that the app filled, each given back when it is acknowledged; of what
//! is received the core says which bytes belong to which place of the stream, the owner of the
//! memory keeps them ([`Memory`]) and names them by an extent, and these come out in order. Whether
//! the owner copies them or leaves them where the NIC put them is its own affair.
//!
//! Inside, sequence numbers have 64 bits (`seq`), so that nothing but the way in and out knows that
//! they wrap.
//!
//! ```text
//!            Sockets ── ports, options, what is ready
//!                │
//!              Stack ── tuple ─┬─ Connection ─┬─ rcv ── reassembly, ack
//!                │             │              ├─ snd ── scoreboard ── rack, tlp, frto
//!                │             │              ├─ rto, prr, cc, timestamps, ecn
//!                │             │              └─ mtu, search, timers
//!                ├── listen: half-open connections, cookies
//!                ├── fast_open: keys, peers
//!                ├── time_wait
//!                └── deadlines: when each is to be looked at
//! ```
//!
//! Reading order: `stack` (whose a segment is), `connection` and its parts, in the order of the
//! figure; then `listen`, `time_wait` and `sockets`.
#![forbid(unsafe_code)]

mod ack;
mod config;
mod connection;
mod deadlines;
mod ecn;
mod event;
mod extent;
mod fast_open;
mod frto;
mod isn;
mod listen;
mod mtu;
mod needless;
mod ports;
mod prr;
mod rack;
mod rcv;
mod reassembly;
mod recovery;
mod rto;
mod saved;
mod scoreboard;
mod search;
mod seq;
mod shares;
mod snd;
mod sockets;
mod stack;
mod state;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;
mod timestamps;
mod tlp;
mod tuning;
mod tuple;
mod validation;
mod variants;
mod ways;

pub use clearway_congestion::Congestion;
pub use config::{
    Config, Cookies, EcnOption, FastOpen, IpFields, KeepAlive, Settings, UnusedWindow,
};
pub use connection::{Arrival, IcmpError, Info, Status, Transmit};
pub use event::{End, Readiness};
pub use extent::{Extent, Memory};
pub use fast_open::{FastOpenKeys, SavedPeer};
pub use saved::{
    Invalid, Orphan, SAVED_VERSION, Saved, SavedAgreement, SavedConnection, SavedCounts, SavedEcn,
    SavedHalfOpen, SavedListener, SavedReceive, SavedSend, SavedTimeWait, SavedTimestamps,
};
pub use sockets::{Family, Fault, Network, Owner, Ready, Socket, SocketOptions, Sockets};
pub use stack::{Counters, Error, Event, Listener, Stack};
pub use state::State;
pub use variants::{Capable, Variants};
pub use ways::Ways;
