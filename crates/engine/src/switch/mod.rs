//! The switch: the one place where a packet finds its owner, which is a service of the host or an
//! app's virtual interface (VIF). Its table says who receives what and who may send what.
//!
//! ```text
//!  NIC ──▶ digest ──▶ find ──┬──▶ service (messages, ARP, ICMP, refusals)
//!                            ├──▶ VIF: a burst in the app's receive pool
//!                            ├──▶ a VIF of another engine of the NIC: its lane
//!                            ├──▶ copies, to those who want them
//!                            └──▶ nobody: counted
//!  app ──▶ copy ──▶ digest ──▶ check ──▶ an owner of this host, or the NIC, or both (groups);
//!                                        where it has no owner, the kernel that shares the NIC
//! ```
//!
//! Where the kernel shares the NIC, what is nobody's here never comes: the NIC's steering leaves it
//! to the kernel. *Not* here: what components make of their frames, who may open which VIF (the
//! control plane's policy), and whether it collides with another (the control plane's registry):
//! what comes from there is taken in as it is.

mod refusal;
mod sibling;
mod table;

pub use refusal::VifRefused;
pub(crate) use table::{FrameOwner, Reach, Switch};
pub use table::{PRIORITY_MAX, VifKey};

/// How the owner of a packet is found.
type Table = clearway_classify::table::Production;
