//! One line per packet, in the manner of tcpdump. From the digest where it says enough, else from
//! the bytes behind it; takes any bytes. What is printed of a packet's content is only what `--hex`
//! asks for.
//!
//! ```text
//! 12:34:56.000000001Z IP 10.0.0.1.4000 > 10.0.0.2.5353: UDP, length 20
//! 12:34:56.000000002Z vlan 7, ARP, who has 10.0.0.2, tell 10.0.0.1
//! ```

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_wire::clearway::{Packet, PacketType};
use clearway_wire::digest::{Digest, Field, Layer, Network, fields};
use clearway_wire::{MacAddress, arp, ethernet, protocol, udp};

/// Bytes per line of [`hex`], as `tcpdump -XX` has them.
const HEX_BYTES_PER_LINE: usize = 16;

/// A time since 1970 as the time of that day, UTC.
pub(super) fn time_of_day(time_ns: u64) -> String {
    let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{ns:09}Z", seconds % 60)
}

/// What a frame is, in a line. `udp_port` is that of the message service.
pub(super) fn line(frame: &[u8], udp_port: u16) -> String {
    let digest = Digest::of(frame);
    let mut line = String::new();
    if digest.field(fields::TAGGED) == 1 && digest.network() != Network::Broken {
        line += &format!("vlan {}, ", digest.field(fields::VLAN_ID));
    }
    line += &match digest.network() {
        Network::Runt => format!("{} bytes that are no Ethernet frame", frame.len()),
        Network::Arp => arp_line(&digest),
        Network::Aoe => aoe_line(&digest, frame.len()),
        Network::Ipv4 | Network::Ipv6 => ip_line(&digest, frame, udp_port),
        Network::Other | Network::Broken => other_line(&digest, frame.len()),
    };
    line
}

/// The bytes of a frame, sixteen to a line, with what can be printed beside them.
pub(super) fn hex(frame: &[u8]) -> String {
    let mut text = String::new();
    for (index, bytes) in frame.chunks(HEX_BYTES_PER_LINE).enumerate() {
        let mut digits = String::new();
        for pair in bytes.chunks(2) {
            pair.iter().for_each(|byte| push(&mut digits, format_args!("{byte:02x}")));
            digits.push(' ');
        }
        let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let characters: String = bytes.iter().map(printable).collect();
        let at = index * HEX_BYTES_PER_LINE;
        push(&mut text, format_args!("    0x{at:04x}:  {digits:<40} {characters}\n"));
    }
    text
}

/// Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

fn arp_line(digest: &Digest) -> String {
    let (sender, target) = (ipv4(digest, fields::ARP_SENDER), ipv4(digest, fields::ARP_TARGET));
    let operation = digest.field(fields::ARP_OPERATION);
    if operation == arp::Operation::Request as u64 {
        format!("ARP, who has {target}, tell {sender}")
    } else if operation == arp::Operation::Reply as u64 {
        let [_, _, mac @ ..] = digest.field(fields::ARP_SENDER_MAC).to_be_bytes();
        format!("ARP, {sender} is at {}", mac_text(mac))
    } else {
        format!("ARP, operation {operation}, sender {sender}, target {target}")
    }
}

fn aoe_line(digest: &Digest, length: usize) -> String {
    format!(
        "{}: AoE, major {}, minor {}, command {}, tag {:#010x}, length {length}",
        macs(digest),
        digest.field(fields::AOE_MAJOR),
        digest.field(fields::AOE_MINOR),
        digest.field(fields::AOE_COMMAND),
        digest.field(fields::AOE_TAG),
    )
}

fn other_line(digest: &Digest, length: usize) -> String {
    let malformed = if digest.network() == Network::Broken { " (malformed)" } else { "" };
    let ether_type = digest.field(fields::ETHER_TYPE);
    format!("{}: ether type {ether_type:#06x}{malformed}, length {length}", macs(digest))
}

fn ip_line(digest: &Digest, frame: &[u8], udp_port: u16) -> String {
    let (kind, source, destination) = addresses(digest);
    let has_ports = digest.layer() == Layer::Ports;
    let end = |address: IpAddr, port: Field| match has_ports {
        true => format!("{address}.{}", digest.field(port)),
        false => address.to_string(),
    };
    let mut line = format!(
        "{kind} {} > {}: {}",
        end(source, fields::SOURCE_PORT),
        end(destination, fields::DESTINATION_PORT),
        upper(digest, frame, udp_port),
    );
    if digest.field(fields::FIRST_FRAGMENT) == 1 {
        line += ", first fragment";
    }
    line
}

fn addresses(digest: &Digest) -> (&'static str, IpAddr, IpAddr) {
    if digest.network() == Network::Ipv4 {
        let source = ipv4(digest, fields::IPV4_SOURCE);
        return ("IP", source.into(), ipv4(digest, fields::IPV4_DESTINATION).into());
    }
    let source = ipv6(digest, fields::IPV6_SOURCE_HIGH, fields::IPV6_SOURCE_LOW);
    let destination = ipv6(digest, fields::IPV6_DESTINATION_HIGH, fields::IPV6_DESTINATION_LOW);
    ("IP6", source.into(), destination.into())
}

fn ipv4(digest: &Digest, field: Field) -> Ipv4Addr {
    Ipv4Addr::from_bits(digest.field(field) as u32)
}

fn ipv6(digest: &Digest, high: Field, low: Field) -> Ipv6Addr {
    let (high, low) = (u128::from(digest.field(high)), u128::from(digest.field(low)));
    Ipv6Addr::from_bits(high << 64 | low)
}

/// What follows the IP headers. Lengths are those of its payload, without its own header.
fn upper(digest: &Digest, frame: &[u8], udp_port: u16) -> String {
    let number = digest.field(fields::PROTOCOL) as u8;
    let name = protocol_name(number);
    let packet = frame.get(digest.transport_at()..digest.packet_end()).unwrap_or_default();
    match digest.layer() {
        Layer::LaterFragment => return format!("{name}, later fragment"),
        Layer::Unintelligible => return format!("{name}, unintelligible"),
        Layer::Icmp => return icmp(digest, &name, packet.len()),
        Layer::None => return format!("{name}, length {}", packet.len()),
        Layer::Ports => {}
    }
    match number {
        protocol::TCP => tcp(packet),
        protocol::UDP => {
            let payload = packet.get(udp::HEADER_LENGTH..).unwrap_or_default();
            let ports = [fields::SOURCE_PORT, fields::DESTINATION_PORT];
            let is_ours = ports.iter().any(|port| digest.field(*port) == u64::from(udp_port));
            let message = if is_ours { clearway(payload) } else { None };
            message.unwrap_or_else(|| format!("UDP, length {}", payload.len()))
        }
        _ => format!("{name}, length {}", packet.len()),
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        protocol::ICMPV4 => "ICMP".to_owned(),
        protocol::ICMPV6 => "ICMP6".to_owned(),
        protocol::TCP => "TCP".to_owned(),
        protocol::UDP => "UDP".to_owned(),
        protocol::UDP_LITE => "UDP-Lite".to_owned(),
        protocol::SCTP => "SCTP".to_owned(),
        protocol::DCCP => "DCCP".to_owned(),
        other => format!("protocol {other}"),
    }
}

fn icmp(digest: &Digest, name: &str, length: usize) -> String {
    let (kind, code) = (digest.field(fields::ICMP_TYPE), digest.field(fields::ICMP_CODE));
    let is_ipv4 = digest.network() == Network::Ipv4;
    let meaning = match (is_ipv4, kind) {
        (true, 0) | (false, 129) => "echo reply",
        (true, 8) | (false, 128) => "echo request",
        (true, 3) | (false, 1) => "destination unreachable",
        (true, 11) | (false, 3) => "time exceeded",
        (false, 2) => "packet too big",
        (false, 133) => "router solicitation",
        (false, 134) => "router advertisement",
        (false, 135) => "neighbour solicitation",
        (false, 136) => "neighbour advertisement",
        _ => return format!("{name}, type {kind} code {code}, length {length}"),
    };
    format!("{name} {meaning}, code {code}, length {length}")
}

/// RFC 9293, section 3.1: ports, sequence number, acknowledgement number, data offset, flags,
/// window.
fn tcp(packet: &[u8]) -> String {
    const FLAGS: [(u8, char); 8] = [
        (0x01, 'F'),
        (0x02, 'S'),
        (0x04, 'R'),
        (0x08, 'P'),
        (0x10, '.'),
        (0x20, 'U'),
        (0x40, 'E'),
        (0x80, 'W'),
    ];
    let Some(head) = packet.first_chunk::<20>() else { return "TCP".to_owned() };
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let header_length = usize::from(head[12] >> 4) * 4;
    let flags: String =
        FLAGS.iter().filter(|(bit, _)| head[13] & bit != 0).map(|(_, name)| name).collect();
    let Some(payload) = packet.len().checked_sub(header_length.max(head.len())) else {
        return format!("TCP [{flags}], malformed");
    };
    let (sequence, acknowledged) = (word(4), word(8));
    let window = u16::from_be_bytes([head[14], head[15]]);
    let acknowledged = match flags.contains('.') {
        true => format!(", ack {acknowledged}"),
        false => String::new(),
    };
    format!("TCP [{flags}], seq {sequence}{acknowledged}, win {window}, length {payload}")
}

/// A packet of the message service.
fn clearway(payload: &[u8]) -> Option<String> {
    let packet = Packet::new(payload).ok()?;
    let kind = PACKET_TYPES.iter().find(|(kind, _)| *kind as u8 == packet.type_octet())?.1;
    let (flow, number) = (packet.flow(), packet.number());
    Some(format!("Clearway {kind}, flow {flow:016x}, number {number}, length {}", payload.len()))
}

const PACKET_TYPES: [(PacketType, &str); 8] = [
    (PacketType::Data, "data"),
    (PacketType::Syn, "syn"),
    (PacketType::Challenge, "challenge"),
    (PacketType::SynAck, "syn-ack"),
    (PacketType::Reset, "reset"),
    (PacketType::Version, "version"),
    (PacketType::Ping, "ping"),
    (PacketType::Pong, "pong"),
];

fn macs(digest: &Digest) -> String {
    let mac = |field: Field| {
        let [_, _, mac @ ..] = digest.field(field).to_be_bytes();
        mac_text(mac)
    };
    let destination = mac(fields::MAC_DESTINATION);
    format!("{} > {destination}", mac(fields::MAC_SOURCE))
}

fn mac_text(mac: MacAddress) -> String {
    if mac == ethernet::BROADCAST {
        return "broadcast".to_owned();
    }
    let octets: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
    octets.join(":")
}

#[cfg(test)]
mod tests;
