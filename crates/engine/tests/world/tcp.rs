//! An app with a TCP port, and what it has of one connection.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use clearway_channel::{Code, Command, Completion, Extent, ReceivedBytes, Sizes};
use clearway_engine::{Request, TcpPortSpec, VifSpec};
use clearway_nic::MacAddress;
use clearway_wire::tcp::{Check, Repr, View, fill_checksum};
use clearway_wire::{checksum::Sum, ethernet, ipv4, protocol};

use super::{App, World, events};

/// An app with a TCP port, and what it has of one connection.
pub struct Peer {
    pub app: App,
    /// The number of its port.
    pub port: u32,
    pub id: u64,
    /// It was opened here, and what its peer sends comes to another engine.
    pub is_detour: bool,
    /// This end's address, of a connection that was accepted.
    pub local: Option<IpAddr>,
    /// Sent and not finished.
    pub sent: VecDeque<Extent>,
    pub finished: u32,
    pub received: Vec<u8>,
    /// In so many pieces.
    pub pieces: u32,
    pub has_heard_all: bool,
    pub end: Option<Code>,
}

impl Peer {
    /// An app that has the port of this number.
    pub fn of(app: App, port: u32) -> Self {
        Self {
            app,
            port,
            id: 0,
            is_detour: false,
            local: None,
            sent: VecDeque::new(),
            finished: 0,
            received: Vec::new(),
            pieces: 0,
            has_heard_all: false,
            end: None,
        }
    }

    /// An app of a host, and its port at an address.
    pub fn at(world: &mut World, host: usize, at: SocketAddr, sizes: Sizes) -> Self {
        let app = world.attach(host, sizes);
        Self::with_port(world, host, at, app)
    }

    /// The same of an app that is there.
    pub fn with_port(world: &mut World, host: usize, at: SocketAddr, app: App) -> Self {
        let (channel, number) = (app.channel, app.channel + 1);
        let spec = Box::new(spec(world.hosts[host].mac, None, at));
        world.post(host, Request::OpenTcpPort { channel, number, spec });
        events::take_vif_opened(&mut world.hosts[host].members[0].events).expect("a port");
        Self::of(app, number)
    }

    pub fn listen(&mut self) {
        self.app.submit(&Command::TcpListen { port: self.port, backlog: 16 });
    }

    pub fn connect(&mut self, peer: SocketAddr) {
        self.app.submit(&Command::TcpConnect { token: 7, port: self.port, peer });
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let extent = self.app.end.allocate(bytes.len() as u32).expect("room in the pool");
        self.app.end.transmit_bytes(&extent).copy_from_slice(bytes);
        let (offset, length) = (extent.offset(), extent.length());
        self.sent.push_back(extent);
        let connection = self.id;
        self.app.submit(&Command::TcpSend { connection, offset, length, has_more: false });
    }

    pub fn shutdown(&mut self) {
        self.app.submit(&Command::TcpShutdown { connection: self.id });
    }

    pub fn close(&mut self, abort: bool) {
        self.app.submit(&Command::TcpClose { connection: self.id, abort });
    }

    /// Takes all that is told.
    pub fn poll(&mut self) {
        self.app.poll();
        while let Some(ReceivedBytes { connection, sent, bytes }) = self.app.bytes.pop_front() {
            assert_eq!(connection, self.id);
            self.received.extend_from_slice(self.app.end.receive_bytes(&bytes));
            self.pieces += 1;
            self.app.end.release(bytes);
            self.finish(sent);
        }
        self.app.end.flush_releases();
        while let Some(told) = self.app.tcp.pop_front() {
            match told {
                Completion::TcpAccepted { connection, port, local, .. } => {
                    assert_eq!((port, self.id), (self.port, 0), "one connection, at its port");
                    self.id = connection;
                    self.local = Some(local.to_canonical());
                }
                Completion::TcpConnected { connection, is_detour, .. } => {
                    (self.id, self.is_detour) = (connection, is_detour);
                }
                Completion::TcpConnectFailed { code, .. } => self.end = Some(code),
                Completion::TcpSent { sent, .. } => self.finish(sent),
                Completion::TcpFinished { .. } => self.has_heard_all = true,
                Completion::TcpClosed { code, sent, .. } => {
                    self.finish(sent);
                    self.sent.drain(..).for_each(|extent| self.app.end.free(extent));
                    self.end = Some(code);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn finish(&mut self, sent: u32) {
        // Whoever looks at bytes first hears what is older later.
        while sent.wrapping_sub(self.finished) as i32 > 0 {
            let extent = self.sent.pop_front().expect("no more is finished than was sent");
            self.app.end.free(extent);
            self.finished = self.finished.wrapping_add(1);
        }
    }
}

/// Turns until the peers are as they should be.
#[track_caller]
pub fn run(world: &mut World, peers: &mut [Peer; 2], done: impl Fn(&[Peer; 2]) -> bool) {
    world.turn_until(|_| {
        peers.iter_mut().for_each(Peer::poll);
        done(peers)
    });
}

/// Each sends so many bytes, both at once, and then closes its half.
#[track_caller]
pub fn exchange(world: &mut World, peers: &mut [Peer; 2], counts: [usize; 2]) {
    let sent = [bytes(counts[0], 1), bytes(counts[1], 2)];
    for (peer, sent) in peers.iter_mut().zip(&sent) {
        sent.chunks(60_000).for_each(|part| peer.send(part));
        peer.shutdown();
    }
    run(world, peers, |peers| peers.iter().all(|peer| peer.end.is_some()));
    assert_eq!(peers.each_ref().map(|peer| peer.end), [Some(Code::Closed); 2]);
    assert!(peers[1].received == sent[0] && peers[0].received == sent[1]);
    assert!(peers.iter().all(|peer| peer.app.end.transmit_pool_used_bytes() == 0));
}

/// What the control plane gives away with a port.
pub fn spec(mac: MacAddress, vlan: Option<u16>, at: SocketAddr) -> TcpPortSpec {
    let text = mac.map(|octet| format!("{octet:02x}")).join(":");
    let tag = vlan.map_or(String::new(), |id| format!("vlan {id} and "));
    let filter = |text: String| vec![text.parse().expect("a filter")];
    let (address, port) = (at.ip(), at.port());
    let rights = VifSpec {
        receive: filter(format!(
            "{tag}ether dst {text} and dst host {address} and tcp dst port {port}"
        )),
        transmit: filter(format!(
            "{tag}ether src {text} and src host {address} and tcp src port {port}"
        )),
        mac,
        ..VifSpec::default()
    };
    let (peers, nics) = (Vec::new(), Vec::new());
    TcpPortSpec { address: Some(address), port, peers, nics, rights }
}

/// A segment without payload, of anybody.
pub fn segment(
    to: (MacAddress, SocketAddr),
    from: (MacAddress, SocketAddr),
    repr: Repr,
) -> Vec<u8> {
    let (SocketAddr::V4(at), SocketAddr::V4(of)) = (to.1, from.1) else { panic!("IPv4") };
    let repr = Repr { source_port: of.port(), destination_port: at.port(), ..repr };
    let mut frame = vec![0; 34 + repr.length()];
    let ether_type = ethernet::ether_type::IPV4;
    ethernet::Repr { destination: to.0, source: from.0, ether_type }.emit(&mut frame);
    let payload_length = repr.length() as u16;
    let (source, destination) = (*of.ip(), *at.ip());
    ipv4::Repr { source, destination, protocol: protocol::TCP, hop_limit: 64, payload_length }
        .emit(&mut frame[14..]);
    repr.emit(&mut frame[34..]);
    let addresses = Sum::new().with(&source.octets()).with(&destination.octets());
    fill_checksum(&mut frame[34..], addresses);
    let check = Check::Addresses(source.into(), destination.into());
    Repr::parse(&View::new(&frame[34..]).expect("a segment"), check).expect("a segment");
    frame
}

pub fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 31 + seed) ^ (at >> 8)) as u8).collect()
}
