//! What an engine has to do with the other engines of its host, those of its NIC above all: frames that
//! came to the wrong one, what is learnt from those that concern all, and connections to apps that another
//! one serves. What goes over NICs of others is in `elsewhere.rs`.
//!
//! | comes | goes by lane to |
//! |---|---|
//! | a packet of messages whose flow is another engine's | that engine |
//! | a syn that is to be passed on, or whose listener has another NIC | the engine that listens |
//! | a frame that a VIF of another engine owns, or wants a copy of | that engine |
//! | ARP, neighbour discovery, ICMP errors, resets of unknown flows | all others, to learn from |
//! | a packet to an app of this host | the engine that serves it |
//! | what a capture wants to see | the engine of the capture |
//!
//! Whoever gets a frame answers it; nobody else does.

use std::net::{IpAddr, SocketAddr};

use clearway_base::Time;
use clearway_channel::Code;
use clearway_nic::{BURST_FRAMES, Queue};
use clearway_transport::{Arrival, Destination, Endpoint, Owner};
use clearway_wire::Ecn;
use clearway_wire::clearway::{Packet, PacketType};
use clearway_wire::digest::{Digest, fields};

use super::{Core, Via};
use crate::channels::Link;
use crate::lanes::{Parcel, What};
use crate::services::Service;

/// Echo request and reply, of ICMP (RFC 792) and ICMPv6 (RFC 4443): the only messages of both that
/// concern just the engine that they come to.
const ECHO: [u64; 4] = [8, 0, 128, 129];

impl Core {
    /// True if `address` is this host.
    #[inline]
    pub(super) fn is_here(&self, address: IpAddr) -> bool {
        self.is_own(address) || address.is_loopback()
    }

    /// The other engine that is to have a packet of messages, if it is not for this one.
    #[inline]
    pub(super) fn engine_elsewhere(&self, payload: &[u8]) -> Option<usize> {
        if self.lanes.is_alone() {
            return None;
        }
        let engine = Endpoint::engine_of(payload).map(usize::from).or_else(|| {
            let (port, pass_on) = Endpoint::port_of_syn(payload)?;
            let listener = *self.listeners_elsewhere.get(&port)?;
            // It would look in vain for a queue of an engine that has none of this NIC.
            (pass_on || !self.lanes.siblings().contains(&listener)).then_some(listener)
        })?;
        (engine != self.lanes.index() && engine < self.lanes.count()).then_some(engine)
    }

    /// Gives a packet of messages to the engine whose it is.
    #[cold]
    pub(super) fn hand_messages(&mut self, engine: usize, frame: &[u8], via: Via) {
        let is_sibling = self.lanes.siblings().contains(&engine);
        let what = if is_sibling { via.parcel() } else { What::Overheard(Service::Messages) };
        self.lanes.push(engine, what, frame);
    }

    /// Lets the other engines hear what concerns them, too.
    #[inline]
    pub(super) fn share(&mut self, service: Service, frame: &[u8], via: Via) {
        if self.lanes.is_alone() || !matches!(via, Via::Queue | Via::Vif) {
            return;
        }
        let concerns_all = match service {
            Service::Arp => true,
            Service::Icmp => !ECHO.contains(&Digest::of(frame).field(fields::ICMP_TYPE)),
            Service::Messages | Service::Datagrams => false,
        };
        if concerns_all {
            self.lanes.push_to(self.lanes.others(), What::Overheard(service), frame);
        }
    }

    /// Lets the other engines hear that a peer does not know a flow. It says so without a flow: its
    /// packet names the flow by the id that the peer had chosen, and that does not tell whose it is
    /// here.
    #[inline]
    pub(super) fn share_reset(&mut self, payload: &[u8], frame: &[u8], via: Via) {
        if self.lanes.is_alone() || via != Via::Queue {
            return;
        }
        let is_reset = |packet: Packet<'_>| {
            packet.type_octet() == PacketType::Reset as u8 && packet.flow() == 0
        };
        if Packet::new(payload).is_ok_and(is_reset) {
            self.lanes.push_to(self.lanes.others(), What::Overheard(Service::Messages), frame);
        }
    }

    // ---- from siblings ----

    /// Takes what other engines have handed over, a burst of each.
    #[inline]
    pub(super) fn take_from_siblings(&mut self, now: Time, queue: &mut dyn Queue) -> usize {
        let mut left = self.lanes.pending();
        let mut taken = 0;
        while left != 0 {
            taken += self.take_from(now, left.trailing_zeros() as usize, queue);
            left &= left - 1;
        }
        if core::mem::take(&mut self.relayed_unflushed) {
            queue.flush();
        }
        taken
    }

    fn take_from(&mut self, now: Time, engine: usize, queue: &mut dyn Queue) -> usize {
        let mut parcels = core::mem::take(&mut self.parcels);
        self.lanes.take(engine, BURST_FRAMES, &mut parcels);
        let taken = parcels.len();
        self.handle_parcels(now, engine, queue, &parcels);
        self.lanes.give_back(engine, &mut parcels);
        self.parcels = parcels;
        taken
    }

    /// Frames that follow each other are handled as a burst.
    fn handle_parcels(
        &mut self,
        now: Time,
        engine: usize,
        queue: &mut dyn Queue,
        mut parcels: &[Parcel],
    ) {
        while let Some(first) = parcels.first() {
            let via = match first.what {
                What::Frame => Via::Lane,
                What::Arrival => Via::QueueAndLane,
                _ => {
                    self.handle_parcel(now, engine, queue, first);
                    parcels = &parcels[1..];
                    continue;
                }
            };
            let frames = parcels.iter().take_while(|parcel| parcel.what == first.what).count();
            let (run, others) = parcels.split_at(frames);
            let mut bytes = [&[][..]; BURST_FRAMES];
            for (bytes, parcel) in bytes.iter_mut().zip(run) {
                *bytes = &parcel.bytes;
            }
            self.handle_burst(now, &bytes[..frames], via);
            parcels = others;
        }
    }

    fn handle_parcel(&mut self, now: Time, engine: usize, queue: &mut dyn Queue, parcel: &Parcel) {
        let bytes = &parcel.bytes[..];
        match parcel.what {
            What::Frame => self.handle_burst(now, &[bytes], Via::Lane),
            What::Arrival => self.handle_burst(now, &[bytes], Via::QueueAndLane),
            What::Copy => {
                // Those of other engines have been given theirs.
                self.switch.copy(&mut self.channels, now, None, bytes, &Digest::of(bytes));
            }
            What::Overheard(service) if self.lanes.siblings().contains(&engine) => {
                let received =
                    self.interface.overhear(|interface| service.take(now, interface, bytes));
                if let Ok(received) = received {
                    self.handle_received(now, received, bytes, Via::Lane);
                }
            }
            What::Overheard(service) => {
                let other = self.elsewhere.iter().position(|nic| nic.engines.contains(&engine));
                if let Some(other) = other {
                    self.handle_from_elsewhere(now, other, service, bytes);
                }
            }
            What::Transmit => self.transmit_for_other(now, queue, bytes),
            What::Datagram { source, destination } => {
                self.channels.destination = Some(destination.ip());
                // This is the way that it was to come.
                let (arrival, ecn) = (Arrival::Queue, Ecn::NotCapable);
                let (endpoint, channels) = (&mut self.endpoint, &mut self.channels);
                endpoint.handle_datagram(now, source, destination, bytes, arrival, ecn, channels);
            }
            What::Sighting { capture, info } => {
                self.switch.show_of_sibling(&mut self.channels, capture, info, bytes);
            }
        }
    }

    // ---- to apps of siblings ----

    /// Remembers who listens on a port, so that connections to it are made there.
    pub(super) fn note_listener(&mut self, port: u16, engine: Option<usize>) {
        match engine {
            Some(engine) => self.listeners_elsewhere.insert(port, engine),
            None => self.listeners_elsewhere.remove(&port),
        };
        self.endpoint.set_elsewhere(port, engine.is_some());
    }

    /// Connects to an app of this host that another engine serves: over a flow as to any other host,
    /// but by the lane.
    pub(super) fn connect_to_sibling(
        &mut self,
        now: Time,
        id: u32,
        token: u64,
        peer: SocketAddr,
    ) -> Result<(), Code> {
        if !self.listeners_elsewhere.contains_key(&peer.port()) {
            return Err(Code::Refused);
        }
        let channel = self.channels.channel(id).ok_or(Code::Internal)?;
        let window = channel.window();
        let slot = channel.open(peer, Link::Resolving, Some(token)).ok_or(Code::Limit)?;
        let owner = Owner { channel: id, connection: slot };
        let daemon = SocketAddr::new(peer.ip(), self.config.udp_port);
        let flow = self.endpoint.connect(now, owner, daemon, daemon, peer.port(), window);
        let Some(connection) = channel.connection(slot) else { return Ok(()) };
        match flow {
            Some(key) => connection.link = Link::Flow(key),
            None => drop(channel.close(slot, Code::Limit)),
        }
        Ok(())
    }

    /// Builds a packet to an app of this host, and hands it to the engine that serves the app.
    pub(super) fn send_to_sibling(&mut self, now: Time, destination: Destination) {
        let mut scratch = core::mem::take(&mut self.scratch);
        let length = self.endpoint.poll_transmit(now, destination, &mut scratch, &self.channels);
        if length > 0 {
            let payload = &scratch[..length];
            let what = What::Datagram { source: destination.from, destination: destination.to };
            match Endpoint::engine_of(payload)
                .map(usize::from)
                .or_else(|| self.listener_of(destination))
            {
                Some(engine) if engine != self.lanes.index() => {
                    self.lanes.push(engine, what, payload)
                }
                Some(_) => {} // it has gone, and with it whoever listened
                // It says only that a flow has ended, not whose that was.
                None => self.lanes.push_to(self.lanes.others(), what, payload),
            }
        }
        self.scratch = scratch;
    }

    /// The engine that the connection of a flow is to lead to.
    fn listener_of(&self, destination: Destination) -> Option<usize> {
        let owner = self.endpoint.owner(destination.flow?)?;
        let port = self.channels.peek(owner.channel)?.peer(owner.connection)?.port();
        Some(self.listeners_elsewhere.get(&port).copied().unwrap_or(self.lanes.index()))
    }
}
