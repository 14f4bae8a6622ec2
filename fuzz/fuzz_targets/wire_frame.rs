//! An Ethernet frame down to UDP or ICMP: nothing panics, what a repr says fits what a view says,
//! and what was parsed comes out the same when it is emitted and parsed again.
#![no_main]

use clearway_wire::ethernet::ether_type;
use clearway_wire::udp::Check;
use clearway_wire::{Malformed, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, protocol, udp, vlan};
use core::net::Ipv6Addr;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let _ = walk(frame);
});

fn walk(frame: &[u8]) -> Result<(), Malformed> {
    let view = ethernet::View::new(frame)?;
    let header = ethernet::Repr::parse(&view)?;
    if header.ether_type != ether_type::VLAN {
        return walk_payload(header.ether_type, view.payload());
    }
    let view = vlan::View::new(view.payload())?;
    let tag = vlan::Repr::parse(&view)?;
    let mut bytes = [0; vlan::TAG_LENGTH];
    tag.emit(&mut bytes);
    assert_eq!(vlan::Repr::parse(&vlan::View::new(&bytes)?), Ok(tag));
    walk_payload(tag.ether_type, view.payload())
}

fn walk_payload(ether_type: u16, payload: &[u8]) -> Result<(), Malformed> {
    match ether_type {
        ether_type::ARP => walk_arp(payload),
        ether_type::IPV4 => walk_ipv4(payload),
        ether_type::IPV6 => walk_ipv6(payload),
        _ => Ok(()),
    }
}

fn walk_arp(packet: &[u8]) -> Result<(), Malformed> {
    let arp = arp::Repr::parse(&arp::View::new(packet)?)?;
    let mut bytes = [0; arp::LENGTH];
    arp.emit(&mut bytes);
    assert_eq!(bytes, packet[..arp::LENGTH]);
    Ok(())
}

fn walk_ipv4(packet: &[u8]) -> Result<(), Malformed> {
    let view = ipv4::View::new(packet)?;
    let _ = ipv4::Repr::parse(&view, true);
    let ip = ipv4::Repr::parse(&view, false)?;
    assert_eq!(view.payload().len(), usize::from(ip.payload_length));
    let mut bytes = vec![0; ipv4::HEADER_LENGTH + usize::from(ip.payload_length)];
    ip.emit(&mut bytes);
    assert_eq!(ipv4::Repr::parse(&ipv4::View::new(&bytes)?, true), Ok(ip));
    match ip.protocol {
        protocol::UDP => walk_udp(view.payload(), Check::V4(ip.source, ip.destination)),
        protocol::ICMPV4 => walk_icmpv4(view.payload()),
        _ => Ok(()),
    }
}

fn walk_ipv6(packet: &[u8]) -> Result<(), Malformed> {
    let view = ipv6::View::new(packet)?;
    let ip = ipv6::Repr::parse(&view)?;
    assert_eq!(view.payload().len(), usize::from(ip.payload_length));
    match ip.protocol {
        protocol::UDP => walk_udp(view.payload(), Check::V6(ip.source, ip.destination)),
        protocol::ICMPV6 => walk_icmpv6(view.payload(), ip.source, ip.destination),
        _ => Ok(()),
    }
}

fn walk_udp(packet: &[u8], check: Check) -> Result<(), Malformed> {
    let view = udp::View::new(packet)?;
    let _ = udp::Repr::parse(&view, check);
    let udp = udp::Repr::parse(&view, Check::Skip)?;
    assert_eq!(view.payload().len(), usize::from(udp.payload_length));
    Ok(())
}

/// The checksum is made right first: no fuzzer guesses it.
fn walk_icmpv4(packet: &[u8]) -> Result<(), Malformed> {
    let _ = icmpv4::View::new(packet).map(|view| icmpv4::Repr::parse(&view));
    let mut packet = packet.to_vec();
    mend(&mut packet, clearway_wire::checksum::Sum::new())?;
    let repr = icmpv4::Repr::parse(&icmpv4::View::new(&packet)?)?;
    if let icmpv4::Repr::Unreachable { quote, .. } | icmpv4::Repr::TimeExceeded { quote, .. } = repr
    {
        let _ = ipv4::View::new(quote).map(|view| udp::View::new(view.payload_of_quote()).is_ok());
    }
    let mut bytes = vec![0; repr.length()];
    repr.emit(&mut bytes);
    assert_eq!(icmpv4::Repr::parse(&icmpv4::View::new(&bytes)?), Ok(repr));
    Ok(())
}

fn walk_icmpv6(packet: &[u8], from: Ipv6Addr, to: Ipv6Addr) -> Result<(), Malformed> {
    let _ = icmpv6::View::new(packet).map(|view| icmpv6::Repr::parse(&view, from, to));
    let mut packet = packet.to_vec();
    let length = packet.len() as u32;
    let pseudo = clearway_wire::checksum::pseudo_header_v6(from, to, protocol::ICMPV6, length);
    mend(&mut packet, pseudo)?;
    let repr = icmpv6::Repr::parse(&icmpv6::View::new(&packet)?, from, to)?;
    let mut bytes = vec![0; repr.length()];
    repr.emit(&mut bytes, from, to);
    assert_eq!(icmpv6::Repr::parse(&icmpv6::View::new(&bytes)?, from, to), Ok(repr));
    Ok(())
}

fn mend(packet: &mut [u8], pseudo: clearway_wire::checksum::Sum) -> Result<(), Malformed> {
    packet.get_mut(2..4).ok_or(Malformed::Truncated)?.fill(0);
    let checksum = pseudo.with(packet).checksum();
    packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}
