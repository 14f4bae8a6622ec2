//! Groups of peers, to which an app grants rights by name. Who is in one, the app says, and may say
//! something else at any time: each operation looks, and so nothing has to be told to regions.
//!
//! A group of which the app has said nothing has no members, and one without members is not kept.

use std::collections::BTreeMap;
use std::net::IpAddr;

use clearway_base::Prefix;
use clearway_channel::{Grant, Grantee, Group, GroupName, Member, OperationStatus};

/// Groups of one channel that have members.
pub(super) const GROUPS_MAX: usize = 64;
/// So many members of a group are told of in status.
const MEMBERS_TOLD: usize = 8;

/// Who has an address, and, if it is an app of this host, which user it is of.
pub(super) type Who = (IpAddr, Option<u32>);

/// The groups of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups {
    by_name: BTreeMap<GroupName, Members>,
}

/// Both lists are in order, and no prefix is in another: a look at one place of either is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Members {
    users: Vec<u32>,
    prefixes: Vec<Prefix>,
}

impl Groups {
    /// The members of a group are these, and nobody else.
    pub(super) fn set(&mut self, group: Group) -> Result<(), OperationStatus> {
        let Group { name, members } = group;
        if members.is_empty() {
            self.by_name.remove(&name);
            return Ok(());
        }
        if self.by_name.len() >= GROUPS_MAX && !self.by_name.contains_key(&name) {
            return Err(OperationStatus::TooManyGroups);
        }
        self.by_name.insert(name, Members::of(members));
        Ok(())
    }

    /// Whether a grant is to whoever this is.
    pub(super) fn are_granted(&self, to: Grantee, (address, user): Who) -> bool {
        match to {
            Grantee::Anybody => true,
            Grantee::User(id) => user == Some(id),
            Grantee::Prefix(prefix) => prefix.contains(address),
            Grantee::Group(name) => {
                self.by_name.get(&name).is_some_and(|members| members.have((address, user)))
            }
        }
    }

    /// A grant in words; of a group also who is in it.
    pub(super) fn tell(&self, grant: &Grant) -> String {
        let Grantee::Group(name) = grant.to else { return grant.to_string() };
        let members: Vec<Member> =
            self.by_name.get(&name).into_iter().flat_map(Members::iter).collect();
        let told = members.iter().take(MEMBERS_TOLD).map(ToString::to_string);
        let told = if members.is_empty() {
            "nobody".to_owned()
        } else {
            told.collect::<Vec<_>>().join(", ")
        };
        let more = match members.len().saturating_sub(MEMBERS_TOLD) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        format!("{} ({told}{more}): {}", grant.to, grant.rights)
    }

    /// All of them, as apps say them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Group> {
        let groups = self.by_name.iter();
        groups.map(|(name, members)| Group { name: *name, members: members.iter().collect() })
    }
}

impl Members {
    fn of(members: Vec<Member>) -> Self {
        let mut found = Self::default();
        for member in members {
            match member {
                Member::User(user) => found.users.push(user),
                Member::Prefix(prefix) => found.prefixes.push(prefix),
            }
        }
        found.users.sort_unstable();
        found.users.dedup();
        // What is in a prefix stands behind it.
        found.prefixes.sort_unstable();
        found.prefixes.dedup_by(|next, before| before.contains(next.address()));
        found
    }

    fn have(&self, (address, user): Who) -> bool {
        let behind = self.prefixes.partition_point(|prefix| prefix.address() <= address);
        let nearest = behind.checked_sub(1).map(|last| self.prefixes[last]);
        nearest.is_some_and(|prefix| prefix.contains(address))
            || user.is_some_and(|user| self.users.binary_search(&user).is_ok())
    }

    fn iter(&self) -> impl Iterator<Item = Member> {
        let users = self.users.iter().copied().map(Member::User);
        self.prefixes.iter().copied().map(Member::Prefix).chain(users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::Random;
    use clearway_channel::Rights;

    fn name(text: &str) -> GroupName {
        GroupName::new(text.as_bytes()).expect("short")
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect("a prefix")
    }

    fn group(named: &str, prefixes: &[&str], users: &[u32]) -> Group {
        let prefixes = prefixes.iter().map(|text| Member::Prefix(prefix(text)));
        let members = prefixes.chain(users.iter().copied().map(Member::User)).collect();
        Group { name: name(named), members }
    }

    fn who(address: &str, user: Option<u32>) -> Who {
        (address.parse().expect("an address"), user)
    }

    #[test]
    fn grants_are_to_hosts_of_a_prefix_users_of_this_host_and_members() {
        let mut groups = Groups::default();
        groups.set(group("g", &["10.2.0.0/16"], &[7])).expect("room");
        let to_group = Grantee::Group(name("g"));
        let to_prefix = |text| Grantee::Prefix(prefix(text));
        for (to, address, user, expected) in [
            (Grantee::Anybody, "::1", None, true),
            (Grantee::User(7), "10.0.0.1", Some(7), true),
            (Grantee::User(8), "10.0.0.1", Some(7), false),
            (Grantee::User(0), "10.0.0.1", None, false),
            (to_prefix("10.0.0.0/8"), "10.255.0.1", None, true),
            (to_prefix("10.0.0.0/8"), "11.0.0.0", Some(7), false),
            (to_prefix("fd00::/127"), "fd00::1", None, true),
            (to_group, "10.2.255.255", None, true),
            (to_group, "10.3.0.0", None, false),
            (to_group, "10.3.0.0", Some(7), true),
            (to_group, "::1", Some(8), false),
            (Grantee::Group(name("h")), "10.2.0.1", Some(7), false),
        ] {
            let found = groups.are_granted(to, who(address, user));
            assert_eq!(found, expected, "{to} {address} {user:?}");
        }
    }

    #[test]
    fn what_is_said_last_counts_and_no_members_are_no_group() {
        let mut groups = Groups::default();
        let is_in = |groups: &Groups, address| {
            groups.are_granted(Grantee::Group(name("g")), who(address, None))
        };
        groups.set(group("g", &["10.1.0.0/16", "10.2.0.0/16"], &[])).expect("room");
        assert!(is_in(&groups, "10.1.0.1") && is_in(&groups, "10.2.0.1"));
        groups.set(group("g", &["10.2.0.0/16", "10.3.0.0/16"], &[])).expect("room");
        let found = ["10.1.0.1", "10.2.0.1", "10.3.0.1"].map(|address| is_in(&groups, address));
        assert_eq!(found, [false, true, true]);
        for number in 1..GROUPS_MAX {
            groups.set(group(&format!("g{number}"), &[], &[1])).expect("room");
        }
        let full = groups.clone();
        let more = group("more", &[], &[1]);
        assert_eq!(groups.set(more.clone()), Err(OperationStatus::TooManyGroups));
        assert_eq!(groups.set(group("none", &[], &[])), Ok(()));
        assert_eq!(groups, full);
        assert_eq!(groups.set(group("g", &["10.4.0.0/16"], &[])), Ok(()), "it is there");
        assert_eq!(groups.set(group("g", &[], &[])), Ok(()));
        assert!(!is_in(&groups, "10.4.0.1"));
        assert_eq!(groups.set(more), Ok(()));
    }

    /// Prefixes in whatever order and within each other are as each by itself.
    #[test]
    fn a_look_finds_what_a_search_finds() {
        let mut random = Random::new(4);
        for _ in 0..500 {
            let prefixes: Vec<Prefix> = (0..random.below(12))
                .map(|_| {
                    let bits = 26 + random.below(7) as u8;
                    Prefix::new(IpAddr::V4((random.below(128) as u32).into()), bits)
                })
                .chain([prefix("fd00::/126")])
                .collect();
            let members = Members::of(prefixes.iter().copied().map(Member::Prefix).collect());
            for low in 0..128 {
                let address = IpAddr::V4(low.into());
                let expected = prefixes.iter().any(|prefix| prefix.contains(address));
                assert_eq!(members.have((address, None)), expected, "{address} {prefixes:?}");
            }
        }
    }

    #[test]
    fn a_grant_to_a_group_is_told_with_its_members() {
        let mut groups = Groups::default();
        let tell = |groups: &Groups| {
            groups.tell(&Grant { to: Grantee::Group(name("g")), rights: Rights::READ })
        };
        assert_eq!(tell(&groups), "group g (nobody): read");
        groups.set(group("g", &["fd00::/8", "10.0.0.0/8", "10.1.0.0/16"], &[7])).expect("room");
        assert_eq!(tell(&groups), "group g (10.0.0.0/8, fd00::/8, user 7): read");
        groups.set(group("g", &[], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10])).expect("room");
        assert!(tell(&groups).ends_with("user 7, user 8 and 2 more): read"), "{}", tell(&groups));
        let to_all = Grant { to: Grantee::Anybody, rights: Rights::READ };
        assert_eq!(groups.tell(&to_all), to_all.to_string());
    }
}
