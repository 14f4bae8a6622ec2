//! ARP for IPv4 over Ethernet (RFC 826).

use crate::Malformed;
use crate::bytes::{array_at, head_mut, put, u16_at};
use crate::ethernet::{self, MacAddress, ether_type};
use crate::view::view;
use core::net::Ipv4Addr;

/// The length of an ARP packet for IPv4 over Ethernet.
pub const LENGTH: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;
/// Hardware type, protocol type, and the lengths of their addresses.
const PREAMBLE: [u8; 6] = {
    let (hardware, protocol) = (HARDWARE_ETHERNET.to_be_bytes(), ether_type::IPV4.to_be_bytes());
    [hardware[0], hardware[1], protocol[0], protocol[1], 6, 4]
};

view! {
    /// The bytes of an ARP packet.
    at_least LENGTH
}

impl<'a> View<'a> {
    /// True if this is about IPv4 over Ethernet, and the addresses below mean something.
    #[must_use]
    pub fn is_ipv4_over_ethernet(&self) -> bool {
        self.bytes.starts_with(&PREAMBLE)
    }

    /// 1 asks, 2 answers.
    #[must_use]
    pub fn operation(&self) -> u16 {
        u16_at(self.bytes, 6)
    }

    /// The sender's Ethernet address.
    #[must_use]
    pub fn source_mac(&self) -> MacAddress {
        array_at(self.bytes, 8)
    }

    /// The sender's IPv4 address.
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        array_at(self.bytes, 14).into()
    }

    /// The Ethernet address that an answer goes to.
    #[must_use]
    pub fn target_mac(&self) -> MacAddress {
        array_at(self.bytes, 18)
    }

    /// The IPv4 address that is asked for, or that an answer goes to.
    #[must_use]
    pub fn target(&self) -> Ipv4Addr {
        array_at(self.bytes, 24).into()
    }
}

/// What an ARP packet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Operation {
    /// Asks who has the target address.
    Request = 1,
    /// Says that the source has the source address.
    Reply = 2,
}

/// A valid ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Asks or answers.
    pub operation: Operation,
    /// The sender's Ethernet address: never a group.
    pub source_mac: MacAddress,
    /// The sender's IPv4 address; 0.0.0.0 in a probe (RFC 5227).
    pub source: Ipv4Addr,
    /// The Ethernet address that an answer goes to; zero in a request.
    pub target_mac: MacAddress,
    /// The IPv4 address that is asked for, or that an answer goes to.
    pub target: Ipv4Addr,
}

impl Repr {
    /// Refuses other hardware and protocols, and senders that are groups.
    pub fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        if !view.is_ipv4_over_ethernet() {
            return Err(Malformed::Field);
        }
        let operation = match view.operation() {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Malformed::Type),
        };
        if ethernet::is_multicast(view.source_mac()) || view.source().is_multicast() {
            return Err(Malformed::Address);
        }
        Ok(Self {
            operation,
            source_mac: view.source_mac(),
            source: view.source(),
            target_mac: view.target_mac(),
            target: view.target(),
        })
    }

    /// Writes the packet.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let packet: &mut [u8; LENGTH] = head_mut(bytes);
        put(packet, 0, PREAMBLE);
        put(packet, 6, (self.operation as u16).to_be_bytes());
        put(packet, 8, self.source_mac);
        put(packet, 14, self.source.octets());
        put(packet, 18, self.target_mac);
        put(packet, 24, self.target.octets());
        LENGTH
    }

    /// The length of the packet.
    #[must_use]
    pub const fn length(&self) -> usize {
        LENGTH
    }
}
