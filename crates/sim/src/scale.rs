//! What it costs to have many: flows of two engines, engines of two hosts, and hosts that share a link. The
//! hosts, links and time are those of the simulator; apps do nothing but what is measured.

mod flows;
mod set_up;
mod sharing;
mod stage;

pub use flows::{FlowCost, flows};
pub use set_up::{SetUp, set_up};
pub use sharing::{Sharing, sharing};
