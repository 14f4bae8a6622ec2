//! Captures: copies of what passes, for people. Nothing of this is on the way of a packet while
//! nobody captures.

mod state;

use clearway_base::Time;
use clearway_channel::burst::{FrameInfo, Point};
use clearway_channel::{Code, Completion, FrameRefusal};
use clearway_classify::Filter;
use clearway_transport::Owner;
use clearway_wire::digest::Digest;

use crate::channels::{Channel, Channels};
use crate::gathering::Gathering;
use crate::lanes::{Lanes, What};
use crate::snapshot::CaptureSnapshot;
use crate::switch::VifKey;

/// What a capture wants to see.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// One of these has to match; everything does if there are none.
    pub filter: Vec<Filter>,
    /// Only what concerns this channel's app: frames for it, or from it.
    pub app: Option<u32>,
    /// Only what concerns this connection of it, by the app's own number for it.
    pub connection: Option<u64>,
}

/// An app that a frame concerns, and its connection if it is a packet of messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    pub(crate) channel: u32,
    pub(crate) connection: Option<u64>,
}

impl Party {
    pub(crate) const fn of_vif(vif: VifKey) -> Self {
        Self { channel: vif.channel(), connection: None }
    }

    /// The app of a connection of messages.
    pub(crate) fn of_connection(channels: &Channels, owner: Owner) -> Self {
        let Owner { channel, connection } = owner;
        let connection = channels.peek(channel).map(|app| app.id(connection));
        Self { channel, connection }
    }
}

/// A frame as captures see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) digest: &'a Digest,
    pub(crate) is_outgoing: bool,
    pub(crate) point: Point,
    /// Whom it concerns.
    pub(crate) party: Option<Party>,
    pub(crate) refusal: Option<FrameRefusal>,
    /// It was shown before to all who do not ask whom it concerns.
    pub(crate) is_again: bool,
}

impl<'a> Sighting<'a> {
    /// A frame on its way out.
    pub(crate) const fn sent(
        frame: &'a [u8],
        digest: &'a Digest,
        point: Point,
        party: Option<Party>,
    ) -> Self {
        let (is_outgoing, refusal, is_again) = (true, None, false);
        Self { frame, digest, is_outgoing, point, party, refusal, is_again }
    }

    /// A frame that was refused on its way out.
    pub(crate) const fn turned_away(
        frame: &'a [u8],
        digest: &'a Digest,
        party: Option<Party>,
        refusal: FrameRefusal,
    ) -> Self {
        let sent = Self::sent(frame, digest, Point::Refused, party);
        Self { refusal: Some(refusal), ..sent }
    }

    /// A frame on its way in.
    pub(crate) const fn received(
        frame: &'a [u8],
        digest: &'a Digest,
        point: Point,
        party: Option<Party>,
    ) -> Self {
        Self { is_outgoing: false, ..Self::sent(frame, digest, point, party) }
    }
}

/// All captures that this engine knows.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    captures: Vec<Capture>,
}

impl Captures {
    /// True if somebody captures.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.captures.is_empty()
    }

    /// Begins to copy what passes to a channel, of this engine or, as that is noted, of another.
    pub(crate) fn open(&mut self, engine: Option<usize>, channel: u32, id: u32, spec: CaptureSpec) {
        self.captures.push(Capture::new(channel, id, spec, engine));
    }

    /// Ends a capture, of this engine or of another, and tells its app why if there is something to
    /// tell.
    pub(crate) fn close(
        &mut self,
        channels: &mut Channels,
        channel: u32,
        id: u32,
        told: Option<Code>,
    ) {
        let index = self.captures.iter().position(|capture| capture.is(channel, id));
        let Some(mut capture) = index.map(|index| self.captures.remove(index)) else { return };
        let Some(app) = channels.channel(channel) else { return };
        capture.gathering.discard(app);
        if let Some(code) = told {
            app.tell(Completion::VifClosed { vif: id, code });
        }
    }

    /// The channel's app is gone, and its captures go with it.
    pub(crate) fn remove_channel(&mut self, channel: u32) {
        self.captures.retain(|capture| capture.channel != channel);
    }

    /// Shows captures what passes.
    #[cold]
    pub(crate) fn show(
        &mut self,
        channels: &mut Channels,
        lanes: &mut Lanes,
        now: Time,
        sighting: &Sighting<'_>,
    ) {
        for capture in self.captures.iter_mut().filter(|capture| capture.wants(sighting)) {
            capture.show(channels, lanes, now, sighting);
        }
    }

    /// Shows a capture of this engine a frame that another engine has seen.
    pub(crate) fn show_of_sibling(
        &mut self,
        channels: &mut Channels,
        (channel, id): (u32, u32),
        info: FrameInfo,
        frame: &[u8],
    ) {
        let capture = self.captures.iter_mut().find(|capture| capture.is(channel, id));
        if let Some(capture) = capture.filter(|capture| capture.is_own())
            && let Some(app) = channels.channel(channel)
        {
            capture.add(app, info, frame);
        }
    }

    /// Hands over what was gathered.
    #[inline]
    pub(crate) fn end_turn(&mut self, channels: &mut Channels) {
        if self.any() {
            self.end_turn_of_all(channels);
        }
    }

    #[cold]
    fn end_turn_of_all(&mut self, channels: &mut Channels) {
        for capture in self.captures.iter_mut().filter(|capture| capture.gathering.has_some()) {
            if let Some(app) = channels.channel(capture.channel) {
                capture.gathering.end_turn(app, capture.id);
            }
        }
    }

    /// Those of this engine that are going on.
    pub(crate) fn snapshot(&self) -> Vec<CaptureSnapshot> {
        self.captures.iter().filter(|capture| capture.is_own()).map(Capture::snapshot).collect()
    }
}

/// A capture that is going on.
#[derive(Debug)]
struct Capture {
    channel: u32,
    id: u32,
    gathering: Gathering,
    spec: CaptureSpec,
    /// The engine whose it is, if that is another one of the NIC.
    sibling: Option<usize>,
    /// Frames that were shown.
    shown: u64,
    /// Frames that there was no room for.
    dropped: u64,
}

impl Capture {
    fn new(channel: u32, id: u32, spec: CaptureSpec, sibling: Option<usize>) -> Self {
        Self { channel, id, gathering: Gathering::default(), spec, sibling, shown: 0, dropped: 0 }
    }

    /// Whether a channel knows it by this id.
    fn is(&self, channel: u32, id: u32) -> bool {
        (self.channel, self.id) == (channel, id)
    }

    /// True if it is this engine's.
    fn is_own(&self) -> bool {
        self.sibling.is_none()
    }

    fn wants(&self, sighting: &Sighting<'_>) -> bool {
        let filters = &self.spec.filter;
        let (app, connection) = (self.spec.app, self.spec.connection);
        let party = sighting.party;
        (app.is_some() || !sighting.is_again)
            && app.is_none_or(|app| party.is_some_and(|party| party.channel == app))
            && (connection.is_none() || party.is_some_and(|party| party.connection == connection))
            && (filters.is_empty() || filters.iter().any(|filter| filter.matches(sighting.digest)))
    }

    /// Shows what it wants to see, here or at the engine whose it is.
    fn show(
        &mut self,
        channels: &mut Channels,
        lanes: &mut Lanes,
        now: Time,
        sighting: &Sighting<'_>,
    ) {
        let info = FrameInfo::captured(
            now.as_ns(),
            sighting.is_outgoing,
            sighting.point,
            sighting.party.map(|party| party.channel),
            sighting.refusal,
        );
        if let Some(engine) = self.sibling {
            let what = What::Sighting { capture: (self.channel, self.id), info };
            lanes.push(engine, what, sighting.frame);
        } else if let Some(app) = channels.channel(self.channel) {
            self.add(app, info, sighting.frame);
        }
    }

    /// Gives the app a frame. What there is no room for is lost, and counted.
    fn add(&mut self, app: &mut Channel, info: FrameInfo, frame: &[u8]) {
        if self.gathering.add(app, self.id, info, frame) {
            self.shown += 1;
        } else {
            self.dropped += 1;
        }
    }

    fn snapshot(&self) -> CaptureSnapshot {
        CaptureSnapshot {
            vif: self.id,
            channel: self.channel,
            frames: self.shown,
            frames_dropped: self.dropped,
        }
    }
}

#[cfg(test)]
mod tests;
