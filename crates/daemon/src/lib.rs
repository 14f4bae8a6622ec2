//! The control plane of a host: configuration, policy, the control socket, and the `clearway`
//! command.

pub mod broker;
pub mod config;
mod confinement;
mod control;
mod error;
pub mod fabric;
mod filter;
mod host;
pub mod log;
mod nic;
mod policy;
mod privileges;
mod socket;
pub mod text;

pub use config::Config;
pub use confinement::{Confinement, try_confinement};
pub use control::{ControlPlane, Stopper, hold_signals};
pub use error::Error;
pub use host::{Host, run, run_together};
