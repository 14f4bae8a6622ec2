//! The headers that each flow's packets come with, as long as they stay the same: then it is known
//! whose a frame is, and what is in it, without its digest and the switch's table.
//!
//! Messages come before all others in the table, so that no virtual interface changes that; what
//! the host's services have does, and its addresses: [`Heads::forget`]. Only flows that are at hand
//! are known ([`Messages::fetches`](super::Messages::fetches)): else a burst had better fetch the
//! state of all its packets at once.

use clearway_transport::{Endpoint, FlowKey};

use crate::ip::{Datagram, Head};

/// By the slot of the flow.
#[derive(Debug, Default)]
pub(super) struct Heads(Vec<Option<(FlowKey, Head)>>);

impl Heads {
    /// The data packet of a flow of this engine in a frame in IPv4 that looks like the one before.
    #[inline]
    pub(super) fn find_v4<'a>(&self, frame: &'a [u8]) -> Option<Datagram<'a>> {
        self.at(frame, Head::LENGTH_V4)?.datagram_v4(frame)
    }

    /// The same in IPv6. `is_verified`: its checksum is known to be right.
    #[inline]
    pub(super) fn find_v6<'a>(&self, frame: &'a [u8], is_verified: bool) -> Option<Datagram<'a>> {
        self.at(frame, Head::LENGTH_V6)?.datagram_v6(frame, is_verified)
    }

    /// The headers of the flow whose packet begins at this place of a frame.
    #[inline]
    fn at(&self, frame: &[u8], place: usize) -> Option<&Head> {
        let key = FlowKey::of_data(frame.get(place..)?)?;
        let (known, head) = self.0.get(key.slot())?.as_ref()?;
        (*known == key).then_some(head)
    }

    /// A frame has come by the engine's own queue with a packet of messages for this engine.
    pub(super) fn learn(&mut self, endpoint: &Endpoint, datagram: &Datagram<'_>, frame: &[u8]) {
        let key = FlowKey::of_data(datagram.payload).filter(|key| endpoint.owner(*key).is_some());
        let Some((key, head)) = key.zip(Head::of(frame)) else { return };
        if self.0.len() <= key.slot() {
            self.0.resize_with(key.slot() + 1, || None);
        }
        self.0[key.slot()] = Some((key, head));
    }

    /// What the host's services have has changed, or its addresses.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
