//! The raw side of a packet format: bytes of which only the length is known to be right.

/// Declares `View`, with what it is as its documentation.
macro_rules! view {
    ($(#[$doc:meta])* at_least $least:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct View<'a> {
            bytes: &'a [u8],
        }

        impl<'a> View<'a> {
            /// A view of `bytes`, if they are long enough for its fixed part.
            #[inline]
            pub fn new(bytes: &'a [u8]) -> Result<Self, crate::Malformed> {
                if bytes.len() < $least {
                    return Err(crate::Malformed::Truncated);
                }
                Ok(Self { bytes })
            }
        }
    };
}

pub(crate) use view;
