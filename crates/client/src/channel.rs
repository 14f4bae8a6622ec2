//! A channel: attaching, listening, connecting, closing. Sending is in `send.rs`, receiving in
//! `receive.rs`, waiting in `wait.rs`.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use clearway_channel::control::{Listen, Listening, Reply, Request, Unlisten};
use clearway_channel::{AppEnd, Code, Command, Sizes};
use rustix::event::epoll;

use crate::address::{ListenAddress, ToPeers, check_peer};
use crate::connections::Connections;
use crate::event::Arrival;
use crate::host::{Embedded, Host};
use crate::in_turn::in_turn;
use crate::memories::Memories;
use crate::operations::{NOBODYS, Operations};
use crate::posts::Posts;
use crate::returns::Collector;
use crate::session::{Served, Session, gone, unexpected};
use crate::tcp::Sockets;
use crate::vif::Vifs;
use crate::wait::{Habits, LifeCheck, check_may_wait};
use crate::{
    Accepted, AcceptedStream, Awaited, ConnectionId, Error, ListenerId, Options, Token, Waiting,
};

/// An app's access to one engine of the daemon. For one thread at a time: `Send`, not `Sync`.
///
/// Dropping it closes all its connections. Nobody waits for that: the daemon goes on to deliver
/// what was sent, for [`Options::linger`] at most, also if the process ends meanwhile. So it does
/// when a process ends by [`std::process::exit`]; but not if it is killed, or panics: then its
/// peers see a reset.
pub struct Channel {
    pub(crate) end: AppEnd,
    engine: String,
    pub(crate) host: Host,
    pub(crate) connections: Connections,
    pub(crate) vifs: Vifs,
    pub(crate) operations: Operations,
    pub(crate) memories: Memories,
    pub(crate) posts: Posts,
    pub(crate) tcp: Sockets,
    pub(crate) waiting: Waiting,
    pub(crate) life_check: LifeCheck,
    pub(crate) habits: Habits,
    /// [`arm`](Self::arm) has said yes, and [`disarm`](Self::disarm) has not followed yet.
    is_armed: bool,
    /// Why the daemon is not there any more.
    pub(crate) gone: Option<(Code, String)>,
    /// Arrived while something else was waited for: connections opened by peers,
    pub(crate) accepted: VecDeque<Accepted>,
    /// streams that they opened,
    pub(crate) accepted_streams: VecDeque<AcceptedStream>,
    /// messages, and ends of connections and of posted buffers,
    pub(crate) inbox: VecDeque<Arrival>,
    /// frames and ends of virtual interfaces,
    pub(crate) frames: VecDeque<Arrival>,
    /// and answers to attempts to connect.
    pub(crate) connected: VecDeque<Arrival>,
    /// Attempts whose answer is not here yet.
    pub(crate) connecting: HashMap<Token, Attempt>,
    pub(crate) token_next: u64,
    /// What came too late for whoever asked for it; to be given back.
    pub(crate) unwanted: Vec<Unwanted>,
    /// Sends of all connections and virtual interfaces that are not finished.
    pub(crate) sends_outstanding: u32,
    /// A send has found no room, and `Writable` was not told yet.
    pub(crate) wants_room: bool,
    /// What there was no room in is the ring: entries that it has to have. 0 if nobody lacks them.
    pub(crate) ring_room_wanted: u32,
    pub(crate) has_room_again: bool,
    pub(crate) descriptors: OwnedFd,
    pub(crate) linger: Duration,
    /// What it was attached with, for attaching again.
    pub(crate) options: Options,
    pub(crate) listeners: Vec<OpenListener>,
    pub(crate) takes_streams: bool,
    pub(crate) hears_of_skipped: bool,
    /// Connections that are opened share flows.
    pub(crate) shares_flows: bool,
    /// Gives back what a binding has noted.
    pub(crate) collector: Option<Collector>,
}

/// A port that is open, as it was asked for and as it is.
pub(crate) struct OpenListener {
    pub(crate) wanted: ListenAddress,
    pub(crate) is: Listener,
}

/// An attempt to connect.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) peer: SocketAddr,
    /// Nobody waits for it any more.
    pub(crate) is_abandoned: bool,
    /// It is to be a stream of another connection, not one of its own.
    pub(crate) is_stream: bool,
}

/// What the daemon has given and nobody knows of.
pub(crate) enum Unwanted {
    Connection(ConnectionId),
    Region(u64),
}

impl Unwanted {
    /// What gives it back.
    pub(crate) fn command(self) -> Command {
        match self {
            Self::Connection(connection) => {
                Command::Close { connection: connection.as_u64(), abort: true }
            }
            Self::Region(region) => Command::Unshare { token: NOBODYS, region },
        }
    }
}

/// An open port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Names it in [`Accepted`].
    pub id: ListenerId,
    /// Its address and port: what peers connect to.
    pub address: SocketAddr,
}

impl Channel {
    /// Opens a channel to the daemon.
    pub fn attach(options: &Options) -> Result<Self, Error> {
        Self::attach_by(options, None)
    }

    /// The same; the daemon has until `deadline` to take the app.
    pub(crate) fn attach_by(options: &Options, deadline: Option<Instant>) -> Result<Self, Error> {
        let mut session = Session::connect(&options.socket, options.daemon_user, deadline)?;
        let served = session.attach(options, deadline)?;
        Self::new(served, Host::Daemon(session), options)
    }

    /// A channel whose other end is served by an engine in the calling thread. Of the options it
    /// takes how to wait and for how long to linger.
    pub fn embed(
        end: AppEnd,
        engine: impl Into<String>,
        host: Box<dyn Embedded>,
        options: &Options,
    ) -> Result<Self, Error> {
        let served = Served { end, engine: engine.into(), wake_up_ns: 0 };
        Self::new(served, Host::Embedded(host), options)
    }

    fn new(served: Served, host: Host, options: &Options) -> Result<Self, Error> {
        let Served { end, engine, wake_up_ns } = served;
        let descriptors = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&descriptors, &end, &host)?;
        Ok(Self {
            end,
            engine,
            host,
            connections: Connections::default(),
            vifs: Vifs::default(),
            operations: Operations::default(),
            memories: Memories::default(),
            posts: Posts::default(),
            tcp: Sockets::default(),
            waiting: options.waiting,
            life_check: LifeCheck::new(),
            habits: Habits::new(wake_up_ns),
            is_armed: false,
            gone: None,
            accepted: VecDeque::new(),
            accepted_streams: VecDeque::new(),
            inbox: VecDeque::new(),
            frames: VecDeque::new(),
            connected: VecDeque::new(),
            connecting: HashMap::new(),
            token_next: 0,
            unwanted: Vec::new(),
            sends_outstanding: 0,
            wants_room: false,
            ring_room_wanted: 0,
            has_room_again: false,
            descriptors,
            linger: options.linger,
            options: options.clone(),
            listeners: Vec::new(),
            takes_streams: false,
            hears_of_skipped: false,
            shares_flows: false,
            collector: None,
        })
    }

    /// The name of the engine that serves this channel, as in `clearway status`.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Accepts connections from now on.
    pub fn listen(&mut self, address: impl Into<ListenAddress>) -> Result<Listener, Error> {
        let wanted = address.into();
        let ListenAddress { address, port } = wanted;
        match self.request(&Request::Listen(Listen { address, port }))? {
            Reply::Listening(Listening { listener, address }) => {
                let is = Listener { id: ListenerId(listener), address };
                self.listeners.push(OpenListener { wanted, is });
                Ok(is)
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// Stops accepting. Connections that exist go on.
    pub fn unlisten(&mut self, listener: ListenerId) -> Result<(), Error> {
        match self.request(&Request::Unlisten(Unlisten { listener: listener.0 }))? {
            Reply::Unlistened(_) => {
                self.listeners.retain(|open| open.is.id != listener);
                Ok(())
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// The next connection that a peer opened.
    pub fn accept(&mut self, timeout: Option<Duration>) -> Result<Accepted, Error> {
        self.wait_for(timeout, Awaited::Peer, |channel| {
            channel.gather_until(|channel| channel.accepted.pop_front())
        })
    }

    /// Opens a connection to an app: at an address (`"10.0.0.2:4000"`, or a `SocketAddr`), or at
    /// a host by name, whose addresses are tried in turn. Without time to wait nothing is begun
    /// ([`Code::WouldBlock`]): that is what [`start_connect`](Self::start_connect) is for.
    pub fn connect(
        &mut self,
        peer: impl ToPeers,
        timeout: Option<Duration>,
    ) -> Result<ConnectionId, Error> {
        check_may_wait(timeout, Some(("start_connect", "next_event")))?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let peers = peer.to_peers()?;
        in_turn(&peers, timeout, deadline, |peer, left| self.connect_to(peer, left))
    }

    pub(crate) fn connect_to(
        &mut self,
        peer: SocketAddr,
        timeout: Option<Duration>,
    ) -> Result<ConnectionId, Error> {
        let begun = Instant::now();
        let token = self.start_connect(peer)?;
        self.wait_connected(token, peer, begun, timeout)
    }

    /// Waits for the outcome of an attempt that was `begun` then.
    pub(crate) fn wait_connected(
        &mut self,
        token: Token,
        peer: SocketAddr,
        begun: Instant,
        timeout: Option<Duration>,
    ) -> Result<ConnectionId, Error> {
        let answer = self.wait_for(timeout, Awaited::Connection(peer), |channel| {
            channel.gather_until(|channel| channel.take_answer(token))
        });
        match answer {
            Ok(answer) => answer.map_err(|code| {
                let waited = begun.elapsed();
                Error::Connect { peer, waited, code }
            }),
            Err(error) => {
                if let Some(attempt) = self.connecting.get_mut(&token) {
                    attempt.is_abandoned = true;
                }
                Err(error)
            }
        }
    }

    /// Begins to open a connection; [`next_event`](Self::next_event) tells of the outcome.
    pub fn start_connect(&mut self, peer: SocketAddr) -> Result<Token, Error> {
        check_peer(peer)?;
        self.make_room_for_command()?;
        let token = self.next_token();
        let name = token.as_u64();
        self.submit(&match self.shares_flows {
            true => Command::ConnectShared { token: name, peer },
            false => Command::Connect { token: name, peer },
        });
        self.connecting.insert(token, Attempt { peer, is_abandoned: false, is_stream: false });
        Ok(token)
    }

    pub(crate) fn next_token(&mut self) -> Token {
        self.token_next += 1;
        Token::from_u64(self.token_next)
    }

    /// The other end of an open connection.
    pub(crate) fn peer_of(&mut self, connection: ConnectionId) -> Result<SocketAddr, Error> {
        self.check_open(connection)?;
        Ok(self.connections.find(connection).expect("it is open").peer)
    }

    /// Gives a connection up, as lost ([`Code::Lost`]), after another silence of its peer's host
    /// than the daemon's others: from one second to two days, counted from the first packet that
    /// was not answered. A connection that is idle asks after a third of it, at least each ten
    /// seconds. Between apps of one host it means nothing.
    pub fn set_silence(
        &mut self,
        connection: ConnectionId,
        silence: Duration,
    ) -> Result<(), Error> {
        self.check_open(connection)?;
        self.make_room_for_command()?;
        let silence_ms = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        self.submit(&Command::SetSilence { connection: connection.as_u64(), silence_ms });
        Ok(())
    }

    /// Ends a connection after everything that was sent has been delivered. It is not heard of
    /// again.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.end_connection(connection, false)
    }

    /// Ends a connection at once; what is on its way is lost.
    pub fn abort(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.end_connection(connection, true)
    }

    /// The other end of a connection, while it is open.
    pub fn peer(&mut self, connection: ConnectionId) -> Option<SocketAddr> {
        self.connections.find_open(connection).map(|connection| connection.peer)
    }

    /// How large the channel is.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.end.sizes()
    }

    /// Closes the channel and all its connections, and waits until everything that was sent has
    /// been delivered; an error if that is not so within `timeout`. The channel is gone in any
    /// case, and what is not delivered yet goes on as if it had been dropped.
    pub fn detach(mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.finish(timeout)
    }

    /// Before waiting on [`as_fd`](AsFd::as_fd) in an event loop of the app's own. True: the
    /// descriptor becomes readable when there is something for
    /// [`next_event`](Self::next_event), or another thread has dropped a message or a buffer of the
    /// channel's, which the next call gives back. False: there is something already; do not wait.
    /// Either way, call [`disarm`](Self::disarm) before the next call of the channel. An engine
    /// that is embedded in the app has timers to serve, and never lets it wait elsewhere.
    pub fn arm(&mut self) -> bool {
        let has_sent = self.leaves_no_burst();
        self.look_for_ring_room();
        self.expect_returns();
        let has_ring_room = self.ring_room_wanted == 0 && !self.has_unwanted() && has_sent;
        let nothing_known = self.has_told_all() && !self.tcp_has_again() && self.gone.is_none();
        let may_wait = nothing_known && has_ring_room && !self.host.is_embedded();
        self.is_armed = self.end.arm() && may_wait;
        self.is_armed
    }

    /// Ends what [`arm`](Self::arm) began. If the daemon has ended meanwhile, and has not rung, the
    /// next call knows of it.
    pub fn disarm(&mut self) {
        let was_rung = self.end.disarm();
        // Without a ring, the control connection may be what woke the app. With one it is not
        // looked at: if it has something to say, the descriptor is still readable the next time.
        if std::mem::take(&mut self.is_armed) && !was_rung {
            let _ = self.look_at_session();
        }
    }

    /// The same for who has not waited until the descriptor was readable, since there is something
    /// else to do with the channel: nothing is found out of the daemon.
    pub fn disarm_early(&mut self) {
        self.end.disarm();
        self.is_armed = false;
    }

    pub(crate) fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        self.request_by(request, None)
    }

    pub(crate) fn request_by(
        &mut self,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Reply, Error> {
        if self.gone.is_some() {
            return Err(self.gone_error());
        }
        self.host.request(request, deadline)
    }

    fn take_answer(&mut self, wanted: Token) -> Option<Result<ConnectionId, Code>> {
        let at = self.connected.iter().position(|arrival| match arrival {
            Arrival::Connected { token, .. } | Arrival::ConnectFailed { token, .. } => {
                *token == wanted
            }
            _ => false,
        })?;
        match self.connected.remove(at)? {
            Arrival::Connected { connection, .. } => Some(Ok(connection)),
            Arrival::ConnectFailed { code, .. } => Some(Err(code)),
            _ => None,
        }
    }

    fn end_connection(&mut self, connection: ConnectionId, abort: bool) -> Result<(), Error> {
        if self.connections.find_open(connection).is_none() {
            // It may have ended already, which the app does not know yet; now it need not.
            let known = self.forget_inbox_of(connection);
            let ended = Error::Connection { connection, code: Code::Closed };
            return if known { Ok(()) } else { Err(ended) };
        }
        self.make_room_for_command()?;
        self.forget_inbox_of(connection);
        // While room was made, the other side may have closed it.
        if self.connections.close(connection) {
            self.submit(&Command::Close { connection: connection.as_u64(), abort });
        }
        Ok(())
    }

    /// Messages that have come and were not taken.
    pub(crate) fn unread(&self) -> usize {
        self.inbox.iter().filter(|arrival| matches!(arrival, Arrival::Message(_))).count()
    }

    /// Messages and the end of a connection that nobody will ask for any more; true if its end was
    /// among them.
    pub(crate) fn forget_inbox_of(&mut self, connection: ConnectionId) -> bool {
        let mut has_ended = false;
        for arrival in std::mem::take(&mut self.inbox) {
            match arrival {
                Arrival::Message(message) if message.connection == connection => {
                    self.end.release(message.bytes);
                }
                Arrival::Closed { connection: closed, .. } if closed == connection => {
                    has_ended = true;
                }
                Arrival::Dropped { connection: of, .. }
                | Arrival::Skipped { connection: of, .. }
                    if of == connection => {}
                other => self.inbox.push_back(other),
            }
        }
        has_ended
    }

    /// Waits until everything is delivered. An engine of the app's own does that only while the app
    /// waits, so its connections are closed before.
    fn finish(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.host.is_embedded() {
            for connection in self.connections.open() {
                self.close(connection)?;
            }
        }
        self.wait_for(timeout, Awaited::Delivery, |channel| {
            channel.gather()?;
            let all_sent = channel.submit_bursts() && channel.sends_outstanding == 0;
            Ok((all_sent && channel.connections.closing() == 0).then_some(()))
        })
    }

    /// The daemon is gone.
    #[cold]
    pub(crate) fn gone_error(&self) -> Error {
        match &self.gone {
            Some((code, message)) => Error::DaemonGone { code: *code, message: message.clone() },
            None => gone(),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptors.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let linger = Some(self.linger);
        if self.host.is_embedded() {
            let _ = self.finish(linger);
        } else if !self.vifs.are_idle() {
            // Virtual interfaces end with the channel, and what they have sent with them.
            let _ = self.wait_for(linger, Awaited::Delivery, |channel| {
                channel.gather()?;
                Ok((channel.submit_bursts() && channel.vifs.are_idle()).then_some(()))
            });
        }
        if let Host::Daemon(session) = &mut self.host {
            session.leave();
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("end", &self.end).finish_non_exhaustive()
    }
}

/// Has a set of descriptors readable when the daemon has something to say, or other threads have
/// given something back.
pub(crate) fn watch(set: &OwnedFd, end: &AppEnd, host: &Host) -> Result<(), Error> {
    for descriptor in descriptors(end, host) {
        epoll::add(set, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(())
}

/// Ends what `watch` has begun.
pub(crate) fn unwatch(set: &OwnedFd, end: &AppEnd, host: &Host) -> Result<(), Error> {
    for descriptor in descriptors(end, host) {
        epoll::delete(set, descriptor)?;
    }
    Ok(())
}

fn descriptors<'a>(end: &'a AppEnd, host: &'a Host) -> impl Iterator<Item = BorrowedFd<'a>> {
    [Some(end.doorbell()), Some(end.owner_bell()), host.descriptor()].into_iter().flatten()
}
