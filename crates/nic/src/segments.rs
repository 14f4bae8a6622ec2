//! Super-frames: several packets of one flow in one frame, as kernels hand them to each other
//! (GSO, GRO) and leave it to the last of them to part them and to fill in checksums.
//!
//! ```text
//!  frames:       ┌ headers ┬ 1448 ┐ ┌ headers ┬ 1448 ┐ ┌ headers ┬ 300 ┐
//!  super-frame:  ┌ headers ┬ 1448 ┬ 1448 ┬ 300 ┐   and, beside it, an Offload: UDP, 1448
//! ```
//!
//! [`Merge`] makes one of frames of UDP or TCP, [`Cut`] makes frames of one, and [`complete`] fills
//! in the checksum of a frame that is one packet. [`coalesced`] and [`settle`] are for NICs that
//! say less than an [`Offload`] does. None of them does any I/O, and none trusts what it reads:
//! neither bytes of frames nor what an [`Offload`] says of them. Checksums of frames that are
//! merged are not looked at: whoever cuts makes them again.
//!
//! Whoever cuts knows that the packets have not been on a wire, or that somebody has verified them
//! all. So UDP over IPv4 comes out without a checksum (RFC 768: "An all zero transmitted checksum
//! value means that the transmitter generated no checksum"), which costs nothing and is right for
//! whoever reads it. UDP over IPv6 and TCP have to have one.

mod cut;
mod layout;
mod merge;
mod offload;
mod received;
#[cfg(test)]
mod tests;

pub use cut::{Cut, complete, fill_checksum};
pub use layout::HEADERS_MAX;
#[cfg(feature = "dpdk")]
pub(crate) use layout::Layout;
pub(crate) use layout::PACKET_BYTES_MAX;
pub(crate) use merge::Checksum;
pub use merge::Merge;
pub use offload::Offload;
pub use received::{Verdict, coalesced, settle};
