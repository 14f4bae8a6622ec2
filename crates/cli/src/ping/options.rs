//! The options, by the names that they have in iputils' ping.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{RangedU64ValueParser, TypedValueParser};
use clearway_channel::control::PING_BYTES_MAX;
use clearway_client::{MESSAGE_BYTES_MAX, split_port};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The other host, by name or address. With a port, messages are sent to `clearway bench
    /// --serve` there.
    #[arg(value_name = "HOST[:PORT]")]
    pub(super) peer: String,
    /// Probes to send; 0: until Ctrl-C. [default: 5; 1000 with --flood and --adaptive]
    #[arg(long, short)]
    count: Option<u32>,
    /// Bytes of UDP payload in each probe. What is larger than a packet to the host is sent as a
    /// message of so many bytes, to `clearway bench --serve` there.
    #[arg(long, short, default_value_t = 64, value_parser = bytes())]
    pub(super) size: usize,
    /// Seconds between probes; of ordinary users at least 0.002. [default: 0.2; 0.01 with --flood]
    #[arg(long, short, value_parser = seconds)]
    interval: Option<f64>,
    /// Send the next probe as soon as the last is answered, or its interval is over
    #[arg(long, short = 'A')]
    adaptive: bool,
    /// The same each 10 ms, and show no more than a dot for each that is lost
    #[arg(long, short)]
    pub(super) flood: bool,
    /// Show the summary only
    #[arg(long, short)]
    pub(super) quiet: bool,
    /// Seconds to wait for the answer to each probe, at least 0.001
    #[arg(long, short = 'W', default_value_t = 2.0, value_parser = patience)]
    timeout: f64,
    /// Ask for a daemon that has another UDP port than the local one, which no connection could be
    /// made to
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) udp_port: Option<u16>,
    /// Control socket of the local daemon
    #[arg(long, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
}

/// What a packet has without any content (docs/wire.md).
const BYTES_MIN: u64 = 24;
const FLOOD_INTERVAL: Duration = Duration::from_millis(10);
const INTERVAL: Duration = Duration::from_millis(200);

fn bytes() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(BYTES_MIN..=MESSAGE_BYTES_MAX as u64)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=60.0).contains(&value) => Ok(value),
        _ => Err("give seconds from 0 to 60".to_owned()),
    }
}

fn patience(text: &str) -> Result<f64, String> {
    match seconds(text) {
        Ok(value) if value >= 0.001 => Ok(value),
        _ => Err("give seconds from 0.001 to 60".to_owned()),
    }
}

/// In milliseconds, in which the daemon is told, and no less than was asked for.
fn duration(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1e3).ceil() as u64)
}

impl Arguments {
    pub(super) fn count(&self) -> u32 {
        match self.count {
            Some(0) => u32::MAX,
            Some(count) => count,
            None if self.is_eager() => 1000,
            None => 5,
        }
    }

    /// The next probe need not wait for its time.
    pub(super) fn is_eager(&self) -> bool {
        self.adaptive || self.flood
    }

    pub(super) fn interval(&self) -> Duration {
        let default = if self.flood { FLOOD_INTERVAL } else { INTERVAL };
        self.interval.map_or(default, duration)
    }

    pub(super) fn timeout(&self) -> Duration {
        duration(self.timeout)
    }

    /// True if what is asked for is certainly no packet.
    pub(super) fn is_message(&self) -> bool {
        split_port(&self.peer).is_some() || self.size > usize::from(PING_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn arguments(words: &str) -> Result<Arguments, clap::Error> {
        let parser = Arguments::augment_args(clap::Command::new("ping").no_binary_name(true));
        parser
            .try_get_matches_from(words.split_whitespace())
            .and_then(|matches| Arguments::from_arg_matches(&matches))
    }

    #[test]
    fn options_are_those_of_ping() {
        let plain = arguments("host").expect("a host");
        assert_eq!((plain.count(), plain.is_eager(), plain.is_message()), (5, false, false));
        let flood = arguments("-f -s 100 -W 0.5 10.0.0.2").expect("a flood");
        assert_eq!((flood.count(), flood.interval()), (1000, FLOOD_INTERVAL));
        assert_eq!((flood.size, flood.timeout()), (100, Duration::from_millis(500)));
        let adaptive = arguments("-A -q -c 0 -i 1 10.0.0.2").expect("an adaptive one");
        assert_eq!((adaptive.count(), adaptive.interval()), (u32::MAX, Duration::from_secs(1)));
        assert!(arguments("[fe80::1%eth0]:4000").expect("a port").is_message());
        assert!(arguments("-s 65508 10.0.0.2").expect("a message").is_message());
        assert!(!arguments("-s 65507 fe80::1%eth0").expect("perhaps a packet").is_message());
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for words in [
            "-s 23 h",
            "-s 8388609 h",
            "-i -1 h",
            "-i NaN h",
            "-W 61 h",
            "-W 0.0005 h",
            "--udp-port 0 h",
            "",
        ] {
            arguments(words).expect_err(words);
        }
    }

    #[test]
    fn no_time_is_cut_short() {
        let quick = arguments("-i 0.0004 -W 0.0015 h").expect("a quick one");
        let ms = Duration::from_millis;
        assert_eq!((quick.interval(), quick.timeout()), (ms(1), ms(2)));
    }
}
