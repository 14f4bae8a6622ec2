//! Accurate feedback: RFC 9768, section 3.2. Each end counts the packets that come with a mark, and
//! says three bits of the number with each segment; the option says how many bytes.

use clearway_wire::Ecn;
use clearway_wire::tcp::{Flags, Options};

use super::counters::Counters;
use super::{Acknowledged, flags_of, number, told};
use crate::saved::{Invalid, SavedCounts};

/// Section 3.2.1: counters begin with 5, so that they are never taken for what older ends say.
const FIRST: u8 = 5;
/// The largest number that three flags have room for.
const ACE_MASK: u8 = 7;
/// Section 3.2.2.5.1: "increment-triggered", of how many marks an acknowledgement tells at least;
/// and of how many a segment that acknowledges nothing.
const UNTOLD_MAX: u8 = 2;
const UNTOLD_BARE_MAX: u8 = 3;

/// An average of packets that are acknowledged at once, in 64ths, in which each time counts for a
/// 64th. More than four on average, and acknowledgements are likely to be thinned out on the way: a
/// number that has gone round is then the rule, not a burst of marks.
const PARTS: u32 = 64;
const MANY: u32 = 4 * PARTS;
/// What is marked of a packet by the bytes is at least half of it: how far bytes and packets may be
/// apart.
const PART_OF_PACKET: u64 = 2;

/// The counters of both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Accurate {
    /// Packets that have come with a mark, without [`FIRST`]: r.cep.
    come: u32,
    /// Packets of which the peer has told that they have come with one: s.cep.
    told: u32,
    /// What the IP header of the peer's SYN said, for the answers to it; and that of its SYN-ACK,
    /// which the next segment says instead of a number.
    of_syn: u8,
    of_answer: u8,
    /// Marks that have come since something was told.
    untold: u8,
    /// What came last, and whether that is the first mark after none.
    last: Ecn,
    is_first_mark: bool,
    /// Its timestamp is newer than any other.
    is_later: bool,
    /// The peer gets nothing that can be marked.
    pub(super) is_mute: bool,
    /// What comes next acknowledges this end's SYN, and has no number.
    is_answer: bool,
    /// See [`PARTS`].
    acknowledged_at_once: u32,
    /// Bytes, and the option that tells them.
    pub(super) counters: Counters,
}

impl Accurate {
    /// Of who has been asked, by a SYN whose IP header said `ecn`. Section 3.2.2.2: that a SYN was
    /// marked is told by the SYN-ACK, and not counted; but with `counts_syn`.
    pub(super) fn asked(ecn: Ecn, is_mute: bool, counts_syn: bool) -> Self {
        let come = u32::from(counts_syn && ecn == Ecn::Marked);
        Self { come, of_syn: number(told(ecn)), last: ecn, is_mute, ..Self::default() }
    }

    /// Of who has asked, and got an answer whose IP header says `ecn`.
    pub(super) fn answered(ecn: Ecn, options: &Options) -> Self {
        let mut accurate = Self {
            come: u32::from(ecn == Ecn::Marked),
            of_answer: number(told(ecn)),
            last: ecn,
            ..Self::default()
        };
        accurate.counters.see(options.counters());
        accurate
    }

    /// The peer's SYN has come again. Section 3.1.5: the newest is told, and one that does not ask
    /// ends marks.
    pub(super) fn on_asked_again(&mut self, flags: Flags, ecn: Ecn) {
        self.of_syn = number(told(ecn));
        self.is_mute |= number(flags) == 0;
    }

    pub(super) const fn answer(&self) -> Flags {
        flags_of(self.of_syn)
    }

    /// The first segment behind this end's SYN-ACK, which was sent as `sent`. Section 3.2.2.1,
    /// table 4: what has no data tells how the SYN-ACK came.
    pub(super) fn on_answered(
        &mut self,
        flags: Flags,
        is_bare: bool,
        sent: Option<Ecn>,
        may_mute: bool,
    ) {
        self.is_answer = true;
        match number(flags) {
            // Note 1: the peer does not know accurate feedback after all, or something on the way
            // clears the flags.
            0 => self.is_mute |= may_mute,
            number @ (0b010 | 0b011 | 0b100 | 0b110) if is_bare => {
                self.told = u32::from(number == 0b110);
                self.is_mute |= sent.is_some_and(|sent| !is_possible(sent, number));
            }
            _ => {}
        }
    }

    /// A SYN-ACK has come again, and is acknowledged as it was at first.
    pub(super) const fn on_answer_again(&mut self, ecn: Ecn) {
        self.of_answer = number(told(ecn));
    }

    /// A packet has come, with so many bytes, whatever is in it, that `is_later` than all others if
    /// its timestamp says so. True if it is to be answered though it has no data.
    pub(super) fn on_arrival(&mut self, ecn: Ecn, bytes: u32, is_later: bool) -> bool {
        self.is_later = is_later;
        let changes = core::mem::replace(&mut self.last, ecn) != ecn;
        let is_marked = ecn == Ecn::Marked;
        self.is_first_mark = is_marked && changes;
        if is_marked {
            self.come = self.come.wrapping_add(1);
            self.untold = self.untold.saturating_add(1);
        }
        self.counters.on_arrival(ecn, bytes, changes);
        is_marked && bytes == 0 && self.untold >= UNTOLD_BARE_MAX
    }

    /// What came last has data: section 3.2.2.5.1, "change-triggered" and "increment-triggered"
    /// acknowledgements.
    #[cold]
    pub(super) fn on_data(&self, ecn: Ecn) -> bool {
        ecn == Ecn::Marked && (self.is_first_mark || self.untold >= UNTOLD_MAX)
    }

    /// An acknowledgement has come: true if it tells of more marks. Section 3.2.2.5.2, and appendix
    /// A.2: the number may have gone round if so much is acknowledged at once.
    pub(super) fn on_ack(
        &mut self,
        flags: Flags,
        options: &Options,
        acknowledged: &Acknowledged,
    ) -> bool {
        let is_answer = core::mem::take(&mut self.is_answer);
        if acknowledged.bytes == 0 && !self.is_later {
            return false; // one that others have overtaken, for all that is known
        }
        let marked = self.counters.on_ack(options.counters(), acknowledged.bytes);
        let packets = acknowledged.packets();
        self.note_packets(packets);
        if is_answer {
            return false;
        }
        let known = FIRST.wrapping_add(self.told as u8);
        let least = u64::from(number(flags).wrapping_sub(known) & ACE_MASK);
        let more = self.likely(least, packets, marked, acknowledged);
        self.told = self.told.wrapping_add(more as u32);
        more > 0
    }

    fn note_packets(&mut self, packets: u64) {
        let now = u32::try_from(packets).unwrap_or(u32::MAX).min(u16::MAX.into()) * PARTS;
        self.acknowledged_at_once = match self.acknowledged_at_once {
            _ if packets == 0 => return,
            0 => now,
            // One part goes, and one comes.
            before => before - before.div_ceil(PARTS) + now / PARTS,
        };
    }

    /// How many more marks there are, if three bits of the number say `least`, and the option that
    /// `marked` bytes are, if it is certain. As many as there can be, unless that is unlikely.
    fn likely(
        &self,
        least: u64,
        packets: u64,
        marked: Option<u64>,
        acknowledged: &Acknowledged,
    ) -> u64 {
        let round = u64::from(ACE_MASK) + 1;
        if packets < round {
            return least;
        }
        let most = packets - (packets.wrapping_sub(least) & (round - 1));
        let packet_bytes = u64::from(acknowledged.segment_bytes);
        match marked {
            Some(0) => least,
            Some(bytes) if packets >= 2 * round => {
                let estimate = (bytes * packets).div_ceil(acknowledged.bytes.max(bytes));
                most.min(least + estimate / round * round)
            }
            Some(bytes) if bytes > least * packet_bytes => most,
            Some(bytes) if bytes < most * packet_bytes / PART_OF_PACKET => least,
            None if self.acknowledged_at_once > MANY => least,
            _ => most,
        }
    }

    /// The flags of a segment that leaves. Section 3.2.2.1: only one without data says how the
    /// SYN-ACK came.
    #[cold]
    pub(super) const fn flags(&mut self, has_data: bool) -> Flags {
        self.untold = 0;
        match core::mem::replace(&mut self.of_answer, 0) {
            of_answer if of_answer != 0 && !has_data => flags_of(of_answer),
            _ => flags_of(FIRST.wrapping_add(self.come as u8)),
        }
    }

    pub(super) const fn marks(&self) -> (u32, u32) {
        (self.come, self.told)
    }

    pub(super) fn save(&self) -> SavedCounts {
        SavedCounts {
            marks: (self.come, self.told),
            is_mute: self.is_mute,
            bytes: self.counters.bytes(),
            option: self.counters.save(),
        }
    }

    pub(super) fn restore(saved: &SavedCounts) -> Result<Self, Invalid> {
        Ok(Self {
            come: saved.marks.0,
            told: saved.marks.1,
            is_mute: saved.is_mute,
            counters: Counters::restore(saved)?,
            ..Self::default()
        })
    }
}

/// Section 3.2.2.3: whether a packet that was sent as `sent` can have come as `number` says, if
/// nothing on the way has changed what it may not. Only what understands marks gets one.
pub(super) fn is_possible(sent: Ecn, number: u8) -> bool {
    let come_as = |ecn| super::number(told(ecn)) == number;
    come_as(sent) || matches!(sent, Ecn::Capable | Ecn::CapableOne) && come_as(Ecn::Marked)
}
