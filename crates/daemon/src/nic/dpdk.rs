//! A NIC of driver dpdk: a device that no kernel knows, so that all but its address comes from the
//! configuration.

use clearway_nic::Error;

use super::OpenNic;
use crate::config::{Dpdk, Nic};

#[cfg(feature = "dpdk")]
pub(super) fn open(nic: &Nic, dpdk: &Dpdk) -> Result<OpenNic, Error> {
    use super::memif::without_kernel;
    use clearway_nic::{HEADER_BYTES_MAX, Queue};

    let mtu = nic.mtu_bytes.unwrap_or(super::MTU_BYTES_DEFAULT);
    let config = clearway_nic::dpdk::Config {
        queues: Some(dpdk.queues),
        offloads: dpdk.offloads,
        mtu_bytes: mtu,
        frame_bytes_max: usize::from(mtu) + HEADER_BYTES_MAX,
        ..clearway_nic::dpdk::Config::new(dpdk.eal.clone(), &dpdk.device)
    };
    let queues = clearway_nic::dpdk::open(&config)?;
    let mac = queues[0].info().mac;
    let queues = queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
    Ok(without_kernel(nic, queues, mac, mtu))
}

#[cfg(not(feature = "dpdk"))]
pub(super) fn open(_: &Nic, dpdk: &Dpdk) -> Result<OpenNic, Error> {
    Err(without_driver(dpdk))
}

/// An error if this program was built without the driver.
pub(crate) fn is_built_in(dpdk: &Dpdk) -> Result<(), Error> {
    if cfg!(feature = "dpdk") { Ok(()) } else { Err(without_driver(dpdk)) }
}

fn without_driver(dpdk: &Dpdk) -> Error {
    Error::Invalid(format!(
        "{}: this clearway was built without DPDK. Build it with `cargo build --release --features \
         dpdk` (needs libdpdk 22.11 or newer), or choose another driver",
        dpdk.name()
    ))
}
