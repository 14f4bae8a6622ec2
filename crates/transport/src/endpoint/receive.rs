//! What becomes of a datagram: it is checked, and goes to its flow or to whom its type says.

use std::net::SocketAddr;

use clearway_base::Time;
use clearway_wire::clearway::{
    Challenge, Header, Packet, PacketType, Reset, Syn, SynAck, Versions,
};
use clearway_wire::{Ecn, Malformed};

use super::strangers::Addresses;
use super::table::find;
use super::{Endpoint, FlowKey, Turn};
use crate::app::{App, Reason};
use crate::flow::{Dropped, Outcome, Reception};

/// How a datagram came to this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// From its own queue of the NIC.
    Queue,
    /// From another engine of the host, whose queue it came to.
    Lane,
}

impl Endpoint {
    /// Takes the payload of a UDP datagram that came from `source` to the own address
    /// `destination`, in the way that `arrival` says, in an IP packet that said `ecn`. True if
    /// something is to be sent to where it came from, by the way that it came: an answer, or what a
    /// new flow begins with.
    #[expect(clippy::too_many_arguments, reason = "all that is known of a datagram, and the app")]
    pub fn handle_datagram(
        &mut self,
        now: Time,
        source: SocketAddr,
        destination: SocketAddr,
        payload: &[u8],
        arrival: Arrival,
        ecn: Ecn,
        app: &mut impl App,
    ) -> bool {
        self.counters.received_by_lane += u64::from(arrival == Arrival::Lane);
        let between = Addresses { local: destination, peer: source };
        let is_opened = self.take_datagram(now, between, payload, arrival, ecn, app);
        is_opened || self.has_replies()
    }

    /// True if a flow was opened.
    #[inline]
    fn take_datagram(
        &mut self,
        now: Time,
        between: Addresses,
        payload: &[u8],
        arrival: Arrival,
        ecn: Ecn,
        app: &mut impl App,
    ) -> bool {
        if !between.is_from_daemon() {
            self.take_foreign(now, between, payload, app);
            return false;
        }
        let Ok(packet) = Packet::new(payload) else {
            self.counters.dropped_malformed += 1;
            return false;
        };
        match Header::parse(&packet) {
            Ok(header) if header.packet_type == PacketType::Data => {
                self.handle_data(now, between, &header, &packet, (arrival, ecn), app);
            }
            Ok(header) => match self.handle_control(now, between, &header, &packet, arrival, app) {
                Ok(is_opened) => return is_opened,
                Err(_) => self.counters.dropped_malformed += 1,
            },
            Err(Malformed::Checksum) => self.counters.dropped_checksum += 1,
            Err(Malformed::Version) => self.handle_other_version(now, between, &packet),
            Err(_) => self.counters.dropped_malformed += 1,
        }
        false
    }

    /// Takes a datagram from a port that daemons of this network do not send from. Pings and pongs
    /// say nothing that would have to be believed, and tell of a daemon with another port.
    #[cold]
    fn take_foreign(&mut self, now: Time, between: Addresses, payload: &[u8], app: &mut impl App) {
        let packet = Packet::new(payload).ok();
        let header = packet.and_then(|packet| Some((Header::parse(&packet).ok()?, packet)));
        match header {
            Some((Header { packet_type: PacketType::Ping, number, .. }, packet)) => {
                self.reply_pong(now, between, number, &packet);
            }
            Some((header @ Header { packet_type: PacketType::Pong, .. }, _)) => {
                self.handle_pong(now, &header, app);
            }
            _ => self.counters.dropped_source_port += 1,
        }
    }

    fn handle_data(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        packet: &Packet<'_>,
        (arrival, ecn): (Arrival, Ecn),
        app: &mut impl App,
    ) {
        let key = FlowKey(header.flow);
        let slot = key.slot();
        let Some(flow) = find(&mut self.slots, key) else {
            self.counters.dropped_unknown_flow += 1;
            return self.reply_reset(now, between, header.flow);
        };
        if flow.remote().ip() != between.peer.ip() {
            return self.counters.dropped_spoofed += 1;
        }
        flow.note_arrival(arrival, between.peer.port());
        let (Turn { gap_ns, returned, .. }, listeners) = (self.turn, &self.listeners);
        let reception = Reception { gap_ns, returned, ecn, listeners };
        let taken = flow.handle_data(now, &self.config, header, packet, reception, app);
        if let Some(is_unused) = flow.note_use(now) {
            self.unused.note(flow, is_unused);
        }
        match taken {
            Ok(outcome) => {
                self.counters.data_packets_received += 1;
                return self.conclude(now, slot, outcome, app);
            }
            Err(Dropped::Malformed(_)) => self.counters.dropped_malformed += 1,
            Err(Dropped::Duplicate) => self.counters.dropped_duplicate += 1,
            Err(Dropped::Early) => self.counters.dropped_early += 1,
            Err(Dropped::NoBuffer) => {
                self.counters.dropped_no_buffer += 1;
                // Operations that stand before what was refused have been carried out.
                flow.push_operations(app);
                flow.refuse(now, header.number);
            }
            Err(Dropped::Violation) => {
                self.counters.dropped_violation += 1;
                return self.conclude(now, slot, Outcome::Ended(Reason::Protocol), app);
            }
        }
        self.update(now, slot);
    }

    /// True if a flow was opened.
    fn handle_control(
        &mut self,
        now: Time,
        between: Addresses,
        header: &Header,
        packet: &Packet<'_>,
        arrival: Arrival,
        app: &mut impl App,
    ) -> Result<bool, Malformed> {
        match header.packet_type {
            PacketType::Data => unreachable!("handled by the caller"),
            PacketType::Syn => {
                let syn = Syn::parse(packet)?;
                return Ok(self.handle_syn(now, between, header, &syn, arrival, app));
            }
            PacketType::Challenge => {
                self.handle_challenge(now, between, header, &Challenge::parse(packet)?);
            }
            PacketType::SynAck => {
                let syn_ack = SynAck::parse(packet)?;
                self.handle_syn_ack(now, between, header, &syn_ack, arrival, app);
            }
            PacketType::Reset => {
                self.handle_reset(now, between, header, &Reset::parse(packet)?, app)
            }
            PacketType::Version => {
                self.handle_versions(now, between, header, &Versions::parse(packet)?, app);
            }
            PacketType::Ping => self.reply_pong(now, between, header.number, packet),
            PacketType::Pong => self.handle_pong(now, header, app),
        }
        Ok(false)
    }
}
