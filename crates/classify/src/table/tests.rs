//! All tables against the linear one, over random rules and packets.

use super::{Adaptive, BATCH_MAX, Linear, Production, Table, Tuple};
use crate::{Clause, Pattern, Ports, Rank, Rule, RuleId};
use clearway_base::Random;
use clearway_wire::digest::{Digest, Field, fields};

type Tables = Vec<(&'static str, Box<dyn Table>)>;

/// Where rules change all the time, the cache is hardly asked: its own tests do that.
fn tables() -> Tables {
    vec![("adaptive", Box::new(Adaptive::new())), ("production", Box::new(Production::new()))]
}

/// Those, and the tuple table, which for a thousand rules that all overlap has too much to do.
fn all_tables() -> Tables {
    let mut tables = tables();
    tables.push(("tuple", Box::new(Tuple::with_values_max(3000))));
    tables.push(("tuple that may not add many", Box::new(Tuple::with_values_max(100))));
    tables
}

/// Values from few, so that rules overlap and packets hit.
struct Generator {
    random: Random,
    sequence: u64,
    is_ipv4_only: bool,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_ipv4_only = random.chance(1, 2);
        Self { random, sequence: 0, is_ipv4_only }
    }

    fn one_in(&mut self, number: u64) -> bool {
        self.random.chance(1, number)
    }

    /// Addresses that share prefixes of all lengths.
    fn address(&mut self) -> u64 {
        let bits = self.random.below(33);
        let differs = if bits == 0 { 0 } else { 1u64 << (bits - 1) };
        0x0a14_1e28 ^ differs ^ self.random.below(4)
    }

    fn port(&mut self) -> u64 {
        if self.one_in(4) { self.random.below(65536) } else { 1000 + self.random.below(24) }
    }

    fn kind(&mut self) -> u64 {
        if self.is_ipv4_only || self.one_in(2) {
            return 0x0061_0800;
        }
        [0x0061_0800, 0x0062_0800, 0x0063_0800, 0x0071_86dd, 0x00e1_0800, 0x0020_0806, 0x0010_1234]
            [self.random.below(7) as usize]
    }

    fn digest(&mut self) -> Digest {
        let kind = self.kind();
        let mut words = [0; 8];
        words[0] = kind | fields::PROTOCOL.place([6, 17, 17][self.random.below(3) as usize]);
        if kind >> 16 & 7 == 1 {
            words[0] |= fields::SOURCE_PORT.place(self.port());
            words[0] |= fields::DESTINATION_PORT.place(self.port());
        }
        words[3] = self.address() << 32 | self.address();
        if !self.is_ipv4_only {
            words[1] = self.random.below(3) << 16;
            words[2] = self.random.below(3) << 16;
        }
        if kind & 0xffff == 0x86dd {
            (words[4], words[5], words[6]) =
                (self.random.below(3), self.random.below(2), self.address());
        }
        Digest::from_words(words)
    }

    fn prefix(&mut self, pattern: Pattern, field: Field, value: u64) -> Pattern {
        match self.random.below(4) {
            0 => pattern,
            1 => pattern.with(field, value),
            _ => {
                let bits = self.random.below(u64::from(field.bits) + 1) as u32;
                pattern.with_prefix(field, value, bits)
            }
        }
    }

    fn ports(&mut self) -> Ports {
        let (a, b) = (self.port() as u16, self.port() as u16);
        Ports::new(a.min(b), a.max(b)).unwrap()
    }

    fn clause(&mut self) -> Clause {
        let digest = self.digest();
        let mut pattern = Pattern::ANY;
        if self.one_in(3) {
            pattern = pattern.with(fields::PROTOCOL, digest.field(fields::PROTOCOL));
        }
        if !self.is_ipv4_only && self.one_in(2) {
            pattern = pattern.with(fields::NETWORK, digest.field(fields::NETWORK));
        }
        for field in [fields::IPV4_SOURCE, fields::IPV4_DESTINATION] {
            pattern = self.prefix(pattern, field, digest.field(field));
        }
        for field in [fields::MAC_SOURCE, fields::MAC_DESTINATION, fields::IPV6_DESTINATION_LOW] {
            if !self.is_ipv4_only && self.one_in(6) {
                pattern = pattern.with(field, digest.field(field));
            }
        }
        if self.one_in(20) {
            // Anything: three of four bits do not matter, or nearly all.
            let mask = std::array::from_fn(|_| {
                self.random.next_u64() & self.random.next_u64() & self.random.next_u64()
            });
            let words: [u64; 7] = std::array::from_fn(|word| digest.words()[word]);
            pattern = Pattern::new(mask, words);
        }
        let clause = Clause::new(pattern);
        let (from, to) = (self.ports(), self.ports());
        let clause =
            if self.one_in(6) { clause.from_ports(from).unwrap_or(clause) } else { clause };
        if self.one_in(2) { clause.to_ports(to).unwrap_or(clause) } else { clause }
    }

    fn rule(&mut self, id: u32) -> Rule {
        self.sequence += 1;
        let rank = Rank::new(self.random.below(3) as u16, self.sequence);
        Rule { id: RuleId(id), rank, clause: self.clause() }
    }
}

fn compare(
    oracle: &mut Linear,
    tables: &mut [(&str, Box<dyn Table>)],
    digests: &[Digest],
    seed: u64,
) {
    let mut expected = [None; BATCH_MAX];
    oracle.classify(digests, &mut expected);
    for (name, table) in tables {
        let mut found = [Some(RuleId(77)); BATCH_MAX];
        table.classify(digests, &mut found);
        assert_eq!(found[..digests.len()], expected[..digests.len()], "{name}, seed {seed}");
        assert_eq!(table.rules(), oracle.rules(), "{name}, seed {seed}");
    }
}

/// Rules come and go between batches; packets come again, so that what is remembered is asked for.
fn run(seed: u64, steps: u64, rules_max: u64, mut tables: Tables) {
    let mut generator = Generator::new(seed);
    let mut oracle = Linear::new();
    let mut present = Vec::new();
    let digests: Vec<_> = (0..200).map(|_| generator.digest()).collect();
    for step in 0..steps {
        let is_full = present.len() as u64 >= rules_max;
        if !is_full && !generator.one_in(3) {
            let rule = generator.rule(step as u32);
            oracle.insert(rule);
            tables.iter_mut().for_each(|(_, table)| table.insert(rule));
            present.push(rule.id);
        } else if !present.is_empty() {
            let at = generator.random.below(present.len() as u64) as usize;
            let id = present.swap_remove(at);
            assert!(oracle.remove(id));
            assert!(tables.iter_mut().all(|(_, table)| table.remove(id)));
            assert!(!tables.iter_mut().any(|(_, table)| table.remove(id)));
        }
        for _ in 0..generator.random.below(6) {
            let batch: Vec<_> = (0..generator.random.below(BATCH_MAX as u64 + 1))
                .map(|_| {
                    let at = generator.random.below(digests.len() as u64) as usize;
                    if generator.one_in(3) { generator.digest() } else { digests[at] }
                })
                .collect();
            compare(&mut oracle, &mut tables, &batch, seed);
        }
    }
    for (_, table) in &tables {
        assert!(table.memory_bytes() > 0 || oracle.rules() == 0);
    }
}

#[test]
fn agree_with_the_oracle_on_few_rules() {
    (0..12).for_each(|seed| run(seed, 120, 25, all_tables()));
}

#[test]
fn agree_with_the_oracle_on_many_rules() {
    (100..104).for_each(|seed| run(seed, 1500, 900, tables()));
}

#[test]
fn an_empty_table_finds_nothing() {
    for (name, table) in &mut all_tables() {
        let mut found = [Some(RuleId(1)); 2];
        table.classify(&[Digest::default(); 2], &mut found);
        assert_eq!(found, [None; 2], "{name}");
        assert!(!table.remove(RuleId(1)));
    }
}

/// While trees are made, in slices, rules go and come and packets get right answers; and it ends.
#[test]
fn rules_move_into_trees_while_others_come_and_go() {
    let mut generator = Generator::new(4);
    let (mut oracle, mut table) = (Linear::new(), Production::without_cache());
    let insert = |generator: &mut Generator, oracle: &mut Linear, table: &mut Production, id| {
        let rule = generator.rule(id);
        oracle.insert(rule);
        table.insert(rule);
    };
    // A sample of so many is taken to tell them apart, and some trees have too many places.
    (0..150).for_each(|id| insert(&mut generator, &mut oracle, &mut table, id));
    let batch = |generator: &mut Generator, oracle: &mut Linear, table: &mut Production| {
        let digests: Vec<_> = (0..BATCH_MAX).map(|_| generator.digest()).collect();
        let (mut expected, mut found) = ([None; BATCH_MAX], [None; BATCH_MAX]);
        oracle.classify(&digests, &mut expected);
        table.classify(&digests, &mut found);
        assert_eq!(found, expected);
    };
    for id in 150..200 {
        batch(&mut generator, &mut oracle, &mut table);
        assert!(oracle.remove(RuleId(id - 150)) && table.remove(RuleId(id - 150)));
        insert(&mut generator, &mut oracle, &mut table, id);
    }
    assert!(!table.is_settled(), "this was to be about the time before");
    let settles = (0..100_000).any(|_| {
        batch(&mut generator, &mut oracle, &mut table);
        table.is_settled()
    });
    assert!(settles, "{} hash tables are left", table.hash_tables());
    assert_eq!(table.hash_tables(), 0);
    batch(&mut generator, &mut oracle, &mut table);
}

/// Has the table asked about these packets until all rules are in trees.
#[track_caller]
fn settle(table: &mut Production, digests: &[Digest]) {
    let settles = (0..20_000).any(|at| {
        let first = at * BATCH_MAX % digests.len();
        let batch = &digests[first..digests.len().min(first + BATCH_MAX)];
        table.classify(batch, &mut [None; BATCH_MAX]);
        table.is_settled()
    });
    assert!(settles, "{} hash tables are left", table.hash_tables());
}

/// Trees ask for whatever tells rules apart: a packet is compared with few of hundreds.
#[test]
fn trees_tell_rules_apart_by_every_field() {
    for field in [
        fields::SOURCE_PORT,
        fields::DESTINATION_PORT,
        fields::VLAN_ID,
        fields::MAC_SOURCE,
        fields::MAC_DESTINATION,
        fields::IPV4_SOURCE,
        fields::IPV4_DESTINATION,
        fields::IPV6_SOURCE_LOW,
        fields::IPV6_DESTINATION_HIGH,
        fields::IPV6_DESTINATION_LOW,
    ] {
        let mut table = Production::without_cache();
        let mut digests = Vec::new();
        for number in 0..256 {
            let value = number << (field.bits - 8);
            let pattern = Pattern::ANY.with_prefix(field, value, 8 + number as u32 % 3);
            let rank = Rank::new(0, number);
            table.insert(Rule { id: RuleId(number as u32), rank, clause: pattern.into() });
            digests.push(digest_in(&pattern));
        }
        settle(&mut table, &digests);
        let most = digests.iter().map(|digest| table.rules_in_leaves(digest)).max();
        assert!(most <= Some(16), "{field:?}: {most:?}");
    }
}

/// One of five-tuples of which no two are the same.
fn connection(number: u64) -> Pattern {
    Pattern::ANY
        .with(fields::NETWORK, 6)
        .with(fields::TAGGED, 0)
        .with(fields::LAYER, 1)
        .with(fields::PROTOCOL, 6)
        .with(fields::IPV4_SOURCE, 0x0a00_0000 + number / 100)
        .with(fields::IPV4_DESTINATION, 0x0a00_0001)
        .with(fields::SOURCE_PORT, 1024 + number % 100)
        .with(fields::DESTINATION_PORT, 80)
}

fn insert_connection(table: &mut Production, number: u64) {
    let (id, rank) = (RuleId(number as u32), Rank::new(0, number));
    table.insert(Rule { id, rank, clause: connection(number).into() });
}

/// A packet that the pattern matches.
fn digest_in(pattern: &Pattern) -> Digest {
    Digest::from_words(std::array::from_fn(|word| {
        pattern.value().get(word).copied().unwrap_or_default()
    }))
}

/// As many as there are at a time need memory, and not as many as there have been.
#[test]
fn memory_of_connections_that_have_gone_is_used_again() {
    let mut table = Production::without_cache();
    (0..100).for_each(|number| insert_connection(&mut table, number));
    let before = table.memory_bytes();
    for number in 100..20_000 {
        insert_connection(&mut table, number);
        assert!(table.remove(RuleId(number as u32 - 100)));
    }
    let after = table.memory_bytes();
    assert!(after < 4 * before, "{before} bytes, then {after}");
}

/// A hundred thousand connections are no slower to find than a hundred, but for what memory costs:
/// they all are in one hash table, whose buckets stay short.
#[test]
fn exact_rules_share_one_hash_table() {
    let mut table = Production::new();
    let count = 20_000;
    (0..count).for_each(|number| insert_connection(&mut table, number));
    assert!(table.hash_tables() <= 3, "{} hash tables", table.hash_tables());
    for number in (0..count).step_by(97) {
        let mut found = [None];
        table.classify(&[digest_in(&connection(number))], &mut found);
        assert_eq!(found, [Some(RuleId(number as u32))]);
    }
    assert!(table.memory_bytes() < count as usize * 500 + (16 << 20));
}

#[test]
fn the_cache_knows_flows_of_rules_that_name_an_ethernet_address_and_no_other_address() {
    let mut table = Production::new();
    let mine = |pattern: Pattern| pattern.with(fields::MAC_DESTINATION, 7);
    for number in 0..100 {
        let pattern = mine(Pattern::ANY).with_prefix(fields::IPV4_DESTINATION, number << 8, 24);
        let rank = Rank::new(0, number);
        table.insert(Rule { id: RuleId(number as u32), rank, clause: pattern.into() });
    }
    let packets = |mac: u64| -> Vec<Digest> {
        let words = |at: u64| [0x1161_0800, mac << 16, 0, at << 8, 0, 0, 0, 0];
        (0..32).map(|at| Digest::from_words(words(at))).collect()
    };
    let (to_me, to_another) = (packets(7), packets(8));
    for _ in 0..20 {
        let mut found = [None; BATCH_MAX];
        table.classify(&to_me, &mut found);
        assert!(found.iter().enumerate().all(|(at, id)| *id == Some(RuleId(at as u32))));
        table.classify(&to_another, &mut found);
        assert_eq!(found, [None; BATCH_MAX]);
    }
    let (asked, answered) = table.cache_use();
    assert!(asked > 0 && answered * 3 > asked, "{answered} of {asked}");
}

/// Ranges that no generator makes, looked for at both their ends and beside them: a few rules and
/// many, with the cache and without.
#[test]
fn ranges_are_exact_at_both_ends_in_every_table() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut oracle = Linear::new();
        let mut tables = tables();
        tables.push(("production without cache", Box::new(Production::without_cache())));
        let count = [5, 60, 400][seed as usize % 3];
        let mut ends = vec![0, 65535];
        for number in 0..count {
            let mut range = || {
                let at = random.below(65536) as u16;
                let length = [0, 1, 2, 7, 8, 255, 256, 5000, 65535][random.below(9) as usize];
                Ports::new(at, at.saturating_add(length)).unwrap()
            };
            let (from, to) = (range(), range());
            let mut clause = Clause::new(
                Pattern::ANY.with(fields::NETWORK, 6).with(fields::ETHER_TYPE, 0x0800).with_prefix(
                    fields::IPV4_DESTINATION,
                    number << 20,
                    random.below(13) as u32,
                ),
            );
            if random.chance(1, 2) {
                clause = clause.from_ports(from).unwrap();
                ends.extend([from.first(), from.last()]);
            }
            if random.chance(2, 3) {
                clause = clause.to_ports(to).unwrap();
                ends.extend([to.first(), to.last()]);
            }
            let rank = Rank::new(random.below(3) as u16, number);
            let rule = Rule { id: RuleId(number as u32), rank, clause };
            oracle.insert(rule);
            tables.iter_mut().for_each(|(_, table)| table.insert(rule));
        }
        let port = |random: &mut Random| {
            let end = ends[random.below(ends.len() as u64) as usize];
            u64::from(end.wrapping_add(random.below(3) as u16).wrapping_sub(1))
        };
        for _ in 0..200 {
            let digests: Vec<Digest> = (0..32)
                .map(|_| {
                    let ports = fields::SOURCE_PORT.place(port(&mut random))
                        | fields::DESTINATION_PORT.place(port(&mut random));
                    let address = random.below(count) << 20 | random.below(2);
                    Digest::from_words([0x1161_0800 | ports, 0, 0, address, 0, 0, 0, 0])
                })
                .collect();
            // Twice: found, and remembered.
            compare(&mut oracle, &mut tables, &digests, seed);
            compare(&mut oracle, &mut tables, &digests, seed);
        }
    }
}

/// Where ports are all that tells rules apart, trees ask for them in pieces: first for the upper
/// bits, then for those below.
#[test]
fn ranges_are_exact_in_trees_that_only_ports_tell_apart() {
    for field in [fields::SOURCE_PORT, fields::DESTINATION_PORT] {
        let mut random = Random::new(u64::from(field.shift));
        let (mut oracle, mut table) = (Linear::new(), Production::without_cache());
        let mut ends = vec![0, 65535];
        let mut first = 0u16;
        for number in 0..400 {
            // Next to each other, some with a gap between them, some beginning in the one before.
            let last = first.saturating_add(random.below(60) as u16);
            let range = Ports::new(first, last).unwrap();
            let clause = if field == fields::SOURCE_PORT {
                Clause::ANY.from_ports(range).unwrap()
            } else {
                Clause::ANY.to_ports(range).unwrap()
            };
            let rank = Rank::new(random.below(3) as u16, number);
            let rule = Rule { id: RuleId(number as u32), rank, clause };
            oracle.insert(rule);
            table.insert(rule);
            ends.extend([first, last]);
            first = last.saturating_add([0, 1, 1, 2][random.below(4) as usize]);
        }
        let ports = ends.iter().flat_map(|end| [end.wrapping_sub(1), *end, end.wrapping_add(1)]);
        let word_0 = |port| 0x1161_0800 | field.place(u64::from(port));
        let digests: Vec<_> =
            ports.map(|port| Digest::from_words([word_0(port), 0, 0, 0, 0, 0, 0, 0])).collect();
        settle(&mut table, &digests);
        let most = digests.iter().map(|digest| table.rules_in_leaves(digest)).max();
        assert!(most <= Some(16), "{field:?}: {most:?}");
        for batch in digests.chunks(BATCH_MAX) {
            let (mut expected, mut found) = ([None; BATCH_MAX], [None; BATCH_MAX]);
            oracle.classify(batch, &mut expected);
            table.classify(batch, &mut found);
            assert_eq!(found, expected);
        }
    }
}
