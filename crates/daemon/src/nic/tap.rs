//! A NIC of driver tap: its addresses come from the configuration, since those of the interface are
//! the kernel's, at the other end. MTU and carrier are the interface's, and followed.

use std::os::fd::OwnedFd;

use clearway_nic::Error;
use clearway_nic::interface::{Facts, Watch};
use clearway_nic::tap::{self, Config};

use super::follower::Follower;
use super::{KernelSide, OpenNic, default_mac};
use crate::config::{Nic, Tap};
use crate::opener::Means;

pub(super) fn open(nic: &Nic, device: &Tap, means: &Means) -> Result<OpenNic, Error> {
    let files = match means.tap(&nic.name)? {
        Some(files) => files,
        None => attach(nic, device)?,
    };
    // Before anything is read: from here on no change is missed.
    let mut watch = Watch::open(&device.interface)?;
    let facts = watch.facts()?;
    refuse_addresses_of_kernel(nic, &facts)?;
    let config = Config {
        interface: device.interface.clone(),
        mac: device.mac.unwrap_or_else(|| default_mac(nic)),
        super_frames: device.super_frames,
    };
    let queues = tap::open(&config, files)?;
    let capabilities = queues[0].capabilities();
    let follower = Follower::new(watch, nic, config.mac, capabilities, &facts)?;
    let interface = follower.network().clone();
    let kernel = KernelSide { follower: Some(follower), ..KernelSide::default() };
    Ok(OpenNic { queues, copies: None, interface, kernel })
}

/// Takes hold of the device, with a queue for each engine.
pub(crate) fn attach(nic: &Nic, device: &Tap) -> Result<Vec<OwnedFd>, Error> {
    tap::attach(&device.interface, nic.engines, nic.mtu_bytes)
}

/// An address would be two hosts' at once.
pub(crate) fn refuse_addresses_of_kernel(nic: &Nic, facts: &Facts) -> Result<(), Error> {
    let of_kernel = |address| facts.addresses.iter().any(|own| own.address == address);
    match nic.addresses.iter().find(|network| of_kernel(network.address)) {
        Some(network) => Err(Error::Invalid(format!(
            "the kernel has the address {} on {} itself, and is another host than this NIC. Name \
             another address of that network in `addresses`",
            network.address, facts.name
        ))),
        None => Ok(()),
    }
}
