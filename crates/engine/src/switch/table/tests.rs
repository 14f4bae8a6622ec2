//! The switch without engine or NIC: the host's services while everything around them changes. What
//! a VIF may send is in `frames/tests.rs`.

use std::net::IpAddr;

use clearway_base::Random;
use clearway_classify::Filter;
use clearway_nic::MacAddress;

use super::*;
use crate::frames::VifSpec;
use crate::services::entries;
use crate::testing::{MAC, MESSAGES, OTHER_MAC, config, filter, switch, v4};

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

/// However full the table is of what users have, the host's services have their places, before and
/// after each change of its addresses, and what goes leaves nothing.
#[test]
fn services_stay_while_addresses_come_and_go_and_users_have_all_they_can() {
    let mut switch = switch(&[v4(1)]);
    let mut random = Random::new(1);
    let mut vifs = Vec::new();
    for id in 0..2048 {
        let mask = random.next_u64();
        let text = format!("digest[4] & {mask:#x} = {:#x}", random.next_u64() & mask);
        // One wants all that the services have, too.
        let text = if id == 0 { "udp" } else { &text };
        let spec = VifSpec { receive: vec![filter(text)], ..VifSpec::default() };
        let spec = VifSpec { priority: PRIORITY_MAX, mac: MAC, ..spec };
        vifs.push(switch.open(&spec, FrameOwner::Vif(VifKey::new(id, 1))));
    }
    let messages = Some(FrameOwner::Service(Service::Messages));
    let refused = Some(FrameOwner::Service(Service::Datagrams));
    let mut before = vec![v4(1)];
    for round in 0..20 {
        let now: Vec<IpAddr> =
            (1..=1 + round % 5).map(|last| v4(last * (1 + round / 10))).collect();
        for address in before.iter().chain(&now) {
            let expected = if before.contains(address) { messages } else { None };
            let found = switch.owner(&to(*address, MESSAGES));
            assert_eq!(found.filter(|owner| matches!(owner, FrameOwner::Service(_))), expected);
        }
        switch.set_services(entries(&config(&now), MESSAGES));
        for last in 1..20 {
            let is_own = now.contains(&v4(last));
            let services = |owner: &FrameOwner| matches!(owner, FrameOwner::Service(_));
            let found = switch.owner(&to(v4(last), MESSAGES)).filter(services);
            assert_eq!(found, messages.filter(|_| is_own), "round {round}, address {last}");
            let found = switch.owner(&to(v4(last), 5)).filter(services);
            assert!(found.is_none() || found == refused && is_own);
        }
        let owners = switch.owners.iter().flatten().count();
        assert_eq!(owners, 2048 + switch.services.len(), "as many owners as entries");
        before = now;
    }
    vifs.into_iter().for_each(|entry| switch.close(entry, MAC));
    assert_eq!(switch.owners.iter().flatten().count(), switch.services.len());
    assert_eq!(switch.owner(&to(before[0], MESSAGES)), messages);
}

/// Of several VIFs with an address of the same, the last takes it along; the NIC's own stays for
/// good.
#[test]
fn addresses_of_vifs_last_as_long_as_one_of_them() {
    let mut switch = switch(&[v4(1)]);
    let at = |last| [2, 9, 9, 9, 9, last];
    for last in [7, 3, 5, 3] {
        switch.add_mac(at(last));
    }
    switch.add_mac(MAC);
    assert!([3, 5, 7].iter().all(|last| is_here(&switch, at(*last))));
    assert!(!is_here(&switch, at(4)) && !switch.has_one_mac());
    switch.remove_mac(at(3));
    assert!(is_here(&switch, at(3)), "one is left");
    for last in [3, 5, 7, 7] {
        switch.remove_mac(at(last));
        assert!(!is_here(&switch, at(last)));
    }
    switch.remove_mac(MAC);
    assert!(is_here(&switch, MAC) && switch.has_one_mac());
}

fn is_here(switch: &Switch, mac: MacAddress) -> bool {
    let mut frame = mac.to_vec();
    frame.extend([2, 1, 1, 1, 1, 1, 8, 6]);
    frame.resize(60, 0);
    matches!(switch.reach(&Digest::of(&frame)), Reach::Here)
}

/// One VIF has the NIC's address before it changes, one after that, and one the address that it
/// has then.
#[test]
fn vifs_keep_their_addresses_when_that_of_the_nic_changes() {
    let mut switch = switch(&[v4(1)]);
    switch.add_mac(MAC);
    assert!(switch.has_one_mac());
    switch.set_mac(OTHER_MAC);
    assert!(is_here(&switch, MAC) && is_here(&switch, OTHER_MAC) && !switch.has_one_mac());
    switch.add_mac(MAC);
    switch.add_mac(OTHER_MAC);
    switch.remove_mac(MAC);
    assert!(is_here(&switch, MAC), "one is left");
    switch.remove_mac(MAC);
    assert!(!is_here(&switch, MAC) && switch.has_one_mac());
    switch.set_mac(MAC);
    assert!(is_here(&switch, OTHER_MAC) && !switch.has_one_mac());
    switch.remove_mac(OTHER_MAC);
    assert!(!is_here(&switch, OTHER_MAC) && switch.macs.is_empty() && switch.has_one_mac());
}

#[test]
fn vifs_of_other_engines_come_and_go_one_by_one() {
    let mut switch = switch(&[v4(1)]);
    let to = |last| {
        let frame = [&[2, 9, 9, 9, 9, last], &OTHER_MAC[..], &[0x88, 0xb5], &[0; 46]].concat();
        Digest::of(&frame)
    };
    let all = [(1, (5, 1), 7), (2, (5, 2), 8), (1, (6, 1), 6)];
    for (engine, (channel, id), last) in all {
        let receive = vec![filter(&format!("ether dst 02:09:09:09:09:{last:02x}"))];
        let mac = [2, 9, 9, 9, 9, last];
        let spec = VifSpec { receive, mac, ..VifSpec::default() };
        switch.open_of_sibling(engine, channel, id, Box::new(spec));
    }
    switch.close_of_sibling(6, 2); // nobody has it
    for gone in 0..=all.len() {
        for (at, (engine, _, last)) in all.into_iter().enumerate() {
            let expected = (at >= gone).then_some(FrameOwner::Sibling(engine));
            assert_eq!(switch.owner(&to(last)), expected);
            assert_eq!(switch.reach(&to(last)) == Reach::Here, at >= gone);
        }
        if let Some((_, (channel, id), _)) = all.get(gone) {
            switch.close_of_sibling(*channel, *id);
        }
    }
    assert!(switch.has_one_mac() && !switch.has_copies());
}

/// Among thousands of addresses of VIFs one is found without looking at each: in a small part of
/// the time that this takes, measured alternately.
#[test]
fn addresses_of_thousands_of_vifs_are_found_at_once() {
    let mut switch = switch(&[v4(1)]);
    for number in 0..8192u16 {
        let [a, b] = number.to_be_bytes();
        switch.add_mac([2, 9, 9, 9, a, b]);
    }
    let digests: Vec<Digest> = (0..100u16)
        .map(|number| {
            let [a, b] = number.to_be_bytes();
            let mut frame = vec![2, 8, 8, 8, a, b, 2, 1, 1, 1, 1, 1, 8, 6];
            frame.resize(60, 0);
            Digest::of(&frame)
        })
        .collect();
    let time = |look: &dyn Fn(&Digest) -> bool| {
        let began = std::time::Instant::now();
        digests.iter().for_each(|digest| assert!(!std::hint::black_box(look(digest))));
        began.elapsed()
    };
    let find = |digest: &Digest| switch.reach(digest) == Reach::Here;
    let scan = |digest: &Digest| {
        let mac = digest.field(fields::MAC_DESTINATION);
        switch.macs.iter().any(|(other, _)| *other == mac)
    };
    let [mut found, mut scanned] = [std::time::Duration::MAX; 2];
    for _ in 0..50 {
        found = found.min(time(&find));
        scanned = scanned.min(time(&scan));
    }
    assert!(found * 10 < scanned, "{found:?}, and {scanned:?} to look at each");
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
    assert_eq!(first.len(), 4);
    switch.set_services(entries(&config(&[v4(3), v4(1)]), MESSAGES));
    assert_eq!(entries_of(&switch, "10.0.0.1"), first);
    assert_eq!(
        (entries_of(&switch, "10.0.0.2").len(), entries_of(&switch, "10.0.0.3").len()),
        (0, 4)
    );
}

fn filter_of(entry: &Entry) -> String {
    Filter::from(entry.receive).to_string()
}
