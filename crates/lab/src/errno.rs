//! The numbers of errors, those of Linux.

use clearway_tcp::Fault;

/// The number of an error, as `errno` has it: positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($name:ident)+) => {
        impl Errno {
            $(
                #[doc = concat!("The number of the same name.")]
                pub const $name: Self = Self(libc::$name);
            )+

            /// Its name.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF ECONNABORTED ECONNREFUSED ECONNRESET
    EDESTADDRREQ EDOM EEXIST EHOSTUNREACH EINPROGRESS EINVAL EISCONN ELOOP EMFILE
    EMSGSIZE ENETUNREACH ENFILE ENODEV ENOENT ENOMEM ENOPROTOOPT ENOTCONN ENOTSOCK ENOTTY
    EOPNOTSUPP EPERM EPIPE EPROTONOSUPPORT ERANGE ESOCKTNOSUPPORT ETIMEDOUT
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl core::error::Error for Errno {}

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unknown => Self::EBADF,
            Fault::Full => Self::ENFILE,
            Fault::Invalid => Self::EINVAL,
            Fault::Family => Self::EAFNOSUPPORT,
            Fault::NotAvailable => Self::EADDRNOTAVAIL,
            Fault::InUse => Self::EADDRINUSE,
            Fault::NoRoute => Self::ENETUNREACH,
            Fault::WouldBlock => Self::EAGAIN,
            Fault::InProgress => Self::EINPROGRESS,
            Fault::Already => Self::EALREADY,
            Fault::Connected => Self::EISCONN,
            Fault::NotConnected => Self::ENOTCONN,
            Fault::Closed => Self::EPIPE,
            Fault::Refused => Self::ECONNREFUSED,
            Fault::Reset => Self::ECONNRESET,
            Fault::Aborted => Self::ECONNABORTED,
            Fault::TimedOut => Self::ETIMEDOUT,
            Fault::Unreachable => Self::EHOSTUNREACH,
        }
    }
}
