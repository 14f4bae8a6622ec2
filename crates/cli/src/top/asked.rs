//! What only the daemon knows: apps and flows, as its status tells them to this user.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, SyncSender, TrySendError, sync_channel};

use clearway_daemon::text::escaped;
use serde_json::Value;

use super::Event;
use super::rates::Rates;
use super::table::{Cell, Table};
use crate::client::{Client, PATIENCE};
use crate::owned::list;

const APPS: &[&str] =
    &["app", "engine", "#user", "#process", "#conns", "#sent/s", "#recv/s", "#waits", "#pool"];
const FLOWS: &[&str] =
    &["app", "#conn", "#rtt", "#window", "#sent/s", "#recv/s", "#lost/s", "peer"];

/// A thread that asks the daemon, so that nobody waits for the answer.
#[derive(Debug)]
pub(super) struct Asker {
    questions: SyncSender<()>,
    is_waiting: bool,
}

impl Asker {
    pub(super) fn start(socket: PathBuf, told: Sender<Event>) -> Self {
        let (questions, asked) = sync_channel(1);
        std::thread::spawn(move || {
            let mut client = None;
            while asked.recv().is_ok() {
                let answer = ask(&socket, &mut client).map(Box::new);
                if told.send(Event::Told(answer)).is_err() {
                    return;
                }
            }
        });
        Self { questions, is_waiting: false }
    }

    /// Asks, unless the last answer has not come yet.
    pub(super) fn ask(&mut self) {
        if !self.is_waiting {
            let sent = self.questions.try_send(());
            self.is_waiting = !matches!(sent, Err(TrySendError::Disconnected(())));
        }
    }

    pub(super) fn has_answered(&mut self) {
        self.is_waiting = false;
    }
}

/// Over the connection that there is, or a new one.
fn ask(socket: &Path, client: &mut Option<Client>) -> Result<Value, String> {
    let connected = match client.take() {
        Some(client) => client,
        None => Client::connect(Some(socket)).map_err(|failure| failure.to_string())?,
    };
    let status = connected.status(PATIENCE).map_err(|failure| failure.to_string())?;
    *client = Some(connected);
    Ok(status)
}

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct Asked {
    apps: Vec<Vec<Cell>>,
    flows: Vec<Vec<Cell>>,
    app_rates: Rates<String>,
    flow_rates: Rates<String>,
    /// Why there is none.
    pub(super) trouble: Option<String>,
    /// Apps that did not fit in the answer.
    pub(super) apps_omitted: u64,
    /// The same of flows.
    pub(super) flows_omitted: u64,
}

impl Asked {
    pub(super) fn take(&mut self, told: Result<Box<Value>, String>) {
        (self.apps, self.flows) = (Vec::new(), Vec::new());
        match told {
            Err(trouble) => self.trouble = Some(escaped(&trouble).into_owned()),
            Ok(status) => {
                self.trouble = None;
                self.apps_omitted = number(&status, "apps_omitted");
                self.flows_omitted = number(&status, "flows_omitted");
                self.take_apps(&status);
                self.take_flows(&status);
            }
        }
    }

    fn take_apps(&mut self, status: &Value) {
        let (at_ns, process) = (number(status, "clock_ns"), number(status, "process"));
        for app in list(status, "apps") {
            let engine = list(status, "engines").iter().find(|e| e["index"] == app["engine"]);
            let channels = engine.map_or(&[][..], |engine| list(engine, "channels"));
            let of_app = channels.iter().find(|channel| channel["channel"] == app["channel"]);
            let channel = of_app.unwrap_or(&Value::Null);
            let key = format!("{process} {} {} {}", app["process"], app["engine"], app["channel"]);
            let counted = ["messages_sent", "messages_received"].map(|name| number(channel, name));
            let rates = self.app_rates.update(key, at_ns, counted.to_vec());
            self.apps.push(vec![
                text(app, "app"),
                engine.map_or(Cell::Text(String::new()), |engine| text(engine, "engine")),
                Cell::Text(number(app, "user").to_string()),
                Cell::Text(number(app, "process").to_string()),
                Cell::Count(number(channel, "connections")),
                Cell::Rate(rates[0]),
                Cell::Rate(rates[1]),
                Cell::Count(number(channel, "messages_waiting")),
                Cell::Bytes(number(channel, "receive_pool_bytes_used")),
            ]);
        }
        self.app_rates.end_round();
    }

    fn take_flows(&mut self, status: &Value) {
        let (at_ns, process) = (number(status, "clock_ns"), number(status, "process"));
        for engine in list(status, "engines") {
            for flow in list(engine, "flows") {
                let is_its = |app: &&Value| {
                    app["engine"] == engine["index"] && app["channel"] == flow["channel"]
                };
                let app = list(status, "apps").iter().find(is_its).unwrap_or(&Value::Null);
                let key = format!(
                    "{process} {} {} {} {}",
                    engine["index"], flow["channel"], flow["connection"], flow["peer"]
                );
                let counted = ["messages_sent", "messages_received", "packets_lost"];
                let counted = counted.map(|name| number(flow, name));
                let rates = self.flow_rates.update(key, at_ns, counted.to_vec());
                let state = flow["state"].as_str().filter(|state| *state != "open");
                let state = state.map(|state| format!(" {state}")).unwrap_or_default();
                let peer = flow["peer"].as_str().unwrap_or_default().to_owned() + &state;
                self.flows.push(vec![
                    text(app, "app"),
                    Cell::Text(number(flow, "connection").to_string()),
                    Cell::Nanoseconds(number(flow, "rtt_ns")),
                    Cell::Bytes(number(flow, "congestion_window_bytes")),
                    Cell::Rate(rates[0]),
                    Cell::Rate(rates[1]),
                    Cell::Rate(rates[2]),
                    Cell::Text(escaped(&peer).into_owned()),
                ]);
            }
        }
        self.flow_rates.end_round();
    }

    pub(super) fn apps(&self) -> Table {
        Table { columns: APPS, rows: self.apps.clone() }
    }

    pub(super) fn flows(&self) -> Table {
        Table { columns: FLOWS, rows: self.flows.clone() }
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

fn text(value: &Value, key: &str) -> Cell {
    Cell::Text(escaped(value[key].as_str().unwrap_or_default()).into_owned())
}
