//! A channel as plain data, and back.

use clearway_base::state::{Invalid, ensure};
use clearway_channel::{Completion, DaemonEnd, NO_BUFFER};
use clearway_transport::{Buffer, Order};

use super::super::to_channel;
use super::{Channel, Connections, Line, Posts, Site};
use crate::control::Allowance;
use crate::operations::Operations;
use crate::state::ChannelState;

impl Channel {
    pub(in crate::channels) fn save(&self, channel: u32) -> ChannelState {
        let ports = self.ports.iter().map(|((listener, port), only)| (*listener, *port, *only));
        ChannelState {
            channel,
            app: self.app.clone(),
            user: self.user,
            end: self.end.save(),
            connections_max: self.connections.max(),
            slots: self.connections.save(),
            pending: self.pending.iter().copied().collect(),
            ports: ports.collect(),
            is_condemned: self.is_condemned,
            has_left: self.has_left,
            takes_streams: self.takes_streams,
            hears_of_skipped: self.hears_of_skipped,
            is_parked: self.is_parked,
            can_park: self.can_park,
            busy_at: self.busy_at,
            line: self.line.save(),
            is_starved: self.is_starved,
            has_freed: self.has_freed,
            messages_sent: self.messages_sent,
            messages_received: self.messages_received,
            regions: self.operations.save(),
            regions_max: self.operations.regions.max(),
            groups: self.operations.save_groups(),
            may_ask: self.operations.may_ask,
            copying: self.operations.save_copying(),
            to_copy: self.operations.to_copy(),
            posts: self.posts.save(),
        }
    }

    pub(in crate::channels) fn restore(
        saved: ChannelState,
        end: clearway_channel::Remains,
    ) -> Result<Self, Invalid> {
        let counts = saved.messages_sent.max(saved.messages_received);
        ensure(counts <= u64::MAX / 2, "more messages than can be counted")?;
        let end = Box::new(DaemonEnd::restore(&saved.end, end)?);
        let connections = Connections::restore(saved.connections_max, saved.slots)?;
        let line = Line::restore(&saved.line, connections.places() as u32)?;
        let untold = connections.iter().filter(|(_, connection)| connection.is_untold);
        let untold = untold.map(|(slot, _)| slot).collect();
        let allowance = Allowance {
            connections_max: saved.connections_max,
            regions_max: saved.regions_max,
            may_ask: saved.may_ask,
        };
        let mut operations = Operations::restore(allowance, saved.regions, &saved.groups, &end)?;
        for (slot, found) in connections.iter() {
            let Some(exchange) = found.exchange.as_deref() else { continue };
            exchange.check_memory(&end)?;
            operations.count(slot, exchange)?;
        }
        let posts = Posts::restore(&saved.posts, &end)?;
        let is_open = |slot: u32| connections.peek(slot).is_some_and(|it| !it.is_closing());
        ensure(posts.connections().all(is_open), "buffers for a connection that is over")?;
        let slots = connections.places() as u32;
        operations.restore_copies(saved.copying, saved.to_copy, slots)?;
        let ports = saved.ports.into_iter().map(|(id, port, only)| ((id, port), only));
        Ok(Self {
            connections,
            line,
            untold,
            pending: saved.pending.into(),
            ports: ports.collect(),
            is_condemned: saved.is_condemned,
            has_left: saved.has_left,
            takes_streams: saved.takes_streams,
            hears_of_skipped: saved.hears_of_skipped,
            is_parked: saved.is_parked,
            can_park: saved.can_park,
            busy_at: saved.busy_at,
            is_starved: saved.is_starved,
            has_freed: saved.has_freed,
            messages_sent: saved.messages_sent,
            messages_received: saved.messages_received,
            operations,
            posts,
            ..Self::new(saved.app, saved.user, end, allowance)
        })
    }

    /// A flow's message goes into `buffer`.
    pub(in crate::channels) fn claim(
        &mut self,
        slot: u32,
        buffer: Buffer,
        order: Order,
    ) -> Result<(), Invalid> {
        let connection = self.connections.at(slot).ok_or(Invalid("a message for nobody"))?;
        match Site::of(buffer) {
            Site::Pool => {}
            Site::Posted(number) => return self.posts.claim(number, slot, buffer.length),
            Site::Region => {
                let exchange = connection.exchange.as_ref();
                let is_it = exchange.is_some_and(|exchange| exchange.is_writing(buffer.length));
                return ensure(is_it, "a write that was not begun");
            }
        }
        let is_early = order == Order::Ahead;
        ensure(!is_early || self.early.begin(buffer), "more came early than there is room for")?;
        connection.unfinished += 1;
        connection.early += u32::from(is_early);
        self.unfinished.begin(connection.peer.ip(), buffer.length, order);
        Ok(())
    }

    /// What the engine has of the receive pool is what flows have, and what the app has still to be
    /// told of, each once.
    pub(in crate::channels) fn check_held(
        &self,
        mut claimed: Vec<clearway_channel::Buffer>,
    ) -> Result<(), Invalid> {
        claimed.extend(self.operations.read_buffer().map(to_channel));
        for completion in &self.pending {
            if let Completion::Received { offset, length, buffer: id, .. }
            | Completion::Frames { offset, length, buffer: id, .. }
            | Completion::TcpReceived { offset, length, buffer: id, .. }
            | Completion::Operated { offset, length, buffer: id, .. } = *completion
                && id != NO_BUFFER
            {
                claimed.push(clearway_channel::Buffer { id, offset, length });
            }
        }
        claimed.sort_unstable_by_key(|buffer| buffer.id);
        // A burst of frames is told by the part that is used of it, and an answer without its head.
        let end =
            |buffer: &clearway_channel::Buffer| u64::from(buffer.offset) + u64::from(buffer.length);
        let is_same = |(a, b): (clearway_channel::Buffer, clearway_channel::Buffer)| {
            a.id == b.id && a.offset <= b.offset && end(&b) <= end(&a)
        };
        let held: Vec<_> = self.end.held().collect();
        let is_all = held.len() == claimed.len() && held.into_iter().zip(claimed).all(is_same);
        ensure(is_all, "memory of an app that is not used, or used twice")
    }
}
