//! A NIC of driver memif: everything comes from the configuration.

use std::net::IpAddr;
use std::sync::Arc;

use clearway_engine::ip;
use clearway_nic::memif::{self, Connect, Role, Socket};
use clearway_nic::{Error, HEADER_BYTES_MAX, MacAddress, Queue};

use super::{KernelSide, MTU_BYTES_DEFAULT, OpenNic};
use crate::config::{Memif, MemifRole, Nic};

pub(super) fn open(
    nic: &Nic,
    link: &Memif,
    connector: Option<Arc<dyn Connect>>,
) -> Result<OpenNic, Error> {
    let mtu = nic.mtu_bytes.unwrap_or(MTU_BYTES_DEFAULT);
    let mac = link.mac.unwrap_or_else(|| default_mac(nic));
    let role = match link.role {
        MemifRole::Server => Role::Server,
        MemifRole::Client => Role::Client,
    };
    let config = memif::Config {
        id: link.id,
        secret: (!link.secret.is_empty()).then(|| link.secret.clone()),
        queue_pairs: link.queue_pairs,
        buffer_bytes: link.buffer_bytes,
        frame_bytes_max: usize::from(mtu) + HEADER_BYTES_MAX,
        name: nic.name.clone(),
        connector,
        ..memif::Config::new(Socket::from(link.socket.as_str()), role, mac)
    };
    let queues = memif::open(config)?;
    let queues: Vec<Box<dyn Queue>> =
        queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
    Ok(without_kernel(nic, queues, mac, mtu))
}

/// A NIC that is the daemon's alone.
pub(super) fn without_kernel(
    nic: &Nic,
    queues: Vec<Box<dyn Queue>>,
    mac: MacAddress,
    mtu: u16,
) -> OpenNic {
    let interface = ip::Config {
        mac,
        addresses: nic.addresses.iter().map(|n| (n.address, n.prefix_bits)).collect(),
        routes: nic.routes.clone(),
        vlan: nic.vlan,
        mtu,
        kernel_shares: false,
        receive_checksum: queues.first().is_some_and(|q| q.capabilities().receive_checksum),
    };
    OpenNic { queues, copies: None, interface, kernel: KernelSide::default() }
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
