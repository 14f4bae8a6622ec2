//! How the packets of a connection travel at one end: what the daemon there says, and nothing that
//! is guessed.

use crate::error::Error;
use crate::process::{helper_output, own_program};
use clearway_client::ConnectionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One end of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    /// The version of the daemon.
    pub(super) version: String,
    /// The engine that serves the app.
    pub(super) engine: String,
    /// As in `clearway status`: `wire`, `other NIC`, `lane` or `local`.
    pub(super) path: String,
    /// The driver of the engine's queues, and what it uses of the machine; none if packets do not
    /// pass them.
    pub(super) driver: Option<String>,
    pub(super) mode: Option<String>,
    /// Packets take a detour over another engine of one of the two hosts.
    pub(super) detour: bool,
    /// The largest UDP payload now; 0 if there are no packets.
    pub(super) packet_bytes: u64,
}

impl Path {
    /// That of a connection of the app of this name, which has to be the only one of it.
    pub(super) fn of(
        socket: Option<&std::path::Path>,
        app: &str,
        connection: ConnectionId,
    ) -> Result<Self, Error> {
        let socket = socket.map(|socket| socket.to_string_lossy().into_owned());
        let mut arguments = vec!["status", "--json"];
        if let Some(socket) = &socket {
            arguments.extend(["--socket", socket]);
        }
        let status = helper_output(&own_program(), &arguments)?;
        serde_json::from_slice(&status)
            .ok()
            .and_then(|status| Self::find(&status, app, connection.as_u64()))
            .ok_or_else(|| Error::Path { app: app.to_owned(), connection: connection.to_string() })
    }

    /// In the status of a daemon.
    pub(super) fn find(status: &Value, app: &str, connection: u64) -> Option<Self> {
        let apps = status["apps"].as_array()?;
        let app = apps.iter().find(|other| other["app"] == app)?;
        let engines = status["engines"].as_array()?;
        let engine = engines.iter().find(|engine| engine["index"] == app["engine"])?;
        let is_wanted =
            |flow: &&Value| flow["channel"] == app["channel"] && flow["connection"] == connection;
        let flow = engine["flows"].as_array()?.iter().find(is_wanted)?;
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let path = text(&flow["path"])?;
        // Packets that travel otherwise are those of another engine's queues, or there are none.
        let queue = if path == "wire" { &engine["queues"][0] } else { &Value::Null };
        Some(Self {
            version: text(&status["version"])?,
            engine: text(&engine["engine"])?,
            driver: text(&queue["driver"]),
            mode: text(&queue["mode"]),
            detour: flow["detour"].as_bool()?,
            packet_bytes: flow["packet_bytes"].as_u64()?,
            path,
        })
    }

    /// The same but for the size of packets, which is found out while they flow.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let packet_bytes = other.packet_bytes;
        Self { packet_bytes, ..self.clone() } == *other
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let how = match (self.path.as_str(), &self.driver) {
            ("wire", Some(driver)) => {
                let mode = self.mode.as_deref().unwrap_or_default();
                format!("driver {driver} ({mode}), packets of up to {} bytes", self.packet_bytes)
            }
            ("other NIC", _) => {
                "by a lane to another NIC of this host, and by that one's driver".into()
            }
            ("lane", _) => "no NIC: by a lane to another engine of this host".into(),
            _ => "no NIC: both apps are of one engine".into(),
        };
        let detour = if self.detour { "; by a detour over another engine" } else { "" };
        format!("engine {}, {how}{detour}; clearway {}", self.engine, self.version)
    }
}
