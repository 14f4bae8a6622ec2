//! Rules that come and go, and packets, as the bytes say: all tables answer as the linear one does.
#![no_main]

use clearway_classify::table::{Adaptive, BATCH_MAX, Linear, Production, Tuple};
use clearway_classify::{Clause, Pattern, Ports, Rank, Rule, RuleId, Table};
use clearway_wire::digest::{Digest, PATTERN_WORDS};
use libfuzzer_sys::fuzz_target;

/// Numbers out of the input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A word of which most bytes are the same in most words, so that packets hit.
    fn word(&mut self) -> u64 {
        let which = self.byte();
        let byte = u64::from(self.byte());
        byte << (which % 8 * 8)
    }

    fn mask(&mut self) -> u64 {
        match self.byte() {
            0..100 => 0,
            100..180 => u64::MAX,
            bits => u64::MAX << (bits % 64),
        }
    }

    fn ports(&mut self) -> Ports {
        let (a, b) = (u16::from(self.byte()), u16::from(self.byte()) * 9);
        Ports::new(a.min(b), a.max(b)).expect("in order")
    }

    fn clause(&mut self) -> Clause {
        let mask: [u64; PATTERN_WORDS] = std::array::from_fn(|_| self.mask());
        let value = std::array::from_fn(|_| self.word());
        let clause = Clause::new(Pattern::new(mask, value));
        let ports = self.ports();
        match self.byte() % 4 {
            0 => clause.from_ports(ports).unwrap_or(clause),
            1 => clause.to_ports(ports).unwrap_or(clause),
            _ => clause,
        }
    }

    fn digest(&mut self) -> Digest {
        Digest::from_words(std::array::from_fn(|_| self.word()))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut oracle = Linear::new();
    let mut tables: [Box<dyn Table>; 4] = [
        Box::new(Adaptive::new()),
        Box::new(Tuple::with_values_max(500)),
        Box::new(Production::new()),
        Box::new(Production::without_cache()),
    ];
    let mut next = 0;
    while !input.0.is_empty() && next < 200 {
        match input.byte() % 4 {
            0 | 1 => {
                let rank = Rank::new(u16::from(input.byte() % 3), u64::from(next));
                let rule = Rule { id: RuleId(next), rank, clause: input.clause() };
                oracle.insert(rule);
                tables.iter_mut().for_each(|table| table.insert(rule));
                next += 1;
            }
            2 => {
                let id = RuleId(u32::from(input.byte()));
                let is_there = oracle.remove(id);
                assert!(tables.iter_mut().all(|table| table.remove(id) == is_there));
            }
            _ => {
                let count = usize::from(input.byte()) % (BATCH_MAX + 1);
                let digests: Vec<_> = (0..count).map(|_| input.digest()).collect();
                let mut expected = [None; BATCH_MAX];
                oracle.classify(&digests, &mut expected);
                for table in &mut tables {
                    let mut found = [None; BATCH_MAX];
                    table.classify(&digests, &mut found);
                    assert_eq!(found[..count], expected[..count]);
                }
            }
        }
    }
});
