//! `clearway bench engines`: what two hosts of two engines each carry, beside hosts of one
//! (Machnet, figure 7), where there is a core for each engine of a host and no more.
//!
//! ```text
//!           core 0 (thread 0)                core 1 (thread 1)
//!  one:     asker ⇄ A/0 ═ B/0 ⇄ answerer     nothing
//!  other:   nothing                          asker ⇄ A/0 ═ B/0 ⇄ answerer
//!  two:     asker ⇄ A/0 ═ B/0 ⇄ answerer     asker ⇄ A/1 ═ B/1 ⇄ answerer
//!  apart:   asker ⇄ A/0 ═ B/0 ⇄ answerer     asker ⇄ C/0 ═ D/0 ⇄ answerer
//! ```
//!
//! All in one process. A core has the engines of one number of both hosts, and their apps, in turn:
//! so that with two engines twice as much is there to work with. What the two then lack of twice
//! one's rate, they share: the hosts' tables and lanes, memory and caches. `apart` shares no host,
//! so that what it lacks is the machine's. It is *not* what an engine with a core of its own
//! carries: that has four cores (`suite`, paired, has two for one engine).

mod report;

use crate::arguments::Timing;
use crate::cpu::{Cores, pin};
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::pair::{End, Line, Pair};
use crate::samples::{Report, Samples};
use crate::table::print_report;
use report::{Found, report};
use std::io;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes of a message, and of its answer.
const MESSAGE_BYTES: u32 = 64;
/// Messages that an app keeps under way.
const WINDOW: usize = 32;
/// Turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 256;

/// Messages per second of hosts with two engines, to those of hosts with one
#[derive(clap::Args, Clone, Debug)]
pub struct EnginesCommand {
    #[command(flatten)]
    timing: Timing,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Who is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Hosts of one engine, on the first core.
    One,
    /// The same, on the second.
    Other,
    /// Hosts of two engines, on both.
    Two,
    /// Two pairs of hosts of one engine, on both.
    Apart,
}

impl Setting {
    const ALL: [Self; 4] = [Self::One, Self::Other, Self::Two, Self::Apart];

    const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Other => "other",
            Self::Two => "two",
            Self::Apart => "apart",
        }
    }
}

impl EnginesCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text(Found::text))
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report<Found>, Error> {
        let cores = Cores::choose();
        let mut rates = Samples::new(cores, Setting::ALL);
        rates.take_rounds(self.timing.runs, interrupt, |setting| {
            run_once(setting, self.timing.seconds, cores).while_("running two hosts")
        })?;
        Ok(report(self.timing, &rates))
    }
}

/// Messages per second of all.
fn run_once(setting: Setting, seconds: f64, cores: Cores) -> io::Result<f64> {
    let (first, second) = (cores.client, cores.server);
    let at_work = match setting {
        Setting::One => at_work(&[first])?,
        Setting::Other => at_work(&[second])?,
        Setting::Two => at_work(&[first, second])?,
        Setting::Apart => [at_work(&[first])?, at_work(&[second])?].into_iter().flatten().collect(),
    };
    let start = Barrier::new(at_work.len());
    std::thread::scope(|scope| {
        let start = &start;
        let run = |work: AtWork| scope.spawn(move || work.rate_per_s(seconds, start));
        let threads: Vec<_> = at_work.into_iter().map(run).collect();
        let rates = threads.into_iter().map(|thread| thread.join());
        let sum = rates.sum::<Result<f64, _>>();
        sum.map_err(|_| io::Error::other("a thread panicked"))
    })
}

/// Two hosts with an engine for each of these cores.
fn at_work(cores: &[usize]) -> io::Result<Vec<AtWork>> {
    let mut pair = Pair::open(cores.len() as u16)?;
    let apps = (0..cores.len()).map(|engine| pair.connect(engine));
    let apps = apps.collect::<io::Result<Vec<_>>>()?;
    let each = pair.into_lines().zip(apps).zip(cores);
    let at_work = |((line, apps), core): ((Line, [_; 2]), &usize)| {
        let [asker, answerer] = apps.map(End::new);
        AtWork { line, asker, answerer, core: *core }
    };
    Ok(each.map(at_work).collect())
}

/// An engine of each of two hosts, and their apps.
struct AtWork {
    line: Line,
    asker: End,
    answerer: End,
    core: usize,
}

impl AtWork {
    /// Works on its core for so long, after a while to warm up. All begin together.
    fn rate_per_s(mut self, seconds: f64, start: &Barrier) -> f64 {
        // A machine without a second core shows nothing, and the report says so.
        let _ = pin(self.core);
        for _ in 0..WINDOW {
            self.asker.send(MESSAGE_BYTES);
        }
        start.wait();
        self.turns_for(Duration::from_secs_f64((seconds / 4.0).clamp(0.05, 0.5)));
        let (before, began) = (self.asker.messages, Instant::now());
        self.turns_for(Duration::from_secs_f64(seconds));
        (self.asker.messages - before) as f64 / began.elapsed().as_secs_f64()
    }

    fn turns_for(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            (0..TURNS_PER_LOOK).for_each(|_| self.turn());
        }
    }

    /// Each message is answered, and each answer with the next message.
    fn turn(&mut self) {
        self.line.turn();
        for end in [&mut self.answerer, &mut self.asker] {
            for _ in 0..end.poll() {
                end.send(MESSAGE_BYTES);
            }
            end.app.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for any machine: messages come back in every setting, on each of its cores.
    #[test]
    fn every_setting_runs() {
        let cores = Cores::choose();
        for setting in Setting::ALL {
            assert!(run_once(setting, 0.05, cores).expect("hosts") > 0.0, "{setting:?}");
        }
    }

    #[test]
    fn each_engine_has_its_apps() {
        let mut at_work = at_work(&[0, 1]).expect("hosts");
        for work in &mut at_work {
            work.asker.send(MESSAGE_BYTES);
            // The other engine of either host has no turn meanwhile.
            let answered = (0..100_000).any(|_| {
                work.turn();
                work.asker.messages > 0
            });
            assert!(answered);
        }
        assert_eq!(at_work.len(), 2);
    }
}
