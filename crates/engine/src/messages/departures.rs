//! What leaves: packets of flows, built as the queue has descriptors for them, and those that go by
//! a lane instead of the queue.

use clearway_base::{MILLISECOND, Time};
use clearway_nic::{Queue, Transmit};
use clearway_transport::{Destination, Endpoint};

use super::Messages;
use crate::captures::Party;
use crate::channels::Channels;
use crate::common::Common;
use crate::component::{Outlet, Sending};
use crate::ip::UdpPath;
use crate::lanes::What;

/// How long packets wait for room in a lane, and others behind them: some ticks of a scheduler that
/// has taken the core of the engine there. One that takes nothing for so long stands still, and
/// what is for it is lost, as on a wire that is cut.
const LANE_PATIENCE_NS: u64 = 20 * MILLISECOND;

/// A lane that had no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    since: Time,
    /// When a packet was to go there last.
    seen: Time,
}

impl Messages {
    /// Sends as many packets as the outlet takes.
    pub(super) fn send_packets(
        &mut self,
        common: &mut Common,
        now: Time,
        outlet: Outlet<'_>,
    ) -> Sending {
        let Outlet { queue, budget, bytes, is_last } = outlet;
        let (mut sending, mut queued_bytes) = (Sending::default(), 0);
        self.waits_for_lane = false;
        while sending.taken < budget && queued_bytes < bytes {
            let Some(destination) = self.endpoint.next_transmit(now) else { break };
            if !common.lanes.is_alone() {
                if common.host.is_here(destination.to.ip()) {
                    self.send_to_sibling(common, now, destination);
                    sending.taken += 1;
                    continue;
                }
                if let Some(other) = common.host.other_with(destination.from.ip()) {
                    if !self.send_elsewhere(common, now, other, destination) {
                        break;
                    }
                    sending.taken += 1;
                    continue;
                }
            }
            match self.send_packet(common, now, queue, &destination, &mut queued_bytes) {
                Transmit::Queued => {
                    sending.queued += 1;
                    sending.taken += 1;
                    if self.endpoint.was_last(now) {
                        // Who waits for a lone message need not wait for what is noted about it.
                        if is_last {
                            queue.flush();
                            sending.queued = 0;
                        }
                        self.endpoint.pass_turn(now);
                        break;
                    }
                }
                Transmit::Nothing => sending.taken += 1,
                Transmit::Full => break,
            }
        }
        sending
    }

    /// Sends the next packet to `destination` over the engine's own NIC, and adds its length to
    /// `queued_bytes`.
    #[inline]
    fn send_packet(
        &mut self,
        common: &mut Common,
        now: Time,
        queue: &mut dyn Queue,
        destination: &Destination,
        queued_bytes: &mut usize,
    ) -> Transmit {
        let interface = common.host.own_mut();
        let path = self.paths.find(now, interface, &mut self.endpoint, destination);
        let Some(path) = path else {
            self.skip(common, now, *destination);
            return Transmit::Nothing;
        };
        let (endpoint, is_simple) = (&mut self.endpoint, common.is_simple());
        queue.transmit(&mut |frame| {
            let length = packet(now, endpoint, &common.channels, destination, path, frame);
            *queued_bytes += length;
            if is_simple {
                return length;
            }
            let party = party_of(&common.channels, endpoint, destination);
            common.leave_host(now, &frame[..length], party)
        })
    }

    /// Builds a packet and hands it to an engine of the NIC that it is to leave by. False if it is
    /// to wait for room in the lane.
    fn send_elsewhere(
        &mut self,
        common: &mut Common,
        now: Time,
        other: usize,
        destination: Destination,
    ) -> bool {
        let engine = common.host.gateway(other, common.lanes.index());
        if common.lanes.has_room(engine) {
            self.full[other] = None;
        } else if self.is_to_wait(now, other) {
            self.waits_for_lane = true;
            return false;
        }
        let interface = common.host.interface(crate::host::Nic::Other(other));
        let paths = &mut self.paths_elsewhere[other];
        let path = paths.find(now, interface, &mut self.endpoint, &destination);
        let Some(path) = path else {
            self.skip(common, now, destination);
            return true;
        };
        let (endpoint, scratch) = (&mut self.endpoint, &mut self.scratch);
        let length = packet(now, endpoint, &common.channels, &destination, path, scratch);
        if length > 0 {
            let party = party_of(&common.channels, endpoint, &destination);
            common.show_handed_over(now, &scratch[..length], party);
            common.lanes.push(engine, What::Transmit, &scratch[..length]);
        }
        true
    }

    /// The lane to another NIC is full: true if that is worth waiting for.
    #[cold]
    fn is_to_wait(&mut self, now: Time, other: usize) -> bool {
        // If nobody has looked for long, it may have had room meanwhile.
        let full = self.full[other].filter(|full| now.since(full.seen) < LANE_PATIENCE_NS);
        let since = full.map_or(now, |full| full.since);
        self.full[other] = Some(Full { since, seen: now });
        now.since(since) < LANE_PATIENCE_NS
    }

    /// The neighbour is not known: the packet counts as lost on the wire.
    #[cold]
    fn skip(&mut self, common: &mut Common, now: Time, destination: Destination) {
        common.counters.packets_unresolved += 1;
        self.endpoint.skip_transmit(now, destination, &mut self.scratch, &common.channels);
    }
}

/// Whom a packet concerns that is about to leave.
fn party_of(channels: &Channels, endpoint: &Endpoint, destination: &Destination) -> Option<Party> {
    let owner = endpoint.owner(destination.flow?)?;
    Some(Party::of_connection(channels, owner))
}

/// Writes the next packet of messages to `destination`. Returns the length of the frame, 0 if there
/// is none.
#[inline]
fn packet(
    now: Time,
    endpoint: &mut Endpoint,
    channels: &Channels,
    destination: &Destination,
    path: &UdpPath,
    frame: &mut [u8],
) -> usize {
    let payload = &mut frame[path.payload_offset()..];
    let length = endpoint.poll_transmit(now, *destination, payload, channels);
    if length == 0 {
        return 0;
    }
    let frame_length = path.emit_headers(frame, length, destination.is_ecn_capable);
    path.finish(&mut frame[..frame_length]);
    frame_length
}
