//! What the host itself sends: the interface's own frames, and messages.

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::{Queue, Transmit};
use clearway_transport::{Destination, Endpoint};
use clearway_wire::digest::Digest;

use super::Core;
use super::frames::Sending;
use crate::channels::Channels;
use crate::ip::UdpPath;
use crate::switch::Party;

impl Core {
    /// Sends ARP, NDP and ICMP. Returns how many frames were given to the queue.
    pub(super) fn send_own(&mut self, now: Time, queue: &mut dyn Queue, budget: usize) -> usize {
        self.ask_elsewhere();
        let mut queued = 0;
        while queued < budget && self.interface.has_output() {
            let mut was_there = false;
            let transmit = queue.transmit(&mut |frame| {
                let length = self.interface.poll_transmit(frame);
                was_there = length > 0;
                self.dispatch(now, &frame[..length], None)
            });
            match transmit {
                Transmit::Queued => queued += 1,
                Transmit::Nothing if was_there => {}
                Transmit::Nothing | Transmit::Full => break,
            }
        }
        queued
    }

    /// Sends messages, `budget` packets at most.
    pub(super) fn send_messages(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        budget: usize,
    ) -> Sending {
        let mut sending = Sending::default();
        self.waits_for_lane = false;
        while sending.taken < budget {
            let Some(destination) = self.endpoint.next_transmit(now) else { break };
            if !self.lanes.is_alone() {
                if self.is_here(destination.to.ip()) {
                    self.send_to_sibling(now, destination);
                    sending.taken += 1;
                    continue;
                }
                if let Some(other) = self.elsewhere_of(destination.from.ip()) {
                    if !self.send_elsewhere(now, other, destination) {
                        break;
                    }
                    sending.taken += 1;
                    continue;
                }
            }
            let path = self.paths.find(now, &mut self.interface, &mut self.endpoint, &destination);
            let Some(path) = path else {
                self.skip(now, destination);
                sending.taken += 1;
                continue;
            };
            let transmit = if self.switch.is_simple() {
                let (endpoint, channels) = (&mut self.endpoint, &self.channels);
                queue.transmit(&mut |frame| {
                    packet(now, endpoint, channels, destination, path, frame)
                })
            } else {
                let path = path.clone();
                let owner = destination.flow.and_then(|key| self.endpoint.owner(key));
                let party = owner.map(|owner| self.party_of_owner(owner));
                queue.transmit(&mut |frame| {
                    let (endpoint, channels) = (&mut self.endpoint, &self.channels);
                    let length = packet(now, endpoint, channels, destination, &path, frame);
                    self.dispatch(now, &frame[..length], party)
                })
            };
            match transmit {
                Transmit::Queued => {
                    sending.queued += 1;
                    sending.taken += 1;
                    // Who waits for a lone message need not wait for what is noted about it.
                    if self.endpoint.was_last() && !self.switch.has_senders() {
                        queue.flush();
                        sending.queued = 0;
                    }
                }
                Transmit::Nothing => sending.taken += 1,
                Transmit::Full => break,
            }
        }
        sending
    }

    /// Brings a frame of the host's own to its ports on this host, and shows it to captures.
    /// Returns its length if it is for the NIC, too; else 0.
    pub(super) fn dispatch(&mut self, now: Time, frame: &[u8], party: Option<Party>) -> usize {
        if frame.is_empty() {
            return 0;
        }
        let digest = Digest::of(frame);
        if self.switch.is_watched() {
            if party.is_some() {
                self.show_outgoing(now, frame, &digest, Point::Delivered, party);
            }
            self.show_outgoing(now, frame, &digest, Point::Wire, party);
        }
        match self.forward(now, None, frame, &digest) {
            Ok(true) => frame.len(),
            // It was for this host only; an error says that there is no such service here, and then
            // the frame is lost as it would be on the wire.
            Ok(false) | Err(_) => 0,
        }
    }
}

/// Writes the next packet of messages to `destination`. Returns the length of the frame, 0 if there
/// is none.
#[inline]
pub(super) fn packet(
    now: Time,
    endpoint: &mut Endpoint,
    channels: &Channels,
    destination: Destination,
    path: &UdpPath,
    frame: &mut [u8],
) -> usize {
    let payload = &mut frame[path.payload_offset()..];
    let length = endpoint.poll_transmit(now, destination, payload, channels);
    if length == 0 {
        return 0;
    }
    let frame_length = path.emit_headers(frame, length, destination.is_ecn_capable);
    path.finish(&mut frame[..frame_length]);
    frame_length
}
