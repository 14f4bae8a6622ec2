//! The cases: what a process does that is counted.

use std::io;
use std::time::Duration;

use clearway_client::{
    CallEvent, Calls, Channel, ConnectionId, Description, Error as AppError, Event, Grant, Grantee,
    Operation, Outcome, RegionId, Rights, TcpId, TcpOption,
};
use serde::{Deserialize, Serialize};

use super::Ticks;
use super::counted;
use super::hosts::{Host, MTU};
use crate::directory::Directory;
use crate::error::{Error, While as _};
use crate::vif::{CountedFrames, Direction};

/// Rounds before those that are counted: connections, estimates and caches settle. Tests see only
/// that they end.
const WARM_UP_ROUNDS: u64 = if cfg!(test) { 20 } else { 200 };
/// Rounds that are counted.
pub(super) const ROUNDS: u64 = if cfg!(test) { 50 } else { 500 };
/// Looks at an app that waits for a message which does not come.
const PATIENCE: usize = 1_000_000;
const NOW: Option<Duration> = Some(Duration::ZERO);
/// Where who connects by TCP does so from.
const CLIENT_PORT: u16 = 4001;
/// In such packets a message of 32 KB goes in one.
const MTU_LARGE: u16 = 33_000;
/// The method of calls, and how long they are waited for.
const METHOD: u16 = 1;
const DEADLINE: Duration = Duration::from_secs(60);

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
    /// The same in packets of 33,000 bytes: one each way.
    EchoLargePacket,
    /// The same by a stream, one at a time.
    Stream,
    /// The same with 32 in flight.
    Stream32,
    /// Messages of 64 B between two apps of one engine, echoed one at a time.
    Local,
    /// Calls with 64 B each way, over memif, one at a time: both apps, both engines.
    Call,
    /// The same with 32 in flight.
    Call32,
    /// Reads of 64 B of another host's memory, one at a time: both apps, both engines.
    Read,
    /// The same with 32 in flight.
    Read32,
    /// The same: what serves them only, which is the engine of whose app the memory is.
    Serve,
    /// The same with 32 in flight.
    Serve32,
    /// Echoes of 64 B over TCP and memif, one at a time: both apps, both engines.
    Tcp,
    /// The same with 32 KB.
    TcpLarge,
    /// Echoes of 64 B over TCP between two apps of one engine, one at a time.
    TcpLocal,
    /// The same with 32 KB.
    TcpLocalLarge,
    /// Frames of 64 B from the wire to a virtual interface.
    VifReceive,
    /// The other way.
    VifSend,
}

impl Case {
    pub(super) const ALL: [Self; 19] = [
        Self::Echo,
        Self::Echo32,
        Self::EchoLarge,
        Self::EchoLargePacket,
        Self::Stream,
        Self::Stream32,
        Self::Local,
        Self::Call,
        Self::Call32,
        Self::Read,
        Self::Read32,
        Self::Serve,
        Self::Serve32,
        Self::Tcp,
        Self::TcpLarge,
        Self::TcpLocal,
        Self::TcpLocalLarge,
        Self::VifReceive,
        Self::VifSend,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo-64",
            Self::Echo32 => "echo-64-32",
            Self::EchoLarge => "echo-32768",
            Self::EchoLargePacket => "echo-32768-large",
            Self::Stream => "stream-64",
            Self::Stream32 => "stream-64-32",
            Self::Local => "local-64",
            Self::Call => "call-64",
            Self::Call32 => "call-64-32",
            Self::Read => "read-64",
            Self::Read32 => "read-64-32",
            Self::Serve => "serve-64",
            Self::Serve32 => "serve-64-32",
            Self::Tcp => "tcp-64",
            Self::TcpLarge => "tcp-32768",
            Self::TcpLocal => "tcp-local-64",
            Self::TcpLocalLarge => "tcp-local-32768",
            Self::VifReceive => "wire-to-vif",
            Self::VifSend => "vif-to-wire",
        }
    }

    /// Echoes, messages, reads or frames that are counted.
    pub(super) fn units(self) -> u64 {
        ROUNDS
            * match self {
                Self::Echo | Self::EchoLarge | Self::EchoLargePacket => 1,
                Self::Stream | Self::Read | Self::Serve => 1,
                Self::Call | Self::Tcp | Self::TcpLarge => 1,
                Self::TcpLocal | Self::TcpLocalLarge => 1,
                // An echo is two messages.
                Self::Local => 2,
                Self::Echo32 | Self::Stream32 | Self::Call32 => 32,
                Self::Read32 | Self::Serve32 => 32,
                Self::VifReceive | Self::VifSend => CountedFrames::PER_ROUND,
            }
    }

    /// Does it, so often that the beginning does not count.
    pub(crate) fn play(self) -> Result<(), Error> {
        match self {
            Self::Echo | Self::Stream => self.echo(1, 64),
            Self::Echo32 | Self::Stream32 => self.echo(32, 64),
            Self::EchoLarge | Self::EchoLargePacket => self.echo(1, 32 << 10),
            Self::Local => self.echo(1, 64),
            Self::Call => call(1),
            Self::Call32 => call(32),
            Self::Read => read(1),
            Self::Read32 => read(32),
            Self::Serve => serve(1),
            Self::Serve32 => serve(32),
            Self::Tcp => tcp_echo(64, 1),
            Self::TcpLarge => tcp_echo(32 << 10, 1),
            Self::TcpLocal => tcp_echo(64, 0),
            Self::TcpLocalLarge => tcp_echo(32 << 10, 0),
            Self::VifReceive => frames(Direction::Receive),
            Self::VifSend => frames(Direction::Send),
        }
        .while_("counting")
    }

    fn echo(self, window: usize, bytes: usize) -> io::Result<()> {
        let mtu = if self == Self::EchoLargePacket { MTU_LARGE } else { MTU };
        let hosts = Host::pair_of(&Ticks::default(), mtu)?;
        let mut echo = Echo::open(&hosts[0], &hosts[usize::from(self != Self::Local)], bytes)?;
        if matches!(self, Self::Stream | Self::Stream32) {
            echo.turn_to_stream()?;
        }
        for _ in 0..WARM_UP_ROUNDS {
            echo.round(window)?;
        }
        counted(|| (0..ROUNDS).try_for_each(|_| echo.round(window)))
    }
}

/// The server is at the first host, the client at the one of this index.
fn tcp_echo(bytes: usize, client: usize) -> io::Result<()> {
    let hosts = Host::pair(&Ticks::default())?;
    let mut echo = TcpEcho::open(&hosts[0], &hosts[client], bytes)?;
    for _ in 0..WARM_UP_ROUNDS {
        echo.round()?;
    }
    counted(|| (0..ROUNDS).try_for_each(|_| echo.round()))
}

fn call(window: usize) -> io::Result<()> {
    let mut calling = Calling::open()?;
    for _ in 0..WARM_UP_ROUNDS {
        calling.round(window)?;
    }
    counted(|| (0..ROUNDS).try_for_each(|_| calling.round(window)))
}

fn read(window: usize) -> io::Result<()> {
    let mut reader = Reader::open()?;
    for _ in 0..WARM_UP_ROUNDS {
        reader.round(window, look)?;
    }
    counted(|| (0..ROUNDS).try_for_each(|_| reader.round(window, look)))
}

fn serve(window: usize) -> io::Result<()> {
    let mut reader = Reader::open()?;
    for _ in 0..WARM_UP_ROUNDS {
        reader.round(window, look)?;
    }
    (0..ROUNDS).try_for_each(|_| reader.round(window, |owner| counted(|| look(owner))))
}

/// An app that has nothing to do lets its engine work.
fn look(app: &mut Channel) -> io::Result<()> {
    there_is(app.next_event(NOW)).map(drop)
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
        let (client, server, connection) = connect(server, client)?;
        Ok(Self { client, server, connection, message: vec![7; bytes], buffer: vec![0; bytes] })
    }

    /// Goes on by a stream of the connection.
    fn turn_to_stream(&mut self) -> io::Result<()> {
        self.server.take_streams(true).map_err(io::Error::other)?;
        look(&mut self.server)?;
        let token = self.client.start_open_stream(self.connection).map_err(io::Error::other)?;
        self.connection = patiently(|| match there_is(self.client.next_event(NOW))? {
            Some(Event::Connected { token: opened, connection, .. }) if opened == token => {
                Ok(Some(connection))
            }
            _ => Ok(None),
        })?;
        patiently(|| there_is(self.server.accept_stream(NOW))).map(drop)
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

/// Two apps, of which one calls the other.
struct Calling {
    client: (Channel, Calls),
    server: (Channel, Calls),
    connection: ConnectionId,
    body: Vec<u8>,
}

impl Calling {
    /// Between two hosts.
    fn open() -> io::Result<Self> {
        let [server, client] = Host::pair(&Ticks::default())?;
        let (client, server, connection) = connect(&server, &client)?;
        let (client, server) = ((client, Calls::new()), (server, Calls::new()));
        Ok(Self { client, server, connection, body: vec![7; 64] })
    }

    /// Makes `window` calls, which leave together, and takes as many answers.
    fn round(&mut self, window: usize) -> io::Result<()> {
        let (channel, calls) = &mut self.client;
        let Self { connection, body, .. } = self;
        for _ in 1..window {
            let started = calls.start_later(channel, *connection, METHOD, body, Some(DEADLINE));
            started.map_err(io::Error::other)?;
        }
        let started = calls.start(channel, *connection, METHOD, body, Some(DEADLINE));
        started.map_err(io::Error::other)?;
        let (mut left_to_answer, mut left) = (window, window);
        patiently(|| {
            let (server, requests) = &mut self.server;
            // Also when it has answered all: its engine works while it asks.
            while let Some(event) = there_is(requests.next(server, NOW))? {
                let CallEvent::Asked(request) = event else { continue };
                left_to_answer -= 1;
                let answered = if left_to_answer > 0 {
                    requests.answer_later(server, request.id(), &request)
                } else {
                    requests.answer(server, request.id(), &request)
                };
                answered.map_err(io::Error::other)?;
                request.release(server);
                if left_to_answer == 0 {
                    break;
                }
            }
            let (client, calls) = &mut self.client;
            while let Some(event) = there_is(calls.next(client, NOW))? {
                let CallEvent::Ended { outcome: Outcome::Answered(answer), .. } = event else {
                    return Err(io::Error::other(format!("not answered: {event:?}")));
                };
                answer.release(client);
                left -= 1;
                if left == 0 {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
    }
}

/// An app that reads what another shares.
struct Reader {
    client: Channel,
    owner: Channel,
    connection: ConnectionId,
    region: RegionId,
}

impl Reader {
    /// Between two hosts.
    fn open() -> io::Result<Self> {
        let [server, client] = Host::pair(&Ticks::default())?;
        let (client, mut owner, connection) = connect(&server, &client)?;
        let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::READ }];
        let description = Description { name: Vec::new(), grants };
        let all = 0..owner.shared().length();
        let region = owner.share(all, &description, None).map_err(io::Error::other)?;
        Ok(Self { client, owner, connection, region })
    }

    /// Starts `window` reads, which leave together, and takes as many. The owner's engine works
    /// when `look` lets it.
    fn round(
        &mut self,
        window: usize,
        look: impl Fn(&mut Channel) -> io::Result<()>,
    ) -> io::Result<()> {
        let (offset, length) = (64, 64);
        let read = Operation::Read { region: self.region, offset, length };
        for _ in 1..window {
            self.client.start_later(self.connection, &read).map_err(io::Error::other)?;
        }
        self.client.start(self.connection, &read).map_err(io::Error::other)?;
        let mut left = window;
        patiently(|| {
            look(&mut self.owner)?;
            while let Some(operated) = there_is(self.client.next_operated(NOW))? {
                operated.done().map_err(io::Error::other)?;
                left -= 1;
                if left == 0 {
                    return Ok(Some(()));
                }
            }
            Ok(None)
        })
    }
}

/// Apps of both hosts, client and server, and a connection between them.
fn connect(server: &Host, client: &Host) -> io::Result<(Channel, Channel, ConnectionId)> {
    let at = server.at();
    let (mut server, mut client) = (server.attach()?, client.attach()?);
    server.listen(at.port()).map_err(io::Error::other)?;
    client.start_connect(at).map_err(io::Error::other)?;
    let connection = patiently(|| {
        look(&mut server)?;
        match there_is(client.next_event(NOW))? {
            Some(Event::Connected { connection, .. }) => Ok(Some(connection)),
            Some(other) => Err(io::Error::other(format!("not connected: {other:?}"))),
            None => Ok(None),
        }
    })?;
    Ok((client, server, connection))
}

/// Two apps with a TCP connection, of which one answers the other.
struct TcpEcho {
    client: Channel,
    server: Channel,
    /// The connection at the client's end, and at the server's.
    ends: [TcpId; 2],
    message: Vec<u8>,
    buffer: Vec<u8>,
}

impl TcpEcho {
    fn open(server: &Host, client: &Host, bytes: usize) -> io::Result<Self> {
        let at = server.at();
        let (mut server, mut client) = (server.attach()?, client.attach()?);
        let port = server.tcp_bind(at.port()).map_err(io::Error::other)?.id;
        server.tcp_listen(port, 1).map_err(io::Error::other)?;
        let own_port = client.tcp_bind(CLIENT_PORT).map_err(io::Error::other)?.id;
        client.tcp_start_connect(Some(own_port), at).map_err(io::Error::other)?;
        let (mut near, mut far) = (None, None);
        let ends = patiently(|| {
            match there_is(client.next_event(NOW))? {
                Some(Event::TcpConnected { connection, .. }) => near = Some(connection),
                Some(Event::TcpConnectFailed { code, .. }) => {
                    return Err(io::Error::other(format!("not connected: {code}")));
                }
                _ => {}
            }
            if let Some((accepted, _)) = there_is(server.tcp_accept(port, NOW))? {
                far = Some(accepted);
            }
            Ok(near.zip(far).map(|(near, far)| [near, far]))
        })?;
        client.tcp_set(ends[0], TcpOption::NoDelay(true)).map_err(io::Error::other)?;
        server.tcp_set(ends[1], TcpOption::NoDelay(true)).map_err(io::Error::other)?;
        Ok(Self { client, server, ends, message: vec![7; bytes], buffer: vec![0; bytes] })
    }

    /// Sends, has it answered as it comes, and receives the answer.
    fn round(&mut self) -> io::Result<()> {
        let Self { client, server, ends: [near, far], message, buffer } = self;
        tcp_send(client, *near, message)?;
        let (mut left_to_answer, mut left) = (message.len(), message.len());
        patiently(|| {
            if left_to_answer > 0
                && let Some(count) = there_is(server.tcp_recv(*far, buffer, NOW))?
            {
                left_to_answer -= count;
                tcp_send(server, *far, &buffer[..count])?;
            }
            left -= there_is(client.tcp_recv(*near, buffer, NOW))?.unwrap_or(0);
            Ok((left == 0).then_some(()))
        })
    }
}

/// Sends all bytes of a stream.
fn tcp_send(app: &mut Channel, connection: TcpId, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = app.tcp_send(connection, bytes, NOW).map_err(io::Error::other)?;
        bytes = &bytes[sent..];
    }
    Ok(())
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
