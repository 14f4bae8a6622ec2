//! What has to be known to say something of frames: when they were seen by the clock on the wall,
//! and what apps are called.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::client::{Client, PATIENCE};
use crate::output::Failure;
use crate::owned::{list, show};

/// Apps that come and go are not asked for more often.
const REFRESH_PAUSE: Duration = Duration::from_millis(500);

/// Asks the daemon for its state when something is not known.
pub(super) struct Observer {
    client: Client,
    asked: Instant,
    /// What has to be added to the host's clock to get the time since 1970.
    offset_ns: u64,
    pub(super) udp_port: u16,
    /// The name of the NIC whose frames are looked at.
    pub(super) nic: String,
    apps: HashMap<u32, String>,
}

impl Observer {
    pub(super) fn new(socket: Option<&Path>) -> Result<Self, Failure> {
        let client = Client::connect(socket)?;
        let mut observer = Self {
            client,
            asked: Instant::now(),
            offset_ns: 0,
            udp_port: 0,
            nic: String::new(),
            apps: HashMap::new(),
        };
        observer.refresh()?;
        Ok(observer)
    }

    /// A time of the host's clock, since 1970.
    pub(super) fn time_since_1970_ns(&self, time_ns: u64) -> u64 {
        time_ns.wrapping_add(self.offset_ns)
    }

    /// What the app of a channel is called.
    pub(super) fn app(&mut self, channel: u32) -> String {
        if !self.apps.contains_key(&channel) && self.asked.elapsed() >= REFRESH_PAUSE {
            // Whoever has gone meanwhile keeps its number for a name.
            let _ = self.refresh();
        }
        self.apps.get(&channel).cloned().unwrap_or_else(|| format!("channel {channel}"))
    }

    /// Frames of a capture that there was no room for.
    pub(super) fn frames_dropped(&self, vif: u32) -> Result<u64, Failure> {
        let status = self.client.status(PATIENCE)?;
        let captures = list(&status, "engines").iter().flat_map(|engine| list(engine, "captures"));
        let capture = captures.into_iter().find(|capture| capture["vif"] == vif);
        Ok(capture.and_then(|capture| capture["frames_dropped"].as_u64()).unwrap_or(0))
    }

    fn refresh(&mut self) -> Result<(), Failure> {
        let before_ns = wall_clock_ns();
        let status = self.client.status(PATIENCE)?;
        // As far as one can know, the daemon looked at its clock half way.
        let then_ns = before_ns / 2 + wall_clock_ns() / 2;
        let is_first = self.apps.is_empty() && self.offset_ns == 0;
        if is_first {
            self.offset_ns = then_ns.wrapping_sub(status["clock_ns"].as_u64().unwrap_or(0));
        }
        self.asked = Instant::now();
        self.take(&status);
        Ok(())
    }

    fn take(&mut self, status: &Value) {
        self.udp_port = status["udp_port"].as_u64().unwrap_or(0) as u16;
        self.apps.extend(list(status, "apps").iter().filter_map(|app| {
            Some((u32::try_from(app["channel"].as_u64()?).ok()?, show(&app["app"])))
        }));
    }
}

pub(super) fn wall_clock_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
