//! What was measured: medians and ratios, for programs and for people.

use super::{LOOK, MESSAGE_BYTES, WINDOW};
use crate::arguments::{Timing, Wire};
use crate::samples::{Figure, Report, Samples};
use crate::table::{microseconds, plain_table, thousands};
use serde::Serialize;

/// What a run showed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Flight {
    pub(super) gbit_per_s: f64,
    /// Of kernel TCP, over a veth pair, never sleeping.
    pub(super) kernel_gbit_per_s: f64,
    /// The lowest, of a full packet, from engine to engine, without a stream.
    pub(super) round_trip_ns: u64,
    /// On average over all looks during the stream.
    pub(super) in_flight_bytes: f64,
    /// The congestion window, likewise.
    pub(super) window_bytes: f64,
    pub(super) looks: usize,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    wires: Vec<Row>,
}

/// Medians of the runs of one wire.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    wire: Wire,
    #[serde(flatten)]
    flight: Flight,
    /// Rate times lowest round trip, at the stream's own rate.
    own_rate_bytes: f64,
    /// What is in flight, to that.
    to_own_rate: f64,
    /// The same at the better of this rate and the kernel's: what the path takes.
    path_bytes: f64,
    to_path: f64,
}

/// Sums the samples up.
pub(super) fn report(timing: Timing, flights: &Samples<Wire, Flight>) -> Report<Found> {
    let notes = vec![
        format!(
            "stream of {MESSAGE_BYTES} B, {WINDOW} in flight, each app on the core of its \
             engine, both yield; a look each {} ms",
            LOOK.as_millis()
        ),
        "the path takes: rate times the lowest round trip of a full packet; the rate is the \
         stream's own, and the better of that and kernel TCP's"
            .into(),
    ];
    Report::new(timing, flights.sum_up(Found::of), notes)
}

impl Found {
    fn of(flights: &[(Wire, Vec<&Flight>)]) -> Self {
        Self { wires: flights.iter().map(|(wire, runs)| Row::of(*wire, median(runs))).collect() }
    }

    pub(super) fn text(&self) -> String {
        let header = [
            "wire",
            "Gbit/s",
            "kernel's",
            "round trip, µs",
            "in flight, B",
            "window, B",
            "own rate, B",
            "to that",
            "path, B",
            "to that",
        ];
        let mut table = plain_table(1, header);
        for row in &self.wires {
            let Row { wire, flight, .. } = row;
            table.add_row([
                format!("{wire:?}").to_lowercase(),
                format!("{:.2}", flight.gbit_per_s),
                format!("{:.2}", flight.kernel_gbit_per_s),
                microseconds(flight.round_trip_ns),
                thousands(flight.in_flight_bytes),
                thousands(flight.window_bytes),
                thousands(row.own_rate_bytes),
                format!("{:.2}", row.to_own_rate),
                thousands(row.path_bytes),
                format!("{:.2}", row.to_path),
            ]);
        }
        format!("{table}\n")
    }
}

impl Row {
    fn of(wire: Wire, flight: Flight) -> Self {
        let bytes = |gbit_per_s: f64| gbit_per_s / 8.0 * flight.round_trip_ns as f64;
        let own_rate_bytes = bytes(flight.gbit_per_s);
        let path_bytes = bytes(flight.gbit_per_s.max(flight.kernel_gbit_per_s));
        let to = |bytes: f64| if bytes > 0.0 { flight.in_flight_bytes / bytes } else { 0.0 };
        Self {
            wire,
            flight,
            own_rate_bytes,
            to_own_rate: to(own_rate_bytes),
            path_bytes,
            to_path: to(path_bytes),
        }
    }
}

/// The median of each figure by itself.
fn median(flights: &[&Flight]) -> Flight {
    let of =
        |figure: fn(&Flight) -> f64| Figure::of(flights.iter().map(|flight| figure(flight))).median;
    Flight {
        gbit_per_s: of(|flight| flight.gbit_per_s),
        kernel_gbit_per_s: of(|flight| flight.kernel_gbit_per_s),
        round_trip_ns: of(|flight| flight.round_trip_ns as f64) as u64,
        in_flight_bytes: of(|flight| flight.in_flight_bytes),
        window_bytes: of(|flight| flight.window_bytes),
        looks: of(|flight| flight.looks as f64) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_takes_the_better_rate_times_the_round_trip() {
        let flight = Flight {
            gbit_per_s: 8.0,
            kernel_gbit_per_s: 16.0,
            round_trip_ns: 10_000,
            in_flight_bytes: 15_000.0,
            window_bytes: 30_000.0,
            looks: 3,
        };
        let row = Row::of(Wire::Veth, flight);
        assert_eq!((row.own_rate_bytes, row.to_own_rate), (10_000.0, 1.5));
        assert_eq!((row.path_bytes, row.to_path), (20_000.0, 0.75));
    }
}
