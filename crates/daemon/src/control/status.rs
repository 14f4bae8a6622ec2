//! The state of a host, as `clearway status --json` shows it.

use std::path::PathBuf;
use std::time::Instant;

use clearway_channel::control::{PACKET_BYTES_MAX, Reply};
use clearway_engine::{Request as EngineRequest, Snapshot};
use serde::Serialize;

use super::ControlPlane;
use super::session::Waiting;
use crate::config::Config;

/// Room in a control packet for the state itself; the rest is the envelope.
const STATUS_BYTES_MAX: usize = PACKET_BYTES_MAX - 64;

/// What does not change while the host runs.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) socket: PathBuf,
    udp_port: u16,
    started: Instant,
}

/// Snapshots that a session waits for.
#[derive(Debug)]
pub(super) struct Gathering {
    id: u64,
    /// One per engine, in their order; `None` until it has answered.
    snapshots: Vec<Option<Snapshot>>,
}

/// The state of a host.
#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    process: u32,
    uptime_seconds: u64,
    socket: PathBuf,
    udp_port: u16,
    sessions: usize,
    apps: Vec<App>,
    engines: Vec<Engine>,
    /// Flows that are not shown because the answer would have been too large.
    flows_omitted: usize,
}

/// One attached app.
#[derive(Debug, Serialize)]
struct App {
    app: String,
    user: u32,
    process: i32,
    engine: u32,
    channel: u32,
    memory_bytes: u64,
    listeners: usize,
}

/// One engine: what the control plane knows, then what the engine says.
#[derive(Debug, Serialize)]
struct Engine {
    index: usize,
    addresses: Vec<String>,
    #[serde(flatten)]
    snapshot: Snapshot,
}

impl Facts {
    pub(super) fn new(config: &Config) -> Self {
        let socket = config.control.socket.clone();
        Self { socket, udp_port: config.udp_port, started: Instant::now() }
    }
}

impl ControlPlane {
    /// Asks all engines for their state; the answer follows when the last has told it.
    pub(super) fn gather_status(&mut self, token: u64) {
        self.request_next += 1;
        let id = self.request_next;
        for engine in self.engines.iter_mut().filter(|engine| !engine.ended) {
            engine.post(EngineRequest::Snapshot { id });
        }
        let snapshots = self.engines.iter().map(|_| None).collect();
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Status(Gathering { id, snapshots });
        }
        self.finish_status(token);
    }

    pub(super) fn take_snapshot(&mut self, engine: usize, id: u64, snapshot: Snapshot) {
        let asked =
            self.sessions.iter_mut().find_map(|(token, session)| match &mut session.waiting {
                Waiting::Status(gathering) if gathering.id == id => Some((*token, gathering)),
                _ => None,
            });
        if let Some((token, gathering)) = asked {
            gathering.snapshots[engine] = Some(snapshot);
            self.finish_status(token);
        }
    }

    /// Answers once nothing is missing.
    fn finish_status(&mut self, token: u64) {
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let Waiting::Status(gathering) = &mut session.waiting else { return };
        let missing = self.engines.iter().zip(&gathering.snapshots);
        if missing.into_iter().any(|(engine, snapshot)| !engine.ended && snapshot.is_none()) {
            return;
        }
        let snapshots = std::mem::take(&mut gathering.snapshots);
        let status = self.status(snapshots);
        self.reply(token, &Reply::Status(fitting(status)));
    }

    fn status(&self, snapshots: Vec<Option<Snapshot>>) -> Status {
        let engines = snapshots.into_iter().enumerate().filter_map(|(index, snapshot)| {
            let addresses = self.engines[index].networks.iter().map(ToString::to_string).collect();
            Some(Engine { index, addresses, snapshot: snapshot? })
        });
        Status {
            version: env!("CARGO_PKG_VERSION"),
            process: std::process::id(),
            uptime_seconds: self.facts.started.elapsed().as_secs(),
            socket: self.facts.socket.clone(),
            udp_port: self.facts.udp_port,
            sessions: self.sessions.len(),
            apps: self.apps(),
            engines: engines.collect(),
            flows_omitted: 0,
        }
    }

    fn apps(&self) -> Vec<App> {
        let apps = self.sessions.values().filter_map(|session| {
            let attached = session.attached.as_ref()?;
            let record = self.engines[attached.engine].channel(attached.channel)?;
            Some(App {
                app: attached.app.clone(),
                user: session.peer.user,
                process: session.peer.process,
                engine: attached.engine as u32,
                channel: attached.channel,
                memory_bytes: record.memory_bytes,
                listeners: attached.listeners.len(),
            })
        });
        let mut apps: Vec<App> = apps.collect();
        apps.sort_by_key(|app| (app.engine, app.channel));
        apps
    }
}

/// The status as JSON, without its last flows if a packet cannot hold them all. Everything else is
/// bounded by the limits of the policy; should it be too much nevertheless, listeners, channels and
/// apps go as well.
fn fitting(mut status: Status) -> serde_json::Value {
    loop {
        let value = serde_json::to_value(&status).unwrap_or_default();
        let bytes = value.to_string().len();
        if bytes <= STATUS_BYTES_MAX {
            return value;
        }
        let flows: usize = status.engines.iter().map(|engine| engine.snapshot.flows.len()).sum();
        if flows == 0 {
            for engine in &mut status.engines {
                halve(&mut engine.snapshot.listeners);
                halve(&mut engine.snapshot.channels);
            }
            halve(&mut status.apps);
            continue;
        }
        for engine in &mut status.engines {
            halve(&mut engine.snapshot.flows);
        }
        let left: usize = status.engines.iter().map(|engine| engine.snapshot.flows.len()).sum();
        status.flows_omitted += flows - left;
    }
}

fn halve<T>(list: &mut Vec<T>) {
    list.truncate(list.len() / 2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_engine::FlowSnapshot;

    /// Thousands of flows do not make a packet that cannot be sent.
    #[test]
    fn status_is_cut_to_what_fits() {
        let flow = FlowSnapshot {
            channel: 1,
            connection: u32::MAX,
            path: "wire",
            peer: ([10, 0, 0, 1], 4000).into(),
            state: "open",
            rtt_ns: u64::MAX,
            congestion_window_bytes: u64::MAX,
            in_flight_bytes: u64::MAX,
            messages_sent: u64::MAX,
            messages_received: u64::MAX,
            packets_lost: u64::MAX,
        };
        let snapshot = Snapshot { flows: vec![flow; 5000], ..Snapshot::default() };
        let status = Status {
            version: "0",
            process: 1,
            uptime_seconds: 0,
            socket: PathBuf::new(),
            udp_port: 0,
            sessions: 0,
            apps: Vec::new(),
            engines: vec![Engine { index: 0, addresses: Vec::new(), snapshot }],
            flows_omitted: 0,
        };
        let value = fitting(status);
        assert!(value.to_string().len() <= STATUS_BYTES_MAX);
        let shown = value["engines"][0]["flows"].as_array().map_or(0, Vec::len);
        assert!(shown > 50, "{shown}");
        assert_eq!(value["flows_omitted"], 5000 - shown);
    }
}
