//! Whole networks of hosts in one thread and virtual time, with the real engine, transport, switch
//! and channels, over simulated LCD NICs and links; with every kind of bad luck, and checkers that
//! see to it that nothing but bad luck goes wrong.
//!
//! ```text
//!  App ── AppEnd ═ shared memory ═ DaemonEnd ── Engine ── SimQueue ── Way ─ switch ─ Way ── ...
//!   │ Ledger: what was sent, what came                     │ HostClock      Network: cuts
//!   └─────────────────────────── World: Agenda, Faults, Trace, checks ────────────┘
//! ```
//!
//! A seed decides everything: the same seed gives the same trace, byte for byte. What is simulated
//! is time, the NIC, the network and what apps want; nothing of Clearway itself is. What is *not*
//! here: threads, and the daemon's control socket.

#![forbid(unsafe_code)]

mod agenda;
mod app;
mod checks;
mod clock;
mod content;
mod control;
mod faults;
mod host;
mod ledger;
mod network;
mod nic;
mod operations;
mod options;
pub mod scale;
mod streams;
mod summary;
mod trace;
mod world;

pub use options::Options;
pub use summary::{Failure, Summary};

/// Something that must not be.
#[derive(Debug)]
pub(crate) struct Finding {
    what: String,
    /// The hosts whose engines may know more.
    hosts: Vec<u32>,
}

impl Finding {
    fn new(what: String) -> Self {
        Self { what, hosts: Vec::new() }
    }
}

/// Runs a simulation to its end. `progress` is called now and then with the simulated part of a
/// whole, in percent.
///
/// # Errors
/// What went wrong, when, and how to see it again.
pub fn run(options: &Options, progress: &mut dyn FnMut(u64)) -> Result<Summary, Box<Failure>> {
    world::run(options, progress)
}
