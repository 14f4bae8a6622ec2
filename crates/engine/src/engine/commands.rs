//! What apps ask for: whose command it is. What comes of it, the components know.

use clearway_base::Time;
use clearway_channel::{Command, Submitted};

use super::Core;
use crate::channels::Channel;
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

    fn take_commands_of(&mut self, now: Time, id: u32) -> usize {
        let taken = self.take_command_burst(now, id);
        if self.common.channels.channel(id).is_some_and(|channel| channel.may_try_again(now)) {
            return taken + self.messages.retry(&mut self.common, now, id);
        }
        taken
    }

    /// Most commands lead to completions. An app that goes on asking without ever reading them
    /// finds its own ring full in the end.
    fn take_command_burst(&mut self, now: Time, id: u32) -> usize {
        let mut taken = 0;
        while taken < COMMAND_BURST {
            let channel = self.common.channels.channel(id);
            let served =
                |channel: &&mut Channel| !channel.is_condemned && !channel.has_too_much_pending();
            let Some(channel) = channel.filter(served) else { return taken };
            match channel.end.next_command() {
                Ok(Some(Command::Send { connection, stream: 0, offset, length })) => {
                    channel.busy_at = now;
                    let (first, most) =
                        (Submitted { connection, offset, length }, COMMAND_BURST - taken);
                    let channels = &mut self.common.channels;
                    taken += self.messages.take_submitted(channels, now, id, first, most);
                }
                Ok(Some(command)) => {
                    channel.busy_at = now;
                    taken += 1;
                    self.command(now, id, command);
                }
                Ok(None) => return taken,
                Err(violation) => {
                    self.common.channels.condemn(id, violation);
                    return taken + 1;
                }
            }
        }
        taken
    }

    #[inline]
    fn command(&mut self, now: Time, id: u32, command: Command) {
        match command {
            Command::SendFrames { .. } => {
                self.frames.command(&mut self.common, now, id, command);
            }
            Command::Send { .. }
            | Command::Release { .. }
            | Command::Connect { .. }
            | Command::SetSilence { .. }
            | Command::Close { .. } => self.messages.command(&mut self.common, now, id, command),
        }
    }
}
