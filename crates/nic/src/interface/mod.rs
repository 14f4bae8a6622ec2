//! Facts about kernel interfaces, and what is asked of the kernel on their behalf.
//!
//! For drivers that share an interface with the kernel, for `clearway doctor` and for the daemon's
//! control thread. Nothing here touches frames.

mod claim;
mod device;
mod facts;
mod namespace;
mod neighbours;
mod netlink;
mod steering;

pub use claim::{MulticastGroups, PortClaim};
pub use device::{Channels, Device};
pub use facts::{Address, Facts, Route};
pub use namespace::Namespace;
pub use neighbours::{Neighbour, Neighbours};
pub use steering::Steering;
