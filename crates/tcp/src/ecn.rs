//! Explicit congestion notification: RFC 3168, section 6.1.

use clearway_wire::Ecn;
use clearway_wire::tcp::Flags;

/// The ECN state of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnState {
    /// Both ends understand it.
    agreed: bool,
    /// A mark has come: ECE is set until the peer says that it has reduced its window.
    echoes: bool,
    /// The window has been reduced, and the peer is to hear of it with the next new data.
    reduced: bool,
    /// No second reduction for marks on what was sent before the first.
    reduced_until: u64,
}

/// RFC 3168, 6.1.1: an "ECN-setup SYN packet" has both.
pub(crate) const SETUP: Flags = Flags::ECE.union(Flags::CWR);

/// True if `flags` of a SYN ask for ECN.
pub(crate) const fn asks(flags: Flags) -> bool {
    flags.contains(SETUP)
}

/// True if `flags` of a SYN-ACK agree to it: "an ECN-setup SYN-ACK packet" has ECE and not CWR.
pub(crate) const fn agrees(flags: Flags) -> bool {
    flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
}

impl EcnState {
    pub(crate) const fn new(agreed: bool) -> Self {
        Self { agreed, echoes: false, reduced: false, reduced_until: 0 }
    }

    #[inline]
    pub(crate) const fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// A segment with data has come. True if it is to be acknowledged at once: it is marked, or
    /// the peer has reduced its window, of which no more than this segment may be left.
    #[inline]
    pub(crate) fn on_data(&mut self, ecn: Ecn, flags: Flags) -> bool {
        if !self.agreed {
            return false;
        }
        // 6.1.3: "until it receives a CWR packet"; a mark on that very packet begins anew.
        let is_reduced = flags.contains(Flags::CWR);
        if is_reduced {
            self.echoes = false;
        }
        if ecn == Ecn::Marked {
            return !core::mem::replace(&mut self.echoes, true);
        }
        is_reduced
    }

    /// An acknowledgement of `una` has come. True if it says of a mark that is not answered yet.
    #[inline]
    pub(crate) fn on_ack(&mut self, flags: Flags, una: u64, next: u64) -> bool {
        if !self.agreed || !flags.contains(Flags::ECE) || una <= self.reduced_until {
            return false;
        }
        self.on_reduced(next);
        true
    }

    /// The window has been reduced, for whatever reason: 6.1.2.
    pub(crate) const fn on_reduced(&mut self, next: u64) {
        self.reduced = self.agreed;
        self.reduced_until = next;
    }

    /// The flags of a segment that leaves.
    #[inline]
    pub(crate) const fn flags(&mut self, has_new_data: bool) -> Flags {
        let mut flags = if self.echoes { Flags::ECE } else { Flags::NONE };
        if has_new_data && self.reduced {
            self.reduced = false;
            flags = flags.union(Flags::CWR);
        }
        flags
    }
}
