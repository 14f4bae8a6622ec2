//! Ethernet II headers (IEEE 802.3, clause 3). 802.3 frames with a length field are of no use here:
//! they come out with an ether type below 0x600, which nobody knows.

use crate::Malformed;
use crate::bytes::{array_at, head_mut, put, u16_at};
use crate::view::view;
use core::net::Ipv6Addr;

/// An Ethernet address in transmission order.
pub type MacAddress = [u8; 6];

/// The address that every host takes as its own.
pub const BROADCAST: MacAddress = [0xff; 6];
/// The length of the header.
pub const HEADER_LENGTH: usize = 14;

/// Ether types (IEEE, "EtherType listing").
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// An 802.1Q tag follows.
    pub const VLAN: u16 = 0x8100;
    /// The tag of a provider follows (IEEE 802.1Q, clause 9.5: S-TAG).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// True for multicast, which includes broadcast: IEEE 802.3, clause 3.2.3, the first bit of the
/// address on the wire.
#[inline]
#[must_use]
pub const fn is_multicast(mac: MacAddress) -> bool {
    mac[0] & 1 != 0
}

/// The Ethernet address of an IPv6 multicast group. RFC 2464, section 7: "the first two octets are
/// the value 3333 hexadecimal and whose last four octets are the last four octets of DST".
#[must_use]
pub const fn multicast_v6(group: Ipv6Addr) -> MacAddress {
    let octets = group.octets();
    [0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]
}

view! {
    /// The bytes of a frame, without frame check sequence.
    at_least HEADER_LENGTH
}

impl<'a> View<'a> {
    /// Where the frame goes.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> MacAddress {
        array_at(self.bytes, 0)
    }

    /// Where the frame comes from.
    #[inline]
    #[must_use]
    pub fn source(&self) -> MacAddress {
        array_at(self.bytes, 6)
    }

    /// What the payload is.
    #[inline]
    #[must_use]
    pub fn ether_type(&self) -> u16 {
        u16_at(self.bytes, 12)
    }

    /// What follows the header, padding to the minimum length of Ethernet included.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LENGTH..]
    }
}

/// A valid Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Where the frame goes.
    pub destination: MacAddress,
    /// Where the frame comes from: never a group.
    pub source: MacAddress,
    /// What the payload is.
    pub ether_type: u16,
}

impl Repr {
    /// Refuses frames that come from a group.
    #[inline]
    pub fn parse(view: &View<'_>) -> Result<Self, Malformed> {
        if is_multicast(view.source()) {
            return Err(Malformed::Address);
        }
        Ok(Self {
            destination: view.destination(),
            source: view.source(),
            ether_type: view.ether_type(),
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let head: &mut [u8; HEADER_LENGTH] = head_mut(bytes);
        put(head, 0, self.destination);
        put(head, 6, self.source);
        put(head, 12, self.ether_type.to_be_bytes());
        HEADER_LENGTH
    }

    /// The length of the header.
    #[must_use]
    pub const fn length(&self) -> usize {
        HEADER_LENGTH
    }
}
