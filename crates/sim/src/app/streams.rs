//! What an app does with TCP: streams both ways at once or one after the other, and then both ends
//! close, or one gives up. Lazy readers keep what they have for a while.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use clearway_base::{MICROSECOND, MILLISECOND, Random, Time};
use clearway_channel::{AppEnd, Command, Completion, Extent, Granted, ReceivedBytes, tcp_option};
use clearway_control::filter::Template;

use super::{Character, LOOK_AGAIN_NS, Role, Scene};
use crate::Finding;
use crate::ledger::{End, Trouble};
use crate::streams::{NUMBER_BYTES, Plan, StreamBooks, fill};

/// Sends of one connection in one go.
const SENDS_MAX: u32 = 4;
/// So soon an idle connection is probed, in seconds. A peer that has died is not missed otherwise.
const KEEP_ALIVE_S: u32 = 2;
/// Connections that may wait.
const BACKLOG: u32 = 16;

/// One end of a connection.
struct Stream {
    /// A server knows it from the first bytes.
    number: Option<u64>,
    /// 0 for the client, 1 for the server.
    side: usize,
    head: Vec<u8>,
    sent: u64,
    received: u64,
    extents: VecDeque<Extent>,
    finished: u32,
    has_shut: bool,
    has_heard_all: bool,
    is_closing: bool,
    pause_until: Time,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("number", &self.number)
            .field("side", &self.side)
            .field("sent", &self.sent)
            .field("outstanding", &self.extents.len())
            .field("received", &self.received)
            .field("has_shut", &self.has_shut)
            .field("has_heard_all", &self.has_heard_all)
            .field("is_closing", &self.is_closing)
            .finish_non_exhaustive()
    }
}

impl Stream {
    const fn new(number: Option<u64>, side: usize) -> Self {
        Self {
            number,
            side,
            head: Vec::new(),
            sent: 0,
            received: 0,
            extents: VecDeque::new(),
            finished: 0,
            has_shut: false,
            has_heard_all: false,
            is_closing: false,
            pause_until: Time::ZERO,
        }
    }

    fn plan(&self) -> Option<Plan> {
        self.number.map(Plan::of)
    }

    /// Bytes that are to be sent now.
    fn wanted(&self) -> u64 {
        let Some(plan) = self.plan() else { return 0 };
        let waits = self.side == 1 && plan.is_answer && self.received < plan.bytes[0];
        if waits { 0 } else { plan.bytes[self.side] - self.sent }
    }

    fn has_said_all(&self) -> bool {
        self.plan().is_some_and(|plan| self.sent == plan.bytes[self.side])
    }

    fn gives_up(&self) -> bool {
        let aborts_at = self.plan().and_then(|plan| plan.aborts_at);
        self.side == 0 && aborts_at.is_some_and(|at| self.sent >= at)
    }

    /// Something is to be done, perhaps after a pause.
    fn is_at_work(&self) -> bool {
        let closes = (self.has_heard_all || self.has_said_all()) && !self.has_shut;
        !self.is_closing && (self.wanted() > 0 || closes || self.gives_up() || self.may_close())
    }

    const fn may_close(&self) -> bool {
        self.has_heard_all && self.has_shut
    }
}

/// Received bytes that are kept for a while.
#[derive(Debug)]
struct Held {
    until: Time,
    bytes: Granted,
}

/// All of an app.
#[derive(Debug)]
pub(crate) struct Streams {
    app: u32,
    /// The number of its port, once it has it.
    port: Option<u32>,
    is_listening: bool,
    streams: BTreeMap<u64, Stream>,
    /// Its attempts to connect: by token, the connection's number and the peer.
    attempts: BTreeMap<u64, (u64, SocketAddr)>,
    /// Peers of its connections: one port reaches each only once.
    peers: BTreeMap<u64, SocketAddr>,
    tokens: u64,
    next_attempt: Time,
    held: VecDeque<Held>,
    random: Random,
}

impl Streams {
    pub(super) fn new(app: u32, seed: u64) -> Self {
        Self {
            app,
            port: None,
            is_listening: false,
            streams: BTreeMap::new(),
            attempts: BTreeMap::new(),
            peers: BTreeMap::new(),
            tokens: 0,
            next_attempt: Time::ZERO,
            held: VecDeque::new(),
            random: Random::new(!seed),
        }
    }

    /// What apps may receive, as the policy of a host has it.
    pub(crate) fn receives() -> Vec<Template> {
        templates("vlan optional and dst host own and tcp dst portrange 1024-65535")
    }

    /// What they may send.
    pub(crate) fn sends() -> Vec<Template> {
        templates("vlan optional and src host own and tcp src portrange 1024-65535")
    }

    /// The app has its port.
    pub(crate) const fn opened(&mut self, port: u32) {
        self.port = Some(port);
    }

    pub(crate) const fn has_port(&self) -> bool {
        self.port.is_some()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.attempts.is_empty() && self.held.is_empty()
    }

    /// The app is gone.
    pub(super) fn abandon(&self, books: &mut StreamBooks) {
        for stream in self.streams.values() {
            stream.number.iter().for_each(|number| books.abandon(*number, stream.side, true));
        }
        for (number, _) in self.attempts.values() {
            books.abandon(*number, 0, true);
        }
    }

    // ---- what it is told ----

    pub(super) fn receive(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
        received: ReceivedBytes,
    ) -> Result<(), Finding> {
        let ReceivedBytes { connection, sent, bytes } = received;
        self.finish(end, connection, sent)?;
        let at = End { host: character.host, app: self.app };
        let content = end.receive_bytes(&bytes);
        let Some(stream) = self.streams.get_mut(&connection) else {
            return Err(Finding::new(format!("app {}: bytes of no connection", self.app)));
        };
        if stream.number.is_none() {
            let missing = NUMBER_BYTES - stream.head.len();
            stream.head.extend(content.iter().take(missing));
            let head: Result<[u8; NUMBER_BYTES], _> = stream.head.as_slice().try_into();
            stream.number = head.ok().map(u64::from_be_bytes);
        }
        let position = stream.received;
        stream.received += content.len() as u64;
        scene.trace.add(&[30, self.app.into(), connection, content.len() as u64]);
        if let Some(number) = stream.number {
            scene.streams.receive(number, stream.side, at, position, content)?;
        }
        let until = scene.now + self.random.below(character.hold_ns_max + 1);
        self.held.push_back(Held { until, bytes });
        Ok(())
    }

    pub(super) fn take(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        told: Completion,
    ) -> Result<(), Finding> {
        match told {
            Completion::TcpAccepted { connection, .. } => {
                scene.trace.add(&[31, self.app.into(), connection]);
                self.begin(end, connection, Stream::new(None, 1));
            }
            Completion::TcpConnected { token, connection, .. } => {
                scene.trace.add(&[32, self.app.into(), token, connection]);
                scene.streams.opened();
                if let Some((number, peer)) = self.attempts.remove(&token) {
                    self.peers.insert(connection, peer);
                    self.begin(end, connection, Stream::new(Some(number), 0));
                }
            }
            Completion::TcpConnectFailed { token, code } => {
                scene.trace.add(&[33, self.app.into(), token, code.as_i32() as u64]);
                if let Some((number, _)) = self.attempts.remove(&token) {
                    scene.streams.failed(scene.now, number, code, scene.ledger)?;
                }
            }
            Completion::TcpSent { connection, sent } => self.finish(end, connection, sent)?,
            Completion::TcpFinished { connection } => {
                if let Some(stream) = self.streams.get_mut(&connection) {
                    stream.has_heard_all = true;
                    let (number, side) = (stream.number, stream.side);
                    number.map_or(Ok(()), |number| scene.streams.finished(number, side))?;
                }
            }
            Completion::TcpClosed { connection, code, sent } => {
                scene.trace.add(&[34, self.app.into(), connection, code.as_i32() as u64]);
                self.finish(end, connection, sent)?;
                self.peers.remove(&connection);
                let Some(stream) = self.streams.remove(&connection) else { return Ok(()) };
                let has_closed = stream.is_closing || stream.may_close();
                stream.extents.into_iter().for_each(|extent| end.free(extent));
                if let Some(number) = stream.number {
                    let outcome = (code, has_closed);
                    scene.streams.ended(scene.now, number, stream.side, outcome, scene.ledger)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, end: &mut AppEnd, connection: u64, stream: Stream) {
        let (option, value) = (tcp_option::KEEP_ALIVE, KEEP_ALIVE_S);
        let _ = end.submit(&Command::TcpSet { connection, option, value });
        self.streams.insert(connection, stream);
    }

    fn finish(&mut self, end: &mut AppEnd, connection: u64, sent: u32) -> Result<(), Finding> {
        let Some(stream) = self.streams.get_mut(&connection) else { return Ok(()) };
        while stream.finished != sent {
            let Some(extent) = stream.extents.pop_front() else {
                let text = format!("app {}: more sends finished than were made", self.app);
                return Err(Finding::new(text));
            };
            stream.finished = stream.finished.wrapping_add(1);
            end.free(extent);
        }
        Ok(())
    }

    // ---- what it does ----

    pub(super) fn run(&mut self, end: &mut AppEnd, scene: &mut Scene<'_>, character: &Character) {
        while self.held.front().is_some_and(|held| held.until <= scene.now || scene.is_ending) {
            let Some(held) = self.held.pop_front() else { break };
            end.release(held.bytes);
        }
        let Some(port) = self.port else { return };
        if matches!(character.role, Role::StreamServer { .. }) && !self.is_listening {
            let listen = Command::TcpListen { port, backlog: BACKLOG };
            self.is_listening = end.has_room() && end.submit(&listen).is_ok();
            scene.ledger.note(Trouble::Deaf, character.host, scene.now);
        }
        let connections: Vec<u64> = self.streams.keys().copied().collect();
        connections
            .into_iter()
            .for_each(|connection| self.go_on(end, scene, character, connection));
        if self.wants_connections(character) && !scene.is_ending && scene.now >= self.next_attempt {
            self.connect(end, scene, character, port);
            let pause_ns = self.random.below(20 * character.pause_ns) + MILLISECOND;
            self.next_attempt = scene.now + pause_ns;
        }
    }

    fn go_on(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
        connection: u64,
    ) {
        let Some(stream) = self.streams.get_mut(&connection) else { return };
        if stream.is_closing || scene.now < stream.pause_until {
            return;
        }
        for _ in 0..SENDS_MAX {
            if stream.gives_up() || !send(end, scene, connection, stream) {
                break;
            }
            if self.random.chance(1, 4) {
                let pause_ns = self.random.below(2 * character.pause_ns) + MICROSECOND;
                stream.pause_until = scene.now + pause_ns;
                break;
            }
        }
        if !end.has_room() {
            return;
        }
        let abort = stream.gives_up();
        if abort || stream.may_close() {
            let close = Command::TcpClose { connection, abort };
            stream.is_closing = end.submit(&close).is_ok();
            if abort && let Some(number) = stream.number {
                scene.streams.abandon(number, stream.side, false);
            }
        } else if !stream.has_shut && (stream.has_said_all() || stream.has_heard_early()) {
            stream.has_shut = end.submit(&Command::TcpShutdown { connection }).is_ok();
        }
    }

    fn wants_connections(&self, character: &Character) -> bool {
        match character.role {
            Role::StreamClient { connections } => {
                self.streams.len() + self.attempts.len() < connections
            }
            _ => false,
        }
    }

    fn connect(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
        port: u32,
    ) {
        if scene.places.is_empty() || !end.has_room() {
            return;
        }
        let place = &scene.places[self.random.below(scene.places.len() as u64) as usize];
        let is_known = |address: &SocketAddr| {
            let attempts = self.attempts.values().map(|(_, peer)| peer);
            attempts.chain(self.peers.values()).any(|peer| peer == address)
        };
        let addresses: Vec<SocketAddr> = (place.addresses.iter().copied())
            .filter(|address| character.versions.speaks(address.ip()) && !is_known(address))
            .collect();
        if addresses.is_empty() {
            return;
        }
        let peer = addresses[self.random.below(addresses.len() as u64) as usize];
        let client = End { host: character.host, app: self.app };
        let number = scene.streams.attempt(client, place.host);
        self.tokens += 1;
        let token = self.tokens;
        if end.submit(&Command::TcpConnect { token, port, peer }).is_ok() {
            scene.trace.add(&[35, self.app.into(), number]);
            self.attempts.insert(token, (number, peer));
        }
    }

    /// When it wants to run by itself.
    pub(super) fn next_at(&self, scene: &Scene<'_>, character: &Character) -> Option<Time> {
        let at_work = self.streams.values().filter(|stream| stream.is_at_work());
        let streams = at_work.map(|stream| stream.pause_until.max(scene.now + LOOK_AGAIN_NS));
        let held = self.held.front().map(|held| held.until);
        let wants = self.port.is_some() && self.wants_connections(character) && !scene.is_ending;
        let listens = self.port.is_some()
            && matches!(character.role, Role::StreamServer { .. })
            && !self.is_listening;
        let attempt = wants.then_some(self.next_attempt);
        streams.chain(held).chain(attempt).chain(listens.then_some(scene.now)).min()
    }
}

impl Stream {
    /// The peer will say no more, though it has not said all: it has left.
    fn has_heard_early(&self) -> bool {
        let all = self.plan().map_or(NUMBER_BYTES as u64, |plan| plan.bytes[1 - self.side]);
        self.has_heard_all && self.received < all
    }
}

fn templates(text: &str) -> Vec<Template> {
    vec![Template::parse(text).expect("a filter")]
}

/// Sends the next bytes, if ring and pool have room. False if there are none, or is none.
fn send(end: &mut AppEnd, scene: &mut Scene<'_>, connection: u64, stream: &mut Stream) -> bool {
    let (Some(number), Some(plan)) = (stream.number, stream.plan()) else { return false };
    let length = stream.wanted().min(plan.chunk_bytes.into()) as u32;
    if length == 0 || stream.has_shut || !end.has_room() {
        return false;
    }
    let Some(extent) = end.allocate(length) else { return false };
    fill(number, stream.side, stream.sent, end.transmit_bytes(&extent));
    let (offset, length) = (extent.offset(), extent.length());
    let has_more = stream.wanted() > u64::from(length);
    if end.submit(&Command::TcpSend { connection, offset, length, has_more }).is_err() {
        end.free(extent);
        return false;
    }
    scene.streams.send(number, stream.side, length.into());
    stream.extents.push_back(extent);
    stream.sent += u64::from(length);
    true
}
