//! What a VIF may send, without engine or NIC: against frames whose making says whether it may.

mod apps;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_base::Random;
use clearway_channel::FrameRefusal;
use clearway_nic::MacAddress;
use clearway_wire::digest::Digest;

use super::*;
use crate::testing::{MAC, NOW, OTHER_MAC, filter, v4};

/// What a frame is made of.
#[derive(Clone, Copy, Debug)]
struct Making {
    source_mac: MacAddress,
    /// VLAN ids of the tags.
    tags: [Option<u16>; 2],
    source: IpAddr,
    protocol: u8,
    /// Its offset, and whether more follow, if it is a fragment.
    fragment: Option<(u16, bool)>,
    /// IPv4 options, or an IPv6 header of destination options.
    has_options: bool,
    source_port: u16,
    /// Bytes cut off its end.
    cut: usize,
}

impl Making {
    fn random(random: &mut Random) -> Self {
        let mut one_of = |values: &[u16]| values[random.below(values.len() as u64) as usize];
        let address = [
            v4(1),
            v4(2),
            "fd00::1".parse().expect("an address"),
            "fd00::1:1".parse().expect("an address"),
            "fd01::1".parse().expect("an address"),
        ];
        let vlan = |id: u16| (id > 0).then_some(id);
        let outer = vlan(one_of(&[0, 0, 7, 8]));
        Self {
            source_mac: [MAC, MAC, OTHER_MAC][usize::from(one_of(&[0, 1, 2]))],
            tags: [outer, outer.and(vlan(one_of(&[0, 0, 7])))],
            source: address[usize::from(one_of(&[0, 0, 1, 2, 2, 3, 4]))],
            protocol: one_of(&[17, 17, 17, 6, 1]) as u8,
            fragment: [None, Some((0, true)), Some((16, true)), Some((16, false))]
                [usize::from(one_of(&[0, 0, 0, 1, 2, 3]))],
            has_options: one_of(&[0, 0, 1]) == 1,
            source_port: one_of(&[999, 1000, 1001, 1007, 1008, 1500]),
            cut: usize::from(one_of(&[0, 0, 0, 1, 4, 20])),
        }
    }

    fn frame(&self) -> Vec<u8> {
        let transport =
            [&self.source_port.to_be_bytes()[..], &[0, 9, 0, 24, 0, 0], &[0; 16]].concat();
        let (ether_type, packet) = match self.source {
            IpAddr::V4(source) => (0x0800_u16, self.ipv4(source, &transport)),
            IpAddr::V6(source) => (0x86dd, self.ipv6(source, &transport)),
        };
        let mut frame = [OTHER_MAC, self.source_mac].concat();
        for tag in self.tags.into_iter().flatten() {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame.truncate(frame.len() - self.cut);
        frame
    }

    fn ipv4(&self, source: Ipv4Addr, transport: &[u8]) -> Vec<u8> {
        let options: &[u8] = if self.has_options { &[1; 4] } else { &[] };
        let length = (20 + options.len() + transport.len()) as u16;
        let fragment = self.fragment.map_or(0, |(at, more)| (at / 8) | (u16::from(more) << 13));
        let mut packet = vec![0x45 + (options.len() / 4) as u8, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, self.protocol, 0, 0]);
        [&packet[..], &source.octets(), &[10, 9, 9, 9], options, transport].concat()
    }

    fn ipv6(&self, source: Ipv6Addr, transport: &[u8]) -> Vec<u8> {
        let (mut next, mut payload) = (self.protocol, transport.to_vec());
        if let Some((at, more)) = self.fragment {
            let [high, low] = (at & 0xfff8 | u16::from(more)).to_be_bytes();
            payload = [&[next, 0, high, low, 0, 0, 0, 1][..], &payload].concat();
            next = 44;
        }
        if self.has_options {
            payload = [&[next, 0, 1, 4, 0, 0, 0, 0][..], &payload].concat();
            next = 60;
        }
        let [high, low] = (payload.len() as u16).to_be_bytes();
        let destination: Ipv6Addr = "fd00::99".parse().expect("an address");
        let head = [0x60, 0, 0, 0, high, low, next, 64];
        [&head[..], &source.octets(), &destination.octets(), &payload].concat()
    }

    /// Whether a frame made so may be sent by a VIF with these rights.
    fn may_be_sent(&self, rights: &Rights) -> bool {
        let tag = match self.tags {
            [outer, None] => outer,
            [_, Some(_)] => return false, // what is behind two tags is not looked at
        };
        let is_later = self.fragment.is_some_and(|(at, _)| at > 0);
        self.source_mac == MAC
            && tag == rights.tag
            && self.source == rights.source
            && self.protocol == 17
            && !is_later
            && self.cut == 0
            && (rights.first_port..=rights.last_port).contains(&self.source_port)
    }
}

/// What a VIF may send: UDP from ports of an address, with a tag or without.
#[derive(Clone, Copy, Debug)]
struct Rights {
    tag: Option<u16>,
    source: IpAddr,
    first_port: u16,
    last_port: u16,
}

impl Rights {
    fn random(random: &mut Random) -> Self {
        let Making { tags: [tag, _], source, .. } = Making::random(random);
        let (first_port, last_port) =
            [(1000, 1000), (1000, 1007), (1000, 1008), (999, 1001)][random.below(4) as usize];
        Self { tag, source, first_port, last_port }
    }

    fn spec(&self) -> VifSpec {
        let Self { source, first_port, last_port, .. } = self;
        let tag = self.tag.map_or(String::new(), |id| format!("vlan {id} and "));
        let text = format!(
            "ether src 02:00:00:00:00:01 and {tag}src host {source} and \
             udp src portrange {first_port}-{last_port}"
        );
        VifSpec { transmit: vec![filter(&text)], mac: MAC, ..VifSpec::default() }
    }
}

/// Untagged, with one tag and with two, IPv4 and IPv6, fragments, options: the short cut for whole
/// bursts and the check of one frame both let through exactly what may be sent.
#[test]
fn short_cut_and_check_allow_what_may_be_sent_and_nothing_else() {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (mut switch, mut frames) = (Switch::new(MAC, Vec::new()), Frames::new());
        let rights = [(); 2].map(|()| Rights::random(&mut random));
        for (id, rights) in rights.iter().enumerate() {
            frames.insert(&mut switch, 1, id as u32, rights.spec());
        }
        for (id, rights) in rights.iter().enumerate() {
            let key = frames.keys[&(1, id as u32)];
            for _ in 0..8 {
                let made: Vec<Making> = (0..32).map(|_| Making::random(&mut random)).collect();
                let digests: Vec<Digest> =
                    made.iter().map(|making| Digest::of(&making.frame())).collect();
                let clear = frames.clear_for_wire(&switch, key, &digests);
                for (at, making) in made.iter().enumerate() {
                    let expected = making.may_be_sent(rights);
                    let checked = frames.check(&switch, NOW, key, &digests[at]);
                    assert_eq!(checked.is_ok(), expected, "seed {seed}: {making:?}, {rights:?}");
                    assert_eq!(clear >> at & 1 == 1, expected, "{making:?}, {rights:?}");
                    (allowed, refused) =
                        (allowed + u64::from(expected), refused + u64::from(!expected));
                }
            }
        }
    }
    assert!(allowed > 500 && refused > 500, "{allowed} allowed, {refused} refused");
}

/// What is to this host, or is rationed, is not for the wire alone; what is not there sends
/// nothing.
#[test]
fn short_cut_is_for_what_goes_to_the_wire_alone() {
    let rights = Rights { tag: None, source: v4(1), first_port: 1000, last_port: 1000 };
    let mut making = Making::random(&mut Random::new(0));
    (making.source_mac, making.tags, making.source, making.protocol) = (MAC, [None; 2], v4(1), 17);
    (making.fragment, making.source_port, making.cut) = (None, 1000, 0);
    let mut frame = making.frame();
    let to_wire = [Digest::of(&frame)];
    frame[..6].copy_from_slice(&MAC);
    let to_host = [Digest::of(&frame)];
    frame[..6].copy_from_slice(&[0xff; 6]);
    let to_all = [Digest::of(&frame)];
    let (mut switch, mut frames) = (Switch::new(MAC, Vec::new()), Frames::new());
    frames.insert(&mut switch, 1, 1, rights.spec());
    let rationed = VifSpec { rate_frames_per_s: Some(1), ..rights.spec() };
    frames.insert(&mut switch, 1, 2, rationed);
    let [free, rationed] = [1, 2].map(|id| frames.keys[&(1, id)]);
    let clear = |of| frames.clear_for_wire(&switch, free, of);
    assert_eq!([&to_wire, &to_host, &to_all].map(|of| clear(of)), [1, 0, 0]);
    assert_eq!(frames.clear_for_wire(&switch, rationed, &to_wire), 0);
    assert_eq!(frames.check(&switch, NOW, rationed, &to_wire[0]), Ok(()));
    assert_eq!(frames.check(&switch, NOW, rationed, &to_wire[0]), Err(FrameRefusal::Rate));
    frames.take(&mut switch, free);
    assert_eq!(frames.free.len(), 1);
    assert_eq!(frames.clear_for_wire(&switch, free, &to_wire), 0);
    assert_eq!(frames.check(&switch, NOW, free, &to_wire[0]), Err(FrameRefusal::Nothing));
}
