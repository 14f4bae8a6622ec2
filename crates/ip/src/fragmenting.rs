//! Echo answers that are longer than a packet of the link, in fragments. Nothing else that this
//! host sends is cut: whoever sends more learns what passes (`too_large`).
//!
//! RFC 1122, section 3.2.2.6: "Data received in an ICMP Echo Request MUST be entirely included in
//! the resulting Echo Reply"; RFC 4443, section 4.2, says the same.

use super::answers::LinkHeader;
use super::outbox::FRAME_BYTES_MAX;
use super::path::{HOP_LIMIT, ip_header_length};
use super::{DropReason, Interface};
use clearway_wire::fragment::{self, Place, UNIT};
use clearway_wire::icmpv4::Echo;
use clearway_wire::{ethernet, ipv4, ipv6, protocol, vlan};
use core::net::IpAddr;

/// The longest packet that has room in a frame of the interface's own.
const PACKET_BYTES_MAX: usize = FRAME_BYTES_MAX - ethernet::HEADER_LENGTH - vlan::TAG_LENGTH;

/// The number of an answer's packet. Whoever asks has given the question its own, and has few
/// questions with the same at a time: so it says no more about this host than that it answers.
pub(super) fn identification(echo: &Echo<'_>) -> u32 {
    let Echo { identifier, sequence, .. } = *echo;
    u32::from(identifier) << 16 | u32::from(identifier.wrapping_add(sequence))
}

impl Interface {
    /// True if a packet of the link has no room for so many bytes behind its IP header.
    pub(super) fn has_to_be_cut(&self, length: usize, destination: IpAddr) -> bool {
        length > self.packet_bytes().saturating_sub(ip_header_length(destination))
    }

    /// The longest packet that the interface sends itself.
    fn packet_bytes(&self) -> usize {
        usize::from(self.mtu).min(PACKET_BYTES_MAX)
    }

    /// Queues all fragments of a message of ICMP, or none.
    pub(super) fn push_fragments(
        &mut self,
        link: &LinkHeader,
        source: IpAddr,
        destination: IpAddr,
        identification: u32,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let head_length = head_length(destination);
        let part_bytes = self.packet_bytes().saturating_sub(head_length) / UNIT * UNIT;
        if part_bytes == 0 || message.len().div_ceil(part_bytes) > self.outbox.room() {
            return Err(DropReason::OutboxFull);
        }
        for (part, number) in message.chunks(part_bytes).zip(0..) {
            let offset = number * part_bytes;
            let is_last = offset + part.len() == message.len();
            let place = Place { identification, offset: offset as u16, is_last };
            self.push(link.length() + head_length + part.len(), |frame| {
                let at = link.emit(frame, destination);
                let at = at + emit_head(&place, source, destination, part, &mut frame[at..]);
                frame[at..].copy_from_slice(part);
            })?;
        }
        Ok(())
    }
}

/// The length of a fragment's head.
fn head_length(destination: IpAddr) -> usize {
    let fragment = if destination.is_ipv4() { 0 } else { fragment::HEADER_LENGTH };
    ip_header_length(destination) + fragment
}

/// Writes the head in front of `part`. Returns its length.
fn emit_head(
    place: &Place,
    source: IpAddr,
    destination: IpAddr,
    part: &[u8],
    bytes: &mut [u8],
) -> usize {
    let (payload_length, hop_limit) = (part.len() as u16, HOP_LIMIT); // no longer than a frame
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let protocol = protocol::ICMPV4;
            let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
            place.emit_v4(&ip, bytes)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let protocol = protocol::ICMPV6;
            let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
            place.emit_v6(&ip, bytes)
        }
        _ => panic!("a packet from {source} to {destination}: one IPv4, the other IPv6"),
    }
}
