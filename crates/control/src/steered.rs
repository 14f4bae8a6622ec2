//! What a NIC is asked for so that an interface gets its frames, and how much of that one user may
//! have.
//!
//! A NIC that the kernel shares gives us what a pattern asks for and leaves everything else to the
//! kernel; what it gives us, the kernel does not see. Copies are of frames that are somebody
//! else's: of what comes in any case, and of what goes to the kernel if it is to all or to a group.
//! A machine on the LAN is asked for its address by broadcast and multicast, too.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Filter, Pattern};
use clearway_nic::interface::SteerPattern;
use clearway_nic::{Error, MacAddress};
use clearway_wire::ipv6;

use crate::policy::{Grant, HostPort, limit_reached};

/// Kinds of patterns of one user: a quarter of what the eBPF program has for everybody.
const MASKS_PER_USER_MAX: usize = 16;
/// The same of all users together. The others are the host's: six for each version of IP, for
/// messages, and for what it answers and puts together at an address that it gets later.
const MASKS_MAX: usize = 64 - 2 * 6;

/// Which bits of a digest a pattern is about.
type Mask = [u64; 8];

/// What a NIC is asked for, for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// The frames that are the interface's.
    pub patterns: Vec<SteerPattern>,
    /// Those of which it has copies.
    pub copies: Vec<SteerPattern>,
    /// An Ethernet address besides the NIC's own.
    pub mac: Option<MacAddress>,
    /// What the kernel sends to that, too.
    pub of_kernel: bool,
}

/// What a NIC that was opened again does not give any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// A port of the kernel's.
    Port(HostPort),
    /// An Ethernet address besides the NIC's own.
    Mac(MacAddress),
    /// Frames.
    Pattern(SteerPattern),
    /// Copies of frames.
    Copies(SteerPattern),
}

/// What users' interfaces have been given on a NIC.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    users: HashMap<u32, Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// How many interfaces are about each port.
    ports: Counts<HostPort>,
    /// How many patterns there are of each mask.
    masks: Counts<Mask>,
}

/// How many times each key is held.
#[derive(Debug)]
struct Counts<K>(HashMap<K, usize>);

impl Holdings {
    /// Counts the ports of an interface in, if `user` may have them besides.
    pub(crate) fn take_ports(
        &mut self,
        user: u32,
        ports: &HashSet<HostPort>,
        ports_max: usize,
    ) -> Result<(), Refusal> {
        let held = self.users.get(&user);
        let is_new = |port: &&HostPort| held.is_none_or(|held| !held.ports.has(port));
        let there = held.map_or(0, |held| held.ports.0.len());
        if there + ports.iter().filter(is_new).count() > ports_max {
            let what = "ports of the host's addresses for one user";
            return Err(limit_reached(what, "ports_per_user", ports_max as u64));
        }
        self.change(user, |held| held.ports.add(ports.iter().copied()));
        Ok(())
    }

    /// Counts the patterns of an interface in, if `user` may have them besides.
    pub(crate) fn take_masks(&mut self, user: u32, wanted: &Steered) -> Result<(), Refusal> {
        let with_those_of = |held: &mut dyn Iterator<Item = &Held>| {
            let there = held.flat_map(|held| held.masks.0.keys().copied());
            there.chain(wanted.masks()).collect::<HashSet<Mask>>().len()
        };
        let of_user = with_those_of(&mut self.users.get(&user).into_iter());
        for (of_whom, count, max) in [
            ("one user", of_user, MASKS_PER_USER_MAX),
            ("all users", with_those_of(&mut self.users.values()), MASKS_MAX),
        ] {
            if count > max {
                return Err(too_many_masks(of_whom, max));
            }
        }
        self.change(user, |held| held.masks.add(wanted.masks()));
        Ok(())
    }

    pub(crate) fn give_ports_back(&mut self, user: u32, ports: &HashSet<HostPort>) {
        self.change(user, |held| held.ports.remove(ports.iter().copied()));
    }

    pub(crate) fn give_masks_back(&mut self, user: u32, steered: &Steered) {
        self.change(user, |held| held.masks.remove(steered.masks()));
    }

    /// Who holds nothing is forgotten, so that the table is as large as its use.
    fn change(&mut self, user: u32, change: impl FnOnce(&mut Held)) {
        let mut entry = match self.users.entry(user) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert_entry(Held::default()),
        };
        change(entry.get_mut());
        if entry.get().ports.0.is_empty() && entry.get().masks.0.is_empty() {
            entry.remove();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

fn too_many_masks(of_whom: &str, max: usize) -> Refusal {
    let message = format!(
        "the interfaces of {of_whom} are about at most {max} kinds of patterns (prefixes of \
         different lengths are different kinds); close some, or use a wider pattern that covers \
         several"
    );
    Refusal { code: Code::Limit, message }
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Counts<K> {
    fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    fn add(&mut self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| *self.0.entry(key).or_default() += 1);
    }

    fn remove(&mut self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            if let Entry::Occupied(mut count) = self.0.entry(key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

impl Steered {
    /// What goes with a grant.
    pub(crate) fn of(grant: &Grant) -> Result<Self, Error> {
        let questions: Vec<Filter> = grant.address.into_iter().flat_map(questions).collect();
        Ok(Self {
            patterns: patterns(grant.receive.iter().chain(&questions))?,
            copies: patterns(&grant.copies)?,
            mac: grant.has_own_mac.then_some(grant.mac),
            of_kernel: grant.is_kernels_neighbour,
        })
    }

    fn masks(&self) -> impl Iterator<Item = Mask> {
        self.patterns.iter().map(|pattern| *pattern.mask())
    }
}

fn patterns<'a>(filters: impl IntoIterator<Item = &'a Filter>) -> Result<Vec<SteerPattern>, Error> {
    filters.into_iter().flat_map(Filter::patterns).map(steer_pattern).collect()
}

/// What a machine with this address has to hear to be found: ARP requests (RFC 826), neighbour
/// solicitations (RFC 4861, section 7.2.2: to the solicited-node multicast address).
fn questions(address: IpAddr) -> Option<Filter> {
    let text = match address {
        IpAddr::V4(address) => {
            format!("vlan optional and ether broadcast and arp target {address}")
        }
        IpAddr::V6(address) => {
            format!("vlan optional and dst host {}", ipv6::solicited_node(address))
        }
    };
    text.parse().ok()
}

/// The NIC's patterns have a word more than those of crate classify: the digest's last, for which
/// nobody asks.
fn steer_pattern(pattern: Pattern) -> Result<SteerPattern, Error> {
    let padded = |words: &[u64]| std::array::from_fn(|word| words.get(word).copied().unwrap_or(0));
    SteerPattern::new(padded(pattern.mask()), padded(pattern.value()))
}
