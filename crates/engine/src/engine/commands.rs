//! What apps ask for: messages and releases here, connections in `connections.rs`.

use clearway_base::Time;
use clearway_channel::burst::SentBurst;
use clearway_channel::{Command, Completion, Violation};
use clearway_transport::Owner;

use super::Core;
use crate::channels::{Channel, Link};

/// Commands taken from one app in one turn.
const COMMAND_BURST: usize = 32;
/// Peers that are told, and senders that are tried, in one turn when an app's memory has become free. Who
/// finds none ends it for that turn: see `channels/line.rs`.
const RETRIES_PER_TURN: usize = 32;

impl Core {
    pub(super) fn take_commands(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for index in 0..self.channels.polled_count() {
            let id = self.channels.polled_id(index);
            taken += self.take_commands_of(now, id);
        }
        taken
    }

    fn take_commands_of(&mut self, now: Time, id: u32) -> usize {
        let taken = self.take_command_burst(now, id);
        if self.channels.channel(id).is_some_and(|channel| channel.may_try_again(now)) {
            return taken + self.retry(now, id);
        }
        taken
    }

    /// Most commands lead to completions. An app that goes on asking without ever reading them finds its
    /// own ring full in the end.
    fn take_command_burst(&mut self, now: Time, id: u32) -> usize {
        for taken in 0..COMMAND_BURST {
            let channel = self.channels.channel(id);
            let served =
                |channel: &&mut Channel| !channel.is_condemned && !channel.has_too_much_pending();
            let Some(channel) = channel.filter(served) else { return taken };
            match channel.end.next_command() {
                Ok(Some(command)) => {
                    channel.busy_at = now;
                    self.handle_command(now, id, command)
                }
                Ok(None) => return taken,
                Err(violation) => {
                    self.condemn(id, violation);
                    return taken + 1;
                }
            }
        }
        COMMAND_BURST
    }

    /// The app broke the contract: nothing more is taken from it.
    pub(super) fn condemn(&mut self, id: u32, violation: Violation) {
        if let Some(channel) = self.channels.channel(id).filter(|channel| !channel.is_condemned) {
            channel.is_condemned = true;
            self.channels.counters.violations += 1;
            self.violations.push((id, violation));
        }
    }

    fn handle_command(&mut self, now: Time, channel: u32, command: Command) {
        match command {
            Command::Send { connection, stream: 0, offset, length } => {
                self.send(now, channel, connection, offset, length)
            }
            // Taken as one on stream 0 it would mean something else once there are streams.
            Command::Send { stream, .. } => self.condemn(channel, Violation::Stream(stream)),
            Command::Release { buffers } => {
                for id in buffers.as_slice() {
                    self.release(now, channel, *id);
                }
            }
            Command::Connect { token, peer } => {
                let peer = clearway_channel::canonical(peer);
                if let Err(code) = self.connect(now, channel, token, peer)
                    && let Some(channel) = self.channels.channel(channel)
                {
                    channel.tell(Completion::ConnectFailed { token, code });
                }
            }
            Command::Close { connection, abort } => self.close(now, channel, connection, abort),
            Command::SendFrames { vif, offset, length, count } => {
                let burst = SentBurst::new(offset, length, count);
                self.switch.submit(&mut self.channels, channel, vif, burst);
            }
        }
    }

    #[inline]
    fn send(&mut self, now: Time, id: u32, connection: u64, offset: u32, length: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        let slot = channel.find(connection);
        let open = slot.and_then(|slot| Some((slot, channel.connection(slot)?)));
        let open = open.filter(|(_, found)| !found.closing && found.connecting.is_none());
        let Some((slot, found)) = open else {
            channel.end.sends_finished(1);
            return self.channels.counters.messages_to_closed += 1;
        };
        let flow = match found.link {
            Link::Flow(key) => Some(key),
            Link::Local(_) | Link::Resolving => None,
        };
        channel.submitted(slot);
        self.channels.counters.messages_submitted += 1;
        match flow {
            Some(key) => {
                self.fetch_flow(key);
                self.endpoint.send(now, key, offset, length);
            }
            None => {
                self.channels.send_local(Owner { channel: id, connection: slot }, offset, length)
            }
        }
    }

    fn release(&mut self, now: Time, id: u32, buffer: u32) {
        let Some(channel) = self.channels.channel(id) else { return };
        let released = match channel.end.release(buffer) {
            Ok(released) => released,
            Err(violation) => return self.condemn(id, violation),
        };
        channel.released();
        if let Some(slot) = channel.find_tag(released.owner) {
            let flow = match channel.connection(slot).map(|connection| &connection.link) {
                Some(Link::Flow(key)) => Some(*key),
                _ => None,
            };
            match flow {
                Some(key) => self.endpoint.release(now, key, released.length),
                None => self
                    .channels
                    .release_local(Owner { channel: id, connection: slot }, released.length),
            }
        }
    }

    /// Those who were turned away because this app's pool was full may try again, some in each turn.
    /// Returns how many did.
    #[cold]
    fn retry(&mut self, now: Time, id: u32) -> usize {
        let told = self.tell_of_memory(now, id);
        let tried = self.channels.retry_senders_to(id, RETRIES_PER_TURN);
        if let Some(channel) = self.channels.channel(id) {
            channel.have_tried(told < RETRIES_PER_TURN && tried < RETRIES_PER_TURN);
        }
        told + tried
    }

    /// Tells peers that there is memory. Returns how many.
    fn tell_of_memory(&mut self, now: Time, id: u32) -> usize {
        for told in 0..RETRIES_PER_TURN {
            let Some(channel) = self.channels.channel(id) else { return told };
            let Some(slot) = channel.take_to_tell() else { return told };
            if let Some(Link::Flow(key)) = channel.connection(slot).map(|found| &found.link) {
                let key = *key;
                self.endpoint.memory_freed(now, key);
            }
        }
        RETRIES_PER_TURN
    }
}
