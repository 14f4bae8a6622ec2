//! The control plane without I/O: what a host's engines have to agree on, for whoever runs them:
//! the daemon, an app with an engine of its own, and the simulator.
//!
//! ```text
//!  app asks ──▶ open, close ──▶ poll_request, poll_step ──▶ an engine's mailbox, the NIC
//!  app is told ◀── Opened, Refused, Gone ◀── handle_* ◀── their answers
//! ```
//!
//! What is *not* here yet: sessions, policy and accounting, which are the daemon's; and what they
//! cannot be without, sockets and threads, which will stay there.

#![forbid(unsafe_code)]

mod listeners;
mod vifs;

pub use listeners::{ListenerName, Listeners, Opened};
pub use vifs::{VifError, VifOwner, VifStep, Vifs};
