//! The frames that are sent: UDP datagrams of 64 bytes between two hosts, of one flow or many.

use super::FRAME_BYTES;
use clearway_nic::MacAddress;
use clearway_wire::{ethernet, ipv4, protocol};
use std::net::Ipv4Addr;

/// The engine's Ethernet address; testpmd sends to it.
pub(super) const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
pub(super) const MAC_TEXT: &str = "02:00:00:00:00:01";
pub(super) const PEER_MAC: MacAddress = [2, 0, 0, 0, 0, 2];
/// The addresses and the port (discard) that testpmd's `txonly` writes into its frames.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(super) const PORT: u16 = 9;
/// Where the peer's ports begin if there are many flows.
const PORT_MIN: u16 = 1024;
/// As many flows as there may be, each with a port of the peer's of its own.
pub(super) const FLOWS_MAX: u16 = u16::MAX - PORT_MIN;
const TRANSPORT_AT: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;

/// One frame after the other, each of the next flow.
pub(super) struct Flows {
    frame: [u8; FRAME_BYTES],
    /// Where the peer's port is in it.
    port_at: usize,
    count: u16,
    next: u16,
}

impl Flows {
    /// Frames that the host sends.
    pub(super) fn of_host(count: u16) -> Self {
        let frame = template((MAC, ADDRESS), (PEER_MAC, PEER_ADDRESS));
        Self { frame, port_at: TRANSPORT_AT + 2, count, next: 0 }
    }

    /// Frames that come for it.
    pub(super) fn of_peer(count: u16) -> Self {
        let frame = template((PEER_MAC, PEER_ADDRESS), (MAC, ADDRESS));
        Self { frame, port_at: TRANSPORT_AT, count, next: 0 }
    }

    /// The next frame.
    #[inline]
    pub(super) fn next_frame(&mut self) -> &[u8; FRAME_BYTES] {
        if self.count > 1 {
            let port = (PORT_MIN + self.next).to_be_bytes();
            self.frame[self.port_at..self.port_at + 2].copy_from_slice(&port);
            self.next = if self.next + 1 == self.count { 0 } else { self.next + 1 };
        }
        &self.frame
    }
}

/// A datagram without a UDP checksum (RFC 768 allows that), so that its ports may differ.
fn template(from: (MacAddress, Ipv4Addr), to: (MacAddress, Ipv4Addr)) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let ether_type = ethernet::ether_type::IPV4;
    let header = ethernet::Repr { destination: to.0, source: from.0, ether_type };
    let at = header.emit(&mut frame);
    let payload_length = (FRAME_BYTES - TRANSPORT_AT) as u16;
    let (source, destination, protocol) = (from.1, to.1, protocol::UDP);
    let packet = ipv4::Repr { source, destination, protocol, hop_limit: 64, payload_length };
    packet.emit(&mut frame[at..]);
    for (word, value) in [PORT, PORT, payload_length].into_iter().enumerate() {
        let at = TRANSPORT_AT + word * 2;
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_wire::digest::{Digest, fields};

    #[test]
    fn each_flow_has_its_turn_and_one_is_what_txonly_sends() {
        let (source, destination) = (fields::SOURCE_PORT, fields::DESTINATION_PORT);
        let mut flows = Flows::of_peer(3);
        let mut ports = || {
            let digest = Digest::of(flows.next_frame());
            (digest.field(source), digest.field(destination))
        };
        assert_eq!(
            [ports(), ports(), ports(), ports()],
            [(1024, 9), (1025, 9), (1026, 9), (1024, 9)]
        );
        let digest = Digest::of(Flows::of_host(1).next_frame());
        assert_eq!((digest.field(source), digest.field(destination)), (9, 9));
        let last = Flows { next: FLOWS_MAX - 1, ..Flows::of_host(FLOWS_MAX) };
        let mut last = last;
        assert_eq!(Digest::of(last.next_frame()).field(destination), 65534);
        assert_eq!(Digest::of(last.next_frame()).field(destination), 1024);
    }
}
