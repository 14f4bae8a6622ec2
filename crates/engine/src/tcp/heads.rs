//! The headers that each connection's segments come with, as long as they stay the same: then it is
//! known whose a frame is, and what is in it, without its digest and the switch's table. As with
//! messages (`messages/heads.rs`), but for frames in IPv4 that come alone: what a burst has is
//! taken together.
//!
//! A virtual interface, a port or a service that comes or goes changes the switch's version, and
//! with it all of them are forgotten.

use clearway_base::SlotId;
use clearway_tcp::Arrival;

use super::Tcp;
use crate::common::{Common, Via};
use crate::ip::{Packet, SegmentHead};

/// Those of a connection.
#[derive(Debug)]
struct Known {
    owner: SlotId,
    /// The version of the switch's table that says that they are TCP's.
    version: u64,
    head: SegmentHead,
}

/// By the places of the connections.
#[derive(Debug, Default)]
pub(super) struct Heads(Vec<Option<Known>>);

impl Heads {
    /// The packet in a frame of a connection, if its headers are known.
    #[inline]
    pub(super) fn packet<'a>(
        &self,
        owner: SlotId,
        version: u64,
        frame: &'a [u8],
    ) -> Option<Packet<'a>> {
        let known = self.0.get(owner.slot as usize)?.as_ref()?;
        let is_current = known.owner == owner && known.version == version;
        if is_current { known.head.packet(frame) } else { None }
    }

    fn learn(&mut self, owner: SlotId, version: u64, head: SegmentHead) {
        let place = owner.slot as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(Known { owner, version, head });
    }
}

impl Tcp {
    /// A segment has come alone, and was looked at.
    #[cold]
    pub(super) fn learn_head(
        &mut self,
        common: &Common,
        arrival: &Arrival,
        frame: &[u8],
        via: Via,
    ) {
        if !matches!(via, Via::Queue(_)) {
            return;
        }
        let Some(head) = SegmentHead::of(frame) else { return };
        if let Some(key) = self.stack.find(arrival.to, arrival.from) {
            self.heads.learn(key, common.switch.version(), head);
        }
    }

    /// The headers of what comes next may mean something else now.
    pub(crate) fn forget_heads(&mut self) {
        self.heads = Heads::default();
    }
}

#[cfg(test)]
mod tests {
    use super::Heads;
    use crate::ip::SegmentHead;
    use clearway_base::SlotId;
    use clearway_wire::{ipv4, protocol};
    use std::net::Ipv4Addr;

    #[test]
    fn are_of_one_connection_and_of_one_version_of_the_table() {
        let [source, destination] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let (protocol, payload_length) = (protocol::TCP, 20);
        let ip = ipv4::Repr { source, destination, protocol, hop_limit: 64, payload_length };
        let mut frame = [0; 14 + 20 + 20];
        frame[12] = 8; // IPv4
        ip.emit(&mut frame[14..]);
        let [owner, next] = [1, 2].map(|generation| SlotId { slot: 7, generation });
        let mut heads = Heads::default();
        assert!(heads.packet(owner, 5, &frame).is_none(), "nothing is known");
        heads.learn(owner, 5, SegmentHead::of(&frame).expect("it has nothing else"));
        assert_eq!(heads.packet(owner, 5, &frame).map(|packet| packet.payload.len()), Some(20));
        assert!(heads.packet(next, 5, &frame).is_none(), "its place is another's");
        assert!(heads.packet(owner, 6, &frame).is_none(), "the table has changed");
    }
}
