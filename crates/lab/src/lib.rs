//! The lab: hosts of the real stack (`tcp` and `ip`) in one process, for those who test it.
//!
//! A [`Host`] has addresses, sockets with the calls that Linux has, and a clock that stands still
//! but for [`Host::advance`] and [`Host::run`]. What would go to a NIC is taken with
//! [`Host::take_packet`], and what would come from it is put in with [`Host::put_packet`]: IP
//! packets without Ethernet, as a TUN device has them. `docs/lab.md` is for users of the C ABI over
//! it (`crates/capi/lab`).
//!
//! Calls may wait, as those of Linux do: until another thread moves the clock, or puts a packet in.
//! Nothing waits for the wall clock. Whoever changes something waits until each call that this has
//! woken is done, so that the same calls have the same outcome however threads are scheduled.
//!
//! Here are descriptors, waiting, and the numbers that C programs know options, flags and errors
//! by. What sockets mean is in `tcp::Sockets`.
#![forbid(unsafe_code)]

mod address;
mod bursts;
mod calls;
mod descriptors;
mod errno;
mod fast_open;
mod freebsd;
mod host;
mod network;
mod notices;
mod observed;
mod options;
mod poll;
mod settings;
mod state;
mod store;
mod tcp_info;

pub use calls::Shutdown;
pub use clearway_tcp::{Info, State};
pub use errno::Errno;
pub use host::{Host, Options};
pub use notices::{Control, Message};
pub use poll::{Epolled, Polled};
pub use settings::{SETTINGS, Setting};
pub use tcp_info::number as state_number;
