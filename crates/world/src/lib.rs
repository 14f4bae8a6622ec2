//! Virtual time, for tests and simulations: what is to happen, and when. What there is in a world
//! (hosts, apps, checkers) is its owner's; there is no I/O here and no clock, and all that is
//! random comes from a seed.

#![forbid(unsafe_code)]

mod agenda;
mod alarm;

pub use agenda::Agenda;
pub use alarm::Alarm;
