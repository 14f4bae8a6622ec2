//! `clearway ping`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clearway_channel::control::{Ping, Reply, Request};

use crate::client::{Client, unexpected};
use crate::output::{Failure, print};

/// How much longer than the timeout the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The address of the other host
    peer: IpAddr,
    /// Probes to send
    #[arg(long, short, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Bytes of UDP payload in each probe
    #[arg(long, short, default_value_t = 64, value_parser = clap::value_parser!(u16).range(24..=1400))]
    size: u16,
    /// Seconds between probes
    #[arg(long, short, default_value_t = 0.2, value_parser = seconds)]
    interval: f64,
    /// Seconds to wait for the answer to each probe
    #[arg(long, short = 'W', default_value_t = 2.0, value_parser = seconds)]
    timeout: f64,
    /// Control socket of the local daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let client = Client::connect(arguments.socket.as_deref())?;
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut round_trips_ns = Vec::new();
    for number in 1..=arguments.count {
        let started = Instant::now();
        let round_trip_ns = probe(&client, arguments)?;
        round_trips_ns.extend(round_trip_ns);
        print(&line(arguments, number, round_trip_ns))?;
        if number < arguments.count {
            std::thread::sleep(interval.saturating_sub(started.elapsed()));
        }
    }
    print(&summary(arguments.count, &mut round_trips_ns))?;
    if round_trips_ns.is_empty() {
        return Err(Failure::Failed(format!(
            "{} does not answer; check that a daemon runs there, that both use the same udp_port, \
             and the wire between them with `clearway status`",
            arguments.peer
        )));
    }
    Ok(())
}

/// One probe at a time, so that there is something to see meanwhile.
fn probe(client: &Client, arguments: &Arguments) -> Result<Option<u64>, Failure> {
    let timeout = Duration::from_secs_f64(arguments.timeout);
    let request = Request::Ping(Ping {
        peer: arguments.peer,
        count: 1,
        interval_ms: timeout.as_millis() as u32,
        bytes: arguments.size,
    });
    match client.ask(&request, timeout + PATIENCE)? {
        Reply::Pong(pong) => Ok(pong.round_trips_ns.first().copied()),
        _ => Err(unexpected()),
    }
}

fn line(arguments: &Arguments, number: u32, round_trip_ns: Option<u64>) -> String {
    let Arguments { peer, size, .. } = arguments;
    match round_trip_ns {
        Some(ns) => format!("{size} bytes from {peer}: probe {number}, {}\n", microseconds(ns)),
        None => format!("no answer from {peer}: probe {number}\n"),
    }
}

fn summary(sent: u32, round_trips_ns: &mut [u64]) -> String {
    round_trips_ns.sort_unstable();
    let answered = round_trips_ns.len();
    let mut text = format!("{sent} sent, {answered} answered");
    if let (Some(least), Some(most)) = (round_trips_ns.first(), round_trips_ns.last()) {
        let (least, most) = (microseconds(*least), microseconds(*most));
        let median = microseconds(round_trips_ns[answered / 2]);
        text += &format!("; round trip: least {least}, median {median}, most {most}");
    }
    text + "\n"
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=60.0).contains(&value) => Ok(value),
        _ => Err("give seconds from 0 to 60".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_shows_the_spread() {
        assert_eq!(summary(2, &mut []), "2 sent, 0 answered\n");
        let text = summary(4, &mut [3000, 1000, 2500]);
        assert!(text.starts_with("4 sent, 3 answered; round trip: least 1.0 µs"), "{text}");
        assert!(text.contains("median 2.5 µs, most 3.0 µs"), "{text}");
        assert!(summary(1, &mut [500]).contains("least 0.5 µs, median 0.5 µs, most 0.5 µs"));
    }

    #[test]
    fn interval_is_bounded() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(seconds("-1").is_err() && seconds("NaN").is_err() && seconds("61").is_err());
    }
}
