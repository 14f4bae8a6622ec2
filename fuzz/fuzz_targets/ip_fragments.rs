//! Fragments of any kind and order to a host's IP layer, over time: nothing panics, what comes out
//! is a packet that the same layer takes, and what is saved is restored.
//!
//! Each step is a byte that says what is done, and what that needs:
//!
//! ```text
//! 0mmmppvl  a fragment of packet m: its protocol, IP version and whether it is the last; then its
//!           offset and length, a byte each
//! 10..nnnn  a frame of up to 2^n bytes, as they come
//! 11......  so many seconds go by
//! ```
#![no_main]

use clearway_base::{SECOND, Time};
use clearway_ip::{Config, Interface};
use clearway_wire::fragment::Place;
use clearway_wire::{ethernet, ipv4, ipv6};
use core::net::{Ipv4Addr, Ipv6Addr};
use libfuzzer_sys::fuzz_target;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn config() -> Config {
    Config {
        mac: MAC,
        addresses: vec![(OWN_V4.into(), 24), (OWN_V6.into(), 64)],
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    }
}

fuzz_target!(|input: &[u8]| {
    let mut host = Interface::silent(&config());
    let (mut now, mut input) = (Time::from_ns(SECOND), input);
    while let [step, rest @ ..] = input {
        input = rest;
        if step >> 6 == 0b11 {
            now = now + u64::from(step & 0x3f) * SECOND;
            advance(&mut host, now);
        } else if step >> 6 == 0b10 {
            let length = (1 << (step & 0xf)).min(input.len());
            let (frame, rest) = input.split_at(length);
            input = rest;
            take(&mut host, now, frame);
        } else if let [offset, length, rest @ ..] = input {
            input = rest;
            take(&mut host, now, &fragment(*step, *offset, *length));
        }
    }
    let saved = host.save();
    let again = Interface::silent(&config()).restore(saved.clone(), now).expect("as it was saved");
    assert_eq!(again.save(), saved);
});

fn advance(host: &mut Interface, now: Time) {
    if host.poll_timeout().is_some_and(|due| due <= now) {
        host.handle_timeout(now);
    }
    while host.poll_transmit(&mut [0; 2048]) > 0 {}
}

fn take(host: &mut Interface, now: Time, frame: &[u8]) {
    if let Ok(Some(whole)) = host.handle_fragment(now, frame) {
        host.packet(&whole).expect("a packet, and of a source that may be");
        let _ = host.handle_icmp(now, &whole);
        let _ = host.refuse_datagram(now, &whole);
    }
    while host.poll_transmit(&mut [0; 2048]) > 0 {}
}

fn fragment(step: u8, offset: u8, length: u8) -> Vec<u8> {
    let identification = u32::from(step >> 4);
    let place = Place { identification, offset: u16::from(offset) * 8, is_last: step & 1 != 0 };
    let protocol = [1, 58, 17, 99][usize::from(step >> 2 & 3)];
    let part = vec![8; usize::from(length)];
    let (hop_limit, payload_length) = (64, part.len() as u16);
    let mut frame = vec![0; 14 + 48 + part.len()];
    let is_v4 = step & 2 == 0;
    let ether_type = if is_v4 { 0x0800 } else { 0x86dd };
    ethernet::Repr { destination: MAC, source: [2; 6], ether_type }.emit(&mut frame);
    let head = if is_v4 {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 2), OWN_V4);
        let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
        place.emit_v4(&ip, &mut frame[14..])
    } else {
        let (source, destination) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2), OWN_V6);
        let ip = ipv6::Repr { source, destination, protocol, hop_limit, payload_length };
        place.emit_v6(&ip, &mut frame[14..])
    };
    frame[14 + head..][..part.len()].copy_from_slice(&part);
    frame.truncate(14 + head + part.len());
    frame
}
