//! Packets in flight as plain data, and back. What is done, acknowledged or lost, is not in it: an
//! acknowledgement that comes for it finds nothing, as it would else.

use std::collections::{HashMap, VecDeque};

use clearway_base::RangeSet;
use clearway_base::state::{Invalid, ensure};

use super::{
    Content, EIGHTHS, EIGHTHS_MAX, NUMBERS_MAX, OTHERS_MAX, PACKET_THRESHOLD, PACKET_THRESHOLD_MAX,
    PROBES_MAX, Recovery, Reordering, SentPacket, Told, number_of,
};
use crate::config::PACKETS_IN_FLIGHT_MAX;
use crate::state::{POSITIONS_MAX, PacketState, RecoveryState};

impl Recovery {
    pub(crate) fn save(&self) -> RecoveryState {
        let mut packets = Vec::new();
        // A run of lost packets ends where one in between is done.
        let mut is_behind_done = false;
        for packet in self.packets.iter() {
            if packet.is_outstanding() {
                packets.push(self.save_packet(packet, is_behind_done));
            }
            is_behind_done = !packet.is_outstanding();
        }
        RecoveryState {
            packets,
            next_number: self.next_number,
            acked_end: self.acked_end,
            probes: self.probes,
            expedited: self.expedited,
            probe_numbers: self.probe_numbers.iter().flat_map(|all| all.iter()).copied().collect(),
            loss_time: self.loss_time,
            last_eliciting: self.last_eliciting,
            waiting_since: self.waiting_since,
            last_silent: self.last_silent,
            patience: self
                .reordering
                .as_ref()
                .map_or((PACKET_THRESHOLD, EIGHTHS), |known| (known.packets, known.eighths)),
        }
    }

    fn save_packet(&self, packet: &SentPacket, is_behind_done: bool) -> PacketState {
        let Content { stream, range, told } = packet.content();
        let Told { open, limit, close, abort, path, is_size_probe } = told;
        PacketState {
            number: number_of(packet, self.first),
            sent: packet.sent,
            bytes: packet.bytes,
            stream,
            range,
            open,
            limit,
            close,
            abort,
            path,
            is_size_probe,
            follows_acknowledged: packet.follows_acknowledged || is_behind_done,
        }
    }

    pub(crate) fn restore(state: RecoveryState) -> Result<Self, Invalid> {
        let (packets, eighths) = state.patience;
        ensure(state.next_number < POSITIONS_MAX, "packets of numbers that there are not")?;
        ensure(state.acked_end <= state.next_number, "what was never sent is acknowledged")?;
        let is_patience = (PACKET_THRESHOLD..=PACKET_THRESHOLD_MAX).contains(&packets)
            && (EIGHTHS..=EIGHTHS_MAX).contains(&eighths);
        ensure(is_patience, "a patience that nobody has")?;
        let mut recovery = Self::at(state.packets.first().map_or(state.next_number, |p| p.number));
        for packet in state.packets {
            let is_in_order = (recovery.next_number..state.next_number).contains(&packet.number);
            ensure(is_in_order, "packets out of order, or that were never sent")?;
            recovery.restore_packet(&packet)?;
        }
        ensure(state.next_number - recovery.first <= NUMBERS_MAX, "packets of long ago")?;
        ensure(recovery.packets.len() <= PACKETS_IN_FLIGHT_MAX + OTHERS_MAX, "too many packets")?;
        ensure(recovery.control_packets <= OTHERS_MAX as u32, "too many packets without data")?;
        recovery.restore_probes(state.probe_numbers, state.next_number)?;
        recovery.next_number = state.next_number;
        recovery.acked_end = state.acked_end;
        (recovery.probes, recovery.expedited) = (state.probes.min(1 << 20), state.expedited);
        recovery.last_eliciting = state.last_eliciting;
        recovery.waiting_since = state.waiting_since;
        recovery.last_silent = state.last_silent;
        recovery.loss_time = state.loss_time;
        if (packets, eighths) != (PACKET_THRESHOLD, EIGHTHS) {
            let lost = VecDeque::new();
            recovery.reordering = Some(Box::new(Reordering { packets, eighths, lost }));
        }
        Ok(recovery)
    }

    fn restore_probes(&mut self, numbers: Vec<u64>, next_number: u64) -> Result<(), Invalid> {
        let is_sent = numbers.last().is_none_or(|last| *last < next_number);
        let is_possible = is_sent && numbers.is_sorted_by(|a, b| a < b);
        ensure(is_possible && numbers.len() <= PROBES_MAX, "probes that were never sent")?;
        self.probe_numbers = (!numbers.is_empty()).then(|| Box::new(numbers.into()));
        Ok(())
    }

    fn restore_packet(&mut self, state: &PacketState) -> Result<(), Invalid> {
        let range = state.range.clone();
        let is_one = range.start <= range.end
            && range.end < POSITIONS_MAX
            && range.end - range.start <= u64::from(u32::MAX);
        ensure(is_one, "a packet of positions that there are not")?;
        ensure((1..=u32::from(u16::MAX)).contains(&state.bytes), "a packet of no size")?;
        let content = Content {
            stream: state.stream,
            range,
            told: Told {
                open: state.open,
                limit: state.limit,
                close: state.close,
                abort: state.abort,
                path: state.path,
                is_size_probe: state.is_size_probe,
            },
        };
        self.next_number = state.number;
        self.on_sent(state.sent, state.bytes as usize, true, &content);
        if let Some(packet) = self.packets.back_mut() {
            packet.follows_acknowledged = state.follows_acknowledged;
        }
        Ok(())
    }

    /// The positions that packets in flight have carried, of each stream of which there are any.
    pub(crate) fn positions(&self) -> HashMap<u32, RangeSet> {
        let mut positions = HashMap::new();
        for packet in self.packets.iter().filter(|packet| packet.is_outstanding()) {
            let content = packet.content();
            let of_stream: &mut RangeSet = positions.entry(content.stream).or_default();
            of_stream.insert(content.range);
        }
        positions
    }
}
