//! Apps that have ended in good order, and what they have sent is not delivered yet: what stands in
//! the ring is taken, every connection is closed, and the channel goes when the last of them has
//! ended, or when its time is up.

use std::collections::HashSet;

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};

use super::Engine;
use crate::component::Component;
use crate::state::LingeringState;

/// Connections that are closed in one turn.
const CONNECTIONS_CLOSED_PER_TURN: usize = 64;

impl<X: Component<Owner = ()>> Engine<X> {
    /// The app of a channel has ended: what it has sent goes on until then.
    pub(super) fn let_linger(&mut self, now: Time, channel: u32, until: Time) {
        let core = &mut self.core;
        let Some(left) = core.common.channels.channel(channel) else { return };
        left.leave();
        for (_, port) in core::mem::take(&mut left.ports).into_keys() {
            core.messages.endpoint.unlisten(port);
        }
        core.tcp.stop_listening(&mut core.common, now, channel);
        self.lingering.push(LingeringState { channel, until, is_closing: false, tcp_closed: None });
    }

    /// Returns how much was done, or waits to be done.
    pub(super) fn go_on_lingering(&mut self, now: Time) -> usize {
        let mut work = 0;
        for index in (0..self.lingering.len()).rev() {
            work += self.close_some(now, index);
            if self.is_over(now, &self.lingering[index]) {
                let over = self.lingering.swap_remove(index);
                self.remove_channel(now, over.channel);
                work += 1;
            }
        }
        work
    }

    /// Closes connections of a channel from whose ring everything has been taken: those of
    /// messages, and when there are no more of them, those of TCP.
    fn close_some(&mut self, now: Time, index: usize) -> usize {
        let (core, lingering) = (&mut self.core, &mut self.lingering[index]);
        let (id, most) = (lingering.channel, CONNECTIONS_CLOSED_PER_TURN);
        let Some(channel) = core.common.channels.channel(id) else { return 0 };
        if lingering.is_closing {
            let (common, closed) = (&mut core.common, &mut lingering.tcp_closed);
            return core.tcp.close_connections(common, now, id, closed, most);
        }
        if channel.is_condemned {
            return 0;
        }
        if !channel.end.is_quiet() {
            return 1;
        }
        let open = channel.unclosed(most);
        if open.is_empty() {
            channel.is_condemned = true;
            lingering.is_closing = true;
            core.tcp.forget_attempts(id);
            return 1;
        }
        for connection in &open {
            core.messages.close(&mut core.common, now, id, *connection, false);
        }
        open.len()
    }

    /// Whether all is delivered, or the time is up, or the app broke the contract.
    fn is_over(&self, now: Time, lingering: &LingeringState) -> bool {
        let Some(channel) = self.core.common.channels.peek(lingering.channel) else { return true };
        let is_done = match lingering.is_closing {
            true => {
                let of_tcp = self.core.tcp.connections_of(lingering.channel);
                !channel.has_connections() && of_tcp == 0
            }
            false => channel.is_condemned,
        };
        is_done || lingering.until <= now
    }

    /// When the first of them has to go.
    pub(super) fn lingering_until(&self) -> Option<Time> {
        self.lingering.iter().map(|lingering| lingering.until).min()
    }

    /// Those that linger are there, each once, and their apps have left.
    pub(super) fn check_lingering(&self) -> Result<(), Invalid> {
        let channels = &self.core.common.channels;
        let is_there = |one: &LingeringState| {
            let channel = channels.peek(one.channel);
            channel.is_some_and(|it| it.has_left && (it.is_condemned || !one.is_closing))
        };
        let ids: HashSet<u32> = self.lingering.iter().map(|one| one.channel).collect();
        let is_one = ids.len() == self.lingering.len();
        ensure(is_one && self.lingering.iter().all(is_there), "a channel lingers that is in use")
    }
}
