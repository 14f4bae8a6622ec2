//! `clearway bench --serve`: answers whoever connects, for as long as it is let. All clients share
//! its channel, and the memory of that: one that does not take its answers holds up the others.

use super::ask::{self, Answer, Question};
use super::path::Path;
use crate::apps;
use crate::arguments::Idle;
use crate::endpoint::{Endpoint, there_is};
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::load::{Load, Server, Workload};
use clearway_client::{
    Channel, ConnectionId, Error as ChannelError, Event, ListenAddress, Message,
};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A call never waits longer, so that Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(100);
/// Turns between two looks for it while there is something to do.
const TURNS_PER_LOOK: u64 = 1024;
/// Messages that are answered in a turn.
const BURST: usize = 256;
/// What a client gets until it has said how it wants its messages answered.
const ANSWER_BYTES: usize = 8;

/// Listens, says so, and answers until Ctrl-C.
pub(super) fn serve(
    socket: Option<&std::path::Path>,
    idle: Idle,
    at: ListenAddress,
) -> Result<(), Error> {
    let interrupt = Interrupt::catch()?;
    let app = format!("bench-serve-{}", std::process::id());
    let load = Load { workload: Workload::Rate, size: 0, window: 1, connections: 1, seconds: 0.0 };
    let options = apps::options(&app, socket, idle, &load);
    let mut channel = Channel::attach(&options).map_err(Error::App)?;
    let listener = channel.listen(at).map_err(Error::App)?;
    crate::table::print(&format!(
        "serving at {}; measure from another host with `clearway bench --to`, end with Ctrl-C",
        listener.address
    ))?;
    let socket = socket.map(ToOwned::to_owned);
    let mut crowd =
        Crowd { channel, app, socket, clients: HashMap::new(), current: None, has_received: false };
    // As many bytes as each client wants.
    let mut server = Server::new(usize::MAX);
    for turn in 1_u64.. {
        let is_idle = server.turn(&mut crowd).while_("serving")? == 0;
        if !is_idle && !turn.is_multiple_of(TURNS_PER_LOOK) {
            continue;
        }
        match interrupt.check() {
            Err(Error::Interrupted(_)) => break,
            checked => checked?,
        }
    }
    Ok(())
}

/// All clients.
struct Crowd {
    channel: Channel,
    app: String,
    socket: Option<PathBuf>,
    /// With how many bytes each wants its messages answered.
    clients: HashMap<ConnectionId, usize>,
    /// The message last received.
    current: Option<Message>,
    /// In this turn.
    has_received: bool,
}

impl Crowd {
    /// The next message that is to be answered as a part of the load.
    fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            let timeout = if self.has_received { Duration::ZERO } else { LOOK };
            match there_is(self.channel.next_event(Some(timeout)))? {
                None => return Ok(None),
                Some(Event::Message(message)) => {
                    self.has_received = true;
                    match ask::parse::<Question>(&message) {
                        Some(question) => self.answer(message.connection(), &question)?,
                        None => return Ok(Some(message)),
                    }
                }
                Some(Event::Closed { connection, .. }) => drop(self.clients.remove(&connection)),
                Some(_) => {}
            }
        }
    }

    fn answer(&mut self, client: ConnectionId, question: &Question) -> io::Result<()> {
        let answer = match question {
            Question::Answer { bytes } => {
                self.clients.insert(client, *bytes);
                Answer::Ready
            }
            Question::Path => match Path::of(self.socket.as_deref(), &self.app, client) {
                Ok(path) => Answer::Path(path),
                Err(error) => Answer::Failed(error.to_string()),
            },
        };
        // A client that does not take it asks in vain, which it says itself.
        send(&mut self.channel, client, &ask::message(&answer)).map(drop)
    }
}

impl Endpoint for Crowd {
    fn waits(&self) -> bool {
        true
    }

    fn burst(&self) -> usize {
        BURST
    }

    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        unreachable!("a server only replies")
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(last) = self.current.take() {
            self.channel.release(last);
        }
        self.current = self.next()?;
        Ok(self.current.as_deref())
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let Some(message) = &self.current else { return Ok(true) };
        let wanted = self.clients.get(&message.connection()).copied().unwrap_or(ANSWER_BYTES);
        let length = message.len().min(length).min(wanted);
        send(&mut self.channel, message.connection(), &message[..length])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.has_received = false;
        Ok(())
    }
}

/// False if there is no room yet. What a client that has gone would have got is sent to nobody.
fn send(channel: &mut Channel, client: ConnectionId, message: &[u8]) -> io::Result<bool> {
    match channel.send_timeout(client, message, Some(LOOK)) {
        Err(ChannelError::Connection { .. }) => Ok(true),
        sent => there_is(sent).map(|sent| sent.is_some()),
    }
}
