//! A NIC that is a kernel interface: AF_XDP or AF_PACKET.
//!
//! If the host's addresses are those of the interface, the kernel goes on to answer for them, and
//! only packets to the daemons' UDP port are taken. If they are others, they are the daemon's
//! alone.

use std::sync::Arc;

use clearway_nic::interface::{Neighbours, Watch};
use clearway_nic::{Error, Opened, Opener, af_packet, af_xdp, open_interface, open_xdp};

use super::follower::Follower;
use super::{KernelSide, OpenNic};
use crate::config::{Interface, InterfaceDriver, Nic, XdpMode};
use crate::opener::Means;

pub(super) fn open(
    nic: &Nic,
    kernel: &Interface,
    udp_port: u16,
    means: &Means,
) -> Result<OpenNic, Error> {
    // First of all: from here on no change is missed.
    let mut watch = Watch::open(&kernel.name)?;
    let facts = watch.facts()?;
    let Opened { queues, mut steering, copies } =
        open_queues(kernel, nic.engines, means.of(&nic.name))?;
    let Some(first) = queues.first() else {
        return Err(Error::Invalid(format!("{} has no queue that can be used", kernel.name)));
    };
    let follower = Follower::new(watch, nic, first.info().mac, first.capabilities(), &facts)?;
    let interface = follower.network().clone();
    for &(address, _) in &interface.addresses {
        if follower.is_of_kernel() {
            steering.add_shared_address(address)?;
        } else {
            steering.add_own_address(address)?;
        }
        steering.register_udp_port(Some(address), udp_port)?;
    }
    let neighbours = interface.kernel_shares.then(|| Neighbours::open(&kernel.name)).transpose()?;
    let (steering, follower) = (Some(steering), Some(follower));
    let kernel = KernelSide { steering, neighbours, follower, only_messages: None };
    Ok(OpenNic { queues, copies, interface, kernel })
}

fn open_queues(
    kernel: &Interface,
    engines: usize,
    opener: Arc<dyn Opener>,
) -> Result<Opened, Error> {
    let config = af_xdp::Config {
        queues: kernel.queues.map(|queues| queues as u16),
        mode: match kernel.mode {
            XdpMode::Auto => af_xdp::Mode::Auto,
            XdpMode::ZeroCopy => af_xdp::Mode::ZeroCopy,
            XdpMode::Copy => af_xdp::Mode::Copy,
            XdpMode::Generic => af_xdp::Mode::Generic,
        },
        opener: Arc::clone(&opener),
        ..af_xdp::Config::new(&kernel.name)
    };
    match kernel.driver {
        InterfaceDriver::Auto => open_interface(&config, kernel.super_frames, engines),
        InterfaceDriver::AfXdp => open_xdp(&config),
        InterfaceDriver::AfPacket => {
            let opened = af_packet::open(&af_packet::Config {
                queues: kernel.queues.unwrap_or(engines),
                super_frames: kernel.super_frames,
                opener,
                ..af_packet::Config::new(&kernel.name)
            });
            opened.map(Opened::from)
        }
    }
}
