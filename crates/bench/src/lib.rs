//! Whole-system benchmarks: Clearway beside what a user would pick instead, in one run.
//!
//! `clearway bench` and `clearway demo` are thin shells around this library. It starts every
//! contender as separate, pinned processes, drives the same workload through each, interleaved,
//! and reports medians, spread and ratios. It makes its own wire (memif, a veth pair, or none)
//! and removes it afterwards. Over a network that exists it measures what running daemons carry
//! (`remote`), beside nothing else.
//!
//! ```text
//!  bench (parent) ── spawns, reads JSON lines, counts CPU time ──┐
//!     ├─ bench-role app: client, core 0 ◀── kernel or Clearway ──▶ bench-role app: server, core 1
//!     ├─ bench-role namespace ×2: hold the ends of the veth pair
//!     └─ clearway daemon ×2, or bench-role engines: for the Clearway contender
//! ```
//!
//! The way through the code: [`Command`] → `suite` (what runs when) → `kernel` and `clearway`
//! (which processes a contender needs) → `role` (what such a process does) → `load` (the workload)
//! → `endpoint` (the transport under it) → [`Report`]. What all benchmarks with contenders share:
//! `samples`, which keeps apart what was measured while the machine was another (`distance`).

#![forbid(unsafe_code)]

mod apps;
mod arguments;
mod c_app;
mod classify;
mod clearway;
mod connect;
mod connections;
mod contender;
mod cpu;
mod demo;
mod directory;
mod distance;
mod embedded;
mod endpoint;
mod engines;
mod error;
mod flight;
mod half_pair;
mod host;
mod http;
mod instructions;
mod interrupt;
mod isolation;
mod kernel;
mod lines;
mod load;
mod many;
mod namespace;
mod ops;
mod pair;
mod plot;
mod process;
mod progress;
mod remote;
mod report;
mod role;
mod samples;
mod suite;
mod table;
mod threads;
mod transport;
mod veth;
mod vif;

pub use arguments::{Command, Compare, Idle, KernelEnd, Layout, Plan, Wire};
pub use c_app::Language;
pub use classify::{BenchCommand, ClassifyCommand};
pub use connect::ConnectCommand;
pub use connections::ConnectionsCommand;
pub use contender::Contender;
pub use demo::{DemoCommand, DemoPart, demo_text};
pub use engines::EnginesCommand;
pub use error::Error;
pub use flight::FlightCommand;
pub use http::{HttpCell, HttpFigures, HttpFound, HttpOptions, HttpRatio, HttpReport};
pub use instructions::InstructionsCommand;
pub use interrupt::Interrupt;
pub use isolation::IsolationCommand;
pub use load::{Load, Sample, Workload};
pub use ops::OpsCommand;
pub use plot::{Bars, Series};
pub use remote::{BENCH_PORT, Echo, Remote};
pub use report::{Figures, Found, Ratio, Report, Spread};
pub use role::{BenchHost, RoleCommand};
pub use samples::{Distance, State, Summary};
pub use table::report_text;
pub use threads::ThreadsCommand;
pub use transport::TransportCommand;
pub use vif::VifCommand;
