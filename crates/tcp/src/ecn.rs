//! Explicit congestion notification: RFC 3168, section 6.1, and Accurate ECN, RFC 9768, which is in
//! `accurate`, and its option in `counters`.
//!
//! ```text
//!                classic                            accurate
//! SYN            ECE, CWR                           AE, ECE, CWR
//! SYN-ACK        ECE                                what the SYN's IP header said
//! acknowledgement of the SYN-ACK                    what the SYN-ACK's IP header said
//! all others     ECE until CWR, CWR                 how many packets have come with a mark, by 8
//! ```

use clearway_base::Time;
use clearway_wire::Ecn;
use clearway_wire::tcp::{Counted, Extra, Flags, Options, Repr};

use crate::config::EcnOption;
use crate::saved::{Invalid, SavedEcn, ensure};
use accurate::Accurate;

mod accurate;
mod counters;

/// RFC 3168, 6.1.1: an "ECN-setup SYN packet" has both.
const CLASSIC_SETUP: Flags = Flags::ECE.union(Flags::CWR);
/// RFC 9768, section 3.1.1: a SYN that asks for accurate feedback has all three.
const ACCURATE_SETUP: Flags = CLASSIC_SETUP.union(Flags::AE);
/// All flags that are about it.
pub(crate) const ALL: Flags = ACCURATE_SETUP;
/// What a SYN asks for, as far as this end understands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    /// RFC 3168.
    Classic,
    /// RFC 9768, by a SYN whose IP header said this; but once one has come, or an answer has left,
    /// that does not say so, nothing is sent that may be marked (section 3.1.5).
    Accurate { ecn: Ecn, is_mute: bool },
}

impl Asked {
    /// What `flags` of a SYN ask for, whose IP header says `ecn`.
    pub(crate) fn by(flags: Flags, ecn: Ecn, is_accurate: bool) -> Self {
        match number(flags) {
            0 => Self::Nothing,
            bits if bits == number(CLASSIC_SETUP) => Self::Classic,
            // Section 3.1.3: what is not used yet is taken for what this version knows, "for
            // forward compatibility".
            _ if is_accurate => Self::Accurate { ecn, is_mute: false },
            _ if flags.contains(CLASSIC_SETUP) => Self::Classic,
            _ => Self::Nothing,
        }
    }

    /// The same, when the SYN has come once more, whose IP header says `ecn`, and asks for `again`.
    /// Section 3.1.5: what was agreed on first stays, and the newest is told. `None` if nobody can
    /// know what the peer takes for agreed on: it is to be reset.
    pub(crate) const fn again(self, again: Self, ecn: Ecn) -> Option<Self> {
        match (self, again) {
            (Self::Accurate { is_mute, .. }, Self::Accurate { .. }) => {
                Some(Self::Accurate { ecn, is_mute })
            }
            (Self::Accurate { .. }, Self::Nothing) => Some(Self::Accurate { ecn, is_mute: true }),
            (Self::Accurate { .. }, Self::Classic) | (Self::Classic, Self::Accurate { .. }) => None,
            (known, _) => Some(known),
        }
    }

    /// The same, to which a SYN-ACK has been sent so often again.
    pub(crate) const fn answered(self, retries: u8) -> Self {
        match self {
            Self::Accurate { ecn, .. } if retries > self.answers_again_max() => {
                Self::Accurate { ecn, is_mute: true }
            }
            asked => asked,
        }
    }

    /// What is kept of it where there is room for a bit.
    pub(crate) const fn from_bit(is_asked: bool) -> Self {
        if is_asked { Self::Classic } else { Self::Nothing }
    }

    /// The same, for whom a bit has to do.
    pub(crate) fn without_accuracy(self) -> Self {
        Self::from_bit(self != Self::Nothing)
    }

    /// The flags of the answer.
    pub(crate) const fn answer(self) -> Flags {
        match self {
            Self::Nothing => Flags::NONE,
            Self::Classic => Flags::ECE,
            Self::Accurate { ecn, .. } => told(ecn),
        }
    }

    /// How often an answer has them that is sent again: RFC 9768, section 3.2.3.2.2, once.
    pub(crate) const fn answers_again_max(self) -> u8 {
        self.is_accurate() as u8
    }

    /// True if the answer may have counters.
    pub(crate) const fn is_accurate(self) -> bool {
        matches!(self, Self::Accurate { .. })
    }

    pub(crate) const fn save(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Classic => 1,
            Self::Accurate { ecn, is_mute } => 2 + ecn as u8 + 4 * is_mute as u8,
        }
    }

    pub(crate) fn restore(saved: u8) -> Result<Self, Invalid> {
        ensure(saved < 10, "a SYN asks for what nobody knows")?;
        Ok(match saved {
            0 => Self::Nothing,
            1 => Self::Classic,
            bits => Self::Accurate { ecn: Ecn::from_bits(bits - 2), is_mute: bits >= 6 },
        })
    }
}

impl EcnOption {
    /// What a SYN-ACK has that agrees to accurate feedback, for the first time.
    pub(crate) fn initial(self) -> Extra {
        match self {
            Self::Never => Extra::default(),
            _ => Counted { counters: counters::initial(), ..Counted::default() }.into(),
        }
    }
}

/// The flags of a SYN that asks, accurately or not.
pub(crate) const fn setup(is_accurate: bool) -> Flags {
    if is_accurate { ACCURATE_SETUP } else { CLASSIC_SETUP }
}

/// Section 3.1.1, table 2, and 3.2.2.1, table 3: what an IP header said, as the flags say it.
const fn told(ecn: Ecn) -> Flags {
    match ecn {
        Ecn::NotCapable => Flags::CWR,
        Ecn::CapableOne => Flags::CWR.union(Flags::ECE),
        Ecn::Capable => Flags::AE,
        Ecn::Marked => Flags::AE.union(Flags::CWR),
    }
}

/// The number in the three flags: AE, CWR, ECE.
const fn number(flags: Flags) -> u8 {
    let bits = flags.bits();
    (bits >> 6 & 1 | bits >> 7 << 1 & 2 | bits >> 8 << 2 & 4) as u8
}

/// The flags that have a number.
const fn flags_of(number: u8) -> Flags {
    let bits = number as u16;
    Flags::from_bits((bits & 1) << 6 | (bits >> 1 & 1) << 7 | (bits >> 2 & 1) << 8)
}

/// How congestion is told.
#[derive(Clone, Debug, Default)]
enum Feedback {
    /// Not at all.
    #[default]
    None,
    Classic(Classic),
    Accurate(Box<Accurate>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Classic {
    /// A mark has come: ECE is set until the peer says that it has reduced its window.
    echoes: bool,
    /// The window has been reduced, and the peer is to hear of it with the next new data.
    reduced: bool,
}

/// The ECN state of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct EcnState {
    feedback: Feedback,
    /// No second reduction for marks on what was sent before the first.
    reduced_until: u64,
}

/// What an acknowledgement says that is not of ECN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) una: u64,
    pub(crate) next: u64,
    /// What it says has arrived.
    pub(crate) bytes: u64,
    pub(crate) segment_bytes: u32,
}

impl Acknowledged {
    /// How many packets that is, about.
    fn packets(&self) -> u64 {
        self.bytes.div_ceil(self.segment_bytes.max(1).into())
    }
}

impl EcnState {
    const fn of(feedback: Feedback) -> Self {
        Self { feedback, reduced_until: 0 }
    }

    /// The state of who has been asked; a mark of the SYN counts with `counts_syn`.
    pub(crate) fn asked(asked: Asked, counts_syn: bool) -> Self {
        Self::of(match asked {
            Asked::Nothing => Feedback::None,
            Asked::Classic => Feedback::Classic(Classic::default()),
            Asked::Accurate { ecn, is_mute } => {
                Feedback::Accurate(Box::new(Accurate::asked(ecn, is_mute, counts_syn)))
            }
        })
    }

    /// The state of who has asked, by a SYN that was `sent` so if that is tested, and got the
    /// SYN-ACK `repr`, whose IP header says `ecn`.
    pub(crate) fn answered(repr: &Repr, ecn: Ecn, is_accurate: bool, sent: Option<Ecn>) -> Self {
        Self::of(match number(repr.flags) {
            // RFC 9768, table 2; and section 3.1.3: what is not used yet counts as if it said that
            // the SYN has come as it was sent.
            number @ 0b010..=0b110 if is_accurate => {
                let mut accurate = Box::new(Accurate::answered(ecn, &repr.options));
                accurate.is_mute = number != 0b101
                    && sent.is_some_and(|sent| !accurate::is_possible(sent, number));
                Feedback::Accurate(accurate)
            }
            // RFC 3168, 6.1.1: "an ECN-setup SYN-ACK packet" has ECE and not CWR.
            0b001 | 0b101 => Feedback::Classic(Classic::default()),
            _ => Feedback::None,
        })
    }

    #[inline]
    pub(crate) const fn is_agreed(&self) -> bool {
        !matches!(self.feedback, Feedback::None)
    }

    #[inline]
    pub(crate) const fn is_accurate(&self) -> bool {
        matches!(self.feedback, Feedback::Accurate(_))
    }

    const fn accurate(&self) -> Option<&Accurate> {
        match &self.feedback {
            Feedback::Accurate(accurate) => Some(accurate),
            _ => None,
        }
    }

    const fn accurate_mut(&mut self) -> Option<&mut Accurate> {
        match &mut self.feedback {
            Feedback::Accurate(accurate) => Some(accurate),
            _ => None,
        }
    }

    /// Packets that have come with a mark, and those of which the peer has told that they have.
    pub(crate) fn marks(&self) -> (u32, u32) {
        self.accurate().map_or((0, 0), Accurate::marks)
    }

    /// Bytes that have come in packets with ECT(1), CE and ECT(0), and as the peer has told.
    pub(crate) fn bytes(&self) -> ([u32; 3], [u32; 3]) {
        self.accurate().map(|accurate| accurate.counters.bytes()).unwrap_or_default()
    }

    /// True if what leaves may be marked.
    #[inline]
    pub(crate) const fn is_capable(&self) -> bool {
        match &self.feedback {
            Feedback::None => false,
            Feedback::Classic(_) => true,
            Feedback::Accurate(accurate) => !accurate.is_mute,
        }
    }

    /// The flags of a SYN-ACK.
    pub(crate) const fn answer(&self) -> Flags {
        match &self.feedback {
            Feedback::None => Flags::NONE,
            Feedback::Classic(_) => Flags::ECE,
            Feedback::Accurate(accurate) => accurate.answer(),
        }
    }

    /// The peer's SYN has come again.
    pub(crate) fn on_asked_again(&mut self, flags: Flags, ecn: Ecn) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_asked_again(flags, ecn);
        }
    }

    /// The peer has acknowledged this end's SYN-ACK, which was `sent` so if that is tested, with
    /// `repr`, which has nothing else to say if it `is_bare`. One without a flag ends marks, if it
    /// `may_mute`.
    pub(crate) fn on_answered(
        &mut self,
        repr: &Repr,
        is_bare: bool,
        sent: Option<Ecn>,
        may_mute: bool,
    ) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_answered(repr.flags, is_bare, sent, may_mute);
            accurate.counters.see(repr.options.counters());
        }
    }

    /// A SYN-ACK has come again, and is acknowledged as it was at first.
    pub(crate) const fn on_answer_again(&mut self, ecn: Ecn) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_answer_again(ecn);
        }
    }

    /// A packet has come, with so many bytes, that `is_later` than all others if its timestamp says
    /// so. True if it is to be answered though it has no data.
    pub(crate) fn on_arrival(&mut self, ecn: Ecn, bytes: u32, is_later: bool) -> bool {
        self.accurate_mut().is_some_and(|accurate| accurate.on_arrival(ecn, bytes, is_later))
    }

    /// Data has come again that was acknowledged.
    pub(crate) fn on_data_again(&mut self) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.counters.on_data_again();
        }
    }

    /// Nothing that this end has sent was ever acknowledged in time.
    pub(crate) fn on_first_lost(&mut self) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.counters.on_first_lost();
        }
    }

    /// One without data has come. Its mark counts with `Variants::lax_ecn` only (6.1.4). Its CWR
    /// does always: 6.1.3 asks for no data, and there are peers that reduce the window and have
    /// none to send.
    pub(crate) fn on_bare(&mut self, ecn: Ecn, flags: Flags, is_lax: bool) {
        if let Feedback::Classic(classic) = &mut self.feedback {
            classic.on_data(if is_lax { ecn } else { Ecn::NotCapable }, flags);
        }
    }

    /// A segment with data has come. True if it is to be acknowledged at once: it is marked, or
    /// the peer has reduced its window, of which no more than this segment may be left.
    #[inline]
    pub(crate) fn on_data(&mut self, ecn: Ecn, flags: Flags) -> bool {
        match &mut self.feedback {
            Feedback::None => false,
            Feedback::Classic(classic) => classic.on_data(ecn, flags),
            Feedback::Accurate(accurate) => accurate.on_data(ecn),
        }
    }

    /// An acknowledgement has come. True if it says of a mark that is not answered yet.
    pub(crate) fn on_ack(&mut self, repr: &Repr, acknowledged: &Acknowledged) -> bool {
        let is_marked = match &mut self.feedback {
            Feedback::None => return false,
            Feedback::Classic(_) => repr.flags.contains(Flags::ECE),
            Feedback::Accurate(accurate) => {
                accurate.on_ack(repr.flags, &repr.options, acknowledged)
            }
        };
        if !is_marked || acknowledged.una <= self.reduced_until {
            return false;
        }
        self.on_reduced(acknowledged.next);
        true
    }

    /// An acknowledgement has come of an end that has nothing outstanding: what it tells of was
    /// none of its data.
    pub(crate) fn on_idle_ack(&mut self, repr: &Repr, acknowledged: &Acknowledged) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_ack(repr.flags, &repr.options, acknowledged);
        }
    }

    /// The window has been reduced, for whatever reason: 6.1.2.
    pub(crate) const fn on_reduced(&mut self, next: u64) {
        if let Feedback::Classic(classic) = &mut self.feedback {
            classic.reduced = true;
        }
        self.reduced_until = next;
    }

    /// The flags of a segment that leaves.
    #[inline]
    pub(crate) const fn flags(&mut self, has_data: bool) -> Flags {
        match &mut self.feedback {
            Feedback::None => Flags::NONE,
            Feedback::Classic(Classic { echoes: true, .. }) => Flags::ECE,
            Feedback::Classic(_) => Flags::NONE,
            Feedback::Accurate(accurate) => accurate.flags(has_data),
        }
    }

    /// The flags that new data has besides.
    #[inline]
    pub(crate) const fn flags_of_new(&mut self) -> Flags {
        match &mut self.feedback {
            Feedback::Classic(classic) if classic.reduced => {
                classic.reduced = false;
                Flags::CWR
            }
            _ => Flags::NONE,
        }
    }

    /// The options of a segment, with what is said of bytes if that is to be sent now.
    pub(crate) fn counted(
        &self,
        options: Options,
        when: EcnOption,
        now: Time,
        rtt_ns: u64,
    ) -> Options {
        match self.accurate() {
            Some(accurate) => accurate.counters.extend(options, when, now, rtt_ns),
            None => options,
        }
    }

    /// That has left, and has reported something that has come twice or not.
    pub(crate) fn on_counted(&mut self, now: Time, with_duplicate: bool) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.counters.on_sent(now, with_duplicate);
        }
    }

    pub(crate) fn save(&self) -> SavedEcn {
        match &self.feedback {
            Feedback::None => SavedEcn::None,
            Feedback::Classic(_) => SavedEcn::Classic,
            Feedback::Accurate(accurate) => SavedEcn::Accurate(accurate.save()),
        }
    }

    pub(crate) fn restore(saved: &SavedEcn) -> Result<Self, Invalid> {
        Ok(Self::of(match saved {
            SavedEcn::None => Feedback::None,
            SavedEcn::Classic => Feedback::Classic(Classic::default()),
            SavedEcn::Accurate(saved) => Feedback::Accurate(Box::new(Accurate::restore(saved)?)),
        }))
    }
}

impl Classic {
    fn on_data(&mut self, ecn: Ecn, flags: Flags) -> bool {
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
}
