//! The client's end: connections of one app to a server, by one channel.

use super::ask::{self, Answer, Question};
use super::path::Path;
use crate::apps;
use crate::arguments::Idle;
use crate::endpoint::{Endpoint, there_is};
use crate::error::{Error, While};
use crate::load::{Load, Workload};
use clearway_client::{Channel, ConnectionId, Error as ChannelError, Event, Message};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long hosts may take to find each other, and a server to answer a question.
const PATIENCE: Duration = Duration::from_secs(10);
/// A call never waits longer, so that a stall is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// Events that are taken before messages are answered.
const EVENTS_MAX: usize = 256;

/// All connections.
pub(super) struct Fan {
    channel: Channel,
    app: String,
    socket: Option<PathBuf>,
    lines: Vec<Line>,
    numbers: HashMap<ConnectionId, usize>,
    /// The lines that something has come by since it was last asked.
    fresh: Vec<usize>,
}

/// One connection.
struct Line {
    connection: ConnectionId,
    inbox: VecDeque<Message>,
    /// The message last received.
    current: Option<Message>,
}

/// What has come.
pub(super) enum Fresh {
    /// Something by these lines.
    Lines(Vec<usize>),
    /// Nothing, or room to send, which may be for any.
    Any,
}

impl Fan {
    /// Attaches, connects to the first of the peers that answers, and tells the server what to do.
    pub(super) fn open(
        socket: Option<&std::path::Path>,
        idle: Idle,
        peers: &[SocketAddr],
        load: &Load,
        connections: usize,
    ) -> Result<Self, Error> {
        let app = format!("bench-{}", std::process::id());
        let together = Load { window: load.window * connections, ..*load };
        let options = apps::options(&app, socket, idle, &together);
        let channel = Channel::attach(&options).map_err(Error::App)?;
        let mut fan = Self {
            channel,
            app,
            socket: socket.map(ToOwned::to_owned),
            lines: Vec::with_capacity(connections),
            numbers: HashMap::with_capacity(connections),
            fresh: Vec::new(),
        };
        let peer = fan.connect_first(peers)?;
        for _ in 1..connections {
            fan.connect(peer)?;
        }
        let question = Question::Answer { bytes: load.answer_bytes() };
        for at in 0..connections {
            match fan.ask(at, &question)? {
                Answer::Ready => {}
                other => return Err(fan.misunderstood(&format!("{other:?}"))),
            }
        }
        Ok(fan)
    }

    fn connect_first(&mut self, peers: &[SocketAddr]) -> Result<SocketAddr, Error> {
        let (last, others) = peers.split_last().expect("a host has an address");
        let found = others.iter().find(|peer| self.connect(**peer).is_ok());
        match found {
            Some(peer) => Ok(*peer),
            None => self.connect(*last).map(|()| *last),
        }
    }

    fn connect(&mut self, peer: SocketAddr) -> Result<(), Error> {
        let connected = self.channel.connect(peer, Some(PATIENCE));
        let connection = connected.map_err(|cause| Error::Connect { peer, cause })?;
        self.numbers.insert(connection, self.lines.len());
        self.lines.push(Line { connection, inbox: VecDeque::new(), current: None });
        Ok(())
    }

    /// Asks the server by one of the lines. What comes by it meanwhile is no answer, and dropped.
    fn ask(&mut self, at: usize, question: &Question) -> Result<Answer, Error> {
        let connection = self.lines[at].connection;
        let message = ask::message(question);
        self.channel.send_timeout(connection, &message, Some(PATIENCE)).map_err(Error::App)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.wait().while_("waiting for an answer of the server")?;
            while let Some(message) = self.lines[at].inbox.pop_front() {
                if let Some(answer) = ask::parse(&message) {
                    return Ok(answer);
                }
            }
        }
        Err(unanswered(self.peer(), question))
    }

    fn misunderstood(&mut self, answer: &str) -> Error {
        Error::NotServed { to: self.peer(), answer: answer.to_owned() }
    }

    fn peer(&mut self) -> String {
        let peer = self.lines.first().and_then(|line| self.channel.peer(line.connection));
        peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string())
    }

    /// How the packets of the first connection travel, here and there.
    pub(super) fn paths(&mut self) -> Result<[Path; 2], Error> {
        let connection = self.lines[0].connection;
        let here = Path::of(self.socket.as_deref(), &self.app, connection)?;
        match self.ask(0, &Question::Path)? {
            Answer::Path(there) => Ok([here, there]),
            Answer::Failed(reason) => {
                Err(Error::Role { who: "the server".into(), message: reason })
            }
            other => Err(self.misunderstood(&format!("{other:?}"))),
        }
    }

    /// Waits until something comes, and takes what there is.
    pub(super) fn wait(&mut self) -> io::Result<Fresh> {
        let mut timeout = LOOK;
        for _ in 0..EVENTS_MAX {
            match self.channel.next_event(Some(timeout)) {
                Ok(Event::Message(message)) => self.take(message),
                Ok(Event::Writable) => {
                    self.fresh.clear();
                    return Ok(Fresh::Any);
                }
                Ok(Event::Closed { code, .. }) => return Err(io::Error::other(code)),
                Ok(_) => {}
                Err(ChannelError::WouldBlock | ChannelError::TimedOut { .. }) => break,
                Err(error) => return Err(io::Error::other(error)),
            }
            timeout = Duration::ZERO;
        }
        match std::mem::take(&mut self.fresh) {
            lines if lines.is_empty() => Ok(Fresh::Any),
            lines => Ok(Fresh::Lines(lines)),
        }
    }

    fn take(&mut self, message: Message) {
        let Some(&at) = self.numbers.get(&message.connection()) else { return };
        let inbox = &mut self.lines[at].inbox;
        if inbox.is_empty() {
            self.fresh.push(at);
        }
        inbox.push_back(message);
    }

    /// The end of one connection.
    pub(super) fn end(&mut self, at: usize) -> End<'_> {
        End { channel: &mut self.channel, line: &mut self.lines[at] }
    }
}

/// Why there is no answer. Who has answered the first question is a server.
pub(super) fn unanswered(to: String, question: &Question) -> Error {
    match question {
        Question::Answer { .. } => Error::NotServed { to, answer: "nothing".to_owned() },
        Question::Path => Error::Late { to, seconds: PATIENCE.as_secs() },
    }
}

/// The end of one connection.
pub(super) struct End<'a> {
    channel: &'a mut Channel,
    line: &'a mut Line,
}

impl Endpoint for End<'_> {
    fn waits(&self) -> bool {
        true
    }

    fn burst(&self) -> usize {
        self.line.inbox.len()
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        there_is(self.channel.try_send(self.line.connection, message)).map(|sent| sent.is_some())
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(last) = self.line.current.take() {
            self.channel.release(last);
        }
        self.line.current = self.line.inbox.pop_front();
        Ok(self.line.current.as_deref())
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let message = &self.line.current.as_deref().unwrap_or_default()[..length];
        there_is(self.channel.try_send(self.line.connection, message)).map(|sent| sent.is_some())
    }
}

/// Messages that a server sends back, one at a time: what `clearway ping` does with those that are
/// larger than a packet.
pub struct Echo {
    fan: Fan,
    /// Begins with its number.
    message: Vec<u8>,
    number: u64,
}

impl Echo {
    /// The number has to fit.
    pub const BYTES_MIN: usize = size_of::<u64>();

    /// Connects to `clearway bench --serve`.
    pub fn open(
        socket: Option<&std::path::Path>,
        peers: &[SocketAddr],
        bytes: usize,
    ) -> Result<Self, Error> {
        let size = bytes.max(Self::BYTES_MIN);
        let load = Load { workload: Workload::Rtt, size, window: 1, seconds: 0.0 };
        let fan = Fan::open(socket, Idle::Adaptive, peers, &load, 1)?;
        Ok(Self { fan, message: vec![0; size], number: 0 })
    }

    /// Sends the next message; how long it took to come back whole, if it has within `patience`.
    /// One that comes later is nobody's.
    pub fn round_trip(&mut self, patience: Duration) -> Result<Option<Duration>, Error> {
        self.number += 1;
        let number = self.number.to_le_bytes();
        self.message[..Self::BYTES_MIN].copy_from_slice(&number);
        let begun = Instant::now();
        let connection = self.fan.lines[0].connection;
        match self.fan.channel.send_timeout(connection, &self.message, Some(patience)) {
            Ok(()) => {}
            Err(ChannelError::TimedOut { .. }) => return Ok(None),
            Err(error) => return Err(Error::App(error)),
        }
        let length = self.message.len();
        while begun.elapsed() < patience {
            self.fan.wait().while_("waiting for a message to come back")?;
            let mut end = self.fan.end(0);
            while let Some(message) = end.receive().while_("receiving")? {
                if message.len() == length && message.starts_with(&number) {
                    return Ok(Some(begun.elapsed()));
                }
            }
        }
        Ok(None)
    }
}
