//! The control connection to the daemon: requests with their replies, and noticing its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_channel::control::{
    self, AddMemory, Attach, Attached, CloseVif, Empty, Leave, MemoryAdded, Packet, Refusal, Reply,
    Request, Unlisten,
};
use clearway_channel::{AppEnd, Code, Handover, exit};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::{Awaited, Error, Options, identity, wait};

/// How long the daemon's control plane may take for an answer, if who asks has no less time.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Session {
    /// Shared with what is said when the process ends.
    socket: Arc<OwnedFd>,
    linger: Duration,
    /// Requests that nobody waits for any more, and whose answers are still to come.
    given_up: u32,
    /// What gives back what such answers have brought, to be asked for when nobody waits for
    /// another answer.
    undoing: Vec<Request>,
    /// The process that has it. A child that it forks has the same socket, but no channel.
    process: u32,
}

/// A channel that an engine serves.
pub(crate) struct Served {
    pub(crate) end: AppEnd,
    /// The engine's name.
    pub(crate) engine: String,
    /// What it takes on this machine until a thread runs that slept, as far as the daemon knows.
    pub(crate) wake_up_ns: u64,
}

impl Session {
    /// Connects to the daemon at `path`, if that is who it should be. Its backlog may be full; then
    /// it has until `deadline`, as with an answer.
    pub(crate) fn connect(
        path: &Path,
        daemon_user: Option<u32>,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        let no_daemon = |cause: io::Error| Error::NoDaemon { path: path.to_owned(), cause };
        let address = SocketAddrUnix::new(path).map_err(|errno| no_daemon(errno.into()))?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let patience = Patience::until(deadline);
        match connect_within(&socket, &address, &patience) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Err(patience.is_over()),
            Err(errno) => return Err(no_daemon(errno.into())),
        }
        identity::check(socket.as_fd(), path, daemon_user)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket: Arc::new(socket),
            linger: Duration::ZERO,
            given_up: 0,
            undoing: Vec::new(),
            process: std::process::id(),
        })
    }

    /// Opens the channel of this session, with what the daemon says of it.
    pub(crate) fn attach(
        &mut self,
        options: &Options,
        deadline: Option<Instant>,
    ) -> Result<Served, Error> {
        let attach = Attach {
            exclusive: options.exclusive,
            ..Attach::new(options.app.clone(), options.engine.clone(), options.sizes)
        };
        let (reply, descriptors) = self.request(&Request::Attach(attach), deadline)?;
        let Reply::Attached(Attached { sizes, engine_name, wake_up_ns, .. }) = reply else {
            return Err(unexpected(&reply));
        };
        let Ok([memory, daemon_doorbell, app_doorbell]) = <[OwnedFd; 3]>::try_from(descriptors)
        else {
            return Err(Error::Answer("the channel came without its descriptors".into()));
        };
        let end = AppEnd::open(Handover { memory, daemon_doorbell, app_doorbell }, sizes)?;
        match self.request(&Request::Mapped(Empty {}), deadline)?.0 {
            Reply::Mapped(Empty {}) => {
                self.linger = options.linger;
                exit::leave_at_exit(&self.socket, self.last_will());
                Ok(Served { end, engine: engine_name, wake_up_ns })
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// Hands over a memfd of so many bytes, by a socket that the daemon makes for it: the control
    /// connection takes no descriptors. Returns the number of the memory.
    pub(crate) fn add_memory(&mut self, memfd: BorrowedFd<'_>, bytes: u64) -> Result<u64, Error> {
        let (reply, descriptors) = self.request(&Request::AddMemory(AddMemory { bytes }), None)?;
        let Reply::BringMemory(Empty {}) = reply else { return Err(unexpected(&reply)) };
        let Some(socket) = descriptors.first() else {
            return Err(Error::Answer("memory is to be sent, and there is no socket".into()));
        };
        control::send(socket, &Empty {}, &[memfd])?;
        match self.request(&Request::MemorySent(Empty {}), None)?.0 {
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

    /// Asks, and waits for the answer until `deadline`, but not for long even if there is none.
    pub(crate) fn request(
        &mut self,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        let patience = Patience::until(deadline);
        self.ask(request)?;
        loop {
            if let Some(packet) = self.receive()? {
                return match parse(&packet)? {
                    Reply::Error(Refusal { code, message }) => {
                        Err(Error::Refused { code, message })
                    }
                    reply => Ok((reply, packet.descriptors)),
                };
            }
            let left = patience.left();
            if left.is_zero() {
                self.given_up += 1;
                return Err(patience.is_over());
            }
            let timeout = wait::timespec(left);
            let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {} // a signal gives no more time
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Asks for something of which nobody need know what comes of it.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<(), Error> {
        self.ask(request)?;
        self.given_up += 1;
        Ok(())
    }

    fn ask(&mut self, request: &Request) -> Result<(), Error> {
        if !self.is_own() {
            return Err(of_the_parent());
        }
        self.undo();
        match control::send(&self.socket, request, &[]) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let text = "give fewer filters, peers or whatever it lists, or shorter ones";
                Err(Error::argument(format!("{error}; {text}")))
            }
            // It has not even taken the requests before this one.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Error::TimedOut { awaited: Awaited::Answer, waited: Duration::ZERO })
            }
            Err(_) => Err(self.last_words()),
        }
    }

    /// An error if the daemon has gone away or has ended the session.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.receive()? {
            None => {
                self.undo();
                Ok(())
            }
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
            let Some(late) = self.receive_any()? else { return Ok(None) };
            self.given_up -= 1;
            self.undoing.extend(undoing(&late));
        }
        self.receive_any()
    }

    /// Gives back what came too late for whoever had asked for it.
    fn undo(&mut self) {
        for request in std::mem::take(&mut self.undoing) {
            // A daemon that is gone has it back.
            if control::send(&self.socket, &request, &[]).is_ok() {
                self.given_up += 1;
            }
        }
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

/// For how long somebody waits for the daemon.
struct Patience {
    begun: Instant,
    end: Instant,
}

impl Patience {
    /// Until then, or for as long as the daemon may take at most.
    fn until(deadline: Option<Instant>) -> Self {
        let begun = Instant::now();
        let longest = begun + ANSWER_PATIENCE;
        Self { begun, end: deadline.map_or(longest, |deadline| deadline.min(longest)) }
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn is_over(&self) -> Error {
        Error::TimedOut { awaited: Awaited::Answer, waited: self.begun.elapsed() }
    }
}

/// `AGAIN` if it takes longer.
fn connect_within(
    socket: &OwnedFd,
    address: &SocketAddrUnix,
    patience: &Patience,
) -> Result<(), Errno> {
    loop {
        // The kernel takes no time at all for all the time in the world.
        let left = patience.left().max(Duration::from_millis(1));
        set_socket_timeout(socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(socket, address) {
            Err(Errno::INTR) => {} // by a signal, and nothing was begun
            result => return result,
        }
    }
}

/// What gives back what an answer has brought, if anything.
fn undoing(answer: &Packet) -> Option<Request> {
    match parse(answer).ok()? {
        Reply::TcpPortOpened(opened) => Some(Request::CloseVif(CloseVif { vif: opened.number })),
        Reply::VifOpened(opened) => Some(Request::CloseVif(CloseVif { vif: opened.vif })),
        Reply::Listening(begun) => Some(Request::Unlisten(Unlisten { listener: begun.listener })),
        _ => None,
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
        let undoing = Vec::new();
        (Session { socket, linger: Duration::ZERO, given_up, undoing, process }, daemon)
    }

    /// The session goes on: nothing was sent.
    #[test]
    fn a_request_that_is_too_long_is_an_argument_that_is_wrong() {
        let (mut session, _daemon) = session(0);
        let receive = vec!["x".repeat(PACKET_BYTES_MAX)];
        let request = Request::OpenVif(OpenVif { receive, ..OpenVif::default() });
        let error = session.request(&request, None).expect_err("too long");
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
        let (reply, _) = session.request(&request, None).expect("an answer");
        assert!(matches!(reply, Reply::Listening(Listening { listener: 1, .. })), "{reply:?}");
        say(Reply::error(Code::DaemonGone));
        session.check().expect_err("a farewell");
    }

    fn listen(port: u16) -> Request {
        Request::Listen(Listen { port, address: None })
    }

    fn next_request(daemon: &OwnedFd) -> Option<Request> {
        let packet = control::receive(daemon).ok()??;
        Some(Request::parse(&packet.bytes).expect("a request"))
    }

    /// Nobody knows of it, and nobody would ever give it back.
    #[test]
    fn what_comes_too_late_is_given_back() {
        let address = "10.0.0.1:7".parse().expect("an address");
        let listening = |listener| Reply::Listening(Listening { listener, address });
        let (mut session, daemon) = session(0);
        let say = |reply| control::send(&daemon, &reply, &[]).expect("sent");
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_millis(20));
        let error = session.request(&listen(1), deadline).expect_err("no answer");
        assert!(matches!(error, Error::TimedOut { awaited: Awaited::Answer, .. }), "{error}");
        assert!(begun.elapsed() < ANSWER_PATIENCE / 2, "{:?}", begun.elapsed());

        // It comes while another answer is waited for, and is not taken for that.
        say(listening(1));
        say(listening(2));
        let (reply, _) = session.request(&listen(2), None).expect("an answer");
        assert!(matches!(reply, Reply::Listening(Listening { listener: 2, .. })), "{reply:?}");
        session.check().expect("it goes on");
        let back = Request::Unlisten(Unlisten { listener: 1 });
        let asked = std::iter::from_fn(|| next_request(&daemon)).collect::<Vec<_>>();
        assert_eq!(asked, [listen(1), listen(2), back]);

        say(Reply::Unlistened(Empty {}));
        say(listening(3));
        let (reply, _) = session.request(&listen(3), None).expect("an answer");
        assert!(matches!(reply, Reply::Listening(Listening { listener: 3, .. })), "{reply:?}");
    }

    #[test]
    fn a_daemon_that_takes_no_requests_is_not_gone() {
        let (mut session, _daemon) = session(0);
        let error = (0..100_000).find_map(|_| session.tell(&listen(1)).err()).expect("it is full");
        assert!(matches!(error, Error::TimedOut { awaited: Awaited::Answer, .. }), "{error}");
    }
}
