//! What it costs to have many: hosts, flows of two engines, engines of two hosts, and hosts that
//! share a link. The hosts, links and time are those of the simulator; apps do nothing but what is
//! measured.

mod crowd;
mod engines;
mod fairness;
mod flows;
mod hosts;
mod set_up;
mod sharing;
mod stage;

pub use engines::{EnginesRate, engines};
pub use fairness::{Fairness, fairness};
pub use flows::{FlowCost, flow_memory_bytes, flows};
pub use hosts::{HostMemory, HostsCost, host_memory, hosts};
pub use set_up::{SetUp, set_up};
pub use sharing::{Sharing, sharing};

/// Messages whose time is taken together. The median of many such parts is not disturbed by
/// whatever else the machine does meanwhile.
const PART_MESSAGES: u64 = 500;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
