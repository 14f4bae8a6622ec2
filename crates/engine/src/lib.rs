//! Engines: the run loop that joins channels, transport and NIC queues.
//!
//! ```text
//!  channel ── commands ──▶ ┌────────────── Engine::turn ──────────────┐
//!          ◀ completions ─ │ Channels ⇄ Endpoint ⇄ Paths ⇄ Interface │ ⇄ Queue
//!                          └──────────────▲───────────────────────────┘
//!  Control ── Request (mailbox) ──────────┘ ── Event ──▶
//! ```
//!
//! An [`Engine`] belongs to one thread, which a [`Group`] runs. It is made, and spoken to, by the
//! control plane through [`Control`].

mod channels;
mod control;
mod engine;
mod group;
mod idle;
mod lanes;
mod local;
mod paths;
mod services;
mod snapshot;
mod switch;

pub use clearway_ip as ip;
pub use clearway_transport::{Congestion, FlowBooks, MESSAGE_OVERHEAD, Owner, SOURCE_PORT_MIN};
pub use control::{Control, Event, Request};
pub use engine::{Checks, Engine, EngineConfig, Turn, UDP_PORT_DEFAULT};
pub use group::{Clock, Group};
pub use idle::Idle;
pub use services::{Entry, Service, entries};
pub use snapshot::{
    CaptureSnapshot, ChannelSnapshot, FlowSnapshot, ListenerSnapshot, QueueSnapshot, Snapshot,
    VifSnapshot,
};
pub use switch::{CaptureSpec, PRIORITY_MAX, VifRefused, VifSpec, VifTexts};
