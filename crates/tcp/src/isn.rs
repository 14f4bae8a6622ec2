//! What an attacker must not be able to guess: initial sequence numbers (RFC 6528), offsets of timestamps,
//! cookies. All are keyed hashes of addresses and ports.

use core::hash::{Hash, Hasher};

use clearway_base::{MICROSECOND, Time};
use siphasher::sip::SipHasher24;

use crate::table::Tuple;

/// The secret of a stack, and what is made with it.
#[derive(Clone)]
pub(crate) struct Secret {
    key: [u8; 16],
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// Each use of the key has a hash of its own.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Isn,
    Timestamps,
    PortOffset,
    PortCounter,
    Cookie,
}

impl Secret {
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    pub(crate) fn hash(&self, purpose: Use, of: &impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose as u8);
        of.hash(&mut hasher);
        hasher.finish()
    }

    /// RFC 6528, section 3: "ISN = M + F(localip, localport, remoteip, remoteport, secretkey)", "where M is
    /// the 4 microsecond timer".
    pub(crate) fn isn(&self, now: Time, tuple: &Tuple) -> u32 {
        let timer = (now.as_ns() / (4 * MICROSECOND)) as u32;
        timer.wrapping_add(self.hash(Use::Isn, tuple) as u32)
    }

    /// What the timestamps of a connection are ahead of the clock. The same for the same addresses and
    /// ports, so that a later connection's are later (RFC 6191).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(Use::Timestamps, tuple) as u32
    }
}
