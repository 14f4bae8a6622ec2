//! What leaves: segments, built in the queue's buffers from the apps' memory. The checksum is of
//! what was copied there, unless the queue sees to it.

use std::net::IpAddr;

use clearway_base::Time;
use clearway_nic::{HEADER_BYTES_MAX, Segments, Transmit as Sent};
use clearway_tcp::{IcmpError, IpFields, Stack, Transmit};
use clearway_wire::checksum::Sum;
use clearway_wire::digest::Digest;
use clearway_wire::{ipv6, tcp};

use super::Tcp;
use super::elsewhere;
use super::joined::Here;
use super::paths::TcpPath;
use crate::channels::Channels;
use crate::common::Common;
use crate::component::{Outlet, Sending};
use crate::host::Nic;
use crate::ip::Path;

/// In a frame there is one segment.
pub(super) const SEGMENT: u32 = 1;

/// The most that a frame has in front of the payload of a segment.
const HEADERS_MAX: usize = HEADER_BYTES_MAX + ipv6::HEADER_LENGTH + tcp::HEADER_LENGTH_MAX;

/// What may leave in one frame, in segments and in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) segments: u32,
    pub(super) bytes: u32,
}

impl Room {
    /// For so many segments in a buffer.
    #[inline]
    fn of(segments: usize, buffer: &[u8]) -> Room {
        let bytes = match segments {
            1 => SEGMENT,
            _ => buffer.len().saturating_sub(HEADERS_MAX) as u32, // of a packet
        };
        Room { segments: segments as u32, bytes }
    }
}

impl Tcp {
    pub(super) fn send_segments(
        &mut self,
        common: &mut Common,
        now: Time,
        outlet: Outlet<'_>,
    ) -> Sending {
        let Outlet { queue, budget, bytes, .. } = outlet;
        let (mut sending, mut queued_bytes) = (Sending::default(), 0);
        let leaves_sums = common.may_leave_sums(queue);
        self.ask_held(common);
        while sending.taken < budget && queued_bytes < bytes && self.stack.has_output() {
            let mut was_there = false;
            let sent = common.send_segments(now, queue, leaves_sums, |common, frame, most| {
                let wire = Room::of(most, frame);
                let ways = (&self.paths, &mut self.held);
                let mut here = Here::new(common, &mut self.books, ways, now, wire);
                let next = self.stack.poll_transmit_by(now, &mut here);
                let is_joined = here.is_of_joined();
                was_there = next.is_some();
                // It stays where it is: it is large.
                let Some(transmit) = &next else { return Segments::default() };
                if is_joined {
                    queued_bytes += (transmit.payload.end - transmit.payload.start) as usize;
                    self.deliver(common, now, transmit);
                    return Segments::default();
                }
                let bytes = self.emit(common, now, transmit, frame, leaves_sums);
                queued_bytes += bytes;
                Segments { bytes, segment_bytes: segment_bytes(transmit) }
            });
            match sent {
                Sent::Queued => sending.queued += 1,
                Sent::Nothing if was_there => {} // for this host, or nobody knows the way
                Sent::Nothing | Sent::Full => break,
            }
            sending.taken += 1;
        }
        self.tell(common, now);
        sending
    }

    /// Writes a segment, or several as one. Returns the length of the frame; 0 if it cannot leave,
    /// and is lost.
    fn emit(
        &mut self,
        common: &mut Common,
        now: Time,
        transmit: &Transmit,
        frame: &mut [u8],
        leaves_sums: bool,
    ) -> usize {
        let nic = common.host.nic_with(transmit.from.ip());
        let (interface, stack) = (common.host.interface(nic), &self.stack);
        let is_silent = |key| stack.is_silent(key);
        let found = self.paths.find(now, (nic, interface), transmit, is_silent);
        let Some(TcpPath { path, nic, is_here }) = found else {
            common.counters.packets_unresolved += 1;
            return 0;
        };
        let is_by_wire = !*is_here && *nic == Nic::Own;
        if !is_by_wire && segment_bytes(transmit) > 0 {
            return 0; // when it was taken, the address was another host's, or this NIC's
        }
        let at = path.payload_offset();
        let header_bytes = match nic {
            Nic::Own => transmit.repr.emit(&mut frame[at..]),
            Nic::Other(_) => elsewhere::fitted(&common.host, transmit).emit(&mut frame[at..]),
        };
        let payload = &mut frame[at + header_bytes..];
        let payload_bytes = copy(&self.stack, &common.channels, transmit, payload);
        let length = header_bytes + payload_bytes;
        if !leaves_sums || !is_by_wire {
            tcp::fill_checksum(&mut frame[at..at + length], addresses(path));
        }
        let length = path.emit_headers(frame, length, transmit.ecn_capable);
        if transmit.ip != IpFields::default() {
            path.set_ip_fields(frame, transmit.ip.hop_limit, transmit.ip.traffic_class);
        }
        if let Nic::Other(other) = *nic {
            elsewhere::send(common, now, other, *is_here, &frame[..length]);
            return 0;
        }
        if *is_here {
            self.hand_over(common, now, transmit, &frame[..length]);
            return 0;
        }
        length
    }

    /// Gives a segment to the app of this host whose it is. Where there is none, it is refused.
    fn hand_over(&mut self, common: &mut Common, now: Time, transmit: &Transmit, frame: &[u8]) {
        let digest = Digest::of(frame);
        if let Some(key) = self.joins(common, transmit, &digest) {
            self.paths.join(key, common.switch.version());
            return self.deliver(common, now, transmit);
        }
        if common.leave(now, None, None, frame, &digest).is_err() {
            let Transmit { from, to, .. } = *transmit;
            self.stack.handle_icmp(now, IcmpError::Refused, from, to, transmit.repr.sequence);
        }
    }
}

/// The payload of each of several segments but the last; 0 for one.
#[inline]
fn segment_bytes(transmit: &Transmit) -> usize {
    let Transmit { payload, segment_bytes, .. } = transmit;
    let is_one = payload.end - payload.start <= u64::from(*segment_bytes);
    if is_one { 0 } else { *segment_bytes as usize }
}

/// Copies what a segment carries from where its app has it. Returns how much that is.
#[inline]
fn copy(stack: &Stack, channels: &Channels, transmit: &Transmit, into: &mut [u8]) -> usize {
    let Some(key) = transmit.connection else { return 0 };
    let mut filled = 0;
    for extent in stack.extents(key, transmit.payload.clone()) {
        let place = &mut into[filled..filled + extent.length as usize];
        channels.read_sent(extent.region, extent.offset, place);
        filled += extent.length as usize;
    }
    filled
}

/// The part of the pseudo header that is not of TCP.
#[inline]
fn addresses(path: &Path) -> Sum {
    match (path.source(), path.destination()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Sum::new().with(&from.octets()).with(&to.octets()),
        (IpAddr::V6(from), IpAddr::V6(to)) => Sum::new().with(&from.octets()).with(&to.octets()),
        _ => Sum::new(), // a path is of one family
    }
}
