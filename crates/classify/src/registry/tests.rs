use super::{Action, Limits, OwnerId, Refusal, Registry, SendFault, Vif, VifId};
use crate::table::{Linear, Production};
use crate::{Clause, Filter, Pattern};
use clearway_wire::digest::{Digest, Network, fields};
use std::time::{Duration, Instant};

fn filter(text: &str) -> Filter {
    text.parse().unwrap()
}

fn vif(owner: u32, send: &str, receive: &str) -> Vif {
    let some = |text: &str| (!text.is_empty()).then(|| filter(text));
    Vif {
        owner: OwnerId(owner),
        send: some(send),
        receive: some(receive),
        action: Action::Own,
        priority: 0,
    }
}

fn registry() -> Registry {
    Registry::new(Limits::default(), Production::new())
}

/// An untagged UDP packet over IPv4.
fn udp(source: u32, source_port: u64, destination: u32, port: u64) -> Digest {
    let words = fields::SOURCE_PORT.place(source_port) | fields::DESTINATION_PORT.place(port);
    let addresses = u64::from(source) << 32 | u64::from(destination);
    Digest::from_words([words | 0x1161_0800, 0, 2 << 56, addresses, 0, 0, 0, 0])
}

fn receiver(registry: &mut Registry, digest: Digest) -> Option<VifId> {
    let mut found = [None];
    registry.receivers(&[digest], &mut found);
    found[0]
}

#[test]
fn send_patterns_never_overlap() {
    let mut registry = registry();
    registry.register(vif(1, "src host 10.0.0.1 and udp src port 53", "")).unwrap();
    let refusal = registry.register(vif(2, "src net 10/8 and udp", "")).unwrap_err();
    let text = refusal.to_string();
    assert!(matches!(refusal, Refusal::Send { owner: OwnerId(1), .. }));
    assert!(text.contains("src host 10.0.0.1 and udp and src port 53` of owner 1"), "{text}");
    // Neither refused registration has left anything behind.
    assert_eq!(registry.vifs().count(), 1);
    registry.register(vif(2, "src host 10.0.0.1 and udp src port 54", "")).unwrap();
    registry.register(vif(1, "src host 10.0.0.1 and udp src portrange 50-53", "")).unwrap();
    assert!(registry.register(vif(2, "udp src portrange 40-50", "")).is_err());
}

#[test]
fn receive_patterns_overlap_by_priority_only() {
    let mut registry = registry();
    let wide = registry.register(vif(1, "", "udp dst port 53")).unwrap();
    let narrow = Vif { priority: 1, ..vif(2, "", "dst host 10.0.0.2 and udp dst port 53") };
    let refusal = registry.register(Vif { priority: 0, ..narrow.clone() }).unwrap_err();
    assert!(matches!(refusal, Refusal::Receive { owner: OwnerId(1), priority: 0, .. }));
    let narrow = registry.register(narrow).unwrap();
    assert_eq!(receiver(&mut registry, udp(1, 1, 0x0a00_0002, 53)), Some(narrow));
    assert_eq!(receiver(&mut registry, udp(1, 1, 0x0a00_0003, 53)), Some(wide));
    assert!(registry.remove(narrow));
    assert!(!registry.remove(narrow));
    assert_eq!(receiver(&mut registry, udp(1, 1, 0x0a00_0002, 53)), Some(wide));
}

/// What each packet's owner is, asked one by one, and then all at once.
fn receivers(registry: &mut Registry, digests: &[Digest]) -> Vec<Option<VifId>> {
    let each: Vec<_> = digests.iter().map(|digest| receiver(registry, *digest)).collect();
    let mut found = vec![None; digests.len()];
    registry.receivers(digests, &mut found);
    assert_eq!(found, each);
    // Twice: asked, and remembered.
    for _ in 0..2 {
        let alike = registry.common_receiver(digests);
        assert!(alike.is_none_or(|owner| each.iter().all(|each| *each == owner)), "{alike:?}");
    }
    found
}

#[test]
fn packets_that_look_alike_to_all_rules_have_one_owner_and_others_their_own() {
    let mut registry = registry();
    let server = registry.register(vif(1, "", "udp dst port 53")).unwrap();
    let clients: Vec<_> =
        (0..32).map(|client| udp(client, 1000 + u64::from(client), 7, 53)).collect();
    assert_eq!(receivers(&mut registry, &clients), [Some(server); 32]);
    assert_eq!(registry.common_receiver(&clients), Some(Some(server)));
    let mut with_another = clients.clone();
    with_another[31] = udp(31, 1031, 7, 54);
    assert_eq!(receivers(&mut registry, &with_another)[30..], [Some(server), None]);
    assert_eq!(registry.common_receiver(&with_another), None);
    let higher = |filter| Vif { priority: 1, ..vif(2, "", filter) };
    for filter in ["udp src port 1009", "udp src portrange 1009-1011", "src host 0.0.0.9"] {
        let narrow = registry.register(higher(filter)).unwrap();
        let found = receivers(&mut registry, &clients);
        assert_eq!((found[8], found[9]), (Some(server), Some(narrow)), "{filter}");
        registry.remove(narrow);
        assert_eq!(receivers(&mut registry, &clients), [Some(server); 32], "{filter}");
    }
    registry.remove(server);
    assert_eq!(registry.common_receiver(&clients), Some(None), "nothing is remembered of it");
    assert_eq!(receivers(&mut registry, &clients), [None; 32]);
}

#[test]
fn an_owners_own_patterns_go_in_the_order_they_came() {
    let mut registry = registry();
    let first = registry.register(vif(1, "", "udp dst port 53 or udp dst port 54")).unwrap();
    let second = registry.register(vif(1, "", "udp")).unwrap();
    assert_eq!(receiver(&mut registry, udp(1, 1, 1, 54)), Some(first));
    assert_eq!(receiver(&mut registry, udp(1, 1, 1, 55)), Some(second));
}

#[test]
fn copies_deliver_and_go_on() {
    let mut registry = registry();
    let owner = registry.register(vif(1, "", "udp dst port 53")).unwrap();
    let copy = |priority, text| Vif { action: Action::Copy, priority, ..vif(2, "", text) };
    let before = registry.register(copy(1, "udp or dst port 53")).unwrap();
    let behind = registry.register(copy(0, "any")).unwrap();
    let digest = udp(1, 1, 1, 53);
    let found = receiver(&mut registry, digest);
    assert_eq!(found, Some(owner));
    assert_eq!(registry.copies(&digest, found).collect::<Vec<_>>(), [before]);
    let other = udp(1, 1, 1, 54);
    assert_eq!(receiver(&mut registry, other), None);
    assert_eq!(registry.copies(&other, None).collect::<Vec<_>>(), [before, behind]);
    assert!(registry.remove(before) && registry.remove(behind));
    assert!(!registry.has_copies());
}

#[test]
fn a_dead_owner_leaves_nothing() {
    let mut registry = registry();
    let mut of_owner = [Vec::new(), Vec::new()];
    for port in 1..100 {
        let text = format!("udp src port {port}");
        let id = registry.register(vif(port % 2, &text, &text.replace("src", "dst"))).unwrap();
        of_owner[port as usize % 2].push(id);
    }
    assert!(of_owner[1].iter().all(|id| registry.remove(*id)));
    assert_eq!(receiver(&mut registry, udp(1, 1, 1, 33)), None);
    assert!(receiver(&mut registry, udp(1, 1, 1, 34)).is_some());
    registry.register(vif(3, "udp src port 33", "udp dst port 33")).unwrap();
    assert!(registry.register(vif(3, "udp src port 34", "")).is_err());
    assert!(!registry.remove(of_owner[1][0]));
}

#[test]
fn what_may_be_sent_and_why_not() {
    let mut registry = registry();
    let send = "ether src 02:00:00:00:00:00 and src host 10.0.0.1 and udp src portrange 50-60";
    let id = registry.register(vif(1, send, "")).unwrap();
    let good = udp(0x0a00_0001, 53, 7, 7);
    assert!(registry.may_send(id, &good));
    assert_eq!(registry.send_fault(id, &good), None);
    let with = |word: usize, bits: u64| {
        let mut words = *good.words();
        words[word] ^= bits;
        Digest::from_words(words)
    };
    for (digest, fault) in [
        (with(2, 1 << 16), SendFault::MacSource),
        (with(0, 0x0080_0000), SendFault::Vlan),
        (with(0, 0x0010_0000), SendFault::Network),
        (with(0, 0x0100_0000), SendFault::Protocol),
        (with(0, 0x0002_0000), SendFault::Unclear),
        (with(3, 1 << 32), SendFault::Source),
        (with(0, 1 << 56), SendFault::SourcePort),
    ] {
        assert!(!registry.may_send(id, &digest));
        assert_eq!(registry.send_fault(id, &digest), Some(fault));
    }
    let silent = registry.register(vif(1, "", "udp")).unwrap();
    assert_eq!(registry.send_fault(silent, &good), Some(SendFault::Nothing));
}

#[test]
fn limits_are_kept() {
    let limits = Limits {
        vifs: 5,
        vifs_of_owner: 3,
        clauses_of_owner: 6,
        masks: 100,
        masks_of_owner: 3,
        ..Limits::default()
    };
    let mut registry = Registry::new(limits, Linear::new());
    let port = |owner: u32, port: u32| vif(owner, "", &format!("udp dst port {port}"));
    for number in 0..3 {
        registry.register(port(1, number)).unwrap();
    }
    let refusal = registry.register(port(1, 3)).unwrap_err();
    assert!(matches!(refusal, Refusal::TooManyOfOwner { what: "VIFs", limit: 3, .. }), "{refusal}");
    let many = "dst port 1001 or dst port 1002 or dst port 1003 or dst port 1004 or dst port 1005 or \
        dst port 1006 or dst port 1007";
    assert!(registry.register(vif(2, many, "")).is_err());
    assert!(registry.register(vif(2, "arp or udp or icmp or sctp dst port 1", "")).is_err());
    registry.register(port(2, 4)).unwrap();
    registry.register(port(2, 5)).unwrap();
    let refusal = registry.register(port(3, 6)).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMany { what: "VIFs", limit: 5 }), "{refusal}");
}

/// The bound on the table's memory is that of full size: what is refused leaves nothing.
#[test]
fn copies_are_few() {
    let limits = Limits { copy_clauses: 3, copy_clauses_of_owner: 2, ..Limits::default() };
    let mut registry: Registry = Registry::new(limits, Production::new());
    let copy = |owner, text| Vif { action: Action::Copy, ..vif(owner, "", text) };
    let first = registry.register(copy(1, "udp dst port 1 or udp dst port 2")).unwrap();
    let refusal = registry.register(copy(1, "udp dst port 3")).unwrap_err();
    assert!(matches!(refusal, Refusal::TooManyOfOwner { limit: 2, .. }), "{refusal}");
    registry.register(copy(2, "udp dst port 1")).unwrap();
    let refusal = registry.register(copy(3, "udp dst port 1")).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMany { limit: 3, .. }), "{refusal}");
    assert!(registry.remove(first));
    registry.register(copy(3, "udp dst port 1")).unwrap();
}

#[test]
fn a_million_registrations_hit_the_limit_and_not_the_memory() {
    let limits = Limits::default();
    let mut registry = registry();
    let flow = |number: u32| -> Filter {
        let (source, port) = (u64::from(number >> 4), u64::from(number & 0xf));
        let pattern = Pattern::ANY
            .with(fields::NETWORK, Network::Ipv4 as u64)
            .with(fields::IPV4_SOURCE, source)
            .with(fields::DESTINATION_PORT, port);
        Clause::from(pattern).into()
    };
    let mut refused = 0;
    for number in 0..1_000_000 {
        let owner = OwnerId(number % 4);
        let vif = Vif { owner, receive: Some(flow(number)), ..vif(0, "", "any") };
        match registry.register(vif) {
            Ok(_) => {}
            Err(Refusal::TooMany { what: "VIFs", limit }) => refused += limit / limits.vifs,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(registry.vifs().count(), limits.vifs);
    assert_eq!(refused, 1_000_000 - limits.vifs);
    let bytes = crate::Table::memory_bytes(registry.table());
    assert!(bytes < limits.vifs * 400, "{bytes} bytes for {} rules", limits.vifs);
}

/// A registration looks at one value per mask: a hundred times as many VIFs do not make it slow. Compares
/// with looking at each, which takes seconds for as many.
#[test]
fn many_exact_vifs_register_quickly() {
    let count = 20_000;
    let mut registry = Registry::new(Limits::default(), NoTable);
    let started = Instant::now();
    let mut register = |number| {
        let (port, host) = (1 + number % 60_000, number / 60_000);
        let text = format!("src host 10.0.0.{host} and udp src port {port}");
        registry.register(vif(number, &text, &text.replace("src", "dst"))).unwrap()
    };
    let ids: Vec<_> = (0..count).map(&mut register).collect();
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{count} registrations took {elapsed:?}");
    assert!(ids.into_iter().all(|id| registry.remove(id)));
}

/// Finds nothing: for tests of what is around it.
#[derive(Debug)]
struct NoTable;

impl crate::Table for NoTable {
    fn insert(&mut self, _: crate::Rule) {}
    fn remove(&mut self, _: crate::RuleId) -> bool {
        true
    }
    fn classify(&mut self, _: &[Digest], _: &mut [Option<crate::RuleId>]) {}
    fn rules(&self) -> usize {
        0
    }
    fn memory_bytes(&self) -> usize {
        0
    }
}
