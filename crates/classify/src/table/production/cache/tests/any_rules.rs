//! Rules and packets that no generator of the other tests makes: ranges that end where ports end,
//! masks that are no prefixes, addresses of IPv6, tags, and names that the cache cannot keep. They
//! come and go between look-ups, and the cache is asked each time.

use super::Both;
use crate::table::BATCH_MAX;
use crate::{Clause, Pattern, Ports, RuleId};
use clearway_wire::digest::{Digest, PATTERN_WORDS, fields};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use std::cell::Cell;

/// IPv4 with ports, mostly; with a tag, as a later fragment; IPv6, and with a tag.
const KINDS: [u64; 7] =
    [0x0061_0800, 0x0061_0800, 0x0061_0800, 0x00e1_0800, 0x0062_0800, 0x0071_86dd, 0x00f1_86dd];
const TAGGED: u64 = 0x0080_0000;
const IPV6: u64 = 0x0010_0000;
/// Bits of word 0 that say what kind of packet it is.
const KIND: u64 = 0x00ff_ffff;

const PORTS: [u16; 10] = [0, 1, 2, 1023, 1024, 32767, 32768, 65533, 65534, 65535];
const WORDS: [u64; 6] = [0, 1, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
const ADDRESSES: [u64; 5] =
    [0x0a00_0001_0a00_0002, 0x0a00_0001_0a00_0003, 0x0a00_0011_0a00_0002, 0, u64::MAX];
const MASKS: [u64; 8] = [
    u64::MAX,
    u64::MAX << 32,
    u64::MAX >> 32,
    0xf0f0_f0f0_f0f0_f0f0,
    0x0000_ffff_0000_0fff,
    0x5555_aaaa_5555_aaaa,
    1,
    1 << 63,
];
/// Names that 24 bits cannot hold, or that mean something else there.
const NAMES: [u32; 6] = [0xff_fffd, 0xff_fffe, 0xff_ffff, 0x100_0000, 0x100_0001, u32::MAX];

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![4 => select(&PORTS), 1 => any::<u16>()]
}

fn range() -> impl Strategy<Value = Ports> {
    let range = |(a, b): (u16, u16)| Ports::new(a.min(b), a.max(b)).unwrap();
    (port(), port()).prop_map(range)
}

/// Most packets say the same of what is seldom looked at.
fn seldom(values: &'static [u64]) -> impl Strategy<Value = u64> {
    prop_oneof![5 => Just(0), 1 => select(values)]
}

fn packet() -> impl Strategy<Value = Digest> {
    let tag = select(&[0x0001u64, 0x0fff, 0x1001, 0x7fff]);
    let ports = (port(), port());
    let addresses = (select(&ADDRESSES), seldom(&WORDS), seldom(&WORDS), seldom(&WORDS));
    let macs = (seldom(&[7, 0xffff_ffff_ffff]), seldom(&[9, 1 << 47]));
    (select(&KINDS), select(&[6u64, 17]), ports, tag, macs, addresses).prop_map(
        |(kind, protocol, (from, to), tag, macs, addresses)| {
            let of_ipv6 = |word| if kind & IPV6 == 0 { 0 } else { word };
            let ports = fields::SOURCE_PORT.place(u64::from(from))
                | fields::DESTINATION_PORT.place(u64::from(to));
            Digest::from_words([
                kind | fields::PROTOCOL.place(protocol) | ports,
                macs.0 << 16 | if kind & TAGGED == 0 { 0 } else { tag },
                macs.1 << 16,
                addresses.0,
                of_ipv6(addresses.1),
                of_ipv6(addresses.2),
                of_ipv6(addresses.3),
                0,
            ])
        },
    )
}

/// Packets of which most differ from another in one word only.
fn packets() -> impl Strategy<Value = Vec<Digest>> {
    let packet = (packet(), any::<Index>(), 0..PATTERN_WORDS + 2);
    proptest::collection::vec(packet, BATCH_MAX).prop_map(|all| {
        let mut packets = Vec::new();
        for (packet, like, word) in all {
            let mut words = *packet.words();
            if word < PATTERN_WORDS && !packets.is_empty() {
                words = *like.get::<Digest>(&packets).words();
                words[word] = packet.words()[word];
            }
            packets.push(Digest::from_words(words));
        }
        packets
    })
}

/// A rule that is about one of the packets, but for its ranges.
#[derive(Clone, Debug)]
struct Wanted {
    about: Index,
    mask: [u64; PATTERN_WORDS],
    from: Option<Ports>,
    to: Option<Ports>,
    priority: u16,
    name: Option<Index>,
}

impl Wanted {
    fn clause(&self, packets: &[Digest]) -> Clause {
        let digest = self.about.get(packets);
        let value = std::array::from_fn(|word| digest.words()[word]);
        let clause = Clause::new(Pattern::new(self.mask, value));
        let clause = self.from.and_then(|from| clause.from_ports(from)).unwrap_or(clause);
        self.to.and_then(|to| clause.to_ports(to)).unwrap_or(clause)
    }
}

/// What a rule looks at: a connection, or anything.
fn mask() -> impl Strategy<Value = [u64; PATTERN_WORDS]> {
    let often = || prop_oneof![Just(0), select(&MASKS)];
    let rarely = || prop_oneof![7 => Just(0), 1 => select(&MASKS)];
    let any_mask =
        (often(), rarely(), rarely(), often(), rarely(), rarely(), rarely(), any::<bool>());
    let any_mask = any_mask.prop_map(|(a, b, c, d, e, f, g, is_of_kind)| {
        [if is_of_kind { a } else { a & !KIND }, b, c, d, e, f, g]
    });
    prop_oneof![1 => Just([!KIND, 0, 0, u64::MAX, 0, 0, 0]), 3 => any_mask]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let range = || proptest::option::of(range());
    let name = proptest::option::weighted(0.2, any::<Index>());
    (any::<Index>(), mask(), range(), range(), 0..3u16, name).prop_map(
        |(about, mask, from, to, priority, name)| Wanted { about, mask, from, to, priority, name },
    )
}

#[derive(Clone, Debug)]
enum Change {
    Comes(Wanted),
    Goes(Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => wanted().prop_map(Change::Comes), 2 => any::<Index>().prop_map(Change::Goes)]
}

/// Rules that come and go, and those which are there.
struct World {
    both: Both,
    present: Vec<RuleId>,
}

impl World {
    /// With rules enough for a cache; if asked for, with one that looks at what connections are.
    fn new(is_about_tuples: bool) -> Self {
        let mut both = Both::looking_at_addresses(100);
        if is_about_tuples {
            // A rule of the same mask is about one question then.
            let mask = [!KIND, 0, 0, u64::MAX, 0, 0, 0];
            both.insert(Pattern::new(mask, [0x55 << 24, 0, 0, 0x55, 0, 0, 0]).into());
        }
        Self { both, present: Vec::new() }
    }

    fn change(&mut self, change: &Change, packets: &[Digest]) {
        match change {
            Change::Comes(wanted) => {
                let free = |name: &u32| !self.present.contains(&RuleId(*name));
                let name = wanted.name.map(|name| *name.get(&NAMES)).filter(free);
                // The lowest free, as whoever inserts rules chooses.
                let name = name.unwrap_or_else(|| (1000..).find(free).unwrap());
                let clause = wanted.clause(packets);
                self.both.insert_as(RuleId(name), wanted.priority, clause);
                self.present.push(RuleId(name));
            }
            Change::Goes(_) if self.present.is_empty() => {}
            Change::Goes(which) => {
                let id = self.present.swap_remove(which.index(self.present.len()));
                self.both.remove(id);
            }
        }
    }

    /// Asks the cache, whatever it makes of that: what it finds, and what it then knows.
    fn ask(&mut self, packets: &[Digest]) {
        for _ in 0..2 {
            self.both.open();
            let before = self.both.table.cache_use().0;
            self.both.check_owners(packets);
            assert_eq!(self.both.table.cache_use().0 - before, packets.len() as u64);
        }
    }

    /// Has the rules that there are moved into trees, if that does not take long.
    fn settle(&mut self, packets: &[Digest]) {
        for _ in 0..50 {
            if self.both.table.is_settled() {
                return;
            }
            self.both.table.cache.pause = u32::MAX;
            self.both.check_owners(packets);
        }
    }
}

#[test]
fn what_the_cache_knows_is_what_a_scan_of_all_rules_finds() {
    let asked = proptest::bits::u32::ANY;
    let changes = proptest::collection::vec((change(), asked), 1..30);
    let all = (packets(), changes, any::<bool>(), 0..2u32, 0..20u32);
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() };
    let (uses, settled) = (Cell::new((0, 0)), Cell::new(0));
    let result = TestRunner::new(config).run(&all, |case| {
        let (packets, changes, is_about_tuples, first, left) = case;
        let mut world = World::new(is_about_tuples);
        world.both.table.cache.generation = first;
        world.both.table.cache.regions.fill(first);
        world.ask(&packets);
        // What is in regions that are not asked soon stays there until numbers come again.
        world.both.table.cache.generation = u32::MAX - left;
        for (at, (change, asked)) in changes.iter().enumerate() {
            world.change(change, &packets);
            if at == 10 {
                world.settle(&packets);
                settled.set(settled.get() + u32::from(world.both.table.is_settled()));
            }
            let is_asked = |at: &usize| asked >> at & 1 == 1;
            let some: Vec<_> = (0..BATCH_MAX).filter(is_asked).map(|at| packets[at]).collect();
            world.ask(&some);
        }
        world.ask(&packets);
        let (asked, answered) = world.both.table.cache_use();
        uses.set((uses.get().0 + asked, uses.get().1 + answered));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let (asked, answered) = uses.get();
    assert!(asked > 100_000 && answered * 5 > asked, "{answered} of {asked}");
    assert!(settled.get() > 20, "rules were in trees {} times", settled.get());
}
