//! Having the NIC give an interface its frames.
//!
//! Over memif everything comes anyway. A NIC that the kernel shares gives us what a pattern asks
//! for and leaves everything else to the kernel; what it gives us, the kernel does not see. Copies
//! are of frames that are somebody else's: of what comes in any case, and of what goes to the
//! kernel if it is to all or to a group, for which there is a packet socket beside the queues.
//! Nobody gets copies of what is to the kernel alone. A machine on the LAN is asked for its address
//! by broadcast and multicast, too.
//!
//! A port of an address of the kernel's is taken from the kernel's programs before the engines hear
//! of the interface, be it for receiving or for sending; or it is refused because one of them has
//! it.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Filter, Pattern};
use clearway_control::policy::{Grant, HostPort, limit_reached};
use clearway_nic::interface::{SteerPattern, Steering};
use clearway_nic::{Error, MacAddress};
use clearway_wire::ipv6;

use super::super::nics::NicSlot;
use super::super::requests::refusal;
use super::Granted;

/// Kinds of patterns of one user: a quarter of what the eBPF program has for everybody.
const MASKS_PER_USER_MAX: usize = 16;
/// The same of all users together. The others are the host's: four for each version of IP, for
/// messages and for what it answers at an address that it gets later.
const MASKS_MAX: usize = 64 - 2 * 4;

/// Which bits of a digest a pattern is about.
type Mask = [u64; 8];

/// What the NIC was asked for.
#[derive(Debug, Default)]
pub(super) struct Steered {
    patterns: Vec<SteerPattern>,
    copies: Vec<SteerPattern>,
    mac: Option<MacAddress>,
}

/// What one user's interfaces have been given.
#[derive(Debug, Default)]
pub(in crate::control) struct Held {
    /// How many interfaces are about each port.
    ports: HashMap<HostPort, usize>,
    /// How many patterns there are of each mask.
    masks: HashMap<Mask, usize>,
}

impl Held {
    /// Nothing if the user may have these `ports` besides.
    fn admit_ports(&self, ports: &HashSet<HostPort>, ports_max: usize) -> Result<(), Refusal> {
        let new = ports.iter().filter(|port| !self.ports.contains_key(port)).count();
        if self.ports.len() + new > ports_max {
            let what = "ports of the host's addresses for one user";
            return Err(limit_reached(what, "ports_per_user", ports_max as u64));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.masks.is_empty()
    }
}

/// Nothing if `user` may have the patterns of `wanted` besides.
fn admit_masks(held: &HashMap<u32, Held>, user: u32, wanted: &Steered) -> Result<(), Refusal> {
    let with_those_of = |held: &mut dyn Iterator<Item = &Held>| {
        let there = held.flat_map(|held| held.masks.keys().copied());
        there.chain(wanted.masks()).collect::<HashSet<Mask>>().len()
    };
    let of_user = with_those_of(&mut held.get(&user).into_iter());
    for (of_whom, count, max) in [
        ("one user", of_user, MASKS_PER_USER_MAX),
        ("all users", with_those_of(&mut held.values()), MASKS_MAX),
    ] {
        if count > max {
            let text = format!(
                "the interfaces of {of_whom} are about at most {max} kinds of patterns (prefixes \
                 of different lengths are different kinds); close some, or use a wider pattern \
                 that covers several"
            );
            return Err(refusal(Code::Limit, text));
        }
    }
    Ok(())
}

fn count_in<K: Eq + Hash>(counts: &mut HashMap<K, usize>, keys: impl IntoIterator<Item = K>) {
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
}

fn count_out<K: Eq + Hash>(counts: &mut HashMap<K, usize>, keys: impl IntoIterator<Item = K>) {
    for key in keys {
        if let Entry::Occupied(mut count) = counts.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Steered {
    fn of(grant: &Grant) -> Result<Self, Error> {
        let mac = grant.has_own_mac.then_some(grant.mac);
        let (patterns, copies) = (patterns(grant)?, all_patterns(&grant.copies)?);
        Ok(Self { patterns, copies, mac })
    }

    fn masks(&self) -> impl Iterator<Item = Mask> {
        self.patterns.iter().map(|pattern| *pattern.mask())
    }

    /// Asks for everything or, with an error, for nothing.
    fn steer(&self, steering: &mut dyn Steering) -> Result<(), Error> {
        let mut done = Self::default();
        self.steer_into(&mut done, steering).inspect_err(|_| done.unsteer(steering))
    }

    fn steer_into(&self, done: &mut Self, steering: &mut dyn Steering) -> Result<(), Error> {
        if let Some(mac) = self.mac {
            steering.add_mac(mac)?;
            done.mac = Some(mac);
        }
        for pattern in &self.patterns {
            steering.add_pattern(pattern)?;
            done.patterns.push(*pattern);
        }
        for pattern in &self.copies {
            steering.add_copies(pattern)?;
            done.copies.push(*pattern);
        }
        Ok(())
    }

    /// Gives back as much as can be, and says in the log what cannot.
    fn unsteer(&self, steering: &mut dyn Steering) {
        let warn = |error| tracing::warn!(%error, "cannot give frames back to the kernel");
        for pattern in &self.patterns {
            steering.remove_pattern(pattern).unwrap_or_else(warn);
        }
        for pattern in &self.copies {
            steering.remove_copies(pattern).unwrap_or_else(warn);
        }
        if let Some(mac) = self.mac {
            steering.remove_mac(mac).unwrap_or_else(warn);
        }
    }
}

impl NicSlot {
    /// Takes the ports that an interface is about from the kernel's programs: all of them or, with
    /// a refusal, none.
    pub(super) fn claim(&mut self, vif: &mut Granted, ports_max: usize) -> Result<(), Refusal> {
        let Some(grant) = &vif.grant else { return Ok(()) };
        let nothing = Held::default();
        let held = self.held.get(&vif.owner.user).unwrap_or(&nothing);
        held.admit_ports(&grant.ports, ports_max)?;
        if let Some(steering) = &mut self.steering {
            claim_all(steering.as_mut(), &grant.ports)?;
        }
        vif.claimed = grant.ports.clone();
        let held = self.held.entry(vif.owner.user).or_default();
        count_in(&mut held.ports, vif.claimed.iter().copied());
        Ok(())
    }

    /// Steers the frames of an interface to the engines: all of them or, with a refusal, none. Its
    /// ports have been claimed.
    pub(super) fn steer(&mut self, vif: &mut Granted) -> Result<(), Refusal> {
        let (Some(steering), Some(grant)) = (&mut self.steering, &vif.grant) else { return Ok(()) };
        let cannot = |error: Error| {
            refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
        };
        let wanted = Steered::of(grant).map_err(cannot)?;
        admit_masks(&self.held, vif.owner.user, &wanted)?;
        wanted.steer(steering.as_mut()).map_err(cannot)?;
        let held = self.held.entry(vif.owner.user).or_default();
        count_in(&mut held.masks, wanted.masks());
        vif.steered = wanted;
        Ok(())
    }

    /// Gives the frames of an interface back to the kernel.
    pub(super) fn unsteer(&mut self, vif: &mut Granted) {
        let steered = std::mem::take(&mut vif.steered);
        if let Some(steering) = &mut self.steering {
            steered.unsteer(steering.as_mut());
        }
        self.give_back(vif.owner.user, &steered, &HashSet::new());
    }

    /// Gives the ports of an interface back to the kernel's programs. No engine sends for it any
    /// more.
    pub(super) fn release(&mut self, vif: &mut Granted) {
        let claimed = std::mem::take(&mut vif.claimed);
        if let Some(steering) = &mut self.steering {
            release_all(steering.as_mut(), &claimed);
        }
        self.give_back(vif.owner.user, &Steered::default(), &claimed);
    }

    /// A user does not hold these any more.
    fn give_back(&mut self, user: u32, steered: &Steered, claimed: &HashSet<HostPort>) {
        if let Entry::Occupied(mut held) = self.held.entry(user) {
            count_out(&mut held.get_mut().masks, steered.masks());
            count_out(&mut held.get_mut().ports, claimed.iter().copied());
            if held.get().is_empty() {
                held.remove();
            }
        }
    }
}

fn claim_all(steering: &mut dyn Steering, ports: &HashSet<HostPort>) -> Result<(), Refusal> {
    let mut claimed = HashSet::new();
    for &(protocol, address, port) in ports {
        if let Err(error) = steering.claim_port(protocol, address, port) {
            release_all(steering, &claimed);
            let text = format!("the kernel's programs keep a port that is asked for: {error}");
            return Err(refusal(Code::Refused, text));
        }
        claimed.insert((protocol, address, port));
    }
    Ok(())
}

fn release_all(steering: &mut dyn Steering, ports: &HashSet<HostPort>) {
    for &(protocol, address, port) in ports {
        steering.release_port(protocol, address, port);
    }
}

fn patterns(grant: &Grant) -> Result<Vec<SteerPattern>, Error> {
    let questions: Vec<Filter> = grant.address.into_iter().flat_map(questions).collect();
    all_patterns(grant.receive.iter().chain(&questions))
}

fn all_patterns<'a>(
    filters: impl IntoIterator<Item = &'a Filter>,
) -> Result<Vec<SteerPattern>, Error> {
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
