//! A region that its owner shares with some hosts only, each with rights of its own, and with one
//! user of its own host: nobody else reads or changes a byte of it, whatever is asked.
//!
//! ```text
//!  0 secrets, each of which says whose it is │ 512 words that hosts write │ 768 words they add to
//! ```
//!
//! A host has one word of either kind, and writes and adds nowhere else unless it lies.

use std::net::IpAddr;

use clearway_base::{Prefix, Random};
use clearway_channel::{Grant, Grantee, Rights, Shared};

use super::layout::VAULT_BYTES;

/// Words that never change.
const SECRETS: u32 = 64;
/// Words of hosts, of either kind.
const WORDS: u32 = 32;
const WRITTEN: u32 = 8 * SECRETS;
const ADDED: u32 = WRITTEN + 8 * WORDS;
const _: () = assert!(ADDED + 8 * WORDS == VAULT_BYTES);
/// The upper half of what a host writes.
const MARK: u64 = 0x3a2c << 32;
/// Grants to hosts, one for each address: a region has 16 at most.
const HOST_GRANTS_MAX: usize = 15;

/// An app that asks, as grants know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) host: u32,
    pub(crate) user: u32,
}

/// What grants can be given to: the addresses of a host, and the users of its apps.
#[derive(Debug)]
pub(crate) struct Neighbourhood {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) users: Vec<u32>,
}

/// The vault of one app, as it should be.
#[derive(Debug)]
pub(super) struct Vault {
    app: u32,
    host: u32,
    /// By host.
    rights: Vec<Rights>,
    /// A user of the own host.
    user: Option<(u32, Rights)>,
    pub(super) grants: Vec<Grant>,
    /// Who lies may have changed it.
    is_tainted: bool,
    /// Adds that were asked for and may have been done, by word.
    adds: [u64; WORDS as usize],
}

impl Vault {
    /// Of an app on a host, among all hosts. Without any it is shared with nobody.
    pub(super) fn new(app: u32, host: u32, hosts: &[Neighbourhood]) -> Self {
        let mut random = Random::new(!u64::from(app) ^ 0x7a);
        let mut grants = Vec::new();
        let rights = hosts.iter().zip(0..).map(|(at, number)| {
            let has_room = grants.len() + at.addresses.len() <= HOST_GRANTS_MAX;
            let rights = Rights::of(random.below(16) as u8);
            // Of the own host mostly a user alone has any.
            let (left_out, of) = if number == host { (3, 4) } else { (1, 3) };
            if !has_room || random.chance(left_out, of) {
                return Rights::NONE;
            }
            let to = |address: &IpAddr| Grantee::Prefix(Prefix::new(*address, 128));
            grants.extend(at.addresses.iter().map(|address| Grant { to: to(address), rights }));
            rights
        });
        let rights = rights.collect();
        let users = hosts.get(host as usize).map_or(&[][..], |at| &at.users);
        let user = users.get(random.below(users.len().max(1) as u64) as usize);
        let user = user.map(|user| (*user, Rights::of(random.below(16) as u8)));
        grants.extend(user.map(|(user, rights)| Grant { to: Grantee::User(user), rights }));
        let (is_tainted, adds) = (false, [0; WORDS as usize]);
        Self { app, host, rights, user, grants, is_tainted, adds }
    }

    /// What an app may do.
    pub(super) fn rights(&self, who: Who) -> Rights {
        let of_host = self.rights.get(who.host as usize).copied().unwrap_or_default();
        match self.user {
            Some((user, rights)) if who == (Who { host: self.host, user }) => of_host | rights,
            _ => of_host,
        }
    }

    /// True if an app may get to know what is in it: who adds to a word is told what it was.
    pub(super) fn tells(&self, who: Who) -> bool {
        let rights = self.rights(who);
        rights.have(Rights::READ) || rights.have(Rights::ATOMIC)
    }

    /// Before it is shared.
    pub(super) fn furnish(&self, shared: &Shared, start: u32) {
        for index in 0..SECRETS {
            let at = u64::from(start + 8 * index);
            assert!(shared.store(at, self.secret(index)), "in the memory");
        }
    }

    fn secret(&self, index: u32) -> u64 {
        let name = self.app << 8 | index;
        u64::from(seal(name)) << 32 | u64::from(name)
    }

    /// So many bytes of the secrets.
    pub(super) fn secrets(&self, at: u32, length: u32) -> Vec<u8> {
        let all = (0..SECRETS).flat_map(|index| self.secret(index).to_le_bytes());
        all.skip(at as usize).take(length as usize).collect()
    }

    /// Nothing that is found there counts any more, if who lies may change it.
    pub(super) fn taint(&mut self, liar: Option<Who>) {
        let changes = |rights: Rights| rights.have(Rights::WRITE) || rights.have(Rights::ATOMIC);
        self.is_tainted |= liar.is_none_or(|liar| changes(self.rights(liar)));
    }

    /// Secrets that may be read: where, and how many bytes.
    pub(super) fn draw_secrets(random: &mut Random) -> (u32, u32) {
        let length = 1 + random.below(u64::from(WRITTEN)) as u32;
        (random.below(u64::from(WRITTEN - length) + 1) as u32, length)
    }

    /// Where a host writes, and what.
    pub(super) fn write_of(host: u32) -> (u32, Vec<u8>) {
        (WRITTEN + 8 * (host % WORDS), (MARK | u64::from(host)).to_le_bytes().to_vec())
    }

    /// Where a host adds one; it is about to.
    pub(super) fn begin_add(&mut self, host: u32) -> u32 {
        let word = host % WORDS;
        self.adds[word as usize] += 1;
        ADDED + 8 * word
    }

    /// It was not done.
    pub(super) fn undo_add(&mut self, host: u32) {
        self.adds[(host % WORDS) as usize] -= 1;
    }

    /// Has nobody changed a byte who has no grant?
    pub(super) fn check(&self, shared: &Shared, start: u32) -> Result<(), String> {
        if self.is_tainted {
            return Ok(());
        }
        let load = |at: u32| shared.load(u64::from(start + at)).unwrap_or_default();
        let changed = (0..SECRETS).find(|index| load(8 * index) != self.secret(*index));
        if let Some(index) = changed {
            return Err(format!("secret {index} of a vault was changed"));
        }
        for word in 0..WORDS {
            let (written, added) = (load(WRITTEN + 8 * word), load(ADDED + 8 * word));
            let host = (written ^ MARK) as u32;
            let (_, mark) = Self::write_of(host);
            let is_mark = mark == written.to_le_bytes() && host % WORDS == word;
            if written != 0 && !(is_mark && self.may_anybody(host, Rights::WRITE)) {
                return Err(format!("word {word} of a vault was written: {written:x}"));
            }
            if added > self.adds[word as usize] {
                return Err(format!("word {word} of a vault was added to: {added}"));
            }
        }
        Ok(())
    }

    /// True if an app of this host may have these rights.
    fn may_anybody(&self, host: u32, needed: Rights) -> bool {
        let user = self.user.map_or(0, |(user, _)| user);
        self.rights(Who { host, user }).have(needed)
    }
}

/// The upper half of a secret, which follows from the lower: that is whose it is, and which.
const fn seal(name: u32) -> u32 {
    (name ^ 0x5ec2_e75a).wrapping_mul(0x9e37_79b1)
}

/// The apps whose secrets seem to be in some bytes, wherever they lie.
pub(super) fn owners_of_secrets(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let words = bytes.windows(8).filter_map(|word| word.first_chunk());
    let words = words.map(|word| u64::from_le_bytes(*word));
    let halves = words.map(|word| (word as u32, (word >> 32) as u32));
    halves.filter(|(name, seal)| *seal == self::seal(*name)).map(|(name, _)| name >> 8)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clearway_channel::{CHANNEL_MEMORY, DaemonEnd, Sizes};

    pub(in crate::operations) fn neighbourhoods(count: u8) -> Vec<Neighbourhood> {
        let of = |host| Neighbourhood { addresses: vec![[10, 0, 0, host].into()], users: vec![5] };
        (0..count).map(of).collect()
    }

    /// Of a vault with a host that has none of these rights, and one that has.
    fn with_and_without(needed: Rights) -> (Vault, u32, u32) {
        let hosts = neighbourhoods(6);
        let vaults = (0..100).map(|app| Vault::new(app, 0, &hosts));
        let found = vaults.filter_map(|vault| {
            let mut others = 1..6;
            let has = |host: &u32| vault.rights(Who { host: *host, user: 5 }).have(needed);
            let (with, without) = (others.clone().find(has)?, others.find(|host| !has(host))?);
            Some((vault, with, without))
        });
        found.into_iter().next().expect("one of a hundred")
    }

    /// Memory of a channel.
    pub(in crate::operations) fn shared() -> Shared {
        let sizes = Sizes { shared_bytes: 1 << 17, ..Sizes::default() };
        let (end, _) = DaemonEnd::create(sizes).expect("memory");
        end.memory(CHANNEL_MEMORY).expect("it has some").clone()
    }

    #[test]
    fn only_who_may_has_written() {
        let (vault, with, without) = with_and_without(Rights::WRITE);
        let shared = shared();
        vault.furnish(&shared, 0);
        assert_eq!(vault.check(&shared, 0), Ok(()));
        for (host, is_sound) in [(with, true), (without, false)] {
            let (at, bytes) = Vault::write_of(host);
            assert!(shared.write(at.into(), &bytes));
            assert_eq!(vault.check(&shared, 0).is_ok(), is_sound);
        }
    }

    #[test]
    fn no_more_was_added_than_was_asked_for() {
        let (mut vault, with, _) = with_and_without(Rights::ATOMIC);
        let shared = shared();
        vault.furnish(&shared, 0);
        let at = vault.begin_add(with).into();
        for is_sound in [true, false] {
            assert!(shared.fetch_add(at, 1).is_some());
            assert_eq!(vault.check(&shared, 0).is_ok(), is_sound);
        }
        vault.taint(Some(Who { host: with, user: 0 }));
        assert_eq!(vault.check(&shared, 0), Ok(()));
    }

    #[test]
    fn secrets_never_change_and_say_whose_they_are() {
        let vault = Vault::new(300, 0, &[]);
        let shared = shared();
        vault.furnish(&shared, 0);
        let mut found = vault.secrets(3, 40);
        found.insert(0, 7);
        assert!(owners_of_secrets(&found).all(|owner| owner == 300));
        assert_eq!(owners_of_secrets(&found).count(), 4);
        assert!(shared.store(8, 0));
        assert!(vault.check(&shared, 0).is_err());
    }

    /// A user of the own host may do what it is granted; the same number elsewhere is another's.
    #[test]
    fn a_user_is_of_the_own_host() {
        let hosts = neighbourhoods(2);
        let vaults = (0..100).map(|app| Vault::new(app, 0, &hosts));
        let of_user = |vault: &Vault, host| {
            let rights = |user| vault.rights(Who { host, user });
            rights(5) != rights(6)
        };
        let [own, other] = [0, 1].map(|host| {
            let vaults = vaults.clone();
            vaults.filter(|vault| of_user(vault, host)).count()
        });
        assert!(own > 0 && other == 0);
    }
}
