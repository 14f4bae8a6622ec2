//! The control side of a NIC that is shared with the kernel: which frames are ours.

use std::net::IpAddr;

use crate::Error;

/// Says which frames go to the engines instead of the kernel. Lives on a control thread while the
/// queues live on engine threads; a change takes effect for all queues at once, without them.
pub trait Steering: Send {
    /// From now on UDP to `port` comes to the queues: to one address, or with `None` to any, the
    /// kernel's own included. Refused if another program on this host has bound the port.
    /// Registering twice is the same as once.
    fn register_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error>;

    /// Gives the port back to the kernel. Not an error if it was not registered.
    fn unregister_udp_port(&mut self, address: Option<IpAddr>, port: u16) -> Result<(), Error>;

    /// Makes `address` one of ours and not the kernel's: ARP, NDP and ICMP for it come to the
    /// queues, and the engine must answer them.
    fn add_own_address(&mut self, address: IpAddr) -> Result<(), Error>;

    /// Undoes [`Steering::add_own_address`]. Not an error if it was not added.
    fn remove_own_address(&mut self, address: IpAddr) -> Result<(), Error>;

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
    /// Left to the kernel: too short for what it claims to be.
    pub passed_malformed: u64,
    /// Left to the kernel: an IPv4 fragment.
    pub passed_fragment: u64,
    /// Left to the kernel: UDP, ARP, NDP or ICMP for something that is not registered.
    pub passed_unregistered: u64,
    /// Left to the kernel: any other protocol.
    pub passed_other: u64,
}
