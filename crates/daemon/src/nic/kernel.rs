//! A NIC that is a kernel interface: AF_XDP, else AF_PACKET.

use clearway_engine::interface;
use clearway_nic::af_xdp::{self, Mode};
use clearway_nic::interface::{Device, Steering};
use clearway_nic::{Error, Queue};

use super::{OpenNic, gateways};
use crate::config::{Interface, InterfaceDriver, Nic, XdpMode};

pub(super) fn open(nic: &Nic, kernel: &Interface, udp_port: u16) -> Result<OpenNic, Error> {
    let (queues, mut steering) = open_queues(kernel)?;
    let device = Device::open(&kernel.name)?;
    let capabilities = queues.first().map(|queue| queue.capabilities());
    let addresses: Vec<_> = nic.addresses.iter().map(|n| (n.address, n.prefix_bits)).collect();
    for (address, _) in &addresses {
        steering.register_udp_port(Some(*address), udp_port)?;
    }
    let (gateway_v4, gateway_v6) = gateways(&nic.gateways);
    let interface = interface::Config {
        mac: device.mac()?,
        addresses,
        gateway_v4,
        gateway_v6,
        vlan: nic.vlan,
        mtu: mtu(nic, &device)?,
        kernel_shares: capabilities.is_some_and(|capabilities| capabilities.kernel_shares),
        receive_checksum: capabilities.is_some_and(|capabilities| capabilities.receive_checksum),
    };
    Ok(OpenNic { queues, interface, steering: Some(steering), resolver: None })
}

type Opened = (Vec<Box<dyn Queue>>, Box<dyn Steering>);

fn open_queues(kernel: &Interface) -> Result<Opened, Error> {
    let config = af_xdp::Config {
        queues: kernel.queues.map(|queues| queues as u16),
        mode: match kernel.mode {
            XdpMode::Auto => Mode::Auto,
            XdpMode::ZeroCopy => Mode::ZeroCopy,
            XdpMode::Copy => Mode::Copy,
            XdpMode::Generic => Mode::Generic,
        },
        ..af_xdp::Config::new(&kernel.name)
    };
    let _ = InterfaceDriver::Auto;
    let (queues, steering) = af_xdp::open(&config)?;
    Ok((queues, Box::new(steering)))
}

fn mtu(nic: &Nic, device: &Device) -> Result<u16, Error> {
    let of_device = device.mtu()?.min(usize::from(u16::MAX)) as u16;
    match nic.mtu_bytes {
        Some(wanted) if wanted > of_device => Err(Error::Invalid(format!(
            "mtu_bytes = {wanted} is more than the MTU {of_device} of {0}; lower it, or raise that \
             of the interface: ip link set {0} mtu {wanted}",
            device.name()
        ))),
        Some(wanted) => Ok(wanted),
        None => Ok(of_device),
    }
}
