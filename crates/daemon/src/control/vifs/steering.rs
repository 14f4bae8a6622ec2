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

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use clearway_classify::{Clause, Filter, Pattern, Ports};
use clearway_nic::interface::{Protocol, SteerPattern};
use clearway_nic::{Error, MacAddress};
use clearway_wire::digest::{Network, fields};
use clearway_wire::{ipv6, protocol};

use super::super::nics::NicSlot;
use super::super::requests::refusal;
use crate::policy::Grant;

/// Each port that is claimed takes a descriptor.
const CLAIMS_MAX: usize = 256;

/// What the NIC was asked for.
#[derive(Debug, Default)]
pub(super) struct Steered {
    patterns: Vec<SteerPattern>,
    copies: Vec<SteerPattern>,
    ports: Vec<(Protocol, IpAddr, u16)>,
    mac: Option<MacAddress>,
}

impl NicSlot {
    /// Steers the frames of an interface to the engines: all of them or, with a refusal, none.
    pub(super) fn steer(&mut self, number: u32) -> Result<(), Refusal> {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return Ok(()) };
        let (Some(steering), Some(grant)) = (&mut self.steering, &vif.grant) else { return Ok(()) };
        let mut steer = || {
            if grant.has_own_mac {
                steering.add_mac(grant.mac)?;
                vif.steered.mac = Some(grant.mac);
            }
            for port in ports(grant)? {
                let (protocol, address, port) = port;
                steering.claim_port(protocol, address, port)?;
                vif.steered.ports.push((protocol, address, port));
            }
            for pattern in patterns(grant)? {
                steering.add_pattern(&pattern)?;
                vif.steered.patterns.push(pattern);
            }
            for pattern in all_patterns(&grant.copies)? {
                steering.add_copies(&pattern)?;
                vif.steered.copies.push(pattern);
            }
            Ok::<(), Error>(())
        };
        let result = steer();
        result.map_err(|error| {
            self.unsteer(number);
            refusal(Code::Refused, format!("the NIC cannot steer these frames here: {error}"))
        })
    }

    /// Gives the frames back to the kernel.
    pub(super) fn unsteer(&mut self, number: u32) {
        let Some(vif) = self.vifs.table.get_mut(&number) else { return };
        let Some(steering) = &mut self.steering else { return };
        let Steered { patterns, copies, ports, mac } = std::mem::take(&mut vif.steered);
        let mut undone = patterns.iter().try_for_each(|pattern| steering.remove_pattern(pattern));
        undone = undone.and(copies.iter().try_for_each(|copy| steering.remove_copies(copy)));
        for (protocol, address, port) in ports {
            steering.release_port(protocol, address, port);
        }
        if let Some(mac) = mac {
            undone = undone.and(steering.remove_mac(mac));
        }
        if let Err(error) = undone {
            tracing::warn!(nic = self.name, vif = number, %error, "cannot give frames back");
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
