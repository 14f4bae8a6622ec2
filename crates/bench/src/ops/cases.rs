//! What is measured, in which comparison, and what is aimed at.

use crate::apps::Exchange;
use crate::arguments::{Idle, Layout, MTU_OF_MEMIF, Plan, Wire};
use crate::cpu::{Cores, Pins};
use crate::endpoint::{BATCH, Company, Credit, Deed, POSTED_BYTES, Posted, Question, RECORD_BYTES};
use crate::load::{Load, Workload};
use crate::report::Figures;

use super::libfabric::Provider;
use super::others::Program;
use super::ucx::{Test, Transport};

/// Operations in flight where many are.
const MANY: usize = 256;
/// Messages and calls in flight where many are.
const MANY_MESSAGES: usize = 32;
/// Large ones in flight, and how large they are.
const MANY_LARGE: usize = 8;
const LARGE_BYTES: usize = 1 << 20;

/// One way to get something done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) by: By,
    layout: Layout,
    wire: Wire,
    /// Bytes.
    pub(super) size: usize,
    pub(super) window: usize,
    server_sleeps: bool,
    /// Messages are not sent back.
    is_one_way: bool,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum By {
    Clearway(Exchange),
    Ucx(Test, Transport),
    Libfabric(Provider),
}

/// Cases that are measured in turn, and what is found out by that.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// What has to be installed.
    pub(super) needs: Option<Program>,
    pub(super) cases: &'static [Case],
    pub(super) rows: &'static [Row],
}

/// A figure of one case, divided by that of another, if there is one; and what is aimed at, if
/// anything is.
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) figure: Figure,
    pub(super) ours: Case,
    pub(super) other: Option<Case>,
    pub(super) aim: Option<f64>,
}

/// Which figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// The median time, in µs: less is better.
    Time,
    /// What 99 of 100 do not exceed, likewise.
    Tail,
    /// Done per second: more is better.
    Rate,
    /// The same.
    Gbit,
}

impl Figure {
    pub(super) fn of(self, case: Case, figures: &Figures) -> f64 {
        match self {
            Self::Time => figures.p50_ns as f64 / 1000.0,
            Self::Tail => figures.p99_ns as f64 / 1000.0,
            Self::Rate => figures.rate_per_s * case.units(),
            Self::Gbit => figures.gbit_per_s,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Time => "µs",
            Self::Tail => "µs, p99",
            Self::Rate => "per s",
            Self::Gbit => "Gbit/s",
        }
    }

    pub(super) fn is_met(self, is: f64, aim: f64) -> bool {
        match self {
            Self::Time | Self::Tail => is <= aim,
            Self::Rate | Self::Gbit => is >= aim,
        }
    }
}

impl Case {
    const fn operation(name: &'static str, deed: Deed) -> Self {
        let (by, size) = (By::Clearway(Exchange::Operations(deed)), RECORD_BYTES as usize);
        Self {
            name,
            by,
            layout: Layout::Paired,
            wire: Wire::Memif,
            size,
            window: 1,
            server_sleeps: false,
            is_one_way: false,
        }
    }

    const fn messages(name: &'static str) -> Self {
        Self { by: By::Clearway(Exchange::Messages), ..Self::operation(name, Deed::Read) }
    }

    const fn call(name: &'static str, question: Question) -> Self {
        Self { by: By::Clearway(Exchange::Calls(question)), ..Self::operation(name, Deed::Read) }
    }

    const fn streams(name: &'static str, company: Company) -> Self {
        Self { by: By::Clearway(Exchange::Streams(company)), ..Self::operation(name, Deed::Read) }
    }

    const fn in_turn(name: &'static str, credit: Credit) -> Self {
        Self { by: By::Clearway(Exchange::InTurn(credit)), ..Self::messages(name) }
    }

    const fn posted(name: &'static str, posted: Posted) -> Self {
        let by = By::Clearway(Exchange::Posts(posted));
        Self { by, size: POSTED_BYTES, is_one_way: true, ..Self::messages(name) }
    }

    const fn hosts(self) -> Self {
        Self { layout: Layout::Hosts, ..self }
    }

    const fn ucx(name: &'static str, test: Test, transport: Transport) -> Self {
        Self { by: By::Ucx(test, transport), ..Self::operation(name, Deed::Read).embedded() }
    }

    const fn libfabric(name: &'static str, provider: Provider) -> Self {
        Self { by: By::Libfabric(provider), ..Self::operation(name, Deed::Read).embedded() }
    }

    /// Between two apps of one host.
    const fn local(self) -> Self {
        Self { wire: Wire::Local, ..self }
    }

    const fn many(self, window: usize) -> Self {
        Self { window, ..self }
    }

    const fn large(self) -> Self {
        Self { size: LARGE_BYTES, window: MANY_LARGE, ..self }.one_way()
    }

    const fn one_way(self) -> Self {
        Self { is_one_way: true, ..self }
    }

    const fn asleep(self) -> Self {
        Self { layout: Layout::Hosts, server_sleeps: true, ..self }
    }

    const fn embedded(self) -> Self {
        Self { layout: Layout::Embedded, ..self }
    }

    /// What is done by an exchange.
    const fn units(self) -> f64 {
        let is_batch = matches!(self.by, By::Clearway(Exchange::Operations(Deed::Batch)));
        if is_batch { BATCH as f64 } else { 1.0 }
    }

    /// Where its processes run.
    pub(super) fn pins(self, cores: Cores) -> Pins {
        cores.pins(self.layout)
    }

    /// How Clearway is run.
    pub(super) fn plan(self, exchange: Exchange, seconds: f64) -> Plan {
        let Self { layout, wire, size, window, .. } = self;
        let is_echo =
            matches!(exchange, Exchange::Messages | Exchange::Streams(_) | Exchange::InTurn(_))
                && !self.is_one_way;
        let workload = if is_echo { Workload::Rate } else { Workload::Stream };
        let idle = if layout == Layout::Hosts { Idle::Adaptive } else { Idle::Spin };
        Plan {
            load: Load { workload, size, window, connections: 1, seconds },
            wire,
            layout,
            idle,
            server_idle: if self.server_sleeps { Idle::Block } else { idle },
            exchange,
            c_app: None,
            kernel_end: None,
            kernel_plain: false,
            mtu: MTU_OF_MEMIF,
            contenders: Vec::new(),
            runs: 1,
            notes: Vec::new(),
        }
    }
}

const READ: Case = Case::operation("read", Deed::Read);
const ECHO: Case = Case::messages("echo");
const READ_ASLEEP: Case = Case { name: "read_asleep", ..READ }.asleep();
const ECHO_ASLEEP: Case = Case { name: "echo_asleep", ..ECHO }.asleep();
const READS: Case = Case { name: "reads", ..READ }.many(MANY);
const READ_OF_MANY: Case = Case::operation("read_of_many", Deed::ReadOfMany);
const READ_OF_ONE: Case = Case { name: "read_of_one", ..READ };
const READS_OF_ONE: Case = Case { name: "reads_of_one", ..READS };
const READS_OF_MANY: Case = Case { name: "reads_of_many", ..READ_OF_MANY }.many(MANY);
const READS_EMBEDDED: Case = Case { name: "reads_embedded", ..READS }.embedded();
const INDIRECT: Case = Case::operation("indirect", Deed::Indirect);
const DEPENDENT: Case = Case::operation("dependent", Deed::Dependent);
const INDIRECTS: Case = Case { name: "indirects", ..INDIRECT }.many(MANY);
const DEPENDENTS: Case = Case { name: "dependents", ..DEPENDENT }.many(MANY);
const BATCHES: Case = Case::operation("batches", Deed::Batch).many(MANY / BATCH);
const SCAN: Case = Case::operation("scan", Deed::Scan);
const SCAN_CALL: Case = Case::call("scan_call", Question::Scan);
const SCANS: Case = Case { name: "scans", ..SCAN }.many(MANY_MESSAGES);
const SCAN_CALLS: Case = Case { name: "scan_calls", ..SCAN_CALL }.many(MANY_MESSAGES);
const READ_LARGE: Case = Case { name: "read_large", ..READ }.large();
const MESSAGE_LARGE: Case = Case { name: "message_large", ..ECHO }.large();
const SWAPS: Case = Case::operation("swaps", Deed::Swap);
const SWAPS_DONE: Case = Case::operation("swaps_done", Deed::SwapUntilDone);
const CALLS: Case = Case::call("calls", Question::Echo).many(MANY_MESSAGES);
const MESSAGES: Case = Case { name: "messages", ..ECHO }.many(MANY_MESSAGES);
const ALONE: Case = Case::streams("alone", Company::None);
const BESIDE: Case = Case::streams("beside", Company::Large);
const FIRST: Case = Case::streams("first", Company::Patient);
const ALONE_HOSTS: Case = Case { name: "alone_hosts", ..ALONE }.hosts();
const BESIDE_HOSTS: Case = Case { name: "beside_hosts", ..BESIDE }.hosts();
const FIRST_HOSTS: Case = Case { name: "first_hosts", ..FIRST }.hosts();

const CREDIT_LITTLE: Case = Case::in_turn("credit_little", Credit::Little);
const CREDIT_MUCH: Case = Case::in_turn("credit_much", Credit::Much);
const POSTED_FEW: Case = Case::posted("posted_few", Posted::Few);
const POSTED_MANY: Case = Case::posted("posted_many", Posted::Many);
const POSTED_FEW_FLOW: Case = Case { name: "posted_few_flow", ..POSTED_FEW }.many(MANY_LARGE);
const POSTED_MANY_FLOW: Case = Case { name: "posted_many_flow", ..POSTED_MANY }.many(MANY_LARGE);

/// In two threads with a core each, as UCX's.
const READ_TWO: Case = Case { name: "read_two", ..READ }.embedded();
const READS_TWO: Case = Case { name: "reads_two", ..READS }.embedded();
const ECHO_TWO: Case = Case { name: "echo_two", ..ECHO }.embedded();
const MESSAGES_TWO: Case = Case { name: "messages_two", ..MESSAGES }.embedded().one_way();
const UCX_READ: Case = Case::ucx("ucx_read", Test::Read, Transport::Tcp);
const UCX_READS: Case = Case::ucx("ucx_reads", Test::Read, Transport::Tcp).many(MANY);
const UCX_ECHO: Case = Case::ucx("ucx_echo", Test::Echo, Transport::Tcp);
const UCX_MESSAGES: Case =
    Case::ucx("ucx_messages", Test::Messages, Transport::Tcp).many(MANY_MESSAGES);
const ECHO_FABRIC: Case = Case { name: "echo_fabric", ..ECHO }.embedded();
const FABRIC_TCP: Case = Case::libfabric("fabric_tcp", Provider::Tcp);

/// Within a host.
const ECHO_LOCAL: Case = Case { name: "echo_local", ..ECHO }.local();
const READ_LOCAL: Case = Case { name: "read_local", ..READ }.local();
const READS_LOCAL: Case = Case { name: "reads_local", ..READS }.local();
const UCX_ECHO_LOCAL: Case = Case::ucx("ucx_echo_local", Test::Echo, Transport::SharedMemory);
const UCX_READ_LOCAL: Case = Case::ucx("ucx_read_local", Test::Read, Transport::SharedMemory);
const UCX_READS_LOCAL: Case = Case { name: "ucx_reads_local", ..UCX_READ_LOCAL }.many(MANY);
const ECHO_FABRIC_LOCAL: Case = Case { name: "echo_fabric_local", ..ECHO }.local();
const FABRIC_SHM: Case = Case::libfabric("fabric_shm", Provider::Shm);

const fn row(what: &'static str, figure: Figure, ours: Case, other: Option<Case>, aim: f64) -> Row {
    Row { what, figure, ours, other, aim: Some(aim) }
}

/// One without an aim.
const fn beside(what: &'static str, figure: Figure, ours: Case, other: Case) -> Row {
    Row { what, figure, ours, other: Some(other), aim: None }
}

pub(super) const GROUPS: [Group; 14] = [
    Group {
        name: "reads",
        needs: None,
        cases: &[READS, READS_EMBEDDED],
        rows: &[
            row("64 B reads, 256 in flight, paired", Figure::Rate, READS, None, 5e6),
            row("64 B reads, 256 in flight, embedded", Figure::Rate, READS_EMBEDDED, None, 5e6),
        ],
    },
    Group {
        name: "read",
        needs: None,
        cases: &[READ, ECHO],
        rows: &[row("64 B read : echo, paired", Figure::Time, READ, Some(ECHO), 0.75)],
    },
    Group {
        name: "regions",
        needs: None,
        cases: &[READ_OF_MANY, READ_OF_ONE, READS_OF_MANY, READS_OF_ONE],
        rows: &[
            row(
                "64 B read of 100,000 regions : of one",
                Figure::Time,
                READ_OF_MANY,
                Some(READ_OF_ONE),
                1.2,
            ),
            row(
                "the same, 256 in flight",
                Figure::Rate,
                READS_OF_MANY,
                Some(READS_OF_ONE),
                1.0 / 1.2,
            ),
        ],
    },
    Group {
        name: "credit",
        needs: None,
        cases: &[
            CREDIT_LITTLE,
            CREDIT_MUCH,
            POSTED_FEW,
            POSTED_MANY,
            POSTED_FEW_FLOW,
            POSTED_MANY_FLOW,
        ],
        rows: &[
            row(
                "64 B echo by 16 connections, credit for 1,048,576 messages : for 512",
                Figure::Time,
                CREDIT_MUCH,
                Some(CREDIT_LITTLE),
                1.2,
            ),
            row(
                "8 KB into one of 64 posted buffers of 16,384 : of 64",
                Figure::Time,
                POSTED_MANY,
                Some(POSTED_FEW),
                1.2,
            ),
            row(
                "the same, 8 in flight",
                Figure::Rate,
                POSTED_MANY_FLOW,
                Some(POSTED_FEW_FLOW),
                0.83,
            ),
        ],
    },
    Group {
        name: "asleep",
        needs: None,
        cases: &[READ_ASLEEP, ECHO_ASLEEP],
        rows: &[row(
            "64 B read : echo, hosts, server's app asleep",
            Figure::Time,
            READ_ASLEEP,
            Some(ECHO_ASLEEP),
            0.5,
        )],
    },
    Group {
        name: "indirect",
        needs: None,
        cases: &[INDIRECT, DEPENDENT, INDIRECTS, DEPENDENTS, BATCHES],
        rows: &[
            row("indirect : two reads", Figure::Time, INDIRECT, Some(DEPENDENT), 0.55),
            row("the same, 256 in flight", Figure::Rate, INDIRECTS, Some(DEPENDENTS), 1.8),
            row("8 indirect in one : single", Figure::Rate, BATCHES, Some(INDIRECTS), 3.0),
        ],
    },
    Group {
        name: "scan",
        needs: None,
        cases: &[SCAN, SCAN_CALL, SCANS, SCAN_CALLS],
        rows: &[
            row("scan of 64 entries : call", Figure::Time, SCAN, Some(SCAN_CALL), 0.7),
            row("the same, 32 in flight", Figure::Rate, SCANS, Some(SCAN_CALLS), 1.5),
        ],
    },
    Group {
        name: "large",
        needs: None,
        cases: &[READ_LARGE, MESSAGE_LARGE],
        rows: &[row(
            "1 MiB read : message, 8 in flight",
            Figure::Gbit,
            READ_LARGE,
            Some(MESSAGE_LARGE),
            1.0,
        )],
    },
    Group {
        name: "swaps",
        needs: None,
        cases: &[SWAPS, SWAPS_DONE],
        rows: &[
            row("compare-and-swap, 8 clients, tries", Figure::Rate, SWAPS, None, 1e6),
            row("the same, those that succeed", Figure::Rate, SWAPS_DONE, None, 1e6),
        ],
    },
    Group {
        name: "calls",
        needs: None,
        cases: &[CALLS, MESSAGES],
        rows: &[row("64 B call : message, 32 in flight", Figure::Rate, CALLS, Some(MESSAGES), 0.8)],
    },
    Group {
        name: "streams",
        needs: None,
        cases: &[ALONE, BESIDE, FIRST, ALONE_HOSTS, BESIDE_HOSTS, FIRST_HOSTS],
        rows: &[
            row("64 B beside 1 MiB : alone, paired", Figure::Tail, BESIDE, Some(ALONE), 1.5),
            row("the same, urgent", Figure::Tail, FIRST, Some(ALONE), 1.5),
            row("beside : alone, hosts", Figure::Tail, BESIDE_HOSTS, Some(ALONE_HOSTS), 1.5),
            row("the same, urgent", Figure::Tail, FIRST_HOSTS, Some(ALONE_HOSTS), 1.5),
        ],
    },
    Group {
        name: "ucx",
        needs: Some(Program::Ucx),
        cases: &[
            READ_TWO,
            UCX_READ,
            READS_TWO,
            UCX_READS,
            ECHO_TWO,
            UCX_ECHO,
            MESSAGES_TWO,
            UCX_MESSAGES,
        ],
        rows: &[
            row("64 B read : UCX over TCP", Figure::Time, READ_TWO, Some(UCX_READ), 0.3),
            row("the same, 256 in flight", Figure::Rate, READS_TWO, Some(UCX_READS), 5.0),
            row("64 B echo : UCX over TCP", Figure::Time, ECHO_TWO, Some(UCX_ECHO), 0.3),
            row(
                "64 B messages one way, 32 in flight",
                Figure::Rate,
                MESSAGES_TWO,
                Some(UCX_MESSAGES),
                5.0,
            ),
        ],
    },
    Group {
        name: "local",
        needs: Some(Program::Ucx),
        cases: &[
            ECHO_LOCAL,
            UCX_ECHO_LOCAL,
            READ_LOCAL,
            UCX_READ_LOCAL,
            READS_LOCAL,
            UCX_READS_LOCAL,
        ],
        rows: &[
            beside("64 B echo : UCX, one host", Figure::Time, ECHO_LOCAL, UCX_ECHO_LOCAL),
            beside("64 B read : UCX, one host", Figure::Time, READ_LOCAL, UCX_READ_LOCAL),
            beside("the same, 256 in flight", Figure::Rate, READS_LOCAL, UCX_READS_LOCAL),
        ],
    },
    Group {
        name: "libfabric",
        needs: Some(Program::Libfabric),
        cases: &[ECHO_FABRIC, FABRIC_TCP, ECHO_FABRIC_LOCAL, FABRIC_SHM],
        rows: &[
            beside("64 B echo : libfabric over TCP", Figure::Time, ECHO_FABRIC, FABRIC_TCP),
            beside("64 B echo : libfabric, one host", Figure::Time, ECHO_FABRIC_LOCAL, FABRIC_SHM),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn cases_have_names_of_their_own_and_rows_have_cases() {
        let cases = || GROUPS.iter().flat_map(|group| group.cases);
        let names: BTreeSet<_> = cases().map(|case| case.name).collect();
        assert_eq!(names.len(), cases().count());
        for group in &GROUPS {
            for row in group.rows {
                let has = |case: &Case| group.cases.contains(case);
                assert!(has(&row.ours) && row.other.iter().all(has), "{}", row.what);
            }
        }
    }

    #[test]
    fn less_time_and_more_of_the_rest_is_better() {
        assert!(Figure::Time.is_met(0.7, 0.75) && !Figure::Time.is_met(0.8, 0.75));
        assert!(Figure::Rate.is_met(3.1, 3.0) && !Figure::Gbit.is_met(0.9, 1.0));
    }
}
