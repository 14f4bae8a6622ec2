//! What an app does with one-sided operations: it shares memory, changes what is there, and revokes
//! a part of it now and then; and it asks for what the apps at the other ends of its connections
//! share.

use std::collections::{BTreeMap, VecDeque};

use clearway_base::{MICROSECOND, MILLISECOND, Random, Time};
use clearway_channel::GROUP_BYTES_MAX;
use clearway_channel::{AppEnd, Command, Completion, Extent, Granted, OperationStatus as Status};

use super::{App, Character, Held, LOOK_AGAIN_NS, Scene};
use crate::Finding;
use crate::operations::{Answer, Estate, OperationBooks, Question, Region, Who, Words};

/// What one connection asks in one go, and if it is in a rush.
const ASKS_MAX: u32 = 4;
const RUSH_ASKS_MAX: u32 = 128;
/// One of so many sides of connections is in a rush: it asks this often, with so much outstanding
/// at a time, which is more than its daemon sends without an answer.
const RUSHES_PERIOD: u64 = 12;
const RUSH_ASKS: u32 = 1200;
const RUSH_WINDOW: usize = 900;
/// One of so many things that are asked is of a vault, where there are any.
const PRIES_PERIOD: u64 = 4;
/// The same of clubs.
const VISITS_PERIOD: u64 = 3;
/// An app that looks after what it shares sets a group once in so many times.
const REGROUPS_PERIOD: u64 = 3;
/// What a daemon sends without an answer.
const REQUESTS_MAX: usize = 512;
/// Bytes that an answer has in front of what was read, in a flow.
const ANSWER_HEAD_BYTES: u32 = clearway_wire::clearway::operation::ANSWER_LENGTH as u32;

/// An operation that is not over.
struct Pending {
    connection: u64,
    question: Question,
    asked: Time,
    payload: Option<Extent>,
}

/// What one end of a connection asks.
struct Line {
    number: u64,
    side: usize,
    /// The handle of the other app's ground.
    ground: Option<u64>,
    /// Whose that is.
    owner: Option<u32>,
    left: u32,
    window: usize,
    is_in_a_rush: bool,
    /// The client does not close before all is answered.
    is_patient: bool,
    outstanding: VecDeque<u64>,
    /// Its daemon has said of an operation that the connection has ended, and then of that itself.
    has_ended: bool,
    is_closed: bool,
    pause_until: Time,
}

impl Line {
    fn new(number: u64, side: usize) -> Self {
        let mut random = Random::new(!(number << 1 | side as u64));
        let is_in_a_rush = random.chance(1, RUSHES_PERIOD);
        let left = if random.chance(1, 3) { 0 } else { 1 + random.below(24) as u32 };
        let window = 1 << random.below(5);
        Self {
            number,
            side,
            ground: None,
            owner: None,
            left: if is_in_a_rush { RUSH_ASKS } else { left },
            window: if is_in_a_rush { RUSH_WINDOW } else { window },
            is_in_a_rush,
            is_patient: random.chance(3, 4),
            outstanding: VecDeque::new(),
            has_ended: false,
            is_closed: false,
            pause_until: Time::ZERO,
        }
    }

    fn is_busy(&self) -> bool {
        !self.has_ended && (self.left > 0 || !self.outstanding.is_empty())
    }

    fn wants_to_ask(&self) -> bool {
        let is_known = self.owner.is_some() || self.outstanding.is_empty();
        !self.has_ended && self.left > 0 && is_known && self.outstanding.len() < self.window
    }
}

/// What is with the region that comes and goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lease {
    Away,
    Shared,
    /// The daemon has been told to share it, or to share it no longer.
    Changing,
}

/// All of an app.
pub(super) struct Operations {
    app: u32,
    who: Who,
    has_settled: bool,
    to_share: Vec<Region>,
    /// What is being shared, with its description.
    sharing: BTreeMap<u64, (Region, Extent)>,
    lease: Lease,
    /// What it has said of a group, and is not told of.
    regrouping: Option<Extent>,
    next_act: Time,
    lines: BTreeMap<u64, Line>,
    pending: BTreeMap<u64, Pending>,
    tokens: u64,
    random: Random,
    /// What it asks of vaults.
    pries: Random,
    /// What it asks of clubs, and when it sets a group of its own.
    visits: Random,
}

impl Operations {
    pub(super) fn new(app: u32, who: Who, seed: u64) -> Self {
        Self {
            app,
            who,
            has_settled: false,
            to_share: vec![Region::Lease, Region::Quarry, Region::Ground],
            sharing: BTreeMap::new(),
            lease: Lease::Changing,
            regrouping: None,
            next_act: Time::ZERO,
            lines: BTreeMap::new(),
            pending: BTreeMap::new(),
            tokens: 0,
            random: Random::new(seed.rotate_left(7)),
            pries: Random::new(seed.rotate_left(11)),
            visits: Random::new(seed.rotate_left(13)),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let has_told_all = self.sharing.is_empty() && self.regrouping.is_none();
        has_told_all && self.pending.is_empty() && self.lines.is_empty()
    }

    /// The client has nothing else to do on this connection, but this.
    pub(super) fn keeps(&self, connection: u64, scene: &Scene<'_>) -> bool {
        let line = self.lines.get(&connection);
        !scene.is_ending && line.is_some_and(|line| line.is_patient && line.is_busy())
    }

    /// The app lies from now on: what it shares may be anything, and so may what it can change.
    pub(super) fn taint(&self, books: &mut OperationBooks) {
        books.taint(self.app, None);
        let owners = self.lines.values().filter_map(|line| line.owner);
        owners.for_each(|owner| books.taint(owner, Some(self.who)));
    }

    /// A connection whose other end is known, and whose that is.
    fn known_owner(&self) -> Option<(u64, u32)> {
        let mut lines = self.lines.iter().filter(|(_, line)| !line.has_ended);
        lines.find_map(|(connection, line)| Some((*connection, line.owner?)))
    }

    pub(super) fn knows_owner(&self) -> bool {
        self.known_owner().is_some()
    }

    /// A request that the app makes up, of the vault at the other end of one of its connections.
    pub(super) fn forge(
        &self,
        end: &mut AppEnd,
        books: &mut OperationBooks,
        random: &mut Random,
    ) -> Option<Command> {
        let (connection, owner) = self.known_owner()?;
        let words = books.estate(owner)?.forge(random)?;
        // It is never freed: the app has not long to live.
        let place = match &words.payload {
            Some(bytes) => {
                let extent = end.allocate(bytes.len() as u32)?;
                end.transmit_bytes(&extent).copy_from_slice(bytes);
                Some((extent.offset(), extent.length()))
            }
            None => None,
        };
        books.counts.requests_forged += 1;
        Some(command(&words, connection, random.next_u64(), place))
    }

    fn found(&self, what: &str) -> Finding {
        Finding { what: format!("app {}: {what}", self.app), hosts: vec![self.who.host] }
    }

    // ---- what it shares ----

    /// Shares, changes and revokes, and looks at what is there.
    pub(super) fn own(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
    ) -> Result<(), Finding> {
        let shared = end.shared().clone();
        if !self.has_settled {
            let place = (self.app, self.who.host);
            scene.operations.settle(place, character.is_large, &shared, scene.now);
            self.has_settled = true;
            if scene.operations.has_vaults {
                self.to_share.insert(0, Region::Vault);
            }
            if scene.operations.has_clubs {
                self.to_share.insert(0, Region::Club);
            }
        }
        let Some(estate) = scene.operations.estate(self.app) else { return Ok(()) };
        while let Some(region) = self.to_share.last().copied() {
            if !self.share(end, estate, region) {
                return Ok(());
            }
            self.to_share.pop();
        }
        if scene.now < self.next_act || scene.is_ending {
            return Ok(());
        }
        let pause_ns = self.random.below(4 * character.pause_ns) + MILLISECOND;
        self.next_act = scene.now + pause_ns;
        estate.act(&shared, scene.now).map_err(|what| self.found(&what))?;
        if self.random.chance(1, 8) {
            estate.look(&shared, scene.now).map_err(|what| self.found(&what))?;
        }
        self.regroup(end, scene);
        self.change_lease(end, scene)
    }

    /// Says who is in a group of its club, now and then.
    fn regroup(&mut self, end: &mut AppEnd, scene: &mut Scene<'_>) {
        let is_due = scene.operations.has_clubs && self.visits.chance(1, REGROUPS_PERIOD);
        let room =
            if is_due && end.has_room() { end.allocate(GROUP_BYTES_MAX as u32) } else { None };
        let Some(extent) = room else { return };
        let estate = scene.operations.estate(self.app);
        let Some((bytes, cut_off)) = estate.and_then(Estate::begin_regrouping) else {
            return end.free(extent);
        };
        end.transmit_bytes(&extent)[..bytes.len()].copy_from_slice(&bytes);
        self.tokens += 1;
        let (token, offset, length) = (self.tokens, extent.offset(), bytes.len() as u32);
        let told = end.submit(&Command::SetGroup { token, offset, length });
        assert!(told.is_ok(), "there was room");
        self.regrouping = Some(extent);
        cut_off.into_iter().for_each(|number| scene.ledger.excuse(number));
    }

    fn share(&mut self, end: &mut AppEnd, estate: &mut Estate, region: Region) -> bool {
        let description = estate.description(region);
        if !end.has_room() {
            return false;
        }
        let Some(extent) = end.allocate(description.len() as u32) else { return false };
        end.transmit_bytes(&extent).copy_from_slice(&description);
        let (offset, length) = (extent.offset(), extent.length());
        let place = estate.layout().region(region);
        estate.begin_tenure(end.shared(), region);
        self.tokens += 1;
        let (token, start, bytes) = (self.tokens, place.start, place.len() as u32);
        self.sharing.insert(token, (region, extent));
        end.submit(&Command::Share { token, offset, length, start, bytes }).is_ok()
    }

    fn change_lease(&mut self, end: &mut AppEnd, scene: &mut Scene<'_>) -> Result<(), Finding> {
        let Some(estate) = scene.operations.estate(self.app) else { return Ok(()) };
        match self.lease {
            Lease::Away => {
                estate.check_revoked(end.shared()).map_err(|what| self.found(&what))?;
                if self.random.chance(1, 2) {
                    self.to_share.push(Region::Lease);
                    self.lease = Lease::Changing;
                }
            }
            Lease::Shared if self.random.chance(1, 8) && end.has_room() => {
                if let Some(region) = estate.begin_revoking(scene.now) {
                    self.tokens += 1;
                    let revoked = end.submit(&Command::Unshare { token: self.tokens, region });
                    self.lease = if revoked.is_ok() { Lease::Changing } else { self.lease };
                }
            }
            Lease::Shared | Lease::Changing => {}
        }
        Ok(())
    }

    // ---- what it is told ----

    /// Of what it shares.
    pub(super) fn take(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        told: &Completion,
    ) -> Result<(), Finding> {
        let shared = end.shared().clone();
        let Some(estate) = scene.operations.estate(self.app) else { return Ok(()) };
        let is_sound = match *told {
            Completion::Shared { status, token, region: handle } => {
                scene.trace.add(&[40, self.app.into(), token, handle]);
                let Some((region, extent)) = self.sharing.remove(&token) else {
                    return Err(self.found("a region that it did not share"));
                };
                end.free(extent);
                if region == Region::Lease {
                    self.lease = Lease::Shared;
                }
                match Status::of(status) {
                    Status::Done => estate.has_shared(region, scene.now, handle),
                    status => Err(format!("{region:?} is not shared: {}", status.text())),
                }
            }
            Completion::Unshared { status, token } => {
                scene.trace.add(&[41, self.app.into(), token]);
                self.lease = Lease::Away;
                estate.has_revoked(&shared, scene.now);
                scene.operations.counts.leases_revoked += 1;
                let is_done = Status::of(status) == Status::Done;
                if is_done { Ok(()) } else { Err("a lease is not revoked".to_owned()) }
            }
            Completion::GroupSet { status, token } => {
                scene.trace.add(&[45, self.app.into(), token]);
                self.regrouping.take().into_iter().for_each(|extent| end.free(extent));
                let is_sound = estate.has_regrouped(&shared);
                scene.operations.counts.groups_set += 1;
                let is_done = Status::of(status) == Status::Done;
                if is_done { is_sound } else { Err("a group is not set".to_owned()) }
            }
            Completion::Notified { connection, region, place, bytes, value } => {
                scene.trace.add(&[42, self.app.into(), connection, value]);
                let is_sound = estate.notified(&shared, scene.now, (region, place, bytes, value));
                scene.operations.counts.operations_notified += 1;
                is_sound
            }
            _ => Ok(()),
        };
        is_sound.map_err(|what| self.found(&what))
    }

    /// An operation is over. Returns its connection.
    pub(super) fn operated(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        token: u64,
        status: Status,
        (value, extra): (u64, u64),
        bytes: Option<&Granted>,
    ) -> Result<u64, Finding> {
        let Some(Pending { connection, question, asked, payload }) = self.pending.remove(&token)
        else {
            return Err(self.found("an operation is over that it did not ask for"));
        };
        scene.trace.add(&[43, self.app.into(), connection, token, status as u64, value]);
        payload.into_iter().for_each(|payload| end.free(payload));
        self.take_in_order(connection, token, status)?;
        let bytes = bytes.map_or(&[][..], |bytes| end.receive_bytes(bytes));
        let now = scene.now;
        let answer = Answer { status, value, extra, bytes, asked, now };
        self.compare(scene, connection, &question, answer)?;
        self.forget_closed(connection);
        Ok(connection)
    }

    fn take_in_order(
        &mut self,
        connection: u64,
        token: u64,
        status: Status,
    ) -> Result<(), Finding> {
        let Some(line) = self.lines.get_mut(&connection) else {
            return Err(self.found("an operation is over after its connection"));
        };
        let next = line.outstanding.pop_front();
        let is_end = matches!(status, Status::Unknown | Status::Failed | Status::NoConnection);
        let was_over = line.has_ended;
        line.has_ended |= is_end;
        if next != Some(token) {
            let text = format!("operation {token} is over before {next:?}");
            return Err(self.found(&text));
        }
        if line.is_closed && status != Status::NoConnection {
            let text = format!("operation {token} comes after its connection: {status:?}");
            return Err(self.found(&text));
        }
        // What the own daemon has refused says so also behind what has ended with the connection.
        if was_over && !is_end && status != Status::TooLarge {
            return Err(self.found("an operation is answered after the end of its connection"));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        scene: &mut Scene<'_>,
        connection: u64,
        question: &Question,
        answer: Answer<'_>,
    ) -> Result<(), Finding> {
        let (app, host) = (self.app, self.who.host);
        let Some(line) = self.lines.get_mut(&connection) else { return Ok(()) };
        scene.operations.count(question, answer.status);
        if !scene.ledger.is_sound(line.number) {
            line.left = 0;
            return Ok(());
        }
        let Some(owner) = line.owner else {
            return line
                .meet(scene, question, &answer)
                .map_err(|what| Finding { what: format!("app {app}: {what}"), hosts: vec![host] });
        };
        let number = line.number;
        let Some(estate) = scene.operations.estate(owner) else { return Ok(()) };
        estate.answer(question, &answer).map_err(|what| {
            let text = format!("app {app}, connection {number}, estate of app {owner}: {what}");
            Finding { what: text, hosts: vec![host, estate.host()] }
        })
    }

    /// A connection is over, and so is all that was asked on it, but for what its daemon has taken
    /// since.
    pub(super) fn closed(&mut self, connection: u64) {
        if let Some(line) = self.lines.get_mut(&connection) {
            (line.has_ended, line.is_closed) = (true, true);
        }
        self.forget_closed(connection);
    }

    fn forget_closed(&mut self, connection: u64) {
        let is_over = |line: &Line| line.is_closed && line.outstanding.is_empty();
        if self.lines.get(&connection).is_some_and(is_over) {
            self.lines.remove(&connection);
        }
    }

    /// A message has come on a connection.
    pub(super) fn heard(&self, connection: u64) -> Result<(), Finding> {
        let has_ended = self.lines.get(&connection).is_some_and(|line| line.has_ended);
        if has_ended { Err(self.found("a message after the end of operations")) } else { Ok(()) }
    }

    // ---- what it asks ----

    /// Asks what is to be asked now on a connection.
    pub(super) fn ask(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
        connection: u64,
        (number, side): (u64, usize),
    ) {
        let mut line = self.lines.remove(&connection).unwrap_or_else(|| Line::new(number, side));
        for _ in 0..if line.is_in_a_rush { RUSH_ASKS_MAX } else { ASKS_MAX } {
            let may_ask = line.wants_to_ask() && scene.now >= line.pause_until && end.has_room();
            if !may_ask || !self.ask_next(end, scene, character, connection, &mut line) {
                break;
            }
            if line.owner.is_some() && !line.is_in_a_rush && self.random.chance(1, 3) {
                let pause_ns = self.random.below(2 * character.pause_ns) + MICROSECOND;
                line.pause_until = scene.now + pause_ns;
            }
        }
        self.lines.insert(connection, line);
    }

    fn ask_next(
        &mut self,
        end: &mut AppEnd,
        scene: &mut Scene<'_>,
        character: &Character,
        connection: u64,
        line: &mut Line,
    ) -> bool {
        let next = match (line.ground, line.owner) {
            (None, _) => Some(Question::find(Region::Ground)),
            (Some(ground), None) => Some(Question::who(ground)),
            (Some(_), Some(owner)) => {
                line.left -= 1;
                let pries = scene.operations.has_vaults && self.pries.chance(1, PRIES_PERIOD);
                let visits = scene.operations.has_clubs && self.visits.chance(1, VISITS_PERIOD);
                let estate = scene.operations.estate(owner);
                estate.and_then(|estate| {
                    if pries {
                        return estate.pry(&mut self.pries, self.who);
                    }
                    let may_be_long = character.is_large || !estate.layout().is_large;
                    if visits {
                        let may_be_long = may_be_long && !line.is_in_a_rush;
                        return estate.visit(&mut self.visits, self.who, may_be_long);
                    }
                    if line.is_in_a_rush {
                        return estate.ask_in_a_rush(&mut self.random);
                    }
                    estate.ask(&mut self.random, scene.now, may_be_long)
                })
            }
        };
        let Some((question, words)) = next else { return true };
        let payload = words.payload.as_ref().map(|bytes| {
            let extent = end.allocate(bytes.len() as u32)?;
            end.transmit_bytes(&extent).copy_from_slice(bytes);
            Some(extent)
        });
        let payload = match payload {
            Some(None) => {
                // There is no room for it: nobody has asked.
                let estate = line.owner.and_then(|owner| scene.operations.estate(owner));
                estate.into_iter().for_each(|estate| estate.withdraw(&question));
                return false;
            }
            Some(extent) => extent,
            None => None,
        };
        self.tokens += 1;
        let place = payload.as_ref().map(|extent| (extent.offset(), extent.length()));
        let command = command(&words, connection, self.tokens, place);
        assert!(end.submit(&command).is_ok(), "there was room");
        scene.trace.add(&[44, self.app.into(), connection, self.tokens, words.kind.into()]);
        let estate = line.owner.and_then(|owner| scene.operations.estate(owner));
        let is_cut_off = estate.is_some_and(|it| it.begins_reading(line.number, &question));
        if is_cut_off || question.may_end_connection() {
            scene.ledger.excuse(line.number);
        }
        scene.operations.asked(line.number, line.side, line.owner, &question);
        scene.operations.counts.operations_rushed +=
            u64::from(line.outstanding.len() > REQUESTS_MAX);
        line.outstanding.push_back(self.tokens);
        let asked = scene.now;
        self.pending.insert(self.tokens, Pending { connection, question, asked, payload });
        true
    }

    /// When it wants to run by itself.
    pub(super) fn next_at(&self, scene: &Scene<'_>) -> Option<Time> {
        let lines = self.lines.values().filter(|line| line.wants_to_ask());
        let soon = scene.now + LOOK_AGAIN_NS;
        let lines = lines.map(|line| line.pause_until.max(soon));
        if scene.is_ending { None } else { lines.min() }
    }
}

impl Line {
    /// Finds out who is at the other end.
    fn meet(
        &mut self,
        scene: &mut Scene<'_>,
        question: &Question,
        answer: &Answer<'_>,
    ) -> Result<(), String> {
        match (question, answer.status) {
            (_, Status::Failed | Status::NoConnection) => Ok(()),
            (Question::Find(_), Status::NotFound) => {
                self.pause_until = scene.now + MILLISECOND;
                self.left -= 1;
                Ok(())
            }
            (Question::Find(_), Status::Done) => {
                self.ground = Some(answer.value);
                Ok(())
            }
            (Question::Who, Status::Done) => {
                let who = answer.bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let owner = who.checked_sub(1).map(|owner| owner as u32);
                let estate = owner.and_then(|owner| scene.operations.estate(owner));
                let Some(estate) = estate else { return Err(format!("estate of nobody: {who}")) };
                if !estate.is_ground(self.ground) {
                    return Err(format!("{:?} is another ground", self.ground));
                }
                self.owner = owner;
                Ok(())
            }
            (question, status) => Err(format!("{question:?} is answered {status:?}")),
        }
    }
}

impl App {
    /// All that it has to do with operations now.
    pub(super) fn operate(&mut self, scene: &mut Scene<'_>) -> Result<(), Finding> {
        let Some(operations) = &mut self.operations else { return Ok(()) };
        operations.own(&mut self.end, scene, &self.character)?;
        if scene.is_ending {
            return Ok(());
        }
        for (connection, talk) in &self.talks {
            let Some(said) = talk.open_number() else { continue };
            operations.ask(&mut self.end, scene, &self.character, *connection, (said, talk.side));
        }
        Ok(())
    }

    /// An operation is over; what it has read is kept for a while.
    pub(super) fn take_operated(
        &mut self,
        scene: &mut Scene<'_>,
        (status, token): (u8, u64),
        words: (u64, u64),
        bytes: Option<Granted>,
    ) -> Result<(), Finding> {
        let Some(operations) = &mut self.operations else {
            return Err(Finding::new(format!("app {}: an operation is over", self.id)));
        };
        let status = Status::of(status);
        let connection =
            operations.operated(&mut self.end, scene, token, status, words, bytes.as_ref())?;
        let Some(bytes) = bytes else { return Ok(()) };
        let hold_ns = operations.random.below(self.character.hold_ns_max + 1);
        if hold_ns < MICROSECOND {
            self.end.release(bytes);
        } else {
            let until = scene.now + hold_ns;
            let head = ANSWER_HEAD_BYTES;
            self.held.push_back(Held { until, connection, name: None, head, bytes });
        }
        Ok(())
    }

    /// Looks at all that it shares, once nothing is under way any more.
    pub(crate) fn look(&self, books: &mut OperationBooks, now: Time) -> Result<(), Finding> {
        let Some(estate) = books.estate(self.id) else { return Ok(()) };
        let looked = estate.look(self.end.shared(), now);
        let looked = looked.and_then(|()| estate.check_notices());
        looked.map_err(|what| {
            let text = format!("app {} at the end: {what}", self.id);
            Finding { what: text, hosts: vec![self.character.host] }
        })
    }
}

/// The command that asks, with its payload where `extent` says.
fn command(words: &Words, connection: u64, token: u64, extent: Option<(u32, u32)>) -> Command {
    let Words { kind, region, place, bytes, count, stride, operand, second, .. } = *words;
    match extent {
        Some((offset, length)) => Command::AskWith {
            kind,
            connection,
            token,
            region,
            place,
            offset,
            length,
            operand,
            second,
        },
        None => Command::Ask {
            kind,
            stride,
            connection,
            token,
            region,
            place,
            bytes,
            count,
            operand,
            second,
        },
    }
}
