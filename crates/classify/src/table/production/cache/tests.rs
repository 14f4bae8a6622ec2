//! What is remembered is forgotten in time: when rules come and go, and when the number of a
//! generation comes again.

mod any_rules;

use super::super::Production;
use super::{ANSWER, NO_LINE, PLAIN, SAMPLE};
use crate::table::{BATCH_MAX, Linear, Table};
use crate::{Clause, Pattern, Ports, Rank, Rule, RuleId};
use clearway_base::Random;
use clearway_wire::digest::{Digest, fields};

/// Rules, in the table and in a list.
struct Both {
    table: Production,
    oracle: Linear,
    sequence: u64,
}

impl Both {
    fn empty() -> Self {
        Self { table: Production::new(), oracle: Linear::new(), sequence: 0 }
    }

    /// With rules enough for a cache, which are about addresses that nobody asks for.
    fn new() -> Self {
        let mut both = Self::empty();
        for number in 0..200 {
            both.insert(to(0x0b00_0000 + number, 8, 0xffff_ffff).into());
        }
        both
    }

    /// With a cache, and rules that look at no more than addresses of IPv4, which nobody asks for.
    fn looking_at_addresses(count: u64) -> Self {
        let mut both = Self::empty();
        for number in 0..count {
            let pattern = Pattern::ANY.with(fields::IPV4_DESTINATION, 0x0b00_0000 + number);
            both.insert(pattern.into());
        }
        (0..8).for_each(|_| both.check_owners(&[]));
        both
    }

    fn insert(&mut self, clause: Clause) -> RuleId {
        let id = RuleId(self.sequence as u32 + 1);
        self.insert_as(id, 0, clause);
        id
    }

    /// Of equal priority, what comes last goes first.
    fn insert_as(&mut self, id: RuleId, priority: u16, clause: Clause) {
        self.sequence += 1;
        let rank = Rank::new(priority, Rank::SEQUENCE_END - 1 - self.sequence);
        let rule = Rule { id, rank, clause };
        self.table.insert(rule);
        self.oracle.insert(rule);
    }

    fn remove(&mut self, id: RuleId) {
        assert!(self.table.remove(id) && self.oracle.remove(id));
    }

    /// Has the cache asked again at once, however often rules have changed lately.
    fn open(&mut self) {
        (self.table.cache.is_open, self.table.cache.pause) = (true, 0);
    }

    /// Makes the cache so small that most questions share their lines with others.
    fn shrink(&mut self) {
        let cache = &mut self.table.cache;
        cache.size = SAMPLE;
        cache.lines = vec![NO_LINE; SAMPLE];
        cache.regions = vec![cache.generation];
    }

    /// Asks until what is known is answered from the cache.
    fn warm(&mut self) {
        self.open();
        for _ in 0..40 {
            self.check(0);
        }
        let before = self.table.cache_use();
        self.check(0);
        let after = self.table.cache_use();
        assert_eq!(after.1 - before.1, BATCH_MAX as u64, "the cache knows all");
    }

    /// All packets of these tests have the right owner.
    fn check(&mut self, first: u64) {
        let digests: Vec<Digest> =
            (first..first + BATCH_MAX as u64).map(|number| packet(number, number)).collect();
        self.check_owners(&digests);
    }

    fn check_owners(&mut self, digests: &[Digest]) {
        let (mut found, mut expected) = ([None; BATCH_MAX], [None; BATCH_MAX]);
        self.table.classify(digests, &mut found);
        self.oracle.classify(digests, &mut expected);
        assert_eq!(found, expected);
    }
}

/// What goes to some addresses and a port.
fn to(address: u64, port: u64, mask: u64) -> Pattern {
    let of_ipv4 = Pattern::ANY.with(fields::NETWORK, 6).with(fields::LAYER, 1);
    let bits = mask.count_ones();
    of_ipv4
        .with_prefix(fields::IPV4_DESTINATION, address, bits)
        .with(fields::DESTINATION_PORT, port)
}

fn packet(host: u64, port: u64) -> Digest {
    let ports = fields::SOURCE_PORT.place(port) | fields::DESTINATION_PORT.place(8);
    Digest::from_words([0x1161_0800 | ports, 0, 0, 0x0a00_0000 + host, 0, 0, 0, 0])
}

/// An answer of a generation whose number comes again is not an answer.
#[test]
fn generations_wrap_and_nothing_old_is_remembered() {
    for generation in [0, 1] {
        let mut both = Both::new();
        both.table.cache.generation = generation;
        both.table.cache.regions.fill(generation);
        both.warm();
        // 2^32 changes later, less one or two.
        both.table.cache.generation = u32::MAX;
        for _ in 0..=generation {
            let rule = both.insert(to(0x0a00_0000, 8, 0xffff_0000).into());
            both.check(0);
            both.warm();
            both.remove(rule);
            both.check(0);
        }
        both.warm();
    }
}

/// What is remembered in the batch in which the cache closes, when the number of its generation
/// comes again, is of the context before.
#[test]
fn a_batch_in_which_generations_wrap_is_not_remembered() {
    let mut both = Both::new();
    both.warm();
    both.insert(Pattern::ANY.with(fields::MAC_DESTINATION, 7).into());
    both.table.cache.generation = u32::MAX;
    // The period ends with the next batch, and nothing of its sample was answered.
    (both.table.cache.asked, both.table.cache.is_warm) = (1 << 16, true);
    let to_mac = |mac: u64| -> Vec<Digest> {
        let to_mac = |host| {
            let mut words = *packet(host, host).words();
            words[1] = mac << 16;
            Digest::from_words(words)
        };
        (0..BATCH_MAX as u64).map(to_mac).collect()
    };
    both.open();
    both.check_owners(&to_mac(7));
    assert!(!both.table.cache.is_open, "it was not worth it");
    for mac in [8, 7, 8] {
        both.open();
        both.check_owners(&to_mac(mac));
    }
}

#[test]
fn the_way_that_is_next_to_go_wraps() {
    let mut both = Both::new();
    both.table.cache.turn = u32::MAX - 100;
    both.warm();
    (0..2000).for_each(|first| both.check(first * 7));
}

/// Packets that differ in one bit of what is compared are not taken for each other where they are
/// in the same line.
#[test]
fn a_question_is_compared_in_every_bit() {
    let mut random = Random::new(1);
    let mut answered = 0;
    for _ in 0..60 {
        let mut both = Both::new();
        let (word_0, word_3) = (random.next_u64(), random.next_u64());
        let flips = (24..64).map(|bit| (1 << bit, 0)).chain((0..64).map(|bit| (0, 1 << bit)));
        let questions: Vec<_> = std::iter::once((0, 0))
            .chain(flips)
            .map(|(flip_0, flip_3)| [(word_0 ^ flip_0) & !ANSWER, word_3 ^ flip_3])
            .collect();
        for [word_0, word_3] in &questions {
            let mask = [!ANSWER, 0, 0, u64::MAX, 0, 0, 0];
            both.insert(Pattern::new(mask, [*word_0, 0, 0, *word_3, 0, 0, 0]).into());
        }
        both.shrink();
        let digest = |&[word_0, word_3]: &[u64; 2]| {
            Digest::from_words([word_0 | PLAIN, 0, 0, word_3, 0, 0, 0, 0])
        };
        let digests: Vec<_> = questions.iter().map(digest).collect();
        for others in digests[1..].chunks(BATCH_MAX / 4) {
            for _ in 0..3 {
                both.open();
                both.check_owners(&digests[..1]);
                both.check_owners(others);
            }
        }
        answered += both.table.cache_use().1;
    }
    assert!(answered > 10_000, "{answered}");
}

/// Where no other rule looks at ports, a range that leaves out a single one has packets told apart.
#[test]
fn a_range_that_leaves_out_one_port_is_looked_at_as_a_whole_port() {
    let ends = [0, 1, 2, 32767, 32768, 65533, 65534, 65535];
    let with_ports = |from: u16, to: u16| {
        let from = fields::SOURCE_PORT.place(u64::from(from));
        let to = fields::DESTINATION_PORT.place(u64::from(to));
        Digest::from_words([PLAIN | from | to, 0, 0, 7, 0, 0, 0, 0])
    };
    let ranges = ends.iter().flat_map(|first| ends.map(|last| Ports::new(*first, last)));
    for range in ranges.flatten() {
        let clauses = [Clause::ANY.from_ports(range), Clause::ANY.to_ports(range)];
        let packets = [ends.map(|port| with_ports(port, 9)), ends.map(|port| with_ports(9, port))];
        for (clause, packets) in clauses.into_iter().flatten().zip(packets) {
            let mut both = Both::looking_at_addresses(100);
            both.insert(clause);
            both.open();
            // Asked one by one, each finds what the one before has had remembered.
            packets.iter().for_each(|packet| both.check_owners(&[*packet]));
            packets.iter().rev().for_each(|packet| both.check_owners(&[*packet]));
            assert!(both.table.cache_use().1 >= 8, "each is known the second time");
        }
    }
}

/// A rule of any kind that comes or goes changes answers at once: one flow's, a network's, a
/// range's at both ends, and one that looks where none has looked before.
#[test]
fn every_kind_of_change_is_seen_by_what_is_remembered() {
    let mut random = Random::new(1);
    let mut both = Both::new();
    both.warm();
    for round in 0..300 {
        let (first, length) = (random.below(BATCH_MAX as u64) as u16, random.below(9) as u16);
        let range = Ports::new(first, first + length).unwrap();
        let host = 0x0a00_0000 + random.below(BATCH_MAX as u64);
        let clause: Clause = match round % 6 {
            0 => to(host, 8, 0xffff_ffff).into(),
            1 => to(host, 8, 0xffff_fff8).into(),
            2 => Clause::ANY.from_ports(range).unwrap(),
            3 => Clause::new(to(host, 8, 0xffff_fff0)).from_ports(range).unwrap(),
            4 => to(host, 8, 0xffff_ffff).with(fields::SOURCE_PORT, random.below(40)).into(),
            _ => Pattern::ANY.with(fields::MAC_DESTINATION, round).into(),
        };
        let rule = both.insert(clause);
        both.open();
        (0..3).for_each(|_| both.check(0));
        both.remove(rule);
        both.open();
        (0..3).for_each(|_| both.check(0));
    }
    let (asked, answered) = both.table.cache_use();
    assert!(answered * 4 > asked && answered > 10_000, "{answered} of {asked}");
}
