//! Why bytes were refused, declared once: the enum, its counters and its sentences.

use core::fmt;

use clearway_base::{Counter, Kind, Unit};

macro_rules! reasons {
    ($(
        $(#[doc = $sentence:literal])+
        $variant:ident = $name:literal, $rises:literal, $remedy:literal;
    )+) => {
        /// The reason why bytes are not a valid packet. Each is a counter of its own:
        /// `counters[reason.index()] += 1` with `[u64; Malformed::COUNT]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Malformed {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl Malformed {
            /// Every reason, in the order of [`Malformed::index`].
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// What their counters are.
            pub const COUNTERS: &[Counter] = &[$(Counter {
                name: $name,
                kind: Kind::Total,
                unit: Unit::Frames,
                documented: concat!($($sentence),+),
                rises: $rises,
                remedy: $remedy,
            },)+];

            /// The name of this reason in metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => concat!($($sentence),+),)+ }
            }
        }
    };
}

reasons! {
    /// The bytes end before the fixed part of the format does.
    Truncated = "truncated",
        "when a sender or a middlebox cuts packets",
        "see who sends them: clearway vif capture";
    /// A length field says more than there are bytes, or less than the format needs.
    Length = "length",
        "when a sender is faulty, or a middlebox changes packets",
        "see who sends them: clearway vif capture";
    /// A checksum or CRC does not match the bytes.
    Checksum = "checksum",
        "when a packet was changed on its way",
        "look for faulty memory, a faulty NIC or switch: its own error counters (ethtool -S)";
    /// A version of the protocol that this program does not speak.
    Version = "version",
        "with packets of another version of IP or of Clearway than they say",
        "see who sends them: clearway vif capture";
    /// A type that this program does not know.
    Type = "type",
        "with ARP, ICMP or Clearway packets of kinds that are not used here",
        "nothing: they are of no use here";
    /// A field that has only one right value has another.
    Field = "field",
        "when a sender is faulty, or probes",
        "see who sends them: clearway vif capture";
    /// An address that may not stand where it stands.
    Address = "address",
        "with packets from or to a group, broadcast or no address where a host's has to be",
        "see who sends them: clearway vif capture";
    /// A fragment of an IP packet where only whole packets are taken.
    Fragment = "fragment",
        "with fragments of messages, which no daemon sends, and such as cannot be put together",
        "see who sends them: clearway vif capture";
    /// IPv6 extension headers that are too many, out of place, or ask to be dropped.
    ExtensionHeaders = "extension_headers",
        "with IPv6 packets that only a probe or an exotic network sends",
        "nothing: they are of no use here";
    /// A frame of a type that this version does not know.
    FrameType = "frame_type",
        "when a peer's daemon is newer and uses what this one does not know",
        "upgrade this daemon";
    /// An acknowledgement of packet numbers below zero, or with an empty range or gap.
    AckRange = "ack_range",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A second acknowledgement in one packet.
    SecondAck = "second_ack",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A message that is longer than its packet.
    MessageLength = "message_length",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A fragment that is empty, reaches beyond its message, or belongs to one that is too long.
    FragmentExtent = "fragment_extent",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A flow id of zero where the sender had to choose one.
    FlowId = "flow_id",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A cookie that is too long, or none where there has to be one.
    Cookie = "cookie",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A list of protocol versions that is empty.
    Versions = "versions",
        "when a peer's daemon is faulty, or packets are forged",
        "see the log of both daemons; please report it";
    /// A syn without a cookie that is so short that its answer could be larger.
    Unpadded = "unpadded",
        "when somebody wants to use this host to flood others",
        "see who sends them: clearway vif capture";
}

impl Malformed {
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The position of this reason in [`Malformed::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence().trim())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn indexes_and_names_are_unique() {
        for (index, reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(Malformed::ALL[..index].iter().all(|other| other.name() != reason.name()));
            assert!(reason.to_string().ends_with('.'));
        }
    }
}
