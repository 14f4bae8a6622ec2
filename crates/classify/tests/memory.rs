//! What tables say that they take of memory, against what was allocated. One test only: another one
//! at the same time would be counted, too.

use clearway_base::Random;
use clearway_classify::table::{Adaptive, BATCH_MAX, Linear, Production, Tuple};
use clearway_classify::{Clause, Pattern, Rank, Rule, RuleId, Table};
use clearway_wire::digest::{Digest, fields};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const RULES: u64 = 3000;

/// Prefixes, connections, and a few that ask for an Ethernet address besides.
fn clause(random: &mut Random, number: u64) -> Clause {
    let address = random.next_u64() >> 32;
    let ipv4 = Pattern::ANY.with(fields::NETWORK, 6).with(fields::ETHER_TYPE, 0x0800);
    let pattern = match number % 4 {
        0 | 1 => ipv4.with_prefix(fields::IPV4_DESTINATION, address, 12 + number as u32 % 13),
        2 => ipv4
            .with(fields::IPV4_SOURCE, address)
            .with(fields::IPV4_DESTINATION, number)
            .with(fields::TAGGED, 0)
            .with(fields::LAYER, 1)
            .with(fields::PROTOCOL, 6)
            .with(fields::SOURCE_PORT, number)
            .with(fields::DESTINATION_PORT, 80),
        _ => {
            ipv4.with(fields::MAC_DESTINATION, number).with_prefix(fields::IPV4_SOURCE, address, 16)
        }
    };
    pattern.into()
}

/// A table with rules, of which packets ask until it `rests`.
fn check<T: Table>(name: &str, make: impl FnOnce() -> T, rests: impl Fn(&T) -> bool) {
    let mut random = Random::new(1);
    let before = ALLOCATOR.current_usage();
    let mut table = make();
    for number in 0..RULES {
        let clause = clause(&mut random, number);
        table.insert(Rule { id: RuleId(number as u32), rank: Rank::new(0, number), clause });
    }
    let rests = (0..100_000).any(|_| {
        let words = |random: &mut Random| {
            let (ports, addresses) = (random.next_u64() << 32, random.next_u64());
            [ports | 0x0661_0800, 0, 0, addresses, 0, 0, 0, 0]
        };
        let batch = [(); BATCH_MAX].map(|()| Digest::from_words(words(&mut random)));
        table.classify(&batch, &mut [None; BATCH_MAX]);
        rests(&table)
    });
    assert!(rests, "{name}");
    let allocated = ALLOCATOR.current_usage() - before;
    let said = table.memory_bytes();
    assert!(
        (allocated * 3 / 4..allocated * 5 / 4).contains(&said),
        "{name}: {said} bytes of {allocated}"
    );
}

#[test]
fn tables_know_what_they_take_of_memory() {
    check("linear", Linear::new, |_| true);
    check("adaptive", Adaptive::new, |_| true);
    check("tuple", || Tuple::with_values_max(3000), |_| true);
    check("production", Production::new, Production::is_settled);
}
