//! The switch without engine or NIC: what a VIF may send against frames whose making says whether it may, and
//! the host's services while everything around them changes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_base::{Random, Time};
use clearway_channel::FrameRefusal;
use clearway_classify::Filter;

use super::*;
use crate::ip;
use crate::services::entries;
use crate::switch::VifSpec;

const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: MacAddress = [2, 0, 0, 0, 0, 2];
const MESSAGES: u16 = 20707;
const NOW: Time = Time::ZERO;

fn config(addresses: &[IpAddr]) -> ip::Config {
    ip::Config {
        mac: MAC,
        addresses: addresses.iter().map(|address| (*address, 24)).collect(),
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        kernel_shares: false,
        receive_checksum: false,
    }
}

fn switch(addresses: &[IpAddr]) -> Switch {
    Switch::new(MAC, entries(&config(addresses), MESSAGES))
}

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

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

/// Untagged, with one tag and with two, IPv4 and IPv6, fragments, options: the short cut for whole bursts
/// and the check of one frame both let through exactly what may be sent.
#[test]
fn short_cut_and_check_allow_what_may_be_sent_and_nothing_else() {
    let (mut allowed, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut switch = switch(&[v4(1)]);
        let rights = [(); 2].map(|()| Rights::random(&mut random));
        for (id, rights) in rights.iter().enumerate() {
            switch.open(NOW, 1, id as u32, rights.spec());
        }
        for (id, rights) in rights.iter().enumerate() {
            let key = switch.keys[&(1, id as u32)];
            for _ in 0..8 {
                let made: Vec<Making> = (0..32).map(|_| Making::random(&mut random)).collect();
                let digests: Vec<Digest> =
                    made.iter().map(|making| Digest::of(&making.frame())).collect();
                let clear = switch.clear_for_wire(key, &digests);
                for (at, making) in made.iter().enumerate() {
                    let expected = making.may_be_sent(rights);
                    let checked = switch.check(NOW, key, &digests[at]);
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

/// What is to this host, is rationed, or is watched, is not for the wire alone; what is not there sends nothing.
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
    let mut switch = switch(&[v4(1)]);
    switch.open(NOW, 1, 1, rights.spec());
    switch.open(NOW, 1, 2, VifSpec { rate_frames_per_s: Some(1), ..rights.spec() });
    let [free, rationed] = [1, 2].map(|id| switch.keys[&(1, id)]);
    assert_eq!([&to_wire, &to_host, &to_all].map(|of| switch.clear_for_wire(free, of)), [1, 0, 0]);
    assert_eq!(switch.clear_for_wire(rationed, &to_wire), 0);
    assert_eq!(switch.check(NOW, rationed, &to_wire[0]), Ok(()));
    assert_eq!(switch.check(NOW, rationed, &to_wire[0]), Err(FrameRefusal::Rate));
    switch.close(&mut Channels::default(), 1, 1, None);
    assert_eq!(switch.clear_for_wire(free, &to_wire), 0);
    assert_eq!(switch.check(NOW, free, &to_wire[0]), Err(FrameRefusal::Nothing));
}

/// UDP to a port of this host.
fn to(address: IpAddr, port: u16) -> Digest {
    let IpAddr::V4(address) = address else { panic!("IPv4") };
    let mut frame = [MAC, OTHER_MAC].concat();
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 9, 9]);
    frame.extend(address.octets());
    frame.extend([0, 9]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    Digest::of(&frame)
}

fn owner(switch: &mut Switch, digest: Digest) -> Option<Port> {
    let mut found = [None];
    switch.find(&[digest], &mut found);
    found[0]
}

/// However full the table is of what users have, the host's services have their places, before and after
/// each change of its addresses, and what goes leaves nothing.
#[test]
fn services_stay_while_addresses_come_and_go_and_users_have_all_they_can() {
    let mut switch = switch(&[v4(1)]);
    let mut random = Random::new(1);
    for id in 0..2048 {
        let mask = random.next_u64();
        let text = format!("digest[4] & {mask:#x} = {:#x}", random.next_u64() & mask);
        // One wants all that the services have, too.
        let text = if id == 0 { "udp" } else { &text };
        let spec = VifSpec { receive: vec![filter(text)], ..VifSpec::default() };
        switch.open(NOW, 1, id, VifSpec { priority: PRIORITY_MAX, mac: MAC, ..spec });
    }
    let messages = Some(Port::Service(Service::Messages));
    let refused = Some(Port::Service(Service::Datagrams));
    let mut before = vec![v4(1)];
    for round in 0..20 {
        let now: Vec<IpAddr> =
            (1..=1 + round % 5).map(|last| v4(last * (1 + round / 10))).collect();
        for address in before.iter().chain(&now) {
            let expected = if before.contains(address) { messages } else { None };
            let found = owner(&mut switch, to(*address, MESSAGES));
            assert_eq!(found.filter(|port| matches!(port, Port::Service(_))), expected);
        }
        switch.set_services(entries(&config(&now), MESSAGES));
        for last in 1..20 {
            let is_own = now.contains(&v4(last));
            let services = |port: &Port| matches!(port, Port::Service(_));
            let found = owner(&mut switch, to(v4(last), MESSAGES)).filter(services);
            assert_eq!(found, messages.filter(|_| is_own), "round {round}, address {last}");
            let found = owner(&mut switch, to(v4(last), 5)).filter(services);
            assert!(found.is_none() || found == refused && is_own);
        }
        let ports = switch.ports.iter().flatten().count();
        assert_eq!(ports, 2048 + switch.services.len(), "as many ports as entries");
        before = now;
    }
    switch.remove_channel(1);
    assert_eq!(switch.ports.iter().flatten().count(), switch.services.len());
    assert!(switch.keys.is_empty() && switch.vifs.iter().all(Option::is_none));
    assert_eq!(switch.free.len(), switch.vifs.len());
    assert_eq!(owner(&mut switch, to(before[0], MESSAGES)), messages);
}

/// Of several VIFs with an address of the same, the last takes it along; the NIC's own stays for good.
#[test]
fn addresses_of_vifs_last_as_long_as_one_of_them() {
    let mut switch = switch(&[v4(1)]);
    let at = |last| [2, 9, 9, 9, 9, last];
    let is_here = |switch: &Switch, mac: MacAddress| {
        let mut frame = mac.to_vec();
        frame.extend([2, 1, 1, 1, 1, 1, 8, 6]);
        frame.resize(60, 0);
        matches!(switch.destination(&Digest::of(&frame)), Destination::Here)
    };
    for last in [7, 3, 5, 3] {
        switch.add_mac(at(last));
    }
    switch.add_mac(MAC);
    assert!([3, 5, 7].iter().all(|last| is_here(&switch, at(*last))));
    assert!(!is_here(&switch, at(4)) && !switch.is_simple());
    switch.remove_mac(at(3));
    assert!(is_here(&switch, at(3)), "one is left");
    for last in [3, 5, 7, 7] {
        switch.remove_mac(at(last));
        assert!(!is_here(&switch, at(last)));
    }
    switch.remove_mac(MAC);
    assert!(is_here(&switch, MAC) && switch.is_simple());
}

/// Looking for an address takes no longer for thousands of VIFs with addresses of their own.
#[test]
fn addresses_of_thousands_of_vifs_are_found_at_once() {
    let digests: Vec<Digest> = (0..1000u16)
        .map(|number| {
            let [a, b] = number.to_be_bytes();
            let mut frame = vec![2, 8, 8, 8, a, b, 2, 1, 1, 1, 1, 1, 8, 6];
            frame.resize(60, 0);
            Digest::of(&frame)
        })
        .collect();
    let time = |vifs: u16| {
        let mut switch = switch(&[v4(1)]);
        for number in 0..vifs {
            let [a, b] = number.to_be_bytes();
            switch.add_mac([2, 9, 9, 9, a, b]);
        }
        let once = || {
            let began = std::time::Instant::now();
            for digest in &digests {
                std::hint::black_box(switch.destination(digest));
            }
            began.elapsed()
        };
        (0..50).map(|_| once()).min().unwrap()
    };
    let (few, many) = (time(8), time(8192));
    assert!(many < few * 20, "{few:?} with 8, {many:?} with 8192");
}

/// An entry that stays is not touched by the change of another.
#[test]
fn services_that_stay_keep_their_entries() {
    let mut switch = switch(&[v4(1), v4(2)]);
    let entries_of = |switch: &Switch, address: &str| {
        let of =
            |service: &&(Entry, EntryId)| format!("{:?}", filter_of(&service.0)).contains(address);
        switch.services.iter().filter(of).map(|(_, id)| *id).collect::<Vec<_>>()
    };
    let first = entries_of(&switch, "10.0.0.1");
    assert_eq!(first.len(), 3);
    switch.set_services(entries(&config(&[v4(3), v4(1)]), MESSAGES));
    assert_eq!(entries_of(&switch, "10.0.0.1"), first);
    assert_eq!(
        (entries_of(&switch, "10.0.0.2").len(), entries_of(&switch, "10.0.0.3").len()),
        (0, 3)
    );
}

fn filter_of(entry: &Entry) -> String {
    Filter::from(entry.receive).to_string()
}
