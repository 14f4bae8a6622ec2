//! The cases: what a process does that is counted.

use std::io;
use std::time::Duration;

use clearway_client::{Channel, ConnectionId, Error as AppError, Event};
use serde::{Deserialize, Serialize};

use super::Ticks;
use super::counted;
use super::hosts::Host;
use crate::directory::Directory;
use crate::error::{Error, While as _};
use crate::vif::{CountedFrames, Direction};

/// Rounds before those that are counted: connections, estimates and caches settle.
const WARM_UP_ROUNDS: u64 = 200;
/// Rounds that are counted.
const ROUNDS: u64 = 500;
/// Looks at an app that waits for a message which does not come.
const PATIENCE: usize = 1_000_000;
const NOW: Option<Duration> = Some(Duration::ZERO);

/// One of the common cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// Echoes of 64 B over memif, one at a time: both apps, both engines.
    Echo,
    /// The same with 32 in flight.
    Echo32,
    /// The same with 32 KB, one at a time.
    EchoLarge,
    /// Messages of 64 B between two apps of one engine, echoed one at a time.
    Local,
    /// Frames of 64 B from the wire to a virtual interface.
    VifReceive,
    /// The other way.
    VifSend,
}

impl Case {
    pub(super) const ALL: [Self; 6] =
        [Self::Echo, Self::Echo32, Self::EchoLarge, Self::Local, Self::VifReceive, Self::VifSend];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo-64",
            Self::Echo32 => "echo-64-32",
            Self::EchoLarge => "echo-32768",
            Self::Local => "local-64",
            Self::VifReceive => "wire-to-vif",
            Self::VifSend => "vif-to-wire",
        }
    }

    /// Echoes, messages or frames that are counted.
    pub(super) fn units(self) -> u64 {
        ROUNDS
            * match self {
                Self::Echo | Self::EchoLarge => 1,
                // An echo is two messages.
                Self::Local => 2,
                Self::Echo32 => 32,
                Self::VifReceive | Self::VifSend => CountedFrames::PER_ROUND,
            }
    }

    /// Does it, so often that the beginning does not count.
    pub(crate) fn play(self) -> Result<(), Error> {
        match self {
            Self::Echo => self.echo(1, 64),
            Self::Echo32 => self.echo(32, 64),
            Self::EchoLarge => self.echo(1, 32 << 10),
            Self::Local => self.echo(1, 64),
            Self::VifReceive => frames(Direction::Receive),
            Self::VifSend => frames(Direction::Send),
        }
        .while_("counting")
    }

    fn echo(self, window: usize, bytes: usize) -> io::Result<()> {
        let hosts = Host::pair(&Ticks::default())?;
        let mut echo = Echo::open(&hosts[0], &hosts[usize::from(self != Self::Local)], bytes)?;
        for _ in 0..WARM_UP_ROUNDS {
            echo.round(window)?;
        }
        counted(|| (0..ROUNDS).try_for_each(|_| echo.round(window)))
    }
}

fn frames(direction: Direction) -> io::Result<()> {
    let directory = Directory::create()?;
    let mut frames = CountedFrames::open(&directory.path().join("memif.sock"), direction)?;
    for _ in 0..WARM_UP_ROUNDS {
        frames.round(|turn| turn());
    }
    let passed: u64 = (0..ROUNDS).map(|_| frames.round(|turn| counted(turn))).sum();
    if passed == ROUNDS * CountedFrames::PER_ROUND {
        return Ok(());
    }
    Err(io::Error::other(format!("{passed} frames passed in {ROUNDS} rounds")))
}

/// Two apps, of which one answers the other.
struct Echo {
    client: Channel,
    server: Channel,
    connection: ConnectionId,
    message: Vec<u8>,
    buffer: Vec<u8>,
}

impl Echo {
    fn open(server: &Host, client: &Host, bytes: usize) -> io::Result<Self> {
        let at = server.at();
        let (mut server, mut client) = (server.attach()?, client.attach()?);
        server.listen(at.port()).map_err(io::Error::other)?;
        client.start_connect(at).map_err(io::Error::other)?;
        let connection = patiently(|| {
            // The server's app has nothing to do but to let its engine work.
            let _ = there_is(server.next_event(NOW))?;
            match there_is(client.next_event(NOW))? {
                Some(Event::Connected { connection, .. }) => Ok(Some(connection)),
                Some(other) => Err(io::Error::other(format!("not connected: {other:?}"))),
                None => Ok(None),
            }
        })?;
        Ok(Self { client, server, connection, message: vec![7; bytes], buffer: vec![0; bytes] })
    }

    /// Sends `window` messages and receives as many; those that wait together leave together.
    /// Nobody looks for more than there will be: what looking in vain costs is not counted.
    fn round(&mut self, window: usize) -> io::Result<()> {
        for left in (0..window).rev() {
            send(&mut self.client, self.connection, &self.message, left)?;
        }
        let (mut left_to_answer, mut left) = (window, window);
        patiently(|| {
            // Also when it has answered all: its engine works while it asks.
            while let Some((from, length)) = there_is(self.server.recv(&mut self.buffer, NOW))? {
                left_to_answer -= 1;
                send(&mut self.server, from, &self.buffer[..length], left_to_answer)?;
                if left_to_answer == 0 {
                    break;
                }
            }
            while there_is(self.client.recv(&mut self.buffer, NOW))?.is_some() {
                left -= 1;
                if left == 0 {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
    }
}

/// Sends a message that as many others as `left` follow.
fn send(
    app: &mut Channel,
    connection: ConnectionId,
    message: &[u8],
    left: usize,
) -> io::Result<()> {
    let sent =
        if left > 0 { app.send_later(connection, message) } else { app.send(connection, message) };
    sent.map_err(io::Error::other)
}

fn patiently<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    for _ in 0..PATIENCE {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
    }
    Err(io::Error::other("a message did not come"))
}

/// What a call that does not wait has brought.
fn there_is<T>(result: Result<T, AppError>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(AppError::WouldBlock | AppError::TimedOut { .. }) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_comes_to_its_end() {
        for case in Case::ALL {
            case.play().unwrap_or_else(|error| panic!("{}: {error}", case.name()));
        }
    }
}
