//! The control side of a NIC that is shared with the kernel: which frames are ours.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::claim::{PortClaims, Protocol};
use super::membership::Memberships;
use super::{Device, SteerPattern};
use crate::ebpf::Turning;
use crate::{Error, MacAddress};

/// Says which frames go to the engines instead of the kernel. Lives on a control thread while the
/// queues live on engine threads; a change takes effect for all queues at once, without them,
/// between two frames.
pub trait Steering: Send {
    /// From now on the frames that `pattern` matches come to the queues. What is added twice has to
    /// be removed twice.
    fn add_pattern(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    /// Undoes [`Steering::add_pattern`] once. Not an error if it was not added.
    fn remove_pattern(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    /// From now on copies come of those frames that `pattern` matches, that are to all or to a
    /// group, and that nobody has asked for by [`Steering::add_pattern`]: these go on to the kernel
    /// as well. What is added twice has to be removed twice.
    fn add_copies(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    /// Undoes [`Steering::add_copies`] once. Not an error if it was not added.
    fn remove_copies(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    /// From now on UDP to `port` comes to the queues: to one address, or with `None` to any, the
    /// kernel's own included. That is a pattern, and a claim that keeps the port from other
    /// programs on this host; refused if one has bound it. Registering twice is the same as once.
    fn register_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error>;

    /// Gives the port back to the kernel. Not an error if it was not registered.
    fn unregister_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error>;

    /// Keeps `port` of `address` from the kernel's programs; refused if one has it. For whoever is
    /// given its frames by [`Steering::add_pattern`]. What is claimed twice has to be released
    /// twice.
    fn claim_port(&mut self, protocol: Protocol, address: IpAddr, port: u16) -> Result<(), Error>;

    /// Undoes [`Steering::claim_port`] once. Not an error if it was not claimed.
    fn release_port(&mut self, protocol: Protocol, address: IpAddr, port: u16);

    /// Makes `address` one of ours and not the kernel's: ARP, NDP and ICMP for it come to the
    /// queues, and the engine must answer them. Adding twice is the same as once.
    fn add_own_address(&mut self, address: IpAddr) -> Result<(), Error>;

    /// Has copies come of the ICMP errors to `address`, which the kernel keeps: they go on to it as
    /// well. Not where there is no queue for copies. Adding twice is the same as once.
    fn add_shared_address(&mut self, address: IpAddr) -> Result<(), Error>;

    /// Undoes [`Steering::add_own_address`] or [`Steering::add_shared_address`]. Not an error if it
    /// was not added.
    fn remove_address(&mut self, address: IpAddr) -> Result<(), Error>;

    /// Lets the NIC accept frames to `mac` besides those to its own address and, if so, has those
    /// that the kernel itself sends there come in as well, where queues reach it
    /// ([`Capabilities::reaches_kernel`](crate::Capabilities)). Whose they are, patterns say.
    /// Adding twice is the same as once.
    fn add_mac(&mut self, mac: MacAddress, of_kernel: bool) -> Result<(), Error>;

    /// Undoes [`Steering::add_mac`]. Not an error if it was not added.
    fn remove_mac(&mut self, mac: MacAddress) -> Result<(), Error>;

    /// What became of received frames so far, where somebody counts.
    fn steered(&self) -> Option<Steered> {
        None
    }
}

/// What became of received frames so far, over all queues and CPUs. The order of the fields is
/// that of `enum reason` in steer.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    /// Ours: given to the socket of its queue.
    pub redirected: u64,
    /// Left to the kernel: too short for what it claims to be, or with a way of its own.
    pub passed_malformed: u64,
    /// Left to the kernel: a fragment.
    pub passed_fragment: u64,
    /// Left to the kernel: any other.
    pub passed_other: u64,
    /// Ours, by a packet socket: super-frames, and packets whose checksum is still to be made.
    pub passed_unfinished: u64,
}

/// Where a driver keeps the patterns. Each is there at most once.
pub(crate) trait PatternTable: Send {
    /// Adds a pattern that is not there, or leaves everything as it was.
    fn insert(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    /// Removes a pattern that is there, or leaves everything as it was.
    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error>;

    fn steered(&self) -> Option<Steered>;
}

/// Tables of the same patterns, which may be wanted several times.
struct Patterns {
    /// In the order in which a pattern is added; it is removed in the other.
    tables: Vec<Box<dyn PatternTable>>,
    /// How often each pattern was added.
    owners: HashMap<SteerPattern, usize>,
}

/// Steering of a kernel interface: patterns for the driver, and what has to be asked of the kernel
/// along with them.
pub struct KernelSteering {
    patterns: Patterns,
    /// Of the socket that gets copies, where that is not the one that gets everything.
    copies: Option<Patterns>,
    /// Of registered UDP ports, and of ports that others have claimed.
    claims: PortClaims,
    tcp_claims: PortClaims,
    /// How often each port was claimed.
    claimed: HashMap<(Protocol, IpAddr, u16), usize>,
    memberships: Memberships,
    own_addresses: BTreeSet<IpAddr>,
    shared_addresses: BTreeSet<IpAddr>,
    macs: BTreeSet<MacAddress>,
    /// Brings what the kernel sends to these.
    turning: Option<Turning>,
}

impl KernelSteering {
    /// Steering of nothing yet. The calling thread is in the network namespace of `device`.
    pub(crate) fn new(table: Box<dyn PatternTable>, device: Device) -> Result<Self, Error> {
        let device = Arc::new(device);
        Ok(KernelSteering {
            patterns: Patterns::new(table),
            copies: None,
            memberships: Memberships::new(&device)?,
            tcp_claims: PortClaims::new(Arc::clone(&device), Protocol::Tcp),
            claims: PortClaims::new(device, Protocol::Udp),
            claimed: HashMap::new(),
            own_addresses: BTreeSet::new(),
            shared_addresses: BTreeSet::new(),
            macs: BTreeSet::new(),
            turning: None,
        })
    }

    /// Has what the kernel sends to Ethernet addresses of virtual interfaces come in again.
    pub(crate) fn turn_by(&mut self, turning: Turning) {
        self.turning = Some(turning);
    }

    /// Has frames come by this table's queue, or go by it, before that of the tables so far.
    pub(crate) fn go_first_by(&mut self, table: Box<dyn PatternTable>) {
        self.patterns.tables.insert(0, table);
    }

    /// Has copies come to the queue of this table instead of the one that gets everything.
    pub(crate) fn set_copies(&mut self, table: Box<dyn PatternTable>) {
        self.copies = Some(Patterns::new(table));
    }

    fn claims_of(&mut self, protocol: Protocol) -> &mut PortClaims {
        match protocol {
            Protocol::Udp => &mut self.claims,
            Protocol::Tcp => &mut self.tcp_claims,
        }
    }
}

impl Patterns {
    fn new(table: Box<dyn PatternTable>) -> Self {
        Self { tables: vec![table], owners: HashMap::new() }
    }

    /// True if it was added, and not removed as often.
    fn contains(&self, pattern: &SteerPattern) -> bool {
        self.owners.contains_key(pattern)
    }

    fn add(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        if let Some(owners) = self.owners.get_mut(pattern) {
            *owners += 1;
            return Ok(());
        }
        for index in 0..self.tables.len() {
            self.tables[index].insert(pattern).inspect_err(|_| {
                // The first error is the one to tell.
                let before = self.tables[..index].iter_mut().rev();
                before.for_each(|table| _ = table.remove(pattern));
            })?;
        }
        self.owners.insert(*pattern, 1);
        Ok(())
    }

    fn remove(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        match self.owners.get_mut(pattern) {
            None => Ok(()),
            Some(1) => {
                for index in (0..self.tables.len()).rev() {
                    self.tables[index].remove(pattern).inspect_err(|_| {
                        let after = self.tables[index + 1..].iter_mut();
                        after.for_each(|table| _ = table.insert(pattern));
                    })?;
                }
                self.owners.remove(pattern);
                Ok(())
            }
            Some(owners) => {
                *owners -= 1;
                Ok(())
            }
        }
    }

    /// Adds all patterns or none.
    fn add_all(&mut self, patterns: &[SteerPattern]) -> Result<(), Error> {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(error) = self.add(pattern) {
                // The first error is the one to tell.
                let _ = self.remove_all(&patterns[..index]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes as many as can be; the first error is the one to tell.
    fn remove_all(&mut self, patterns: &[SteerPattern]) -> Result<(), Error> {
        let removed = patterns.iter().map(|pattern| self.remove(pattern));
        removed.fold(Ok(()), Result::and)
    }
}

impl Steering for KernelSteering {
    fn add_pattern(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.add(pattern)
    }

    fn remove_pattern(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        self.patterns.remove(pattern)
    }

    fn add_copies(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        let Some(pattern) = pattern.to_groups() else { return Ok(()) };
        let group = pattern.group();
        if let Some(group) = group {
            self.memberships.join(group)?;
        }
        self.copies.as_mut().unwrap_or(&mut self.patterns).add(&pattern).inspect_err(|_| {
            if let Some(group) = group {
                self.memberships.leave(group);
            }
        })
    }

    fn remove_copies(&mut self, pattern: &SteerPattern) -> Result<(), Error> {
        let Some(pattern) = pattern.to_groups() else { return Ok(()) };
        let copies = self.copies.as_mut().unwrap_or(&mut self.patterns);
        if !copies.contains(&pattern) {
            return Ok(()); // others may be in its group
        }
        copies.remove(&pattern)?;
        if let Some(group) = pattern.group() {
            self.memberships.leave(group);
        }
        Ok(())
    }

    fn register_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error> {
        if self.claims.contains((address, port)) {
            return Ok(());
        }
        // First the claim: when frames come to us, the kernel must already be silent.
        self.claims.add((address, port))?;
        self.add_pattern(&SteerPattern::udp(address, port))
            .inspect_err(|_| self.claims.remove((address, port)))
    }

    fn unregister_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error> {
        if !self.claims.contains((address, port)) {
            return Ok(());
        }
        self.remove_pattern(&SteerPattern::udp(address, port))?;
        self.claims.remove((address, port));
        Ok(())
    }

    fn claim_port(&mut self, protocol: Protocol, address: IpAddr, port: u16) -> Result<(), Error> {
        if !self.claimed.contains_key(&(protocol, address, port)) {
            self.claims_of(protocol).add((Some(address), port))?;
        }
        *self.claimed.entry((protocol, address, port)).or_default() += 1;
        Ok(())
    }

    fn release_port(&mut self, protocol: Protocol, address: IpAddr, port: u16) {
        let key = (protocol, address, port);
        match self.claimed.get_mut(&key) {
            None => {}
            Some(1) => {
                self.claimed.remove(&key);
                self.claims_of(protocol).remove((Some(address), port));
            }
            Some(count) => *count -= 1,
        }
    }

    fn add_own_address(&mut self, address: IpAddr) -> Result<(), Error> {
        if self.own_addresses.contains(&address) {
            return Ok(());
        }
        self.memberships.join_for(address)?;
        let patterns = SteerPattern::of_own(address);
        self.patterns.add_all(&patterns).inspect_err(|_| self.memberships.leave_for(address))?;
        self.own_addresses.insert(address);
        Ok(())
    }

    fn add_shared_address(&mut self, address: IpAddr) -> Result<(), Error> {
        let Some(copies) = &mut self.copies else { return Ok(()) };
        if !self.shared_addresses.contains(&address) {
            copies.add_all(&SteerPattern::undelivered(address))?;
            self.shared_addresses.insert(address);
        }
        Ok(())
    }

    fn remove_address(&mut self, address: IpAddr) -> Result<(), Error> {
        if self.own_addresses.remove(&address) {
            self.memberships.leave_for(address);
            return self.patterns.remove_all(&SteerPattern::of_own(address));
        }
        match &mut self.copies {
            Some(copies) if self.shared_addresses.remove(&address) => {
                copies.remove_all(&SteerPattern::undelivered(address))
            }
            _ => Ok(()),
        }
    }

    fn add_mac(&mut self, mac: MacAddress, of_kernel: bool) -> Result<(), Error> {
        if !self.macs.contains(&mac) {
            self.memberships.add_mac(mac)?;
            if let Some(turning) = self.turning.as_mut().filter(|_| of_kernel) {
                turning.add(mac).inspect_err(|_| self.memberships.remove_mac(mac))?;
            }
            self.macs.insert(mac);
        }
        Ok(())
    }

    fn remove_mac(&mut self, mac: MacAddress) -> Result<(), Error> {
        if self.macs.remove(&mac) {
            if let Some(turning) = &mut self.turning {
                turning.remove(mac);
            }
            self.memberships.remove_mac(mac);
        }
        Ok(())
    }

    fn steered(&self) -> Option<Steered> {
        self.patterns.tables.iter().find_map(|table| table.steered())
    }
}
