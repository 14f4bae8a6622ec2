//! Acknowledgements as plain data, and back.

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};

use super::{Acks, RANGES_MAX};
use crate::state::AcksState;

impl Acks {
    pub(crate) fn save(&self) -> AcksState {
        AcksState {
            received: self.received.save(),
            floor: self.floor,
            largest_at: self.largest_at,
            unacknowledged_packets: self.unacknowledged_packets,
            unacknowledged_bytes: self.unacknowledged_bytes,
            due: self.due,
        }
    }

    pub(crate) fn restore(state: AcksState) -> Result<Self, Invalid> {
        let received = RangeSet::restore(state.received, RANGES_MAX)?;
        let first = received.first().map_or(u64::MAX, |range| range.start);
        ensure(state.floor <= first, "packets that are forgotten")?;
        Ok(Self {
            received,
            floor: state.floor,
            largest_at: state.largest_at,
            // They only say when an acknowledgement leaves at once.
            unacknowledged_packets: state.unacknowledged_packets.min(u32::MAX / 2),
            unacknowledged_bytes: state.unacknowledged_bytes.min(u32::MAX / 2),
            due: state.due,
        })
    }
}
