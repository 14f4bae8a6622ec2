//! Explicit congestion notification: RFC 3168, section 6.1, and Accurate ECN, RFC 9768, as far as
//! the header goes: its option, which counts bytes, is neither sent nor read.
//!
//! ```text
//!                classic                            accurate
//! SYN            ECE, CWR                           AE, ECE, CWR
//! SYN-ACK        ECE                                what the SYN's IP header said
//! acknowledgement of the SYN-ACK                    what the SYN-ACK's IP header said
//! all others     ECE until CWR, CWR                 how many packets have come with a mark, by 8
//! ```

use clearway_wire::Ecn;
use clearway_wire::tcp::Flags;

use crate::saved::{Invalid, SavedEcn, ensure};

/// RFC 3168, 6.1.1: an "ECN-setup SYN packet" has both.
const CLASSIC_SETUP: Flags = Flags::ECE.union(Flags::CWR);
/// RFC 9768, section 3.1.1: a SYN that asks for accurate feedback has all three.
const ACCURATE_SETUP: Flags = CLASSIC_SETUP.union(Flags::AE);
/// All flags that are about it.
pub(crate) const ALL: Flags = ACCURATE_SETUP;
/// Section 3.2.2: counters begin with 5, so that they are never taken for what older ends say.
const FIRST: u8 = 5;
/// The largest number that three flags have room for.
const ACE_MASK: u8 = 7;
/// Section 3.2.2.5.1: "increment-triggered", of how many marks an acknowledgement tells at least.
const UNTOLD_MAX: u8 = 2;

/// What a SYN asks for, as far as this end understands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asked {
    #[default]
    Nothing,
    /// RFC 3168.
    Classic,
    /// RFC 9768, by a SYN whose IP header said this.
    Accurate(Ecn),
}

impl Asked {
    /// What `flags` of a SYN ask for, whose IP header says `ecn`.
    pub(crate) fn by(flags: Flags, ecn: Ecn, is_accurate: bool) -> Self {
        match number(flags) {
            0 => Self::Nothing,
            bits if bits == number(CLASSIC_SETUP) => Self::Classic,
            // Section 3.1.3: what is not used yet is taken for what this version knows, "for
            // forward compatibility".
            _ if is_accurate => Self::Accurate(ecn),
            _ if flags.contains(CLASSIC_SETUP) => Self::Classic,
            _ => Self::Nothing,
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
            Self::Accurate(ecn) => told(ecn),
        }
    }

    /// How often an answer has them that is sent again: RFC 9768, section 3.1.4.2, once.
    pub(crate) const fn answers_again_max(self) -> u8 {
        matches!(self, Self::Accurate(_)) as u8
    }

    pub(crate) const fn save(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Classic => 1,
            Self::Accurate(Ecn::NotCapable) => 2,
            Self::Accurate(Ecn::Capable) => 3,
            Self::Accurate(Ecn::Marked) => 4,
        }
    }

    pub(crate) fn restore(saved: u8) -> Result<Self, Invalid> {
        ensure(saved <= 4, "a SYN asks for what nobody knows")?;
        Ok(match saved {
            0 => Self::Nothing,
            1 => Self::Classic,
            2 => Self::Accurate(Ecn::NotCapable),
            3 => Self::Accurate(Ecn::Capable),
            _ => Self::Accurate(Ecn::Marked),
        })
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
        // ECT(1) has flags of its own, which are for who can tell them apart.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Feedback {
    /// Not at all.
    #[default]
    None,
    Classic(Classic),
    Accurate(Counts),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Classic {
    /// A mark has come: ECE is set until the peer says that it has reduced its window.
    echoes: bool,
    /// The window has been reduced, and the peer is to hear of it with the next new data.
    reduced: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Packets that have come with a mark, without [`FIRST`]: r.cep.
    come: u8,
    /// Packets of which the peer has told that they have come with one: s.cep.
    told: u16,
    /// What the IP header of the peer's SYN said, for the answers to it; and that of its SYN-ACK,
    /// which the next segment says instead of a number.
    of_syn: u8,
    of_answer: u8,
    /// Marks that have come since something was told.
    untold: u8,
    /// The data that came last had a mark.
    was_marked: bool,
    /// The peer gets nothing that can be marked.
    is_mute: bool,
}

/// The ECN state of a connection.
#[derive(Clone, Copy, Debug, Default)]
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

impl EcnState {
    const fn of(feedback: Feedback) -> Self {
        Self { feedback, reduced_until: 0 }
    }

    /// The state of who has been asked.
    pub(crate) fn asked(asked: Asked) -> Self {
        Self::of(match asked {
            Asked::Nothing => Feedback::None,
            Asked::Classic => Feedback::Classic(Classic::default()),
            Asked::Accurate(ecn) => Feedback::Accurate(Counts {
                come: u8::from(ecn == Ecn::Marked),
                of_syn: number(told(ecn)),
                ..Counts::default()
            }),
        })
    }

    /// The state of who has asked, and got a SYN-ACK with `flags`, whose IP header says `ecn`.
    pub(crate) fn answered(flags: Flags, ecn: Ecn, is_accurate: bool) -> Self {
        let accurate = Counts {
            come: u8::from(ecn == Ecn::Marked),
            of_answer: number(told(ecn)),
            ..Counts::default()
        };
        Self::of(match number(flags) {
            // RFC 3168, 6.1.1: "an ECN-setup SYN-ACK packet" has ECE and not CWR.
            0b001 | 0b101 => Feedback::Classic(Classic::default()),
            // RFC 9768, table 2.
            0b010 | 0b011 | 0b100 | 0b110 if is_accurate => Feedback::Accurate(accurate),
            _ => Feedback::None,
        })
    }

    #[inline]
    pub(crate) const fn is_agreed(&self) -> bool {
        !matches!(self.feedback, Feedback::None)
    }

    pub(crate) const fn is_accurate(&self) -> bool {
        matches!(self.feedback, Feedback::Accurate(_))
    }

    /// Packets of which the peer has told that they have come with a mark.
    pub(crate) const fn marks_told(&self) -> u16 {
        match self.feedback {
            Feedback::Accurate(counts) => counts.told,
            _ => 0,
        }
    }

    /// True if what leaves may be marked.
    #[inline]
    pub(crate) const fn is_capable(&self) -> bool {
        match &self.feedback {
            Feedback::None => false,
            Feedback::Classic(_) => true,
            Feedback::Accurate(counts) => !counts.is_mute,
        }
    }

    /// The flags of a SYN-ACK.
    pub(crate) const fn answer(&self) -> Flags {
        match &self.feedback {
            Feedback::None => Flags::NONE,
            Feedback::Classic(_) => Flags::ECE,
            Feedback::Accurate(counts) => flags_of(counts.of_syn),
        }
    }

    /// The peer has acknowledged this end's SYN-ACK with `flags`: RFC 9768, section 3.2.2.1.
    pub(crate) const fn on_answered(&mut self, flags: Flags) {
        let Feedback::Accurate(counts) = &mut self.feedback else { return };
        match number(flags) {
            // 3.2.2.4: something on the way clears them.
            0 => counts.is_mute = true,
            0b110 => counts.told = 1,
            _ => {}
        }
    }

    /// A SYN-ACK has come again, and is acknowledged as it was at first.
    pub(crate) const fn on_answer_again(&mut self, ecn: Ecn) {
        if let Feedback::Accurate(counts) = &mut self.feedback {
            counts.of_answer = number(told(ecn));
        }
    }

    /// A packet has come with a mark, whatever is in it.
    #[cold]
    pub(crate) const fn on_mark(&mut self) {
        if let Feedback::Accurate(counts) = &mut self.feedback {
            counts.come = counts.come.wrapping_add(1);
            counts.untold = counts.untold.saturating_add(1);
        }
    }

    /// One without data has come: `Variants::lax_ecn`.
    pub(crate) fn on_bare(&mut self, ecn: Ecn, flags: Flags) {
        if let Feedback::Classic(classic) = &mut self.feedback {
            classic.on_data(ecn, flags);
        }
    }

    /// A segment with data has come. True if it is to be acknowledged at once: it is marked, or
    /// the peer has reduced its window, of which no more than this segment may be left.
    #[inline]
    pub(crate) fn on_data(&mut self, ecn: Ecn, flags: Flags) -> bool {
        match &mut self.feedback {
            Feedback::None => false,
            Feedback::Classic(classic) => classic.on_data(ecn, flags),
            Feedback::Accurate(counts) => counts.on_data(ecn),
        }
    }

    /// An acknowledgement has come. True if it says of a mark that is not answered yet.
    #[inline]
    pub(crate) fn on_ack(&mut self, flags: Flags, acknowledged: &Acknowledged) -> bool {
        let is_marked = match &mut self.feedback {
            Feedback::None => return false,
            Feedback::Classic(_) => flags.contains(Flags::ECE),
            Feedback::Accurate(counts) => counts.on_ack(flags, acknowledged),
        };
        if !is_marked || acknowledged.una <= self.reduced_until {
            return false;
        }
        self.on_reduced(acknowledged.next);
        true
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
    pub(crate) const fn flags(&mut self) -> Flags {
        match &mut self.feedback {
            Feedback::None => Flags::NONE,
            Feedback::Classic(Classic { echoes: true, .. }) => Flags::ECE,
            Feedback::Classic(_) => Flags::NONE,
            Feedback::Accurate(counts) => counts.flags(),
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

    pub(crate) const fn save(&self) -> SavedEcn {
        match self.feedback {
            Feedback::None => SavedEcn { feedback: 0, come: 0, told: 0, is_mute: false },
            Feedback::Classic(_) => SavedEcn { feedback: 1, come: 0, told: 0, is_mute: false },
            Feedback::Accurate(Counts { come, told, is_mute, .. }) => {
                SavedEcn { feedback: 2, come, told, is_mute }
            }
        }
    }

    pub(crate) fn restore(saved: SavedEcn) -> Result<Self, Invalid> {
        ensure(saved.feedback <= 2, "congestion is told in a way that nobody knows")?;
        let SavedEcn { come, told, is_mute, .. } = saved;
        Ok(Self::of(match saved.feedback {
            0 => Feedback::None,
            1 => Feedback::Classic(Classic::default()),
            _ => Feedback::Accurate(Counts { come, told, is_mute, ..Counts::default() }),
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

impl Counts {
    /// RFC 9768, section 3.2.2.5: "change-triggered" and "increment-triggered" acknowledgements.
    fn on_data(&mut self, ecn: Ecn) -> bool {
        let is_marked = ecn == Ecn::Marked;
        let is_first = is_marked && !core::mem::replace(&mut self.was_marked, is_marked);
        self.was_marked = is_marked;
        is_first || is_marked && self.untold >= UNTOLD_MAX
    }

    /// Section 3.2.2.5.2 and appendix A.2: how many more marks there are. The number may have gone
    /// round, if so much is acknowledged at once; then it is as many as there can be.
    fn on_ack(&mut self, flags: Flags, acknowledged: &Acknowledged) -> bool {
        if acknowledged.bytes == 0 {
            return false; // old, or nobody can know
        }
        let packets = acknowledged.bytes.div_ceil(acknowledged.segment_bytes.max(1).into());
        let known = FIRST.wrapping_add(self.told as u8);
        let more = u64::from(number(flags).wrapping_sub(known) & ACE_MASK);
        let mask = u64::from(ACE_MASK);
        let more = match packets <= mask {
            true => more,
            false => packets - (packets.wrapping_sub(more) & mask),
        };
        self.told = self.told.wrapping_add(more as u16);
        more > 0
    }

    const fn flags(&mut self) -> Flags {
        self.untold = 0;
        match core::mem::replace(&mut self.of_answer, 0) {
            0 => flags_of(FIRST.wrapping_add(self.come)),
            of_answer => flags_of(of_answer),
        }
    }
}
