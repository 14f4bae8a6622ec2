//! What other stacks do where RFCs leave a choice, or what RFCs have replaced since: for scripts of
//! others that compare (`docs/lab.md`). Nothing of it is set in service.

use clearway_wire::Ecn;
use serde::{Deserialize, Serialize};

/// Each is off unless it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variants {
    /// The receive buffer is rounded up to whole segments, of the MSS, once that is agreed on, and
    /// the first segment after the SYN tells all of it. So is the send buffer.
    pub whole_segments: bool,
    /// The acknowledgement of a FIN that crosses one's own has that again.
    pub fin_again: bool,
    /// A reset is told as one even to who has read all up to the peer's FIN.
    pub reset_after_fin: bool,
    /// RFC 793, section 3.4: a reset anywhere in the window is valid. RFC 5961, section 3, has
    /// replaced it.
    pub reset_in_window: bool,
    /// RFC 793, section 3.9: "If the SYN is in the window it is an error, send a reset". RFC 5961,
    /// section 4, has replaced it.
    pub syn_in_window: bool,
    /// A segment without a timestamp is taken, though both ends have agreed on them. RFC 7323,
    /// section 3.2, has it dropped.
    pub missing_timestamps: bool,
    /// A SYN that has been sent again is waited for by `Settings::rto_min_ns` longer than for twice
    /// as long as the one before.
    pub syn_slop: bool,
    /// How often a SYN is sent again before it is waited for twice as long each time. RFC 6298,
    /// rule 5.5, has the first.
    pub linear_syns: u8,
    /// What leaves in TIME-WAIT says nothing of congestion, as before RFC 9768.
    pub plain_time_wait: bool,
    /// SYNs have no MSS, which is an option, too. RFC 9293, section 3.7.1, has it sent unless it is
    /// 536.
    pub no_mss: bool,
    /// What is sent the third time again of a SYN has no option but the MSS, and so on.
    pub plain_syns: bool,
    /// How often a SYN that is sent again asks for congestion notification nevertheless. RFC 3168,
    /// section 6.1.1.1, advises against it.
    pub ecn_retries: u8,
    /// What is sent again says that the window was reduced (CWR). RFC 3168, section 6.1.2, has "the
    /// first new data packet".
    pub cwr_when_resent: bool,
    /// A FIN with a SYN counts at once while both ends open, and not at all if data comes with it.
    /// RFC 9293, section 3.10.7.3, has it wait, as the data does, until the connection is open.
    pub fin_with_syn: bool,
    /// Who closes a connection with something unread sends a FIN. RFC 9293, section 3.6.1, has a
    /// reset (SHLD-3).
    pub fin_despite_unread: bool,
    /// The experimental option that drafts of RFC 7413 had is understood, and tried once with peers
    /// that do not answer the other.
    pub experimental_fast_open: bool,
    /// A listener's cookies are of the peer's address alone, and each answer to one has it again.
    pub cookie_of_peer: bool,
    /// What a listener has to say to a SYN with data waits as an acknowledgement does, and has what
    /// the app sends meanwhile with it.
    pub late_syn_ack: bool,
    /// Who connects agrees to congestion notification, though it has not asked, if the peer's SYN
    /// crosses its own and asks; and marks of what has no data count. RFC 3168, sections 6.1.1
    /// and 6.1.4, has neither.
    pub lax_ecn: bool,
    /// An error that says that the peer cannot be reached ends an attempt to connect, and an early
    /// connection. RFC 5461, section 4.1, has that of Linux; RFC 9293, section 3.9.2.2: "MUST NOT".
    pub unreachable_ends_opening: bool,
    /// Nobody minds that the IP headers of a SYN and a SYN-ACK have been changed as they may not
    /// be. RFC 9768, section 3.2.2.3, advises against sending what can be marked then.
    pub untested_ecn: bool,
    /// Accurate feedback as drafts of RFC 9768 had it: a mark of the peer's SYN counts, which
    /// section 3.2.2.2 forbids, and who answers the SYN-ACK as if it knew of no feedback gets what
    /// can be marked, which section 3.2.2.1 forbids.
    pub draft_accurate_ecn: bool,
    /// What may be marked, where both ends understand marks.
    pub capable: Capable,
    /// What is lost again and again is sent in segments as long as before: RFC 8899, section 4.3,
    /// has the path suspected, which may have become narrower.
    pub trusts_path: bool,
    /// A closed window is probed with a number that was acknowledged, and nothing. RFC 9293,
    /// section 3.8.6.1, has "at least one octet of new data". An answer puts off the next one.
    pub empty_window_probes: bool,
    /// Who gives no cookie when asked for one, or takes no data and gives no other cookie, is not
    /// asked again for 15 minutes.
    pub wary_of_fast_open: bool,
}

/// What leaves as ECN-capable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capable {
    /// New data: RFC 3168, sections 6.1.1, 6.1.4 and 6.1.5, has no mark on anything else.
    #[default]
    NewData,
    /// SYN-ACKs, too: RFC 5562.
    SynAcks,
    /// All but SYNs, where feedback is accurate (RFC 9768), as by Linux.
    IfAccurate,
    /// All: draft-ietf-tcpm-generalized-ecn.
    All,
}

impl Capable {
    /// True of what is no SYN and no new data.
    pub(crate) fn has_all(self, is_accurate: bool) -> bool {
        self == Self::All || self == Self::IfAccurate && is_accurate
    }

    /// What the IP header of a SYN says that asks for it.
    pub(crate) fn of_syn(self) -> Ecn {
        if self == Self::All { Ecn::Capable } else { Ecn::NotCapable }
    }

    /// What that of the answer says.
    pub(crate) fn of_syn_ack(self) -> Ecn {
        if self.has_syn_acks() { Ecn::Capable } else { Ecn::NotCapable }
    }

    pub(crate) fn has_syn_acks(self) -> bool {
        matches!(self, Self::SynAcks | Self::All)
    }
}
