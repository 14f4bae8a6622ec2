//! What apps ask for: messages and releases here, connections in `connections.rs`.

use clearway_base::{MICROSECOND, Time};
use clearway_channel::{
    CHANNEL_MEMORY, Command, Completion, DaemonEnd, Next, Submitted, Violation,
};
use clearway_transport::{Deadline, Owner, Priority};

use super::Messages;
use crate::channels::{Bearer, Channel, Channels, Held, ReleasedBytes};
use crate::common::Common;
use crate::operations::Spot;

/// Peers that are told, and senders that are tried, in one turn when an app's memory has become
/// free. Who finds none ends it for that turn: see `channels/line.rs`.
const RETRIES_PER_TURN: usize = 32;

/// Messages of one connection that an app has released.
#[derive(Default)]
struct Released {
    /// The tag of their buffers.
    owner: u32,
    messages: u32,
    bytes: u64,
}

impl Released {
    /// Adds what the app has released of the same connection, until there is a buffer of another,
    /// which is the first of those that are returned.
    fn take_run(
        &mut self,
        channel: &mut Channel,
        left: &mut core::slice::Iter<'_, u32>,
    ) -> Result<Option<Self>, Violation> {
        for buffer in left {
            let clearway_channel::Released { owner, length } = channel.end.release(*buffer)?;
            if owner != self.owner {
                return Ok(Some(Self { owner, messages: 1, bytes: length.into() }));
            }
            self.messages += 1;
            self.bytes += u64::from(length);
        }
        Ok(None)
    }
}

/// The messages of one connection that stand behind its first, in an app's ring.
struct Run<'a> {
    end: &'a mut DaemonEnd,
    connection: u64,
    /// How many may be taken.
    left: usize,
    /// What stands behind them, if that was looked at.
    next: Option<Next>,
}

impl Iterator for Run<'_> {
    /// Offset and length of each.
    type Item = (u32, u32);

    #[inline]
    fn next(&mut self) -> Option<(u32, u32)> {
        if self.left == 0 {
            return None;
        }
        match self.end.next_submitted() {
            Next::Message(message) if message.connection == self.connection => {
                self.left -= 1;
                Some((message.offset, message.length))
            }
            other => {
                self.next = Some(other);
                None
            }
        }
    }
}

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
            // What is as it must be does not come here, see `take_submitted`.
            Command::Send { stream, .. } => {
                common.channels.condemn(channel, Violation::Stream(stream));
            }
            Command::Release { buffers } => {
                self.release(&mut common.channels, now, channel, buffers.as_slice());
            }
            Command::Connect { token, peer } => {
                self.take_connect(common, now, channel, token, peer, false);
            }
            Command::ConnectShared { token, peer } => {
                self.take_connect(common, now, channel, token, peer, true);
            }
            Command::OpenStream { token, connection } => {
                if let Err(code) = self.open_stream(common, now, channel, token, connection)
                    && let Some(channel) = common.channels.channel(channel)
                {
                    channel.tell(Completion::ConnectFailed { token, code });
                }
            }
            Command::TakeStreams { are_taken } => {
                if let Some(channel) = common.channels.channel(channel) {
                    channel.takes_streams = are_taken;
                }
            }
            Command::TellSkipped { is_told } => {
                if let Some(channel) = common.channels.channel(channel) {
                    channel.hears_of_skipped = is_told;
                }
            }
            Command::SendWithin { connection, offset, length, within_us } => {
                let submitted = Submitted { connection, offset, length };
                self.send_within(&mut common.channels, now, channel, submitted, within_us);
            }
            Command::Close { connection, abort } => {
                self.close(common, now, channel, connection, abort);
            }
            Command::SetSilence { connection, silence_ms } => {
                self.set_silence(common, now, channel, connection, silence_ms);
            }
            Command::SetPriority { connection, urgency, weight } => {
                if let Some(key) = common.channels.flow_of(channel, connection) {
                    self.endpoint.set_priority(key, Priority { urgency, weight });
                }
            }
            Command::SetUnordered { connection } => {
                if let Some(key) = common.channels.flow_of(channel, connection) {
                    self.endpoint.set_unordered(key, &mut common.channels);
                }
            }
            Command::Post { connection, tag, memory, start: offset, bytes } => {
                let piece = (Spot { memory, offset }, bytes);
                self.post(&mut common.channels, now, channel, connection, tag, piece);
            }
            Command::Unpost { connection, tag } => {
                if let Some(channel) = common.channels.channel(channel) {
                    channel.unpost(connection, tag);
                }
            }
            Command::Share { token, offset, length, start, bytes } => {
                let (description, piece) = ((offset, length), (start.into(), bytes.into()));
                let channels = &mut common.channels;
                self.share(channels, channel, token, description, CHANNEL_MEMORY, piece);
            }
            Command::ShareMemory { token, offset, length, memory, start, bytes } => {
                let (description, piece) = ((offset, length), (start, bytes));
                self.share(&mut common.channels, channel, token, description, memory, piece);
            }
            Command::Unshare { token, region } => self.unshare(common, channel, token, region),
            Command::SetGroup { token, offset, length } => {
                self.set_group(common, channel, token, (offset, length));
            }
            Command::Ask { .. } | Command::AskWith { .. } => {} // see `ask`
            Command::SendFrames { .. } => {}                    // for VIFs
            Command::TcpListen { .. }
            | Command::TcpConnect { .. }
            | Command::TcpSend { .. }
            | Command::TcpShutdown { .. }
            | Command::TcpClose { .. }
            | Command::TcpSet { .. } => {} // for TCP
        }
    }

    /// Takes a message that an app has submitted, and those that follow it at once, `most` in all.
    /// Returns how many, and what stands behind them, if that was looked at.
    #[inline]
    pub(crate) fn take_submitted(
        &mut self,
        channels: &mut Channels,
        now: Time,
        id: u32,
        first: Submitted,
        most: usize,
    ) -> (usize, Option<Next>) {
        let Some(channel) = channels.channel(id) else { return (1, None) };
        channel.busy_at = now;
        let (mut taken, mut to_closed) = (0, 0);
        let mut slow = None;
        let mut next = Some(Next::Message(first));
        while let Some(Next::Message(Submitted { connection, offset, length })) = next {
            (taken, next) = (taken + 1, None);
            match channel.take_submitted(connection) {
                Some((slot, Some(key))) => {
                    self.fetch_flow(key.flow);
                    let mut run =
                        Run { end: &mut channel.end, connection, left: most - taken, next };
                    self.endpoint.send_all(now, key, (offset, length), &mut run);
                    let behind = most - taken - run.left;
                    (taken, next) = (taken + behind, run.next);
                    if behind > 0 {
                        channel.submitted_behind(slot, behind as u32);
                    }
                }
                Some((slot, None)) => {
                    slow = Some((slot, offset, length));
                    break;
                }
                None => {
                    channel.end.sends_finished(1);
                    to_closed += 1;
                }
            }
            if taken == most {
                break;
            }
            next = next.or_else(|| Some(channel.end.next_submitted()));
        }
        channels.counters.messages_submitted += taken as u64 - to_closed;
        channels.counters.messages_to_closed += to_closed;
        // Of one to an app of this host both are told at once: what comes next is taken after that.
        if let Some((slot, offset, length)) = slow {
            let message = Held { offset, length, deadline: None };
            channels.send_or_hold(Owner { channel: id, connection: slot }, message);
        }
        (taken, next)
    }

    /// Takes a message that is not to leave after so many microseconds from now.
    fn send_within(
        &mut self,
        channels: &mut Channels,
        now: Time,
        id: u32,
        submitted: Submitted,
        within_us: u32,
    ) {
        let Submitted { connection, offset, length } = submitted;
        let Some(channel) = channels.channel(id) else { return };
        let Some((slot, flow, number)) = channel.take_numbered(connection) else {
            channel.end.sends_finished(1);
            channels.counters.messages_to_closed += 1;
            return;
        };
        channels.counters.messages_submitted += 1;
        let deadline = Deadline { at: now + u64::from(within_us) * MICROSECOND, number };
        match flow {
            Some(key) => self.endpoint.send_until(now, key, offset, length, deadline),
            None => {
                let message = Held { offset, length, deadline: Some(deadline) };
                channels.send_or_hold(Owner { channel: id, connection: slot }, message);
            }
        }
    }

    /// The app posts a buffer. A message that has found no room before may fit it.
    fn post(
        &mut self,
        channels: &mut Channels,
        now: Time,
        id: u32,
        connection: u64,
        tag: u64,
        piece: (Spot, u64),
    ) {
        let Some(channel) = channels.channel(id) else { return };
        let Some(slot) = channel.post(connection, tag, piece) else { return };
        match channel.flow(slot) {
            Some(key) if channel.was_turned_away(slot) => self.endpoint.memory_freed(now, key),
            Some(_) => {}
            None => channels.try_waiting(Owner { channel: id, connection: slot }),
        }
    }

    /// The app has released these buffers. Whoever sent what was in them hears once of those that
    /// follow each other.
    fn release(&mut self, channels: &mut Channels, now: Time, id: u32, buffers: &[u32]) {
        let mut left = buffers.iter();
        let mut all = Released::default();
        while let Some(channel) = channels.channel(id) {
            let ended = all.take_run(channel, &mut left);
            self.released(channels, now, id, &all);
            match ended {
                Ok(Some(next)) => all = next,
                Ok(None) => return,
                Err(violation) => return channels.condemn(id, violation),
            }
        }
    }

    fn released(&mut self, channels: &mut Channels, now: Time, id: u32, all: &Released) {
        let Some(channel) = channels.channel(id).filter(|_| all.messages > 0) else { return };
        channel.released();
        match channel.released_of(all.owner) {
            Some((_, Some(key))) => self.endpoint.release(now, key, all.messages, all.bytes),
            Some((slot, None)) => {
                let owner = Owner { channel: id, connection: slot };
                channels.release_local(owner, all.messages, all.bytes);
            }
            None => {
                let Released { owner: tag, bytes, .. } = *all;
                channels.note_released(ReleasedBytes { channel: id, tag, bytes });
            }
        }
    }

    /// Those who were turned away because this app's pool was full may try again, some in each
    /// turn. Returns how many did.
    #[cold]
    pub(crate) fn retry(&mut self, common: &mut Common, now: Time, id: u32) -> usize {
        let told = self.tell_of_memory(common, now, id);
        let tried = common.channels.retry_senders_to(now, id, RETRIES_PER_TURN);
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
            if let Some(Bearer::Flow(key)) = channel.connection(slot).map(|found| &found.bearer) {
                let key = *key;
                self.endpoint.memory_freed(now, key);
            }
        }
        RETRIES_PER_TURN
    }
}
