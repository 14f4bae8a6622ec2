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
/// How long a channel is taken to be the same app's: its number is the next one's when it has gone.
const KNOWN_TIME: Duration = Duration::from_secs(2);

/// Asks the daemon for its state when something is not known.
pub(super) struct Observer {
    client: Client,
    asked: Instant,
    /// It has not answered, and is not waited for again: frames go on.
    is_silent: bool,
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
            is_silent: false,
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
        let is_known = self.apps.contains_key(&channel);
        let pause = if is_known { KNOWN_TIME } else { REFRESH_PAUSE };
        if !self.is_silent && self.asked.elapsed() >= pause {
            // Whoever has gone meanwhile keeps its number for a name.
            self.is_silent = self.refresh().is_err();
        }
        self.apps.get(&channel).cloned().unwrap_or_else(|| format!("channel {channel}"))
    }

    /// Frames of a capture that there was no room for; nothing if the daemon does not say.
    pub(super) fn frames_dropped(&self, vif: u32) -> Option<u64> {
        let status = self.client.status(PATIENCE).ok()?;
        let captures = list(&status, "engines").iter().flat_map(|engine| list(engine, "captures"));
        let capture = captures.into_iter().find(|capture| capture["vif"] == vif);
        capture.and_then(|capture| capture["frames_dropped"].as_u64())
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

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_channel::control::{self, Reply, StatusPart};
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with,
    };
    use std::thread::JoinHandle;

    /// A daemon that is asked twice, and on which another app has channel 3 the second time.
    fn daemon(path: &Path, apps: [&'static str; 2]) -> JoinHandle<()> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("bound");
        listen(&socket, 1).expect("listening");
        std::thread::spawn(move || {
            let command = accept(&socket).expect("a command");
            for app in apps {
                control::receive(&command).expect("a question");
                let apps = serde_json::json!([{ "channel": 3, "app": app }]);
                let text = serde_json::json!({ "clock_ns": 1, "apps": apps }).to_string();
                let part = Reply::Status(StatusPart { text, more: false });
                control::send(&command, &part, &[]).expect("told");
            }
        })
    }

    #[test]
    fn the_next_app_with_the_number_of_a_channel_gets_its_own_name() {
        let path = std::env::temp_dir().join(format!("clearway-observer-{}", std::process::id()));
        let daemon = daemon(&path, ["one", "two"]);
        let mut observer = Observer::new(Some(&path)).expect("a state");
        assert_eq!(observer.app(3), "one");
        observer.asked = observer.asked.checked_sub(KNOWN_TIME).expect("the machine has been up");
        assert_eq!(observer.app(3), "two");
        daemon.join().expect("no panic");
        observer.asked = observer.asked.checked_sub(KNOWN_TIME).expect("the machine has been up");
        assert_eq!((observer.app(3), observer.is_silent), ("two".to_owned(), true));
        std::fs::remove_file(&path).expect("its own");
    }
}
