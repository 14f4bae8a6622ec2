//! Messages: connections between apps, over flows of the transport, and between two apps of this
//! host without any (`local.rs`).
//!
//! | part | what is in it |
//! |---|---|
//! | this file | what comes |
//! | `commands` | messages and releases of apps |
//! | `connections`, `resolving` | how connections begin and end, and what waits for a neighbour meanwhile |
//! | `heads` | the headers of what comes next |
//! | `departures`, `paths` | what leaves, and its headers |
//! | `shared` | which connections share a flow |
//! | `siblings` | connections to apps that other engines of the host serve |

mod commands;
mod connections;
mod departures;
mod heads;
mod paths;
mod resolving;
mod shared;
mod siblings;
mod state;

use std::collections::HashMap;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_channel::Command;
use clearway_transport::{Arrival, Endpoint, FlowKey, Undelivered};
use clearway_wire::Ecn;
use clearway_wire::digest::Digest;

use crate::captures::Party;
use crate::channels::Channels;
use crate::common::{Common, Via};
use crate::component::{Component, Outlet, Sending};
use crate::control::PingFailure;
use crate::engine::{frame_bytes, packet_bytes, packet_bytes_taken};
use crate::host::Nic;
use crate::ip::{self, Datagram, NetworkError, NetworkErrorKind};
use departures::Full;
use heads::Heads;
use paths::Paths;
use resolving::Resolving;
pub use resolving::{NeighbourState, NextHop, ResolvingState, Settled, Target, Waiting};
use shared::SharedFlows;
pub use shared::SharedWay;

/// See the module.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) endpoint: Endpoint,
    /// The UDP port of all daemons.
    udp_port: u16,
    heads: Heads,
    /// Over the engine's own NIC.
    paths: Paths,
    /// Over the host's others, by their places.
    paths_elsewhere: Vec<Paths>,
    /// Whether the lanes to those were full when a packet was to go there.
    full: Vec<Option<Full>>,
    pub(crate) resolving: Resolving,
    shared: SharedFlows,
    /// Which other engine listens on a service port.
    listeners_elsewhere: HashMap<u16, usize>,
    /// A packet waits for room in a lane.
    pub(crate) waits_for_lane: bool,
    /// Pings that could not be sent.
    pub(crate) failed_pings: Vec<(u64, PingFailure)>,
    /// Where packets are written that do not go to the queue.
    scratch: Vec<u8>,
}

impl Component for Messages {
    type Owner = ();

    #[inline]
    fn command(&mut self, common: &mut Common, now: Time, channel: u32, command: Command) {
        self.take_command(common, now, channel, command);
    }

    #[inline]
    fn receive(&mut self, common: &mut Common, now: Time, (): (), frames: &[&[u8]], via: Via) {
        for frame in frames {
            match common.host.own().datagram(frame, via.is_verified()) {
                Ok(datagram) => self.receive_datagram(common, now, &datagram, frame, via),
                Err(reason) => common.host.own_mut().count_drop(reason),
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }

    /// Returns how many attempts to connect went on.
    #[inline]
    fn handle_timeouts(&mut self, common: &mut Common, now: Time) -> usize {
        if self.endpoint.next_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeouts(now, &mut common.channels);
        }
        self.go_on_resolved(common, now)
    }

    #[inline]
    fn has_output(&self) -> bool {
        self.endpoint.has_waiting()
    }

    #[inline]
    fn transmit(&mut self, common: &mut Common, now: Time, outlet: Outlet<'_>) -> Sending {
        self.send_packets(common, now, outlet)
    }
}

impl Messages {
    /// Packets have up to `frame_bytes` with all headers.
    pub(crate) fn new(
        endpoint: Endpoint,
        udp_port: u16,
        other_nics: usize,
        frame_bytes: usize,
    ) -> Self {
        Self {
            endpoint,
            udp_port,
            heads: Heads::default(),
            paths: Paths::default(),
            paths_elsewhere: (0..other_nics).map(|_| Paths::default()).collect(),
            full: vec![None; other_nics],
            resolving: Resolving::default(),
            shared: SharedFlows::default(),
            listeners_elsewhere: HashMap::new(),
            waits_for_lane: false,
            failed_pings: Vec::new(),
            scratch: vec![0; frame_bytes],
        }
    }

    /// Another NIC has come to the host.
    pub(crate) fn add_nic(&mut self) {
        self.paths_elsewhere.push(Paths::default());
        self.full.push(None);
    }

    /// The MTU of the engine's own NIC has changed.
    pub(crate) fn set_sizes(&mut self, now: Time, network: &ip::Config) {
        // It only grows: what a flow is about to send may be of the old size.
        self.scratch.resize(self.scratch.len().max(frame_bytes(network)), 0);
        self.endpoint.set_packet_bytes_taken(packet_bytes_taken(network));
        self.endpoint.set_packet_bytes_max(now, packet_bytes(network));
    }

    /// False if [`Messages::fetch`] has nothing to do: the state of few flows is at hand anyway.
    #[inline]
    pub(crate) fn fetches(&self) -> bool {
        self.endpoint.has_many_flows()
    }

    /// With many flows, the time that a packet takes is that of fetching its flow's state from
    /// memory. A burst fetches the flows of all its packets at once, before the first is handled.
    #[inline]
    pub(crate) fn fetch<'a>(
        &self,
        channels: &Channels,
        payloads: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let mut any = false;
        for key in payloads.clone().filter_map(FlowKey::of) {
            any |= self.fetch_flow(key);
        }
        if !any {
            return;
        }
        for owner in payloads.filter_map(|payload| self.endpoint.owner_of(payload)) {
            if let Some(channel) = channels.peek(owner.channel)
                && let Some(state) = channel.state(owner.connection)
            {
                clearway_channel::fetch(state);
            }
        }
    }

    /// Has the state of a flow fetched. False if it is at hand anyway.
    #[inline]
    fn fetch_flow(&self, key: FlowKey) -> bool {
        let Some(state) = self.endpoint.state(key) else { return false };
        clearway_channel::fetch(state);
        if let Some(path) = self.paths.state(key) {
            clearway_channel::fetch(path);
        }
        true
    }

    /// Takes the first of `frames`, which have come by the engine's own queue, as long as they look
    /// like those before of their flows. Returns how many: the others' owners are to be found.
    #[inline]
    pub(crate) fn receive_known(
        &mut self,
        common: &mut Common,
        now: Time,
        frames: &[&[u8]],
        via: Via,
    ) -> usize {
        if self.fetches() {
            return 0;
        }
        let mut taken = 0;
        while let Some(frame) = frames.get(taken) {
            if let Some(datagram) = self.heads.find_v4(frame) {
                self.handle_datagram(common, now, &datagram, Arrival::Queue, Nic::Own);
            } else if !self.take_known_v6(common, now, frame, via) {
                break;
            }
            taken += 1;
        }
        taken
    }

    /// The same of a frame in IPv6, with a call of its own: one that takes the addresses of either
    /// would cost those in IPv4 two hundred instructions.
    #[inline(never)]
    fn take_known_v6(&mut self, common: &mut Common, now: Time, frame: &[u8], via: Via) -> bool {
        let is_verified = via.is_verified() || common.host.own().takes_checksums_as_right();
        let Some(datagram) = self.heads.find_v6(frame, is_verified) else { return false };
        self.handle_datagram(common, now, &datagram, Arrival::Queue, Nic::Own);
        true
    }

    /// The headers of what comes next may mean something else now.
    pub(crate) fn forget_heads(&mut self) {
        self.heads.forget();
    }

    /// Gives a datagram to the transport, or to the engine of the host whose flow it is of.
    #[inline]
    fn receive_datagram(
        &mut self,
        common: &mut Common,
        now: Time,
        datagram: &Datagram<'_>,
        frame: &[u8],
        via: Via,
    ) {
        match self.engine_elsewhere(common, datagram.payload) {
            Some(engine) if !via.is_lane() => common.hand_messages(engine, frame, via),
            Some(_) => common.counters.frames_unclaimed += 1,
            None => {
                if matches!(via, Via::Queue(_)) && !self.fetches() {
                    self.heads.learn(&self.endpoint, datagram, frame);
                }
                let arrival = if via.is_lane() { Arrival::Lane } else { Arrival::Queue };
                self.handle_datagram(common, now, datagram, arrival, Nic::Own);
                common.share_reset(datagram.payload, frame, via);
            }
        }
    }

    /// Takes a frame that another engine was given: one of a flow that is this engine's, or that
    /// the peer does not know any more.
    pub(crate) fn overhear(&mut self, common: &mut Common, now: Time, nic: Nic, frame: &[u8]) {
        let Ok(datagram) = common.host.interface(nic).datagram(frame, false) else { return };
        if nic == Nic::Own {
            return self.receive_datagram(common, now, &datagram, frame, Via::Lane);
        }
        let party = self.party_of(&common.channels, datagram.payload);
        common.show_handed_in(now, frame, party);
        // There is no way to this engine that would be more direct.
        self.handle_datagram(common, now, &datagram, Arrival::Queue, nic);
    }

    #[inline]
    fn handle_datagram(
        &mut self,
        common: &mut Common,
        now: Time,
        datagram: &Datagram<'_>,
        arrival: Arrival,
        nic: Nic,
    ) {
        let is_answered = self.endpoint.handle_datagram(
            now,
            datagram.source,
            datagram.destination,
            datagram.payload,
            arrival,
            datagram.ecn,
            &mut common.channels,
        );
        if is_answered {
            let path = common.host.interface(nic).udp_path_back(datagram);
            self.paths_over(nic).prepare(path);
        }
    }

    /// Takes a datagram of an app of this user that another engine of the host serves.
    pub(crate) fn receive_from_sibling(
        &mut self,
        common: &mut Common,
        now: Time,
        (source, destination): (SocketAddr, SocketAddr),
        user: Option<u32>,
        payload: &[u8],
    ) {
        // Before what it carries is looked at. A flow is there before anything comes by it.
        if let Some(user) = user
            && let Some(owner) = self.endpoint.owner_of(payload)
            && let Some(connection) = common.channels.connection(owner)
        {
            connection.peer_user = Some(user);
        }
        // This is the way that it was to come.
        let (arrival, ecn, app) = (Arrival::Queue, Ecn::NotCapable, &mut common.channels);
        self.endpoint.handle_datagram(now, source, destination, payload, arrival, ecn, app);
    }

    /// Bad news about a packet of this host. False if it is none of messages.
    #[cold]
    pub(crate) fn handle_network_error(
        &mut self,
        common: &mut Common,
        now: Time,
        error: &NetworkError<'_>,
    ) -> bool {
        let Some(quoted) = error.datagram() else { return false };
        // All go to the port of all daemons, but for a ping that looks for another one.
        if quoted.destination.port() != self.udp_port && !self.endpoint.is_pinging() {
            return false;
        }
        let (peer, quote) = (quoted.destination, quoted.payload);
        let undelivered = match error.kind {
            NetworkErrorKind::TooLarge { mtu } => {
                self.endpoint.handle_packet_too_big(now, peer, quote, mtu);
                return true;
            }
            NetworkErrorKind::PortUnreachable => Undelivered::Port,
            NetworkErrorKind::Unreachable
            | NetworkErrorKind::Prohibited
            | NetworkErrorKind::TimeExceeded
            | NetworkErrorKind::UnknownProtocol => Undelivered::Host,
        };
        let app = &mut common.channels;
        self.endpoint.handle_network_error(now, peer, quote, undelivered, app);
        true
    }

    /// Whom a packet concerns, if this engine has its flow.
    pub(crate) fn party_of(&self, channels: &Channels, payload: &[u8]) -> Option<Party> {
        let owner = self.endpoint.owner_of(payload)?;
        Some(Party::of_connection(channels, owner))
    }

    #[inline]
    fn paths_over(&mut self, nic: Nic) -> &mut Paths {
        match nic {
            Nic::Own => &mut self.paths,
            Nic::Other(index) => &mut self.paths_elsewhere[index],
        }
    }
}

/// What is in a UDP datagram.
pub(crate) fn payload<'a>(frame: &'a [u8], digest: &Digest) -> Option<&'a [u8]> {
    frame.get(digest.transport_at() + clearway_wire::udp::HEADER_LENGTH..)
}
