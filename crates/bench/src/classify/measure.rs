//! One table: built, checked, timed, and changed while packets come.

use super::outcome::{Figures, Outcome};
use super::trace::Header;
use clearway_base::Random;
use clearway_classify::table::{Adaptive, BATCH_MAX, Linear, Production, Tuple};
use clearway_classify::{Rule, RuleId, Table};
use clearway_wire::digest::Digest;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long measuring takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// A figure is the median of so many runs, after one to warm up.
    runs: usize,
    run: Duration,
    /// Checking every answer of a slow table ends after so long.
    patience: Duration,
    /// So many updates, or as many as fit into so long.
    updates: usize,
    updates_patience: Duration,
    /// Only this table, if one is named.
    only: Option<&'static str>,
}

impl Effort {
    /// For figures to be shown.
    pub(super) const FULL: Self = Self {
        runs: 7,
        run: Duration::from_millis(150),
        patience: Duration::from_secs(15),
        updates: 4000,
        updates_patience: Duration::from_secs(3),
        only: None,
    };
    /// The same for one table only, if one is named.
    pub(super) const fn only(self, only: Option<&'static str>) -> Self {
        Self { only, ..self }
    }

    /// For tests, which look at the answers only.
    #[cfg(test)]
    pub(super) const LITTLE: Self = Self {
        runs: 1,
        run: Duration::from_millis(1),
        patience: Duration::from_secs(60),
        updates: 50,
        updates_patience: Duration::from_secs(60),
        only: None,
    };
}

/// All tables.
pub(super) fn all(rules: &[Rule], headers: &[Header], effort: Effort) -> Outcome {
    let mut outcome = Outcome::default();
    let patterns: BTreeSet<_> = rules.iter().flat_map(|rule| rule.clause.patterns()).collect();
    outcome.values = patterns.len();
    let masks: BTreeSet<_> = patterns.iter().map(|pattern| pattern.mask()).collect();
    outcome.masks = masks.len();
    let wanted = |name: &str| effort.only.is_none_or(|only| only == name);
    if wanted("linear") {
        outcome.tables.insert("linear", table(&mut Linear::new(), rules, headers, effort));
    }
    if wanted("adaptive") {
        outcome.tables.insert("adaptive", table(&mut Adaptive::new(), rules, headers, effort));
    }
    if wanted("production") {
        outcome.tables.insert("production", table(&mut Production::new(), rules, headers, effort));
    }
    if wanted("tuple") {
        let mut tuple = Tuple::new();
        let mut figures = built(&mut tuple, rules);
        (outcome.masks_hashed, outcome.values_hashed) = (tuple.masks(), tuple.values());
        measure(&mut tuple, rules, headers, &mut figures, effort);
        outcome.tables.insert("tuple", figures);
    }
    outcome
}

/// The production table as it is, and without its cache.
pub(super) fn production(rules: &[Rule], headers: &[Header], effort: Effort) -> (Figures, Figures) {
    let with = table(&mut Production::new(), rules, headers, effort);
    (with, table(&mut Production::without_cache(), rules, headers, effort))
}

fn table(table: &mut dyn Table, rules: &[Rule], headers: &[Header], effort: Effort) -> Figures {
    let mut figures = built(table, rules);
    measure(table, rules, headers, &mut figures, effort);
    figures
}

fn built(table: &mut dyn Table, rules: &[Rule]) -> Figures {
    let started = Instant::now();
    rules.iter().for_each(|rule| table.insert(*rule));
    let build_ms = started.elapsed().as_secs_f64() * 1e3;
    Figures { build_ms, ..Figures::default() }
}

fn measure(
    table: &mut dyn Table,
    rules: &[Rule],
    headers: &[Header],
    figures: &mut Figures,
    effort: Effort,
) {
    figures.wrong = check(table, headers, BATCH_MAX, effort) + check(table, headers, 1, effort);
    figures.memory_bytes = table.memory_bytes();
    let packets: Vec<_> = headers.iter().map(|header| header.digest.into()).collect();
    figures.ns_per_packet = timed(table, &packets, BATCH_MAX, effort);
    figures.ns_per_packet_single = timed(table, &packets, 1, effort);
    updates(table, rules, headers, figures, effort);
}

/// How many answers are wrong, of all headers or as many as there is patience for.
fn check(table: &mut dyn Table, headers: &[Header], size: usize, effort: Effort) -> u64 {
    let until = Instant::now() + effort.patience;
    let batches = headers.chunks(size).take_while(|_| Instant::now() < until);
    batches.map(|batch| wrong(table, batch, |header| header.first_match)).sum()
}

fn wrong(
    table: &mut dyn Table,
    batch: &[Header],
    expected: impl Fn(&Header) -> Option<u32>,
) -> u64 {
    let mut digests = [Digest::default(); BATCH_MAX];
    let mut found = [None; BATCH_MAX];
    for (digest, header) in digests.iter_mut().zip(batch) {
        *digest = header.digest;
    }
    table.classify(&digests[..batch.len()], &mut found);
    let is_wrong =
        |(header, found): &(&Header, &Option<RuleId>)| expected(header).map(RuleId) != **found;
    batch.iter().zip(&found).filter(is_wrong).count() as u64
}

/// A packet as it waits to be classified: the two words of its digest that are not zero. 16 bytes,
/// as `aclbench` has. The digest itself is put together when its batch comes, as in the engine,
/// where it is computed from the frame just before: it costs time and comes out of the first cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    word_0: u64,
    word_3: u64,
}

impl From<Digest> for Packet {
    fn from(digest: Digest) -> Self {
        let words = digest.words();
        Self { word_0: words[0], word_3: words[3] }
    }
}

/// Nanoseconds per packet: the median of several runs over the trace, round and round.
pub(super) fn timed(table: &mut dyn Table, packets: &[Packet], size: usize, effort: Effort) -> f64 {
    let mut batches = packets.chunks(size).cycle();
    let runs = (0..=effort.runs).map(|_| run(table, &mut batches, effort.run)).skip(1);
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable_by(f64::total_cmp);
    runs[effort.runs / 2]
}

fn run<'a>(
    table: &mut dyn Table,
    batches: &mut impl Iterator<Item = &'a [Packet]>,
    least: Duration,
) -> f64 {
    let mut digests = [Digest::default(); BATCH_MAX];
    let mut found = [None; BATCH_MAX];
    let mut packets = 0;
    let started = Instant::now();
    loop {
        // The clock is read once for many batches.
        for batch in batches.by_ref().take(64) {
            for (digest, packet) in digests.iter_mut().zip(batch) {
                *digest = Digest::from_words([packet.word_0, 0, 0, packet.word_3, 0, 0, 0, 0]);
            }
            table.classify(&digests[..batch.len()], &mut found);
            packets += batch.len();
        }
        let elapsed = started.elapsed();
        if elapsed >= least {
            return elapsed.as_nanos() as f64 / packets as f64;
        }
    }
}

/// Takes rules out and puts them back, one at a time, each between batches of packets whose answers
/// are checked; of those packets, many are of the rule in question.
fn updates(
    table: &mut dyn Table,
    rules: &[Rule],
    headers: &[Header],
    figures: &mut Figures,
    effort: Effort,
) {
    let mut hits: Vec<Vec<u32>> = vec![Vec::new(); rules.len()];
    for (at, header) in headers.iter().enumerate() {
        if let Some(hit) = header.first_match.and_then(|rule| hits.get_mut(rule as usize)) {
            hit.push(at as u32);
        }
    }
    let mut random = Random::new(7);
    let mut times = Vec::new();
    let until = Instant::now() + effort.updates_patience;
    while times.len() < effort.updates && Instant::now() < until {
        let rule = &rules[random.below(rules.len() as u64) as usize];
        let batch: Vec<Header> = {
            let of_rule = hits[rule.id.0 as usize].iter().take(8).map(|&at| headers[at as usize]);
            let others = (0..24).map(|_| headers[random.below(headers.len() as u64) as usize]);
            of_rule.chain(others).collect()
        };
        times.push(time(|| assert!(table.remove(rule.id))));
        figures.wrong += wrong(table, &batch, |header| without(rules, header, rule.id));
        times.push(time(|| table.insert(*rule)));
        figures.wrong += wrong(table, &batch, |header| header.first_match);
    }
    times.sort_unstable_by(f64::total_cmp);
    let quantile = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    (figures.update_us_p50, figures.update_us_p99) = (quantile(0.5), quantile(0.99));
    figures.update_us_max = quantile(1.0);
}

fn time(action: impl FnOnce()) -> f64 {
    let started = Instant::now();
    action();
    started.elapsed().as_secs_f64() * 1e6
}

/// The first match when one rule is missing.
fn without(rules: &[Rule], header: &Header, missing: RuleId) -> Option<u32> {
    if header.first_match != Some(missing.0) {
        return header.first_match;
    }
    let behind = rules.iter().skip(missing.0 as usize + 1);
    behind.filter(|rule| rule.clause.matches(&header.digest)).map(|rule| rule.id.0).next()
}
