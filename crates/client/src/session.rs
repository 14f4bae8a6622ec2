//! The control connection to the daemon: requests with their replies, and noticing its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_channel::control::{
    self, AddMemory, Attach, Attached, Empty, Leave, MemoryAdded, Packet, Refusal, Reply, Request,
};
use clearway_channel::{AppEnd, Code, Handover, exit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::{Awaited, Error, Options, identity, wait};

/// How long the daemon's control plane may take for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Session {
    /// Shared with what is said when the process ends.
    socket: Arc<OwnedFd>,
    linger: Duration,
    /// Requests that nobody waits for any more, and whose answers are still to come.
    given_up: u32,
    /// The process that has it. A child that it forks has the same socket, but no channel.
    process: u32,
}

impl Session {
    /// Connects to the daemon at `path`, if that is who it should be.
    pub(crate) fn connect(path: &Path, daemon_user: Option<u32>) -> Result<Self, Error> {
        let no_daemon = |cause: io::Error| Error::NoDaemon { path: path.to_owned(), cause };
        let address = SocketAddrUnix::new(path).map_err(|errno| no_daemon(errno.into()))?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::connect(&socket, &address).map_err(|errno| no_daemon(errno.into()))?;
        identity::check(socket.as_fd(), path, daemon_user)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket: Arc::new(socket),
            linger: Duration::ZERO,
            given_up: 0,
            process: std::process::id(),
        })
    }

    /// Opens the channel of this session, on the engine of the name that comes with it.
    pub(crate) fn attach(&mut self, options: &Options) -> Result<(AppEnd, String), Error> {
        let attach = Attach {
            exclusive: options.exclusive,
            ..Attach::new(options.app.clone(), options.engine.clone(), options.sizes)
        };
        let (reply, descriptors) = self.request(&Request::Attach(attach))?;
        let Reply::Attached(Attached { sizes, engine_name, .. }) = reply else {
            return Err(unexpected(&reply));
        };
        let Ok([memory, daemon_doorbell, app_doorbell]) = <[OwnedFd; 3]>::try_from(descriptors)
        else {
            return Err(Error::Answer("the channel came without its descriptors".into()));
        };
        let end = AppEnd::open(Handover { memory, daemon_doorbell, app_doorbell }, sizes)?;
        match self.request(&Request::Mapped(Empty {}))?.0 {
            Reply::Mapped(Empty {}) => {
                self.linger = options.linger;
                exit::leave_at_exit(&self.socket, self.last_will());
                Ok((end, engine_name))
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// Hands over a memfd of so many bytes, by a socket that the daemon makes for it: the control
    /// connection takes no descriptors. Returns the number of the memory.
    pub(crate) fn add_memory(&mut self, memfd: BorrowedFd<'_>, bytes: u64) -> Result<u64, Error> {
        let (reply, descriptors) = self.request(&Request::AddMemory(AddMemory { bytes }))?;
        let Reply::BringMemory(Empty {}) = reply else { return Err(unexpected(&reply)) };
        let Some(socket) = descriptors.first() else {
            return Err(Error::Answer("memory is to be sent, and there is no socket".into()));
        };
        control::send(socket, &Empty {}, &[memfd])?;
        match self.request(&Request::MemorySent(Empty {}))?.0 {
            Reply::MemoryAdded(MemoryAdded { memory }) => Ok(memory),
            reply => Err(unexpected(&reply)),
        }
    }

    /// The app lets its channel go in good order.
    pub(crate) fn leave(&mut self) {
        if !self.is_own() {
            return;
        }
        // A daemon that is gone, or does not read, cannot be told.
        let _ = control::send(&self.socket, &Request::Leave(self.last_will()), &[]);
    }

    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    fn last_will(&self) -> Leave {
        Leave { linger_ms: u32::try_from(self.linger.as_millis()).unwrap_or(u32::MAX) }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn request(&mut self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), Error> {
        if !self.is_own() {
            return Err(of_the_parent());
        }
        match control::send(&self.socket, request, &[]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let text = "give fewer filters, peers or whatever it lists, or shorter ones";
                return Err(Error::argument(format!("{error}; {text}")));
            }
            Err(_) => return Err(self.last_words()),
        }
        let deadline = Instant::now() + ANSWER_PATIENCE;
        loop {
            if let Some(packet) = self.receive()? {
                return match parse(&packet)? {
                    Reply::Error(Refusal { code, message }) => {
                        Err(Error::Refused { code, message })
                    }
                    reply => Ok((reply, packet.descriptors)),
                };
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.given_up += 1;
                return Err(Error::TimedOut { awaited: Awaited::Answer, waited: ANSWER_PATIENCE });
            }
            let timeout = wait::timespec(left);
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut waiting, Some(&timeout)))?;
        }
    }

    /// An error if the daemon has gone away or has ended the session.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.receive()? {
            None => Ok(()),
            // The daemon speaks unasked only to say why it ends the session.
            Some(packet) => Err(match parse(&packet)? {
                Reply::Error(Refusal { code, message }) => Error::DaemonGone { code, message },
                reply => unexpected(&reply),
            }),
        }
    }

    /// Why nothing can be sent any more. A daemon that ends a session says why before it does.
    fn last_words(&mut self) -> Error {
        match self.receive().and_then(|packet| packet.as_ref().map(parse).transpose()) {
            Ok(Some(Reply::Error(Refusal { code, message }))) => Error::Refused { code, message },
            Ok(_) => gone(),
            Err(error) => error,
        }
    }

    /// What the daemon says next, without late answers: it answers requests in their order.
    fn receive(&mut self) -> Result<Option<Packet>, Error> {
        while self.given_up > 0 {
            if self.receive_any()?.is_none() {
                return Ok(None);
            }
            self.given_up -= 1;
        }
        self.receive_any()
    }

    fn receive_any(&self) -> Result<Option<Packet>, Error> {
        let received = match control::receive(&self.socket) {
            // The kernel tells once that the other side did not read everything, and only then what
            // that side has said.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                control::receive(&self.socket)
            }
            received => received,
        };
        match received {
            Ok(Some(packet)) => Ok(Some(packet)),
            Ok(None) => Err(gone()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::InvalidData => Err(Error::Answer(error.to_string())),
                _ => Err(gone()),
            },
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        exit::forget(&self.socket);
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn of_the_parent() -> Error {
    let message = "the channel is the parent's of this process, and fork() does not hand it on; \
                   attach another one here";
    Error::Declined { code: Code::Invalid, message: message.into() }
}

/// The daemon went away without a word.
pub(crate) fn gone() -> Error {
    Error::DaemonGone { code: Code::DaemonGone, message: Code::DaemonGone.text().into() }
}

/// A reply that does not belong to the request.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Answer(format!("{reply:?}"))
}

fn parse(packet: &Packet) -> Result<Reply, Error> {
    Reply::parse(&packet.bytes).map_err(|error| Error::Answer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_channel::control::{Listen, Listening, OpenVif, PACKET_BYTES_MAX};
    use rustix::net::socketpair;

    fn session(given_up: u32) -> (Session, OwnedFd) {
        let (unix, flags) = (AddressFamily::UNIX, SocketFlags::NONBLOCK);
        let (app, daemon) = socketpair(unix, SocketType::SEQPACKET, flags, None).expect("a pair");
        let (socket, process) = (Arc::new(app), std::process::id());
        (Session { socket, linger: Duration::ZERO, given_up, process }, daemon)
    }

    /// The session goes on: nothing was sent.
    #[test]
    fn a_request_that_is_too_long_is_an_argument_that_is_wrong() {
        let (mut session, _daemon) = session(0);
        let receive = vec!["x".repeat(PACKET_BYTES_MAX)];
        let request = Request::OpenVif(OpenVif { receive, ..OpenVif::default() });
        let error = session.request(&request).expect_err("too long");
        assert_eq!(error.code(), Code::Invalid, "{error}");
        assert!(error.to_string().contains("65536 bytes"), "{error}");
        session.check().expect("it is not over");
    }

    /// An answer that came too late is neither the daemon's farewell nor that to the next request.
    #[test]
    fn late_answers_are_nobodys() {
        let address = "10.0.0.1:7".parse().expect("an address");
        let (mut session, daemon) = session(2);
        let say = |reply| control::send(&daemon, &reply, &[]).expect("sent");
        say(Reply::Unlistened(Empty {}));
        session.check().expect("no farewell");
        say(Reply::error(Code::Denied));
        say(Reply::Listening(Listening { listener: 1, address }));
        let request = Request::Listen(Listen { port: 7, address: None });
        let (reply, _) = session.request(&request).expect("an answer");
        assert!(matches!(reply, Reply::Listening(Listening { listener: 1, .. })), "{reply:?}");
        say(Reply::error(Code::DaemonGone));
        session.check().expect_err("a farewell");
    }
}
