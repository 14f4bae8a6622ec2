//! Why a call fails.

use super::{Status, is_orderly};
use crate::config::Settings;
use crate::event::End;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// Why a call fails. Each is what POSIX has an error number for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl core::fmt::Display for Fault {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)+
                })
            }
        }
    };
}

faults! {
    /// EBADF.
    Unknown = "There is no such socket.",
    /// ENFILE.
    Full = "There are as many sockets as may be: close some.",
    /// EINVAL.
    Invalid = "A socket in this state cannot do that.",
    /// EAFNOSUPPORT.
    Family = "The address is of another family than the socket.",
    /// EADDRNOTAVAIL.
    NotAvailable = "The address is not of this host, or no port of it is free.",
    /// EADDRINUSE.
    InUse = "Another socket has this address and port.",
    /// ENETUNREACH.
    NoRoute = "There is no route to this address.",
    /// EAGAIN.
    WouldBlock = "Nothing can be done at the moment.",
    /// EINPROGRESS.
    InProgress = "The connection is being opened.",
    /// EALREADY.
    Already = "The connection is being opened already.",
    /// EISCONN.
    Connected = "The socket is connected, or listens.",
    /// ENOTCONN.
    NotConnected = "The socket is not connected.",
    /// EPIPE.
    Closed = "This end will send no more.",
    /// ECONNREFUSED.
    Refused = "The peer refuses the connection.",
    /// ECONNRESET.
    Reset = "The peer has reset the connection.",
    /// ECONNABORTED.
    Aborted = "The attempt to connect has failed, and its error was told before.",
    /// ETIMEDOUT.
    TimedOut = "The peer does not answer.",
    /// EHOSTUNREACH.
    Unreachable = "The peer cannot be reached.",
}

impl core::error::Error for Fault {}

/// What is told of how a connection has ended.
pub(super) fn of_end(status: &Status, settings: &Settings) -> Option<Fault> {
    let end = status.end.filter(|end| !is_orderly(Some(*end)))?;
    let is_told = settings.variants.reset_after_fin;
    Some(match end {
        End::Refused => Fault::Refused,
        // As Linux has it, in CLOSE-WAIT: who has heard that the peer sends no more can only be
        // sending.
        End::Reset if status.is_finished && !status.is_shut && !is_told => Fault::Closed,
        End::Reset => Fault::Reset,
        End::Unreachable => Fault::Unreachable,
        End::TimedOut | End::Orderly | End::Aborted => Fault::TimedOut,
    })
}
