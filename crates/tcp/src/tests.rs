//! Two stacks on a link, and scripts against one.

mod attacks;
mod reassembly;
mod recovery;
mod rfc9293;
mod scoreboard;
mod script;
mod transfer;
mod world;
