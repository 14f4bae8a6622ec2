//! Virtual time and what a network does in it, for tests and simulations. What there is in a world
//! (hosts, apps, checkers) is its owner's; there is no I/O here and no clock, and all that is
//! random comes from a seed.
//!
//! ```text
//!  a host sends ──▶ Way: rate, queue, delay, loss, damage ──▶ Agenda, or Transit ──▶ it arrives
//! ```

#![forbid(unsafe_code)]

mod agenda;
mod alarm;
mod faults;
mod packet;
mod slow_path;
mod steps;
mod transit;
mod way;

pub use agenda::Agenda;
pub use alarm::Alarm;
pub use faults::{Bursts, FaultCounts, Faults, Rate, SlowPath};
pub use packet::{Connection, Datagram, Packet};
pub use steps::Steps;
pub use transit::Transit;
pub use way::{Fate, Way};
