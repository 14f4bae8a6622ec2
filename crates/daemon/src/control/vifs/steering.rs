//! Having the NIC give an interface its frames.
//!
//! Over memif everything comes anyway. A NIC that the kernel shares gives us what a pattern asks for and
//! leaves everything else to the kernel; what it gives us, the kernel does not see. Copies are of frames that
//! are somebody else's: of what comes in any case, and of what goes to the kernel if it is to all or to a
//! group, for which there is a packet socket beside the queues. Nobody gets copies of what is to the kernel
//! alone. A machine on the LAN is asked for its address by broadcast and multicast, too.
//!
//! A port of an address of the kernel's is taken from the kernel's programs before its frames are, or is
//! refused because one of them has it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Clause, Filter, Pattern, Ports};
use clearway_nic::interface::{Protocol, SteerPattern, Steering};
use clearway_nic::{Error, MacAddress};
use clearway_wire::digest::{Network, fields};
use clearway_wire::{ipv6, protocol};

use super::super::nics::NicSlot;
use super::super::requests::refusal;
use crate::policy::{Grant, limit_reached};

/// Each port that is claimed takes a descriptor.
const CLAIMS_MAX: usize = 256;

/// A quarter of what the eBPF program has for everybody.
const MASKS_PER_USER_MAX: usize = 16;

/// Which bits of a digest a pattern is about.
type Mask = [u64; 8];

/// What the NIC was asked for.
#[derive(Debug, Default)]
pub(super) struct Steered {
    patterns: Vec<SteerPattern>,
    copies: Vec<SteerPattern>,
    ports: Vec<(Protocol, IpAddr, u16)>,
    mac: Option<MacAddress>,
}

/// What one user's interfaces have been given.
#[derive(Debug, Default)]
pub(super) struct Held {
    ports: usize,
    /// How many patterns there are of each mask.
    masks: HashMap<Mask, usize>,
}

impl Held {
    /// Nothing if the user may have `wanted` besides.
    fn admit(&self, wanted: &Steered, ports_max: usize) -> Result<(), Refusal> {
        if self.ports + wanted.ports.len() > ports_max {
            let what = "ports of the kernel's addresses for one user";
            return Err(limit_reached(what, "ports_per_user", ports_max as u64));
        }
        let new: HashSet<Mask> =
            wanted.masks().filter(|mask| !self.masks.contains_key(mask)).collect();
        if self.masks.len() + new.len() > MASKS_PER_USER_MAX {
            let text = format!(
                "the interfaces of one user are about at most {MASKS_PER_USER_MAX} kinds of patterns \
                 (prefixes of different lengths are different kinds); close some, or use a wider \
                 pattern that covers several"
            );
            return Err(refusal(Code::Limit, text));
        }
        Ok(())
    }

    fn enter(&mut self, steered: &Steered) {
        self.ports += steered.ports.len();
        for mask in steered.masks() {
            *self.masks.entry(mask).or_default() += 1;
        }
    }

    /// True if nothing is left.
    fn leave(&mut self, steered: &Steered) -> bool {
        self.ports -= steered.ports.len();
        for mask in steered.masks() {
            if let Entry::Occupied(mut count) = self.masks.entry(mask) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        self.ports == 0 && self.masks.is_empty()
    }
}

impl Steered {
    fn of(grant: &Grant) -> Result<Self, Error> {
        let mac = grant.has_own_mac.then_some(grant.mac);
        let (patterns, copies) = (patterns(grant)?, all_patterns(&grant.copies)?);
        Ok(Self { patterns, copies, ports: ports(grant)?, mac })
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
        for &(protocol, address, port) in &self.ports {
            steering.claim_port(protocol, address, port)?;
            done.ports.push((protocol, address, port));
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
        for &(protocol, address, port) in &self.ports {
            steering.release_port(protocol, address, port);
        }
        if let Some(mac) = self.mac {
            steering.remove_mac(mac).unwrap_or_else(warn);
        }
    }
}

impl NicSlot {
    /// Steers the frames of an interface to the engines: all of them or, with a refusal, none.
    pub(super) fn steer(&mut self, number: u32, ports_max: usize) -> Result<(), Refusal> {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return Ok(()) };
        let (Some(steering), Some(grant)) = (&mut self.steering, &vif.grant) else { return Ok(()) };
        let cannot = |error: Error| {
            refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
        };
        let wanted = Steered::of(grant).map_err(cannot)?;
        let nothing = Held::default();
        self.vifs.held.get(&vif.user).unwrap_or(&nothing).admit(&wanted, ports_max)?;
        wanted.steer(steering.as_mut()).map_err(cannot)?;
        self.vifs.held.entry(vif.user).or_default().enter(&wanted);
        vif.steered = wanted;
        Ok(())
    }

    /// Gives the frames back to the kernel.
    pub(super) fn unsteer(&mut self, number: u32) {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return };
        let Some(steering) = &mut self.steering else { return };
        let steered = std::mem::take(&mut vif.steered);
        steered.unsteer(steering.as_mut());
        if let Entry::Occupied(mut held) = self.vifs.held.entry(vif.user)
            && held.get_mut().leave(&steered)
        {
            held.remove();
        }
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

/// The ports that the kernel's programs might have as well. A filter that names no port is one that a
/// rule of the policy allows in so many words.
fn ports(grant: &Grant) -> Result<Vec<(Protocol, IpAddr, u16)>, Error> {
    let mut ports = Vec::new();
    if grant.has_own_mac {
        return Ok(ports);
    }
    for clause in grant.receive.iter().flat_map(Filter::clauses) {
        let (Some(protocol), Some(address)) = (protocol_of(clause), destination_of(clause)) else {
            continue;
        };
        let range = ports_of(clause);
        if range.is_empty() {
            continue;
        }
        if ports.len() + range.len() > CLAIMS_MAX {
            return Err(Error::Invalid(format!(
                "more than {CLAIMS_MAX} ports of an address that the kernel has; ask for fewer, or for an \
                 address of its own"
            )));
        }
        ports.extend(range.map(|port| (protocol, address, port)));
    }
    Ok(ports)
}

fn protocol_of(clause: &Clause) -> Option<Protocol> {
    match clause.pattern().field(fields::PROTOCOL) {
        (0xff, number) if number == u64::from(protocol::UDP) => Some(Protocol::Udp),
        (0xff, number) if number == u64::from(protocol::TCP) => Some(Protocol::Tcp),
        _ => None,
    }
}

/// The one address that the clause is about.
fn destination_of(clause: &Clause) -> Option<IpAddr> {
    const IS_SAID: u64 = fields::NETWORK.max();
    let pattern = clause.pattern();
    match pattern.field(fields::NETWORK) {
        (IS_SAID, network) if network == Network::Ipv4 as u64 => {
            match pattern.field(fields::IPV4_DESTINATION) {
                (0xffff_ffff, address) => Some(Ipv4Addr::from_bits(address as u32).into()),
                _ => None,
            }
        }
        (IS_SAID, network) if network == Network::Ipv6 as u64 => {
            let high = pattern.field(fields::IPV6_DESTINATION_HIGH);
            let low = pattern.field(fields::IPV6_DESTINATION_LOW);
            let address = u128::from(high.1) << 64 | u128::from(low.1);
            ((high.0, low.0) == (u64::MAX, u64::MAX)).then(|| Ipv6Addr::from_bits(address).into())
        }
        _ => None,
    }
}

/// The destination ports that the clause names; none if it is about all of them.
fn ports_of(clause: &Clause) -> RangeInclusive<u16> {
    let (mask, value) = clause.pattern().field(fields::DESTINATION_PORT);
    let prefix = Ports::of_prefix(mask as u16, value as u16);
    let ports = match (mask, prefix) {
        (0, _) | (_, None) => clause.destination_ports(),
        (_, Some(prefix)) => prefix,
    };
    if ports == Ports::ANY { RangeInclusive::new(1, 0) } else { ports.first()..=ports.last() }
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
