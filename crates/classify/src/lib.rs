//! Who may send what and who receives what: patterns over packet digests, their order, their
//! conflicts, and tables that find the first pattern that matches.
//!
//! ```text
//!  text ──▶ Filter ──▶ Clause ... ──▶ Rule ──▶ Table ◀── Digest
//!           "or"       "and"          + rank     linear, adaptive, tuple, production
//!                                     + action
//!  Registry: VIFs with their owners, and the refusal of conflicts (the control plane's)
//!  Directory: who receives and may send what, with the table in use (an engine's)
//! ```
//!
//! No I/O, no clock. What a digest holds is in `clearway_wire::digest`; what an owner does with its
//! packets is the engine's business. The papers: "Revisiting User-Level Networking" (patterns,
//! conflicts, the tables `linear`, `adaptive` and `tuple`) and, for the production table, Daly et
//! al., "TupleMerge: Fast Software Packet Processing for Online Packet Classification".

#![forbid(unsafe_code)]

mod clause;
pub mod directory;
pub mod filter;
mod pattern;
mod ports;
pub mod registry;
mod rule;
mod slab;
pub mod table;

pub use clause::Clause;
pub use directory::Directory;
pub use filter::Filter;
pub use pattern::Pattern;
pub use ports::Ports;
pub use registry::Registry;
pub use rule::{Rank, Rule, RuleId};
pub use table::Table;
