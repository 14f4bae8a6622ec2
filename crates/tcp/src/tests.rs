//! Two stacks on a link, and scripts against one.

mod reassembly;
mod transfer;
mod world;
