//! Connections over other NICs than the engine's own: by the address of their end here.
//!
//! ```text
//!  Stack ── segment ──▶ Transmit ─▶ engine of the other NIC ⇄ its queue ⇄ wire
//!        ◀── Sought ── `sharing` ◀─
//! ```
//!
//! What leaves is complete, as with messages; an engine of the NIC sends it as it is. What comes is
//! for a port of which that engine has taken note, and finds its way as if the port were shared.
//! What goes to an address of this host does not leave it either: it is given to an engine of that
//! NIC, which finds out whose it is (`ToHost`).
//!
//! A lane is not a wire: who finds it full waits until there is room, and nothing is lost.

use std::net::IpAddr;

use clearway_base::{SlotId, Time};
use clearway_tcp::Transmit;
use clearway_wire::tcp::{self, Repr};
use clearway_wire::{ipv4, ipv6};

use super::Tcp;
use super::paths::Paths;
use crate::common::Common;
use crate::host::{Host, Nic};
use crate::lanes::What;

/// Connections that wait for a lane which are looked at in a turn. Those behind them have the next
/// turn.
const LOOKS: usize = 32;

impl Tcp {
    /// True if connections wait for room in a lane, of which nobody tells.
    #[inline]
    pub(super) fn waits_for_lane(&self) -> bool {
        !self.held.is_empty()
    }

    /// True if a connection is on another NIC.
    pub(super) fn is_elsewhere(&self, host: &Host, key: SlotId) -> bool {
        let info = self.stack.info(key);
        info.is_some_and(|info| host.nic_with(info.local.ip()) != Nic::Own)
    }

    /// Those that wait for a lane are asked again for what they have, if there is room.
    #[inline]
    pub(super) fn ask_held(&mut self, common: &Common) {
        if self.waits_for_lane() {
            self.ask_some_held(common);
        }
    }

    #[cold]
    fn ask_some_held(&mut self, common: &Common) {
        for _ in 0..LOOKS.min(self.held.count()) {
            let Some((place, _)) = self.held.first() else { return };
            let key = self.books.at(place as usize).map(|book| book.key);
            if key.is_some_and(|key| !has_room(common, &self.paths, key)) {
                self.held.rotate();
                continue;
            }
            self.held.remove(place);
            key.into_iter().for_each(|key| self.stack.ask_again(key));
        }
    }
}

/// True unless the next segment of a connection goes by a lane that is full.
#[inline]
pub(super) fn has_room(common: &Common, paths: &Paths, key: SlotId) -> bool {
    if common.host.other_count() == 0 {
        return true;
    }
    paths.other_nic(key).is_none_or(|other| {
        let engine = common.host.gateway(other, common.lanes.index());
        common.lanes.has_room(engine)
    })
}

/// Gives the frame of a segment to an engine of the NIC that it leaves by; or, if it `is_here`,
/// whose address it is for.
#[cold]
pub(super) fn send(common: &mut Common, now: Time, other: usize, is_here: bool, frame: &[u8]) {
    let engine = common.host.gateway(other, common.lanes.index());
    common.show_handed_over(now, frame, None);
    let what = if is_here { What::ToHost } else { What::Transmit };
    common.lanes.push(engine, what, frame);
}

/// What a segment that leaves by another NIC says.
#[cold]
pub(super) fn fitted(host: &Host, transmit: &Transmit) -> Repr {
    let mut repr = transmit.repr;
    fit(host, transmit.from.ip(), &mut repr);
    repr
}

/// A SYN says how long segments may be. Listeners are of the engine's own NIC: on others, where
/// packets may have to be smaller, both ends are told no more than those take.
pub(super) fn fit(host: &Host, local: IpAddr, repr: &mut Repr) {
    let Some(other) = host.other_with(local) else { return };
    let header_bytes = match local {
        IpAddr::V4(_) => ipv4::HEADER_LENGTH,
        IpAddr::V6(_) => ipv6::HEADER_LENGTH,
    };
    let headers = (header_bytes + tcp::HEADER_LENGTH) as u16; // both are short
    let most = host.view(Nic::Other(other)).mtu().saturating_sub(headers);
    let said = &mut repr.options.maximum_segment_size;
    *said = said.map(|said| said.min(most));
}
