//! Why bytes were refused, declared once: the enum, its metric names and its sentences.

use core::fmt;

macro_rules! reasons {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $name:literal,)+) => {
        /// The reason why bytes are not a valid packet. Each is a counter of its own:
        /// `counters[reason.index()] += 1` with `[u64; Malformed::COUNT]`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Malformed {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl Malformed {
            /// Every reason, in the order of [`Malformed::index`].
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

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
    /// A length field says more than there are bytes, or less than the format needs.
    Length = "length",
    /// A checksum or CRC does not match the bytes.
    Checksum = "checksum",
    /// A version of the protocol that this program does not speak.
    Version = "version",
    /// A type that this program does not know.
    Type = "type",
    /// A field that has only one right value has another.
    Field = "field",
    /// An address that may not stand where it stands.
    Address = "address",
    /// A fragment of an IP packet: none are reassembled here.
    Fragment = "fragment",
    /// IPv6 extension headers that are too many, out of place, or ask to be dropped.
    ExtensionHeaders = "extension_headers",
    /// A frame of a type that this version does not know.
    FrameType = "frame_type",
    /// An acknowledgement of packet numbers below zero, or with an empty range or gap.
    AckRange = "ack_range",
    /// A second acknowledgement in one packet.
    SecondAck = "second_ack",
    /// A message that is longer than its packet.
    MessageLength = "message_length",
    /// A fragment that is empty, reaches beyond its message, or belongs to one that is too long.
    FragmentExtent = "fragment_extent",
    /// A flow id of zero where the sender had to choose one.
    FlowId = "flow_id",
    /// A cookie that is too long, or none where there has to be one.
    Cookie = "cookie",
    /// A list of protocol versions that is empty.
    Versions = "versions",
    /// A syn without a cookie that is so short that its answer could be larger.
    Unpadded = "unpadded",
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
