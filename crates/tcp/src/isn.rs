//! What an attacker must not be able to guess: initial sequence numbers (RFC 6528), offsets of
//! timestamps, cookies. All are keyed hashes of addresses and ports.

use core::hash::{Hash, Hasher};

use clearway_base::{MICROSECOND, Time};
use siphasher::sip::SipHasher24;

use crate::fast_open::FastOpenKeys;
use crate::tuple::Tuple;

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
    FastOpen,
}

impl Secret {
    pub(crate) const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    pub(crate) const fn key(&self) -> [u8; 16] {
        self.key
    }

    pub(crate) fn hash(&self, purpose: Use, of: &impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u8(purpose as u8);
        of.hash(&mut hasher);
        hasher.finish()
    }

    /// What the cookies of Fast Open are made with, unless the owner has keys of its own.
    pub(crate) fn fast_open_keys(&self) -> FastOpenKeys {
        let halves = [0_u8, 1].map(|half| self.hash(Use::FastOpen, &half));
        let mut current = [0; 16];
        for (place, half) in current.as_chunks_mut().0.iter_mut().zip(halves) {
            *place = half.to_le_bytes();
        }
        FastOpenKeys { current, previous: None }
    }

    /// RFC 6528, section 3: "ISN = M + F(localip, localport, remoteip, remoteport, secretkey)",
    /// "where M is the 4 microsecond timer".
    pub(crate) fn isn(&self, now: Time, tuple: &Tuple) -> u32 {
        let timer = (now.as_ns() / (4 * MICROSECOND)) as u32;
        timer.wrapping_add(self.hash(Use::Isn, tuple) as u32)
    }

    /// What the timestamps of a connection are ahead of the clock. The same for the same addresses
    /// and ports, so that a later connection's are later (RFC 6191).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(Use::Timestamps, tuple) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;
    use crate::tuple::Tuple;
    use clearway_base::{MICROSECOND, SECOND, Time};

    fn tuple(port: u16) -> Tuple {
        let local = format!("10.0.0.1:{port}").parse().expect("address");
        Tuple::new(local, "10.0.0.2:80".parse().expect("address"))
    }

    /// RFC 6528, section 3: of one connection after another between the same ports the numbers grow
    /// with the clock; what they are for others, and under another secret, does not follow.
    #[test]
    fn numbers_grow_for_the_same_ports_and_are_unrelated_for_others() {
        let (secret, other) = (Secret::new([1; 16]), Secret::new([2; 16]));
        let (now, later) = (Time::from_ns(SECOND), Time::from_ns(2 * SECOND));
        let first = secret.isn(now, &tuple(1));
        assert_eq!(secret.isn(later, &tuple(1)).wrapping_sub(first), 250_000, "4 us each");
        assert_eq!(secret.isn(now + 3 * MICROSECOND, &tuple(1)), first);
        let mut numbers: Vec<u32> = (1..1000).map(|port| secret.isn(now, &tuple(port))).collect();
        numbers.push(other.isn(now, &tuple(1)));
        numbers.sort_unstable();
        // Of a thousand that are drawn by chance the two nearest are hardly nearer than this.
        let nearest = numbers.windows(2).map(|pair| pair[1] - pair[0]).min();
        let spread = numbers[999] - numbers[0];
        assert!(nearest > Some(0) && spread > u32::MAX / 2, "{nearest:?}, {spread}");
    }

    #[test]
    fn a_later_connection_has_the_same_offset_of_timestamps() {
        let secret = Secret::new([1; 16]);
        assert_eq!(secret.timestamp_offset(&tuple(1)), secret.timestamp_offset(&tuple(1)));
        assert_ne!(secret.timestamp_offset(&tuple(1)), secret.timestamp_offset(&tuple(2)));
        assert_ne!(secret.timestamp_offset(&tuple(1)), secret.isn(Time::ZERO, &tuple(1)));
    }
}
