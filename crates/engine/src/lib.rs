//! Engines: the run loop that joins channels, transport and NIC queues.
//!
//! ```text
//!  channel ── commands ──▶ ┌──────── Engine::turn ────────┐
//!          ◀ completions ─ │ components, and what they    │ ⇄ Queue
//!                          │ have in common (`component`) │ ⇄ other engines
//!                          └──────────────▲───────────────┘
//!  Control ── Request (mailbox) ──────────┘ ── Event ──▶
//! ```
//!
//! An [`Engine`] belongs to one thread, which a [`Group`] runs. It is made, and spoken to, by the
//! control plane through [`Control`].

#![forbid(unsafe_code)]

mod board;
mod captures;
mod catalogue;
mod channels;
mod common;
mod component;
mod control;
mod engine;
mod frames;
mod gathering;
mod group;
mod host;
mod idle;
mod lanes;
mod local;
mod loopback;
mod messages;
mod operations;
mod relay;
mod services;
mod snapshot;
mod state;
mod switch;
mod tcp;
#[cfg(test)]
mod testing;
mod waking;

pub use board::{Board, Label, Reading};
pub use captures::CaptureSpec;
pub use catalogue::{CounterGroup, catalogue};
pub use channels::{Held, PostState};
pub use clearway_ip as ip;
pub use clearway_transport::{
    Congestion, FlowBooks, MESSAGE_OVERHEAD, Owner, Priority, SOURCE_PORT_MIN, Undelivered,
};
pub use common::{Common, Via};
pub use component::{Component, NoExtra, Outlet, Sending};
pub use control::{Allowance, Control, Event, Newcomers, PingFailure, Plug, Request};
pub use engine::{
    Engine, EngineConfig, Joined, Remains, SILENCE_MS_DEFAULT, Turn, UDP_PORT_DEFAULT,
};
#[cfg(feature = "unchecked")]
pub use frames::Checks;
pub use frames::{VifSpec, VifTexts};
pub use group::{Clock, Group};
pub use host::{HostState, Nic};
pub use idle::Idle;
pub use messages::{NeighbourState, NextHop, ResolvingState, Settled, SharedWay, Target, Waiting};
pub use operations::{
    AskedState, CopyingState, ExchangeState, ExpectedState, REGIONS_MAX, RegionState, SentState,
    SourceState, WaitingState, WritingState,
};
pub use services::{Entry, Service, entries};
pub use snapshot::{
    CaptureSnapshot, ChannelSnapshot, FlowSnapshot, ListenerSnapshot, QueueSnapshot,
    RegionSnapshot, Snapshot, VifSnapshot,
};
pub use state::{
    BearerState, BurstState, CaptureState, ChannelState, ConnectionState, FilterState, FramesState,
    Invalid, LineState, LingeringState, MessagesState, ReportState, STATE_VERSION, SiblingVifState,
    State, StateError, VifSpecState, VifState,
};
pub use switch::{PRIORITY_MAX, VifKey, VifRefused};
pub use tcp::{
    AttemptState, BookState, ClosingPortState, NotedPortState, TcpPortSpec, TcpPortState, TcpState,
};
pub use waking::{WakeUp, WakeUpTimer};
