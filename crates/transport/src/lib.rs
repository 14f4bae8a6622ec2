//! Message flows: reliable, ordered, congestion-controlled messages of up to 8 MB between two
//! engines, over datagrams.
//!
//! No I/O, no clock, no randomness of its own: an [`Endpoint`] takes datagrams, times and a seed,
//! and gives datagrams, timeouts and calls of the [`App`] trait. The packet format is
//! `clearway_wire::clearway`, described in `docs/wire.md`.
//!
//! Reading order: `endpoint` (which flow a packet belongs to), `flow` (one connection), then its
//! parts: `outgoing` and `incoming` (messages), `acks` and `recovery` (packets), `mtu` (how large
//! packets are), `ecn` (marks). How fast is the crate `congestion`'s affair. What opens a flow is
//! in `endpoint/handshake` and `flow/opening`.

#![forbid(unsafe_code)]

mod acks;
mod app;
mod company;
mod config;
mod control;
mod cookie;
mod ecn;
mod endpoint;
mod flow;
mod incoming;
mod mtu;
mod outgoing;
mod recovery;
mod rtt;
mod shares;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod unfinished;

pub use app::{
    App, Arrived, Buffer, Deadline, Delivered, OPERATION_NAMES, Operated, Operation, Order,
    Outbound, Owner, Reason, Room, Undelivered,
};
pub use clearway_congestion::{AckSample, Congestion, CongestionControl, Cubic, LossSample, Swift};
pub use clearway_wire::clearway::ENGINES_MAX;
pub use config::{Config, MESSAGE_OVERHEAD, PACKETS_IN_FLIGHT_MAX, SILENCE_MS};
pub use endpoint::{
    Arrival, Counters, Destination, Endpoint, FlowKey, FlowMemory, PortInUse, StreamKey,
};
pub use flow::{FlowBooks, FlowInfo, NoStream, Priority, SOURCE_PORT_MIN, StreamInfo};
pub use incoming::{DueMessages, DueOperations};
pub use shares::Shares;
pub use state::*;
pub use unfinished::Unfinished;
