//! The control plane of a host: configuration, policy, the control socket, and the `clearway`
//! command.

pub mod config;

pub use config::Config;
