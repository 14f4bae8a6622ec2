//! libfabric beside Clearway: its own `fi_pingpong` between two processes, over TCP on the loopback
//! interface, or by shared memory.

use crate::cpu::Pins;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::kernel::Outcome;
use crate::load::Sample;

use super::others::{Halves, Program, free_port};

/// Messages there and back per second, about: so many take about as long as is wanted.
const PER_S: f64 = 100_000.0;

/// What is between the processes, as libfabric calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    /// TCP on the loopback interface.
    Tcp,
    /// Memory that both map.
    Shm,
}

impl Provider {
    /// Its name, and the kind of endpoints that it has.
    const fn words(self) -> [&'static str; 4] {
        match self {
            Self::Tcp => ["-p", "tcp", "-e", "msg"],
            Self::Shm => ["-p", "shm", "-e", "rdm"],
        }
    }
}

/// Echoes messages once. It tells a mean, which stands for the median.
pub(super) fn run_once(
    provider: Provider,
    bytes: usize,
    seconds: f64,
    pins: Pins,
    interrupt: &Interrupt,
) -> Result<Outcome, Error> {
    let (program, port, bytes) = (Program::Libfabric, free_port()?, bytes.to_string());
    let count = ((PER_S * seconds) as u64).max(1).to_string();
    let options = [&provider.words()[..], &["-S", &bytes, "-I", &count]].concat();
    let server = [&[program.file(), "-B", &port], &options[..]].concat();
    let client = [&[program.file(), "-P", &port], &options[..], &["127.0.0.1"]].concat();
    Halves { program, server: &server, client: &client }.run(pins, interrupt, sample)
}

/// Reads `bytes,#sent,#ack,total,time,MB/sec,usec/xfer,Mxfers/sec`, which follows a line of titles.
/// A transfer is one way.
fn sample(text: &str) -> Option<Sample> {
    let line = text.lines().rfind(|line| line.starts_with(|c: char| c.is_ascii_digit()))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, _, _, megabytes_per_s, us, _] = words[..] else { return None };
    let us: f64 = us.parse().ok()?;
    Some(Sample {
        p50_ns: (2.0 * us * 1000.0) as u64,
        p99_ns: 0,
        p999_ns: 0,
        rate_per_s: 1e6 / (2.0 * us),
        gbit_per_s: megabytes_per_s.parse::<f64>().ok()? * 8.0 / 1000.0,
        lost: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_other_words_are_not() {
        let titles =
            "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec";
        let line = "64      20k     =20k     2.4m        0.23s     11.09       5.00       0.17";
        let echo = sample(&format!("{titles}\n{line}\n")).expect("a result");
        assert_eq!((echo.p50_ns, echo.rate_per_s), (10_000, 100_000.0));
        assert_eq!(sample(titles), None);
        assert_eq!(sample("64 20k\n"), None);
    }
}
