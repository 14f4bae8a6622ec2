//! What an app does with its connections: requests and answers, streams of messages one way, or
//! back; then it closes in order, or not.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_base::{Random, SECOND, Time};
use clearway_channel::{Command, Extent};

use super::{App, Place, Scene};
use crate::content::{HELLO_BYTES, Name};
use crate::ledger::{End, RACE};

/// Messages that one connection sends in one go.
const SENDS_MAX: u32 = 8;
/// How long a connection without anything to say stays open.
const SILENCE_NS_MAX: u64 = 15 * SECOND;

/// A connection with a priority has another one behind so many messages.
const MESSAGES_PER_PRIORITY: u32 = 16;

/// The longest that a message may wait, of those that may not wait for ever: some round trips.
const WITHIN_US_MAX: u64 = 500;

/// Streams that are opened at once, each with so many messages of so many bytes, where there is
/// room: these wait for each other, and share what the flow may send by their weights.
const RACERS: usize = 3;
const RACE_MESSAGES: u32 = 2;
const RACE_BYTES: u32 = 64 << 10;
/// One of so many times, a client with streams begins that instead of another connection.
const RACES_PERIOD: u64 = 16;
/// The urgency of who says nothing.
const URGENCY: u8 = 3;

/// How a connection is used. Both ends derive it from the connection's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Each message of the client is answered.
    Requests,
    /// The client sends, the server listens.
    Upload,
    /// The client says hello, the server sends.
    Download,
    /// Nothing is said for long.
    Silence,
}

impl Pattern {
    fn of(number: u64) -> Self {
        match number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 {
            0..=7 => Self::Requests,
            8..=10 => Self::Upload,
            11..=13 => Self::Download,
            _ => Self::Silence,
        }
    }
}

/// How much is said, and how the client ends it.
#[derive(Clone, Copy, Debug)]
struct Manner {
    pattern: Pattern,
    /// Messages that the client, or the server of a download, begins.
    messages: u32,
    /// Of them, unanswered or unfinished at a time.
    window: usize,
    aborts: bool,
    /// Messages one way have deadlines.
    is_timed: bool,
    /// Both ends take messages as they come, if nothing depends on the order.
    is_unordered: bool,
    /// Both ends give what they send a priority, and another one now and then.
    has_priority: bool,
    /// It has much to send at once, as others of its connection.
    is_race: bool,
}

impl Manner {
    /// Of connection `number`: both ends come to the same.
    fn of(number: u64) -> Self {
        if number & RACE != 0 {
            return Self::of_race();
        }
        let pattern = Pattern::of(number);
        let mut random = Random::new(number);
        let bound = if random.chance(1, 8) { 400 } else { 40 };
        let messages = 1 + random.below(bound) as u32;
        let window = 1 << random.below(5);
        let aborts = random.chance(1, 12);
        let is_one_way = matches!(pattern, Pattern::Upload | Pattern::Download);
        let is_timed = is_one_way && random.chance(1, 3);
        let (is_unordered, has_priority) = (random.chance(1, 3), random.chance(1, 2));
        let is_race = false;
        Self { pattern, messages, window, aborts, is_timed, is_unordered, has_priority, is_race }
    }

    fn of_race() -> Self {
        Self {
            pattern: Pattern::Upload,
            messages: RACE_MESSAGES,
            window: RACE_MESSAGES as usize,
            aborts: false,
            is_timed: false,
            is_unordered: false,
            has_priority: true,
            is_race: true,
        }
    }

    /// In how many microseconds a message is to leave, if it has a deadline. The first of a client
    /// has none: it says whose connection that is.
    fn within_us(&self, name: &Name) -> Option<u32> {
        let is_first = name.direction == 0 && name.sequence == 0;
        let mut random = Random::new(name.connection ^ u64::from(name.sequence) << 32);
        let is_timed = self.is_timed && !is_first && random.chance(3, 4);
        is_timed.then(|| 1 + random.below(WITHIN_US_MAX) as u32)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Talk {
    /// Its number; a server knows it from the first message.
    pub(super) number: Option<u64>,
    /// 0 for the client, 1 for the server.
    pub(super) side: usize,
    manner: Option<Manner>,
    pub(super) extents: VecDeque<(Extent, Name)>,
    pub(super) finished: u32,
    sent: u32,
    heard: u32,
    /// It does nothing before then.
    pause_until: Time,
    is_large: bool,
    pub(super) is_closing: bool,
    /// The connection of which it is a stream.
    parent: Option<u64>,
    /// It has said that it takes messages as they come.
    has_given_up_order: bool,
    /// Messages that it had sent when it gave them a priority last.
    ranked_at: Option<u32>,
}

impl Talk {
    fn new(number: Option<u64>, side: usize, manner: Option<Manner>, is_large: bool) -> Self {
        Self {
            number,
            side,
            manner,
            extents: VecDeque::new(),
            finished: 0,
            sent: 0,
            heard: 0,
            pause_until: Time::ZERO,
            is_large,
            is_closing: false,
            parent: None,
            has_given_up_order: false,
            ranked_at: None,
        }
    }

    /// A connection that a server does not know anything of yet, but whose stream it is.
    pub(super) fn accepted(parent: Option<u64>) -> Self {
        Self { parent, ..Self::new(None, 1, None, false) }
    }

    /// Now it does.
    pub(super) fn identify(&mut self, number: u64) {
        self.number = Some(number);
        self.manner = Some(Manner::of(number));
        // It has room for as much as its server has, or it would have gone to another.
        self.is_large = true;
    }

    /// So many messages have come, or were dropped.
    pub(super) fn heard(&mut self, messages: u32) {
        self.heard += messages;
    }

    /// When there is something to do, if that depends on time alone.
    pub(super) fn next_at(&self, scene: &Scene<'_>) -> Option<Time> {
        let waits = self.pause_until > scene.now || self.wants_to_send() || self.is_done(scene);
        (!self.is_closing && self.manner.is_some() && waits).then_some(self.pause_until)
    }

    /// Its number, as long as operations may be asked for on it.
    pub(super) fn open_number(&self) -> Option<u64> {
        self.number.filter(|_| !self.is_closing && self.parent.is_none())
    }

    /// Messages of it come in whatever order: nothing that is asked for goes among them.
    fn is_unordered(&self, scene: &Scene<'_>) -> bool {
        let is_free = self.parent.is_some() || !scene.operations.is_on;
        is_free && self.manner.is_some_and(|manner| manner.is_unordered)
    }

    /// It is to have a priority, or another one: at first, and now and then.
    fn wants_priority(&self) -> bool {
        let is_due = self.ranked_at.is_none_or(|at| self.sent >= at + MESSAGES_PER_PRIORITY);
        is_due && self.manner.is_some_and(|manner| manner.has_priority)
    }

    fn is_race(&self) -> bool {
        self.manner.is_some_and(|manner| manner.is_race)
    }

    /// The next one, of those that there are.
    fn priority(&self, connection: u64) -> Command {
        let number = self.number.unwrap_or(connection);
        let mut random = Random::new(!number ^ u64::from(self.sent) << 32 ^ self.side as u64);
        // Shares are those of one urgency: half of them have that of who says nothing.
        let is_usual = random.chance(1, 2) || self.is_race();
        let urgency = if is_usual { URGENCY } else { random.below(8) as u8 };
        let weight = 1 + random.below(256) as u16;
        Command::SetPriority { connection, urgency, weight }
    }

    /// True if a message is due, but for pauses.
    fn wants_to_send(&self) -> bool {
        let Some(manner) = self.manner else { return false };
        let has_room = self.extents.len() < manner.window;
        match (self.side, manner.pattern) {
            (0, _) if self.sent == 0 => true,
            (0, Pattern::Requests) => {
                self.sent < manner.messages && ((self.sent - self.heard) as usize) < manner.window
            }
            (0, Pattern::Upload) => has_room && self.sent < manner.messages,
            (1, Pattern::Requests) => self.sent < self.heard,
            (1, Pattern::Download) => has_room && self.sent < manner.messages,
            _ => false,
        }
    }

    /// True if the client has nothing more to say or to hear.
    pub(super) fn is_done(&self, scene: &Scene<'_>) -> bool {
        let Some(manner) = self.manner else { return false };
        if self.side != 0 || self.is_closing {
            return false;
        }
        let all_said = match manner.pattern {
            Pattern::Requests => self.sent == manner.messages && self.heard == self.sent,
            Pattern::Upload => self.sent == manner.messages,
            Pattern::Download => self.sent > 0 && self.heard == manner.messages,
            Pattern::Silence => self.sent > 0,
        };
        scene.is_ending || (all_said && scene.now >= self.pause_until)
    }
}

impl App {
    /// Everything that its connections have to do now.
    pub(super) fn talk(&mut self, scene: &mut Scene<'_>) {
        let connections: Vec<u64> = self.talks.keys().copied().collect();
        for connection in connections {
            self.talk_on(scene, connection);
        }
        if self.wants_connections() && !scene.is_ending && scene.now >= self.next_attempt {
            self.connect(scene);
            self.next_attempt = scene.now + self.attempt_pause();
        }
    }

    fn talk_on(&mut self, scene: &mut Scene<'_>, connection: u64) {
        let Some(mut talk) = self.talks.remove(&connection) else { return };
        self.set_up(scene, connection, &mut talk);
        let is_over = talk.is_closing || (scene.is_ending && talk.side == 0);
        let mut budget = if is_over { 0 } else { SENDS_MAX };
        while budget > 0 && scene.now >= talk.pause_until && talk.wants_to_send() {
            if !self.send(scene, connection, &mut talk) {
                break;
            }
            budget -= 1;
            if talk.manner.is_some_and(|manner| manner.pattern == Pattern::Silence) {
                talk.pause_until = scene.now + self.random.below(SILENCE_NS_MAX);
            } else if !talk.is_race() && self.random.chance(1, 3) {
                talk.pause_until = scene.now + self.pause();
            }
        }
        if talk.is_done(scene) && !self.is_kept(connection, scene) {
            self.close(scene, connection, &mut talk);
        }
        self.talks.insert(connection, talk);
    }

    /// Says how a connection sends and receives, once it knows.
    fn set_up(&mut self, scene: &mut Scene<'_>, connection: u64, talk: &mut Talk) {
        let Some(number) = talk.number.filter(|_| !talk.is_closing && !self.is_hostile) else {
            return;
        };
        if talk.is_unordered(scene) && !talk.has_given_up_order && self.end.has_room() {
            talk.has_given_up_order = self.submit(&Command::SetUnordered { connection });
            scene.ledger.give_up_order(number, talk.side);
        }
        if talk.wants_priority() && self.end.has_room() {
            self.submit(&talk.priority(connection));
            talk.ranked_at = Some(talk.sent);
            scene.ledger.give_priority(number, talk.side);
        }
    }

    /// Nothing is to be said any more on a connection, but there is something to be asked.
    pub(super) fn waits(&self, connection: u64, scene: &Scene<'_>) -> bool {
        let is_done = || self.talks.get(&connection).is_some_and(|talk| talk.is_done(scene));
        self.is_kept(connection, scene) && is_done()
    }

    /// There is something to be asked on a connection, or it has streams: these would end with it.
    fn is_kept(&self, connection: u64, scene: &Scene<'_>) -> bool {
        let mut talks = self.talks.values().chain(self.attempts.values());
        talks.any(|talk| talk.parent == Some(connection))
            || self.operations.as_ref().is_some_and(|it| it.keeps(connection, scene))
    }

    fn close(&mut self, scene: &mut Scene<'_>, connection: u64, talk: &mut Talk) {
        let abort = talk.manner.is_some_and(|manner| manner.aborts) && !scene.is_ending;
        if !self.end.has_room() || !self.submit(&Command::Close { connection, abort }) {
            return;
        }
        talk.is_closing = true;
        let Some(number) = talk.number else { return };
        scene.trace.add(&[9, self.id.into(), number, abort.into()]);
        if abort {
            scene.ledger.abandon(number, talk.side);
        } else {
            scene.ledger.close(number, talk.side);
        }
    }

    /// Sends the next message, if ring and pool have room.
    fn send(&mut self, scene: &mut Scene<'_>, connection: u64, talk: &mut Talk) -> bool {
        let Some(number) = talk.number else { return false };
        if !self.end.has_room() {
            return false;
        }
        let is_large = self.character.is_large && talk.is_large;
        let bytes_max = if is_large { self.character.message_bytes_max() } else { 32 << 10 };
        let mut length = match talk.is_race() {
            true => RACE_BYTES.min(bytes_max),
            false => length(&mut self.random, bytes_max),
        };
        let is_hello = talk.side == 0 && talk.sent == 0;
        // Which message it is has to be seen where others may be dropped and the order is no help.
        let is_timed = talk.manner.is_some_and(|manner| manner.is_timed);
        if is_hello || (is_timed && talk.is_unordered(scene)) {
            length = length.max(HELLO_BYTES);
        }
        let Some(extent) = self.end.allocate(length) else { return false };
        let name = scene.ledger.name(number, talk.side);
        name.fill(self.end.transmit_bytes(&extent));
        let (offset, length) = (extent.offset(), extent.length());
        talk.extents.push_back((extent, name));
        talk.sent += 1;
        let within_us = talk.manner.and_then(|manner| manner.within_us(&name));
        self.submit(&match within_us {
            Some(within_us) => Command::SendWithin { connection, offset, length, within_us },
            None => Command::Send { connection, stream: 0, offset, length },
        });
        scene.ledger.sent(scene.now, number, talk.side, length, within_us.is_some());
        scene.operations.sent(number, talk.side);
        scene.trace.add(&[10, self.id.into(), number, length.into()]);
        true
    }

    fn connect(&mut self, scene: &mut Scene<'_>) {
        let is_large = self.character.is_large && self.random.chance(1, 2);
        let fits = |place: &&Place| place.is_large == is_large;
        let places: Vec<&Place> = scene.places.iter().filter(fits).collect();
        if places.is_empty() || !self.end.has_room() {
            return;
        }
        let place = places[self.random.below(places.len() as u64) as usize];
        if !self.begin_race(scene) && !self.open_stream(scene) {
            self.connect_to(scene, place);
        }
    }

    /// Connections that may have streams.
    fn parents(&self) -> Vec<u64> {
        let is_open = |talk: &Talk| talk.side == 0 && !talk.is_closing && talk.parent.is_none();
        let parents = self.talks.iter().filter(|(_, talk)| is_open(talk));
        parents.map(|(connection, _)| *connection).collect()
    }

    /// Begins to open some streams of a connection that are to send much at once, now and then.
    /// False if it does not.
    fn begin_race(&mut self, scene: &mut Scene<'_>) -> bool {
        let parents = self.parents();
        if !self.has_streams || parents.is_empty() || !self.races.chance(1, RACES_PERIOD) {
            return false;
        }
        let connection = parents[self.races.below(parents.len() as u64) as usize];
        (0..RACERS).all(|_| self.end.has_room() && self.open_stream_of(scene, connection, true))
    }

    /// Begins to open a stream of a connection, now and then. False if it does not.
    fn open_stream(&mut self, scene: &mut Scene<'_>) -> bool {
        let parents = self.parents();
        if !self.has_streams || parents.is_empty() || self.random.chance(1, 2) {
            return false;
        }
        let connection = parents[self.random.below(parents.len() as u64) as usize];
        self.open_stream_of(scene, connection, false)
    }

    fn open_stream_of(&mut self, scene: &mut Scene<'_>, connection: u64, is_of_race: bool) -> bool {
        let Some(parent) = self.talks.get(&connection) else { return false };
        let is_large = parent.is_large;
        let number =
            parent.number.and_then(|it| scene.ledger.attempt_stream(scene.now, it, is_of_race));
        let Some(number) = number else { return false };
        self.tokens += 1;
        let talk = Talk::new(Some(number), 0, Some(Manner::of(number)), is_large);
        if self.submit(&Command::OpenStream { token: self.tokens, connection }) {
            scene.trace.add(&[12, self.id.into(), number]);
            self.attempts.insert(self.tokens, Talk { parent: Some(connection), ..talk });
        }
        true
    }

    /// Begins to connect to a server, if both speak the same version of IP.
    pub(crate) fn connect_to(&mut self, scene: &mut Scene<'_>, place: &Place) {
        let speaks = |address: &&SocketAddr| self.character.versions.speaks(address.ip());
        let addresses: Vec<SocketAddr> = place.addresses.iter().filter(speaks).copied().collect();
        if addresses.is_empty() {
            return;
        }
        let peer = addresses[self.random.below(addresses.len() as u64) as usize];
        let host = self.character.host;
        let end = End { host, app: self.id };
        let number = scene.ledger.attempt(scene.now, end, place.host, self.is_hostile);
        self.tokens += 1;
        let token = self.tokens;
        let talk = Talk::new(Some(number), 0, Some(Manner::of(number)), place.is_large);
        let command = match self.shares_flows {
            true => Command::ConnectShared { token, peer },
            false => Command::Connect { token, peer },
        };
        if self.submit(&command) {
            scene.trace.add(&[11, self.id.into(), number]);
            self.attempts.insert(token, talk);
        }
    }
}

/// Sizes as apps have them: mostly small, some empty, a few of megabytes.
fn length(random: &mut Random, bytes_max: u32) -> u32 {
    let bound = match random.below(10_000) {
        0..=299 => 0,
        300..=5_999 => 64,
        6_000..=8_499 => 1_400,
        8_500..=9_499 => 9_000,
        9_500..=9_899 => 64 << 10,
        9_900..=9_989 => 1 << 20,
        _ => 8 << 20,
    };
    random.below(u64::from(bound.min(bytes_max)) + 1) as u32
}
