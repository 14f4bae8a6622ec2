//! `clearway status`.

use std::path::PathBuf;
use std::time::Duration;

use clearway_daemon::text::escaped;
use serde_json::Value;

use crate::client::Client;
use crate::output::{Failure, lines, print, table};

const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON, with everything that is known
    #[arg(long)]
    json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    if arguments.json {
        return print(&format!("{status:#}\n"));
    }
    print(&text(&status))
}

/// The status for people. Works on whatever JSON there is: a field that another version of the
/// daemon does not send stays empty.
fn text(status: &Value) -> String {
    let mut text = format!(
        "clearway {}, process {}, up {}, {} session(s)\ncontrol socket {}, UDP port {}\nconfined: \
         user {}; system calls {}; files {}\n",
        field(status, "version"),
        field(status, "process"),
        duration(status["uptime_seconds"].as_u64().unwrap_or(0)),
        field(status, "sessions"),
        field(status, "socket"),
        field(status, "udp_port"),
        field(&status["confinement"], "user"),
        field(&status["confinement"], "system_calls"),
        field(&status["confinement"], "files"),
    );
    let waiting: Vec<String> = list(status, "needs_restart").iter().map(show).collect();
    if !waiting.is_empty() {
        text += &format!("needs a restart to take effect: {}\n", waiting.join(", "));
    }
    let engines = list(status, "engines");
    text += &engines_text(engines);
    text += &apps_text(list(status, "apps"), engines);
    text += &section("LISTENERS", engines, "listeners", LISTENER_COLUMNS);
    text += &section("FLOWS", engines, "flows", FLOW_COLUMNS);
    let omitted = status["flows_omitted"].as_u64().unwrap_or(0);
    if omitted > 0 {
        text += &format!("  and {omitted} more flows that did not fit in the answer\n");
    }
    text + &counters_text(engines)
}

/// Titles and the fields below them; `#` aligns numbers to the right.
type Columns = &'static [(&'static str, &'static str)];

const QUEUE_COLUMNS: Columns = &[
    ("driver", "driver"),
    ("link up", "link_up"),
    ("mac", "mac"),
    ("#rx frames", "rx_frames"),
    ("#rx bytes", "rx_bytes"),
    ("#rx dropped", "rx_frames_dropped"),
    ("#tx frames", "tx_frames"),
    ("#tx bytes", "tx_bytes"),
    ("#tx dropped", "tx_frames_dropped"),
    ("mode", "mode"),
];
const APP_COLUMNS: Columns = &[
    ("app", "app"),
    ("#user", "user"),
    ("#process", "process"),
    ("#channel", "channel"),
    ("#memory", "memory_bytes"),
    ("#listeners", "listeners"),
];
const CHANNEL_COLUMNS: Columns = &[
    ("#connections", "connections"),
    ("#sent", "messages_sent"),
    ("#received", "messages_received"),
    ("#waiting", "messages_waiting"),
    ("#pool used", "receive_pool_bytes_used"),
];
const LISTENER_COLUMNS: Columns = &[("#channel", "channel"), ("#port", "port")];
const FLOW_COLUMNS: Columns = &[
    ("#channel", "channel"),
    ("#connection", "connection"),
    ("path", "path"),
    ("peer", "peer"),
    ("state", "state"),
    ("#rtt ns", "rtt_ns"),
    ("#window", "congestion_window_bytes"),
    ("#in flight", "in_flight_bytes"),
    ("#packet", "packet_bytes"),
    ("ecn", "ecn"),
    ("#sent", "messages_sent"),
    ("#received", "messages_received"),
    ("#lost", "packets_lost"),
    ("detour", "detour"),
];

fn engines_text(engines: &[Value]) -> String {
    let mut text = String::new();
    for engine in engines {
        let addresses: Vec<String> = list(engine, "addresses").iter().map(show).collect();
        text += &format!(
            "\nENGINE {} \"{}\": {}; idle {}; congestion {}; {} of {} turns busy\n",
            field(engine, "index"),
            field(engine, "engine"),
            match (engine["interface_gone"].as_bool(), addresses.is_empty()) {
                (Some(true), _) => "its interface was removed".to_owned(),
                (_, true) => "no address yet".to_owned(),
                _ => addresses.join(", "),
            },
            field(engine, "idle"),
            field(engine, "congestion"),
            field(engine, "turns_busy"),
            field(engine, "turns"),
        );
        let mut queues = titled(&["#queue"], &[QUEUE_COLUMNS]);
        for (index, queue) in list(engine, "queues").iter().enumerate() {
            queues.add_row(cells(index.to_string(), &[(queue, QUEUE_COLUMNS)]));
        }
        text += &lines(&queues);
    }
    text
}

/// What the control plane knows of an app, and what its engine knows.
fn apps_text(apps: &[Value], engines: &[Value]) -> String {
    if apps.is_empty() {
        return "\nno apps are attached\n".to_owned();
    }
    let mut rows = titled(&["engine"], &[APP_COLUMNS, CHANNEL_COLUMNS]);
    for app in apps {
        let engine = engines.iter().find(|engine| engine["index"] == app["engine"]);
        let channels = engine.map_or(&[][..], |engine| list(engine, "channels"));
        let channel = channels.iter().find(|channel| channel["channel"] == app["channel"]);
        let name = engine.map_or_else(|| field(app, "engine"), |engine| field(engine, "engine"));
        let channel = channel.unwrap_or(&Value::Null);
        rows.add_row(cells(name, &[(app, APP_COLUMNS), (channel, CHANNEL_COLUMNS)]));
    }
    format!("\nAPPS\n{}", lines(&rows))
}

/// A list that each engine has, as one table.
fn section(title: &str, engines: &[Value], key: &str, columns: Columns) -> String {
    let mut rows = titled(&["engine"], &[columns]);
    for engine in engines {
        for item in list(engine, key) {
            rows.add_row(cells(field(engine, "engine"), &[(item, columns)]));
        }
    }
    if rows.is_empty() { String::new() } else { format!("\n{title}\n{}", lines(&rows)) }
}

/// Counters that have counted something.
fn counters_text(engines: &[Value]) -> String {
    let mut rows = table(&["engine", "counter", "#value"]);
    for engine in engines {
        for counter in list(engine, "counters") {
            if counter[1].as_u64() != Some(0) {
                rows.add_row([field(engine, "engine"), show(&counter[0]), show(&counter[1])]);
            }
        }
    }
    if rows.is_empty() { String::new() } else { format!("\nCOUNTERS\n{}", lines(&rows)) }
}

fn titled(first: &[&str], columns: &[Columns]) -> comfy_table::Table {
    let titles = columns.iter().flat_map(|columns| columns.iter().map(|(title, _)| *title));
    table(&first.iter().copied().chain(titles).collect::<Vec<_>>())
}

fn cells(first: String, parts: &[(&Value, Columns)]) -> Vec<String> {
    let rest =
        parts.iter().flat_map(|(value, columns)| columns.iter().map(|(_, key)| field(value, key)));
    std::iter::once(first).chain(rest).collect()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn field(value: &Value, key: &str) -> String {
    show(&value[key])
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => escaped(text).into_owned(),
        other => other.to_string(),
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min {seconds} s"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_status_is_shown() {
        let status = json!({
            "version": "1.2.3", "process": 7, "uptime_seconds": 3700, "sessions": 2,
            "socket": "/run/x", "udp_port": 20707, "flows_omitted": 9,
            "confinement": { "user": "on, user 7", "system_calls": "on", "files": "off: because" },
            "apps": [{ "app": "echo", "user": 1, "process": 8, "engine": 0, "channel": 5 }],
            "engines": [{
                "index": 0, "engine": "eth0", "addresses": ["10.0.0.1/24"], "idle": "adaptive",
                "queues": [{ "driver": "af_xdp", "mode": "copy: because", "link_up": true }],
                "channels": [{ "channel": 5, "messages_sent": 77 }],
                "listeners": [{ "channel": 5, "port": 9000 }],
                "flows": [{ "channel": 5, "peer": "10.0.0.2:9000", "state": "open" }],
                "counters": [["checksum_wrong", 3], ["nothing", 0]],
            }],
        });
        let text = text(&status);
        for part in [
            "clearway 1.2.3, process 7, up 1 h 1 min",
            "confined: user on, user 7; system calls on; files off: because",
            "ENGINE 0 \"eth0\": 10.0.0.1/24; idle adaptive",
            "copy: because",
            "echo",
            "77",
            "9000",
            "10.0.0.2:9000",
            "checksum_wrong",
            "9 more flows",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("nothing"));
    }

    #[test]
    fn status_of_another_version_is_shown_as_far_as_it_goes() {
        assert!(text(&json!({})).contains("no apps"));
        assert!(text(&json!({ "engines": 3, "apps": [1] })).contains("APPS"));
    }
}
