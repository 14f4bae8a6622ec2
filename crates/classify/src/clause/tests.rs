use super::Clause;
use crate::{Pattern, Ports};
use clearway_wire::digest::{Digest, Field, PATTERN_WORDS, fields};
use proptest::prelude::*;

fn ports() -> impl Strategy<Value = Ports> {
    (0u16..40, 0u16..40).prop_map(|(a, b)| Ports::new(a.min(b), a.max(b)).unwrap())
}

/// Clauses over few ports, so that they meet often.
fn clause() -> impl Strategy<Value = Clause> {
    let masks = prop::sample::select(vec![0u64, 0xffff, 0xfff8, 0xffe0, 0x0005, 0x8001]);
    let pattern = (masks.clone(), 0u64..40, masks, 0u64..40).prop_map(|(a, b, c, d)| {
        Pattern::new(
            [a << 48 | c << 32, 0, 0, 0, 0, 0, 0],
            [(b << 48 | d << 32) & (a << 48 | c << 32), 0, 0, 0, 0, 0, 0],
        )
    });
    (pattern, ports(), ports(), any::<[bool; 2]>()).prop_filter_map(
        "empty",
        |(pattern, a, b, with)| {
            let mut clause = Clause::new(pattern);
            if with[0] {
                clause = clause.from_ports(a)?;
            }
            if with[1] {
                clause = clause.to_ports(b)?;
            }
            Some(clause)
        },
    )
}

fn digests() -> Vec<Digest> {
    let all = (0..48).flat_map(|source| (0..48).map(move |destination| (source, destination)));
    all.map(|(source, destination)| {
        let ports = fields::SOURCE_PORT.place(source) | fields::DESTINATION_PORT.place(destination);
        Digest::from_words([ports | fields::LAYER.place(1), 0, 0, 0, 0, 0, 0, 0])
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn intersection_is_what_both_match(a in clause(), b in clause()) {
        let both = a.intersection(&b);
        prop_assert_eq!(both.is_some(), a.overlaps(&b));
        for digest in digests() {
            let expected = a.matches(&digest) && b.matches(&digest);
            prop_assert_eq!(both.is_some_and(|both| both.matches(&digest)), expected);
            if a.contains(&b) {
                prop_assert!(a.matches(&digest) || !b.matches(&digest));
            }
        }
    }

    #[test]
    fn patterns_are_the_clause(clause in clause()) {
        let patterns: Vec<_> = clause.patterns().collect();
        for digest in digests() {
            let hits = patterns.iter().filter(|pattern| pattern.matches(&digest)).count();
            prop_assert_eq!(hits, usize::from(clause.matches(&digest)));
        }
    }
}

/// Each bit of each word counts, in every question that is asked of patterns: those of IPv6
/// addresses as much as the first.
#[test]
fn every_bit_of_every_word_tells_clauses_apart() {
    let value = [0x0123_4567_89ab_cdef; PATTERN_WORDS];
    let all = Pattern::new([u64::MAX; PATTERN_WORDS], value);
    for word in 0..PATTERN_WORDS {
        for bit in 0..64 {
            let (mut other, mut mask) = (value, [0; PATTERN_WORDS]);
            other[word] ^= 1 << bit;
            mask[word] = 1 << bit;
            let [one, another] = [value, other].map(|value| Clause::new(Pattern::new(mask, value)));
            let full = Clause::new(all);
            assert!(!one.overlaps(&another) && one.intersection(&another).is_none());
            assert!(one.overlaps(&full) && !another.overlaps(&full), "word {word}, bit {bit}");
            assert!(one.contains(&full) && !another.contains(&full) && !full.contains(&one));
            let digest = |words: [u64; PATTERN_WORDS]| {
                Digest::from_words(std::array::from_fn(|at| words.get(at).copied().unwrap_or(0)))
            };
            assert!(full.matches(&digest(value)) && !full.matches(&digest(other)));
            assert!(one.matches(&digest(value)) && !one.matches(&digest(other)));
        }
    }
}

/// A range is what it says at both ends, wherever these are.
#[test]
fn ranges_are_exact_at_both_ends() {
    let with_port = |field: Field, port: u16| {
        let words = field.place(port.into()) | fields::LAYER.place(1);
        Digest::from_words([words, 0, 0, 0, 0, 0, 0, 0])
    };
    let ends = [0, 1, 7, 8, 9, 1023, 1024, 1025, 4095, 4096, 32767, 32768, 65534, 65535];
    for first in ends {
        for last in ends.into_iter().filter(|last| *last >= first) {
            let range = Ports::new(first, last).unwrap();
            let source = Clause::ANY.from_ports(range).unwrap();
            let destination = Clause::ANY.to_ports(range).unwrap();
            let around = |port: u16| [port.saturating_sub(1), port, port.saturating_add(1)];
            for port in around(first).into_iter().chain(around(last)) {
                let expected = first <= port && port <= last;
                let one = Ports::one(port);
                for (field, clause) in
                    [(fields::SOURCE_PORT, source), (fields::DESTINATION_PORT, destination)]
                {
                    assert_eq!(clause.matches(&with_port(field, port)), expected);
                    let exact = if field == fields::SOURCE_PORT {
                        Clause::ANY.from_ports(one).unwrap()
                    } else {
                        Clause::ANY.to_ports(one).unwrap()
                    };
                    assert_eq!(clause.overlaps(&exact), expected, "{first}-{last} and {port}");
                    assert_eq!(clause.contains(&exact), expected, "{first}-{last} and {port}");
                }
            }
            let narrower = Ports::new(first, last.saturating_sub(1).max(first)).unwrap();
            assert!(source.contains(&Clause::ANY.from_ports(narrower).unwrap()));
            let wider = Ports::new(first, last.saturating_add(1)).unwrap();
            assert_eq!(source.contains(&Clause::ANY.from_ports(wider).unwrap()), wider == range);
        }
    }
}
