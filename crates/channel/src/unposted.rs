//! Why a posted buffer is the app's again without a message: one list for the engine, and for apps
//! in Rust and C.

/// Declares [`Unposted`] once: name, number, text.
macro_rules! reasons {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Why a posted buffer is the app's again without a message. Stable numbers from 1 up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Unposted {
            $(#[doc = $text] $name = $number,)*
        }

        impl Unposted {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Cause and remedy, for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The name as the C header spells it after `CLEARWAY_UNPOSTED_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The reason with this number; one that is not known says as much as `Ended`.
            #[must_use]
            pub const fn of(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)*
                    _ => Self::Ended,
                }
            }
        }
    };
}

reasons! {
    Cancelled = 1, "the app has taken it back; nothing was written into it";
    Ended = 2,
        "the connection has ended; a part of a message may lie in it; connect again, and post anew";
    NoConnection = 3, "there is no such open connection; connect first";
    NoMemory = 4, "the channel has no memory of that number; add it first";
    OutOfBounds = 5, "it reaches beyond the memory; check where it starts, and its length";
    Size = 6, "no message goes into a buffer of that size; post more than 8 KiB, and up to 8 MiB";
    Overlaps = 7, "another posted buffer lies there; wait for the end of that, or post another";
    TooMany = 8,
        "64 buffers of the connection, or 16384 of the channel, are posted; wait for the end of \
         one";
}

impl core::fmt::Display for Unposted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MESSAGE_BYTES_MAX, POSTS_MAX, POSTS_PER_CONNECTION_MAX, SMALL_MESSAGE_BYTES_MAX};

    #[test]
    fn numbers_are_dense_from_1_and_texts_name_a_remedy() {
        for (index, &reason) in Unposted::ALL.iter().enumerate() {
            assert_eq!(reason as usize, index + 1);
            assert_eq!(Unposted::of(reason as u8), reason);
            assert!(reason.to_string().contains(';'), "{reason:?}");
        }
        assert_eq!([0, 255].map(Unposted::of), [Unposted::Ended; 2]);
    }

    #[test]
    fn texts_have_the_limits_that_there_are() {
        let size = format!(
            "more than {} KiB, and up to {} MiB",
            SMALL_MESSAGE_BYTES_MAX >> 10,
            MESSAGE_BYTES_MAX >> 20
        );
        assert!(Unposted::Size.text().contains(&size), "{size}");
        let many =
            format!("{POSTS_PER_CONNECTION_MAX} buffers of the connection, or {POSTS_MAX} of the");
        assert!(Unposted::TooMany.text().contains(&many), "{many}");
    }
}
