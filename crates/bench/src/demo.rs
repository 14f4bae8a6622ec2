//! `clearway demo`: the shortest honest answer to "is it fast?", in well under a minute.
//!
//! Small and large messages, one at a time and many at a time, through two real daemons, beside
//! kernel TCP. It is a choice of benchmarks, not one of its own. What `--tcp` shows instead is in
//! `http`.

use crate::arguments::{Command, Compare, Layout, Wire, seconds};
use crate::contender::Contender;
use crate::error::Error;
use crate::http::HttpOptions;
use crate::interrupt::Interrupt;
use crate::load::Workload;
use crate::namespace;
use crate::progress::Progress;
use crate::remote::Remote;
use crate::report::Report;
use crate::suite;
use crate::table::{microseconds, plain_table, print, thousands};
use comfy_table::Table;

/// Two hosts on this machine, an echo between them, beside kernel TCP.
#[derive(clap::Args, Clone, Debug)]
pub struct DemoCommand {
    /// Seconds per contender and run; with --tcp whole ones
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub seconds: f64,
    /// TCP instead
    #[command(flatten)]
    pub http: HttpOptions,
    /// Show only what the kernel does here.
    #[arg(long, hide = true)]
    pub kernel_only: bool,
}

/// What the demo measured for one size of message.
#[derive(Clone, Debug)]
pub struct DemoPart {
    /// One message at a time.
    pub rtt: Report,
    /// Many messages at a time.
    pub rate: Report,
}

/// Sizes of messages, and how many of them are in flight for the rate.
const SIZES_AND_WINDOWS: [(usize, usize); 2] = [(64, 32), (32 << 10, 8)];
/// Runs of each contender.
const RUNS: usize = 5;

impl DemoCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        if self.http.tcp {
            return self.http.execute(self.seconds, self.kernel_only);
        }
        namespace::enter();
        let interrupt = Interrupt::catch()?;
        let parts = self.measure(&interrupt)?;
        print(&demo_text(&parts))
    }

    /// Measures only.
    pub fn measure(&self, interrupt: &Interrupt) -> Result<Vec<DemoPart>, Error> {
        let commands: Vec<_> = SIZES_AND_WINDOWS
            .into_iter()
            .map(|(size, window)| {
                (self.command(Workload::Rtt, size, 1), self.command(Workload::Rate, size, window))
            })
            .collect();
        let plans = commands
            .iter()
            .map(|(rtt, rate)| Ok((rtt.plan()?, rate.plan()?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let steps = plans.iter().map(|(rtt, rate)| rtt.steps() + rate.steps()).sum();
        let progress = Progress::new(steps);
        plans
            .iter()
            .map(|(rtt, rate)| {
                let rtt = suite::run(rtt, interrupt, &progress)?;
                let rate = suite::run(rate, interrupt, &progress)?;
                Ok(DemoPart { rtt, rate })
            })
            .collect()
    }

    fn command(&self, workload: Workload, size: usize, window: usize) -> Command {
        Command {
            workload: Some(workload),
            remote: Remote::default(),
            wire: wire(),
            size: vec![size],
            window: Some(window),
            layout: Layout::Unpinned,
            idle: None,
            app: None,
            c_app: None,
            tcp: false,
            in_place: false,
            kernel_end: None,
            compare: vec![Compare::Tcp],
            seconds: self.seconds,
            runs: Some(RUNS),
            mtu: None,
            kernel_plain: false,
            kernel_only: self.kernel_only,
            json: false,
        }
    }
}

/// The best that this user can have.
fn wire() -> Wire {
    match rustix::process::geteuid().is_root() {
        true if namespace::is_of_the_machine() => Wire::Veth,
        true => Wire::Udp,
        false => Wire::Memif,
    }
}

/// The demo's result for people.
#[must_use]
pub fn demo_text(parts: &[DemoPart]) -> String {
    let Some(first) = parts.first() else { return String::new() };
    let mut text = format!(
        "{}\nround trip: one message in flight; messages/s: {} in flight; medians of {RUNS} \
         runs\n{} CPU cores; Clearway over {:?}: two daemons and two apps (in {:?}) as they \
         ship, idle {:?}; nothing pinned; TCP over {}\n",
        demo_table(parts),
        parts.iter().map(|part| part.rate.window.to_string()).collect::<Vec<_>>().join(" and "),
        std::thread::available_parallelism().map_or(1, usize::from),
        first.rtt.wire,
        first.rtt.app,
        first.rtt.idle,
        first.rtt.tcp_wire,
    );
    for note in first.rtt.notes.iter().filter(|note| !first.rtt.summary.notes.contains(note)) {
        text.push_str(&format!("note: {note}\n"));
    }
    if first.rtt.wire == Wire::Udp {
        text.push_str(
            "note: without root Clearway goes over the kernel's UDP sockets; as root over the \
             driver that `auto` finds best for the interface\n",
        );
    }
    let mut reports = parts.iter().flat_map(|part| [&part.rtt, &part.rate]);
    if reports.any(|report| report.summary.states.len() != 1) {
        text.push_str(
            "note: the cores changed their distance while this ran, and all times with it; \
             `clearway bench` reports each apart\n",
        );
    }
    text
}

fn demo_table(parts: &[DemoPart]) -> Table {
    let mut table = plain_table(
        2,
        ["message", "through", "round trip p50 µs", "p99 µs", "p99.9 µs", "messages/s", "Gbit/s"],
    );
    for part in parts {
        for (contender, rate) in &part.rate.summary.found.contenders {
            let rtt = part.rtt.summary.found.figures(*contender);
            let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), microseconds);
            table.add_row([
                size_text(part.rtt.size),
                title(*contender).to_owned(),
                time(rtt.map(|rtt| rtt.p50_ns)),
                time(rtt.map(|rtt| rtt.p99_ns)),
                time(rtt.map(|rtt| rtt.p999_ns)),
                thousands(rate.rate_per_s),
                format!("{:.2}", rate.gbit_per_s),
            ]);
        }
    }
    table
}

fn size_text(bytes: usize) -> String {
    if bytes >= 1024 { format!("{} KB", bytes / 1024) } else { format!("{bytes} B") }
}

fn title(contender: Contender) -> &'static str {
    match contender {
        Contender::Clearway => "Clearway",
        Contender::ClearwayTcp => "Clearway TCP",
        Contender::ClearwayTcpInPlace => "Clearway TCP, in place",
        Contender::TcpSpin => "kernel TCP, spinning",
        Contender::TcpBlock => "kernel TCP, blocking",
        Contender::TcpBatch => "kernel TCP, spinning, in batches",
        Contender::UdpSpin => "kernel UDP, spinning",
        Contender::UnixSpin => "Unix socket, spinning",
    }
}
