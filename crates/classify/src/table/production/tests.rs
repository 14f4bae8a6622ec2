//! What becomes of known rules, in numbers: how soon they are in trees, how large these are, with
//! how many rules packets are compared, what the cache knows. Right answers say nothing about that.
//! A change that makes other trees shows here; `make bench-classify` says whether they are better.

use super::Production;
use crate::table::{BATCH_MAX, Table};
use crate::{Clause, Pattern, Ports, Rank, Rule, RuleId};
use clearway_base::Random;
use clearway_wire::digest::{Digest, fields};

/// A clause, and a packet that it matches.
type Sample = (Clause, Digest);
type Maker = fn(&mut Random) -> Sample;
/// Rules: what they are called, how one is made, how many; and in how many batches they are in
/// which trees.
type Known = (&'static str, Maker, u64, usize, [usize; 5]);

fn sample(pattern: Pattern, to: Ports, random: &mut Random) -> Sample {
    let words = std::array::from_fn(|word| match (pattern.mask().get(word), word) {
        (_, 0) => 0x1161_0800 | u64::from(to.first()) << 32 | pattern.value()[0],
        (Some(mask), _) => pattern.value()[word] | random.next_u64() & !mask,
        (None, _) => 0,
    });
    let clause = Clause::new(pattern);
    let with_ports = if to == Ports::ANY { Some(clause) } else { clause.to_ports(to) };
    (with_ports.expect("ports are not in the pattern"), Digest::from_words(words))
}

/// Routes: prefixes of all lengths.
fn routes(random: &mut Random) -> Sample {
    let length = 8 + random.below(25) as u32;
    let address = random.next_u64() >> 32;
    let pattern = Pattern::ANY.with_prefix(fields::IPV4_DESTINATION, address, length);
    sample(pattern, Ports::ANY, random)
}

/// A firewall: both addresses, or one, and a port, or some.
fn firewall(random: &mut Random) -> Sample {
    let mut pattern = Pattern::ANY;
    for field in [fields::IPV4_SOURCE, fields::IPV4_DESTINATION] {
        let length = [0, 0, 16, 24, 28, 32][random.below(6) as usize];
        pattern = pattern.with_prefix(field, 0x0a00_0000 | random.below(1 << 20), length);
    }
    let first = [22, 53, 80, 443, 1024, 5000][random.below(6) as usize] + random.below(3) as u16;
    let last = first + [0, 0, 0, 10, 1000][random.below(5) as usize];
    sample(pattern, Ports::new(first, last).expect("in order"), random)
}

/// Ports and nothing else.
fn services(random: &mut Random) -> Sample {
    let first = random.below(65_000) as u16;
    let last = first + random.below(400) as u16;
    sample(Pattern::ANY, Ports::new(first, last).expect("in order"), random)
}

/// Stations: an Ethernet address, and a VLAN or none.
fn stations(random: &mut Random) -> Sample {
    let pattern = Pattern::ANY.with(fields::MAC_DESTINATION, 0x0200_0000_0000 | random.below(512));
    let pattern = match random.below(3) {
        0 => pattern.with(fields::VLAN_ID, random.below(16)),
        _ => pattern,
    };
    sample(pattern, Ports::ANY, random)
}

/// IPv6 networks.
fn networks(random: &mut Random) -> Sample {
    let (high, low) = (0xfd00 << 48 | random.below(1 << 30) << 16, random.next_u64());
    let length = 32 + random.below(33) as u32;
    let pattern = Pattern::ANY.with_prefix(fields::IPV6_DESTINATION_HIGH, high, length);
    let pattern = match random.below(2) {
        0 if length == 64 => pattern.with_prefix(fields::IPV6_DESTINATION_LOW, low, 16),
        _ => pattern,
    };
    sample(pattern, Ports::ANY, random)
}

struct Rig {
    table: Production,
    random: Random,
    digests: Vec<Digest>,
    next: u64,
}

impl Rig {
    fn new(table: Production) -> Self {
        Self { table, random: Random::new(7), digests: Vec::new(), next: 0 }
    }

    fn insert(&mut self, make: Maker, count: u64) {
        for number in self.next..self.next + count {
            let (clause, digest) = make(&mut self.random);
            let rank = Rank::new(self.random.below(3) as u16, number);
            self.table.insert(Rule { id: RuleId(number as u32), rank, clause });
            self.digests.push(digest);
        }
        self.next += count;
    }

    fn ask(&mut self) {
        let any = |random: &mut Random| random.below(self.digests.len() as u64) as usize;
        let batch = [(); BATCH_MAX].map(|()| self.digests[any(&mut self.random)]);
        self.table.classify(&batch, &mut [None; BATCH_MAX]);
    }

    /// Batches until all rules are in trees.
    fn settle(&mut self) -> usize {
        let settled = (1..200_000).find(|_| {
            self.ask();
            self.table.is_settled()
        });
        settled.expect("it ends")
    }

    /// Trees, their nodes, the places of rules in their leaves, and with how many rules a thousand
    /// packets are compared in all, and one at most.
    fn trees(&self) -> [usize; 5] {
        let trees = &self.table.trees;
        let compared = self.digests.iter().take(1000).map(|digest| trees.rules_in_leaves(digest));
        let compared: Vec<usize> = compared.collect();
        let most = compared.iter().copied().max().unwrap_or_default();
        [trees.roots.len(), trees.nodes.len(), trees.lists.len(), compared.iter().sum(), most]
    }
}

#[test]
fn known_rules_make_known_trees() {
    let sets: [Known; 5] = [
        ("routes", routes, 1000, 205, [1, 2561, 2100, 1591, 4]),
        ("firewall", firewall, 600, 2256, [1, 14421, 40964, 23059, 75]),
        ("services", services, 400, 118, [1, 3495, 1787, 932, 6]),
        ("stations", stations, 600, 128, [1, 2485, 1103, 1156, 5]),
        ("networks", networks, 500, 68, [1, 1093, 934, 638, 2]),
    ];
    let made = sets.map(|(name, make, count, ..)| {
        let mut rig = Rig::new(Production::without_cache());
        rig.insert(make, count);
        let batches = rig.settle();
        (name, batches, rig.trees())
    });
    assert_eq!(made, sets.map(|(name, _, _, batches, trees)| (name, batches, trees)));
}

/// Trees are made again when enough has changed, and memory comes back.
#[test]
fn trees_follow_rules_that_change_as_soon_as_it_is_worth_it() {
    let mut rig = Rig::new(Production::without_cache());
    rig.insert(routes, 1000);
    let first = rig.settle();
    let full_bytes = rig.table.memory_bytes();
    rig.insert(firewall, 30);
    let few = rig.settle();
    rig.insert(firewall, 400);
    let many = rig.settle();
    (0..1300).for_each(|id| assert!(rig.table.remove(RuleId(id))));
    let gone = rig.settle();
    assert_eq!(
        ([first, few, many, gone], rig.trees()),
        ([205, 1571, 5992, 265], [1, 10243, 2538, 1352, 4])
    );
    // How full the map of places can become differs, since its keys are hashed with a secret.
    let percent = rig.table.memory_bytes() * 100 / full_bytes;
    assert!((145..=155).contains(&percent), "{percent} % of what it was");
}

#[test]
fn known_packets_find_known_answers_in_the_cache() {
    let mut rig = Rig::new(Production::new());
    rig.insert(routes, 1500);
    rig.digests.truncate(700);
    (0..400).for_each(|_| rig.ask());
    let warm = rig.table.cache_use();
    rig.insert(routes, 10);
    (0..400).for_each(|_| rig.ask());
    let changed = rig.table.cache_use();
    let bytes = rig.table.cache.memory_bytes();
    // Packets of which none comes again are not worth remembering.
    rig.digests.extend((0..100_000).map(|_| routes(&mut rig.random).1));
    (0..4000).for_each(|_| rig.ask());
    let useless = rig.table.cache_use();
    assert_eq!(
        [warm, changed, useless, (bytes as u64, 0)],
        [(11776, 11070), (24448, 11892), (152448, 31550), (526336, 0)]
    );
}
