//! What an engine has to do with the other engines of its host, those of its NIC above all: frames
//! that came to the wrong one, and what is learnt from those that concern all.
//!
//! | comes | goes by lane to |
//! |---|---|
//! | a packet of messages whose flow is another engine's | that engine |
//! | a syn that is to be passed on, or whose listener has another NIC | the engine that listens |
//! | a frame that a VIF of another engine owns, or wants a copy of | that engine |
//! | a segment to a TCP port of other engines, of no connection here | those engines in turn |
//! | ARP, neighbour discovery, ICMP errors, resets of unknown flows | all others, to learn from |
//! | a packet to an app of this host | the engine that serves it |
//! | a packet over another NIC | an engine of that NIC |
//! | a segment of TCP to this host's address on another NIC | an engine of that NIC |
//! | what a capture wants to see | the engine of the capture |
//!
//! Whoever gets a frame answers it; nobody else does. What comes by a lane is in
//! `engine/parcels.rs`.

use clearway_base::Time;
use clearway_channel::burst::Point;
use clearway_nic::{Queue, Transmit};
use clearway_wire::clearway::{Packet, PacketType};
use clearway_wire::digest::{Digest, fields};

use crate::captures::{Party, Sighting};
use crate::common::{Common, Via};
use crate::lanes::What;
use crate::services::Service;

/// Echo request and reply, of ICMP (RFC 792) and ICMPv6 (RFC 4443): the only messages of both that
/// concern just the engine that they come to.
const ECHO: [u64; 4] = [8, 0, 128, 129];

impl Common {
    /// Gives a packet of messages to the engine whose it is.
    #[cold]
    pub(crate) fn hand_messages(&mut self, engine: usize, frame: &[u8], via: Via) {
        let is_sibling = self.lanes.siblings().contains(&engine);
        let what = if is_sibling { via.parcel() } else { What::Overheard(Service::Messages) };
        self.lanes.push(engine, what, frame);
    }

    /// Gives frames to the engine of the VIF whose they are.
    pub(crate) fn hand_frames(&mut self, engine: usize, frames: &[&[u8]], via: Via) {
        // Whoever sent them here thought that they were this engine's: no frame goes round.
        if via.is_lane() {
            self.counters.frames_unclaimed += frames.len() as u64;
            return;
        }
        let what = via.parcel();
        frames.iter().for_each(|frame| self.lanes.push(engine, what, frame));
    }

    /// Lets the other engines hear what concerns them, too.
    pub(crate) fn share(&mut self, service: Service, frame: &[u8], via: Via) {
        if self.lanes.is_alone() || !matches!(via, Via::Queue(_) | Via::Vif(_)) {
            return;
        }
        let concerns_all = match service {
            Service::Arp | Service::Undelivered => true,
            Service::Icmp => !ECHO.contains(&Digest::of(frame).field(fields::ICMP_TYPE)),
            Service::Messages
            | Service::Datagrams
            | Service::Tcp
            | Service::Segments
            | Service::Fragments
            | Service::Extra => false,
        };
        if concerns_all {
            self.lanes.push_to(self.lanes.others(), What::Overheard(service), frame);
        }
    }

    /// Lets the other engines hear that a peer does not know a flow. It says so without a flow: its
    /// packet names the flow by the id that the peer had chosen, and that does not tell whose it is
    /// here.
    #[inline]
    pub(crate) fn share_reset(&mut self, payload: &[u8], frame: &[u8], via: Via) {
        if self.lanes.is_alone() || !matches!(via, Via::Queue(_)) {
            return;
        }
        let is_reset = |packet: Packet<'_>| {
            packet.type_octet() == PacketType::Reset as u8 && packet.flow() == 0
        };
        if Packet::new(payload).is_ok_and(is_reset) {
            self.lanes.push_to(self.lanes.others(), What::Overheard(Service::Messages), frame);
        }
    }

    /// Sends what an engine of another NIC has built for this one. What there is no room for is
    /// dropped, as a switch would. True if it is queued.
    pub(crate) fn transmit_for_other(
        &mut self,
        now: Time,
        queue: &mut dyn Queue,
        frame: &[u8],
    ) -> bool {
        let is_short = frame.len() <= self.host.frame_bytes_max();
        let mut is_taken = false;
        let transmit = self.send(now, queue, |_, buffer| match buffer.get_mut(..frame.len()) {
            Some(buffer) if is_short => {
                is_taken = true;
                buffer.copy_from_slice(frame);
                frame.len()
            }
            _ => 0,
        });
        match transmit {
            Transmit::Queued => return true,
            Transmit::Nothing if is_taken => {} // for this host only
            Transmit::Nothing | Transmit::Full => self.lanes.counters.lane_frames_dropped += 1,
        }
        false
    }

    /// Shows captures a packet before it goes to another NIC, where it will be on the wire.
    pub(crate) fn show_handed_over(&mut self, now: Time, frame: &[u8], party: Option<Party>) {
        if self.captures.any() {
            let digest = Digest::of(frame);
            self.show(now, &Sighting::sent(frame, &digest, Point::Delivered, party));
        }
    }

    /// Shows captures a packet that came over another NIC, where it was seen on the wire.
    pub(crate) fn show_handed_in(&mut self, now: Time, frame: &[u8], party: Option<Party>) {
        if self.captures.any() {
            let digest = Digest::of(frame);
            self.show(now, &Sighting::received(frame, &digest, Point::Delivered, party));
        }
    }
}
