//! What the network says about the size of packets.

use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_wire::clearway::{Packet, PacketType};

use super::Endpoint;

/// The headers of IP and UDP.
const HEADERS_V4: u32 = 20 + 8;
const HEADERS_V6: u32 = 40 + 8;
/// RFC 8200, section 5: "IPv6 requires that every link in the Internet have an MTU of 1280 octets
/// or greater."
const MTU_MIN_V6: u32 = 1280;

impl Endpoint {
    /// The own link takes UDP payloads of up to `bytes` from now on. Flows send nothing larger, and
    /// those whose peers take larger packets than they have sent so far try them.
    pub fn set_packet_bytes_max(&mut self, now: Time, bytes: u16) {
        self.config.packet_bytes_max = bytes;
        for slot in 0..self.slots.len() {
            if let Some(flow) = &mut self.slots[slot].flow {
                flow.follow_link(now, bytes);
                self.update(now, slot);
            }
        }
    }

    /// The own NIC takes UDP payloads of up to `bytes`, whatever its link takes now. New flows
    /// announce it.
    pub fn set_packet_bytes_taken(&mut self, bytes: u16) {
        self.config.packet_bytes_taken = bytes;
    }

    /// Takes an ICMP message that says that a UDP payload of ours to `peer`, of which `quote` is
    /// the beginning, was in an IP packet of more than `mtu` bytes and did not pass; an `mtu` of 0
    /// is not known (RFC 1191, section 5). It is believed if it quotes the number of a packet that
    /// is in flight and that is larger (RFC 8899, section 4.6.1); routers that quote less than our
    /// header are not believed, and their black holes are found by the losses.
    pub fn handle_packet_too_big(&mut self, now: Time, peer: SocketAddr, quote: &[u8], mtu: u32) {
        let quoted = Packet::new(quote).ok();
        let data = quoted.filter(|packet| packet.type_octet() == PacketType::Data as u8);
        let slot = data.and_then(|data| {
            let slot = *self.by_peer.get(&(peer.ip(), data.flow()))?;
            let flow = self.slots[slot as usize].flow.as_mut()?;
            flow.handle_packet_too_big(now, data.number(), payload_bytes(peer.ip(), mtu))
                .then_some(slot)
        });
        match slot {
            Some(slot) => self.update(now, slot as usize),
            None => self.counters.dropped_unsolicited += 1,
        }
    }
}

/// The UDP payload that fits into an IP packet of `mtu` bytes.
fn payload_bytes(peer: IpAddr, mtu: u32) -> u16 {
    let bytes = match peer {
        IpAddr::V4(_) => mtu.saturating_sub(HEADERS_V4),
        IpAddr::V6(_) => mtu.max(MTU_MIN_V6) - HEADERS_V6,
    };
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
