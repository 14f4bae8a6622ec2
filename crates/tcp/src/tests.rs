//! Two stacks on a link, scripts against one, and one with the Linux kernel as peer.

mod accurate_ecn;
mod attacks;
mod chaos;
mod closing;
mod fast_open;
mod kernel;
mod loss;
mod opening;
mod paths;
mod reassembly;
mod recovery;
mod rfc9293;
mod saved;
mod scoreboard;
mod script;
mod sharing;
mod transfer;
mod windows;
mod world;
