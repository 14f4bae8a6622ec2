//! F-RTO (RFC 5682): whether a retransmission timeout was for nothing, because what was in flight
//! was only late. The algorithm with SACK (section 3) is that without (section 2) where nothing is
//! acknowledged selectively.

/// Where the detection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Frto {
    /// It does not run.
    #[default]
    Off,
    /// Step 1: the first segment has been sent again.
    Retransmitted,
    /// Step 2: "transmit up to two new (previously unsent) segments".
    SentNew,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Wait,
    /// Step 2a: send two new segments.
    SendNew,
    /// "the timeout was spurious".
    Spurious,
    /// "revert to conventional recovery".
    Lost,
}

/// An acknowledgement as F-RTO sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// It says nothing of what is outstanding: it came with data, moves the window, or tells of
    /// what has come twice (RFC 2883), as a tail loss probe before the timeout brings about.
    pub(crate) is_silent: bool,
    /// It acknowledges more than before,
    pub(crate) advances: bool,
    /// all that was in flight at the timeout,
    pub(crate) is_all: bool,
    /// or something by an acknowledgement, selective or not, that was sent before the timeout and
    /// never again.
    pub(crate) has_original: bool,
    /// There is new data that may be sent.
    pub(crate) has_new_data: bool,
}

impl Frto {
    pub(crate) fn on_ack(&mut self, seen: &Seen) -> Verdict {
        let verdict = match *self {
            Self::Off => return Verdict::Wait,
            _ if seen.is_silent => return Verdict::Wait,
            // 2: "When the first acknowledgment after the RTO retransmission arrives at the
            // sender".
            Self::Retransmitted if !seen.advances => Verdict::Lost,
            Self::Retransmitted if seen.is_all => Verdict::Lost,
            Self::Retransmitted if seen.has_new_data => Verdict::SendNew,
            Self::Retransmitted => Verdict::Lost,
            // 3: the next one "acknowledges data that was not retransmitted".
            Self::SentNew if seen.has_original => Verdict::Spurious,
            Self::SentNew => Verdict::Lost,
        };
        *self = if verdict == Verdict::SendNew { Self::SentNew } else { Self::Off };
        verdict
    }
}
