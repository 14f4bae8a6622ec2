//! Ports, and how connections begin.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use clearway_channel::control::{CloseVif, DYNAMIC_PORTS, OpenTcpPort, Reply, Request};
use clearway_channel::{Code, Command};

use super::{
    Attempt, Connection, Port, SEND_PARTS, TcpId, TcpPort, TcpPortId, TcpPortOptions, Unwanted,
};
use crate::address::{ListenAddress, ToPeers, check_peer};
use crate::in_turn::in_turn;
use crate::session::unexpected;
use crate::wait::check_may_wait;
use crate::{Awaited, Channel, Error, Token};

/// Ports that are tried when it does not matter which.
const PORTS_TRIED: u32 = 32;
/// As long as nothing, for a call that may wait and has no time left.
const A_MOMENT: Duration = Duration::from_nanos(1);

impl Channel {
    /// Takes a TCP port: nobody else on this host has it until it is closed. Port 0 stands for any
    /// that is free.
    pub fn tcp_bind(&mut self, address: impl Into<ListenAddress>) -> Result<TcpPort, Error> {
        self.tcp_bind_with(address, TcpPortOptions::default())
    }

    /// The same, with options.
    pub fn tcp_bind_with(
        &mut self,
        address: impl Into<ListenAddress>,
        options: TcpPortOptions,
    ) -> Result<TcpPort, Error> {
        let ListenAddress { address, port } = address.into();
        let TcpPortOptions { shared, peers } = options;
        let open = OpenTcpPort { address, port, shared, peers };
        match port {
            0 => self.tcp_open_any_port(open, None),
            _ => self.tcp_take_up_port(&open).map_or_else(|| self.tcp_open_port(&open, None), Ok),
        }
    }

    /// Takes any port that is free, and waits for the daemon until `deadline`.
    fn tcp_open_any_port(
        &mut self,
        mut open: OpenTcpPort,
        deadline: Option<Instant>,
    ) -> Result<TcpPort, Error> {
        // RFC 6056, section 3.3.1: simple port randomization.
        let (first, count) = (*DYNAMIC_PORTS.start(), DYNAMIC_PORTS.len() as u64);
        let random = RandomState::new();
        let mut result = Err(Error::WouldBlock);
        for attempt in 0..PORTS_TRIED {
            open.port = first + (random.hash_one(attempt) % count) as u16;
            result = self.tcp_open_port(&open, deadline);
            let is_taken = |code| matches!(code, Code::AddressInUse | Code::Refused);
            if !matches!(&result, Err(Error::Refused { code, .. }) if is_taken(*code)) {
                break;
            }
        }
        result
    }

    fn tcp_open_port(
        &mut self,
        open: &OpenTcpPort,
        deadline: Option<Instant>,
    ) -> Result<TcpPort, Error> {
        match self.request_by(&Request::OpenTcpPort(open.clone()), deadline)? {
            Reply::TcpPortOpened(opened) => {
                let port = TcpPort { id: TcpPortId(opened.number), address: opened.address };
                let asked = open.clone();
                let had = Port { port, asked, is_listening: false, is_left: false };
                self.tcp.ports.insert(port.id, had);
                Ok(port)
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// A port of the channel's at this place that has stopped accepting: its connections go on.
    fn tcp_take_up_port(&mut self, open: &OpenTcpPort) -> Option<TcpPort> {
        let mut ports = self.tcp.ports.values_mut();
        let left = ports.find(|had| had.is_left && had.asked == *open)?;
        left.is_left = false;
        Some(left.port)
    }

    /// Gives a port back. Connections that are left there are reset, and end by that
    /// ([`Error::TcpPortClosed`]).
    pub fn tcp_close_port(&mut self, port: TcpPortId) -> Result<(), Error> {
        // What has ended before has not ended by this. If the daemon is gone, the request says so.
        let _ = self.gather();
        let connections = self.tcp.connections.values_mut().filter(|one| one.is_open_at(port));
        connections.for_each(|connection| connection.has_lost_port = true);
        self.tcp_release_port(port)
    }

    fn tcp_release_port(&mut self, port: TcpPortId) -> Result<(), Error> {
        self.tcp.ports.remove(&port);
        match self.request(&close(port))? {
            Reply::VifClosed(_) => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Accepts connections to a port from now on; `backlog` may wait for the engine. With 0 no
    /// longer: connections that are there go on.
    pub fn tcp_listen(&mut self, port: TcpPortId, backlog: u32) -> Result<(), Error> {
        self.make_room_for_command()?;
        self.submit(&Command::TcpListen { port: port.0, backlog });
        if let Some(had) = self.tcp.ports.get_mut(&port) {
            had.is_listening = backlog > 0;
        }
        Ok(())
    }

    /// Stops accepting at a port: connections that nobody has accepted are reset. If none are left,
    /// the port is given back; else that is done by the call that learns that the last of them has
    /// ended. Until then the app may take the port as before ([`tcp_bind`](Self::tcp_bind)) and
    /// listen there again.
    pub fn tcp_unlisten(&mut self, port: TcpPortId) -> Result<(), Error> {
        let had = self.tcp.ports.get_mut(&port);
        // Who comes while there is no room to refuse those that wait is refused, too.
        let is_known = had.map(|had| had.is_left = true).is_some();
        self.tcp_refuse_waiting(port);
        if is_known && !self.tcp.ports.contains_key(&port) {
            return Ok(()); // meanwhile the last of them has ended
        }
        if !self.tcp_is_used(port) {
            return self.tcp_release_port(port);
        }
        self.tcp_listen(port, 0)
    }

    /// A port that has been left is given back when nothing is left there. Whichever call learns
    /// that does not wait until the daemon has it.
    pub(super) fn tcp_give_back(&mut self, port: TcpPortId) {
        if self.tcp.ports.get(&port).is_some_and(|had| had.is_left) && !self.tcp_is_used(port) {
            self.tcp.ports.remove(&port);
            let _ = self.host.tell(&close(port)); // with a daemon that is gone, it is free
        }
    }

    /// The next connection that a peer has opened to a port. What comes while the channel has as
    /// many connections as it may (`connections_per_channel` of the daemon's policy) is reset, and
    /// counted as `connections_refused`.
    pub fn tcp_accept(
        &mut self,
        port: TcpPortId,
        timeout: Option<Duration>,
    ) -> Result<(TcpId, SocketAddr), Error> {
        self.wait_for(timeout, Awaited::Peer, |channel| {
            channel.gather()?;
            let is_listening = channel.tcp_port(port)?.is_listening;
            let mut accepted = channel.tcp.accepted.iter();
            let Some(at) = accepted.position(|(at, _)| *at == port) else {
                return if is_listening { Ok(None) } else { Err(does_not_listen(port)) };
            };
            let found = channel.tcp.accepted.remove(at).map(|(_, id)| id);
            Ok(found.and_then(|id| Some((id, channel.tcp.find(id)?.peer))))
        })
    }

    /// A port; an error if it is not the app's, or not any more.
    fn tcp_port(&self, port: TcpPortId) -> Result<&Port, Error> {
        self.tcp.ports.get(&port).ok_or_else(|| {
            let message = format!(
                "TCP port number {} is not open: it was closed, or never opened; open it again",
                port.0
            );
            Error::Declined { code: Code::Closed, message }
        })
    }

    /// Opens a connection from a port of the app's, or from one that is free: the channel keeps
    /// those that it has taken for that, and uses them again. Without time to wait nothing is begun
    /// ([`Code::WouldBlock`]): that is what [`tcp_start_connect`](Self::tcp_start_connect) is for.
    pub fn tcp_connect(
        &mut self,
        port: Option<TcpPortId>,
        peer: impl ToPeers,
        timeout: Option<Duration>,
    ) -> Result<TcpId, Error> {
        check_may_wait(timeout, Some(("tcp_start_connect", "next_event")))?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let peers = peer.to_peers()?;
        in_turn(&peers, timeout, deadline, |peer, left| self.tcp_connect_to(port, peer, left))
    }

    fn tcp_connect_to(
        &mut self,
        port: Option<TcpPortId>,
        peer: SocketAddr,
        timeout: Option<Duration>,
    ) -> Result<TcpId, Error> {
        let begun = Instant::now();
        let deadline = timeout.and_then(|timeout| begun.checked_add(timeout));
        let token = self.tcp_start_connect_by(port, peer, deadline)?;
        // It may be over by now; then the outcome is looked for once.
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()).max(A_MOMENT));
        let outcome = self.wait_for(left, Awaited::TcpConnection(peer), |channel| {
            channel.gather()?;
            Ok(channel.tcp_take_outcome(token))
        });
        match outcome {
            Ok(outcome) => outcome.map_err(|code| {
                let waited = begun.elapsed();
                Error::TcpConnect { peer, waited, code }
            }),
            Err(error) => {
                if let Some(attempt) = self.tcp.attempts.get_mut(&token) {
                    attempt.is_abandoned = true;
                }
                Err(match error {
                    Error::TimedOut { awaited, .. } => {
                        Error::TimedOut { awaited, waited: begun.elapsed() }
                    }
                    error => error,
                })
            }
        }
    }

    /// A port of the channel's own from which there is no connection to this peer, and has not been
    /// just now if there can be another; as far as it is known, one whose replies come to this
    /// engine's queue. If there is none the daemon has until `deadline` to give one.
    fn tcp_free_port(
        &mut self,
        peer: SocketAddr,
        deadline: Option<Instant>,
    ) -> Result<TcpPortId, Error> {
        let now = Instant::now();
        if let Some(port) = self.tcp.own_ports.take(peer, now) {
            return Ok(port);
        }
        match self.tcp_open_any_port(OpenTcpPort::default(), deadline) {
            Ok(TcpPort { id, .. }) => {
                self.tcp.own_ports.add(id);
                Ok(self.tcp.own_ports.take(peer, now).unwrap_or(id))
            }
            Err(error) => self.tcp.own_ports.take_early(peer).ok_or(error),
        }
    }

    /// Begins to open a connection, as [`tcp_connect`](Self::tcp_connect) does;
    /// [`next_event`](Self::next_event) tells what came of it, and so does
    /// [`tcp_take_outcome`](Self::tcp_take_outcome). It does not wait for the peer. For a port that
    /// the channel has to take first it waits for the daemon, which answers in a moment; ten
    /// seconds at most.
    pub fn tcp_start_connect(
        &mut self,
        port: Option<TcpPortId>,
        peer: SocketAddr,
    ) -> Result<Token, Error> {
        self.tcp_start_connect_by(port, peer, None)
    }

    fn tcp_start_connect_by(
        &mut self,
        port: Option<TcpPortId>,
        peer: SocketAddr,
        deadline: Option<Instant>,
    ) -> Result<Token, Error> {
        check_peer(peer)?;
        self.make_room_for_command()?;
        if let Some(port) = port {
            self.tcp_port(port)?;
        }
        let is_own_port = port.is_none();
        let port = port.map_or_else(|| self.tcp_free_port(peer, deadline), Ok)?;
        self.token_next += 1;
        let token = Token::from_u64(self.token_next);
        self.submit(&Command::TcpConnect { token: self.token_next, port: port.0, peer });
        let attempt = Attempt { port, is_own_port, peer, outcome: None, is_abandoned: false };
        self.tcp.attempts.insert(token, attempt);
        Ok(token)
    }

    /// What came of an attempt to connect, once that is known; then it is forgotten.
    pub fn tcp_take_outcome(&mut self, token: Token) -> Option<Result<TcpId, Code>> {
        let at = self.tcp.decided.iter().position(|decided| *decided == token)?;
        self.tcp.decided.remove(at);
        let attempt = self.tcp.attempts.remove(&token)?;
        if let Some(Err(_)) = attempt.outcome {
            self.tcp.has_failed(&attempt);
        }
        attempt.outcome
    }

    pub(super) fn tcp_accepted(
        &mut self,
        port: TcpPortId,
        id: TcpId,
        local: IpAddr,
        peer: SocketAddr,
    ) {
        let Some(had) = self.tcp.ports.get(&port).filter(|had| !had.is_left) else {
            return self.tcp_refuse(id, None);
        };
        let local = SocketAddr::new(local, had.port.address.port());
        let connection = Connection::new(local, peer, port, self.tcp_send_buffer_bytes());
        self.tcp.connections.insert(id.0, connection);
        self.tcp.accepted.push_back((port, id));
    }

    pub(super) fn tcp_connected(
        &mut self,
        token: Token,
        id: TcpId,
        local: SocketAddr,
        is_detour: bool,
    ) {
        let send_buffer = self.tcp_send_buffer_bytes();
        let is_wanted = |attempt: &&mut Attempt| !attempt.is_abandoned;
        let Some(attempt) = self.tcp.attempts.get_mut(&token).filter(is_wanted) else {
            let attempt = self.tcp.attempts.remove(&token);
            return self.tcp_refuse(id, attempt);
        };
        attempt.outcome = Some(Ok(id));
        let connection = Connection::new(local, attempt.peer, attempt.port, send_buffer);
        let is_own_port = attempt.is_own_port;
        let connection = Connection { is_own_port, is_detour, ..connection };
        self.tcp.decided.push_back(token);
        self.tcp.connections.insert(id.0, connection);
        self.tcp.note_change(id);
    }

    /// What a connection may send at first without an acknowledgement.
    fn tcp_send_buffer_bytes(&self) -> u64 {
        u64::from(self.end.sizes().transmit_pool_bytes / SEND_PARTS)
    }

    pub(super) fn tcp_failed(&mut self, token: Token, code: Code) {
        let Some(attempt) = self.tcp.attempts.get_mut(&token) else { return };
        let port = attempt.port;
        if attempt.is_abandoned {
            if let Some(attempt) = self.tcp.attempts.remove(&token) {
                self.tcp.has_failed(&attempt);
            }
        } else {
            attempt.outcome = Some(Err(code));
            self.tcp.decided.push_back(token);
        }
        self.tcp_give_back(port);
    }

    /// Nobody wants a connection, of an attempt if the app has opened it.
    fn tcp_refuse(&mut self, id: TcpId, attempt: Option<Attempt>) {
        self.tcp.unwanted.push(Unwanted { id, attempt });
        self.tcp_close_unwanted();
    }

    /// Gives connections up that nobody wants, as far as there is room to say so; then their ports
    /// are free for others.
    #[cold]
    pub(crate) fn tcp_close_unwanted(&mut self) {
        while !self.tcp.unwanted.is_empty() && self.end.has_room() {
            let Some(Unwanted { id, attempt }) = self.tcp.unwanted.pop() else { break };
            self.submit(&Command::TcpClose { connection: id.0, abort: true });
            if let Some(attempt) = attempt {
                self.tcp.has_failed(&attempt);
                self.tcp_give_back(attempt.port);
            }
        }
    }

    /// Connections that wait to be accepted at a port are reset.
    fn tcp_refuse_waiting(&mut self, port: TcpPortId) {
        let accepted = std::mem::take(&mut self.tcp.accepted);
        let (its, others) = accepted.into_iter().partition(|(at, _)| *at == port);
        self.tcp.accepted = others;
        for (_, id) in its {
            let _ = self.tcp_abort(id); // it may have ended
        }
    }

    /// There are connections at a port that have not ended, those that the app has let go of
    /// included, or attempts to open some. Those that nobody wants may end with the port.
    fn tcp_is_used(&self, port: TcpPortId) -> bool {
        let mut attempts = self.tcp.attempts.values();
        self.tcp.connections.values().any(|connection| connection.is_open_at(port))
            || attempts.any(|attempt| attempt.port == port && attempt.outcome.is_none())
    }

    /// A port was taken away.
    pub(crate) fn tcp_drop_port(&mut self, number: u32, code: Code) {
        let port = TcpPortId(number);
        if self.tcp.ports.remove(&port).is_some() {
            self.tcp.lost_ports.push_back((port, code));
        }
        self.tcp.own_ports.remove(port);
    }
}

/// Gives a port back.
fn close(port: TcpPortId) -> Request {
    Request::CloseVif(CloseVif { vif: port.0 })
}

/// Nobody will ever come to a port.
fn does_not_listen(port: TcpPortId) -> Error {
    let message = format!(
        "TCP port number {} accepts no connections: it does not listen, or not any more; listen \
         there first",
        port.0
    );
    Error::Declined { code: Code::Closed, message }
}
