//! `clearway bench isolation`: what a small message takes while another app floods: on the same
//! engines, and on engines of its own (Machnet, figure 9).
//!
//! ```text
//!            core 0 (thread 0)                       core 1 (thread 1)
//!  alone:    asker ⇄ A/0 ══ memif ══ B/0 ⇄ answerer   engines A/1, B/1
//!  isolated: asker ⇄ A/0 ══ memif ══ B/0 ⇄ answerer   flooder ⇒ A/1 ══ memif ══ B/1 ⇒ sink
//!  shared:   asker ⇄ A/0 ══ memif ══ B/0 ⇄ answerer   flooder ⇒ A/0, B/0 ⇒ sink
//!  reads:    the same, and the flooder reads the sink's memory
//! ```
//!
//! Two hosts in one process, with two engines each. What belongs together takes turns in one
//! thread, so that no scheduler comes between. It is *not* a comparison with the kernel: that is
//! `suite`.

mod app;
mod report;

use crate::arguments::Timing;
use crate::cpu::{Cores, pin};
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::pair::Pair;
use crate::samples::{Report, Samples};
use crate::table::print_report;
use app::{Asker, Flooded, Flooder};
use report::{Found, Outcome, report};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Turns between two looks at the clock and at who is done.
const TURNS_PER_LOOK: u32 = 256;

/// Time small messages beside a flood, on engines of their own and on shared ones
#[derive(clap::Args, Clone, Debug)]
pub struct IsolationCommand {
    #[command(flatten)]
    timing: Timing,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Who is there besides the app whose messages are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Nobody.
    Alone,
    /// A flood, on other engines.
    Isolated,
    /// A flood, on the same engines.
    Shared,
    /// A flood of reads, on the same engines.
    Reads,
}

impl Setting {
    const ALL: [Self; 4] = [Self::Alone, Self::Isolated, Self::Shared, Self::Reads];

    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Isolated => "isolated",
            Self::Shared => "shared",
            Self::Reads => "reads",
        }
    }
}

impl IsolationCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = self.measure(&Interrupt::catch()?)?;
        print_report(self.json, &report, || report.text(Found::text))
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report<Found>, Error> {
        let cores = Cores::choose();
        let mut outcomes = Samples::new(cores, Setting::ALL);
        outcomes.take_rounds(self.timing.runs, interrupt, |setting| {
            run_once(setting, self.timing.seconds, cores).while_("running two hosts")
        })?;
        Ok(report(self.timing, &outcomes))
    }
}

fn run_once(setting: Setting, seconds: f64, cores: Cores) -> io::Result<Outcome> {
    let mut pair = Pair::open(2)?;
    let mut asker = Asker::open(&mut pair)?;
    let mut flooder = match setting {
        Setting::Alone => None,
        Setting::Isolated => Some(Flooder::of_messages(&mut pair, 1)?),
        Setting::Shared => Some(Flooder::of_messages(&mut pair, 0)?),
        Setting::Reads => Some(Flooder::of_reads(&mut pair, 0)?),
    };
    let mut lines = pair.into_lines();
    let mut next = || lines.next().expect("as many as engines");
    let (mut here, mut there) = (next(), next());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // A machine without a second core shows nothing, and the report says so.
            let _ = pin(cores.server);
            let began = Instant::now();
            while !is_done.load(Ordering::Relaxed) {
                for _ in 0..TURNS_PER_LOOK {
                    there.turn();
                    if let Some(flooder) = &mut flooder {
                        flooder.turn();
                    }
                }
            }
            let elapsed_s = began.elapsed().as_secs_f64();
            flooder.map_or_else(Flooded::default, |flooder| flooder.flooded(elapsed_s))
        });
        let _ = pin(cores.client);
        let mut turns_for = |asker: &mut Asker, duration: Duration| {
            let end = Instant::now() + duration;
            while Instant::now() < end {
                for _ in 0..TURNS_PER_LOOK {
                    here.turn();
                    asker.turn();
                }
            }
        };
        turns_for(&mut asker, Duration::from_secs_f64((seconds / 4.0).clamp(0.05, 0.5)));
        asker.begin();
        let began = Instant::now();
        turns_for(&mut asker, Duration::from_secs_f64(seconds));
        let elapsed_s = began.elapsed().as_secs_f64();
        is_done.store(true, Ordering::Relaxed);
        let flood = other.join().map_err(|_| io::Error::other("the flood failed"))?;
        Ok(asker.outcome(elapsed_s, flood))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for any machine: it works, and the flood is there when it should be.
    #[test]
    fn every_setting_runs() {
        let cores = Cores::choose();
        for setting in Setting::ALL {
            let outcome = run_once(setting, 0.05, cores).expect("two hosts");
            assert!(outcome.p50_ns > 0 && outcome.p50_ns <= outcome.p99_ns, "{setting:?}");
            assert_eq!(outcome.flood_per_s > 0.0, setting != Setting::Alone, "{setting:?}");
        }
    }
}
