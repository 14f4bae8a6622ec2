//! The control plane without I/O: what a host's engines have to agree on, for whoever runs them:
//! the daemon, an app with an engine of its own, and the simulator.
//!
//! ```text
//!  app asks ──▶ open, close ──▶ poll_request ──▶ an engine's mailbox
//!  app is told ◀── Opened ◀── handle_listening, handle_noted ◀── its events
//! ```
//!
//! What is *not* here yet: sessions, policy, virtual interfaces and accounting, which are the
//! daemon's; and what they cannot be without, sockets and threads, which will stay there.

#![forbid(unsafe_code)]

mod listeners;

pub use listeners::{ListenerName, Listeners, Opened};
