//! Whose turn it is to send: answers to strangers first, they are few; then a few resets of flows
//! that are no more, the flows in turn, and the other resets.

use std::net::SocketAddr;

use clearway_base::Time;

use super::strangers::{Addresses, Reply};
use super::table::find;
use super::{Destination, Endpoint, FlowKey};
use crate::app::App;
use crate::company::Sending;
use crate::flow::Wants;

/// Packets that one flow may send before the next one has its turn.
const BURST_PACKETS: u32 = 16;

impl Endpoint {
    /// True if a packet without a flow waits to be sent: an answer to a stranger, or the last of a
    /// flow.
    #[must_use]
    pub fn has_replies(&self) -> bool {
        !self.replies.is_empty() || !self.farewells.is_empty()
    }

    /// False if [`Endpoint::next_transmit`] surely finds nothing.
    #[inline]
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ready.is_empty() || self.has_replies()
    }

    /// After [`Endpoint::poll_transmit`]: true if that was the last packet for now. What is to be
    /// noted about it can wait for [`Endpoint::pass_turn`].
    #[inline]
    #[must_use]
    pub fn was_last(&self, now: Time) -> bool {
        if self.ready.len() > 1 || self.has_replies() {
            return false;
        }
        let slot = self.ready.front().map(|slot| &self.slots[*slot as usize]);
        let flow = slot.and_then(|slot| slot.flow.as_ref());
        flow.is_none_or(|flow| flow.is_done(now))
    }

    /// Where the next packet goes; `None` if there is nothing to send.
    pub fn next_transmit(&mut self, now: Time) -> Option<Destination> {
        if !self.replies.is_empty() || (self.farewells_first > 0 && !self.farewells.is_empty()) {
            return self.next_reply();
        }
        if self.burst >= BURST_PACKETS {
            self.burst = 0;
            self.ready.rotate_left(1);
        }
        while let Some(&slot) = self.ready.front() {
            if let Some(flow) = &mut self.slots[slot as usize].flow
                && let Some(wants) = flow.wants(now)
            {
                if self.burst > 0 && self.company.is_to_rest(now) {
                    self.rest();
                    continue;
                }
                return Some(Destination {
                    from: SocketAddr::new(flow.local().ip(), flow.source_port()),
                    to: flow.remote(),
                    flow: Some(FlowKey(flow.local_id())),
                    wants,
                    is_ecn_capable: flow.is_ecn_capable(),
                });
            }
            self.pass_turn(now);
        }
        self.next_reply()
    }

    /// The flow whose turn it is has sent a packet, and leaves time to those who wait for answers.
    #[cold]
    fn rest(&mut self) {
        self.burst = 0;
        self.resting.extend(self.ready.pop_front());
    }

    /// A flow has a small message to send, which is all that its connection has under way: it rests
    /// no longer.
    #[cold]
    pub(super) fn call_back(&mut self, key: FlowKey) {
        let mut resting = self.resting.iter();
        if let Some(at) = resting.position(|slot| *slot as usize == key.slot()) {
            self.ready.extend(self.resting.remove(at));
        }
    }

    /// The flow whose turn it is has nothing to send for now.
    pub fn pass_turn(&mut self, now: Time) {
        let Some(slot) = self.ready.pop_front() else { return };
        self.burst = 0;
        self.company.take_large();
        self.slots[slot as usize].is_ready = false;
        self.set_alarm(now, slot as usize);
    }

    fn next_reply(&self) -> Option<Destination> {
        let reply = self.replies.front().or(self.farewells.front())?;
        let Addresses { local, peer } = reply.between;
        Some(Destination {
            from: local,
            to: peer,
            flow: None,
            wants: Wants::Unusual,
            is_ecn_capable: false,
        })
    }

    fn take_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front().or_else(|| {
            self.farewells_first = self.farewells_first.saturating_sub(1);
            self.farewells.pop_front()
        })
    }

    /// Writes the packet that [`Endpoint::next_transmit`] has just announced into `bytes`, which
    /// has room for the configured packet size, and returns its length.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        now: Time,
        destination: Destination,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        self.write_packet(now, destination.flow, destination.wants, bytes, app)
    }

    fn write_packet(
        &mut self,
        now: Time,
        flow: Option<FlowKey>,
        wants: Wants,
        bytes: &mut [u8],
        app: &impl App,
    ) -> usize {
        self.counters.packets_sent += 1;
        let Some(key) = flow else {
            let Some(reply) = self.take_reply() else { return 0 };
            bytes[..reply.bytes.len()].copy_from_slice(&reply.bytes);
            return reply.bytes.len();
        };
        self.burst += 1;
        let Some(flow) = find(&mut self.slots, key) else { return 0 };
        let mut sending = Sending { now, company: &mut self.company };
        flow.poll_transmit(&mut sending, &self.config, wants, bytes, app)
    }

    /// Drops the packet that [`Endpoint::next_transmit`] has announced, because its destination
    /// cannot be reached now. A flow will try again when its timers say so.
    pub fn skip_transmit(
        &mut self,
        now: Time,
        destination: Destination,
        bytes: &mut [u8],
        app: &impl App,
    ) {
        // Written and not sent is the same as lost on the wire, and recovered in the same way.
        self.poll_transmit(now, destination, bytes, app);
    }
}
