//! The host's other NICs, which engines of their own serve. An app reaches over them what they reach: the
//! flow is its own engine's, and its packets go by the lane to an engine of the NIC, and come from there.
//!
//! ```text
//!  app ⇄ this engine ── Transmit ───▶ engine of the other NIC ⇄ its queue ⇄ wire
//!                    ◀─ Overheard ──
//! ```
//!
//! This engine knows of the other NIC what each of its engines knows: addresses, routes, and neighbours,
//! of whom it hears when they do. So the frames that it hands over are complete, and what it is handed is
//! as it came.
//!
//! *Not* here: who owns a frame that comes (that engine's table says so), and virtual interfaces, which
//! are of one NIC.

use std::net::IpAddr;
use std::ops::Range;

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::{HEADER_BYTES_MAX, MacAddress, Queue, Transmit};
use clearway_transport::{Arrival, Destination};
use clearway_wire::digest::Digest;
use clearway_wire::{ipv6, udp};

use super::Core;
use super::departures::packet;
use crate::ip::{self, Interface};
use crate::lanes::What;
use crate::paths::Paths;
use crate::services::{Received, Service};
use crate::switch::Sighting;

/// What a frame may have in front of a UDP payload.
pub(super) const HEADERS_BYTES_MAX: usize =
    HEADER_BYTES_MAX + ipv6::HEADER_LENGTH + udp::HEADER_LENGTH;

/// A NIC that other engines serve.
#[derive(Debug)]
pub(super) struct OtherNic {
    /// Its number among the host's.
    pub(super) number: usize,
    /// The engines that serve it.
    pub(super) engines: Range<usize>,
    pub(super) interface: Interface,
    paths: Paths,
}

/// Which of the host's NICs something goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// This engine's own.
    Own,
    /// One of the others, by its place among [`Core::elsewhere`].
    Elsewhere(usize),
}

impl OtherNic {
    pub(super) fn new(number: usize, engines: Range<usize>, config: &ip::Config) -> Self {
        let interface = Interface::silent(config);
        Self { number, engines, interface, paths: Paths::default() }
    }
}

impl Core {
    /// True if `address` is one of the host's, on whichever NIC.
    #[inline]
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.interface.is_own(address)
            || self.elsewhere.iter().any(|nic| nic.interface.is_own(address))
    }

    /// The best way to `peer`: by the longest prefix, then the lowest metric, then this engine's own NIC,
    /// and the first of the configuration. `None` if there is no route.
    pub(super) fn way_to(&self, peer: IpAddr) -> Option<Way> {
        let own = self.interface.rank(peer).map(|rank| (rank, Way::Own));
        let others = self.elsewhere.iter().enumerate();
        let others = others
            .filter_map(|(index, nic)| Some((nic.interface.rank(peer)?, Way::Elsewhere(index))));
        own.into_iter().chain(others).min_by_key(|(rank, _)| *rank).map(|(_, way)| way)
    }

    pub(super) fn interface_of(&mut self, way: Way) -> &mut Interface {
        match way {
            Way::Own => &mut self.interface,
            Way::Elsewhere(index) => &mut self.elsewhere[index].interface,
        }
    }

    pub(super) fn paths_of(&mut self, way: Way) -> &mut Paths {
        match way {
            Way::Own => &mut self.paths,
            Way::Elsewhere(index) => &mut self.elsewhere[index].paths,
        }
    }

    /// The network of another NIC has changed.
    pub(super) fn set_network_elsewhere(&mut self, number: usize, network: &ip::Config) {
        let other = self.elsewhere.iter_mut().find(|nic| nic.number == number);
        if let Some(other) = other {
            other.interface.reconfigure(network);
            self.note_own_addresses();
        }
    }

    /// Has each NIC's interface know all addresses of the host, so that nobody can send from one.
    pub(super) fn note_own_addresses(&mut self) {
        let others = self.elsewhere.iter().flat_map(|nic| nic.interface.own_addresses());
        let all: Vec<IpAddr> = self.interface.own_addresses().chain(others).collect();
        self.interface.set_elsewhere(&all);
        for other in &mut self.elsewhere {
            other.interface.set_elsewhere(&all);
        }
    }

    /// A neighbour has been found, on the link of this engine's NIC or of another.
    pub(super) fn learn(
        &mut self,
        now: Time,
        nic: Option<usize>,
        address: IpAddr,
        mac: MacAddress,
    ) {
        let other = nic.and_then(|number| self.elsewhere.iter().position(|n| n.number == number));
        let way = other.map_or(Way::Own, Way::Elsewhere);
        self.interface_of(way).learn(now, address, mac);
    }

    // ---- what leaves ----

    /// The other NIC that has the own address `local`.
    #[inline]
    pub(super) fn elsewhere_of(&self, local: IpAddr) -> Option<usize> {
        if self.elsewhere.is_empty() || self.interface.is_own(local) {
            return None;
        }
        self.elsewhere.iter().position(|nic| nic.interface.is_own(local))
    }

    /// Builds a packet and hands it to an engine of the NIC that it is to leave by. False if there is no
    /// room in the lane.
    pub(super) fn send_elsewhere(
        &mut self,
        now: Time,
        index: usize,
        destination: Destination,
    ) -> bool {
        let other = &mut self.elsewhere[index];
        let engine = other.gateway_of(self.lanes.index());
        if !self.lanes.has_room(engine) {
            self.waits_for_lane = true;
            return false;
        }
        let path = other.paths.find(now, &mut other.interface, &mut self.endpoint, &destination);
        let Some(path) = path else {
            self.skip(now, destination);
            return true;
        };
        let mut frame = core::mem::take(&mut self.scratch);
        let (endpoint, channels) = (&mut self.endpoint, &self.channels);
        let length = packet(now, endpoint, channels, destination, path, &mut frame);
        if length > 0 {
            self.show_handed_over(now, &frame[..length], destination);
            self.lanes.push(engine, What::Transmit, &frame[..length]);
        }
        self.scratch = frame;
        true
    }

    /// Shows captures a packet before it goes to another NIC, where it will be on the wire.
    fn show_handed_over(&mut self, now: Time, frame: &[u8], destination: Destination) {
        if !self.switch.is_watched() {
            return;
        }
        let owner = destination.flow.and_then(|key| self.endpoint.owner(key));
        let party = owner.map(|owner| self.party_of_owner(owner));
        self.show_outgoing(now, frame, &Digest::of(frame), Point::Delivered, party);
    }

    /// Asks for neighbours on other NICs.
    pub(super) fn ask_elsewhere(&mut self) {
        let mut frame = core::mem::take(&mut self.scratch);
        for other in &mut self.elsewhere {
            let engine = other.gateway_of(self.lanes.index());
            while other.interface.has_output() && self.lanes.has_room(engine) {
                let length = other.interface.poll_transmit(&mut frame);
                if length == 0 {
                    break; // it is the kernel that is to be asked
                }
                self.lanes.push(engine, What::Transmit, &frame[..length]);
            }
        }
        self.scratch = frame;
    }

    /// Sends what an engine of another NIC has built for this one. What there is no room for is dropped,
    /// as a switch would.
    pub(super) fn transmit_for_other(&mut self, now: Time, queue: &mut dyn Queue, frame: &[u8]) {
        let is_short = frame.len() <= usize::from(self.config.interface.mtu) + HEADER_BYTES_MAX;
        let mut is_taken = false;
        let transmit = queue.transmit(&mut |buffer| match buffer.get_mut(..frame.len()) {
            Some(buffer) if is_short => {
                is_taken = true;
                buffer.copy_from_slice(frame);
                if self.switch.is_simple() { frame.len() } else { self.dispatch(now, frame, None) }
            }
            _ => 0,
        });
        match transmit {
            Transmit::Queued => self.relayed_unflushed = true,
            Transmit::Nothing if is_taken => {} // for this host only
            Transmit::Nothing | Transmit::Full => self.lanes.counters.lane_frames_dropped += 1,
        }
    }

    // ---- what comes ----

    /// Takes what has come to a service of the host over another NIC.
    pub(super) fn handle_from_elsewhere(
        &mut self,
        now: Time,
        index: usize,
        service: Service,
        frame: &[u8],
    ) {
        let interface = &mut self.elsewhere[index].interface;
        match interface.overhear(|interface| service.take(now, interface, frame)) {
            Ok(Received::Datagram(datagram)) => {
                if self.switch.is_watched() {
                    self.show_handed_in(now, frame, datagram.payload);
                }
                // There is no way to this engine that would be more direct.
                self.handle_datagram(now, &datagram, Arrival::Queue, Way::Elsewhere(index));
            }
            Ok(Received::NetworkError(error)) => drop(self.handle_network_error(now, &error)),
            Ok(Received::Nothing) | Err(_) => {}
        }
    }

    /// Shows captures a packet that came over another NIC, where it was seen on the wire.
    fn show_handed_in(&mut self, now: Time, frame: &[u8], payload: &[u8]) {
        let digest = &Digest::of(frame);
        let party = self.endpoint.owner_of(payload).map(|owner| self.party_of_owner(owner));
        let (is_outgoing, point, refusal) = (false, Point::Delivered, None);
        let is_again = false;
        let sighting = Sighting { frame, digest, is_outgoing, point, party, refusal, is_again };
        self.show(now, &sighting);
    }
}

impl OtherNic {
    /// The engine that sends for the one of this number: not the same for all.
    fn gateway_of(&self, engine: usize) -> usize {
        self.engines.start + engine % self.engines.len()
    }
}
