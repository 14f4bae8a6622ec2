//! What was found about the web servers: medians, Clearway's ratios, and the table of them.

use super::Servers;
use super::run::Sample;
use crate::Wire;
use crate::report::significant;
use crate::samples::{Figure, Summary};
use crate::table::{microseconds, plain_table, thousands};
use comfy_table::Table;
use serde::Serialize;
use std::fmt::Write as _;

/// The whole result, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct HttpReport {
    /// The driver of Clearway's end of the veth pair.
    pub wire: Wire,
    /// Largest IP packet on the pair.
    pub mtu_bytes: u16,
    /// Seconds of a sample.
    pub seconds: u64,
    /// Samples of each server.
    pub runs: usize,
    /// The table's places.
    pub cells: Vec<HttpCell>,
}

/// What was found for one size of body and number of connections.
#[derive(Clone, Debug, Serialize)]
pub struct HttpCell {
    /// Bytes of the body of each answer.
    pub body_bytes: usize,
    /// Connections at a time.
    pub connections: usize,
    /// What was found.
    #[serde(flatten)]
    pub summary: Summary<HttpFound>,
}

/// What was found in samples that may be compared.
#[derive(Clone, Debug, Serialize)]
pub struct HttpFound {
    /// The server on Clearway's TCP, if it took part.
    pub clearway: Option<HttpFigures>,
    /// The server on the kernel's sockets.
    pub kernel: Option<HttpFigures>,
    /// Clearway's figures divided by the kernel's.
    pub ratio: Option<HttpRatio>,
    /// The server on smoltcp.
    #[cfg(feature = "smoltcp")]
    pub smoltcp: Option<HttpFigures>,
}

/// The medians of a server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HttpFigures {
    /// Requests answered per second.
    pub requests_per_s: f64,
    /// The least and the most of that.
    pub requests_per_s_spread: [f64; 2],
    /// Median time of a request.
    pub p50_ns: u64,
    /// 99 of 100 requests were at most this slow.
    pub p99_ns: u64,
    /// Processor time of the server, and of the daemon that it stands on, for a request.
    pub cpu_ns: f64,
}

/// Clearway's figures divided by the kernel's: under 1 is better for times, over 1 for requests.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HttpRatio {
    /// Of the requests per second.
    pub requests: f64,
    /// Of the median time.
    pub p50: f64,
    /// Of the 99th percentile.
    pub p99: f64,
    /// Of the processor time.
    pub cpu: f64,
}

impl HttpFound {
    pub(super) fn of(samples: &[(Servers, Vec<&Sample>)]) -> Self {
        let figures = |of: Servers| {
            let found = samples.iter().find(|(servers, _)| *servers == of);
            found.map(|(_, samples)| HttpFigures::of(samples))
        };
        let (clearway, kernel) = (figures(Servers::Clearway), figures(Servers::Kernel));
        let ratio = clearway.zip(kernel).map(|(ours, theirs)| HttpRatio::of(&ours, &theirs));
        Self {
            clearway,
            kernel,
            ratio,
            #[cfg(feature = "smoltcp")]
            smoltcp: figures(Servers::Smoltcp),
        }
    }
}

impl HttpFigures {
    fn of(samples: &[&Sample]) -> Self {
        let of = |figure: fn(&Sample) -> f64| Figure::of(samples.iter().map(|one| figure(one)));
        let requests = of(|sample| significant(sample.counted.requests_per_s, 6));
        Self {
            requests_per_s: requests.median,
            requests_per_s_spread: requests.range,
            p50_ns: of(|sample| sample.counted.p50_ns as f64).median as u64,
            p99_ns: of(|sample| sample.counted.p99_ns as f64).median as u64,
            cpu_ns: of(|sample| significant(sample.cpu_ns_per_request, 4)).median,
        }
    }
}

impl HttpRatio {
    fn of(ours: &HttpFigures, theirs: &HttpFigures) -> Self {
        let times = |a: f64, b: f64| if b > 0.0 { significant(a / b, 3) } else { 0.0 };
        Self {
            requests: times(ours.requests_per_s, theirs.requests_per_s),
            p50: times(ours.p50_ns as f64, theirs.p50_ns as f64),
            p99: times(ours.p99_ns as f64, theirs.p99_ns as f64),
            cpu: times(ours.cpu_ns, theirs.cpu_ns),
        }
    }
}

impl HttpReport {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "a web server on Clearway's TCP and the same on kernel sockets (epoll), one thread \
             each; the client is wrk, with one thread, on the kernel's TCP\n{}\n",
            self.table()
        );
        let _ = writeln!(
            text,
            "{} CPU cores; a veth pair (MTU {}), Clearway's end by {:?}; daemon and app as they \
             ship, nothing pinned; medians of {} runs of {} s\nratio: Clearway's figure divided \
             by the kernel's (time under 1, requests over 1 is better)\nCPU: of the server, and of \
             the daemon, for a request\ncurl has compared what both serve",
            std::thread::available_parallelism().map_or(1, usize::from),
            self.mtu_bytes,
            self.wire,
            self.runs,
            self.seconds
        );
        if self.cells.iter().any(|cell| cell.summary.states.len() != 1) {
            text.push_str(
                "note: the cores changed their distance while this ran, and all times with it; \
                 --json has each state apart\n",
            );
        }
        text
    }

    fn table(&self) -> Table {
        let header = [
            "body",
            "connections",
            "requests/s",
            "kernel",
            "ratio",
            "p50 µs",
            "kernel",
            "ratio",
            "p99 µs",
            "kernel",
            "ratio",
            "CPU µs",
            "kernel",
            "ratio",
            #[cfg(feature = "smoltcp")]
            "smoltcp requests/s",
            #[cfg(feature = "smoltcp")]
            "its CPU µs",
        ];
        let mut table = plain_table(0, header);
        for cell in &self.cells {
            table.add_row(row(cell));
        }
        table
    }
}

fn row(cell: &HttpCell) -> Vec<String> {
    let HttpFound { clearway, kernel, ratio, .. } = &cell.summary.found;
    let rate = |of: &Option<HttpFigures>| show(of, |of| thousands(of.requests_per_s));
    let p50 = |of: &Option<HttpFigures>| show(of, |of| microseconds(of.p50_ns));
    let p99 = |of: &Option<HttpFigures>| show(of, |of| microseconds(of.p99_ns));
    let cpu = |of: &Option<HttpFigures>| show(of, |of| format!("{:.2}", of.cpu_ns / 1e3));
    let times = |figure: fn(&HttpRatio) -> f64| show(ratio, |of| format!("{:.2}", figure(of)));
    vec![
        cell.body_bytes.to_string(),
        cell.connections.to_string(),
        rate(clearway),
        rate(kernel),
        times(|ratio| ratio.requests),
        p50(clearway),
        p50(kernel),
        times(|ratio| ratio.p50),
        p99(clearway),
        p99(kernel),
        times(|ratio| ratio.p99),
        cpu(clearway),
        cpu(kernel),
        times(|ratio| ratio.cpu),
        #[cfg(feature = "smoltcp")]
        rate(&cell.summary.found.smoltcp),
        #[cfg(feature = "smoltcp")]
        cpu(&cell.summary.found.smoltcp),
    ]
}

fn show<T>(figure: &Option<T>, text: impl FnOnce(&T) -> String) -> String {
    figure.as_ref().map_or_else(|| "-".into(), text)
}
