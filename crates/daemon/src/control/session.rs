//! The socket of one app's control connection. What the app has and waits for is
//! [`clearway_control::Session`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clearway_channel::control::{self, Leave, Refusal, Reply, Request};
use clearway_channel::{Code, DaemonEnd};
use clearway_control::ChannelPlace;
use clearway_control::policy::Peer;
use clearway_nic::strangers;

use super::memories::Inlet;

/// Packets that make no sense, after which a session is ended.
const MALFORMED_MAX: u32 = 16;
/// Why the session of an app ends that has not said that it would.
pub(super) const GONE: &str = "the app has gone without detaching: was it killed, or did it crash?";
/// Requests that are read of an app that has gone.
const LAST_WORDS_MAX: usize = 4;

/// An open control connection.
#[derive(Debug)]
pub(super) struct Session {
    socket: strangers::Socket,
    pub(super) peer: Peer,
    /// A channel that it has not mapped yet.
    pub(super) offer: Option<Offer>,
    /// A socket that it has been given, to send memory by.
    pub(super) inlet: Option<Inlet>,
    /// What it waits for besides what the plane knows; the socket is not read meanwhile.
    pub(super) waiting: Waiting,
    /// Why this peer is not served: the answer to its first request.
    pub(super) refused: Option<Refusal>,
    malformed: u32,
}

/// A channel that the app has not mapped yet. It has its place at an engine, which knows nothing of
/// it.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) place: ChannelPlace,
    pub(super) end: Box<DaemonEnd>,
    pub(super) memory: OwnedFd,
}

/// What a session waits for.
#[derive(Debug, Default)]
pub(super) enum Waiting {
    /// For nothing: the next request may come.
    #[default]
    Nothing,
    /// Engines have been asked for their state in the round of this number, or will be in the next.
    Status(Option<u64>),
    /// The configuration is being read, for this time.
    Reload(u64),
    /// The state is on its way; the app has to take a part before the next is sent.
    Telling(super::status::Telling),
    /// Probes are on their way.
    Pong(super::ping::Task),
}

/// What came out of a session's socket.
#[derive(Debug)]
pub(super) enum Received {
    /// A request.
    Request(Request),
    /// Not a request; the app has been told.
    Malformed,
    /// Nothing after all.
    Nothing,
    /// The session has to end, for this reason.
    Gone(String),
}

impl Session {
    pub(super) fn new(socket: strangers::Socket, peer: Peer) -> Self {
        let waiting = Waiting::Nothing;
        Self { socket, peer, offer: None, inlet: None, waiting, refused: None, malformed: 0 }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !matches!(self.waiting, Waiting::Nothing)
    }

    /// True if it waits for room to be told more.
    pub(super) fn is_telling(&self) -> bool {
        match &self.waiting {
            Waiting::Telling(_) => true,
            Waiting::Pong(task) => task.has_untold(),
            _ => false,
        }
    }

    /// True if it waits for the state, or for room to be told more of it.
    pub(super) fn is_told_status(&self) -> bool {
        matches!(self.waiting, Waiting::Status(_) | Waiting::Telling(_))
    }

    /// The app has gone while it waited for an answer: it may have said goodbye before.
    pub(super) fn last_words(&mut self) -> Option<Leave> {
        for _ in 0..LAST_WORDS_MAX {
            match self.receive() {
                Received::Request(Request::Leave(leave)) => return Some(leave),
                Received::Request(_) => {}
                Received::Malformed | Received::Nothing | Received::Gone(_) => return None,
            }
        }
        None
    }

    pub(super) fn receive(&mut self) -> Received {
        let packet = match control::receive_bare(&self.socket) {
            Ok(Some(packet)) => packet,
            Ok(None) => return Received::Gone(GONE.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::Nothing,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return self.malformed(&error.to_string());
            }
            Err(error) => return Received::Gone(error.to_string()),
        };
        match Request::parse(&packet) {
            Ok(request) => Received::Request(request),
            Err(error) => self.malformed(&error.to_string()),
        }
    }

    fn malformed(&mut self, message: &str) -> Received {
        self.malformed += 1;
        if self.malformed > MALFORMED_MAX {
            return Received::Gone(format!("too many malformed requests; the last: {message}"));
        }
        match self.reply(&Reply::error_with(Code::Invalid, message), &[]) {
            Ok(()) => Received::Malformed,
            Err(reason) => Received::Gone(reason),
        }
    }

    /// Sends a reply. One that does not fit in the socket's buffer means that the app does not read
    /// its replies, and then the session has to end.
    pub(super) fn reply(
        &self,
        reply: &Reply,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        match self.try_reply(reply, descriptors) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the app does not read its replies".to_owned()),
            Err(error) => Err(format!("cannot reply: {error}")),
        }
    }

    /// Sends a reply; false if there is no room for it in the socket's buffer yet.
    pub(super) fn try_reply(
        &self,
        reply: &Reply,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<bool> {
        match control::send(&self.socket, reply, descriptors) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells the app why its session ends, if it still listens.
    pub(super) fn refuse(&self, refusal: &Refusal) {
        let _ = self.reply(&Reply::Error(refusal.clone()), &[]);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
