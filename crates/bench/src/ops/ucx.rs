//! UCX beside Clearway: its own `ucx_perftest` between two processes, over TCP on the loopback
//! interface, or by shared memory.

use crate::cpu::Pins;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::kernel::Outcome;
use crate::load::Sample;

use super::others::{Halves, Program, free_port};

/// What is between the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// TCP on the loopback interface.
    Tcp,
    /// Memory that both map: what one process reads of the other it copies by itself.
    SharedMemory,
}

impl Transport {
    /// No other transport, and no warning about it.
    const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Tcp => &["UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_WARN_UNUSED_ENV_VARS=n"],
            Self::SharedMemory => &["UCX_TLS=posix,self", "UCX_WARN_UNUSED_ENV_VARS=n"],
        }
    }
}

/// What it measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Reads of the other's memory.
    Read,
    /// Messages there and back.
    Echo,
    /// Messages one way.
    Messages,
}

impl Test {
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "ucp_get",
            Self::Echo => "tag_lat",
            Self::Messages => "tag_bw",
        }
    }

    /// It tells the time of half of the way.
    const fn ways(self) -> f64 {
        if matches!(self, Self::Echo) { 2.0 } else { 1.0 }
    }

    /// So many take about as long as is wanted.
    fn count(self, seconds: f64) -> u64 {
        let per_s = if matches!(self, Self::Messages) { 500_000.0 } else { 50_000.0 };
        (per_s * seconds) as u64
    }
}

/// Runs a test once.
pub(super) fn run_once(
    (test, transport): (Test, Transport),
    (bytes, window): (usize, usize),
    seconds: f64,
    pins: Pins,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let (program, port) = (Program::Ucx, free_port()?);
    let (bytes, window) = (bytes.to_string(), window.to_string());
    let count = test.count(seconds).to_string();
    let server = [transport.settings(), &[program.file(), "-p", &port]].concat();
    let options = ["127.0.0.1", "-t", test.name(), "-s", &bytes, "-O", &window];
    let more = ["-n", &count, "-w", "1000", "-f", "-v"];
    let client = [&server[..], &options, &more].concat();
    let halves = Halves { program, server: &server, client: &client };
    halves.run(pins, interrupt, |text| sample(text, test))
}

/// Reads `iterations,p50 µs,average µs,overall µs,MB/s,overall MB/s,per s,overall per s`, which
/// follows a line of titles.
fn sample(text: &str, test: Test) -> Option<Sample> {
    let line = text.lines().rfind(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
    let figures: Vec<f64> =
        line.split(',').map_while(|figure| figure.trim().parse().ok()).collect();
    let [_, p50_us, _, _, _, megabytes_per_s, _, per_s] = figures[..] else { return None };
    Some(Sample {
        p50_ns: (p50_us * test.ways() * 1000.0) as u64,
        p99_ns: 0,
        p999_ns: 0,
        rate_per_s: per_s / test.ways(),
        gbit_per_s: megabytes_per_s * 8.0 * f64::from(1 << 20) / 1e9,
        lost: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_other_words_are_not() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,\
                    overall_mr\n20000,6.540,23.045,23.045,2.65,2.65,43392,43000\n";
        let echo = sample(text, Test::Echo).expect("a result");
        assert_eq!((echo.p50_ns, echo.rate_per_s), (13080, 21500.0));
        let read = sample(text, Test::Read).expect("a result");
        assert_eq!((read.p50_ns, read.rate_per_s), (6540, 43000.0));
        assert_eq!(sample("20000,6.540\n", Test::Read), None);
        assert_eq!(sample("no device\n", Test::Read), None);
    }
}
