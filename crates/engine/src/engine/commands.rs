//! What apps ask for: whose command it is. What comes of it, the components know.

use clearway_base::Time;
use clearway_channel::{Command, Next};

use super::Core;
use crate::component::Component;

/// Commands taken from one app in one turn: more than an app has in flight that waits for answers,
/// or its last messages would leave in a packet of their own.
const COMMAND_BURST: usize = 64;

impl<X: Component<Owner = ()>> Core<X> {
    pub(super) fn take_commands(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for index in 0..self.common.channels.polled_count() {
            let id = self.common.channels.polled_id(index);
            taken += self.take_commands_of(now, id);
        }
        taken
    }

    #[inline]
    fn take_commands_of(&mut self, now: Time, id: u32) -> usize {
        let (taken, is_starved) = self.take_command_burst(now, id);
        if is_starved { taken + self.try_again(now, id) } else { taken }
    }

    /// Messages, or senders of TCP, wait for memory of this app.
    #[cold]
    fn try_again(&mut self, now: Time, id: u32) -> usize {
        let channel = self.common.channels.channel(id);
        if !channel.is_some_and(|channel| channel.may_try_again(now)) {
            return 0;
        }
        self.messages.retry(&mut self.common, now, id)
            + self.tcp.let_go_on(&mut self.common.channels, id)
    }

    /// Most commands lead to completions. An app that goes on asking without ever reading them
    /// finds its own ring full in the end. Returns how many, and whether messages wait for memory
    /// of this app.
    #[inline]
    fn take_command_burst(&mut self, now: Time, id: u32) -> (usize, bool) {
        let (mut taken, mut known) = (0, None);
        loop {
            let channels = &mut self.common.channels;
            let Some(channel) = channels.channel(id) else { return (taken, false) };
            if taken >= COMMAND_BURST || !channel.is_served() {
                return (taken, channel.is_starved());
            }
            match known.take().unwrap_or_else(|| channel.end.next_submitted()) {
                Next::Message(first) => {
                    let most = COMMAND_BURST - taken;
                    let messages = &mut self.messages;
                    let (count, behind) = messages.take_submitted(channels, now, id, first, most);
                    (taken, known) = (taken + count, behind);
                }
                Next::Bytes(bytes) => {
                    taken += 1;
                    self.tcp.take_bytes(channels, now, id, bytes);
                }
                Next::Nothing => return (taken, channel.is_starved()),
                Next::Other => taken += self.take_other(now, id, COMMAND_BURST - taken),
            }
        }
    }

    /// Takes a command that is no message, and where it asks for an operation those behind it that
    /// do so, too: `most` in all. Returns how many, or as how many it counts.
    #[inline(never)]
    fn take_other(&mut self, now: Time, id: u32, most: usize) -> usize {
        let Some(channel) = self.common.channels.channel(id) else { return 0 };
        match channel.end.next_command() {
            Ok(Some(command)) => {
                channel.busy_at = now;
                self.command(now, id, command, most)
            }
            Ok(None) => 0,
            Err(violation) => {
                self.common.channels.condemn(id, violation);
                1
            }
        }
    }

    #[inline]
    fn command(&mut self, now: Time, id: u32, command: Command, most: usize) -> usize {
        match command {
            Command::Ask { connection, .. } | Command::AskWith { connection, .. } => {
                let on = (id, connection);
                return self.messages.ask(&mut self.common, now, on, command, most);
            }
            // It may take as long as many others: those behind it are left to the next turn.
            Command::SetGroup { .. } => {
                self.messages.command(&mut self.common, now, id, command);
                return most;
            }
            Command::SendFrames { .. } => {
                self.frames.command(&mut self.common, now, id, command);
            }
            Command::Release { .. } => {
                self.messages.command(&mut self.common, now, id, command);
                if self.common.channels.has_released_bytes() {
                    self.tcp.take_released(&mut self.common, now);
                }
            }
            Command::Send { .. }
            | Command::Connect { .. }
            | Command::ConnectShared { .. }
            | Command::SetSilence { .. }
            | Command::Share { .. }
            | Command::ShareMemory { .. }
            | Command::Unshare { .. }
            | Command::OpenStream { .. }
            | Command::TakeStreams { .. }
            | Command::SendWithin { .. }
            | Command::TellSkipped { .. }
            | Command::Post { .. }
            | Command::Unpost { .. }
            | Command::SetPriority { .. }
            | Command::SetUnordered { .. }
            | Command::Close { .. } => self.messages.command(&mut self.common, now, id, command),
            Command::TcpListen { .. }
            | Command::TcpConnect { .. }
            | Command::TcpSend { .. }
            | Command::TcpShutdown { .. }
            | Command::TcpClose { .. }
            | Command::TcpSet { .. } => self.tcp.command(&mut self.common, now, id, command),
        }
        1
    }
}
