//! The state of a host, as `clearway status --json` shows it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_channel::Code;
use clearway_channel::control::{Refusal, Reply, STATUS_PART_BYTES_MAX, StatusPart};
use clearway_control::ChannelPlace;
use clearway_engine::{Clock, Request as EngineRequest, Snapshot, VifSnapshot};
use serde::Serialize;

use super::ControlPlane;
use super::plugging::Stage;
use super::requests::refusal;
use super::session::{Session, Waiting};
use crate::config::Config;
use crate::confinement::Confinement;

/// The engines are asked for their state once in this time at most.
const ROUND_TIME: Duration = Duration::from_millis(100);
/// The longest state that is told, as JSON: some thousand flows. Each session can make the daemon
/// hold one of them.
const STATUS_BYTES_MAX: usize = 1 << 20;
/// No more flows fit in there, as each takes at least this many bytes.
const FLOWS_MAX: usize = STATUS_BYTES_MAX / 200;
/// Sessions of one user that wait for a state, or hold one that they have not read yet.
const STATUS_PER_USER_MAX: usize = 8;

/// What virtual interfaces take of it at most, and what each takes besides its filters.
const VIF_BYTES_MAX: usize = STATUS_BYTES_MAX / 2;
const VIF_BYTES_BESIDES: usize = 300;

/// What does not change while the host runs.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) socket: PathBuf,
    pub(super) udp_port: u16,
    started: Instant,
    /// That of the engines.
    pub(super) clock: Clock,
    pub(super) confinement: Confinement,
    /// What the configuration says since it was read again, and the daemon does not do.
    pub(super) needs_restart: Vec<String>,
}

/// When the engines are asked for their state: for all who want to know at once, and not too often,
/// however often they are asked. Who asks is told a state that is no older than the question.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    current: Option<Round>,
    /// No other begins before.
    next: Option<Instant>,
}

/// What somebody may see: an administrator everything, a user the own apps and what is theirs. What
/// is the host's, as NICs and counters are, all see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum View {
    Everything,
    Of(u32),
}

/// Snapshots that sessions wait for.
#[derive(Debug)]
struct Round {
    id: u64,
    /// One per engine, in their order; `None` until it has answered.
    snapshots: Vec<Option<Snapshot>>,
}

/// A state that is on its way to an app.
#[derive(Debug)]
pub(super) struct Telling {
    text: Arc<str>,
    /// Bytes of it that have been sent.
    sent: usize,
}

/// The state of a host.
#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    process: u32,
    uptime_seconds: u64,
    /// The time now by the clock that stamps frames.
    clock_ns: u64,
    socket: PathBuf,
    udp_port: u16,
    confinement: Confinement,
    needs_restart: Vec<String>,
    sessions: usize,
    /// Connections that wait until the groups of their user are known.
    waiting: usize,
    apps: Vec<App>,
    engines: Vec<Engine>,
    /// Flows that are not shown because the answer would have been too large.
    flows_omitted: usize,
    /// The same of virtual interfaces.
    vifs_omitted: usize,
    /// The same of shared regions.
    regions_omitted: usize,
    /// The same of apps.
    apps_omitted: usize,
    /// The same of listeners.
    listeners_omitted: usize,
}

/// One attached app.
#[derive(Debug, Serialize)]
struct App {
    app: String,
    user: u32,
    process: i32,
    engine: u32,
    channel: u32,
    /// It shares its engine with no other app.
    exclusive: bool,
    memory_bytes: u64,
    listeners: usize,
}

/// One engine: what the control plane knows, then what the engine says.
#[derive(Debug, Serialize)]
struct Engine {
    index: usize,
    /// The NIC that it serves.
    nic: String,
    /// Its NIC is not open.
    interface_gone: bool,
    /// Why, if so; otherwise what is not as it could be, if there is something.
    nic_trouble: String,
    addresses: Vec<String>,
    #[serde(flatten)]
    snapshot: Snapshot,
}

impl Telling {
    /// The next part to send.
    fn part(&self) -> StatusPart {
        let mut end = self.text.len().min(self.sent + STATUS_PART_BYTES_MAX);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let text = self.text[self.sent..end].to_owned();
        StatusPart { text, more: end < self.text.len() }
    }
}

impl Facts {
    pub(super) fn new(config: &Config, clock: Clock) -> Self {
        let socket = config.control.socket.clone();
        let confinement = Confinement::off("the host is part of another program");
        Self {
            socket,
            udp_port: config.udp_port,
            started: Instant::now(),
            clock,
            confinement,
            needs_restart: Vec::new(),
        }
    }
}

impl ControlPlane {
    /// The next round is for this session, too.
    pub(super) fn gather_status(&mut self, token: u64) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get(&token) else { return Ok(()) };
        let user = session.peer.user;
        let asks = |other: &&Session| other.peer.user == user && other.is_told_status();
        if !self.plane.is_administrator(&session.peer)
            && self.sessions.values().filter(asks).count() >= STATUS_PER_USER_MAX
        {
            let text =
                "other sessions of this user are being told the state already; read it there";
            return Err(refusal(Code::Limit, text));
        }
        if let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Status(None);
        }
        self.advance_status();
        Ok(())
    }

    /// When [`ControlPlane::advance_status`] has something to do.
    pub(super) fn status_due(&self) -> Option<Instant> {
        let waits = |session: &Session| matches!(session.waiting, Waiting::Status(None));
        self.rounds
            .next
            .filter(|_| self.rounds.current.is_none() && self.sessions.values().any(waits))
    }

    /// Asks all engines for their state, if it is time; the answer follows when the last has told
    /// it.
    pub(super) fn advance_status(&mut self) {
        let now = Instant::now();
        if self.rounds.current.is_some() || self.rounds.next.is_some_and(|next| now < next) {
            return;
        }
        let id = self.request_next + 1;
        let mut is_wanted = false;
        for session in self.sessions.values_mut() {
            if let Waiting::Status(round @ None) = &mut session.waiting {
                *round = Some(id);
                is_wanted = true;
            }
        }
        if !is_wanted {
            return;
        }
        self.request_next = id;
        let engines = self.plane.engines().iter().zip(&mut self.mailboxes);
        for (_, mailbox) in engines.filter(|(engine, _)| !engine.has_ended) {
            mailbox.post(EngineRequest::Snapshot { id });
        }
        let snapshots = self.mailboxes.iter().map(|_| None).collect();
        self.rounds =
            Rounds { current: Some(Round { id, snapshots }), next: Some(now + ROUND_TIME) };
        self.finish_status();
    }

    pub(super) fn take_snapshot(&mut self, engine: usize, id: u64, snapshot: Snapshot) {
        if let Some(round) = self.rounds.current.as_mut().filter(|round| round.id == id) {
            round.snapshots[engine] = Some(snapshot);
            self.finish_status();
        }
    }

    /// Answers once nothing is missing.
    pub(super) fn finish_status(&mut self) {
        let is_whole = |round: &mut Round| {
            let mut engines = self.plane.engines().iter().zip(&round.snapshots);
            engines.all(|(engine, snapshot)| engine.has_ended || snapshot.is_some())
        };
        let Some(round) = self.rounds.current.take_if(is_whole) else { return };
        let of_round = Some(round.id);
        let waits = |waiting: &Waiting| matches!(waiting, Waiting::Status(id) if *id == of_round);
        let waiting = self.sessions.iter().filter(|(_, session)| waits(&session.waiting));
        let mut views: HashMap<View, Vec<u64>> = HashMap::new();
        for (token, session) in waiting {
            views.entry(self.view_of(session)).or_default().push(*token);
        }
        for (view, tokens) in views {
            let text: Arc<str> = fitting(self.status(&round.snapshots, view)).into();
            for token in tokens {
                self.tell_status(token, Arc::clone(&text));
            }
        }
    }

    fn view_of(&self, session: &Session) -> View {
        if self.plane.is_administrator(&session.peer) {
            View::Everything
        } else {
            View::Of(session.peer.user)
        }
    }

    /// True if who has this view may see this channel, and what is its.
    fn shows(&self, view: View, engine: usize, channel: u32) -> bool {
        let record = self.plane.channel(ChannelPlace { engine, channel });
        let is_of = |user| record.is_some_and(|channel| channel.user == user);
        match view {
            View::Everything => true,
            View::Of(user) => is_of(user),
        }
    }

    /// What an engine has said, as far as it may be seen.
    fn shown(&self, view: View, engine: usize, snapshot: &Snapshot) -> Snapshot {
        let mut snapshot = snapshot.clone();
        if view == View::Everything {
            return snapshot;
        }
        let shows = |channel| self.shows(view, engine, channel);
        snapshot.channels.retain(|channel| shows(channel.channel));
        snapshot.listeners.retain(|listener| shows(listener.channel));
        snapshot.vifs.retain(|vif| shows(vif.channel));
        snapshot.regions.retain(|region| shows(region.channel));
        snapshot.captures.retain(|capture| shows(capture.channel));
        snapshot.flows.retain(|flow| shows(flow.channel));
        snapshot
    }

    fn tell_status(&mut self, token: u64, text: Arc<str>) {
        let telling = Telling { text, sent: 0 };
        let part = telling.part();
        let (sent, more) = (part.text.len(), part.more);
        self.reply(token, &Reply::Status(part));
        if more && let Some(session) = self.sessions.get_mut(&token) {
            session.waiting = Waiting::Telling(Telling { sent, ..telling });
            self.tell_more(token);
        }
    }

    /// Sends as many parts of a state as there is room for.
    pub(super) fn tell_more(&mut self, token: u64) {
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let Waiting::Telling(mut telling) = std::mem::take(&mut session.waiting) else { return };
        loop {
            let part = telling.part();
            let (sent, more) = (part.text.len(), part.more);
            match session.try_reply(&Reply::Status(part), &[]) {
                Ok(true) if more => telling.sent += sent,
                Ok(true) => break,
                Ok(false) => {
                    session.waiting = Waiting::Telling(telling);
                    break;
                }
                Err(error) => {
                    self.end_session(token, &format!("cannot reply: {error}"));
                    return;
                }
            }
        }
        self.watch_again(token);
    }

    fn status(&self, snapshots: &[Option<Snapshot>], view: View) -> Status {
        let engines = snapshots.iter().enumerate().filter_map(|(index, snapshot)| {
            let number = self.plane.engines()[index].nic;
            let nic = &self.plane.nics()[number];
            if nic.is_removed && self.plane.engines()[index].channel_count() == 0 {
                return None;
            }
            let addresses = nic.networks().map(|network| network.to_string()).collect();
            let snapshot = self.shown(view, index, snapshot.as_ref()?);
            let slot = &self.nics[number];
            Some(Engine {
                index,
                nic: nic.name.clone(),
                interface_gone: slot.stage != Stage::Open,
                nic_trouble: slot.trouble.clone(),
                addresses,
                snapshot,
            })
        });
        let is_shown = |session: &&Session| match view {
            View::Everything => true,
            View::Of(user) => session.peer.user == user,
        };
        Status {
            version: env!("CARGO_PKG_VERSION"),
            process: std::process::id(),
            uptime_seconds: self.facts.started.elapsed().as_secs(),
            clock_ns: self.facts.clock.now().as_ns(),
            socket: self.facts.socket.clone(),
            udp_port: self.facts.udp_port,
            confinement: self.facts.confinement.clone(),
            needs_restart: self.facts.needs_restart.clone(),
            sessions: self.sessions.values().filter(is_shown).count(),
            waiting: if view == View::Everything { self.admissions.waiting() } else { 0 },
            apps: self.apps(view),
            engines: engines.collect(),
            flows_omitted: 0,
            vifs_omitted: 0,
            regions_omitted: 0,
            apps_omitted: 0,
            listeners_omitted: 0,
        }
    }

    fn apps(&self, view: View) -> Vec<App> {
        let apps = self.plane.sessions().filter_map(|(_, session)| {
            let attached = session.attached()?;
            let ChannelPlace { engine, channel } = attached.place;
            let record = self.plane.channel(attached.place)?;
            self.shows(view, engine, channel).then(|| App {
                app: attached.app.clone(),
                user: session.peer().user,
                process: session.peer().process,
                engine: engine as u32,
                channel,
                exclusive: record.is_exclusive,
                memory_bytes: record.memory_bytes,
                listeners: attached.listeners.len(),
            })
        });
        let mut apps: Vec<App> = apps.collect();
        apps.sort_by_key(|app| (app.engine, app.channel));
        apps
    }
}

/// The status as JSON, without its last flows if it would be too long with them. Everything else is
/// bounded by the limits of the policy; should it be too much nevertheless, as on a machine with
/// many processors, virtual interfaces, listeners, channels and apps go as well.
fn fitting(mut status: Status) -> String {
    let omitted: usize = status.engines.iter().map(|engine| engine.snapshot.flows_omitted).sum();
    let flows_before = omitted + flows(&status);
    let engines = status.engines.len().max(1);
    for engine in &mut status.engines {
        engine.snapshot.flows.truncate(FLOWS_MAX / engines);
    }
    let omitted: usize = status.engines.iter().map(|engine| engine.snapshot.regions_omitted).sum();
    let regions_before = omitted + regions(&status);
    let vifs_before = vifs(&status);
    let (apps_before, listeners_before) = (status.apps.len(), listeners(&status));
    omit_vifs(&mut status);
    loop {
        status.vifs_omitted = vifs_before - vifs(&status);
        status.flows_omitted = flows_before - flows(&status);
        status.regions_omitted = regions_before - regions(&status);
        status.apps_omitted = apps_before - status.apps.len();
        status.listeners_omitted = listeners_before - listeners(&status);
        let text = serde_json::to_string(&status).unwrap_or_default();
        if text.len() <= STATUS_BYTES_MAX {
            return text;
        }
        if flows(&status) == 0 {
            for engine in &mut status.engines {
                halve(&mut engine.snapshot.vifs);
                halve(&mut engine.snapshot.regions);
                halve(&mut engine.snapshot.captures);
                halve(&mut engine.snapshot.listeners);
                halve(&mut engine.snapshot.channels);
            }
            halve(&mut status.apps);
        }
        for engine in &mut status.engines {
            halve(&mut engine.snapshot.flows);
        }
    }
}

/// Leaves as many virtual interfaces as fit, so that no more text is made than can be told.
fn omit_vifs(status: &mut Status) {
    let mut left = VIF_BYTES_MAX;
    for vifs in status.engines.iter_mut().map(|engine| &mut engine.snapshot.vifs) {
        let fits = |vif: &VifSnapshot| {
            let bytes = vif.texts.bytes() + VIF_BYTES_BESIDES;
            left = left.saturating_sub(bytes);
            left > 0
        };
        vifs.truncate(vifs.iter().map(fits).take_while(|fits| *fits).count());
    }
}

fn vifs(status: &Status) -> usize {
    status.engines.iter().map(|engine| engine.snapshot.vifs.len()).sum()
}

fn regions(status: &Status) -> usize {
    status.engines.iter().map(|engine| engine.snapshot.regions.len()).sum()
}

fn listeners(status: &Status) -> usize {
    status.engines.iter().map(|engine| engine.snapshot.listeners.len()).sum()
}

fn flows(status: &Status) -> usize {
    status.engines.iter().map(|engine| engine.snapshot.flows.len()).sum()
}

fn halve<T>(list: &mut Vec<T>) {
    list.truncate(list.len() / 2);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_engine::{ChannelSnapshot, FlowSnapshot, ListenerSnapshot};

    /// Tens of thousands of flows do not make a status of any length.
    #[test]
    fn status_is_cut_to_what_fits() {
        let flow = FlowSnapshot {
            channel: 1,
            connection: u64::MAX,
            parent: Some(u64::MAX),
            path: "wire",
            peer: ([10, 0, 0, 1], 4000).into(),
            state: "open",
            rtt_ns: u64::MAX,
            congestion_window_bytes: u64::MAX,
            packet_bytes: u16::MAX,
            ecn: "all marked on the path",
            in_flight_bytes: u64::MAX,
            messages_sent: u64::MAX,
            messages_received: u64::MAX,
            messages_outstanding: u64::MAX,
            held_by_peer: true,
            packets_lost: u64::MAX,
            detour: true,
            setup_packets: u32::MAX,
            setup_retries: u32::MAX,
            tcp: None,
        };
        let snapshot = Snapshot { flows: vec![flow; 50_000], ..Snapshot::default() };
        let value = told(snapshot, Vec::new());
        let shown = value["engines"][0]["flows"].as_array().map_or(0, Vec::len);
        assert!(shown > 1000, "{shown}");
        assert_eq!(value["flows_omitted"], 50_000 - shown);
        assert_eq!([&value["apps_omitted"], &value["listeners_omitted"]], [0, 0]);
    }

    /// Nor do as many apps as a large machine lets in, and those that are not shown are counted.
    #[test]
    fn apps_that_do_not_fit_are_counted() {
        let app = |channel| App {
            app: "n".repeat(64),
            user: u32::MAX,
            process: i32::MAX,
            engine: 0,
            channel,
            exclusive: false,
            memory_bytes: u64::MAX,
            listeners: 1,
        };
        let channel = ChannelSnapshot { app: "n".repeat(64), ..ChannelSnapshot::default() };
        let snapshot = Snapshot {
            channels: vec![channel; 8192],
            listeners: vec![ListenerSnapshot { channel: 1, port: 1 }; 8192],
            ..Snapshot::default()
        };
        let value = told(snapshot, (0..8192).map(app).collect());
        let engine = &value["engines"][0];
        for (list, key) in [(&value["apps"], "apps"), (&engine["listeners"], "listeners")] {
            let shown = list.as_array().map_or(0, Vec::len);
            assert!((100..8192).contains(&shown), "{shown} {key}");
            assert_eq!(value[format!("{key}_omitted")], 8192 - shown);
        }
    }

    /// What is told of a host with one engine.
    fn told(snapshot: Snapshot, apps: Vec<App>) -> serde_json::Value {
        let text = fitting(Status {
            version: "0",
            process: 1,
            uptime_seconds: 0,
            clock_ns: 0,
            socket: PathBuf::new(),
            udp_port: 0,
            confinement: Confinement::off("a test"),
            needs_restart: Vec::new(),
            sessions: 0,
            waiting: 0,
            apps,
            engines: vec![Engine {
                index: 0,
                nic: String::new(),
                interface_gone: false,
                nic_trouble: String::new(),
                addresses: Vec::new(),
                snapshot,
            }],
            flows_omitted: 0,
            vifs_omitted: 0,
            regions_omitted: 0,
            apps_omitted: 0,
            listeners_omitted: 0,
        });
        assert!(text.len() <= STATUS_BYTES_MAX);
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn parts_make_up_the_whole_and_cut_no_character() {
        let text = "äé\"\\€".repeat(20_000);
        let mut telling = Telling { text: text.clone().into(), sent: 0 };
        let mut whole = String::new();
        loop {
            let part = telling.part();
            telling.sent += part.text.len();
            assert!(part.text.len() <= STATUS_PART_BYTES_MAX);
            whole += &part.text;
            if !part.more {
                break;
            }
        }
        assert_eq!(whole, text);
    }
}
