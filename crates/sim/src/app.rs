//! A simulated app at the far end of a channel: opens connections, sends and receives messages,
//! each of which it checks, and goes wrong in the ways that apps do.
//!
//! It uses the real `AppEnd` on real shared memory. What it does is decided by its seed; when it
//! runs, by the world.

mod frames;
mod hostile;
mod operations;
mod posts;
mod streams;
mod talk;
mod wish;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::ops::Range;

use clearway_base::{MICROSECOND, MILLISECOND, Random, Time};
use clearway_channel::burst::ReceivedBurst;
use clearway_channel::{
    AppEnd, Command, Completion, Granted, Operated, Received, Sizes, Told, Unposted,
};
use clearway_engine::MESSAGE_OVERHEAD;
use clearway_world::Alarm;

pub(crate) use frames::Radio;
use operations::Operations;
use posts::Posts;
pub(crate) use streams::Streams;
use talk::Talk;
use wish::Wishes;
pub(crate) use wish::{Forbidden, Wish};

use crate::Finding;
use crate::content::{Name, named_by};
use crate::control::USER_MIN;
use crate::host::is_readable;
use crate::ledger::{End, Ledger};
use crate::network::Versions;
use crate::operations::{Layout, OperationBooks, Who};
use crate::streams::StreamBooks;
use crate::trace::Trace;

/// Completions that an app takes in one go.
const COMPLETIONS_MAX: usize = 64;

/// How soon an app looks again that waits for room.
const LOOK_AGAIN_NS: u64 = 20 * MICROSECOND;

/// What an app is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Listens on a port, and answers.
    Server { port: u16 },
    /// Keeps up to so many connections open.
    Client { connections: usize },
    /// Listens on a TCP port, and answers.
    StreamServer { port: u16 },
    /// Keeps up to so many TCP connections open.
    StreamClient { connections: usize },
    /// Sends and receives raw frames.
    Frames,
    /// Looks at all that passes its host.
    Capture,
}

/// What does not change while an app lives, and what its successor is like after a crash.
#[derive(Clone, Debug)]
pub(crate) struct Character {
    pub(crate) host: u32,
    pub(crate) engine: u32,
    pub(crate) versions: Versions,
    /// It sleeps when there is nothing to do, until its doorbell rings.
    pub(crate) sleeps: bool,
    pub(crate) role: Role,
    /// It has room for the largest messages.
    pub(crate) is_large: bool,
    /// It shares memory, and asks for what others share.
    pub(crate) shares: bool,
    /// It keeps what it has received for up to so long.
    pub(crate) hold_ns_max: u64,
    /// Between two things that a connection does, on average.
    pub(crate) pause_ns: u64,
}

impl Character {
    /// The channel that it asks for.
    pub(crate) fn sizes(&self) -> Sizes {
        let (entries, bytes) = if self.is_large { (256, 16 << 20) } else { (64, 256 << 10) };
        Sizes {
            submission_entries: entries,
            completion_entries: entries,
            transmit_pool_bytes: bytes,
            receive_pool_bytes: bytes,
            shared_bytes: self.area().map_or(0, |area| area.end as u32),
        }
    }

    /// Where the buffers that it posts are in its shared memory, behind what it shares: it posts
    /// some if it has messages.
    fn area(&self) -> Option<Range<u64>> {
        let layout = Layout { is_large: self.is_large };
        let shared_bytes = if self.shares { layout.bytes() } else { 0 };
        let area_bytes = posts::area_bytes(self.is_large);
        let all = (shared_bytes + area_bytes).next_power_of_two();
        let has_messages = matches!(self.role, Role::Server { .. } | Role::Client { .. });
        has_messages.then(|| (all - area_bytes).into()..all.into())
    }

    /// Whose it is: each host's apps are several users'. Those that share a port are one user's.
    pub(crate) fn user(&self) -> u32 {
        let shares_port = matches!(self.role, Role::StreamServer { .. });
        let role = match self.role {
            Role::Server { port } => u32::from(port) % 8,
            Role::Client { connections } => 8 + connections as u32,
            Role::Frames => 16,
            Role::Capture => 17,
            Role::StreamServer { .. } => 18,
            Role::StreamClient { connections } => 19 + connections as u32,
        };
        USER_MIN + 2 * role + u32::from(self.is_large && !shares_port)
    }

    /// Who it is to those who grant rights.
    pub(crate) fn who(&self) -> Who {
        Who { host: self.host, user: self.user() }
    }

    /// The largest message that it sends, which its peers can take, too.
    pub(crate) fn message_bytes_max(&self) -> u32 {
        if self.is_large { 8 << 20 } else { 32 << 10 }
    }
}

/// Where servers are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) host: u32,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) is_large: bool,
}

/// What an app sees of the world.
pub(crate) struct Scene<'a> {
    pub(crate) now: Time,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) streams: &'a mut StreamBooks,
    pub(crate) operations: &'a mut OperationBooks,
    pub(crate) trace: &'a mut Trace,
    pub(crate) places: &'a [Place],
    /// Nothing new is to be begun; what is open is to be closed.
    pub(crate) is_ending: bool,
    /// Frames may be damaged on their way.
    pub(crate) may_corrupt: bool,
}

/// A received message, or what was read, that the app keeps for a while.
struct Held {
    until: Time,
    connection: u64,
    name: Option<Name>,
    /// Bytes that came in front of it, and count.
    head: u32,
    bytes: Granted,
}

impl Held {
    /// What it counts for in its flow.
    fn positions(&self) -> u64 {
        MESSAGE_OVERHEAD + u64::from(self.head) + u64::from(self.bytes.length())
    }
}

/// An app.
pub(crate) struct App {
    pub(crate) id: u32,
    pub(crate) character: Character,
    pub(crate) channel: u32,
    /// When it runs next.
    pub(crate) alarm: Alarm,
    /// It does not run before then.
    pub(crate) stopped_until: Time,
    /// It has died, or its daemon has.
    pub(crate) is_dead: bool,
    /// It is to listen again later.
    pub(crate) is_deaf: bool,
    /// Its interface or capture, from when it was opened until nothing of it is left.
    pub(crate) vif: Option<u32>,
    /// It has lied, and whatever is said to it does not count.
    pub(crate) is_hostile: bool,
    end: AppEnd,
    /// The shared memory, for lies.
    memory: File,
    random: Random,
    talks: BTreeMap<u64, Talk>,
    attempts: BTreeMap<u64, Talk>,
    tokens: u64,
    next_attempt: Time,
    held: VecDeque<Held>,
    radio: Option<Radio>,
    /// What it has of TCP, if that is what it speaks.
    pub(crate) streams: Option<Streams>,
    /// What it has of one-sided operations, if it shares.
    operations: Option<Operations>,
    /// The buffers that it posts, if it has messages.
    posts: Option<Posts>,
    /// It opens streams of its connections.
    has_streams: bool,
    /// When it opens several at once, which are to send much.
    races: Random,
    /// Its connections share flows.
    shares_flows: bool,
    wishes: Wishes,
}

impl App {
    pub(crate) fn new(
        id: u32,
        character: Character,
        channel: u32,
        mut end: AppEnd,
        memory: File,
        seed: u64,
        radio: Option<Radio>,
    ) -> Self {
        if matches!(character.role, Role::Server { .. }) {
            end.submit(&Command::TakeStreams { are_taken: true }).expect("the ring is empty");
        }
        end.submit(&Command::TellSkipped { is_told: true }).expect("the ring has room");
        end.flush();
        let speaks_tcp =
            matches!(character.role, Role::StreamServer { .. } | Role::StreamClient { .. });
        let has_streams = Random::new(seed ^ 0x5).chance(1, 2);
        // Shared ones have neither streams nor operations.
        let may_share_flows = !has_streams && !character.shares;
        Self {
            id,
            streams: speaks_tcp.then(|| Streams::new(id, seed)),
            operations: character.shares.then(|| Operations::new(id, character.who(), seed)),
            posts: character.area().map(|area| Posts::new(id, area, seed)),
            character,
            channel,
            alarm: Alarm::default(),
            stopped_until: Time::ZERO,
            is_dead: false,
            is_deaf: false,
            vif: None,
            is_hostile: false,
            end,
            memory,
            random: Random::new(seed),
            talks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            tokens: 0,
            next_attempt: Time::ZERO,
            held: VecDeque::new(),
            radio,
            has_streams,
            races: Random::new(seed ^ 0x7),
            shares_flows: may_share_flows && Random::new(seed ^ 0x6).chance(2, 3),
            wishes: Wishes::default(),
        }
    }

    /// Does all that there is to do. Returns when it wants to run again by itself, and how many
    /// commands it gave.
    pub(crate) fn run(&mut self, scene: &mut Scene<'_>) -> Result<Option<Time>, Finding> {
        self.end.disarm();
        let has_more = self.take_completions(scene)?;
        self.release_due(scene)?;
        self.talk(scene);
        self.operate(scene)?;
        if let Some(posts) = self.posts.as_mut().filter(|_| !self.is_hostile) {
            posts.act(&mut self.end, &self.talks, self.character.pause_ns, scene)?;
        }
        if let Some(radio) = &mut self.radio {
            radio.send(&mut self.end, scene);
        }
        if let Some(streams) = &mut self.streams {
            streams.run(&mut self.end, scene, &self.character);
        }
        self.end.flush_releases();
        let next = self.next_run(scene);
        if has_more || (self.character.sleeps && !self.end.arm()) {
            return Ok(Some(scene.now + LOOK_AGAIN_NS)); // there is something already
        }
        Ok(next)
    }

    /// Takes what it is told, so much at most in one go. True if there may be more.
    fn take_completions(&mut self, scene: &mut Scene<'_>) -> Result<bool, Finding> {
        for _ in 0..COMPLETIONS_MAX {
            match self.end.next_told() {
                Ok(Some(told)) => self.take(scene, told)?,
                Ok(None) => return Ok(false),
                Err(_) if self.is_hostile => return Ok(false),
                Err(error) => return Err(Finding::new(format!("app {}: {error}", self.id))),
            }
        }
        Ok(true)
    }

    /// True if it sees that it has been told something: it spins, or its doorbell has rung.
    pub(crate) fn hears(&self) -> bool {
        !self.character.sleeps || is_readable(self.end.doorbell())
    }

    fn take(&mut self, scene: &mut Scene<'_>, told: Told) -> Result<(), Finding> {
        let completion = match told {
            Told::Message(Received { connection, sent, bytes, .. }) => {
                scene.trace.add(&[4, self.id.into(), connection, bytes.length().into()]);
                self.finish(connection, sent)?;
                return self.receive(scene, connection, bytes);
            }
            Told::Frames { vif, count, bytes } => {
                scene.trace.add(&[7, self.id.into(), vif.into(), bytes.length().into()]);
                let burst = self.end.receive_bytes(&bytes);
                match &mut self.radio {
                    Some(radio) => radio.receive(burst, count, scene)?,
                    None => self.witness(burst, count)?,
                }
                self.end.release(bytes);
                return Ok(());
            }
            Told::Bytes(received) => {
                let Some(streams) = &mut self.streams else {
                    return Err(Finding::new(format!("app {}: bytes of TCP", self.id)));
                };
                return streams.receive(&mut self.end, scene, &self.character, received);
            }
            Told::Operated(Operated { status, token, value, extra, bytes }) => {
                return self.take_operated(scene, (status, token), (value, extra), bytes);
            }
            Told::Other(completion) => completion,
        };
        match completion {
            Completion::Connected { connection: 0, .. }
            | Completion::Accepted { connection: 0, .. } => {
                return Err(Finding::new(format!("app {}: a connection has no id", self.id)));
            }
            Completion::Connected { token, connection, .. } => {
                scene.trace.add(&[1, self.id.into(), token, connection]);
                if let Some(talk) = self.attempts.remove(&token) {
                    talk.number.iter().for_each(|number| scene.ledger.connected(*number));
                    self.talks.insert(connection, talk);
                }
            }
            Completion::ConnectFailed { token, code } => {
                scene.trace.add(&[2, self.id.into(), token, code.as_i32() as u64]);
                let talk = self.attempts.remove(&token);
                if let Some(number) = talk.and_then(|talk| talk.number) {
                    scene.ledger.failed(scene.now, number, code)?;
                }
            }
            Completion::Accepted { connection, .. } => {
                scene.trace.add(&[3, self.id.into(), connection]);
                self.talks.insert(connection, Talk::accepted(None));
            }
            Completion::StreamAccepted { connection, parent } => {
                scene.trace.add(&[13, self.id.into(), connection, parent]);
                self.talks.insert(connection, Talk::accepted(Some(parent)));
            }
            Completion::Sent { connection, sent } => {
                scene.trace.add(&[5, self.id.into(), connection, sent.into()]);
                self.finish(connection, sent)?;
            }
            Completion::Dropped { connection, send } => {
                scene.trace.add(&[14, self.id.into(), connection, send.into()]);
                if let Some(talk) = self.talks.get(&connection)
                    && let Some(number) = talk.number
                {
                    scene.ledger.dropped(number, talk.side, send)?;
                }
            }
            Completion::Skipped { connection, messages } => {
                scene.trace.add(&[15, self.id.into(), connection, messages.into()]);
                self.skipped(scene, connection, messages)?;
            }
            Completion::Closed { connection, code, sent } => {
                scene.trace.add(&[6, self.id.into(), connection, code.as_i32() as u64]);
                self.finish(connection, sent)?;
                self.closed(scene, connection, code)?;
            }
            Completion::FramesSent { vif, bursts, sent, rejected, .. } => {
                scene.trace.add(&[8, self.id.into(), bursts.into(), sent, rejected]);
                if let Some(radio) = &mut self.radio {
                    radio.finished(&mut self.end, vif, bursts, rejected)?;
                }
            }
            Completion::Placed { connection, tag, length, sent } => {
                scene.trace.add(&[18, self.id.into(), connection, tag, length.into()]);
                self.finish(connection, sent)?;
                self.take_placed(scene, connection, tag, length)?;
            }
            Completion::Unposted { why, connection, tag } => {
                scene.trace.add(&[19, self.id.into(), connection, tag, why.into()]);
                if let Some(posts) = self.posts.as_mut().filter(|_| !self.is_hostile) {
                    let (post, why) = ((connection, tag), Unposted::of(why));
                    posts.unposted(&self.end, post, why, &self.talks, scene.ledger)?;
                }
            }
            Completion::VifClosed { .. }
            | Completion::Received { .. }
            | Completion::Operated { .. }
            | Completion::Frames { .. } => {}
            of_shares @ (Completion::Shared { .. }
            | Completion::Unshared { .. }
            | Completion::GroupSet { .. }
            | Completion::Notified { .. }) => {
                if let Some(operations) = &mut self.operations {
                    operations.take(&mut self.end, scene, &of_shares)?;
                }
            }
            of_tcp @ (Completion::TcpAccepted { .. }
            | Completion::TcpConnected { .. }
            | Completion::TcpConnectFailed { .. }
            | Completion::TcpReceived { .. }
            | Completion::TcpSent { .. }
            | Completion::TcpFinished { .. }
            | Completion::TcpClosed { .. }) => {
                if let Some(streams) = &mut self.streams {
                    streams.take(&mut self.end, scene, of_tcp)?;
                }
            }
        }
        Ok(())
    }

    /// Looks at a burst of a capture.
    fn witness(&self, bytes: &[u8], count: u16) -> Result<(), Finding> {
        let burst = ReceivedBurst::new(bytes, count);
        if !burst.is_whole() && !self.is_hostile {
            return Err(Finding::new(format!("app {}: a damaged burst of a capture", self.id)));
        }
        Ok(())
    }

    /// Frees what the daemon is done with.
    fn finish(&mut self, connection: u64, sent: u32) -> Result<(), Finding> {
        let Some(talk) = self.talks.get_mut(&connection) else { return Ok(()) };
        while talk.finished != sent {
            let Some((extent, name)) = talk.extents.pop_front() else {
                let text = format!("app {}: more sends finished than were made", self.id);
                return if self.is_hostile { Ok(()) } else { Err(Finding::new(text)) };
            };
            talk.finished = talk.finished.wrapping_add(1);
            if !self.is_hostile && !name.is(self.end.transmit_bytes(&extent)) {
                return Err(Finding::new(format!("{name:?}: its sender's memory has changed")));
            }
            self.end.free(extent);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        granted: Granted,
    ) -> Result<(), Finding> {
        let bytes = self.end.receive_bytes(&granted).to_vec();
        let name = self.hear(scene, connection, &bytes)?;
        let hold_ns = self.random.below(self.character.hold_ns_max + 1);
        if hold_ns < MICROSECOND || !self.talks.contains_key(&connection) {
            self.end.release(granted);
        } else {
            let until = scene.now + hold_ns;
            self.held.push_back(Held { until, connection, name, head: 0, bytes: granted });
        }
        Ok(())
    }

    /// A message has come into a buffer that it has posted.
    fn take_placed(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        tag: u64,
        length: u32,
    ) -> Result<(), Finding> {
        let Some(posts) = self.posts.as_mut().filter(|_| !self.is_hostile) else { return Ok(()) };
        let bytes = posts.placed(&self.end, (connection, tag), length, scene.ledger)?;
        self.hear(scene, connection, &bytes).map(drop)
    }

    /// A message has come: its name, if it counts.
    fn hear(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        bytes: &[u8],
    ) -> Result<Option<Name>, Finding> {
        let Some(talk) = self.talks.get_mut(&connection) else {
            let text = format!("app {}: a message of no connection", self.id);
            return if self.is_hostile { Ok(None) } else { Err(Finding::new(text)) };
        };
        if talk.number.is_none()
            && let Some(number) = named_by(bytes)
        {
            let host = self.character.host;
            let end = End { host, app: self.id };
            scene.ledger.accepted(number, end)?;
            talk.identify(number);
        }
        let Some(number) = talk.number else { return Ok(None) };
        let name = scene.ledger.received(scene.now, number, talk.side, bytes)?;
        talk.heard(1);
        let (side, shared) = (1 - talk.side, self.end.shared());
        let in_order = scene.operations.received(number, side, self.id, shared);
        in_order.map_err(|what| Finding { what, hosts: vec![self.character.host] })?;
        self.operations.iter().try_for_each(|operations| operations.heard(connection))?;
        Ok(name)
    }

    /// The peer has dropped the next messages of a connection.
    fn skipped(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        messages: u32,
    ) -> Result<(), Finding> {
        let Some(talk) = self.talks.get_mut(&connection) else { return Ok(()) };
        let Some(number) = talk.number else { return Ok(()) };
        talk.heard(messages);
        for _ in 0..messages {
            scene.ledger.skipped(scene.now, number, talk.side)?;
            let (side, shared) = (1 - talk.side, self.end.shared());
            let in_order = scene.operations.received(number, side, self.id, shared);
            in_order.map_err(|what| Finding { what, hosts: vec![self.character.host] })?;
        }
        Ok(())
    }

    /// Releases what was kept long enough, if it is still what it was.
    fn release_due(&mut self, scene: &Scene<'_>) -> Result<(), Finding> {
        let is_due = |held: &Held| held.until <= scene.now || scene.is_ending;
        while self.held.front().is_some_and(is_due) {
            let Some(held) = self.held.pop_front() else { break };
            let bytes = self.end.receive_bytes(&held.bytes);
            if let Some(name) = held.name
                && !name.is(bytes)
                && !self.is_hostile
            {
                return Err(Finding::new(format!("{name:?} has changed while its app had it")));
            }
            self.end.release(held.bytes);
        }
        Ok(())
    }

    fn closed(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        code: clearway_channel::Code,
    ) -> Result<(), Finding> {
        let Some(talk) = self.talks.remove(&connection) else { return Ok(()) };
        for (extent, _) in talk.extents {
            self.end.free(extent);
        }
        self.operations.iter_mut().for_each(|operations| operations.closed(connection));
        self.posts.iter_mut().for_each(|posts| posts.closed(connection));
        match talk.number {
            Some(number) if !self.is_hostile => {
                scene.ledger.ended(scene.now, number, talk.side, code)
            }
            _ => Ok(()),
        }
    }

    /// Its virtual interface has been opened.
    pub(crate) fn vif_opened(&mut self, number: u32) {
        self.vif = Some(number);
        self.radio.iter_mut().for_each(|radio| radio.open(number));
    }

    /// It has asked for its virtual interface to be closed.
    pub(crate) fn begin_closing_vif(&mut self) {
        self.radio.iter_mut().for_each(Radio::begin_closing);
    }

    /// Nothing of its virtual interface is left.
    pub(crate) fn vif_closed(&mut self) {
        self.vif = None;
        self.radio.iter_mut().for_each(|radio| radio.closed(&mut self.end));
    }

    /// When it wants to run by itself.
    fn next_run(&self, scene: &Scene<'_>) -> Option<Time> {
        let talks = self.talks.iter().filter(|(connection, _)| !self.waits(**connection, scene));
        let talks = talks.filter_map(|(_, talk)| talk.next_at(scene));
        let operations = self.operations.iter().filter_map(|operations| operations.next_at(scene));
        let held = self.held.front().map(|held| held.until);
        let radio = self.radio.as_ref().and_then(|radio| radio.next_at(scene));
        let attempt = (self.wants_connections() && !scene.is_ending).then_some(self.next_attempt);
        let streams = self.streams.as_ref();
        let streams = streams.and_then(|streams| streams.next_at(scene, &self.character));
        let soon = talks.chain(held).chain(radio).chain(attempt).chain(streams);
        let posts = self.posts.iter().filter_map(|posts| posts.next_at(&self.talks, scene));
        let soon = soon.chain(operations).chain(posts).min()?;
        // Whoever waits for room in a pool or ring tries again before long.
        Some(soon.max(scene.now + LOOK_AGAIN_NS))
    }

    fn wants_connections(&self) -> bool {
        match self.character.role {
            Role::Client { connections } => self.talks.len() + self.attempts.len() < connections,
            Role::Server { .. }
            | Role::StreamServer { .. }
            | Role::StreamClient { .. }
            | Role::Frames
            | Role::Capture => false,
        }
    }

    /// It ends in good order: what it has sent is its daemon's to deliver.
    pub(crate) fn leave(&mut self, ledger: &mut Ledger, books: &mut StreamBooks) {
        self.is_dead = true;
        self.streams.iter().for_each(|streams| streams.abandon(books));
        for talk in self.talks.values() {
            talk.number.iter().for_each(|number| ledger.leave(*number, talk.side));
        }
        for talk in self.attempts.values() {
            talk.number.iter().for_each(|number| ledger.abandon(*number, talk.side));
        }
    }

    /// It dies, or its daemon: what it had is nobody's any more.
    pub(crate) fn die(&mut self, ledger: &mut Ledger, books: &mut StreamBooks) {
        self.is_dead = true;
        self.streams.iter().for_each(|streams| streams.abandon(books));
        for talk in self.talks.values().chain(self.attempts.values()) {
            talk.number.iter().for_each(|number| ledger.abandon(*number, talk.side));
        }
    }

    /// True if the app has nothing open and everything back.
    pub(crate) fn check_rest(&self) -> Result<(), Finding> {
        let used = self.end.transmit_pool_used_bytes();
        if !self.talks.is_empty() || !self.attempts.is_empty() || used > 0 {
            let text = format!(
                "app {} ({:?}) rests with {} connections, {} attempts and {used} bytes of its \
                 transmit pool",
                self.id,
                self.character,
                self.talks.len(),
                self.attempts.len()
            );
            return Err(Finding { what: text, hosts: vec![self.character.host] });
        }
        self.posts.iter().filter(|_| !self.is_hostile).try_for_each(Posts::check_rest)
    }

    /// Positions of the messages of a connection that it has got and not released; `None` if it has
    /// no such connection, or nothing that it says counts.
    pub(crate) fn held_positions(&self, connection: u64) -> Option<u64> {
        let counts = !self.is_dead && !self.is_hostile && self.talks.contains_key(&connection);
        let of_connection = self.held.iter().filter(|held| held.connection == connection);
        let positions = of_connection.map(|held| held.positions()).sum();
        counts.then_some(positions)
    }

    /// True if it has nothing open.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = self.streams.as_ref().is_none_or(Streams::is_idle);
        let is_idle = is_idle && self.operations.as_ref().is_none_or(Operations::is_idle);
        let is_idle = is_idle && self.posts.as_ref().is_none_or(Posts::is_idle);
        is_idle && self.talks.is_empty() && self.attempts.is_empty() && self.held.is_empty()
    }

    fn submit(&mut self, command: &Command) -> bool {
        self.end.submit(command).is_ok()
    }

    fn pause(&mut self) -> u64 {
        self.random.below(2 * self.character.pause_ns) + MICROSECOND
    }

    /// How long until it tries to connect again.
    fn attempt_pause(&mut self) -> u64 {
        self.random.below(40 * self.character.pause_ns) + MILLISECOND
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("host", &self.character.host)
            .field("role", &self.character.role)
            .field("talks", &self.talks)
            .field("attempts", &self.attempts)
            .field("held", &self.held.len())
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}
