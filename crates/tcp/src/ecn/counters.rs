//! How many bytes have come in packets of each kind, and the option that tells it: RFC 9768,
//! section 3.2.3.
//!
//! It is sent as Linux does: not before one of the peer's has been seen, since that is how it is
//! known that both can have it; with all three counters if there is room, and at least with those
//! that have moved since it was sent last, counted in order 1; and no longer once it seems to be
//! what keeps acknowledgements from arriving.

use clearway_base::Time;
use clearway_wire::Ecn;
use clearway_wire::tcp::{
    Blocks, Counted, EcnCounters, EcnOrder, HEADER_LENGTH, HEADER_LENGTH_MAX, Options,
};

use crate::config::EcnOption;
use crate::saved::{Invalid, SavedCounts, ensure};

/// What 40 bytes of options are left for.
const OPTIONS_LENGTH_MAX: usize = HEADER_LENGTH_MAX - HEADER_LENGTH;
/// Section 3.2.1: what counters begin with. What has been zeroed on the way is told by it.
const FIRST: [u32; COUNTERS] = [1, 0, 1];
const COUNTERS: usize = 3;
/// Counters have 24 bits.
const SIGN: u32 = 1 << 23;
/// Section 3.2.3.3: each is told at least once while it moves by so many bytes.
const UNTOLD_BYTES_SHIFT: u32 = 22;
/// The same section: a change is told twice, so that the second one is told apart from it.
const REPETITIONS: u8 = 2;
/// The same section: how often in a round trip each counter is told at least, as with Linux.
const BEACONS: u64 = 3;
/// The same section: the option leaves room for so many blocks; and next to more than so many it
/// would have one counter.
const BLOCKS_MIN: usize = 2;
const BLOCKS_MAX: usize = 3;

/// What is known of the peer's option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Nothing,
    /// It had no counter.
    Empty,
    Counters,
    /// Section 3.2.3.2.4: something has zeroed it, so it is never read.
    Zeroed,
}

/// Bytes by what their packets' IP headers said: ECT(1), CE, ECT(0).
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    come: [u32; COUNTERS],
    /// As the peer has told.
    told: [u32; COUNTERS],
    /// How many counters the next option has to have.
    due: u8,
    /// How many segments have to have it.
    demanded: u8,
    seen: Seen,
    /// It is not sent any more: it does not arrive.
    is_lost: bool,
    /// The last one went with a report of something that had come twice.
    was_with_duplicate: bool,
    /// The only counter that the peer's last option had moved, if there was one.
    mover: Option<u8>,
    /// When it was sent last.
    sent: Time,
}

/// The counters at the beginning, which a SYN-ACK has: section 3.2.3.2.1.
pub(super) fn initial() -> EcnCounters {
    EcnCounters::new(EcnOrder::One, &FIRST)
}

/// Where a counter stands, in order 1.
const fn place(ecn: Ecn) -> Option<usize> {
    match ecn {
        Ecn::NotCapable => None,
        Ecn::CapableOne => Some(0),
        Ecn::Marked => Some(1),
        Ecn::Capable => Some(2),
    }
}

impl Counters {
    /// A packet has come, with so many bytes; `changes` if it is not as the one before.
    pub(super) fn on_arrival(&mut self, ecn: Ecn, bytes: u32, changes: bool) {
        if let Some(place) = place(ecn).filter(|_| bytes > 0) {
            let before = self.come[place];
            self.come[place] = before.wrapping_add(bytes);
            self.due = self.due.max(place as u8 + 1);
            if (before ^ self.come[place]) >> UNTOLD_BYTES_SHIFT != 0 {
                self.demanded = self.demanded.max(1);
            }
        }
        if changes || ecn == Ecn::Marked {
            self.demanded = REPETITIONS;
        }
    }

    /// The first segments of the peer: it may say that it has the option.
    pub(super) fn see(&mut self, option: Option<&EcnCounters>) {
        let Some(option) = option else { return };
        if matches!(self.seen, Seen::Counters | Seen::Zeroed) {
            return;
        }
        let is_zeroed = option.iter().any(|(ecn, value)| ecn != Ecn::Marked && value == 0);
        self.seen = match option.iter().next() {
            None => Seen::Empty,
            Some(_) if is_zeroed => Seen::Zeroed,
            Some(_) => Seen::Counters,
        };
        self.demanded = REPETITIONS;
    }

    /// `bytes` are acknowledged: how many of them were marked, if that is certain.
    pub(super) fn on_ack(&mut self, option: Option<&EcnCounters>, bytes: u64) -> Option<u64> {
        self.see(option);
        let marked = |told: &[u32; COUNTERS]| told[1];
        let before = marked(&self.told);
        let is_certain = match option {
            _ if self.seen == Seen::Zeroed => return None,
            Some(option) => self.take(option),
            None => self.extrapolate(bytes),
        };
        is_certain.then(|| marked(&self.told).wrapping_sub(before).into())
    }

    /// Takes the peer's counters. True if at most one has moved, so that nothing else can have been
    /// said by acknowledgements that were lost, and it was known before which one would.
    fn take(&mut self, option: &EcnCounters) -> bool {
        let was_known = self.mover.is_some();
        let (mut movers, mut mover, mut is_back) = (0, None, false);
        for (ecn, value) in option.iter() {
            let Some(at) = place(ecn) else { continue };
            let moved = value.wrapping_sub(FIRST[at]).wrapping_sub(self.told[at]) % (2 * SIGN);
            is_back |= moved >= SIGN;
            if moved > 0 && moved < SIGN {
                (movers, mover) = (movers + 1, Some(at as u8));
            }
            // What goes back is what was guessed wrongly: `extrapolate`.
            let signed = if moved >= SIGN { moved.wrapping_sub(2 * SIGN) } else { moved };
            self.told[at] = self.told[at].wrapping_add(signed);
        }
        let is_ambiguous = is_back || movers > 1;
        self.mover = if is_ambiguous { None } else { mover.or(self.mover) };
        was_known && !is_ambiguous
    }

    /// Without an option: what moved before has moved on. Section 3.2.3.3 has it said if that
    /// changes.
    fn extrapolate(&mut self, bytes: u64) -> bool {
        let Some(at) = self.mover.filter(|_| self.seen == Seen::Counters) else { return false };
        let told = &mut self.told[usize::from(at)];
        *told = told.wrapping_add(bytes as u32);
        true
    }

    /// The option of a segment that leaves, as far as there is room for it next to its timestamps
    /// and blocks, of which it may take the place of those from the third on.
    pub(super) fn extend(
        &self,
        options: Options,
        when: EcnOption,
        now: Time,
        rtt_ns: u64,
    ) -> Options {
        if !self.is_wanted(when, now, rtt_ns) {
            return options;
        }
        let blocks = options.sack().len();
        // With nothing new to say it takes no block's place.
        let least = if self.due == 0 { blocks } else { blocks.min(BLOCKS_MIN) };
        let values = self.values();
        for count in (least..=blocks.min(BLOCKS_MAX)).rev() {
            let sack = Blocks::of(&options.sack()[..count]);
            for counters in (self.due.max(1).into()..=COUNTERS).rev() {
                let counters = EcnCounters::new(EcnOrder::One, &values[..counters]);
                let longer = Options { extra: Counted { counters, sack }.into(), ..options };
                if longer.length() <= OPTIONS_LENGTH_MAX {
                    return longer;
                }
            }
        }
        options
    }

    fn is_wanted(&self, when: EcnOption, now: Time, rtt_ns: u64) -> bool {
        let is_known = self.seen != Seen::Nothing;
        let may_be = is_known && !self.is_lost;
        let has_beacon = || now.since(self.sent) * BEACONS >= rtt_ns;
        match when {
            EcnOption::Never => false,
            EcnOption::WhenChanged => may_be && (self.demanded > 0 || has_beacon()),
            EcnOption::Always => may_be,
            EcnOption::DespiteLoss => is_known,
        }
    }

    fn values(&self) -> [u32; COUNTERS] {
        core::array::from_fn(|at| self.come[at].wrapping_add(FIRST[at]))
    }

    /// It has left, with a report of something that came twice, or without.
    pub(super) fn on_sent(&mut self, now: Time, with_duplicate: bool) {
        self.due = 0;
        self.demanded = self.demanded.saturating_sub(1);
        self.was_with_duplicate = with_duplicate;
        self.sent = now;
    }

    /// Data has come again that was acknowledged. Section 3.2.3.2.2: if its acknowledgement had the
    /// option, and has already said that it came twice, the option may be why it does not arrive.
    pub(super) fn on_data_again(&mut self) {
        self.is_lost |= self.was_with_duplicate;
    }

    /// Nothing that was sent has arrived: the same section.
    pub(super) fn on_first_lost(&mut self) {
        self.is_lost = true;
    }

    /// What has come, and what the peer has told.
    pub(super) const fn bytes(&self) -> ([u32; COUNTERS], [u32; COUNTERS]) {
        (self.come, self.told)
    }

    pub(super) const fn save(&self) -> (u8, bool) {
        (self.seen as u8, self.is_lost)
    }

    pub(super) fn restore(saved: &SavedCounts) -> Result<Self, Invalid> {
        let ((come, told), (seen, is_lost)) = (saved.bytes, saved.option);
        ensure(seen <= Seen::Zeroed as u8, "an option of nobody's")?;
        let seen = match seen {
            0 => Seen::Nothing,
            1 => Seen::Empty,
            2 => Seen::Counters,
            _ => Seen::Zeroed,
        };
        let (due, demanded) = (COUNTERS as u8, REPETITIONS);
        Ok(Self { come, told, due, demanded, seen, is_lost, ..Self::default() })
    }
}
