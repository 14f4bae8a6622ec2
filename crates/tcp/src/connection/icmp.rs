//! What routers and the peer's host say. They can be anybody: RFC 5927.

use clearway_base::Time;
use clearway_congestion::CongestionControl;

use super::Connection;
use crate::event::End;
use crate::seq;
use crate::state::State;

/// An ICMP error about a segment of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// "Fragmentation needed" or "packet too big": what the next link takes.
    TooBig(u32),
    /// Nobody listens at that port, or the host does not speak TCP.
    Refused,
    /// Somebody on the way forbids it.
    Prohibited,
    /// The host or network cannot be reached, or not for now.
    Unreachable,
}

impl Connection {
    /// An error has come that quotes a segment with `sequence`.
    pub(crate) fn handle_icmp(&mut self, now: Time, error: IcmpError, sequence: u32) {
        // RFC 5927, section 4.1: "the TCP sequence number contained in the payload of the ICMP
        // error message" has to be "within the range SND.UNA =< SEG.SEQ < SND.NXT".
        let position = seq::position(self.snd.una(), sequence);
        if position < self.snd.una() || position >= self.snd.next() {
            return;
        }
        match error {
            IcmpError::TooBig(mtu) => self.on_too_big(now, mtu),
            // RFC 9293, section 3.9.2.2: hard errors "SHOULD abort the connection"; RFC 5461,
            // section 4.1, and everybody: not once it is open, when they are more likely an attack.
            IcmpError::Refused if self.is_opening() => self.finish(End::Refused),
            // Linux and FreeBSD: what a firewall forbids it will forbid again.
            IcmpError::Prohibited if self.is_opening() => self.finish(End::Unreachable),
            IcmpError::Unreachable
                if self.is_opening() && self.settings.variants.unreachable_ends_opening =>
            {
                self.finish(End::Unreachable);
            }
            // 3.9.2.2: "Since these Unreachable messages indicate soft error conditions, a TCP
            // implementation MUST NOT abort the connection".
            IcmpError::Refused | IcmpError::Prohibited | IcmpError::Unreachable => {
                self.soft_error = Some(End::Unreachable);
            }
        }
    }

    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// RFC 1191, section 6.4: what is too big is sent again at once, in smaller segments. RFC 8201,
    /// section 5.4: it is no congestion.
    fn on_too_big(&mut self, now: Time, mtu: u32) {
        let packet_max = u16::try_from(mtu).unwrap_or(u16::MAX);
        if self.size.on_too_big(now, mtu) {
            self.control.set_packet_bytes(self.size.bytes() as u16);
            self.search_later(now);
        } else if packet_max < self.size.path_mtu() || !self.search.on_too_big(packet_max) {
            return;
        }
        self.board.mark_longer_lost(self.size.bytes());
        match self.is_opening() {
            true => self.on_syn_too_big(),
            false => self.set_timers(now, false),
        }
    }
}
