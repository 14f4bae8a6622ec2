//! From the bytes of a frame to its digest. Never panics and never allocates.

use super::{Digest, Layer, Network, WORDS, fields};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::{ethernet, ethernet::ether_type, icmpv6, ipv4, ipv6, protocol, udp, vlan};

/// ATA over Ethernet ("AoE (ATA over Ethernet)", specification of 2004, section 2).
const ETHER_TYPE_AOE: u16 = 0x88a2;
const AOE_HEADER_LENGTH: usize = 10;
const ARP_LENGTH: usize = 28;
/// Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4 (RFC 826).
const ARP_ETHERNET_IPV4: u64 = 0x0001_0800_0604_0000;
/// IPv6 extension headers that are looked through.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The words of what most frames are: untagged and IPv4, without options and not a fragment, with
/// the whole header of TCP or UDP. `None` for every other. At once, not field by field, since this
/// is done for each frame that passes.
#[inline]
pub(super) fn plain(frame: &[u8]) -> Option<[u64; WORDS]> {
    const NETWORK_AT: usize = ethernet::HEADER_LENGTH;
    const TRANSPORT_AT: usize = NETWORK_AT + ipv4::HEADER_LENGTH;
    const KIND: u64 = fields::NETWORK.place(Network::Ipv4 as u64)
        | fields::LAYER.place(Layer::Ports as u64)
        | ether_type::IPV4 as u64;
    const OFFSETS: u64 = (NETWORK_AT as u64) << 48 | (TRANSPORT_AT as u64) << 24;
    let head = frame.first_chunk::<{ TRANSPORT_AT + udp::HEADER_LENGTH }>()?;
    let protocol = head[NETWORK_AT + 9];
    let needed = match protocol {
        protocol::TCP | protocol::UDP => ipv4::HEADER_LENGTH + header_length(protocol)?,
        _ => return None,
    };
    let total_length = usize::from(u16_at(head, NETWORK_AT + ipv4::TOTAL_LENGTH_AT));
    let is_plain = u16_at(head, NETWORK_AT - 2) == ether_type::IPV4
        && head[NETWORK_AT] == 0x45
        && u16_at(head, NETWORK_AT + 6) & 0x3fff == 0;
    if !is_plain || !(needed..=frame.len() - NETWORK_AT).contains(&total_length) {
        return None;
    }
    Some([
        u64::from(u32_at(head, TRANSPORT_AT)) << 32
            | fields::PROTOCOL.place(u64::from(protocol))
            | KIND,
        u64_at(head, 0) & !0xffff,
        u64_at(head, 6) & !0xffff,
        u64_at(head, NETWORK_AT + 12),
        0,
        0,
        0,
        OFFSETS | (NETWORK_AT + total_length) as u64,
    ])
}

/// The digest of any frame.
pub(super) fn any(frame: &[u8]) -> Digest {
    let mut words = [0; WORDS];
    let Some(head) = frame.first_chunk::<{ ethernet::HEADER_LENGTH }>() else {
        return Digest::from_words(words);
    };
    words[1] = u64_at(head, 0) & !0xffff;
    words[2] = u64_at(head, 6) & !0xffff;
    let (kind, network_at) = match u16_at(head, 12) {
        ether_type::VLAN => match tag(frame, &mut words) {
            Some(inner) => (inner, ethernet::HEADER_LENGTH + vlan::TAG_LENGTH),
            None => return finish(words, Network::Broken, ether_type::VLAN),
        },
        kind => (kind, ethernet::HEADER_LENGTH),
    };
    words[7] = (network_at as u64) << 48;
    let network = match kind {
        ether_type::IPV4 => ipv4(frame, network_at, &mut words),
        ether_type::IPV6 => ipv6(frame, network_at, &mut words),
        ether_type::ARP => arp(&frame[network_at..], &mut words),
        ETHER_TYPE_AOE => aoe(&frame[network_at..], &mut words),
        _ => Some(Network::Other),
    };
    finish(words, network.unwrap_or(Network::Broken), kind)
}

#[inline]
fn finish(mut words: [u64; WORDS], network: Network, kind: u16) -> Digest {
    words[0] |= fields::NETWORK.place(network as u64) | u64::from(kind);
    Digest::from_words(words)
}

/// An 802.1Q tag; returns the ether type behind it. A second tag is not looked behind: it is an
/// ether type like any other. The drop eligible indicator has no place in the digest.
#[inline]
fn tag(frame: &[u8], words: &mut [u64; WORDS]) -> Option<u16> {
    let tag = frame.get(ethernet::HEADER_LENGTH..)?.first_chunk::<{ vlan::TAG_LENGTH }>()?;
    let control = u64::from(u16_at(tag, 0));
    words[0] = fields::TAGGED.place(1);
    words[1] |= fields::VLAN_PRIORITY.place(control >> 13) | fields::VLAN_ID.place(control);
    Some(u16_at(tag, 2))
}

#[inline]
fn ipv4(frame: &[u8], at: usize, words: &mut [u64; WORDS]) -> Option<Network> {
    let packet = &frame[at..];
    let head = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>()?;
    let header_length = usize::from(head[0] & 0xf) * 4;
    let total_length = usize::from(u16_at(head, ipv4::TOTAL_LENGTH_AT));
    if head[0] >> 4 != 4
        || header_length < ipv4::HEADER_LENGTH
        || total_length < header_length
        || total_length > packet.len()
    {
        return None;
    }
    words[3] = u64_at(head, 12);
    let protocol = head[9];
    words[0] |= fields::PROTOCOL.place(u64::from(protocol));
    set_end(words, at + total_length);
    let fragment = u16_at(head, 6) & 0x3fff;
    if has_source_route(&packet[ipv4::HEADER_LENGTH..header_length]) {
        set_layer(words, Layer::Unintelligible);
    } else if fragment & 0x1fff != 0 {
        set_layer(words, Layer::LaterFragment);
    } else {
        words[0] |= fields::FIRST_FRAGMENT.place(u64::from(fragment >> 13));
        let is_icmp = protocol == protocol::ICMPV4;
        transport(frame, at + header_length, at + total_length, protocol, is_icmp, words);
    }
    Some(Network::Ipv4)
}

/// RFC 791, section 3.1: with a loose or strict source route (131, 137), the packet goes to
/// addresses in the option after the destination is reached; so the header's destination does not
/// say where it goes. Options that break off count as well.
#[inline]
fn has_source_route(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let [kind, rest @ ..] = options {
        match *kind {
            END => return false,
            NO_OPERATION => options = rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return true,
            _ => match rest.first().and_then(|&length| options.get(usize::from(length)..)) {
                Some(next) if rest[0] >= 2 => options = next,
                _ => return true,
            },
        }
    }
    false
}

#[inline]
fn ipv6(frame: &[u8], at: usize, words: &mut [u64; WORDS]) -> Option<Network> {
    let packet = &frame[at..];
    let head = packet.first_chunk::<{ ipv6::HEADER_LENGTH }>()?;
    let end = ipv6::HEADER_LENGTH + usize::from(u16_at(head, ipv6::PAYLOAD_LENGTH_AT));
    if head[0] >> 4 != 6 || end > packet.len() {
        return None;
    }
    for (index, word) in words[3..7].iter_mut().enumerate() {
        *word = u64_at(head, 8 + index * 8);
    }
    set_end(words, at + end);
    upper_layer(frame, at + ipv6::HEADER_LENGTH, at + end, head[6], words);
    Some(Network::Ipv6)
}

/// Follows the extension headers. Where the chain ends for any reason but its end, the protocol of
/// the digest is that of the header at which it does.
#[inline]
fn upper_layer(
    frame: &[u8],
    mut at: usize,
    end: usize,
    mut next_header: u8,
    words: &mut [u64; WORDS],
) {
    let start = at;
    let mut fragment_seen = false;
    for _ in 0..=ipv6::EXTENSION_HEADERS_MAX {
        if !matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
            words[0] |= fields::PROTOCOL.place(u64::from(next_header));
            let is_icmp = next_header == protocol::ICMPV6;
            transport(frame, at, end, next_header, is_icmp, words);
            if is_icmp && advertises_another(&frame[at..end], at == start, words) {
                words[2] |= fields::ADVERTISES_ANOTHER.place(1);
            }
            return;
        }
        let Some(header) = frame[at..end].first_chunk::<8>() else { break };
        let mut length = 8 + usize::from(header[1]) * 8;
        match next_header {
            FRAGMENT if fragment_seen => break,
            FRAGMENT => {
                fragment_seen = true;
                length = 8;
                let offset_and_more = u16_at(header, 2);
                if offset_and_more >> 3 != 0 {
                    words[0] |= fields::PROTOCOL.place(u64::from(FRAGMENT));
                    return set_layer(words, Layer::LaterFragment);
                }
                words[0] |= fields::FIRST_FRAGMENT.place(u64::from(offset_and_more));
            }
            // RFC 8200, section 4.1: the hop-by-hop options header "is restricted to appear
            // immediately after an IPv6 header only".
            HOP_BY_HOP if at != start => break,
            // RFC 8200, section 4.4: with segments left, the destination is not the final one.
            ROUTING if header[3] != 0 => break,
            _ => {}
        }
        if at + length > end {
            break;
        }
        (next_header, at) = (header[0], at + length);
    }
    words[0] |= fields::PROTOCOL.place(u64::from(next_header));
    set_layer(words, Layer::Unintelligible);
}

/// True for a neighbour advertisement, unless it follows the IPv6 header `at_once` and its target
/// is the packet's source.
#[inline]
fn advertises_another(message: &[u8], at_once: bool, words: &[u64; WORDS]) -> bool {
    if message.len() < 4 || message[0] != icmpv6::NEIGHBOUR_ADVERTISEMENT {
        return false;
    }
    let target = message.first_chunk::<24>().map(|head| (u64_at(head, 8), u64_at(head, 16)));
    !at_once || target != Some((words[3], words[4]))
}

/// Ports, or type and code, if the whole header is there; nothing of the packet if it breaks off.
#[inline]
fn transport(
    frame: &[u8],
    at: usize,
    end: usize,
    protocol: u8,
    is_icmp: bool,
    words: &mut [u64; WORDS],
) {
    words[7] |= (at as u64) << 24;
    let header = &frame[at..end];
    let (layer, needed) = match header_length(protocol) {
        Some(needed) => (Layer::Ports, needed),
        None if is_icmp => (Layer::Icmp, 4),
        None => return,
    };
    if header.len() < needed {
        return set_layer(words, Layer::Unintelligible);
    }
    words[0] |= match layer {
        Layer::Ports => u64::from(u32_at(header, 0)) << 32,
        _ => u64::from(u16_at(header, 0)) << 32,
    };
    set_layer(words, layer);
}

/// The least length of the header of a protocol that begins with two ports.
#[inline]
const fn header_length(protocol: u8) -> Option<usize> {
    Some(match protocol {
        protocol::TCP => 20,
        protocol::UDP | protocol::UDP_LITE => 8,
        protocol::SCTP | protocol::DCCP => 12,
        _ => return None,
    })
}

#[inline]
fn arp(packet: &[u8], words: &mut [u64; WORDS]) -> Option<Network> {
    let packet = packet.first_chunk::<ARP_LENGTH>()?;
    if u64_at(packet, 0) & !0xffff != ARP_ETHERNET_IPV4 {
        return None;
    }
    words[0] |= fields::ARP_OPERATION.place(u64::from(u16_at(packet, 6)));
    words[3] = u64::from(u32_at(packet, 14)) << 32 | u64::from(u32_at(packet, 24));
    words[4] = u64_at(packet, 8) >> 16;
    words[5] = u64_at(packet, 18) >> 16;
    Some(Network::Arp)
}

#[inline]
fn aoe(packet: &[u8], words: &mut [u64; WORDS]) -> Option<Network> {
    let packet = packet.first_chunk::<AOE_HEADER_LENGTH>()?;
    // Behind version, flags and error: major, minor, command, tag.
    words[3] = u64_at(packet, 2);
    Some(Network::Aoe)
}

#[inline]
fn set_layer(words: &mut [u64; WORDS], layer: Layer) {
    words[0] |= fields::LAYER.place(layer as u64);
}

#[inline]
fn set_end(words: &mut [u64; WORDS], end: usize) {
    words[7] |= end as u64;
}
