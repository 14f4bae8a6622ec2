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
}
