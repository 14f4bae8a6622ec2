//! What a VIF may send, frame by frame. How much, its rate says (`frames/vif.rs`).

use clearway_channel::FrameRefusal;
use clearway_classify::directory::EntryId;
use clearway_wire::digest::Digest;

use super::super::refusal;
use super::{Reach, Switch};

impl Switch {
    /// Whether the VIF with this entry may send a frame with this digest.
    #[inline]
    pub(crate) fn check(&self, entry: EntryId, digest: &Digest) -> Result<(), FrameRefusal> {
        if self.directory.may_send(entry, digest) {
            return Ok(());
        }
        let fault = self.directory.send_fault(entry, digest);
        Err(fault.map_or(FrameRefusal::Other, refusal::of_fault))
    }

    /// Which frames the VIF with this entry may send that can only be for the NIC, one bit each
    /// from the lowest.
    #[inline]
    pub(crate) fn clear_for_wire(&self, entry: EntryId, digests: &[Digest]) -> u32 {
        let sends = self.directory.sends(entry);
        digests.iter().enumerate().fold(0, |clear, (index, digest)| {
            let is_clear = sends.iter().any(|clause| clause.matches(digest))
                && self.reach(digest) == Reach::Wire;
            clear | u32::from(is_clear) << index
        })
    }
}
