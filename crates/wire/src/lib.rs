//! Packet formats: for each one a raw *view*, which never panics on any bytes, and a *repr*, which
//! is always valid.
//!
//! A view borrows bytes and checks at construction that its fixed part is there; it says what the
//! bytes say. `Repr::parse(&view)` is where a packet is judged: it returns a valid repr or the one
//! reason, a [`Malformed`], why it is dropped. `repr.emit(bytes)` writes it back, and `length()`
//! says how many bytes that takes. Emitting into a buffer that is too short panics: how long the
//! buffer is, is the caller's doing and never a stranger's.
//!
//! ```text
//! ethernet ─┬─ (vlan) ─┬─ arp
//!           └──────────┼─ ipv4 ─┬─ icmpv4
//!                      │        ├─ tcp
//!                      │        └─ udp ── clearway
//!                      └─ ipv6 ─┬─ icmpv6
//!                               ├─ tcp
//!                               └─ udp ── clearway
//! ```
//!
//! Beside them `fragment`, of which IPv4 and IPv6 packets are put together.
//!
//! Everything is network byte order. Nothing here keeps state, allocates, or asks the operating
//! system for anything; what to do with a packet is decided in `ip`, `transport`
//! and `tcp`.

#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
pub mod clearway;
pub mod digest;
mod ecn;
pub mod ethernet;
pub mod fragment;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod malformed;
pub mod tcp;
#[cfg(test)]
mod tests;
pub mod udp;
mod view;
pub mod vlan;

pub use ecn::Ecn;
pub use ethernet::MacAddress;
pub use malformed::Malformed;

/// The numbers of the protocols that IPv4 and IPv6 carry (IANA, "Assigned Internet Protocol
/// Numbers"), those that matter here.
pub mod protocol {
    /// ICMP, for IPv4.
    pub const ICMPV4: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP (RFC 4340).
    pub const DCCP: u8 = 33;
    /// ICMP, for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: u8 = 136;
}
