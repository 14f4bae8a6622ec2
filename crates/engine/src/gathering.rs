//! Frames on their way into apps: gathered into bursts, one per VIF and turn as a rule, so that one
//! entry of the ring and one buffer serve many.

use clearway_channel::BurstBuffer;
use clearway_channel::burst::{FrameInfo, is_frame_length, packed_bytes};

use crate::channels::Channel;

/// The owner tag of buffers with frames: no connection has it.
const FRAMES_TAG: u32 = u32::MAX;
/// The largest burst, in bytes, but for one of a single frame that takes more: a slab of the pool.
const BURST_BYTES_MAX: u32 = 64 << 10;

/// The burst that is being gathered for one VIF or capture.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    burst: Option<BurstBuffer>,
    /// Bytes of frames that came in this turn so far.
    bytes: u32,
    /// As many as came in the last turn that had any: how large the first buffer of the next is.
    expected_bytes: u32,
}

impl Gathering {
    /// Adds a frame. False if the app has no room for it; then it is lost.
    #[inline]
    pub(crate) fn add(
        &mut self,
        channel: &mut Channel,
        vif: u32,
        info: FrameInfo,
        frame: &[u8],
    ) -> bool {
        let length = frame.len() as u32; // a frame is no longer than a NIC's
        if self.burst.as_ref().is_none_or(|burst| !burst.has_room(length)) {
            self.finish(channel, vif);
            if !is_frame_length(length) || !channel.may_tell() || !channel.has_half_its_memory() {
                return false;
            }
            let bytes = self.expected_bytes.min(BURST_BYTES_MAX).max(packed_bytes(length));
            self.burst = channel.end.allocate_burst(bytes, FRAMES_TAG);
        }
        let Some(burst) = &mut self.burst else { return false };
        channel.end.append_frame(burst, info, frame);
        self.bytes = self.bytes.saturating_add(packed_bytes(length));
        true
    }

    /// True if frames have come in this turn.
    pub(crate) fn has_some(&self) -> bool {
        self.bytes > 0
    }

    /// Hands the burst over, if there is one.
    pub(crate) fn finish(&mut self, channel: &mut Channel, vif: u32) {
        if let Some(burst) = self.burst.take() {
            channel.tell(burst.completion(vif));
        }
    }

    /// Throws away what was gathered.
    pub(crate) fn discard(&mut self, channel: &mut Channel) {
        if let Some(burst) = self.burst.take() {
            channel.end.discard(burst.id());
        }
    }

    /// The turn is over.
    pub(crate) fn end_turn(&mut self, channel: &mut Channel, vif: u32) {
        self.finish(channel, vif);
        self.expected_bytes = core::mem::take(&mut self.bytes);
    }
}
