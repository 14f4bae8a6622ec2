//! `clearway bench vif`: frames of 64 bytes between memif and virtual interfaces, beside what
//! DPDK's `dpdk-testpmd` does with such frames: forwarding them from one memif to another.
//!
//! ```text
//!  core 0                              core 1
//!  testpmd txonly ───── memif ──▶ engine ──▶ app        wire to VIF
//!  testpmd rxonly ◀──── memif ─── engine ◀── app        VIF to wire
//!  testpmd flowgen ◀═══ memif ══▶ testpmd io            io-forward
//! ```
//!
//! Engine and app take turns in one thread, so that no scheduler comes between; testpmd has one
//! forwarding core in each of its processes. Where there is more than one flow (`--flows`), this
//! program's own `generator` takes the place of txonly. It is *not* a benchmark of messages: that
//! is `suite`.
//!
//! The way through the code: [`VifCommand`] → `round` (what runs when) → `role` (engine and app),
//! `testpmd`, `generator` (the other side) → `report`.

mod flows;
mod generator;
mod report;
mod role;
mod round;
mod testpmd;

pub(crate) use generator::GeneratorRole;
pub(crate) use role::{CountedFrames, Direction, VifRole};

use crate::arguments::Timing;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::table::print_report;
use clap::value_parser;

/// Descriptors per ring, as a power of two.
const RING_LOG2: u8 = 10;
/// Bytes of a frame, without frame check sequence.
const FRAME_BYTES: usize = 64;
/// Frames that testpmd takes and gives at once; an engine does the same.
const BURST_FRAMES: usize = 32;

/// Engines of this build can be told not to check frames. Those that ship cannot.
const HAS_UNCHECKED: bool = cfg!(feature = "unchecked");

/// Move raw frames between memif and virtual interfaces, beside DPDK's testpmd
#[derive(clap::Args, Clone, Debug)]
pub struct VifCommand {
    #[command(flatten)]
    timing: Timing,
    /// Flows that frames are of, in turn.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = value_parser!(u16).range(1..=i64::from(flows::FLOWS_MAX))
    )]
    flows: u16,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

impl VifCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = round::run(self.timing, self.flows, &Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text())
    }
}
