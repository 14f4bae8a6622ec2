//! What the two ends of a channel say of one-sided operations, besides what stands in an entry:
//! their kinds, what came of them, and how an app describes a region that it shares. What each
//! operation does is in `docs/operations.md`.
//!
//! ```text
//! description, in the transmit pool:
//!  0 grants:u8 │ 1 name length:u8 │ 2 0      │ 8 grants, 24 bytes each │ name
//!  a grant:     0 whom:u8 │ 1 prefix bits, or name length:u8 │ 2 rights:u8 │ 3 0
//!               8 address, user, or name of a group (16 bytes)
//! ```

use clearway_base::Prefix;

mod group;
pub use group::{
    BadGroupName, GROUP_BYTES_MAX, GROUP_NAME_BYTES_MAX, Group, GroupName, MEMBERS_MAX, Member,
};

/// The most grants of a region.
pub const GRANTS_MAX: usize = 16;
/// The longest name of a region.
pub const REGION_NAME_BYTES_MAX: usize = 64;
/// The most entries of a batch.
pub const BATCH_MAX: usize = 64;
/// The longest description of a region.
pub const DESCRIPTION_BYTES_MAX: usize =
    HEAD_BYTES + GRANTS_MAX * RECORD_BYTES + REGION_NAME_BYTES_MAX;
/// How many one-sided operations of a channel may be outstanding.
pub const OUTSTANDING_OPERATIONS_MAX: u32 = 16 * 1024;
/// The buffer of an `Operated` that has read nothing.
pub const NO_BUFFER: u32 = u32::MAX;

const HEAD_BYTES: usize = 8;
/// Of a grant, or of a member of a group.
const RECORD_BYTES: usize = 24;
const VALUE_BYTES: usize = 16;

const ANYBODY: u8 = 0;
const USER: u8 = 1;
const GROUP: u8 = 2;
const PREFIX_V4: u8 = 4;
const PREFIX_V6: u8 = 6;

/// What an operation does, by the numbers of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// Looks a region up by its name.
    Find = 1,
    /// Reads bytes.
    Read = 2,
    /// Writes bytes.
    Write = 3,
    /// Writes bytes, and tells the owner of it.
    WriteNotify = 4,
    /// Replaces a word if it is as expected.
    CompareSwap = 5,
    /// Adds to a word.
    FetchAdd = 6,
    /// Reads what an entry of a table points to.
    IndirectRead = 7,
    /// Reads what several entries of a table point to.
    BatchRead = 8,
    /// Looks for a key among entries, and reads what the one that has it points to.
    ScanRead = 9,
}

/// Declares [`OperationStatus`] once: name, number, text.
macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// What came of an operation, or of sharing a region. Up to 31 the owner says it, and
        /// above that the own daemon.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum OperationStatus {
            $(#[doc = $text] $name = $number,)*
        }

        impl OperationStatus {
            /// All, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Cause and remedy, for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The name as the C header spells it after `CLEARWAY_STATUS_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The status of this number; one that is not known says as much as `Invalid`.
            #[must_use]
            pub const fn of(number: u8) -> Self {
                match number {
                    $($number => Self::$name,)*
                    _ => Self::Invalid,
                }
            }
        }
    };
}

statuses! {
    Done = 0, "done";
    NoRegion = 1, "there is no such region, or it is revoked; ask its owner for another";
    NotAllowed = 2, "the region's owner does not allow it; have it grant the right to this host";
    OutOfBounds = 3, "it reaches beyond the region; check offset, length and what entries say";
    Misaligned = 4, "a word, an entry or a region is not at a multiple of 8 bytes; align it";
    NotFound = 5, "no entry has that key, or no region that name";
    TooLarge = 6,
        "more bytes than were asked for, or than one operation takes; ask for less at once";
    Busy = 7, "the region's owner does not take its events; try again later";
    Invalid = 8, "the other daemon does not know this operation; update it, or check the arguments";
    Unknown = 32,
        "the connection has ended before the answer: it may have been done, or not; connect again, \
         and look";
    Failed = 33, "the connection has ended, and nothing was changed; connect and try again";
    Unsupported = 34, "the other host's daemon is of a release without operations; update it";
    NoConnection = 35, "there is no such open connection; connect first";
    NoRoom = 36,
        "it asks for more than the receive pool holds; ask for less, or attach with a larger pool";
    NameTaken = 37, "the channel shares a region of that name already; take another";
    TooMany = 38, "the channel shares as many regions as the policy lets it; ask the administrator";
    Denied = 39,
        "the daemon's policy does not let this user ask for operations; have its administrator \
         add the user to [policy.ask]";
    NoMemory = 40, "the channel has no memory of that number; add it first";
    TooManyGroups = 41,
        "the channel has as many groups of peers as it may; leave one that is not used without \
         members";
}

/// What somebody may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Read it, at once or by entries.
    pub const READ: Self = Self(1);
    /// Write it.
    pub const WRITE: Self = Self(2);
    /// Tell its owner of what was written.
    pub const NOTIFY: Self = Self(4);
    /// Compare-and-swap, and fetch-and-add.
    pub const ATOMIC: Self = Self(8);
    /// All of these.
    pub const ALL: Self = Self(15);

    /// The rights of these bits; others mean nothing.
    #[must_use]
    pub const fn of(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// As bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` are among them.
    #[must_use]
    pub const fn have(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// Who gets rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grantee {
    /// Whoever can connect.
    Anybody,
    /// Apps of this user on the same host.
    User(u32),
    /// Hosts with an address of this prefix.
    Prefix(Prefix),
    /// Whoever is in this group of the channel: nobody, while the app has not said who that is.
    Group(GroupName),
}

impl Grantee {
    fn to_words(self) -> (u8, u8, [u8; VALUE_BYTES]) {
        match self {
            Self::Anybody => (ANYBODY, 0, [0; VALUE_BYTES]),
            Self::User(user) => Member::User(user).to_words(),
            Self::Prefix(prefix) => Member::Prefix(prefix).to_words(),
            Self::Group(name) => {
                let (length, name) = name.to_words();
                (GROUP, length, name)
            }
        }
    }

    fn of_words(whom: u8, bits: u8, value: &[u8; VALUE_BYTES]) -> Option<Self> {
        match whom {
            ANYBODY => Some(Self::Anybody),
            GROUP => GroupName::of_words(bits, value).map(Self::Group),
            _ => Member::of_words(whom, bits, value).map(Self::from),
        }
    }
}

impl From<Member> for Grantee {
    fn from(member: Member) -> Self {
        match member {
            Member::User(user) => Self::User(user),
            Member::Prefix(prefix) => Self::Prefix(prefix),
        }
    }
}

/// Who may do what with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Who.
    pub to: Grantee,
    /// What.
    pub rights: Rights,
}

impl core::fmt::Display for Rights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let words = [
            (Self::READ, "read"),
            (Self::WRITE, "write"),
            (Self::NOTIFY, "notify"),
            (Self::ATOMIC, "atomic"),
        ];
        let mut words = words.into_iter().filter(|(right, _)| self.have(*right));
        f.write_str(words.next().map_or("nothing", |(_, word)| word))?;
        words.try_for_each(|(_, word)| write!(f, ", {word}"))
    }
}

impl core::fmt::Display for Grantee {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Anybody => f.write_str("anybody"),
            Self::User(user) => write!(f, "{}", Member::User(user)),
            Self::Prefix(prefix) => write!(f, "{}", Member::Prefix(prefix)),
            Self::Group(name) => write!(f, "group {name}"),
        }
    }
}

impl core::fmt::Display for Grant {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.to, self.rights)
    }
}

/// How an app describes a region that it shares: its name, which may be empty, and who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Its name, by which others find it.
    pub name: Vec<u8>,
    /// What any of these allows is allowed.
    pub grants: Vec<Grant>,
}

impl Description {
    /// As bytes; `None` if the name is too long, or the grants are too many.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if self.name.len() > REGION_NAME_BYTES_MAX || self.grants.len() > GRANTS_MAX {
            return None;
        }
        let mut bytes = vec![0; HEAD_BYTES];
        (bytes[0], bytes[1]) = (self.grants.len() as u8, self.name.len() as u8);
        for grant in &self.grants {
            let (whom, bits, value) = grant.to.to_words();
            bytes.extend(record(whom, bits, grant.rights.bits(), &value));
        }
        bytes.extend(&self.name);
        Some(bytes)
    }

    /// From a copy of what an app wrote; `None` if it makes no sense.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let (grants, name_length) = (usize::from(head[0]), usize::from(head[1]));
        if grants > GRANTS_MAX || name_length > REGION_NAME_BYTES_MAX {
            return None;
        }
        let (grants, name) = rest.split_at_checked(grants * RECORD_BYTES)?;
        let (grants, _) = grants.as_chunks();
        let grants = grants.iter().map(grant_of).collect::<Option<_>>()?;
        (name.len() == name_length).then(|| Self { name: name.to_vec(), grants })
    }
}

fn grant_of(bytes: &[u8; RECORD_BYTES]) -> Option<Grant> {
    let (whom, bits, rights, value) = words(bytes);
    Some(Grant { to: Grantee::of_words(whom, bits, value)?, rights: Rights::of(rights) })
}

/// A grant, or a member, as it is written.
fn record(whom: u8, bits: u8, rights: u8, value: &[u8; VALUE_BYTES]) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    [bytes[0], bytes[1], bytes[2]] = [whom, bits, rights];
    bytes[RECORD_BYTES - VALUE_BYTES..].copy_from_slice(value);
    bytes
}

/// The same read: whom, bits, rights, value.
fn words(bytes: &[u8; RECORD_BYTES]) -> (u8, u8, u8, &[u8; VALUE_BYTES]) {
    let [whom, bits, rights, ..] = *bytes;
    let value = bytes.last_chunk().expect("a record is longer than its value");
    (whom, bits, rights, value)
}

/// Bits of a pointer that are the offset; the length is above.
const POINTER_OFFSET_BITS: u32 = 40;

/// What an entry of a table points to: one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Where in the region.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl Pointer {
    /// As a word; `None` if the offset has more than 40 bits, or the length more than 24.
    #[must_use]
    pub const fn to_word(self) -> Option<u64> {
        let fits = self.offset >> POINTER_OFFSET_BITS == 0
            && self.length >> (u64::BITS - POINTER_OFFSET_BITS) == 0;
        if !fits {
            return None;
        }
        Some(self.offset | (self.length as u64) << POINTER_OFFSET_BITS)
    }

    /// From a word: any bits.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let offset = word & ((1 << POINTER_OFFSET_BITS) - 1);
        Self { offset, length: (word >> POINTER_OFFSET_BITS) as u32 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn description() -> Description {
        let prefix = |text: &str| Grantee::Prefix(text.parse().expect("a prefix"));
        let group = |name: &str| Grantee::Group(GroupName::new(name.as_bytes()).expect("short"));
        let grant = |to, rights| Grant { to, rights };
        Description {
            name: b"table".to_vec(),
            grants: vec![
                grant(Grantee::Anybody, Rights::READ),
                grant(Grantee::User(1000), Rights::ALL),
                grant(prefix("10.1.0.0/16"), Rights::READ | Rights::WRITE),
                grant(prefix("fd00::/8"), Rights::ATOMIC),
                grant(group("readers"), Rights::READ),
            ],
        }
    }

    #[test]
    fn descriptions_come_back_as_they_went() {
        let bytes = description().to_bytes().expect("sound");
        assert_eq!(Description::of(&bytes), Some(description()));
        assert!(bytes.len() <= DESCRIPTION_BYTES_MAX);
        let longest = Description {
            name: vec![b'n'; REGION_NAME_BYTES_MAX],
            grants: vec![description().grants[2]; GRANTS_MAX],
        };
        assert_eq!(longest.to_bytes().map(|bytes| bytes.len()), Some(DESCRIPTION_BYTES_MAX));
    }

    #[test]
    fn grants_are_told_in_words() {
        let texts: Vec<String> = description().grants.iter().map(ToString::to_string).collect();
        let expected = [
            "anybody: read",
            "user 1000: read, write, notify, atomic",
            "10.1.0.0/16: read, write",
            "fd00::/8: atomic",
            "group readers: read",
        ];
        assert_eq!(texts, expected);
        assert_eq!(Rights::NONE.to_string(), "nothing");
    }

    /// Whatever an app writes.
    #[test]
    fn descriptions_that_make_no_sense_are_none() {
        let bytes = description().to_bytes().expect("sound");
        for length in 0..bytes.len() {
            assert_eq!(Description::of(&bytes[..length]), None);
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            Description::of(&bytes)
        };
        let second_grant = HEAD_BYTES + 2 * RECORD_BYTES;
        let wrong = [(0, 17), (0, 4), (1, 65), (1, 4), (second_grant, 7), (second_grant + 1, 33)];
        for (at, byte) in wrong {
            assert_eq!(changed(at, byte), None, "{byte} at {at}");
        }
        assert!(changed(second_grant + 1, 32).is_some());
        let (mut long, mut many) = (description(), description());
        long.name = vec![0; REGION_NAME_BYTES_MAX + 1];
        many.grants = vec![many.grants[0]; GRANTS_MAX + 1];
        assert_eq!((long.to_bytes(), many.to_bytes()), (None, None));
    }

    #[test]
    fn a_pointer_is_one_word() {
        let largest = Pointer { offset: (1 << 40) - 1, length: (1 << 24) - 1 };
        assert_eq!((largest.to_word(), Pointer::of(u64::MAX)), (Some(u64::MAX), largest));
        let one = Pointer { offset: 1, length: 1 };
        assert_eq!((one.to_word(), Pointer::of(1 | 1 << 40)), (Some(1 | 1 << 40), one));
        assert_eq!(Pointer { offset: 1 << 40, length: 0 }.to_word(), None);
        assert_eq!(Pointer { offset: 0, length: 1 << 24 }.to_word(), None);
    }

    #[test]
    fn statuses_are_found_by_their_numbers() {
        for status in OperationStatus::ALL {
            assert_eq!(OperationStatus::of(*status as u8), *status);
        }
        assert_eq!(OperationStatus::of(9), OperationStatus::Invalid);
    }
}
