//! From a `[[nic]]` section to open queues and what the engine has to know about them.
//!
//! The drivers are crate `clearway_nic`'s; here is only which one, with what, and in which order
//! they are tried.

mod dpdk;
mod follower;
mod kernel;
mod memif;
mod udp;

use std::sync::Arc;

use clearway_engine::ip;
use clearway_nic::interface::{Neighbours, Steering};
use clearway_nic::memif::Connect;
use clearway_nic::{Error, Queue};

use crate::config::{Driver, Nic};
pub(crate) use follower::Follower;

/// The largest IP packet where nothing else is said.
const MTU_BYTES_DEFAULT: u16 = 1500;

/// A NIC that is open.
pub(crate) struct OpenNic {
    pub(crate) queues: Vec<Box<dyn Queue>>,
    /// Where copies come of what goes to the kernel, if that is not the first of the queues.
    pub(crate) copies: Option<Box<dyn Queue>>,
    pub(crate) interface: ip::Config,
    pub(crate) kernel: KernelSide,
}

/// What the control plane keeps of a NIC that is a kernel interface.
#[derive(Default)]
pub(crate) struct KernelSide {
    /// Gives the frames back to the kernel when dropped.
    pub(crate) steering: Option<Box<dyn Steering>>,
    /// The kernel's neighbours, if it shares the NIC.
    pub(crate) neighbours: Option<Neighbours>,
    /// Tells what changes.
    pub(crate) follower: Option<Follower>,
    /// Why the NIC carries messages and nothing else, and what to do about it, if so.
    pub(crate) only_messages: Option<&'static str>,
}

/// Opens a NIC and has packets to `udp_port` steered to it. A memif client connects by `connector`,
/// if there is one.
pub(crate) fn open(
    nic: &Nic,
    udp_port: u16,
    connector: Option<Arc<dyn Connect>>,
) -> Result<OpenNic, Error> {
    match &nic.driver {
        Driver::Memif(link) => memif::open(nic, link, connector),
        Driver::Dpdk(device) => dpdk::open(nic, device),
        Driver::Interface(interface) => kernel::open(nic, interface, udp_port),
        Driver::Udp => udp::open(nic, udp_port),
    }
}
