//! `clearway status`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{Client, PATIENCE};
use crate::explain;
use crate::output::fit::{TERMINAL_COLUMNS, fit, wrapped};
use crate::output::{Failure, lines, print, table};
use crate::owned::{list, show};
use crate::units::{bytes, count, nanoseconds, percent};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON, with everything that is known
    #[arg(long, conflicts_with = "wide")]
    json: bool,
    /// Print all columns, whole names and exact numbers, however long the lines get
    #[arg(long)]
    wide: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    if arguments.json {
        return print(&format!("{status:#}\n"));
    }
    print(&Page { status: &status, is_wide: arguments.wide }.text())
}

/// How a number is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Text,
    Count,
    Bytes,
    Nanoseconds,
}

/// A column of a table: its title (`#` aligns numbers to the right), the field below it, and how
/// that is shown.
struct Column {
    title: &'static str,
    key: &'static str,
    shown: As,
    room: Room,
    /// Only when there is room for everything.
    is_extra: bool,
}

/// What becomes of a column when there is too little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It stays.
    Needed,
    /// It is shortened, with a sign.
    Yields,
    /// All of it moves to lines of its own.
    Below,
}

const fn text(title: &'static str, key: &'static str) -> Column {
    Column { title, key, shown: As::Text, room: Room::Needed, is_extra: false }
}

const fn name(title: &'static str, key: &'static str) -> Column {
    Column { room: Room::Yields, ..text(title, key) }
}

const fn number(title: &'static str, key: &'static str, shown: As) -> Column {
    Column { shown, ..text(title, key) }
}

const fn extra(column: Column) -> Column {
    Column { is_extra: true, ..column }
}

const QUEUES: &[Column] = &[
    text("#queue", "queue"),
    extra(text("driver", "driver")),
    text("link up", "link_up"),
    extra(text("mac", "mac")),
    number("#rx frames", "rx_frames", As::Count),
    number("#rx bytes", "rx_bytes", As::Bytes),
    number("#dropped", "rx_frames_dropped", As::Count),
    extra(number("#rx super", "rx_super_frames", As::Count)),
    number("#tx frames", "tx_frames", As::Count),
    number("#tx bytes", "tx_bytes", As::Bytes),
    number("#dropped", "tx_frames_dropped", As::Count),
    extra(number("#tx super", "tx_super_frames", As::Count)),
    extra(text("mode", "mode")),
];
const APPS: &[Column] = &[
    name("app", "app"),
    name("engine", "engine_name"),
    text("#user", "user"),
    text("#process", "process"),
    extra(text("#core", "core")),
    extra(text("#channel", "channel")),
    extra(number("#memory", "memory_bytes", As::Bytes)),
    extra(text("#listeners", "listeners")),
    number("#conns", "connections", As::Count),
    number("#sent", "messages_sent", As::Count),
    number("#received", "messages_received", As::Count),
    number("#waits", "messages_waiting", As::Count),
    number("#pool", "receive_pool_bytes_used", As::Bytes),
];
const LISTENERS: &[Column] = &[
    text("#port", "port"),
    name("app", "app"),
    name("engine", "engine_name"),
    extra(text("#channel", "channel")),
];
const FLOWS: &[Column] = &[
    name("app", "app"),
    extra(name("engine", "engine_name")),
    extra(text("#channel", "channel")),
    text("#conn", "connection"),
    Column { room: Room::Below, ..text("peer", "peer") },
    text("state", "state"),
    extra(text("path", "path")),
    number("#rtt", "rtt_ns", As::Nanoseconds),
    extra(number("#window", "congestion_window_bytes", As::Bytes)),
    extra(number("#in flight", "in_flight_bytes", As::Bytes)),
    extra(text("#packet", "packet_bytes")),
    extra(text("ecn", "ecn")),
    number("#sent", "messages_sent", As::Count),
    number("#received", "messages_received", As::Count),
    number("#unacked", "messages_outstanding", As::Count),
    extra(text("held", "held_by_peer")),
    number("#lost", "packets_lost", As::Count),
    extra(text("detour", "detour")),
];
/// So many connections that wait for their peers' apps are told of one by one.
const HELD_BY_PEERS_TOLD: usize = 8;
const COUNTERS: &[Column] = &[
    name("engine", "engine_name"),
    text("counter", "counter"),
    number("#value", "value", As::Count),
    name("what it counts", "help"),
];

/// The status for people. Works on whatever JSON there is: a field that another version of the
/// daemon does not send stays empty.
struct Page<'s> {
    status: &'s Value,
    is_wide: bool,
}

impl Page<'_> {
    fn text(&self) -> String {
        let status = self.status;
        let engines = list(status, "engines");
        let mut text = self.heading();
        for engine in engines {
            text += &self.engine(engine);
        }
        text += &match self.rows_of_apps() {
            rows if rows.is_empty() && self.omitted("apps").is_empty() => {
                "\nno apps are attached\n".to_owned()
            }
            rows => {
                self.section("APPS", APPS, &rows) + &self.sharers(&rows) + &self.too_large(&rows)
            }
        };
        text += &self.omitted("apps");
        text += &self.section("LISTENERS", LISTENERS, &self.rows_of("listeners"));
        text += &self.omitted("listeners");
        let flows = self.rows_of("flows");
        text += &self.section("FLOWS", FLOWS, &flows);
        text += &self.held_by_peers(&flows);
        text += &self.omitted("flows");
        let counters = self.rows_of_counters();
        text += &self.section("COUNTERS", COUNTERS, &counters);
        if !counters.is_empty() {
            text += "  when one rises, and what to do about it: clearway explain COUNTER\n";
        }
        text
    }

    /// How many there are besides, if there are any.
    fn omitted(&self, what: &str) -> String {
        match self.status[format!("{what}_omitted")].as_u64().unwrap_or(0) {
            0 => String::new(),
            count => format!("  and {count} more {what} that did not fit in the answer\n"),
        }
    }

    fn heading(&self) -> String {
        let status = self.status;
        let confinement = &status["confinement"];
        let sessions = status["sessions"].as_u64().unwrap_or(0);
        let mut text = self.paragraph(&format!(
            "clearway {}, process {}, up {}, {sessions} session{}",
            field(status, "version"),
            field(status, "process"),
            duration(status["uptime_seconds"].as_u64().unwrap_or(0)),
            if sessions == 1 { "" } else { "s" },
        ));
        text += &self.paragraph(&format!(
            "control socket {}, UDP port {}",
            field(status, "socket"),
            field(status, "udp_port"),
        ));
        text += &self.paragraph(&format!(
            "confined: user {}; system calls {}; files {}",
            field(confinement, "user"),
            field(confinement, "system_calls"),
            field(confinement, "files"),
        ));
        let waiting: Vec<String> = list(status, "needs_restart").iter().map(show).collect();
        if !waiting.is_empty() {
            let waiting = waiting.join(", ");
            text += &self.paragraph(&format!("needs a restart to take effect: {waiting}"));
        }
        text
    }

    /// Lines that fit on the terminal.
    fn paragraph(&self, text: &str) -> String {
        wrapped(text, if self.is_wide { usize::MAX } else { TERMINAL_COLUMNS }, 2)
    }

    fn engine(&self, engine: &Value) -> String {
        let addresses: Vec<String> = list(engine, "addresses").iter().map(show).collect();
        let busy = [&engine["turns_busy"], &engine["turns"]].map(|turns| turns.as_u64());
        let mut text = "\n".to_owned();
        text += &self.paragraph(&format!(
            "ENGINE {} \"{}\": {}; idle {}{}; congestion {}; {} of turns busy",
            field(engine, "index"),
            field(engine, "engine"),
            match (engine["interface_gone"].as_bool(), addresses.is_empty()) {
                (Some(true), _) => format!("not open: {}", field(engine, "nic_trouble")),
                (_, true) => "no address yet".to_owned(),
                _ => addresses.join(", "),
            },
            field(engine, "idle"),
            engine["core"].as_u64().map_or_else(String::new, |core| format!(", on core {core}")),
            field(engine, "congestion"),
            percent(busy[0].unwrap_or(0), busy[1].unwrap_or(0)),
        ));
        let trouble = field(engine, "nic_trouble");
        if engine["interface_gone"] == false && !trouble.is_empty() {
            text += &self.paragraph(&format!("  {trouble}"));
        }
        let mut queues = list(engine, "queues").to_vec();
        if !self.is_wide {
            text += &self.drivers(&queues);
        }
        for (index, queue) in queues.iter_mut().enumerate().filter(|(_, queue)| queue.is_object()) {
            queue["queue"] = index.into();
        }
        text + &self.table(QUEUES, &queues)
    }

    /// What is the same of all queues, as a rule.
    fn drivers(&self, queues: &[Value]) -> String {
        let of = |queue: &Value| {
            let [driver, mac, mode] = ["driver", "mac", "mode"].map(|key| field(queue, key));
            self.paragraph(&format!("  {driver} {mac}: {mode}"))
        };
        let mut lines: Vec<String> = queues.iter().map(of).collect();
        lines.dedup();
        lines.concat()
    }

    fn section(&self, title: &str, columns: &[Column], rows: &[Value]) -> String {
        if rows.is_empty() {
            return String::new();
        }
        format!("\n{title}\n{}", self.table(columns, rows))
    }

    fn table(&self, columns: &[Column], rows: &[Value]) -> String {
        let columns: Vec<&Column> =
            columns.iter().filter(|column| self.is_wide || !column.is_extra).collect();
        if self.is_wide {
            let (titles, rows) = self.cells(&columns, rows);
            return shown(&titles, rows);
        }
        let yielding = |columns: &[&Column]| -> Vec<bool> {
            columns.iter().map(|column| column.room == Room::Yields).collect()
        };
        let (titles, mut cells) = self.cells(&columns, rows);
        if fit(&titles, &yielding(&columns), &mut cells, TERMINAL_COLUMNS) {
            return shown(&titles, cells);
        }
        let (below, columns): (Vec<_>, Vec<_>) =
            columns.into_iter().partition(|column| column.room == Room::Below);
        let (titles, mut cells) = self.cells(&columns, rows);
        fit(&titles, &yielding(&columns), &mut cells, TERMINAL_COLUMNS);
        let table = shown(&titles, cells);
        let (mut text, rest) = table.split_once('\n').map_or_else(
            || (table.clone(), String::new()),
            |(titles, rest)| (titles.to_owned() + "\n", rest.to_owned()),
        );
        for (line, row) in rest.lines().zip(rows) {
            text += &format!("{line}\n");
            for column in &below {
                text += &format!("   {} {}\n", column.title, self.cell(row, column));
            }
        }
        text
    }

    fn cells<'t>(
        &self,
        columns: &[&'t Column],
        rows: &[Value],
    ) -> (Vec<&'t str>, Vec<Vec<String>>) {
        let titles = columns.iter().map(|column| column.title).collect();
        let cells = |row: &Value| columns.iter().map(|column| self.cell(row, column)).collect();
        (titles, rows.iter().map(cells).collect())
    }

    fn cell(&self, row: &Value, column: &Column) -> String {
        match (row[column.key].as_u64().filter(|_| !self.is_wide), column.shown) {
            (Some(value), As::Count) => count(value),
            (Some(value), As::Bytes) => bytes(value),
            (Some(value), As::Nanoseconds) => nanoseconds(value),
            _ => field(row, column.key),
        }
    }

    /// What the control plane knows of each app, and what its engine knows.
    fn rows_of_apps(&self) -> Vec<Value> {
        let engines = list(self.status, "engines");
        let apps = list(self.status, "apps").iter().filter(|app| app.is_object());
        let row = |app: &Value| {
            let mut row = app.clone();
            let engine = engines.iter().find(|engine| engine["index"] == app["engine"]);
            row["engine_name"] = engine.map_or(&app["engine"], |engine| &engine["engine"]).clone();
            row["engine_core"] = engine.map_or(&Value::Null, |engine| &engine["core"]).clone();
            let channels = engine.map_or(&[][..], |engine| list(engine, "channels"));
            let channel = channels.iter().find(|channel| channel["channel"] == app["channel"]);
            let known = channel.and_then(Value::as_object).into_iter().flatten();
            for (key, value) in known.filter(|(key, _)| *key != "app") {
                row[key.as_str()] = value.clone();
            }
            row
        };
        apps.map(row).collect()
    }

    /// Apps that share their engine's core now: the two cannot run at the same time.
    fn sharers(&self, apps: &[Value]) -> String {
        let shares = |app: &&Value| app["core"].is_u64() && app["core"] == app["engine_core"];
        let sentence = |app: &Value| {
            let [name, core] = ["app", "core"].map(|key| field(app, key));
            self.paragraph(&format!("  {name} shares core {core} with its engine"))
        };
        apps.iter().filter(shares).map(sentence).collect()
    }

    /// Apps with messages that never come as things are: nothing of them lies in the pool.
    fn too_large(&self, apps: &[Value]) -> String {
        let sentence = |app: &Value| {
            let length = app["message_too_large_bytes"].as_u64().filter(|length| *length > 0)?;
            let name = field(app, "app");
            Some(self.paragraph(&format!(
                "  a message of {length} bytes for {name} is larger than its receive pool, and \
                 waits: attach it with a larger one, or have it post a buffer for the message"
            )))
        };
        apps.iter().filter_map(sentence).collect()
    }

    /// Connections whose messages wait for the peer's app.
    fn held_by_peers(&self, flows: &[Value]) -> String {
        let held: Vec<_> = flows.iter().filter(|flow| flow["held_by_peer"] == true).collect();
        let sentence = |flow: &&Value| {
            let [app, connection, peer] = ["app", "connection", "peer"].map(|key| field(flow, key));
            self.paragraph(&format!(
                "  {app} waits on connection {connection}: the app at {peer} does not release \
                 what it has received"
            ))
        };
        let text: String = held.iter().take(HELD_BY_PEERS_TOLD).map(sentence).collect();
        match held.len().saturating_sub(HELD_BY_PEERS_TOLD) {
            0 => text,
            more => text + &format!("  and {more} more connections wait for their peers' apps\n"),
        }
    }

    /// A list that each engine has, as one, with the names of apps and engines.
    fn rows_of(&self, key: &str) -> Vec<Value> {
        let engines = list(self.status, "engines").iter();
        let items = |engine: &'_ Value| {
            let items = list(engine, key).iter().filter(|item| item.is_object());
            let rows = items.map(|item| {
                let mut row = item.clone();
                row["engine_name"] = engine["engine"].clone();
                row["app"] = self.app_of(engine, &item["channel"]);
                row
            });
            rows.collect::<Vec<_>>()
        };
        engines.flat_map(items).collect()
    }

    /// The name of the app that has a channel.
    fn app_of(&self, engine: &Value, channel: &Value) -> Value {
        let is_it = |app: &&Value| app["engine"] == engine["index"] && app["channel"] == *channel;
        let app = list(self.status, "apps").iter().find(is_it);
        app.map_or_else(|| format!("channel {channel}").into(), |app| app["app"].clone())
    }

    /// Counters that have counted something.
    fn rows_of_counters(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for engine in list(self.status, "engines") {
            let counters = engine["counters"].as_object().into_iter().flatten();
            for (name, value) in counters.filter(|(_, value)| value.as_u64() != Some(0)) {
                rows.push(json!({
                    "engine_name": engine["engine"], "counter": name, "value": value,
                    "help": explain::help_of_engine_counter(name),
                }));
            }
        }
        rows
    }
}

fn shown(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut shown = table(titles);
    shown.add_rows(rows);
    lines(&shown)
}

fn field(value: &Value, key: &str) -> String {
    show(&value[key])
}

pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {seconds} s"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests;
