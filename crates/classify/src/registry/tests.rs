use super::{CheckId, Limits, Most, OwnerId, Refusal, Registry, Reserved, UserId, Vif, VifId};
use crate::{Clause, Filter, Pattern};
use clearway_base::Random;
use clearway_wire::digest::{Network, fields};

/// Comparisons in a slice of these tests.
const SLICE: usize = 64;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn some(text: &str) -> Option<Filter> {
    (!text.is_empty()).then(|| filter(text))
}

/// An app of a user of the same number.
fn vif(owner: u32, send: &str, receive: &str) -> Vif {
    Vif {
        owner: OwnerId(owner),
        user: UserId(owner),
        send: some(send),
        receive: some(receive),
        copies: None,
        priority: 0,
    }
}

fn registry() -> Registry {
    Registry::new(Limits::default())
}

/// Limits for as much as these tests do not care about.
fn limits(user: Most) -> Limits {
    Limits { user, ..Limits::default() }
}

const MUCH: Most = Most { clauses: 1 << 20, masks: 1 << 20, copies: 1 << 20 };

impl Registry {
    /// Advances until this check is decided; others may be on the way.
    fn decide(&mut self, id: CheckId) -> Result<VifId, Refusal> {
        for _ in 0..1_000_000 {
            let mut left = SLICE;
            if let Some((decided, result)) = self.advance(&mut left)
                && decided == id
            {
                return result;
            }
        }
        panic!("{id:?} is never decided");
    }

    fn register(&mut self, vif: Vif) -> Result<VifId, Refusal> {
        let id = self.begin(vif)?;
        self.decide(id)
    }

    /// Every bounded thing is counted: what is used is what is registered, and nothing else is
    /// kept.
    fn check_books(&self) {
        let mut total = super::Usage::default();
        self.vifs().for_each(|(_, vif)| total.enter(vif));
        assert_eq!(self.total, total);
        for (user, usage) in &self.users {
            let mut expected = super::Usage::default();
            self.vifs()
                .filter(|(_, vif)| vif.user == *user)
                .for_each(|(_, vif)| expected.enter(vif));
            assert_eq!(usage, &expected);
            assert_ne!(usage, &super::Usage::default(), "who has nothing is forgotten");
        }
        let clauses = |filter: fn(&Vif) -> &Option<Filter>| -> usize {
            let filters = self.vifs().filter_map(|(_, vif)| filter(vif).as_ref());
            filters.map(|filter| filter.clauses().len()).sum()
        };
        assert_eq!(self.send.len(), clauses(|vif| &vif.send));
        assert_eq!(self.receive.len(), clauses(|vif| &vif.receive));
        assert_eq!(self.vifs.len(), self.vifs().count());
    }
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
    registry.check_books();
}

/// Two apps of one user are two owners: neither takes anything from the other.
#[test]
fn apps_of_one_user_collide_and_share_limits() {
    let mut registry = Registry::new(limits(Most { clauses: 3, ..MUCH }));
    let app = |owner, send| Vif { user: UserId(7), ..vif(owner, send, "") };
    registry.register(app(1, "udp src port 53")).unwrap();
    assert!(matches!(registry.register(app(2, "udp src port 53")), Err(Refusal::Send { .. })));
    registry.register(app(2, "udp src port 54 or udp src port 55")).unwrap();
    let refusal = registry.register(app(3, "udp src port 56")).unwrap_err();
    assert!(matches!(refusal, Refusal::TooManyOfUser { limit: 3, user: UserId(7), .. }));
    registry.register(vif(4, "udp src port 56", "")).unwrap();
    registry.check_books();
}

#[test]
fn receive_patterns_overlap_by_priority_only() {
    let mut registry = registry();
    registry.register(vif(1, "", "udp dst port 53")).unwrap();
    let narrow = Vif { priority: 1, ..vif(2, "", "dst host 10.0.0.2 and udp dst port 53") };
    let refusal = registry.register(Vif { priority: 0, ..narrow.clone() }).unwrap_err();
    assert!(matches!(refusal, Refusal::Receive { owner: OwnerId(1), priority: 0, .. }));
    let narrow = registry.register(narrow).unwrap();
    assert!(registry.remove(narrow));
    assert!(!registry.remove(narrow));
    registry.check_books();
}

#[test]
fn copies_overlap_with_everything() {
    let mut registry = registry();
    registry.register(vif(1, "", "udp dst port 53")).unwrap();
    registry.register(Vif { copies: some("any"), ..vif(2, "", "") }).unwrap();
    registry.register(vif(3, "", "tcp")).unwrap();
    registry.check_books();
}

#[test]
fn what_the_host_has_is_nobodys_and_comes_and_goes_as_a_whole() {
    let mut registry = registry();
    let of_host = |address: &str| Reserved {
        name: "messages",
        receive: filter(&format!("dst host {address} and udp dst port 7")).clauses()[0],
        send: some(&format!("src host {address} and udp src port 7")),
    };
    registry.reserve(vec![of_host("10.0.0.1")]);
    let sending = |address| vif(1, &format!("src net {address}/24 and udp"), "");
    let refusal = registry.register(sending("10.0.0.0")).unwrap_err();
    assert!(matches!(refusal, Refusal::SendReserved { name: "messages", .. }), "{refusal}");
    let narrow = vif(1, "", "dst host 10.0.0.1 and udp dst port 7 and src port 9");
    let refusal = registry.register(narrow).unwrap_err();
    assert!(matches!(refusal, Refusal::ReceiveReserved { name: "messages", .. }), "{refusal}");
    registry.register(vif(1, "", "dst host 10.0.0.1 and udp")).expect("more than the host's");
    registry.register(sending("10.0.1.0")).unwrap();
    // Now the host has other addresses; who had those may keep what he has.
    registry.reserve(vec![of_host("10.0.1.1")]);
    assert!(registry.register(sending("10.0.1.0")).is_err());
    registry.register(sending("10.0.0.0")).expect("the host does not have it any more");
    assert_eq!(registry.vifs().count(), 3);
    registry.check_books();
}

/// Whatever the host reserves while a check is on its way counts in the end.
#[test]
fn what_becomes_the_hosts_meanwhile_is_refused() {
    let mut registry = registry();
    let id = registry.begin(vif(1, "src host 10.0.0.1 and udp src port 7", "")).unwrap();
    let send = some("src host 10.0.0.1 and udp");
    registry.reserve(vec![Reserved {
        name: "messages",
        receive: filter("arp").clauses()[0],
        send,
    }]);
    assert!(matches!(registry.decide(id), Err(Refusal::SendReserved { .. })));
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
    registry.check_books();
    registry.register(vif(3, "udp src port 33", "udp dst port 33")).unwrap();
    assert!(registry.register(vif(3, "udp src port 34", "")).is_err());
    registry.check_books();
}

#[test]
fn limits_are_kept() {
    let user = Most { clauses: 6, masks: 3, copies: 2 };
    let mut registry = Registry::new(Limits { total: Most { clauses: 8, ..MUCH }, user });
    let many = "dst port 1001 or dst port 1002 or dst port 1003 or dst port 1004 or dst port 1005 \
                or dst port 1006 or dst port 1007";
    for too_much in [many, "arp or udp or icmp or sctp dst port 1"] {
        let refusal = registry.register(vif(2, too_much, "")).unwrap_err();
        assert!(matches!(refusal, Refusal::TooManyOfUser { .. }), "{refusal}");
    }
    let copies = |owner, text| Vif { copies: some(text), ..vif(owner, "", "") };
    let refusal = registry.register(copies(1, "arp or udp or icmp")).unwrap_err();
    assert!(refusal.to_string().contains("2 alternatives of copies"), "{refusal}");
    let copied = registry.register(copies(1, "arp or udp")).unwrap();
    assert!(registry.register(copies(1, "icmp")).is_err());
    assert!(registry.remove(copied));
    registry.check_books();
    let six = many.rsplit_once(" or ").unwrap().0;
    let first = registry.register(vif(1, six, "")).unwrap();
    assert!(registry.register(vif(1, "dst port 9", "")).is_err());
    registry.register(vif(2, "dst port 9", "dst port 9")).unwrap();
    let refusal = registry.register(vif(3, "dst port 10", "")).unwrap_err();
    assert!(matches!(refusal, Refusal::TooMany { limit: 8, .. }), "{refusal}");
    registry.remove(first);
    registry.register(vif(3, "dst port 10", "")).unwrap();
    registry.check_books();
}

/// One that is begun while another of the same user is on its way is admitted when its turn comes.
#[test]
fn limits_are_kept_by_requests_that_come_together() {
    let mut registry = Registry::new(limits(Most { clauses: 1, ..MUCH }));
    let first = registry.begin(vif(1, "udp src port 1", "")).unwrap();
    let second = registry.begin(vif(1, "udp src port 2", "")).unwrap();
    assert!(registry.decide(first).is_ok());
    assert!(matches!(registry.decide(second), Err(Refusal::TooManyOfUser { .. })));
    registry.check_books();
}

/// A user with as many apps as it likes takes all masks that it can; others still have theirs.
#[test]
fn one_user_does_not_take_all_masks() {
    let mut registry = registry();
    let masks = |user: u32, number: u32| {
        let mut random = Random::new(u64::from(number));
        let mask = std::array::from_fn(|_| random.next_u64());
        let clause = Clause::new(Pattern::new(mask, std::array::from_fn(|_| random.next_u64())));
        Vif { user: UserId(user), receive: Some(clause.into()), ..vif(1000 + number, "", "") }
    };
    let mut taken = 0;
    for app in 0..16 {
        taken += (0..400).filter(|n| registry.register(masks(1, app * 400 + n)).is_ok()).count();
    }
    assert_eq!(taken, Limits::default().user.masks);
    for user in 2..10 {
        let others = (0..100).filter(|n| registry.register(masks(user, user * 10_000 + n)).is_ok());
        assert_eq!(others.count(), 100);
    }
    registry.check_books();
}

#[test]
fn a_million_registrations_hit_the_limit_and_not_the_memory() {
    let mut registry = Registry::new(limits(MUCH));
    let flow = |number: u32| -> Filter {
        let (source, port) = (u64::from(number >> 4), u64::from(number & 0xf));
        let pattern = Pattern::ANY
            .with(fields::NETWORK, Network::Ipv4 as u64)
            .with(fields::IPV4_SOURCE, source)
            .with(fields::DESTINATION_PORT, port);
        Clause::from(pattern).into()
    };
    let limit = Limits::default().total.clauses;
    let mut refused = 0;
    for number in 0..1_000_000 {
        let vif = Vif { receive: Some(flow(number)), ..vif(number % 4, "", "any") };
        match registry.register(vif) {
            Ok(_) => {}
            Err(Refusal::TooMany { limit: reached, .. }) if reached == limit => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((registry.vifs().count(), refused), (limit, 1_000_000 - limit));
}

/// A registration looks at one value per mask: a hundred times as many VIFs are no more work.
#[test]
fn exact_patterns_are_compared_with_few() {
    let mut registry = Registry::new(limits(MUCH));
    let exact = |number: u32| {
        let (port, host) = (1 + number % 60_000, number / 60_000);
        let text = format!("src host 10.0.0.{host} and udp src port {port}");
        vif(number, &text, &text.replace("src", "dst"))
    };
    let ids: Vec<_> = (0..20_000).map(|number| registry.register(exact(number)).unwrap()).collect();
    let id = registry.begin(exact(70_000)).unwrap();
    let mut left = 100;
    let decided = registry.advance(&mut left);
    assert!(matches!(decided, Some((decided, Ok(_))) if decided == id));
    assert_eq!(left, 100 - 2 - 2, "a mask each for sending and receiving, and two clauses");
    assert!(ids.into_iter().all(|id| registry.remove(id)));
    registry.check_books();
}

/// One wide pattern against many is much work: never more at once than a slice, and others have
/// their turn in between.
#[test]
fn a_wide_pattern_is_compared_in_slices_and_holds_up_nobody() {
    let mut registry = Registry::new(limits(MUCH));
    for number in 0..4000 {
        registry.register(vif(1, &format!("udp src port {}", 1 + number), "")).unwrap();
    }
    let ports = (0..64).map(|bit| format!("digest[6] & {:#x} = 0", 1_u64 << bit));
    let wide = Filter::of(ports.map(|text| filter(&text).clauses()[0]).collect()).unwrap();
    // Its own patterns may overlap with it; all of them have to be looked at.
    let wide = registry.begin(Vif { send: Some(wide), ..vif(1, "", "") }).unwrap();
    let (mut slices, mut answered) = (0, 0);
    let decided = loop {
        let cheap = registry.begin(vif(2, "", &format!("udp dst port {}", 1 + answered))).unwrap();
        // At most one slice of the other user's before it is this user's turn.
        let mut decisions = Vec::new();
        for _ in 0..2 {
            let mut left = SLICE;
            decisions.extend(registry.advance(&mut left));
            slices += 1;
        }
        let others = decisions.iter().find(|(id, _)| *id == wide);
        assert!(decisions.iter().any(|(id, result)| *id == cheap && result.is_ok()));
        answered += 1;
        if let Some((_, result)) = others {
            break result.clone();
        }
    };
    assert!(decided.is_ok());
    assert!(slices * SLICE / 2 >= 64 * 4000, "{slices} slices");
    assert!(slices * SLICE / 2 <= 64 * 4000 * 11 / 10, "{slices} slices");
    registry.check_books();
}

/// What is registered while a check is on its way is compared with it, too.
#[test]
fn what_is_registered_meanwhile_is_not_missed() {
    for (first, second) in [("udp src port 9", ""), ("", "udp dst port 9")] {
        let mut registry = Registry::new(limits(MUCH));
        for number in 0..500 {
            let port = 100 + number;
            let (send, receive) = (format!("udp src port {port}"), format!("udp dst port {port}"));
            registry.register(vif(1, &send, &receive)).unwrap();
        }
        let wide = registry.begin(vif(1, "udp", "udp")).unwrap();
        let late = registry.begin(vif(2, first, second)).unwrap();
        // It has looked at all that are there, and their two masks, but for one.
        assert_eq!(registry.advance(&mut (2 * (1 + 500) - 1)), None);
        let late = registry.decide(late).expect("it is there first");
        let refused = registry.decide(wide).expect_err("the other has come meanwhile");
        assert!(matches!(
            refused,
            Refusal::Send { owner: OwnerId(2), .. } | Refusal::Receive { owner: OwnerId(2), .. }
        ));
        // Unless it has gone again.
        let wide = registry.begin(vif(1, "udp", "udp"));
        registry.remove(late);
        registry.decide(wide.unwrap()).expect("nobody else is there");
        registry.check_books();
    }
}

#[test]
fn a_check_that_nobody_waits_for_is_forgotten() {
    let mut registry = registry();
    let first = registry.begin(vif(1, "udp src port 1", "")).unwrap();
    let second = registry.begin(vif(1, "udp src port 1", "")).unwrap();
    registry.cancel(first);
    registry.decide(second).expect("the first one has nothing");
    registry.cancel(second);
    assert!(!registry.is_checking() && registry.advance(&mut { SLICE }).is_none());
    let third = registry.begin(vif(2, "udp src port 2", "")).unwrap();
    registry.cancel(third);
    assert!(!registry.is_checking());
    registry.check_books();
}

/// Registrations that come and go and are checked at the same time end as if each had been checked
/// at once against those that were registered before it.
#[test]
fn slices_of_many_checks_decide_as_checks_one_by_one() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut registry = Registry::new(limits(MUCH));
        let (mut registered, mut pending): (Vec<VifId>, Vec<(CheckId, Vif)>) = Default::default();
        for _ in 0..300 {
            match random.below(8) {
                0..3 => {
                    let vif = random_vif(&mut random);
                    pending.push((registry.begin(vif.clone()).unwrap(), vif));
                }
                3 if !registered.is_empty() => {
                    let at = random.below(registered.len() as u64) as usize;
                    assert!(registry.remove(registered.swap_remove(at)));
                }
                _ => {
                    let before: Vec<Vif> = registry.vifs().map(|(_, vif)| vif.clone()).collect();
                    let mut left = 1 + random.below(4) as usize;
                    let Some((id, result)) = registry.advance(&mut left) else { continue };
                    let at = pending.iter().position(|(other, _)| *other == id).unwrap();
                    let (_, vif) = pending.remove(at);
                    // A refusal may be older than what has gone since; what is registered never
                    // collides.
                    match result {
                        Ok(id) => {
                            assert!(!before.iter().any(|other| collide(&vif, other)), "{vif:?}");
                            registered.push(id);
                        }
                        Err(refusal) => assert!(!matches!(refusal, Refusal::TooMany { .. })),
                    }
                }
            }
            registry.check_books();
        }
        // Nothing comes or goes any more: now refusals have to be right, too.
        while registry.is_checking() {
            registry.advance(&mut { 3 });
        }
        let vif = random_vif(&mut random);
        let expected = !registry.vifs().any(|(_, other)| collide(&vif, other));
        assert_eq!(registry.register(vif).is_ok(), expected, "seed {seed}");
    }
}

fn collide(one: &Vif, other: &Vif) -> bool {
    let overlap = |one: &Option<Filter>, other: &Option<Filter>| {
        one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one.overlaps(other))
    };
    one.owner != other.owner
        && (overlap(&one.send, &other.send)
            || one.priority == other.priority && overlap(&one.receive, &other.receive))
}

fn random_vif(random: &mut Random) -> Vif {
    let mut port = || match random.below(4) {
        0 => format!("port {}", random.below(6)),
        1 => format!("portrange {}-{}", random.below(3), 3 + random.below(3)),
        2 => format!("port {} and src host fd00::{}", random.below(6), random.below(2)),
        _ => format!("port {} or src net fd00::{}:0:0:0/80", random.below(6), random.below(2)),
    };
    let (send, receive) = (format!("udp src {}", port()), format!("udp dst {}", port()));
    let owner = 1 + random.below(4) as u32;
    let mut text = |text: String| if random.chance(1, 4) { String::new() } else { text };
    let (send, receive) = (text(send), text(receive));
    Vif { user: UserId(owner % 3), priority: random.below(2) as u16, ..vif(owner, &send, &receive) }
}

/// Two that differ in one bit of an address collide in nothing, whichever word it is in; and two
/// that do not differ do, however they say it.
#[test]
fn collisions_look_at_every_bit_of_ipv6_addresses() {
    let mut registry = registry();
    let texts = |source: u128, destination: u128| {
        let address = |bits: u128| std::net::Ipv6Addr::from_bits(0xfd00 << 112 ^ 1 ^ bits);
        let (source, destination) = (address(source), address(destination));
        let text = format!("src host {source} and dst host {destination} and udp src port 5");
        (text.clone(), format!("{text} and dst port 6"))
    };
    let (send, receive) = texts(0, 0);
    registry.register(vif(1, &send, &receive)).unwrap();
    for bit in 0..128 {
        for (source, destination) in [(1 << bit, 0), (0, 1 << bit)] {
            let (send, receive) = texts(source, destination);
            let id = registry.register(vif(2, &send, &receive)).expect("another address");
            assert!(registry.register(vif(3, &send, "")).is_err(), "the same address");
            assert!(registry.register(vif(3, "", &receive)).is_err(), "the same address");
            assert!(registry.remove(id));
        }
    }
    assert!(matches!(registry.register(vif(2, &send, "")), Err(Refusal::Send { .. })));
    assert!(matches!(registry.register(vif(2, "", &receive)), Err(Refusal::Receive { .. })));
    for wide in ["ip6", "udp", "src net fc00::/7", "dst net fc00::/7", "src port 5"] {
        assert!(registry.register(vif(2, wide, "")).is_err(), "{wide}");
    }
    registry.check_books();
}
