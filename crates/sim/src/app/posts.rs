//! Buffers that an app posts behind its connections: right ones, wrong ones, and some that it takes
//! back. Each has one end, which has a reason; what no message came into is as it was; and nobody
//! writes into one that is the app's again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use clearway_base::{MILLISECOND, Random, Time};
use clearway_channel::{
    AppEnd, CHANNEL_MEMORY, Command, MESSAGE_BYTES_MAX, POSTS_PER_CONNECTION_MAX,
    SMALL_MESSAGE_BYTES_MAX, Unposted,
};

use super::{Scene, Talk};
use crate::Finding;
use crate::ledger::Ledger;

/// Buffers that had their ends and are looked at again, at most.
const ENDED_MAX: usize = 8;
/// Bytes of the marks at both ends of a buffer.
const MARK_BYTES: u64 = 8;

/// Where the app's posted buffers are in its shared memory: behind what it shares.
pub(super) fn area_bytes(is_large: bool) -> u32 {
    if is_large { MESSAGE_BYTES_MAX } else { 128 << 10 }
}

/// A posted buffer.
#[derive(Clone, Debug)]
struct Post {
    connection: u64,
    place: Range<u64>,
    /// It is to be refused for this reason.
    wrong: Option<Unposted>,
    /// The app wants it back.
    is_cancelled: bool,
    /// Its connection had ended before the engine saw it.
    is_late: bool,
}

/// All of an app.
pub(super) struct Posts {
    app: u32,
    area: Range<u64>,
    outstanding: BTreeMap<u64, Post>,
    /// Tags and places of buffers that had their ends, and a mark that nobody is to touch.
    ended: VecDeque<(u64, Range<u64>)>,
    /// Connections that are about to end, as the ends of their buffers say.
    ending: BTreeSet<u64>,
    tags: u64,
    next_act: Time,
    random: Random,
}

impl Posts {
    pub(super) fn new(app: u32, area: Range<u64>, seed: u64) -> Self {
        Self {
            app,
            area,
            outstanding: BTreeMap::new(),
            ended: VecDeque::new(),
            ending: BTreeSet::new(),
            tags: 0,
            next_act: Time::ZERO,
            random: Random::new(seed.rotate_left(17)),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// When it wants to do something by itself.
    pub(super) fn next_at(&self, talks: &BTreeMap<u64, Talk>, scene: &Scene<'_>) -> Option<Time> {
        let has_open = talks.values().any(|talk| !talk.is_closing);
        (has_open && !scene.is_ending).then_some(self.next_act)
    }

    /// Posts a buffer, or takes one back.
    pub(super) fn act(
        &mut self,
        end: &mut AppEnd,
        talks: &BTreeMap<u64, Talk>,
        pause_ns: u64,
        scene: &mut Scene<'_>,
    ) -> Result<(), Finding> {
        let open = talks.iter().filter(|(_, talk)| !talk.is_closing);
        let open: Vec<u64> = open.map(|(connection, _)| *connection).collect();
        if scene.is_ending || open.is_empty() || scene.now < self.next_act || !end.has_room() {
            return Ok(());
        }
        self.check_ended(end)?;
        self.next_act = scene.now + self.random.below(8 * pause_ns) + MILLISECOND / 10;
        let connection = open[self.random.below(open.len() as u64) as usize];
        match self.random.below(16) {
            0 => self.cancel(end, scene),
            _ if self.are_many(connection) => {}
            1 => self.post_wrong(end, connection, scene),
            _ => self.post(end, connection, scene),
        }
        Ok(())
    }

    /// As many are posted behind a connection as may be.
    fn are_many(&self, connection: u64) -> bool {
        let of_connection = self.outstanding.values().filter(|it| it.connection == connection);
        of_connection.count() >= POSTS_PER_CONNECTION_MAX as usize
    }

    fn cancel(&mut self, end: &mut AppEnd, scene: &mut Scene<'_>) {
        let nth = self.random.below(1 + self.outstanding.len() as u64) as usize;
        let Some((tag, post)) = self.outstanding.iter_mut().nth(nth) else { return };
        let (connection, tag) = (post.connection, *tag);
        post.is_cancelled = end.submit(&Command::Unpost { connection, tag }).is_ok();
        scene.trace.add(&[16, self.app.into(), tag]);
    }

    /// Any free piece of the area: the sizes are those of messages.
    fn post(&mut self, end: &mut AppEnd, connection: u64, scene: &mut Scene<'_>) {
        let all = self.area.end - self.area.start;
        let least = u64::from(SMALL_MESSAGE_BYTES_MAX) + 1;
        let bytes_max = (all >> self.random.below(8)).max(least);
        let bytes = least + self.random.below(bytes_max - least + 1);
        let start = self.area.start + self.random.below(all - bytes + 1);
        let place = start..start + bytes;
        if self.is_used(&place) {
            return;
        }
        self.ended.retain(|(_, ended)| !overlap(ended, &place));
        let mark = (self.tags + 1).to_le_bytes();
        for at in [place.start, place.end - MARK_BYTES] {
            assert!(end.shared().write(at, &mark), "it is in the area");
        }
        self.submit(end, connection, (CHANNEL_MEMORY, place), None, scene);
    }

    fn is_used(&self, place: &Range<u64>) -> bool {
        let mut right = self.outstanding.values().filter(|post| post.wrong.is_none());
        right.any(|post| overlap(&post.place, place))
    }

    /// One that is to be refused.
    fn post_wrong(&mut self, end: &mut AppEnd, connection: u64, scene: &mut Scene<'_>) {
        let (memory, least) = (CHANNEL_MEMORY, u64::from(SMALL_MESSAGE_BYTES_MAX) + 1);
        let end_of_area = self.area.end;
        let (memory, place, wrong) = match self.random.below(3) {
            0 => (memory + 1 + self.random.below(9), 0..least, Unposted::NoMemory),
            1 => {
                let start = end_of_area - self.random.below(least);
                (memory, start..start + least, Unposted::OutOfBounds)
            }
            _ => {
                let bytes = self.random.below(least);
                (memory, 0..bytes, Unposted::Size)
            }
        };
        self.submit(end, connection, (memory, place), Some(wrong), scene);
    }

    fn submit(
        &mut self,
        end: &mut AppEnd,
        connection: u64,
        (memory, place): (u64, Range<u64>),
        wrong: Option<Unposted>,
        scene: &mut Scene<'_>,
    ) {
        self.tags += 1;
        let (tag, start, bytes) = (self.tags, place.start, place.end - place.start);
        if end.submit(&Command::Post { connection, tag, memory, start, bytes }).is_ok() {
            scene.trace.add(&[17, self.app.into(), tag, start, bytes]);
            scene.ledger.counts.buffers_posted += 1;
            let post = Post { connection, place, wrong, is_cancelled: false, is_late: false };
            self.outstanding.insert(tag, post);
        }
    }

    /// A message has come into a buffer: its bytes.
    pub(super) fn placed(
        &mut self,
        end: &AppEnd,
        (connection, tag): (u64, u64),
        length: u32,
        ledger: &mut Ledger,
    ) -> Result<Vec<u8>, Finding> {
        let post = self.take(connection, tag)?;
        let length = u64::from(length);
        let fits = u64::from(SMALL_MESSAGE_BYTES_MAX) < length
            && length <= post.place.end - post.place.start;
        if !fits || post.wrong.is_some() || post.is_late {
            return Err(self.finding(&format!("{length} bytes have come into {post:?}")));
        }
        if length <= post.place.end - post.place.start - MARK_BYTES {
            self.check_mark(end, post.place.end - MARK_BYTES, tag)?;
        }
        let mut bytes = vec![0; length as usize];
        assert!(end.shared().read(post.place.start, &mut bytes), "it is in the area");
        self.note_ended(end, tag, post.place);
        ledger.counts.messages_placed += 1;
        Ok(bytes)
    }

    /// A buffer is the app's again, and there is no message in it.
    pub(super) fn unposted(
        &mut self,
        end: &AppEnd,
        (connection, tag): (u64, u64),
        why: Unposted,
        talks: &BTreeMap<u64, Talk>,
        ledger: &mut Ledger,
    ) -> Result<(), Finding> {
        let post = self.take(connection, tag)?;
        let is_open = talks.get(&connection).is_some_and(|talk| !talk.is_closing);
        let is_fair = match why {
            Unposted::Cancelled => post.is_cancelled && post.wrong.is_none() && !post.is_late,
            Unposted::Ended => post.wrong.is_none() && !post.is_late,
            Unposted::NoConnection => !is_open,
            other => post.wrong == Some(other),
        };
        if !is_fair {
            return Err(self.finding(&format!("{post:?} has the end {why:?}")));
        }
        match why {
            Unposted::Cancelled => ledger.counts.buffers_cancelled += 1,
            Unposted::Ended => ledger.counts.buffers_ended += 1,
            _ => ledger.counts.buffers_refused += 1,
        }
        if why == Unposted::Ended && is_open {
            self.ending.insert(connection);
        }
        if post.wrong.is_none() {
            if why != Unposted::Ended {
                self.check_mark(end, post.place.start, tag)?;
                self.check_mark(end, post.place.end - MARK_BYTES, tag)?;
            }
            self.note_ended(end, tag, post.place);
        }
        Ok(())
    }

    /// A connection has ended: what is still posted there the engine has not seen.
    pub(super) fn closed(&mut self, connection: u64) {
        self.ending.remove(&connection);
        let of_connection = self.outstanding.values_mut().filter(|it| it.connection == connection);
        of_connection.for_each(|post| post.is_late = true);
    }

    /// All have had their ends.
    pub(super) fn check_rest(&self) -> Result<(), Finding> {
        if self.outstanding.is_empty() && self.ending.is_empty() {
            return Ok(());
        }
        let (outstanding, ending) = (&self.outstanding, &self.ending);
        Err(self.finding(&format!("{outstanding:?} have no end, or {ending:?} have not ended")))
    }

    fn take(&mut self, connection: u64, tag: u64) -> Result<Post, Finding> {
        let post = self.outstanding.remove(&tag).filter(|post| post.connection == connection);
        post.ok_or_else(|| self.finding(&format!("buffer {tag} of {connection:x} is not posted")))
    }

    /// Nobody is to write into a buffer that is the app's again.
    fn note_ended(&mut self, end: &AppEnd, tag: u64, place: Range<u64>) {
        assert!(end.shared().write(place.start, &(!tag).to_le_bytes()), "it is in the area");
        self.ended.push_back((tag, place));
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    fn check_ended(&self, end: &AppEnd) -> Result<(), Finding> {
        let mut ended = self.ended.iter();
        ended.try_for_each(|(tag, place)| self.check_mark(end, place.start, !tag))
    }

    fn check_mark(&self, end: &AppEnd, at: u64, mark: u64) -> Result<(), Finding> {
        let mut found = [0; MARK_BYTES as usize];
        assert!(end.shared().read(at, &mut found), "it is in the area");
        if found == mark.to_le_bytes() {
            return Ok(());
        }
        Err(self.finding(&format!("somebody has written at {at}, where {mark:x} was")))
    }

    fn finding(&self, what: &str) -> Finding {
        Finding::new(format!("app {}: posted buffers: {what}", self.app))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
