//! The error codes: one list for Rust, C, the rings and the control socket.

use serde::{Deserialize, Serialize};

/// Declares [`Code`] once: name, number, text (cause; remedy).
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why something did not work. Negative, stable numbers; each with a text that names cause
        /// and remedy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(i32)]
        pub enum Code {
            $(#[doc = $text] $(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Cause and remedy, for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The name as the C header spells it after `CLEARWAY_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The code with this number, if there is one.
            #[must_use]
            pub const fn from_i32(number: i32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    WouldBlock = -1,
        "nothing can be done right now (no message has arrived, or there is no room for more); \
         call again later, or wait with a timeout";
    TimedOut = -2,
        "the timeout of the call passed first, and nothing has ended; check that the peer runs and \
         answers, or allow more time";
    Closed = -3, "the connection was closed by the other side, or was never open; connect again";
    Reset = -4, "the connection was aborted by the other side or its app died; connect again";
    Refused = -5, "nobody listens on that port of the peer; start the server, or check the port";
    Unreachable = -6,
        "the peer's host does not answer; check its address, the wire and the route with `clearway \
         ping`, or with `ping` if it is for TCP";
    TooLarge = -7,
        "the message is larger than 8 MiB or than the buffer given; split it, or give a larger \
         buffer";
    Invalid = -8, "an argument is wrong; see the documentation of the call";
    Denied = -9,
        "the daemon's policy does not allow this; ask its administrator, or see the policy section \
         of clearway.toml";
    AddressInUse = -10,
        "another app listens on that address and port; choose another port, or stop that app";
    AddressUnavailable = -11,
        "that address is not one of this host; see `clearway status` for its addresses";
    Limit = -12,
        "a limit of the daemon or of the channel is reached; close something first, or raise it in \
         clearway.toml";
    NoDaemon = -13,
        "no daemon answers at the control socket; start one with `clearway daemon`, or set \
         CLEARWAY_SOCKET";
    DaemonGone = -14, "the daemon has gone away or ended this session; attach again";
    Mismatch = -15,
        "app library and daemon are of different versions; update the older of both";
    VersionUnknown = -16,
        "the peer's daemon speaks no version of the protocol that this one speaks; update the \
         older one";
    ProtocolError = -17,
        "the peer's daemon broke the protocol, or its app makes no calls where this one does, so \
         the connection was ended; see the daemon's log";
    Violation = -18,
        "the app wrote something forbidden into its channel, so its session was ended; see the \
         daemon's log";
    OutOfMemory = -19, "there is not enough memory; use a smaller channel, or free some";
    Unsupported = -20, "this build or this machine cannot do that; see `clearway doctor`";
    Internal = -21, "a bug in Clearway; please report it with the daemon's log";
    Lost = -22,
        "the other side's host has not answered for so long that the connection was given up; \
         check it with `clearway ping`, or with `ping` if it was of TCP, and connect again";
    CallRefused = -23,
        "the peer has not carried out what a call asked for; its reason says why";
}

impl Code {
    /// What is over when a call fails with this code.
    #[must_use]
    pub const fn ended(self) -> Ended {
        match self {
            Self::Closed | Self::Reset | Self::Lost | Self::ProtocolError => Ended::Connection,
            Self::DaemonGone | Self::Violation => Ended::Channel,
            _ => Ended::Nothing,
        }
    }

    /// The number, always negative.
    #[must_use]
    pub const fn as_i32(self) -> i32 {
        self as i32
    }
}

/// What is over after a failure: how much of a program has to begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing: try again, or do something else.
    Nothing,
    /// The connection that it is about. Others go on.
    Connection,
    /// The channel, with all its connections.
    Channel,
}

impl core::fmt::Display for Code {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Code {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_negative_dense_and_says_what_to_do() {
        for (index, &code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.as_i32(), -(index as i32) - 1);
            assert_eq!(Code::from_i32(code.as_i32()), Some(code));
            assert!(code.text().contains(';'), "{code:?} names no remedy");
            assert_eq!(code.to_string(), code.text());
        }
        assert_eq!(Code::from_i32(0), None);
        assert_eq!(Code::from_i32(i32::MIN), None);
    }
}
