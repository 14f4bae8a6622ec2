//! TCP as plain data, and back. Listeners are found again by their ports; headers of paths are made
//! again when a segment is to be sent.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use clearway_base::state::{Invalid, ensure};
use clearway_base::{Prefix, SlotId, Time};
use clearway_channel::Code;
use clearway_channel::control::PEER_PREFIXES_MAX;
use clearway_tcp::{Counters, Listener, Saved, Stack};
use serde::{Deserialize, Serialize};

use super::books::{Book, Books};
use super::connecting::{ATTEMPTS_MAX, Attempt, PATIENCE_NS};
use super::heads::Heads;
use super::paths::Paths;
use super::ports::{ClosingPort, Ports};
use super::sharing::{NotedPort, NotedPorts};
use super::{Tcp, TcpPortSpec, config, joined};
use crate::channels::{Channels, SlotQueue};
use crate::lanes::Lanes;
use crate::state::VifSpecState;
use crate::switch::Switch;

/// TCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpState {
    /// Listeners and connections.
    pub stack: Saved,
    /// What it has counted.
    pub counters: Vec<(String, u64)>,
    /// The ports of apps, by their numbers.
    pub ports: Vec<TcpPortState>,
    /// Those that are being closed, by their numbers.
    pub closing: Vec<ClosingPortState>,
    /// Those that apps at other engines have, and share or have on this engine's NIC as well.
    pub noted: Vec<NotedPortState>,
    /// Whose the connections are.
    pub books: Vec<BookState>,
    /// Attempts to connect that wait for a neighbour.
    pub attempts: Vec<AttemptState>,
}

/// A port of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TcpPortState {
    /// Its number.
    pub number: u32,
    /// Its app's channel.
    pub channel: u32,
    /// Its address, or all, and the port.
    pub address: Option<IpAddr>,
    /// See `address`.
    pub port: u16,
    /// Its listener's key, as a number, if the app listens.
    pub listener: Option<u64>,
    /// Where its peers may be; anywhere if there is nothing.
    pub peers: Vec<Prefix>,
    /// The host's other NICs that have it, too, by their numbers.
    pub nics: Vec<u32>,
    /// What is received there, and what may be sent from there.
    pub rights: VifSpecState,
}

/// A port that has been taken from its app, and whose connections are being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosingPortState {
    /// Its number.
    pub number: u32,
    /// Its app's channel.
    pub channel: u32,
    /// What its app is told at the end.
    pub told: Option<Code>,
}

/// A port that an app at another engine has, and shares or has on this engine's NIC as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotedPortState {
    /// The engine.
    pub engine: u32,
    /// The port's number, and its app's channel.
    pub number: u32,
    /// See `number`.
    pub channel: u32,
    /// Its address, or all, and the port.
    pub address: Option<IpAddr>,
    /// See `address`.
    pub port: u16,
    /// Where its peers may be; anywhere if there is nothing.
    pub peers: Vec<Prefix>,
    /// What is received there, and what may be sent from there.
    pub rights: VifSpecState,
}

/// What is noted of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookState {
    /// Its key, as a number.
    pub key: u64,
    /// Its app's channel, and the number of its port.
    pub channel: u32,
    /// See `channel`.
    pub port: u32,
    /// The app's name for its attempt to connect, while that goes on.
    pub connecting: Option<u64>,
    /// Sends taken, those of them that are finished, and those that the app knows to be.
    pub submitted: u32,
    /// See `submitted`.
    pub sent: u32,
    /// See `submitted`.
    pub sent_told: u32,
    /// Bytes that the app has been told of.
    pub received: u64,
    /// The app knows that its peer has finished.
    pub is_finished: bool,
    /// The app has let go of it.
    pub is_closing: bool,
}

/// An attempt to connect that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptState {
    /// Its app's channel, and the number of its port.
    pub channel: u32,
    /// See `channel`.
    pub port: u32,
    /// How long it waits.
    pub until: Time,
    /// The app's name for it.
    pub token: u64,
    /// From where and to where.
    pub local: SocketAddr,
    /// See `local`.
    pub remote: SocketAddr,
}

impl Tcp {
    pub(crate) fn save(&self) -> TcpState {
        TcpState {
            stack: self.stack.save(),
            counters: self.stack.counters().save(),
            ports: self.ports.save(),
            closing: self.ports.save_closing(),
            noted: self.noted.save(),
            books: self.books.save(),
            attempts: self.attempts.iter().map(Attempt::save).collect(),
        }
    }

    /// TCP that goes on at `now`, on channels that are there again, at an engine that these `lanes`
    /// tie to others, and an interface that may come to this `mtu`. Its ports are entered in
    /// `switch`.
    pub(crate) fn restore(
        saved: TcpState,
        channels: &Channels,
        switch: &mut Switch,
        lanes: &Lanes,
        mtu: u16,
        now: Time,
    ) -> Result<Self, Invalid> {
        let mut stack = Stack::restore(saved.stack, config(), mtu, now)?;
        stack.set_counters(Counters::restore(&saved.counters));
        let mut ports = Ports::restore(saved.ports, &stack, channels, switch)?;
        ports.restore_closing(saved.closing)?;
        let noted = NotedPorts::restore(saved.noted, lanes, switch)?;
        let mut books = Books::restore(saved.books)?;
        for key in stack.connections() {
            books.set_ahead(key, stack.ahead_bytes(key));
            joined::meet(&mut books, &stack, key);
        }
        let attempts = saved.attempts.into_iter().map(|attempt| Attempt::restore(attempt, now));
        let tcp = Self {
            stack,
            ports,
            noted,
            books,
            paths: Paths::default(),
            held: SlotQueue::default(),
            heads: Heads::default(),
            attempts: attempts.collect::<Result<_, _>>()?,
            extents: Vec::new(),
        };
        tcp.check_ports(channels)?;
        tcp.check_connections(channels)?;
        Ok(tcp)
    }

    /// Whatever an app has is of a port of its own.
    fn check_ports(&self, channels: &Channels) -> Result<(), Invalid> {
        ensure(self.attempts.len() <= ATTEMPTS_MAX, "too many attempts to connect")?;
        let attempts = self.attempts.iter().map(|attempt| (attempt.channel, attempt.port));
        let books = self.books.iter().map(|book| (book.channel, book.port));
        for (channel, port) in attempts.chain(books) {
            ensure(self.ports.has(channel, port), "a connection of a port that is not there")?;
            ensure(channels.peek(channel).is_some(), "a connection of nobody")?;
        }
        Ok(())
    }

    /// Each connection is somebody's, and its bytes are in that app's memory. Which of the receive
    /// pool are whose is looked at elsewhere.
    fn check_connections(&self, channels: &Channels) -> Result<(), Invalid> {
        let owned: HashSet<SlotId> =
            self.stack.connections().filter(|key| self.stack.is_owned(*key)).collect();
        ensure(owned.len() == self.books.count(), "a connection of nobody, or a book of nothing")?;
        for book in self.books.iter() {
            ensure(owned.contains(&book.key), "a book of a connection that is not there")?;
            let end = channels.peek(book.channel).map(|channel| &channel.end);
            let mut outstanding = 0;
            for extent in self.stack.outstanding(book.key) {
                outstanding += 1;
                let is_own = extent.region == book.channel
                    && end.is_some_and(|end| end.is_extent(extent.offset, extent.length));
                ensure(is_own, "bytes beyond the pool, or of another app")?;
            }
            let is_outstanding = book.submitted.wrapping_sub(book.sent) == outstanding;
            ensure(is_outstanding, "sends that are not under way, or were not taken")?;
        }
        Ok(())
    }
}

impl Ports {
    fn save(&self) -> Vec<TcpPortState> {
        let mut ports: Vec<TcpPortState> = self
            .iter()
            .map(|(number, port)| TcpPortState {
                number,
                channel: port.channel,
                address: port.spec.address,
                port: port.spec.port,
                listener: port.listener.map(Listener::to_bits),
                peers: port.spec.peers.clone(),
                nics: port.spec.nics.iter().map(|nic| *nic as u32).collect(), // few
                rights: port.spec.rights.save(),
            })
            .collect();
        ports.sort_unstable_by_key(|port| port.number);
        ports
    }

    fn restore(
        saved: Vec<TcpPortState>,
        stack: &Stack,
        channels: &Channels,
        switch: &mut Switch,
    ) -> Result<Self, Invalid> {
        let mut ports = Self::default();
        for saved in saved {
            let TcpPortState { number, channel, address, port, .. } = saved;
            let TcpPortState { listener, peers, nics, rights, .. } = saved;
            ensure(channels.peek(channel).is_some(), "a TCP port of nobody")?;
            ensure(ports.is_free(number), "a TCP port that is there twice")?;
            ensure(peers.len() <= PEER_PREFIXES_MAX, "too many prefixes of peers")?;
            let nics = nics.into_iter().map(|nic| nic as usize).collect();
            let spec = TcpPortSpec { address, port, peers, nics, rights: rights.restore()? };
            ports.insert(switch, channel, number, spec);
            let Some(bits) = listener else { continue };
            let found = stack.listeners_on(address, port).find(|one| one.to_bits() == bits);
            let listener = found.ok_or(Invalid("a port of a listener that is not there"))?;
            ensure(ports.of_listener(listener).is_none(), "a listener at two ports")?;
            ports.set_listener(number, Some(listener));
        }
        ensure(ports.listeners() == stack.listeners(), "a listener at nobody's port")?;
        Ok(ports)
    }

    fn save_closing(&self) -> Vec<ClosingPortState> {
        let closing = self.closing();
        closing
            .map(|(number, ClosingPort { channel, told })| ClosingPortState {
                number,
                channel,
                told,
            })
            .collect()
    }

    /// Their apps may have gone.
    fn restore_closing(&mut self, saved: Vec<ClosingPortState>) -> Result<(), Invalid> {
        for ClosingPortState { number, channel, told } in saved {
            ensure(self.is_free(number), "a TCP port that is there twice")?;
            self.insert_closing(number, ClosingPort { channel, told });
        }
        Ok(())
    }
}

impl NotedPorts {
    fn save(&self) -> Vec<NotedPortState> {
        let save = |noted: &NotedPort| NotedPortState {
            engine: noted.engine as u32, // at most ENGINES_MAX
            number: noted.number,
            channel: noted.channel,
            address: noted.spec.address,
            port: noted.spec.port,
            peers: noted.spec.peers.clone(),
            rights: noted.spec.rights.save(),
        };
        let mut saved: Vec<NotedPortState> = self.iter().map(save).collect();
        saved.sort_unstable_by_key(|noted| noted.number);
        saved
    }

    fn restore(
        saved: Vec<NotedPortState>,
        lanes: &Lanes,
        switch: &mut Switch,
    ) -> Result<Self, Invalid> {
        let mut all = Self::default();
        for saved in saved {
            let NotedPortState { engine, number, channel, address, port, peers, rights } = saved;
            let engine = engine as usize;
            let is_other = engine < lanes.count() && engine != lanes.index();
            ensure(is_other, "a TCP port at an engine that there is not")?;
            ensure(peers.len() <= PEER_PREFIXES_MAX, "too many prefixes of peers")?;
            let (nics, rights) = (Vec::new(), rights.restore()?); // its own engine knows which
            let spec = TcpPortSpec { address, port, peers, nics, rights };
            all.insert(switch, engine, channel, number, spec);
        }
        Ok(all)
    }
}

impl Books {
    fn save(&self) -> Vec<BookState> {
        let save = |book: &Book| BookState {
            key: book.key.to_bits(),
            channel: book.channel,
            port: book.port,
            connecting: book.connecting,
            submitted: book.submitted,
            sent: book.sent,
            sent_told: book.sent_told,
            received: book.received,
            is_finished: book.is_finished,
            is_closing: book.is_closing,
        };
        self.iter().map(save).collect()
    }

    fn restore(saved: Vec<BookState>) -> Result<Self, Invalid> {
        let mut books = Self::default();
        for saved in saved {
            let key = SlotId::of_bits(saved.key);
            ensure(key.slot < super::CONNECTIONS_MAX, "a place that there is not")?;
            ensure(books.at(key.slot as usize).is_none(), "two books of one connection")?;
            books.open(key, saved.channel, saved.port, saved.connecting);
            let Some(book) = books.get_mut(key) else { continue };
            (book.submitted, book.sent, book.sent_told) =
                (saved.submitted, saved.sent, saved.sent_told);
            book.received = saved.received;
            (book.is_finished, book.is_closing) = (saved.is_finished, saved.is_closing);
        }
        Ok(books)
    }
}

impl Attempt {
    fn save(&self) -> AttemptState {
        let Self { channel, port, until, token, local, remote } = *self;
        AttemptState { channel, port, until, token, local, remote }
    }

    fn restore(saved: AttemptState, now: Time) -> Result<Self, Invalid> {
        let AttemptState { channel, port, until, token, local, remote } = saved;
        ensure(local.is_ipv4() == remote.is_ipv4(), "two families of addresses")?;
        ensure(until <= now + PATIENCE_NS, "an attempt that waits for ever")?;
        Ok(Self { channel, port, until, token, local, remote })
    }
}
