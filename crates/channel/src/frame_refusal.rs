//! Why a frame was not sent: one list for the engine, apps in Rust and C, captures and the command.

use clearway_base::{Counter, Kind, Unit};

/// Declares [`FrameRefusal`] once: name, number, word, text, what to do about it.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $word:literal, $text:literal,
        $remedy:literal;)*) => {
        /// Why a frame of a virtual interface was not sent. Stable numbers from 1 up; 0 is none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameRefusal {
            $(#[doc = $text] $(#[$doc])* $name = $number,)*
        }

        impl FrameRefusal {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// What the counters of them are, in the order of their numbers.
            pub const COUNTERS: &'static [Counter] = &[$(Counter {
                name: $word,
                kind: Kind::Total,
                unit: Unit::Frames,
                documented: concat!("Frames that were not sent: ", $text, "."),
                rises: "when the app sends such a frame",
                remedy: $remedy,
            },)*];

            /// A word for it, for counters.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// What is wrong with the frame, for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The name as the C header spells it after `CLEARWAY_REFUSED_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The reason with this number, if there is one.
            #[must_use]
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

refusals! {
    Nothing = 1, "nothing-allowed", "the interface may send nothing",
        "name what it sends when opening it (`send`), within what [[policy.vif]] allows";
    MacSource = 2, "mac-source", "Ethernet source of another",
        "send from the NIC's Ethernet address, or open the interface with own_addresses";
    Vlan = 3, "vlan", "VLAN that it may not send on",
        "send without a tag, or on the NIC's VLAN";
    Network = 4, "network", "ether type that it may not send",
        "widen the filter of what it sends, and [[policy.vif]] if that is in the way";
    Protocol = 5, "protocol", "protocol that it may not send",
        "widen the filter of what it sends, and [[policy.vif]] if that is in the way";
    Unclear = 6, "unclear", "ports that cannot be seen, or a later fragment",
        "send packets whole, without extension headers before the ports";
    Source = 7, "source", "source address of another",
        "send from an address that its filter names";
    SourcePort = 8, "source-port", "source port of another",
        "send from a port that its filter names";
    Destination = 9, "destination", "destination that it may not send to",
        "widen the filter of what it sends, and [[policy.vif]] if that is in the way";
    Other = 10, "other", "something else that its filter does not allow",
        "hold the frame against the filter: clearway vif show NUMBER";
    TooLong = 11, "too-long", "longer than the NIC takes",
        "send frames of at most the NIC's MTU and 14 bytes";
    Rate = 12, "rate", "more frames per second than the policy allows",
        "send slower, or raise rate_frames_per_s of its rule in [[policy.vif]]";
    ToKernel = 13, "to-kernel",
        "for the host's own kernel, which it does not reach, or for nobody here",
        "open the interface with an Ethernet address of its own; clearway status says whether \
         those of the NIC reach the kernel (that takes Linux 6.6 and CAP_BPF)";
}

impl FrameRefusal {
    /// The number that `FramesSent` and captures carry.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

impl core::fmt::Display for FrameRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_from_1_and_words_are_unique() {
        for (index, &refusal) in FrameRefusal::ALL.iter().enumerate() {
            assert_eq!(usize::from(refusal.as_u8()), index + 1);
            assert_eq!(FrameRefusal::from_u8(refusal.as_u8()), Some(refusal));
            let before = &FrameRefusal::ALL[..index];
            assert!(before.iter().all(|other| other.word() != refusal.word()), "{refusal:?}");
            assert!(!refusal.text().is_empty());
            assert_eq!(refusal.to_string(), refusal.text());
        }
        assert_eq!((FrameRefusal::from_u8(0), FrameRefusal::from_u8(255)), (None, None));
    }
}
