//! Which hash tables there should be for given rules.
//!
//! TupleMerge's insight is that a table may hash by fewer bits than its rules ask for, so that rules
//! of many masks share one table, as long as few of them share a bucket. Here the masks are chosen
//! greedily: the one that finds a place for the most rules first, and again for the rules that are left.

use super::entry::{Mask, hash_wide};
use crate::Pattern;
use clearway_wire::digest::{PATTERN_WORDS, fields};
use std::collections::HashMap;

/// No more rules than this share a bucket, where that can be helped. Reading so many, side by side in
/// memory, costs about as much as asking one more table.
pub(super) const BUCKET_MAX: usize = 16;
/// A plan has at most so many tables; what is left over is scanned.
pub(super) const TABLES_MAX: usize = 24;
/// A table for fewer rules is not worth asking.
const RULES_MIN: usize = 4;
/// What the square of the length of a bucket costs, against finding a place for one more rule.
const CROWDING: f64 = 0.005;

/// The masks of tables for `patterns`, in the order in which a rule should try them.
pub(super) fn masks(patterns: &[Pattern], tables_max: usize) -> Vec<Mask> {
    let mut left: Vec<&Pattern> = patterns.iter().collect();
    let mut masks = Vec::new();
    let mut counter = Counter::new(patterns.len());
    while masks.len() < tables_max && left.len() >= RULES_MIN {
        let Some(best) = best(&left, &mut counter) else { break };
        counter.start();
        left.retain(|pattern| {
            !(fits(&best, pattern.mask()) && counter.count(pattern, &best) <= BUCKET_MAX)
        });
        masks.push(best);
    }
    masks
}

fn fits(mask: &Mask, of: &Mask) -> bool {
    mask.iter().zip(of).all(|(mine, theirs)| mine & !theirs == 0)
}

/// The mask that finds a place for the most of `patterns`, if it is worth a table.
fn best(patterns: &[&Pattern], counter: &mut Counter) -> Option<Mask> {
    let mut groups: HashMap<&Mask, usize> = HashMap::new();
    for pattern in patterns {
        *groups.entry(pattern.mask()).or_default() += 1;
    }
    let mut candidates: Vec<(usize, Mask)> = candidates(&groups)
        .into_iter()
        .map(|mask| {
            let fitting = groups.iter().filter(|(of, _)| fits(&mask, of));
            (fitting.map(|(_, count)| count).sum(), mask)
        })
        .filter(|(count, _)| *count >= RULES_MIN)
        .collect();
    // Those that could take the most first, so that the rest need not be tried; of equals, the one that
    // says more.
    let bits = |mask: &Mask| mask.iter().map(|word| word.count_ones()).sum::<u32>();
    candidates.sort_by_key(|(count, mask)| (std::cmp::Reverse((*count, bits(mask))), *mask));
    let mut best = (RULES_MIN as f64 / 2.0, None);
    for (count, mask) in candidates {
        if count as f64 / (1.0 + CROWDING) <= best.0 {
            break;
        }
        let score = score(patterns, &mask, counter);
        if score > best.0 {
            best = (score, Some(mask));
        }
    }
    best.1
}

/// How many rules find a place, less for crowded buckets.
fn score(patterns: &[&Pattern], mask: &Mask, counter: &mut Counter) -> f64 {
    counter.start();
    let (mut placed, mut squares) = (0usize, 0usize);
    for pattern in patterns.iter().filter(|pattern| fits(mask, pattern.mask())) {
        let length = counter.count(pattern, mask);
        if length <= BUCKET_MAX {
            placed += 1;
            // The square of the length grows by this with each.
            squares += 2 * length - 1;
        }
    }
    placed as f64 / (1.0 + CROWDING * squares as f64 / placed.max(1) as f64)
}

/// Masks that tables might have: prefixes of addresses with and without ports and protocol, as in IPv4,
/// and whole masks of rules, with and without addresses, for all else.
fn candidates(groups: &HashMap<&Mask, usize>) -> Vec<Mask> {
    const ADDRESS_BITS: [u32; 9] = [0, 8, 12, 16, 20, 24, 28, 30, 32];
    let port_bits: &[u32] = &[0, 8, 12, 16];
    let mut masks = Vec::new();
    for source in ADDRESS_BITS {
        for destination in ADDRESS_BITS {
            for &source_port in &[0, 16] {
                for &port in port_bits {
                    for protocol in [0, 8] {
                        let pattern = Pattern::ANY
                            .with_prefix(fields::IPV4_SOURCE, u64::MAX, source)
                            .with_prefix(fields::IPV4_DESTINATION, u64::MAX, destination)
                            .with_prefix(fields::SOURCE_PORT, u64::MAX, source_port)
                            .with_prefix(fields::DESTINATION_PORT, u64::MAX, port)
                            .with_prefix(fields::PROTOCOL, u64::MAX, protocol);
                        masks.push(*pattern.mask());
                    }
                }
            }
        }
    }
    masks.retain(|mask| *mask != [0; PATTERN_WORDS]);
    let mut frequent: Vec<_> = groups.iter().map(|(mask, count)| (*count, **mask)).collect();
    frequent.sort_unstable_by(|a, b| b.cmp(a));
    for (_, mask) in frequent.into_iter().take(FREQUENT_MAX) {
        masks.extend(parts(&mask));
    }
    masks.sort_unstable();
    masks.dedup();
    masks
}

/// So many of the masks that rules have are tried as they are.
const FREQUENT_MAX: usize = 24;

/// A mask, and what is left of it if some words are left out: an address or two, ports, MAC addresses.
fn parts(mask: &Mask) -> impl Iterator<Item = Mask> {
    const WORDS: [&[usize]; 9] = [
        &[0, 1, 2, 3, 4, 5, 6],
        &[3, 4],
        &[5, 6],
        &[3, 4, 5, 6],
        &[3, 5],
        &[0, 5, 6],
        &[0, 3, 4],
        &[1],
        &[2],
    ];
    let mask = *mask;
    WORDS.into_iter().map(move |words| {
        std::array::from_fn(|word| if words.contains(&word) { mask[word] } else { 0 })
    })
}

/// Counts equal hashes. Starting again costs nothing: what is of an earlier round counts as nothing.
struct Counter {
    rounds: Vec<(u32, u32)>,
    round: u32,
}

impl Counter {
    fn new(patterns: usize) -> Self {
        Self { rounds: vec![(0, 0); (patterns * 2).next_power_of_two().max(16)], round: 0 }
    }

    fn start(&mut self) {
        self.round += 1;
    }

    /// How often the hash of this has come in this round, this time included.
    fn count(&mut self, pattern: &Pattern, mask: &Mask) -> usize {
        let last = self.rounds.len() - 1;
        let slot = &mut self.rounds[hash_wide(pattern.value(), mask) as usize & last];
        if slot.0 != self.round {
            *slot = (self.round, 0);
        }
        slot.1 += 1;
        slot.1 as usize
    }
}
