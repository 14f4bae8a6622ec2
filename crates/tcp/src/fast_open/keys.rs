//! The cookies that listeners give out: RFC 7413, section 4.1.2. A cookie is a keyed hash of the
//! peer's address, so nothing has to be kept of those that were given out.

use core::hash::Hasher;
use core::net::IpAddr;

use clearway_wire::tcp::Cookie;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

/// What the cookies of a listener are made with. They are the same on all hosts that have the same
/// keys, as those behind one address should.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastOpenKeys {
    /// What cookies are made with.
    pub current: [u8; 16],
    /// What they were made with before: they are taken, and answered with one of today.
    pub previous: Option<[u8; 16]>,
}

impl core::fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FastOpenKeys")
    }
}

/// By which key a cookie is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recognized {
    Current,
    Previous,
}

impl FastOpenKeys {
    /// The cookie of a peer at `remote` that comes to `local`, or of the peer alone.
    pub(crate) fn cookie(&self, local: Option<IpAddr>, remote: IpAddr) -> Cookie {
        cookie(&self.current, local, remote)
    }

    /// Whether a cookie is one of that peer.
    pub(crate) fn recognize(
        &self,
        shown: &Cookie,
        local: Option<IpAddr>,
        remote: IpAddr,
    ) -> Option<Recognized> {
        if *shown == self.cookie(local, remote) {
            return Some(Recognized::Current);
        }
        let previous = self.previous.filter(|key| *shown == cookie(key, local, remote));
        previous.map(|_| Recognized::Previous)
    }
}

/// SipHash-2-4 of the addresses, as Linux has it, so that hosts with either can share keys.
fn cookie(key: &[u8; 16], local: Option<IpAddr>, remote: IpAddr) -> Cookie {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [Some(remote), local].into_iter().flatten() {
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes()).expect("eight bytes are a cookie")
}

#[cfg(test)]
mod tests {
    use super::{FastOpenKeys, Recognized};
    use core::net::IpAddr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Of Linux, whose packetdrill scripts have them, with
    /// `tcp_fastopen_key=a0bf63f7-ed803d81-cd641d30-cebc4a90`; and of FreeBSD with a key of zeros.
    #[test]
    fn cookies_are_those_of_linux_and_freebsd() {
        let words = [0xa0bf_63f7_u32, 0xed80_3d81, 0xcd64_1d30, 0xcebc_4a90];
        let mut current = [0; 16];
        for (place, word) in current.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        let keys = FastOpenKeys { current, previous: None };
        for (remote, local, cookie) in [
            ("10.248.0.2", "192.168.0.2", "00abaaabe8e954c2"),
            ("10.248.0.3", "192.168.0.2", "1313a2da994a0951"),
            ("10.248.0.3", "192.168.0.3", "76d2c1c530f51f79"),
        ] {
            let made = keys.cookie(Some(address(local)), address(remote));
            assert_eq!(format!("{made:?}"), cookie);
        }
        let zeros = FastOpenKeys { current: [0; 16], previous: None };
        let made = zeros.cookie(None, address("192.0.2.1"));
        assert_eq!(format!("{made:?}"), "2069a359c930dba9");
    }

    #[test]
    fn a_cookie_is_good_until_its_key_is_replaced_twice() {
        let keys = |current, previous| FastOpenKeys { current: [current; 16], previous };
        let (local, peer) = (Some(address("fd00::1")), address("fd00::2"));
        let cookie = keys(1, None).cookie(local, peer);
        let recognize = |keys: FastOpenKeys| keys.recognize(&cookie, local, peer);
        assert_eq!(recognize(keys(1, None)), Some(Recognized::Current));
        assert_eq!(recognize(keys(2, Some([1; 16]))), Some(Recognized::Previous));
        assert_eq!(recognize(keys(3, Some([2; 16]))), None);
        let of_another = keys(1, None).recognize(&cookie, local, address("fd00::3"));
        assert_eq!(of_another, None);
    }
}
