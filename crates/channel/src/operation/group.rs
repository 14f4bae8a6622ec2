//! Groups of peers, which grants name. The app that shares says who is in a group, and may say
//! something else at any time.
//!
//! ```text
//! group, in the transmit pool:
//!  0 name length:u8 │ 1 0 │ 2 members:u16 │ 4 0 │ 8 name (16 bytes) │ 24 members, 24 bytes each
//!  a member:        as a grant without rights
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_base::Prefix;

use super::{PREFIX_V4, PREFIX_V6, RECORD_BYTES, USER, VALUE_BYTES, record, words};

/// The longest name of a group: what a grant has room for.
pub const GROUP_NAME_BYTES_MAX: usize = VALUE_BYTES;
/// The most members of a group.
pub const MEMBERS_MAX: usize = 256;
/// The longest description of a group.
pub const GROUP_BYTES_MAX: usize = HEAD_BYTES + MEMBERS_MAX * RECORD_BYTES;

const HEAD_BYTES: usize = 24;
const NAME: usize = 8;

/// What a group is called in its channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// Zeros behind the name.
    bytes: [u8; GROUP_NAME_BYTES_MAX],
    length: u8,
}

/// What has no group's name as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a group's name has 1 to {GROUP_NAME_BYTES_MAX} bytes, not {0}; take another")]
pub struct BadGroupName(pub usize);

impl GroupName {
    /// A name of 1 to 16 bytes.
    pub fn new(name: &[u8]) -> Result<Self, BadGroupName> {
        let bad = BadGroupName(name.len());
        let mut bytes = [0; GROUP_NAME_BYTES_MAX];
        bytes.get_mut(..name.len()).filter(|it| !it.is_empty()).ok_or(bad)?.copy_from_slice(name);
        Ok(Self { bytes, length: name.len() as u8 })
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Length, and the bytes of a record.
    pub(super) const fn to_words(self) -> (u8, [u8; VALUE_BYTES]) {
        (self.length, self.bytes)
    }

    pub(super) fn of_words(length: u8, bytes: &[u8; VALUE_BYTES]) -> Option<Self> {
        Self::new(bytes.get(..usize::from(length))?).ok()
    }
}

impl core::fmt::Display for GroupName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl core::fmt::Debug for GroupName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// Who is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// Apps of this user on the same host.
    User(u32),
    /// Hosts with an address of this prefix.
    Prefix(Prefix),
}

impl Member {
    /// Kind, bits of a prefix, and the value: the address or the user.
    pub(super) const fn to_words(self) -> (u8, u8, [u8; VALUE_BYTES]) {
        let (whom, bits, value) = match self {
            Self::User(user) => (USER, 0, user as u128),
            Self::Prefix(prefix) => match prefix.address() {
                IpAddr::V4(address) => (PREFIX_V4, prefix.bits(), address.to_bits() as u128),
                IpAddr::V6(address) => (PREFIX_V6, prefix.bits(), address.to_bits()),
            },
        };
        (whom, bits, value.to_ne_bytes())
    }

    pub(super) fn of_words(whom: u8, bits: u8, value: &[u8; VALUE_BYTES]) -> Option<Self> {
        let value = u128::from_ne_bytes(*value);
        let address: IpAddr = match whom {
            USER => return Some(Self::User(u32::try_from(value).ok()?)),
            PREFIX_V4 if u32::from(bits) <= u32::BITS => {
                Ipv4Addr::from_bits(u32::try_from(value).ok()?).into()
            }
            PREFIX_V6 if u32::from(bits) <= u128::BITS => Ipv6Addr::from_bits(value).into(),
            _ => return None,
        };
        Some(Self::Prefix(Prefix::new(address, bits)))
    }
}

impl core::fmt::Display for Member {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::User(user) => write!(f, "user {user}"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// How an app says who is in a group: these, and nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name, by which grants name it.
    pub name: GroupName,
    /// In any order.
    pub members: Vec<Member>,
}

impl Group {
    /// As bytes; `None` if the members are too many.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if self.members.len() > MEMBERS_MAX {
            return None;
        }
        let mut bytes = vec![0; HEAD_BYTES];
        let (length, name) = self.name.to_words();
        bytes[0] = length;
        bytes[2..4].copy_from_slice(&(self.members.len() as u16).to_ne_bytes());
        bytes[NAME..].copy_from_slice(&name);
        for member in &self.members {
            let (whom, bits, value) = member.to_words();
            bytes.extend(record(whom, bits, 0, &value));
        }
        Some(bytes)
    }

    /// From a copy of what an app wrote; `None` if it makes no sense.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let count = usize::from(u16::from_ne_bytes([head[2], head[3]]));
        let (members, behind) = rest.as_chunks::<RECORD_BYTES>();
        if count > MEMBERS_MAX || members.len() != count || !behind.is_empty() {
            return None;
        }
        let name = head.last_chunk().and_then(|name| GroupName::of_words(head[0], name))?;
        let members = members.iter().map(|member| {
            let (whom, bits, _, value) = words(member);
            Member::of_words(whom, bits, value)
        });
        Some(Self { name, members: members.collect::<Option<_>>()? })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn group() -> Group {
        let prefix = |text: &str| Member::Prefix(text.parse().expect("a prefix"));
        let members = vec![prefix("10.1.0.0/16"), Member::User(1000), prefix("fd00::/8")];
        Group { name: GroupName::new(b"readers").expect("short"), members }
    }

    #[test]
    fn groups_come_back_as_they_went() {
        let none = Group { members: Vec::new(), ..group() };
        let most = Group { members: vec![group().members[2]; MEMBERS_MAX], ..group() };
        for group in [group(), none, most] {
            let bytes = group.to_bytes().expect("sound");
            assert_eq!(Group::of(&bytes), Some(group));
            assert!(bytes.len() <= GROUP_BYTES_MAX);
        }
        let many = Group { members: vec![Member::User(1); MEMBERS_MAX + 1], ..group() };
        assert_eq!(many.to_bytes(), None);
    }

    /// Whatever an app writes.
    #[test]
    fn groups_that_make_no_sense_are_none() {
        let bytes = group().to_bytes().expect("sound");
        for length in 0..bytes.len() {
            assert_eq!(Group::of(&bytes[..length]), None);
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Group::of(&bytes)
        };
        let first = HEAD_BYTES;
        let wrong = [(0, 0), (0, 17), (2, 2), (2, 4), (3, 1), (first, 0), (first, 2), (first, 9)];
        for (at, byte) in wrong.into_iter().chain([(first + 1, 33)]) {
            assert_eq!(changed(at, byte), None, "{byte} at {at}");
        }
        assert!(changed(first + 1, 32).is_some());
        let long = [bytes.clone(), vec![0; RECORD_BYTES]].concat();
        assert_eq!(Group::of(&long), None);
    }

    #[test]
    fn a_name_has_1_to_16_bytes() {
        let name = GroupName::new(b"sixteen bytes ok").expect("as long as may be");
        assert_eq!((name.as_bytes(), name.to_string().len()), (&b"sixteen bytes ok"[..], 16));
        assert_ne!(GroupName::new(b"a"), GroupName::new(b"a\0"));
        for length in [0, 17] {
            let error = GroupName::new(&vec![b'n'; length]).expect_err("a bad one").to_string();
            assert!(error.contains(&format!("not {length}")), "{error}");
        }
    }
}
