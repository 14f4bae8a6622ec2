//! What apps ask for: messages and releases here, connections in `connections.rs`.

use clearway_base::Time;
use clearway_channel::{Command, Completion, Violation};
use clearway_transport::Owner;

use super::Messages;
use crate::channels::Link;
use crate::common::Common;

/// Peers that are told, and senders that are tried, in one turn when an app's memory has become
/// free. Who finds none ends it for that turn: see `channels/line.rs`.
const RETRIES_PER_TURN: usize = 32;

impl Messages {
    #[inline]
    pub(super) fn take_command(
        &mut self,
        common: &mut Common,
        now: Time,
        channel: u32,
        command: Command,
    ) {
        match command {
            Command::Send { connection, stream: 0, offset, length } => {
                self.send(common, now, channel, connection, offset, length)
            }
            // Taken as one on stream 0 it would mean something else once there are streams.
            Command::Send { stream, .. } => {
                common.channels.condemn(channel, Violation::Stream(stream));
            }
            Command::Release { buffers } => {
                for id in buffers.as_slice() {
                    self.release(common, now, channel, *id);
                }
            }
            Command::Connect { token, peer } => {
                let peer = clearway_channel::canonical(peer);
                if let Err(code) = self.connect(common, now, channel, token, peer)
                    && let Some(channel) = common.channels.channel(channel)
                {
                    channel.tell(Completion::ConnectFailed { token, code });
                }
            }
            Command::Close { connection, abort } => {
                self.close(common, now, channel, connection, abort);
            }
            Command::SendFrames { .. } => {} // for VIFs
        }
    }

    #[inline]
    fn send(
        &mut self,
        common: &mut Common,
        now: Time,
        id: u32,
        connection: u64,
        offset: u32,
        length: u32,
    ) {
        let channels = &mut common.channels;
        let Some(channel) = channels.channel(id) else { return };
        let slot = channel.find(connection);
        let open = slot.and_then(|slot| Some((slot, channel.connection(slot)?)));
        let open = open.filter(|(_, found)| !found.closing && found.connecting.is_none());
        let Some((slot, found)) = open else {
            channel.end.sends_finished(1);
            return channels.counters.messages_to_closed += 1;
        };
        let flow = match found.link {
            Link::Flow(key) => Some(key),
            Link::Local(_) | Link::Resolving => None,
        };
        channel.submitted(slot);
        channels.counters.messages_submitted += 1;
        match flow {
            Some(key) => {
                self.fetch_flow(key);
                self.endpoint.send(now, key, offset, length);
            }
            None => channels.send_local(Owner { channel: id, connection: slot }, offset, length),
        }
    }

    fn release(&mut self, common: &mut Common, now: Time, id: u32, buffer: u32) {
        let channels = &mut common.channels;
        let Some(channel) = channels.channel(id) else { return };
        let released = match channel.end.release(buffer) {
            Ok(released) => released,
            Err(violation) => return channels.condemn(id, violation),
        };
        channel.released();
        if let Some(slot) = channel.find_tag(released.owner) {
            let flow = match channel.connection(slot).map(|connection| &connection.link) {
                Some(Link::Flow(key)) => Some(*key),
                _ => None,
            };
            match flow {
                Some(key) => self.endpoint.release(now, key, released.length),
                None => {
                    channels.release_local(Owner { channel: id, connection: slot }, released.length)
                }
            }
        }
    }

    /// Those who were turned away because this app's pool was full may try again, some in each
    /// turn. Returns how many did.
    #[cold]
    pub(crate) fn retry(&mut self, common: &mut Common, now: Time, id: u32) -> usize {
        let told = self.tell_of_memory(common, now, id);
        let tried = common.channels.retry_senders_to(id, RETRIES_PER_TURN);
        if let Some(channel) = common.channels.channel(id) {
            channel.have_tried(told < RETRIES_PER_TURN && tried < RETRIES_PER_TURN);
        }
        told + tried
    }

    /// Tells peers that there is memory. Returns how many.
    fn tell_of_memory(&mut self, common: &mut Common, now: Time, id: u32) -> usize {
        for told in 0..RETRIES_PER_TURN {
            let Some(channel) = common.channels.channel(id) else { return told };
            let Some(slot) = channel.take_to_tell() else { return told };
            if let Some(Link::Flow(key)) = channel.connection(slot).map(|found| &found.link) {
                let key = *key;
                self.endpoint.memory_freed(now, key);
            }
        }
        RETRIES_PER_TURN
    }
}
