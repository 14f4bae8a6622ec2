use super::Clause;
use crate::{Pattern, Ports};
use clearway_wire::digest::{Digest, fields};
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
