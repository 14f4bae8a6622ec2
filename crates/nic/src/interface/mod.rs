//! Facts about kernel interfaces, and what is asked of the kernel on their behalf.
//!
//! For drivers that share an interface with the kernel, for `clearway doctor` and for the daemon's
//! control thread. Nothing here touches frames.

mod claim;
mod device;
mod facts;
mod host;
mod link;
mod membership;
mod namespace;
mod neighbours;
mod netlink;
pub(crate) mod pattern;
mod routes;
mod steering;
mod watch;

pub use claim::Protocol;
pub(crate) use claim::{attach_filter, last_errno, return_instruction, set_option};
pub use device::{Channels, Device};
pub(crate) use facts::gso_limits;
pub use facts::{Address, Facts, Route};
pub use host::{HostWatch, Ways};
pub(crate) use link::Link;
pub use namespace::Namespace;
pub use neighbours::{Neighbour, Neighbours};
pub use pattern::SteerPattern;
pub use routes::TableRoute;
pub(crate) use steering::PatternTable;
pub use steering::{KernelSteering, Steered, Steering};
pub use watch::Watch;
