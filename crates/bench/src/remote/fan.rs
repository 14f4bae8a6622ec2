//! The client's end: connections of one app to a server, by one channel.

use super::ask::{self, Answer, Question};
use super::path::Path;
use crate::apps;
use crate::arguments::Idle;
use crate::endpoint::Endpoint;
use crate::error::{Error, While};
use crate::lines::Lines;
use crate::load::{Load, Workload};
use clearway_client::{Channel, Error as ChannelError};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long hosts may take to find each other, and a server to answer a question.
const PATIENCE: Duration = Duration::from_secs(10);

/// All connections.
pub(super) struct Fan {
    pub(super) lines: Lines,
    app: String,
    socket: Option<PathBuf>,
}

impl Fan {
    /// Attaches, connects to the first of the peers that answers, and tells the server what to do.
    pub(super) fn open(
        socket: Option<&std::path::Path>,
        idle: Idle,
        peers: &[SocketAddr],
        load: &Load,
    ) -> Result<Self, Error> {
        let app = format!("bench-{}", std::process::id());
        let options = apps::options(&app, socket, idle, load);
        let channel = Channel::attach(&options).map_err(Error::App)?;
        let socket = socket.map(ToOwned::to_owned);
        let mut fan = Self { lines: Lines::of(channel), app, socket };
        let peer = fan.connect_first(peers)?;
        for _ in 1..load.connections {
            fan.connect(peer)?;
        }
        let question = Question::Answer { bytes: load.answer_bytes() };
        for at in 0..load.connections {
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
        let connected = self.lines.channel.connect(peer, Some(PATIENCE));
        self.lines.add(connected.map_err(|cause| Error::Connect { peer, cause })?);
        Ok(())
    }

    /// Asks the server by one of the lines. What comes by it meanwhile is no answer, and dropped.
    fn ask(&mut self, at: usize, question: &Question) -> Result<Answer, Error> {
        let connection = self.lines.connection(at);
        let message = ask::message(question);
        self.lines
            .channel
            .send_timeout(connection, &message, Some(PATIENCE))
            .map_err(Error::App)?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.lines.wait().while_("waiting for an answer of the server")?;
            let mut end = self.lines.end(at);
            while let Some(message) = end.receive().while_("receiving")? {
                if let Some(answer) = ask::parse(message) {
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
        let peer = self.lines.channel.peer(self.lines.connection(0));
        peer.map_or_else(|| "the peer".to_owned(), |peer| peer.to_string())
    }

    /// How the packets of the first connection travel, here and there.
    pub(super) fn paths(&mut self) -> Result<[Path; 2], Error> {
        let connection = self.lines.connection(0);
        let here = Path::of(self.socket.as_deref(), &self.app, connection)?;
        match self.ask(0, &Question::Path)? {
            Answer::Path(there) => Ok([here, there]),
            Answer::Failed(reason) => {
                Err(Error::Role { who: "the server".into(), message: reason })
            }
            other => Err(self.misunderstood(&format!("{other:?}"))),
        }
    }
}

/// Why there is no answer. Who has answered the first question is a server.
pub(super) fn unanswered(to: String, question: &Question) -> Error {
    match question {
        Question::Answer { .. } => Error::NotServed { to, answer: "nothing".to_owned() },
        Question::Path => Error::Late { to, seconds: PATIENCE.as_secs() },
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
        let load = Load { workload: Workload::Rtt, size, window: 1, connections: 1, seconds: 0.0 };
        let fan = Fan::open(socket, Idle::Adaptive, peers, &load)?;
        Ok(Self { fan, message: vec![0; size], number: 0 })
    }

    /// Sends the next message; how long it took to come back whole, if it has within `patience`.
    /// One that comes later is nobody's.
    pub fn round_trip(&mut self, patience: Duration) -> Result<Option<Duration>, Error> {
        self.number += 1;
        let number = self.number.to_le_bytes();
        self.message[..Self::BYTES_MIN].copy_from_slice(&number);
        let begun = Instant::now();
        let lines = &mut self.fan.lines;
        match lines.channel.send_timeout(lines.connection(0), &self.message, Some(patience)) {
            Ok(()) => {}
            Err(ChannelError::TimedOut { .. }) => return Ok(None),
            Err(error) => return Err(Error::App(error)),
        }
        let length = self.message.len();
        while begun.elapsed() < patience {
            lines.wait().while_("waiting for a message to come back")?;
            let mut end = lines.end(0);
            while let Some(message) = end.receive().while_("receiving")? {
                if message.len() == length && message.starts_with(&number) {
                    return Ok(Some(begun.elapsed()));
                }
            }
        }
        Ok(None)
    }
}
