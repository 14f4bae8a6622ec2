//! Time, seeded random numbers, bounded containers, prefixes of addresses, and how to wait: what
//! every crate above needs and nothing more.
//!
//! This crate performs no I/O and never asks the operating system for anything.

#![forbid(unsafe_code)]

mod copy;
mod counters;
mod prefix;
mod random;
mod ranges;
mod short_queue;
mod slots;
mod spare;
pub mod state;
mod steady_clock;
mod time;
mod token_bucket;
mod waiting;
mod wheel;

pub use copy::{COPY_BYTES, copy};
pub use counters::{Counter, Kind, Unit};
pub use prefix::{BadPrefix, Prefix};
pub use random::Random;
pub use ranges::RangeSet;
pub use short_queue::ShortQueue;
pub use slots::{SlotId, SlotState, Slots};
pub use spare::give_back;
pub use steady_clock::SteadyClock;
pub use time::{MICROSECOND, MILLISECOND, SECOND, Time};
pub use token_bucket::TokenBucket;
pub use waiting::{CoreShare, Crowding, Linger};
pub use wheel::TimerWheel;

/// For the macros of this crate.
#[doc(hidden)]
pub mod export {
    pub use serde;
}
