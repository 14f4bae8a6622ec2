//! From a `[[nic]]` section to open queues and what the engine has to know about them.
//!
//! The drivers are crate `clearway_nic`'s; here is only which one, with what, and in which order
//! they are tried.

mod dpdk;
mod follower;
mod kernel;
mod memif;
mod tap;
mod udp;

use std::net::IpAddr;

use clearway_engine::ip;
use clearway_nic::interface::{Device, Neighbours, Steering};
use clearway_nic::{Error, MacAddress, Queue};

use crate::config::{Driver, Nic};
use crate::opener::Means;
pub(crate) use dpdk::is_built_in as dpdk_is_built_in;
pub(crate) use follower::{Follower, are_of_kernel};
pub(crate) use tap::{attach, refuse_addresses_of_kernel};
pub(crate) use udp::mtu_of as mtu_of_udp;

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

/// The interface of a NIC, if nobody can send through it.
pub(crate) fn missing_interface(nic: &Nic) -> Option<&str> {
    let Driver::Interface(interface) = &nic.driver else { return None };
    let is_up = Device::open(&interface.name).is_ok_and(|device| device.is_up().unwrap_or(false));
    (!is_up).then_some(&interface.name)
}

/// Whether frames come to a NIC only if it is asked for them; and why it carries messages only, if
/// it does.
pub(crate) fn kind(driver: &Driver) -> (bool, Option<&'static str>) {
    match driver {
        Driver::Interface(_) => (true, None),
        Driver::Udp => (false, Some(udp::ONLY_MESSAGES)),
        Driver::Memif(_) | Driver::Dpdk(_) | Driver::Tap(_) => (false, None),
    }
}

/// Who takes all packets of a NIC, whatever their next hop.
pub(crate) fn router(driver: &Driver) -> Option<MacAddress> {
    matches!(driver, Driver::Udp).then_some(clearway_nic::udp::ROUTER_MAC)
}

/// A locally administered address (IEEE 802, section 8.2) made of the host's first IP address:
/// unique on the link as that is, and the same after a restart.
fn default_mac(nic: &Nic) -> MacAddress {
    match nic.addresses.first().map(|network| network.address) {
        Some(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            [0x02, 0, a, b, c, d]
        }
        Some(IpAddr::V6(address)) => {
            let [.., a, b, c, d] = address.octets();
            [0x02, 1, a, b, c, d]
        }
        None => [0x02, 2, 0, 0, 0, 0],
    }
}

/// Opens a NIC and has packets to `udp_port` steered to it: a queue for each of its engines, or
/// more.
pub(crate) fn open(nic: &Nic, udp_port: u16, means: &Means) -> Result<OpenNic, Error> {
    let opened = match &nic.driver {
        Driver::Memif(link) => memif::open(nic, link, means),
        Driver::Dpdk(device) => dpdk::open(nic, device),
        Driver::Interface(interface) => kernel::open(nic, interface, udp_port, means),
        Driver::Udp => udp::open(nic, udp_port),
        Driver::Tap(device) => tap::open(nic, device, means),
    }?;
    if opened.queues.len() < nic.engines {
        return Err(Error::Invalid(format!(
            "{} engines need a queue each, and there are {}; lower `engines`, or give the \
             interface more queues with `ethtool -L`",
            nic.engines,
            opened.queues.len()
        )));
    }
    Ok(opened)
}
