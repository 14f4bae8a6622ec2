//! What only this endpoint can know: cookies, flow ids and tokens.
//!
//! A cookie is what a stranger must send back before anything is allocated for it, in the manner of
//! RFC 4987, section 3.6 (SYN cookies) and RFC 9000, section 8.1.2 (retry tokens).

use core::hash::Hasher;
use std::net::IpAddr;

use clearway_base::Time;
use siphasher::sip128::{Hasher128, SipHasher24};

/// Time of issue, then a keyed hash of it and of what the syn said.
pub(crate) const COOKIE_BYTES: usize = 8 + 16;

/// Numbers that nobody can foretell, whichever of them they have seen: a keyed hash of a counter.
/// Every peer gets to see some.
pub(crate) struct Secrets {
    key: [u8; 16],
    seed: u64,
    count: u64,
}

impl Secrets {
    pub(crate) const fn new(key: [u8; 16], seed: u64) -> Self {
        Self { key, seed, count: 0 }
    }

    /// Key, seed, and how many were made.
    pub(crate) const fn save(&self) -> ([u8; 16], u64, u64) {
        (self.key, self.seed, self.count)
    }

    /// One that goes on after so many.
    pub(crate) const fn after(self, count: u64) -> Self {
        Self { count, ..self }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.count += 1;
        // A length that no cookie's hash has, which uses the same key.
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&self.seed.to_be_bytes());
        hasher.write(&self.count.to_be_bytes());
        Hasher::finish(&hasher)
    }
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secrets") // so is their key
    }
}

/// Makes and checks cookies. Keeps nothing but its key.
#[derive(Clone)]
pub(crate) struct Cookies {
    key: [u8; 16],
    lifetime_ns: u64,
}

impl core::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cookies") // the key is a secret
    }
}

impl Cookies {
    pub(crate) const fn new(key: [u8; 16], lifetime_ns: u64) -> Self {
        Self { key, lifetime_ns }
    }

    /// The cookie for a syn from `peer` with this flow id and service port.
    pub(crate) fn issue(
        &self,
        now: Time,
        peer: IpAddr,
        flow: u64,
        port: u16,
    ) -> [u8; COOKIE_BYTES] {
        let issued = now.as_ns().to_be_bytes();
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..8].copy_from_slice(&issued);
        cookie[8..].copy_from_slice(&self.hash(issued, peer, flow, port));
        cookie
    }

    /// How long ago, in ns, `cookie` was issued; `None` if that was too long ago, or not here, or
    /// not for this syn.
    pub(crate) fn age_ns(
        &self,
        now: Time,
        cookie: &[u8],
        peer: IpAddr,
        flow: u64,
        port: u16,
    ) -> Option<u64> {
        let (issued, hash) = cookie.split_first_chunk::<8>()?;
        let age_ns = now.as_ns().checked_sub(u64::from_be_bytes(*issued))?;
        let is_ours = equal_in_constant_time(hash, &self.hash(*issued, peer, flow, port));
        (is_ours && age_ns < self.lifetime_ns).then_some(age_ns)
    }

    fn hash(&self, issued: [u8; 8], peer: IpAddr, flow: u64, port: u16) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&issued);
        match peer {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        hasher.write(&flow.to_be_bytes());
        hasher.write(&port.to_be_bytes());
        hasher.finish128().as_bytes()
    }
}

fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::Cookies;
    use clearway_base::Time;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn a_cookie_is_good_for_its_syn_and_for_a_while() {
        let cookies = Cookies::new([7; 16], 1000);
        let peer = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        let other = IpAddr::from(Ipv4Addr::new(10, 0, 0, 2));
        let now = Time::from_ns(5000);
        let mut cookie = cookies.issue(now, peer, 1, 80);
        assert_eq!(cookies.age_ns(now + 999, &cookie, peer, 1, 80), Some(999));
        assert_eq!(cookies.age_ns(now + 1000, &cookie, peer, 1, 80), None, "too old");
        assert_eq!(cookies.age_ns(now - 1, &cookie, peer, 1, 80), None, "from the future");
        assert_eq!(cookies.age_ns(now, &cookie, other, 1, 80), None);
        assert_eq!(cookies.age_ns(now, &cookie, peer, 2, 80), None);
        assert_eq!(cookies.age_ns(now, &cookie, peer, 1, 81), None);
        assert_eq!(cookies.age_ns(now, &cookie[..20], peer, 1, 80), None);
        assert_eq!(Cookies::new([8; 16], 1000).age_ns(now, &cookie, peer, 1, 80), None);
        cookie[7] ^= 1;
        assert_eq!(cookies.age_ns(now, &cookie, peer, 1, 80), None);
    }
}
