//! What a VIF may send, frame by frame.

use clearway_base::Time;
use clearway_channel::FrameRefusal;
use clearway_wire::digest::Digest;

use super::super::refusal;
use super::{Destination, Switch, VifKey};

impl Switch {
    /// Whether a VIF may send a frame with this digest.
    #[inline]
    pub(crate) fn check(
        &mut self,
        now: Time,
        key: VifKey,
        digest: &Digest,
    ) -> Result<(), FrameRefusal> {
        let Some(vif) = self.vifs.get_mut(key.slot()).and_then(Option::as_mut) else {
            return Err(FrameRefusal::Nothing);
        };
        let entry = vif.entry;
        if !self.directory.may_send(entry, digest) {
            let fault = self.directory.send_fault(entry, digest);
            return Err(fault.map_or(FrameRefusal::Other, refusal::of_fault));
        }
        vif.take_rate(now)
    }

    /// Which frames of a VIF may be sent and can only be for the NIC, one bit each from the lowest:
    /// all that there is to say about them while nobody watches and no rate is to be kept.
    #[inline]
    pub(crate) fn clear_for_wire(&self, key: VifKey, digests: &[Digest]) -> u32 {
        let vif = self.vifs.get(key.slot()).and_then(Option::as_ref);
        let Some(vif) = vif.filter(|vif| !vif.has_rate() && !self.is_watched()) else { return 0 };
        let sends = self.directory.sends(vif.entry);
        digests.iter().enumerate().fold(0, |clear, (index, digest)| {
            let is_clear = sends.iter().any(|clause| clause.matches(digest))
                && self.destination(digest) == Destination::Wire;
            clear | u32::from(is_clear) << index
        })
    }
}
