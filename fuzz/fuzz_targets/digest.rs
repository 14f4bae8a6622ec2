//! The digest of any bytes: nothing panics, fields are there only where the kind says so, and what
//! follows an IP packet changes nothing.
#![no_main]

use clearway_wire::digest::{Digest, Layer, Network, fields};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let digest = Digest::of(frame);
    assert!(digest.packet_end() <= frame.len());
    assert!(digest.network_at() <= digest.transport_at() || digest.transport_at() == 0);
    let ports = (digest.field(fields::SOURCE_PORT), digest.field(fields::DESTINATION_PORT));
    let is_ip = matches!(digest.network(), Network::Ipv4 | Network::Ipv6);
    if !is_ip {
        assert_eq!(digest.layer(), Layer::None);
    }
    match digest.layer() {
        Layer::Ports => {
            let at = digest.transport_at();
            let read = |at: usize| u64::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            assert_eq!(ports, (read(at), read(at + 2)));
        }
        Layer::Icmp => {}
        _ if digest.network() == Network::Arp => {}
        _ => assert_eq!(ports, (0, 0)),
    }
    if is_ip {
        assert_eq!(Digest::of(&[frame, &[0xaa; 9]].concat()), digest);
    }
});
