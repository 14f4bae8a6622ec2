//! The daemon of a host: configuration, policy, the control socket, confinement. `clearwayd` is
//! [`program`]; benchmarks and tests run hosts in their own process.

#![forbid(unsafe_code)]

mod broker;
pub mod config;
mod confinement;
mod control;
mod error;
mod host;
pub mod log;
pub mod metrics;
mod nic;
mod opener;
mod privileges;
pub mod program;
mod socket;
pub mod text;
mod users;

pub use config::Config;
pub use confinement::{Confinement, try_confinement};
pub use control::{ControlPlane, Stopper, hold_signals};
pub use error::Error;
pub use host::{Host, run, run_together};
