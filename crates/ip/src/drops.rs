//! Why frames were dropped, declared once: the enum, its names and its counters.

use clearway_base::{Counter, Kind, Unit};
use clearway_wire::Malformed;

macro_rules! reasons {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident = $name:literal, $rises:literal, $remedy:literal;
    )+) => {
        /// The reason why a frame was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum DropReason {
            /// Its bytes are not what they should be.
            Malformed(Malformed),
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of [`DropReason::index`], but those of [`Malformed`].
            const OWN: &[Self] = &[$(Self::$variant,)+];

            /// What their counters are.
            const OWN_COUNTERS: &[Counter] = &[$(Counter {
                name: $name,
                kind: Kind::Total,
                unit: Unit::Frames,
                documented: concat!($($doc),+),
                rises: $rises,
                remedy: $remedy,
            },)+];

            /// The name of this reason in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    Self::Malformed(reason) => reason.name(),
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

reasons! {
    /// An ARP or NDP question about another host.
    OtherAddress = "other_address",
        "with each question about another host on the link",
        "nothing: this is normal on a shared link";
    /// A message of ICMPv6 to a group that is for one host only.
    Group = "group",
        "when a sender is faulty, or probes",
        "see who sends them: clearway vif capture";
    /// The packet comes from an address that no other host can have: a group, loopback, our own.
    SourceAddress = "source_address",
        "when somebody forges a sender's address, or the link loops frames back",
        "look for a loop in the switch; else see who sends them: clearway vif capture";
    /// ARP or NDP of another host that says that it has an address of ours.
    Conflict = "address_conflict",
        "when another machine has an address of this host",
        "find it by the Ethernet address in the log, and give one of the two another address";
    /// Neighbour discovery that came through a router.
    HopLimit = "hop_limit",
        "when neighbour discovery comes from beyond the link: it is forged",
        "see who sends it: clearway vif capture";
    /// An ARP or NDP answer, echo reply or error that nothing of ours called for.
    Unsolicited = "unsolicited",
        "with answers that come late or twice, and with forged ones",
        "nothing, unless it rises all the time: then somebody tries to redirect traffic";
    /// More than is answered per second, or looked at.
    RateLimit = "rate_limit",
        "when more pings and questions come than are answered per second, or more ICMP errors than \
         are looked at on addresses that the kernel shares",
        "see who floods this host: clearway vif capture";
    /// The answer does not fit among those that wait to be sent.
    OutboxFull = "outbox_full",
        "when a burst of pings or questions comes",
        "nothing, unless it rises all the time: then see who floods this host";
    /// Fragments that overlap, or contradict each other otherwise: their packet is given up.
    FragmentOverlap = "fragment_overlap",
        "when a sender is faulty, gives numbers again too soon, or attacks",
        "see who sends them: clearway vif capture";
    /// Fragments that waited for the rest of their packet for a minute.
    FragmentTimeout = "fragment_timeout",
        "when another fragment of the packet was lost, or came to another engine",
        "find the loss; better, lower the sender's MTU to what the way takes";
    /// Fragments that waited for the rest of their packet when others needed the room.
    FragmentPushedOut = "fragment_pushed_out",
        "when more packets come in fragments than are put together at a time",
        "see who sends them: clearway vif capture";
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = Malformed::COUNT + Self::OWN.len();

    /// Every reason, in the order of [`DropReason::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let malformed = Malformed::ALL.iter().map(|reason| Self::Malformed(*reason));
        malformed.chain(Self::OWN.iter().copied())
    }

    /// What the counters of all reasons are, in the order of [`DropReason::index`].
    pub fn counters() -> impl Iterator<Item = Counter> {
        Malformed::COUNTERS.iter().chain(Self::OWN_COUNTERS).copied()
    }

    /// The position of this reason among all.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Malformed(reason) => reason.index(),
            _ => {
                let own = Self::OWN.iter().position(|reason| *reason == self);
                Malformed::COUNT + own.expect("every other reason is listed in OWN")
            }
        }
    }
}

impl From<Malformed> for DropReason {
    fn from(reason: Malformed) -> Self {
        Self::Malformed(reason)
    }
}

/// How many frames were dropped for each reason.
#[derive(Clone, Debug)]
pub struct Drops {
    counts: [u64; DropReason::COUNT],
}

impl Default for Drops {
    fn default() -> Self {
        Self { counts: [0; DropReason::COUNT] }
    }
}

impl Drops {
    /// Counts one frame. Also for the layers above, whose packets are malformed for the same
    /// reasons.
    pub fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts so many.
    pub(super) fn add(&mut self, reason: DropReason, frames: usize) {
        self.counts[reason.index()] += frames as u64;
    }

    /// How many frames were dropped for `reason`.
    #[must_use]
    pub fn of(&self, reason: DropReason) -> u64 {
        self.counts[reason.index()]
    }

    /// How many frames were dropped.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Goes on counting from saved values. Names that are not known are passed over: the reasons
    /// may change from release to release.
    pub(super) fn restore(saved: &[(String, u64)]) -> Self {
        let mut drops = Self::default();
        for (reason, count) in DropReason::all().zip(&mut drops.counts) {
            let value = saved.iter().find(|(name, _)| name == reason.name());
            *count = value.map_or(0, |(_, value)| (*value).min(u64::MAX / 2));
        }
        drops
    }

    /// Names and counts, in the order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DropReason::all().map(DropReason::name).zip(self.counts.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::{DropReason, Drops};

    #[test]
    fn indexes_and_names_are_unique() {
        let all: Vec<_> = DropReason::all().collect();
        assert_eq!(all.len(), DropReason::COUNT);
        let mut drops = Drops::default();
        for (index, reason) in all.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(all[..index].iter().all(|other| other.name() != reason.name()));
            drops.count(*reason);
            assert_eq!(drops.of(*reason), 1);
        }
        assert_eq!(drops.total(), all.len() as u64);
        assert!(drops.iter().any(|entry| entry == ("other_address", 1)));
    }
}
