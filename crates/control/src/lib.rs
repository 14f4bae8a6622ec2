//! The control plane without I/O: who may do what, and what a host's engines have to agree on, for
//! whoever runs them: the daemon, an app with an engine of its own, and the simulator.
//!
//! ```text
//!  app asks ──▶ open, close ──▶ poll_request, poll_step ──▶ an engine's mailbox, the NIC
//!  app is told ◀── Opened, Refused, Gone ◀── handle_* ◀── their answers
//! ```
//!
//! [`policy`] decides what each user may have, and counts what they hold. What is *not* here yet:
//! sessions, and which engine an app is put on, which are the daemon's; and what those cannot be
//! without, sockets and threads, which will stay there.

#![forbid(unsafe_code)]

pub mod filter;
mod listeners;
pub mod policy;
mod vifs;

pub use listeners::{ListenerName, Listeners, Opened};
pub use vifs::{VifError, VifOwner, VifStep, Vifs};
