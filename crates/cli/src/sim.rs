//! `clearway sim`: whole networks of hosts in virtual time, with every kind of bad luck.

mod scale;

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use clearway_sim::{Options, Summary};

use crate::output::{Failure, print};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    task: Option<Task>,
    /// Decides everything: the network, its faults and what the apps do; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds to run, this one and those that follow it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Hosts of the network; the seed decides if not given
    #[arg(long, value_parser = hosts)]
    hosts: Option<usize>,
    /// Engines of each host; the seed decides if not given
    #[arg(long, value_parser = engines)]
    engines: Option<usize>,
    /// Apps speak TCP instead of messages
    #[arg(long)]
    tcp: bool,
    /// Whether apps share memory and ask for one-sided operations; the seed decides if not given.
    /// TCP has none
    #[arg(long, conflicts_with = "tcp")]
    operations: Option<bool>,
    /// Minutes that the hosts have faults; a calm time follows in which everything has to end well
    #[arg(long, conflicts_with = "seconds", value_parser = positive)]
    minutes: Option<f64>,
    /// The same in seconds
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    seconds: f64,
    /// Print what each seed came to as one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Measure what it takes to have many: all of hosts, flows, engines, senders to one host and
    /// fairness, or those given
    Scale(scale::Scale),
}

impl Arguments {
    fn options(&self, seed: u64) -> Options {
        let seconds = self.minutes.map_or(self.seconds, |minutes| 60.0 * minutes);
        Options {
            hosts: self.hosts,
            engines: self.engines,
            tcp: self.tcp,
            operations: self.operations,
            duration_ns: (seconds * 1e9) as u64,
            ..Options::new(seed)
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Task::Scale(wanted)) = &arguments.task {
        return scale::run(wanted);
    }
    let first = arguments.seed.unwrap_or_else(random_seed);
    for seed in following(first, arguments.seeds) {
        let started = Instant::now();
        let mut shown = 0;
        let outcome = clearway_sim::run(&arguments.options(seed), &mut |percent| {
            show_progress(seed, percent, &mut shown);
        });
        clear_progress();
        match outcome {
            Ok(summary) => print(&text(arguments, &summary, started)?)?,
            Err(failure) => {
                if arguments.json {
                    print(&(serde_json::to_string(&failure).map_err(Failure::failed)? + "\n"))?;
                }
                return Err(Failure::Failed(failure.to_string()));
            }
        }
    }
    Ok(())
}

/// So many seeds, of which there is one after the largest, too.
fn following(first: u64, seeds: u64) -> impl Iterator<Item = u64> {
    (0..seeds).map(move |number| first.wrapping_add(number))
}

fn text(arguments: &Arguments, summary: &Summary, started: Instant) -> Result<String, Failure> {
    if arguments.json {
        return Ok(serde_json::to_string(summary).map_err(Failure::failed)? + "\n");
    }
    Ok(format!("{summary}  took {:.1} s\n", started.elapsed().as_secs_f64()))
}

/// On a terminal, each five percent.
fn show_progress(seed: u64, percent: u64, shown: &mut u64) {
    if percent >= *shown + 5 && std::io::stderr().is_terminal() {
        *shown = percent;
        let _ = write!(std::io::stderr(), "\rseed {seed}: {percent} %");
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// Short enough to be typed again.
fn random_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    clearway_base::Random::new(now.map_or(0, |now| now.as_nanos() as u64)).below(1_000_000_000)
}

fn hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(hosts @ 2..=10_000) => Ok(hosts),
        _ => Err("give from 2 to 10000 hosts".to_owned()),
    }
}

fn engines(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(engines @ 1..=64) => Ok(engines),
        _ => Err("give from 1 to 64 engines".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        // A nanosecond, if it is in seconds: less is no time at all.
        Ok(value) if (1e-9..=1e6).contains(&value) => Ok(value),
        _ => Err("give a time above 0, from 1e-9 to 1000000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn arguments(words: &str) -> Result<Arguments, clap::Error> {
        let parser = Arguments::augment_args(clap::Command::new("sim").no_binary_name(true));
        parser
            .try_get_matches_from(words.split_whitespace())
            .and_then(|matches| Arguments::from_arg_matches(&matches))
    }

    #[test]
    fn the_shortest_time_is_some() {
        for words in ["--seconds 1e-9", "--minutes 1e-9"] {
            assert!(arguments(words).expect(words).options(1).duration_ns > 0, "{words}");
        }
    }

    #[test]
    fn tcp_has_no_operations() {
        arguments("--operations true").expect("operations");
        let refusal = arguments("--tcp --operations true").expect_err("not both").to_string();
        assert!(refusal.contains("--tcp") && refusal.contains("--operations"), "{refusal}");
    }

    #[test]
    fn as_many_seeds_are_run_as_are_asked_for() {
        assert_eq!(following(7, 3).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(following(u64::MAX, 2).collect::<Vec<_>>(), [u64::MAX, 0]);
    }

    #[test]
    fn a_time_that_is_refused_says_which_are_not() {
        assert_eq!(positive("0.5"), Ok(0.5));
        assert_eq!(positive("1e-9"), Ok(1e-9));
        for wrong in ["0", "1e-10", "-1", "NaN", "1000001", "x"] {
            let refusal = positive(wrong).expect_err(wrong);
            assert!(refusal.contains("above 0") && refusal.contains("1000000"), "{refusal}");
        }
    }
}
