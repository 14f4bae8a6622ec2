//! The control plane without I/O: who may do what, and what a host's engines have to agree on, for
//! whoever runs them: the daemon, an app with an engine of its own, and the simulator.
//!
//! ```text
//!  app connects, asks, goes ──▶ Plane ──▶ poll_step ──▶ an engine's mailbox, the NIC, the kernel
//!  app is told ◀── Step::Reply ◀── Plane ◀── handle_* ◀── their answers
//! ```
//!
//! [`Plane`] composes the parts: [`policy`] decides what each user may have, and counts what they
//! hold; [`Listeners`] and [`Vifs`] have the engines agree on who listens and has which interface.
//! What is *not* here is what those cannot be without: sockets, threads, the memory of channels,
//! the configuration, and what takes looking at a clock.

#![forbid(unsafe_code)]

mod engines;
pub mod filter;
mod listeners;
mod placing;
mod plane;
pub mod policy;
mod refusal;
mod session;
mod steered;
mod vifs;

pub use engines::{Channel, ChannelPlace, Engine};
pub use listeners::{ListenerName, Listeners, Opened};
pub use plane::{Nic, NicFacts, Plane, Settings, Step};
pub use session::{Attached, Session};
pub use steered::{Lost, Steered};
pub use vifs::{PortPart, VifError, VifOwner, VifStep, Vifs};
