//! What the path takes, found by the connection itself: when a probe is sent, of what, and what its
//! fate means. The search is in `search`.

use clearway_base::Time;
use clearway_congestion::CongestionControl;

use super::transmit::Next;
use super::{Connection, Probe};
use crate::scoreboard::Lost;
use crate::search::{IDLE_NS, PROBE_NS, RAISE_NS};
use crate::timers::Timer;
use crate::ways::Ways;

/// Timeouts in a row of the same data, the first of which may say that it is too long for the path;
/// and after how many more it may still be.
const BLACK_HOLE_TIMEOUTS: u8 = 3;
const BLACK_HOLE_MORE: u8 = 2;

impl Connection {
    /// A probe is due, or the last one has had its time.
    pub(super) fn on_path_timer(&mut self, now: Time) {
        if let Some(mtu) = self.search.on_arrived(self.snd.una()) {
            self.set_path_mtu(mtu);
        }
        let (mtu, mtu_max) = (self.size.path_mtu(), self.size.mtu_max());
        if mtu >= mtu_max {
            return; // there is nothing to be found
        }
        let is_found = self.search.candidate(mtu).is_none();
        if is_found {
            self.search.restart(mtu_max);
        } else if self.search.outstanding().is_none() {
            self.probe.get_or_insert(Probe::Path);
        }
        let wait_ns = if is_found { RAISE_NS } else { PROBE_NS };
        self.timers.set(Timer::Path, now + wait_ns);
    }

    /// A segment that is longer than the others, if there is enough to fill it. It may exceed the
    /// congestion window by two segments: a window that is full would never have room for it.
    pub(super) fn path_probe(&mut self, now: Time, ways: &mut impl Ways) -> Option<Next> {
        let mtu = self.search.candidate(self.size.path_mtu())?;
        let options = self.options(now).length();
        let bytes = u64::from(self.size.bytes_at(mtu, options));
        let most = self.window_bytes() + 2 * u64::from(self.size.bytes());
        let has_room = self.snd.open() >= bytes && self.in_flight_bytes() + bytes <= most;
        if self.snd.unsent_bytes() < bytes {
            self.timers.set(Timer::Path, now + IDLE_NS);
            return None;
        }
        if !has_room || !self.recovery.is_open() {
            return None; // the timer is set
        }
        let range = self.snd.next()..self.snd.next() + bytes;
        let range = self.fitting(range, bytes as u32, ways)?;
        self.search.on_sent(mtu, range.clone());
        Some(self.first_time(now, range).in_one_segment())
    }

    /// True if what is lost is a probe and nothing else, which says nothing of congestion: RFC
    /// 4821, section 7.6.2.
    pub(super) fn is_lost_probe(&mut self, lost: &Lost) -> bool {
        let Some(data) = self.search.outstanding() else {
            return false;
        };
        let lost_bytes = self.board.lost_bytes_in(data);
        if lost_bytes > 0 {
            self.search.on_lost();
        }
        lost_bytes > 0 && lost_bytes == self.board.lost_bytes() && lost_bytes >= lost.bytes
    }

    /// The retransmission timer has expired. RFC 8899, section 4.3, of black holes: when
    /// that happens again and again to what is long, it may be too long.
    pub(super) fn suspect_black_hole(&mut self, now: Time) {
        self.search.on_lost();
        if self.settings.variants.trusts_path {
            return;
        }
        let more = self.retries.checked_sub(BLACK_HOLE_TIMEOUTS);
        if more.is_none_or(|more| !more.is_multiple_of(BLACK_HOLE_MORE)) {
            return;
        }
        let lost_bytes = self.board.first_bytes();
        if let Some(mtu) = self.size.lower_than(lost_bytes) {
            self.search.on_black_hole(self.size.mtu_of(lost_bytes));
            self.set_path_mtu(mtu);
            self.timers.set(Timer::Path, now + PROBE_NS);
        }
    }

    /// What other connections have learnt of the path, if anything.
    pub(crate) fn expect_path(&mut self, mtu: Option<u16>) {
        let known = self.size.path_mtu();
        self.size.set_path_mtu(mtu.map_or(known, |mtu| mtu.min(known)));
    }

    /// What the path takes.
    pub(crate) fn path_mtu(&self) -> u16 {
        self.size.path_mtu()
    }

    /// A router has said what the path takes, which may be more again later: RFC 1191, section 6.3.
    pub(super) fn search_later(&mut self, now: Time) {
        if self.size.path_mtu() < self.size.mtu_max() {
            self.search.restart(self.size.mtu_max());
            self.timers.set(Timer::Path, now + RAISE_NS);
        }
    }

    fn set_path_mtu(&mut self, mtu: u16) {
        self.size.set_path_mtu(mtu);
        self.control.set_packet_bytes(self.size.bytes() as u16);
    }
}
