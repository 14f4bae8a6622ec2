//! Why a call of a stack fails.

/// Why something that is asked cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such connection or listener, or not any more.
    Unknown,
    /// The connection takes no more data: its half is closed, or it is over.
    Closed,
    /// So much waits already: wait for
    /// [`Readiness::WRITABLE`](crate::Readiness::WRITABLE).
    Full,
    /// The port, or every port, is in use; or the table is full.
    InUse,
    /// The two addresses are not of the same family.
    Family,
    /// A connection is to one host, and this is the address of many, or of none.
    NoHost,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "There is no such connection.",
            Self::Closed => "The connection takes no more data.",
            Self::Full => {
                "Too much waits to be acknowledged: wait until the connection is writable."
            }
            Self::InUse => "The port is in use, or no more connections are allowed.",
            Self::Family => "IPv4 and IPv6 addresses cannot be connected.",
            Self::NoHost => {
                "A connection needs the address of one host: not 0.0.0.0, ::, broadcast or \
                 multicast."
            }
        })
    }
}

impl core::error::Error for Error {}
