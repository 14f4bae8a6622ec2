//! What is done about loss: in which phase a connection is, from the first lost segment until all
//! that was outstanding then is acknowledged.

use core::ops::Range;

use crate::frto::Frto;
use crate::needless::Needless;
use crate::prr::Prr;

/// The phases of RFC 5681 and RFC 6675.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is lost.
    #[default]
    Open,
    /// Fast recovery.
    Fast,
    /// After a retransmission timeout.
    Timeout,
}

/// The state of loss recovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// What was sent when the phase began; it is over when that is acknowledged.
    point: u64,
    pub(crate) prr: Prr,
    /// What may be in flight during fast recovery.
    pub(crate) window_bytes: u64,
    pub(crate) frto: Frto,
    /// What was sent again since the last phase began, until it is known whether in vain.
    needless: Option<Box<Needless>>,
    /// Duplicate acknowledgements of a peer without SACK (RFC 5681, RFC 6582).
    pub(crate) duplicates: u32,
    /// Segments that may be sent whatever the window is: lost ones, and new ones.
    pub(crate) free_lost: u8,
    pub(crate) free_new: u8,
}

impl Recovery {
    #[inline]
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(crate) const fn point(&self) -> u64 {
        self.point
    }

    /// Fast recovery begins. RFC 6675, section 5, step 4.3: the first lost segment is sent in any
    /// case. `begun_bytes` were in flight when what began it was sent.
    pub(crate) fn begin_fast(&mut self, point: u64, begun_bytes: u64) {
        (self.phase, self.point) = (Phase::Fast, point);
        self.prr = Prr::new(begun_bytes);
        self.needless = Some(Box::default());
        self.free_lost = 1;
    }

    /// A retransmission timeout.
    pub(crate) fn begin_timeout(&mut self, point: u64) {
        if self.phase != Phase::Timeout {
            self.needless = Some(Box::default());
        }
        (self.phase, self.point) = (Phase::Timeout, point);
        (self.free_lost, self.free_new) = (1, 0);
    }

    /// What stands in `range` is sent again, at `stamp` of the own clock.
    pub(crate) fn on_resent(&mut self, stamp: u32, range: &Range<u64>) {
        if let Some(needless) = &mut self.needless {
            needless.on_resent(stamp, range);
        }
        self.free_lost = self.free_lost.saturating_sub(1);
    }

    /// An acknowledgement that echoes this timestamp is of what was sent before.
    pub(crate) fn is_of_the_original(&self, echo: u32) -> bool {
        self.needless.as_ref().is_some_and(|needless| needless.is_of_the_original(echo))
    }

    /// All that the phase was about is acknowledged. What is still to be told is whether it came
    /// twice.
    pub(crate) fn end(&mut self) {
        let needless = self.needless.take();
        *self = Self { point: self.point, needless, ..Self::default() };
    }

    /// What stands in `range` has come twice. True if the last phase was for nothing.
    pub(crate) fn on_duplicate(&mut self, range: &Range<u64>) -> bool {
        self.needless.as_mut().is_some_and(|needless| needless.on_duplicate(range))
    }

    /// The window is smaller for another reason since, and stays so.
    pub(crate) fn confirm(&mut self) {
        self.needless = None;
    }

    /// The phase was for nothing.
    pub(crate) fn undo(&mut self) {
        *self = Self { point: self.point, ..Self::default() };
    }
}
