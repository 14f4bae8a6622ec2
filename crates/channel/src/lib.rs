//! The contract between app and daemon: one shared memory, two rings, two pools, two doorbells,
//! and the messages of the control socket.
//!
//! It is the only place where the two meet, and it is written for two processes that do not trust
//! each other equally: [`DaemonEnd`] believes nothing that it reads and turns every lie into a
//! [`Violation`]; [`AppEnd`] checks what it reads so that a bug becomes an error, but an app has to
//! trust the daemon with its bytes anyway.
//!
//! It is *not* a transport (what a connection is, the engine knows) and not the app library (crate
//! `client`: waiting, queues per connection, names that follow sockets).
//!
//! ```text
//!  app                         shared memory (layout.rs)                        daemon
//!  AppEnd ── Command ────────▶ submission ring (ring.rs, entry.rs) ───────────▶ DaemonEnd
//!         ◀─ Completion ────── completion ring ◀───────────────────────────────
//!         ── message bytes ──▶ transmit pool (pool.rs, private to the app) ───▶ read
//!         ◀─ message bytes ─── receive pool (pool.rs, private to the daemon) ◀─ write
//!            (frames likewise, packed as burst.rs says)
//!         ── doorbell ───────▶ (doorbell.rs; only when the other side sleeps) ◀─ doorbell
//! ```
//!
//! Besides the usual tests, rings and sleep protocol run under loom (`RUSTFLAGS="--cfg loom" cargo
//! test -p clearway-channel --release --lib loom_`), and everything that needs no descriptors under
//! Miri (`MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p clearway-channel --lib`).
//! `cargo run --release -p clearway-channel --example speed` measures.

// Under loom only the rings, the sleep protocol and the end are built, and not all of them is used.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod app_end;
#[cfg(not(loom))]
#[cfg_attr(miri, path = "barrier_miri.rs")]
mod barrier;
#[cfg(not(loom))]
pub mod burst;
mod closing;
mod code;
#[cfg(not(any(loom, miri)))]
pub mod control;
#[cfg(not(loom))]
mod daemon_end;
#[cfg(not(loom))]
#[cfg_attr(miri, path = "doorbell_miri.rs")]
mod doorbell;
mod entry;
#[cfg(not(any(loom, miri)))]
pub mod exit;
mod frame_refusal;
mod layout;
#[cfg(not(any(loom, miri)))]
mod meminfo;
#[cfg(not(loom))]
mod memory;
mod operation;
mod pool;
mod processor;
mod ring;
#[cfg(not(loom))]
mod shared;
mod sleep;
mod sync;
pub mod tcp_option;
mod unposted;
mod violation;

#[cfg(not(loom))]
pub use app_end::{
    AppEnd, Corrupt, Extent, Full, Granted, OpenError, Operated, ReceiveBuffer, Received,
    ReceivedBytes, Sleeper, Told, TransmitBuffer,
};
pub use code::{Code, Ended};
#[cfg(not(any(loom, miri)))]
pub use daemon_end::NotSecured;
#[cfg(not(loom))]
pub use daemon_end::{
    Buffer, BufferState, BurstBuffer, Counters, DaemonEnd, DaemonEndState, Handover, Released,
    Remains,
};
pub use entry::{Command, Completion, Next, ReleaseList, Submitted, SubmittedBytes, canonical};
pub use frame_refusal::FrameRefusal;
pub use layout::{
    BURST_FRAMES_MAX, BadSizes, FRAME_BYTES_MAX, FRAME_BYTES_MIN, LAYOUT, MESSAGE_BYTES_MAX,
    OUTSTANDING_SENDS_MAX, POSTS_MAX, POSTS_PER_CONNECTION_MAX, RELEASES_PER_ENTRY,
    SMALL_MESSAGE_BYTES_MAX, Sizes, Understood, VersionMismatch, Versions,
};
#[cfg(not(any(loom, miri)))]
pub use meminfo::Meminfo;
#[cfg(not(any(loom, miri)))]
pub use memory::NotShareable;
#[cfg(not(loom))]
pub use memory::fetch;
pub use operation::{
    BATCH_MAX, BadGroupName, DESCRIPTION_BYTES_MAX, Description, GRANTS_MAX, GROUP_BYTES_MAX,
    GROUP_NAME_BYTES_MAX, Grant, Grantee, Group, GroupName, MEMBERS_MAX, Member, NO_BUFFER,
    OUTSTANDING_OPERATIONS_MAX, OperationKind, OperationStatus, Pointer, REGION_NAME_BYTES_MAX,
    Rights,
};
pub use pool::{NotAllocated, Pool};
pub use processor::current_processor;
#[cfg(not(loom))]
pub use shared::{CHANNEL_MEMORY, MEMORIES_MAX, Shared, WORDS_BYTES_MAX};
pub use unposted::Unposted;
pub use violation::Violation;
