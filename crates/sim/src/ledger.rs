//! The books of all messages: what was sent, what has arrived, and how connections end. It is the
//! oracle: each message arrives at most once, in order unless its receiver has no use for that,
//! intact, and in time; and nothing ends without a reason.

mod direction;

use std::collections::BTreeMap;

use clearway_base::{SECOND, Time};
use clearway_channel::Code;

use crate::Finding;
use crate::content::Name;
use direction::{Direction, Waiting};

/// How long a message may take that nothing stands in the way of.
pub(crate) const DELIVERY_NS_MAX: u64 = 12 * SECOND;
/// How long a connection attempt may take, whatever happens: finding the neighbour, and the
/// handshake.
const CONNECT_NS_MAX: u64 = 12 * SECOND;
/// How long after a fault flows may still be given up for it: the idle timeout and a keep-alive.
pub(crate) const AFTERMATH_NS: u64 = 45 * SECOND;

/// Numbers of streams that are opened with others, to send much at once.
pub(crate) const RACE: u64 = 1 << 62;

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "app {} of host {}", self.app, self.host)
    }
}

/// What a host has had lately, and what that may do to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing got through, or its clock jumped: flows may be given up.
    Silence,
    /// Frames were lost or damaged: attempts to connect may fail.
    Rough,
    /// Not all its apps listened: attempts may be refused.
    Deaf,
    /// An app or all of the daemon died: flows may be reset.
    Death,
}

impl Trouble {
    const COUNT: usize = 4;
}

/// One end of a connection.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) host: u32,
    pub(crate) app: u32,
}

/// How far an end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// The app does not know of it (yet).
    #[default]
    None,
    Open,
    /// The app has closed it in order.
    Closed,
    /// The app has left in good order, and will not be told its end.
    Left,
    /// The app has aborted it, has died, or is a liar; it may end in any way at the other end.
    Abandoned,
    /// The app has been told its end.
    Ended,
}

#[derive(Debug)]
struct Pair {
    ends: [Option<End>; 2],
    stages: [Stage; 2],
    /// By sender: 0 the client.
    directions: [Direction; 2],
    server: u32,
    started: Time,
    /// The end that went first did so in order, or not.
    is_broken: bool,
    /// One of its apps lies.
    is_tainted: bool,
    /// The connection of which it is a stream.
    parent: Option<u64>,
}

/// All connections that are not over.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pairs: BTreeMap<u64, Pair>,
    next: u64,
    troubles: [BTreeMap<u32, Time>; Trouble::COUNT],
    pub(crate) counts: Counts,
}

clearway_base::tally! {
    /// What the apps have seen.
    pub(crate) struct Counts {
        /// Connection attempts.
        connections_attempted,
        /// Of these, streams of others.
        streams_attempted,
        /// Of these, connections opened.
        connections_opened,
        /// Connections whose app left in good order.
        connections_left,
        /// Messages sent.
        messages_sent,
        /// Messages received, and found right.
        messages_received,
        /// Bytes of these.
        bytes_received,
        /// Messages that have come before others that were sent before.
        messages_overtaking,
        /// Priorities that were given to connections and streams.
        priorities_set,
        /// Flows behind a turn, in which somebody had to let the more urgent go first.
        flows_in_order,
        /// Pairs of streams behind a turn, of which both wait and one has a larger share.
        shares_compared,
        /// Buffers that were posted, right and wrong ones.
        buffers_posted,
        /// Of these, those that messages came into.
        messages_placed,
        /// Those that were taken back.
        buffers_cancelled,
        /// Those whose connection ended.
        buffers_ended,
        /// Those that were wrong, or too late.
        buffers_refused,
        /// Connections that ended in order, by end.
        ended_closed,
        /// Connections that were reset, by end.
        ended_reset,
        /// Connections that were given up, by end.
        ended_lost,
        /// Connections whose peer was unreachable, by end.
        ended_unreachable,
        /// Attempts that were refused.
        ended_refused,
        /// Attempts beyond a limit.
        ended_limit,
        /// Frames that have come by virtual interfaces, and were right where bits are not flipped.
        raw_frames_received,
        /// Messages that were dropped since they could not leave in time.
        messages_dropped,
        /// Messages whose connection ended before they arrived.
        messages_abandoned,
        /// The longest that a message was under direction, in ns.
        message_ns_max,
    }
}

impl Ledger {
    /// A client begins to connect to host `server`; the connection's number.
    pub(crate) fn attempt(&mut self, now: Time, client: End, server: u32, is_tainted: bool) -> u64 {
        let number = self.number();
        self.note_attempt(number, now, (client, server), is_tainted);
        number
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn note_attempt(
        &mut self,
        number: u64,
        now: Time,
        (client, server): (End, u32),
        is_tainted: bool,
    ) {
        self.counts.connections_attempted += 1;
        let pair = Pair {
            ends: [Some(client), None],
            stages: [Stage::None; 2],
            directions: Default::default(),
            server,
            started: now,
            is_broken: false,
            is_tainted,
            parent: None,
        };
        self.pairs.insert(number, pair);
    }

    /// The same for a stream of another connection of the client's, of a race or not.
    pub(crate) fn attempt_stream(
        &mut self,
        now: Time,
        parent: u64,
        is_of_race: bool,
    ) -> Option<u64> {
        let pair = self.pairs.get(&parent)?;
        let (client, server, is_tainted) = (pair.ends[0]?, pair.server, pair.is_tainted);
        let number = self.number() | if is_of_race { RACE } else { 0 };
        self.note_attempt(number, now, (client, server), is_tainted);
        self.pairs.get_mut(&number)?.parent = Some(parent);
        self.counts.streams_attempted += 1;
        Some(number)
    }

    /// It is a stream of a connection that has ended or may end.
    fn has_troubled_parent(&self, pair: &Pair) -> bool {
        let is_sound = |parent: &Pair| !parent.is_broken && parent.stages == [Stage::Open; 2];
        pair.parent.is_some_and(|parent| self.pairs.get(&parent).is_none_or(|it| !is_sound(it)))
    }

    /// The client has its connection.
    pub(crate) fn connected(&mut self, number: u64) {
        self.counts.connections_opened += 1;
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.stages[0] = Stage::Open;
        }
    }

    /// The attempt has failed.
    pub(crate) fn failed(&mut self, now: Time, number: u64, code: Code) -> Result<(), Finding> {
        let Some(pair) = self.pairs.remove(&number) else { return Ok(()) };
        self.count_end(code);
        let client = pair.ends[0].map_or(0, |end| end.host);
        let hosts = [client, pair.server];
        let is_fair = match code {
            Code::Refused => {
                self.lately(&[Trouble::Deaf, Trouble::Death], &hosts[1..], now, 2 * CONNECT_NS_MAX)
            }
            Code::Unreachable | Code::Reset => {
                let excuses = [Trouble::Silence, Trouble::Rough, Trouble::Death];
                self.lately(&excuses, &hosts, now, AFTERMATH_NS)
            }
            Code::Limit => true,
            Code::Closed => self.has_troubled_parent(&pair),
            _ => false,
        };
        if is_fair || pair.is_tainted {
            return Ok(());
        }
        let what = format!(
            "connection {number} {:?} failed without a reason: {}",
            pair.ends[0],
            code.name()
        );
        Err(Finding { what, hosts: hosts.to_vec() })
    }

    /// A server has got the first message of a connection, and so knows which it is.
    pub(crate) fn accepted(&mut self, number: u64, server: End) -> Result<(), Finding> {
        let Some(pair) = self.pairs.get_mut(&number) else {
            // The client has gone and the books are closed; what it sent may still arrive.
            return Ok(());
        };
        if pair.is_tainted {
            return Ok(());
        }
        if pair.ends[1].is_some() || pair.server != server.host {
            let text = format!("connection {number} arrives at host {} (again)", server.host);
            return Err(Finding::new(text));
        }
        pair.ends[1] = Some(server);
        pair.stages[1] = Stage::Open;
        Ok(())
    }

    /// The next message that `side` sends has this name.
    pub(crate) fn name(&self, number: u64, side: usize) -> Name {
        let sequence = self.pairs.get(&number).map_or(0, |pair| pair.directions[side].sent());
        Name { connection: number, direction: side, sequence }
    }

    /// `side` has sent a message.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        number: u64,
        side: usize,
        length: u32,
        is_timed: bool,
    ) {
        self.counts.messages_sent += 1;
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.directions[side].send(now, length, is_timed);
        }
    }

    /// `side` has received a message: its name, if it counts.
    pub(crate) fn received(
        &mut self,
        now: Time,
        number: u64,
        side: usize,
        bytes: &[u8],
    ) -> Result<Option<Name>, Finding> {
        let Some(pair) = self.pairs.get_mut(&number) else { return Ok(None) };
        if pair.is_tainted {
            return Ok(None);
        }
        let direction = &mut pair.directions[1 - side];
        let name = |sequence| Name { connection: number, direction: 1 - side, sequence };
        let Some((waiting, overtakes)) = direction.receive(now, name, bytes) else {
            let found = bytes.len();
            let text = format!("connection {number}: {found} bytes come that are not under way");
            return Err(Finding::new(text));
        };
        self.counts.messages_overtaking += u64::from(overtakes);
        let Waiting { sequence, length, sent, .. } = waiting;
        let name = name(sequence);
        if direction.was_dropped(sequence) {
            return Err(Finding::new(format!("{name:?}: a message that was dropped has come")));
        }
        if bytes.len() as u32 != length || !name.is(bytes) {
            let found = bytes.len();
            let text = format!("{name:?}: {length} bytes were sent; {found} came, or others");
            return Err(Finding::new(text));
        }
        self.counts.messages_received += 1;
        self.counts.bytes_received += u64::from(length);
        self.counts.message_ns_max = self.counts.message_ns_max.max(now.since(sent));
        Ok(Some(name))
    }

    /// `side` has heard that the next message to it was dropped.
    pub(crate) fn skipped(&mut self, now: Time, number: u64, side: usize) -> Result<(), Finding> {
        let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.is_tainted) else {
            return Ok(());
        };
        if !pair.directions[1 - side].skip(now) {
            let text = format!("connection {number}: what is next may not be dropped");
            return Err(Finding::new(text));
        }
        self.counts.messages_dropped += 1;
        Ok(())
    }

    /// `side` has given what it sends a priority.
    pub(crate) fn give_priority(&mut self, number: u64, side: usize) {
        self.counts.priorities_set += 1;
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.directions[side].has_priority = true;
        }
    }

    /// `side` takes messages as they come from now on.
    pub(crate) fn give_up_order(&mut self, number: u64, side: usize) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.directions[1 - side].give_up_order();
        }
    }

    /// `side` has heard that this message of its own was dropped.
    pub(crate) fn dropped(&mut self, number: u64, side: usize, send: u32) -> Result<(), Finding> {
        let Some(pair) = self.pairs.get_mut(&number).filter(|pair| !pair.is_tainted) else {
            return Ok(());
        };
        if !pair.directions[side].drop(send) {
            let text = format!("connection {number}: message {send} has come, and was dropped");
            return Err(Finding::new(text));
        }
        Ok(())
    }

    /// `side` closes in order.
    pub(crate) fn close(&mut self, number: u64, side: usize) {
        self.go(number, side, Stage::Closed);
    }

    /// The app at `side` leaves in good order: the other end gets all of it, and then a close. What
    /// the other end cannot name yet, since nothing has come, is out of the books.
    pub(crate) fn leave(&mut self, number: u64, side: usize) {
        let Some(pair) = self.pairs.get(&number) else { return };
        match pair.ends[1].is_some() {
            true => {
                self.counts.connections_left += 1;
                self.go(number, side, Stage::Left);
            }
            false => self.go(number, side, Stage::Abandoned),
        }
    }

    /// `side` aborts, or its app dies.
    pub(crate) fn abandon(&mut self, number: u64, side: usize) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.is_broken = true;
        }
        self.go(number, side, Stage::Abandoned);
    }

    /// Nothing that happens to this connection is anybody's fault but its app's.
    pub(crate) fn taint(&mut self, number: u64) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.is_tainted = true;
        }
    }

    /// The connection may be reset, and nobody is to blame.
    pub(crate) fn excuse(&mut self, number: u64) {
        if let Some(pair) = self.pairs.get_mut(&number) {
            pair.is_broken = true;
        }
    }

    /// True if what happens to this connection counts.
    pub(crate) fn is_sound(&self, number: u64) -> bool {
        self.pairs.get(&number).is_some_and(|pair| !pair.is_tainted)
    }

    fn go(&mut self, number: u64, side: usize, stage: Stage) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        if pair.stages[side] != Stage::Ended {
            pair.stages[side] = stage;
        }
        self.forget_ended(number);
    }

    /// The app at `side` has been told that the connection is over.
    pub(crate) fn ended(
        &mut self,
        now: Time,
        number: u64,
        side: usize,
        code: Code,
    ) -> Result<(), Finding> {
        self.count_end(code);
        let Some(pair) = self.pairs.get(&number) else { return Ok(()) };
        let (is_stream, was_taken_along) = (pair.parent.is_some(), self.has_troubled_parent(pair));
        let Some(pair) = self.pairs.get_mut(&number) else { return Ok(()) };
        let (own, other) = (pair.stages[side], pair.stages[1 - side]);
        pair.stages[side] = Stage::Ended;
        let missing = pair.directions[1 - side].missing();
        let is_tainted = pair.is_tainted;
        let is_broken = pair.is_broken || was_taken_along;
        let mut hosts: Vec<u32> = pair.ends.iter().flatten().map(|end| end.host).collect();
        hosts.push(pair.server);
        if code != Code::Closed {
            pair.is_broken = true;
        }
        self.forget_ended(number);
        if is_tainted {
            return Ok(());
        }
        let was_silent =
            self.lately(&[Trouble::Silence, Trouble::Death], &hosts, now, AFTERMATH_NS);
        let is_fair = match code {
            Code::Closed => own != Stage::Open || other != Stage::Open,
            // The last acknowledgement may be lost for longer than the other end remembers the
            // flow.
            Code::Reset if own == Stage::Closed && matches!(other, Stage::Ended | Stage::Left) => {
                was_silent || is_broken || self.lately(&[Trouble::Rough], &hosts, now, AFTERMATH_NS)
            }
            Code::Reset => is_broken || was_silent,
            Code::Lost | Code::Unreachable => was_silent,
            // Its peer's app has no room for it.
            Code::Refused => is_stream && other == Stage::None,
            _ => false,
        };
        if !is_fair {
            let text = format!(
                "connection {number} ends at side {side} without a reason: {} ({own:?}, {other:?})",
                code.name()
            );
            return Err(Finding::new(text));
        }
        // What was sent before an orderly end has arrived, unless this end wanted no more.
        if code == Code::Closed && own == Stage::Open && missing > 0 && !is_broken {
            let text = format!("connection {number} is closed, but {missing} messages are missing");
            return Err(Finding::new(text));
        }
        Ok(())
    }

    /// What is over for both ends needs no books.
    fn forget_ended(&mut self, number: u64) {
        let is_over = |stage: Stage| matches!(stage, Stage::Left | Stage::Abandoned | Stage::Ended);
        let Some(pair) = self.pairs.get(&number) else { return };
        let [client, server] = pair.stages;
        if is_over(client) && (is_over(server) || pair.ends[1].is_none()) {
            let left: usize = pair.directions.iter().map(Direction::waiting).sum();
            self.counts.messages_abandoned += left as u64;
            self.pairs.remove(&number);
        }
    }

    /// A host has trouble at `now`.
    pub(crate) fn note(&mut self, trouble: Trouble, host: u32, now: Time) {
        self.troubles[trouble as usize].insert(host, now);
    }

    /// True if one of the hosts has had one of the troubles within `span_ns`.
    pub(crate) fn lately(
        &self,
        troubles: &[Trouble],
        hosts: &[u32],
        now: Time,
        span_ns: u64,
    ) -> bool {
        let had = |trouble: &Trouble, host: &u32| self.troubles[*trouble as usize].get(host);
        let is_late = |at: &Time| now.since(*at) < span_ns;
        troubles
            .iter()
            .any(|trouble| hosts.iter().any(|host| had(trouble, host).is_some_and(is_late)))
    }

    /// Nothing has been wrong since `calm`: is everything delivered in time?
    pub(crate) fn check_delivery(&self, now: Time, calm: Time) -> Result<(), Finding> {
        for (number, pair) in self.pairs.iter().filter(|(_, pair)| !pair.is_tainted) {
            if pair.is_broken || pair.stages[0] == Stage::None {
                continue;
            }
            for (side, direction) in pair.directions.iter().enumerate() {
                let Some(Waiting { length, sent, .. }) = direction.first_due() else { continue };
                let since = direction.progress.max(*sent).max(calm);
                let wants = matches!(pair.stages[1 - side], Stage::Open | Stage::None);
                let is_late = |since: Time| now.since(since) > DELIVERY_NS_MAX;
                if wants && is_late(since) && is_late(self.progress_before(pair, side)) {
                    let text = format!(
                        "connection {number}, direction {side}: a message of {length} bytes waits \
                         for {} s ({:?}, {:?}), with {} behind it",
                        now.since(since) / SECOND,
                        pair.ends,
                        pair.stages,
                        direction.waiting() - 1
                    );
                    let hosts = pair.ends.iter().flatten().map(|end| end.host);
                    return Err(Finding { what: text, hosts: hosts.collect() });
                }
            }
        }
        Ok(())
    }

    /// When something has come the same way that may go first: by a connection with a priority
    /// between the same hosts.
    fn progress_before(&self, pair: &Pair, side: usize) -> Time {
        let hosts = |pair: &Pair| (pair.ends[0].map(|end| end.host), pair.server);
        let others = self.pairs.values().filter(|other| hosts(other) == hosts(pair));
        let others = others.map(|other| &other.directions[side]);
        let others = others.filter(|direction| direction.has_priority);
        others.map(|direction| direction.progress).max().unwrap_or_default()
    }

    /// No attempt takes for ever.
    pub(crate) fn check_attempts(
        &self,
        now: Time,
        is_down: impl Fn(u32) -> bool,
    ) -> Result<(), Finding> {
        for (number, pair) in &self.pairs {
            let host = pair.ends[0].map_or(0, |end| end.host);
            let waits = pair.stages[0] == Stage::None && !is_down(host) && !pair.is_tainted;
            if waits && now.since(pair.started) > 2 * CONNECT_NS_MAX {
                let text = format!("connection {number} has been opening since {:?}", pair.started);
                return Err(Finding::new(text));
            }
        }
        Ok(())
    }

    /// Connections that are not over.
    pub(crate) fn open(&self) -> usize {
        self.pairs.len()
    }

    /// Some of the connections that are not over, for a report.
    pub(crate) fn describe_open(&self) -> String {
        self.pairs
            .iter()
            .take(3)
            .map(|(number, pair)| {
                format!(
                    "{number}: {:?} {:?} broken {} waiting {:?}",
                    pair.ends,
                    pair.stages,
                    pair.is_broken,
                    pair.directions.each_ref().map(Direction::waiting)
                )
            })
            .collect::<Vec<_>>()
            .join("; ")
    }

    fn count_end(&mut self, code: Code) {
        match code {
            Code::Closed => self.counts.ended_closed += 1,
            Code::Reset => self.counts.ended_reset += 1,
            Code::Lost => self.counts.ended_lost += 1,
            Code::Unreachable => self.counts.ended_unreachable += 1,
            Code::Refused => self.counts.ended_refused += 1,
            Code::Limit => self.counts.ended_limit += 1,
            _ => {}
        }
    }
}
