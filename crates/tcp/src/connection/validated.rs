//! What becomes of a congestion window that is not used: RFC 7661, if it is set.

use clearway_base::Time;
use clearway_congestion::{CongestionControl, LossSample};

use super::Connection;
use crate::config::UnusedWindow;
use crate::recovery::Phase;

impl Connection {
    /// Something is lost: the window goes down, and to half of what was used if that is less (RFC
    /// 7661, section 4.4.1). `flight_bytes` were in flight.
    pub(super) fn reduce_window(&mut self, now: Time, lost_bytes: u64, flight_bytes: u64) {
        let used_bytes = self.used_bytes_if_few(now);
        self.control.on_loss(&LossSample { now, sent: now, bytes: lost_bytes });
        self.reduce_to_used(used_bytes, flight_bytes);
    }

    /// Congestion has made the window smaller, of which `used_bytes` were used, if those were few.
    pub(super) fn reduce_to_used(&mut self, used_bytes: Option<u64>, flight_bytes: u64) {
        if let Some(used_bytes) = used_bytes {
            self.control.shrink_to(used_bytes.max(flight_bytes) / 2);
        }
        self.validation.reset();
    }

    /// So many bytes are acknowledged. Returns what is used of the window, if that is little.
    #[inline]
    pub(super) fn validate_window(&mut self, now: Time, bytes: u64) -> Option<u64> {
        let is_validated = self.settings.unused_window == UnusedWindow::Validated;
        if !is_validated || self.recovery.phase() == Phase::Fast {
            return None;
        }
        self.validation.on_acknowledged(now, self.round_trip_ns(), bytes);
        self.reduce_if_unused(now);
        self.used_bytes_if_few(now)
    }

    /// RFC 7661, section 4.4.3: what was not used for five minutes is halved, down to the initial
    /// window.
    pub(super) fn reduce_if_unused(&mut self, now: Time) {
        let window_bytes = self.control.window_bytes();
        let periods = self.validation.periods_unused(now, self.round_trip_ns(), window_bytes);
        if periods > 0 {
            self.control.on_idle(periods);
        }
    }

    fn used_bytes_if_few(&mut self, now: Time) -> Option<u64> {
        let window_bytes = self.control.window_bytes();
        self.validation.used_bytes_if_few(now, self.round_trip_ns(), window_bytes)
    }

    fn round_trip_ns(&self) -> u64 {
        self.rto.smoothed_ns().unwrap_or(0)
    }
}
