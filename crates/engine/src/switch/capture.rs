//! Captures: copies of what passes, for people. Nothing of this is on the way of a packet while
//! nobody captures.

use clearway_base::Time;
use clearway_channel::FrameRefusal;
use clearway_channel::burst::{FrameInfo, Point};
use clearway_classify::Filter;
use clearway_wire::digest::Digest;

use super::gathering::Gathering;
use super::table::VifKey;
use crate::channels::{Channel, Channels};
use crate::lanes::{Lanes, What};
use crate::snapshot::CaptureSnapshot;

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
}

/// A frame as captures see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) digest: &'a Digest,
    pub(crate) is_outgoing: bool,
    pub(crate) point: Point,
    /// Whom it concerns: on the wire, too, whose it will be or was.
    pub(crate) party: Option<Party>,
    pub(crate) refusal: Option<FrameRefusal>,
    /// Another engine has shown it to all who do not ask whom it concerns.
    pub(crate) is_again: bool,
}

/// A capture that is going on.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) channel: u32,
    pub(super) id: u32,
    pub(super) gathering: Gathering,
    spec: CaptureSpec,
    /// The engine whose it is, if that is another one of the NIC.
    sibling: Option<usize>,
    /// Frames that were shown.
    shown: u64,
    /// Frames that there was no room for.
    dropped: u64,
}

impl Capture {
    pub(super) fn new(channel: u32, id: u32, spec: CaptureSpec, sibling: Option<usize>) -> Self {
        Self { channel, id, gathering: Gathering::default(), spec, sibling, shown: 0, dropped: 0 }
    }

    /// Whether a channel knows it by this id.
    pub(super) fn is(&self, channel: u32, id: u32) -> bool {
        (self.channel, self.id) == (channel, id)
    }

    /// True if it is this engine's.
    pub(super) fn is_own(&self) -> bool {
        self.sibling.is_none()
    }

    pub(super) fn wants(&self, sighting: &Sighting<'_>) -> bool {
        let filters = &self.spec.filter;
        let (app, connection) = (self.spec.app, self.spec.connection);
        let party = sighting.party;
        (app.is_some() || !sighting.is_again)
            && app.is_none_or(|app| party.is_some_and(|party| party.channel == app))
            && (connection.is_none() || party.is_some_and(|party| party.connection == connection))
            && (filters.is_empty() || filters.iter().any(|filter| filter.matches(sighting.digest)))
    }

    /// Shows what it wants to see, here or at the engine whose it is.
    pub(super) fn show(
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
    pub(super) fn add(&mut self, app: &mut Channel, info: FrameInfo, frame: &[u8]) {
        if self.gathering.add(app, self.id, info, frame) {
            self.shown += 1;
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn snapshot(&self) -> CaptureSnapshot {
        CaptureSnapshot {
            vif: self.id,
            channel: self.channel,
            frames: self.shown,
            frames_dropped: self.dropped,
        }
    }
}
