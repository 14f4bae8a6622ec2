//! The addresses that begin alike, written `10.1.0.0/16`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// All addresses of one family whose upper bits are the same; of one address if these are all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    /// The lowest of them.
    address: IpAddr,
    bits: u8,
}

/// A text that is no prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPrefix(String);

impl Prefix {
    /// The addresses that share their upper `bits` with `address`; 32 are all of IPv4, 128 of IPv6,
    /// and more count as these.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Self {
        match address {
            IpAddr::V4(address) => {
                let bits = bits.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
            IpAddr::V6(address) => {
                let bits = bits.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(address.to_bits() & mask).into(), bits }
            }
        }
    }

    /// The lowest of its addresses.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many upper bits are the same.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether `address` is one of them. One of IPv4 is of no prefix of IPv6.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self::new(address, self.bits).address == self.address
    }

    /// Whether a list that says who is let in lets this address in: it does if it is empty.
    #[must_use]
    pub fn admit(list: &[Self], address: IpAddr) -> bool {
        list.is_empty() || list.iter().any(|prefix| prefix.contains(address))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    /// `10.1.0.0/16`, `fd00::/8`, or one address, `10.1.0.7`. Bits behind the prefix do not count.
    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let bad = || BadPrefix(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        if bits > all { Err(bad()) } else { Ok(Self::new(address, bits)) }
    }
}

impl TryFrom<String> for Prefix {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not addresses like \"10.1.0.0/16\" or \"fd00::/8\"", self.0)
    }
}

impl core::error::Error for BadPrefix {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_alike_is_in_it_and_nothing_else() {
        let is_in = |prefix: &str, address: &str| {
            let prefix: Prefix = prefix.parse().expect(prefix);
            prefix.contains(address.parse().expect(address))
        };
        for (prefix, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.0.7", "10.1.0.7", "10.1.0.6"),
            ("10.1.0.7/31", "10.1.0.6", "10.1.0.8"),
            ("128.0.0.0/1", "255.255.255.255", "127.255.255.255"),
            ("0.0.0.0/0", "255.0.0.1", "::"),
            ("::/0", "ffff::1", "0.0.0.0"),
            ("fd00::/8", "fdff::1", "fc00::1"),
            ("::ffff:10.1.0.0/112", "::ffff:10.1.2.3", "10.1.2.3"),
            ("fd00::2/128", "fd00::2", "fd00::3"),
        ] {
            assert!(is_in(prefix, inside), "{inside} in {prefix}");
            assert!(!is_in(prefix, outside), "{outside} in {prefix}");
        }
    }

    #[test]
    fn a_list_lets_in_what_is_in_one_of_it_and_an_empty_one_all() {
        let list = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a prefix"));
        let admit = |list: &[Prefix], text: &str| Prefix::admit(list, text.parse().expect("one"));
        assert!(admit(&list, "10.1.2.3") && admit(&list, "fd00::1"));
        assert!(!admit(&list, "11.1.2.3") && !admit(&list, "::1"));
        assert!(admit(&[], "11.1.2.3"));
    }

    #[test]
    fn one_is_written_as_its_lowest_address() {
        for (text, written) in [("10.1.2.3/16", "10.1.0.0/16"), ("fd00::9/64", "fd00::/64")] {
            let prefix: Prefix = text.parse().expect(text);
            assert_eq!(String::from(prefix), written);
            assert_eq!(Prefix::try_from(written.to_owned()), Ok(prefix));
            assert_eq!(Prefix::new(prefix.address(), prefix.bits()), prefix);
        }
        let one: Prefix = "10.1.0.7".parse().expect("an address");
        assert_eq!(one.to_string(), "10.1.0.7/32");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "10.1.0.0/33", "fd00::/129", "10.1/16", "10.1.0.0/", "10.1.0.0/-1", "all"]
        {
            let refused = text.parse::<Prefix>().expect_err(text).to_string();
            assert!(refused.starts_with(&format!("{text:?} is not")), "{refused}");
        }
    }
}
