//! TCP Fast Open (RFC 7413): data with a SYN, where a cookie shows that the peer has received at
//! its address before.
//!
//! Here is what does not belong to a single connection: `keys`, by which listeners make cookies and
//! recognize them, and `peers`, what is known of those that this host connects to. What a
//! connection does differently is in `connection/early`, what a stack does in `stack/fast_open`.

mod keys;
mod peers;

pub use keys::FastOpenKeys;
pub(crate) use keys::Recognized;
pub use peers::SavedPeer;
pub(crate) use peers::{Outcome, PEERS_MAX, Peers, Plan};
