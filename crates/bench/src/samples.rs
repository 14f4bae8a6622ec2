//! What was measured, sample by sample, on a machine that may not stay the same: samples that were
//! taken while it was in one state are summed up together, and no ratio is between samples of two.
//!
//! The state is how far apart the two cores are (`distance`), found right before and right after
//! each sample. One in whose time that changed is taken again. *Near* and *far* are relative: far
//! is more than twice the least of the run, so that a machine that stays as it is has one state,
//! and a report of it one table.
//!
//! ```text
//! round after round, each contender:  distance ─▶ sample ─▶ distance ─┬─▶ near  ─▶ medians, ratios
//!                                        ▲                            ├─▶ far   ─▶ medians, ratios
//!                                        └──── changed: again ────────┴─▶ left out
//! ```

use crate::arguments::Timing;
use crate::cpu::Cores;
use crate::distance::round_trip_ns;
use crate::error::Error;
use crate::interrupt::Interrupt;
use serde::Serialize;
use std::fmt::Write as _;

/// How often a sample is taken until the machine stays the same meanwhile.
const TRIES_MAX: usize = 3;
/// Distances that differ by more than this factor are those of two states.
const FACTOR: f64 = 2.0;
/// A median of fewer is none.
const SAMPLES_MIN: usize = 2;

/// How far apart the cores were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// At most twice the least of the run.
    Near,
    /// More than that.
    Far,
}

/// The samples of all contenders.
pub(crate) struct Samples<C, T> {
    cores: Cores,
    contenders: Vec<(C, Vec<Sample<T>>)>,
    /// The least that was seen.
    round_trip_ns_min: f64,
}

struct Sample<T> {
    what: T,
    /// None if it changed meanwhile; 0 if there is just one core.
    round_trip_ns: Option<f64>,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
pub struct Summary<F> {
    /// In the state that most samples are of.
    #[serde(flatten)]
    pub found: F,
    /// In each state of which every contender has samples enough.
    pub states: Vec<State<F>>,
    /// What the reader has to know of the machine.
    #[serde(skip)]
    pub(crate) notes: Vec<String>,
}

/// What was found while the machine was in one state.
#[derive(Clone, Debug, Serialize)]
pub struct State<F> {
    /// How far apart the cores were.
    pub cores: Distance,
    /// The same: what a cache line took to the other one and back, the median over all samples.
    pub round_trip_ns: f64,
    /// Samples of all contenders together.
    pub samples: usize,
    /// What was found.
    #[serde(flatten)]
    pub found: F,
}

/// A whole result, as `--json` prints it: what was found in the medians of some runs, and what the
/// reader has to know.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report<F> {
    #[serde(flatten)]
    timing: Timing,
    #[serde(flatten)]
    summary: Summary<F>,
    notes: Vec<String>,
}

impl<F> Report<F> {
    /// `notes`: of what was measured, before those of the machine.
    pub(crate) fn new(timing: Timing, summary: Summary<F>, mut notes: Vec<String>) -> Self {
        notes.extend_from_slice(&summary.notes);
        Self { timing, summary, notes }
    }

    /// The same for people, with a table of what was found.
    pub(crate) fn text(&self, table: impl Fn(&F) -> String) -> String {
        let Timing { seconds, runs } = self.timing;
        let mut text = self.summary.text(table);
        let _ = writeln!(text, "medians of {runs} runs of {seconds} s");
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

impl<C: Copy + PartialEq, T> Samples<C, T> {
    pub(crate) fn new(cores: Cores, contenders: impl IntoIterator<Item = C>) -> Self {
        let contenders = contenders.into_iter().map(|contender| (contender, Vec::new())).collect();
        Self { cores, contenders, round_trip_ns_min: f64::INFINITY }
    }

    /// Takes a sample of a contender, again if the machine changes meanwhile.
    pub(crate) fn take<E>(
        &mut self,
        contender: C,
        mut measure: impl FnMut() -> Result<T, E>,
    ) -> Result<(), E> {
        for tries_left in (0..TRIES_MAX).rev() {
            let before_ns = self.look();
            let what = measure()?;
            let after_ns = self.look();
            let (least_ns, most_ns) = (before_ns.min(after_ns), before_ns.max(after_ns));
            let is_steady = most_ns <= FACTOR * least_ns;
            if is_steady || tries_left == 0 {
                self.add(contender, what, is_steady.then_some(least_ns));
                break;
            }
        }
        Ok(())
    }

    /// Takes so many samples of each contender, in turn, in this very process. Fails behind the
    /// one in whose time a signal came.
    pub(crate) fn take_rounds(
        &mut self,
        runs: usize,
        interrupt: &Interrupt,
        mut measure: impl FnMut(C) -> Result<T, Error>,
    ) -> Result<(), Error> {
        for _ in 0..runs {
            for at in 0..self.contenders.len() {
                let contender = self.contenders[at].0;
                self.take(contender, || measure(contender))?;
                interrupt.check()?;
            }
        }
        Ok(())
    }

    fn look(&mut self) -> f64 {
        let ns = round_trip_ns(self.cores).unwrap_or(0.0);
        self.round_trip_ns_min = self.round_trip_ns_min.min(ns);
        ns
    }

    fn add(&mut self, contender: C, what: T, round_trip_ns: Option<f64>) {
        let found = self.contenders.iter_mut().find(|(other, _)| *other == contender);
        let (_, samples) = found.expect("a contender that was named");
        samples.push(Sample { what, round_trip_ns });
    }

    /// What `find` finds in the samples of each state, and in those of the state that most are of.
    /// If no state has enough of every contender, that is in all samples, and the notes say so.
    pub(crate) fn sum_up<F: Clone>(&self, find: impl Fn(&[(C, Vec<&T>)]) -> F) -> Summary<F> {
        let state = |cores: Distance| {
            let of_state = self.of(|sample| self.state_of(sample) == Some(cores));
            let is_enough = |(_, samples): &(C, Vec<&T>)| samples.len() >= self.enough();
            of_state.iter().all(is_enough).then(|| State {
                cores,
                round_trip_ns: self.round_trip_ns(cores).round(),
                samples: of_state.iter().map(|(_, samples)| samples.len()).sum(),
                found: find(&of_state),
            })
        };
        let states: Vec<_> =
            [Distance::Near, Distance::Far].into_iter().filter_map(state).collect();
        let main = states.iter().max_by_key(|state| state.samples);
        let found = main.map_or_else(|| find(&self.of(|_| true)), |state| state.found.clone());
        Summary { found, notes: self.notes(&states), states }
    }

    fn of(&self, is_wanted: impl Fn(&Sample<T>) -> bool) -> Vec<(C, Vec<&T>)> {
        let mut of = Vec::new();
        for (contender, samples) in &self.contenders {
            let wanted = samples.iter().filter(|sample| is_wanted(sample));
            of.push((*contender, wanted.map(|sample| &sample.what).collect()));
        }
        of
    }

    fn state_of(&self, sample: &Sample<T>) -> Option<Distance> {
        let is_far = sample.round_trip_ns? > FACTOR * self.round_trip_ns_min;
        Some(if is_far { Distance::Far } else { Distance::Near })
    }

    /// Samples of each contender that are enough: a single run has just one.
    fn enough(&self) -> usize {
        let runs = self.contenders.iter().map(|(_, samples)| samples.len()).max();
        runs.unwrap_or(0).clamp(1, SAMPLES_MIN)
    }

    fn round_trip_ns(&self, cores: Distance) -> f64 {
        let samples = self.contenders.iter().flat_map(|(_, samples)| samples);
        let of_state = samples.filter(|sample| self.state_of(sample) == Some(cores));
        Figure::of(of_state.filter_map(|sample| sample.round_trip_ns)).median
    }

    fn notes<F>(&self, states: &[State<F>]) -> Vec<String> {
        if self.cores.shared() {
            return vec!["only one core may be used: all processes share it".into()];
        }
        let all = self.contenders.iter().map(|(_, samples)| samples.len()).sum::<usize>();
        let left_out = all - states.iter().map(|state| state.samples).sum::<usize>();
        match states {
            [] => vec![format!(
                "the cores changed their distance, and no state has {} samples of each: the \
                 figures are of all samples together, and their ratios mean little; --runs more",
                self.enough()
            )],
            [state] => {
                let mut note =
                    format!("cores {} ns apart (a cache line there and back)", state.round_trip_ns);
                if left_out > 0 {
                    let _ = write!(
                        note,
                        "; {left_out} of {all} samples are left out, taken when it was otherwise"
                    );
                }
                vec![note]
            }
            _ if left_out > 0 => vec![format!(
                "{left_out} of {all} samples are left out: the cores changed their distance \
                 meanwhile"
            )],
            _ => Vec::new(),
        }
    }
}

impl<F> Summary<F> {
    /// For people: a table, or one for each state.
    pub(crate) fn text(&self, table: impl Fn(&F) -> String) -> String {
        if self.states.len() < 2 {
            return table(&self.found);
        }
        let mut text = String::new();
        for State { cores, round_trip_ns, samples, found } in &self.states {
            let cores = if *cores == Distance::Near { "near" } else { "far" };
            let _ = write!(
                text,
                "while the cores were {cores}, a cache line there and back {round_trip_ns} ns \
                 ({samples} samples):\n{}",
                table(found)
            );
        }
        text
    }
}

/// The median, the least and the most of a figure. All 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) range: [f64; 2],
}

impl Figure {
    /// Of an even number of figures, the median is the mean of the middle two.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (figures.first(), figures.last()) else {
            return Self::default();
        };
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => figures[middle],
            _ => f64::midpoint(figures[middle - 1], figures[middle]),
        };
        Self { median, range: [*least, *most] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CORES: Cores = Cores { client: 0, server: 1 };

    /// Samples of two contenders, as `(contender, figure, distance)`.
    fn samples(of: &[(char, f64, Option<f64>)]) -> Samples<char, f64> {
        let mut samples = Samples::new(TWO_CORES, ['a', 'b']);
        let distances = of.iter().filter_map(|(_, _, round_trip_ns)| *round_trip_ns);
        samples.round_trip_ns_min = distances.fold(f64::INFINITY, f64::min);
        for (contender, figure, round_trip_ns) in of {
            samples.add(*contender, *figure, *round_trip_ns);
        }
        samples
    }

    /// The medians of both.
    fn medians(of: &[(char, Vec<&f64>)]) -> [f64; 2] {
        [0, 1].map(|at| Figure::of(of[at].1.iter().copied().copied()).median)
    }

    #[test]
    fn states_are_summed_up_each_by_itself() {
        let (near, far) = (Some(110.0), Some(460.0));
        let samples = samples(&[
            ('a', 1.0, near),
            ('b', 2.0, near),
            ('a', 10.0, far),
            ('b', 20.0, far),
            ('a', 30.0, far),
            ('b', 20.0, far),
            ('b', 20.0, far),
            ('a', 3.0, Some(130.0)),
            ('b', 2.0, near),
            ('b', 5000.0, None),
        ]);
        let summary = samples.sum_up(medians);
        let states: Vec<_> = summary
            .states
            .iter()
            .map(|state| (state.cores, state.round_trip_ns, state.samples, state.found))
            .collect();
        let expected =
            [(Distance::Near, 110.0, 4, [2.0, 2.0]), (Distance::Far, 460.0, 5, [20.0, 20.0])];
        assert_eq!(states, expected);
        assert_eq!(summary.found, [20.0, 20.0], "most samples are of the far state");
        assert!(summary.notes[0].starts_with("1 of 10 samples"), "{:?}", summary.notes);
        let text = summary.text(|found| format!("{found:?}\n"));
        assert!(text.contains("near, a cache line there and back 110 ns (4 samples)"), "{text}");
    }

    #[test]
    fn a_machine_that_stays_as_it_is_has_one_state_and_one_table() {
        let distance = Some(80.0);
        let samples = samples(&[('a', 1.0, distance), ('b', 2.0, Some(150.0))]);
        let summary = samples.sum_up(medians);
        assert_eq!((summary.states.len(), summary.found), (1, [1.0, 2.0]));
        assert_eq!(summary.notes, ["cores 115 ns apart (a cache line there and back)"]);
        assert_eq!(summary.text(|_| "table".into()), "table");
    }

    #[test]
    fn contenders_that_met_different_machines_are_not_compared_without_a_word() {
        let samples = samples(&[('a', 1.0, Some(110.0)), ('b', 2.0, Some(460.0))]);
        let summary = samples.sum_up(medians);
        assert_eq!((summary.states.len(), summary.found), (0, [1.0, 2.0]));
        assert!(summary.notes[0].contains("mean little"), "{:?}", summary.notes);
    }

    #[test]
    fn a_sample_is_taken_once_where_there_is_one_core() {
        let mut samples = Samples::new(Cores { client: 0, server: 0 }, ['a']);
        let mut count = 0;
        let measured = samples.take('a', || {
            count += 1;
            Ok::<_, ()>(7.0)
        });
        assert_eq!((measured, count), (Ok(()), 1));
        let summary = samples.sum_up(|of| *of[0].1[0]);
        assert_eq!((summary.found, summary.states.len()), (7.0, 1));
        assert!(summary.notes[0].starts_with("only one core"), "{:?}", summary.notes);
    }

    #[test]
    fn a_signal_in_the_time_of_the_last_sample_is_heard() {
        let (interrupt, signals) = Interrupt::without_signals();
        let mut signals = Some(signals);
        let mut samples = Samples::new(Cores { client: 0, server: 0 }, ['a']);
        let taken = samples.take_rounds(1, &interrupt, |_| {
            drop(signals.take());
            Ok(7.0)
        });
        assert!(matches!(taken, Err(Error::Interrupted(_))), "{taken:?}");
    }

    #[test]
    fn medians_of_odd_and_even_numbers() {
        assert_eq!(Figure::of([3.0, 1.0, 2.0]), Figure { median: 2.0, range: [1.0, 3.0] });
        assert_eq!(Figure::of([4.0, 1.0]).median, 2.5);
        assert_eq!(Figure::of([]), Figure::default());
    }
}
