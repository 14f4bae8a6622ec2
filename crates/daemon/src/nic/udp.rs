//! A NIC of driver udp: the kernel's UDP sockets at all addresses of the host, or at some.
//!
//! The kernel routes, so that all its interfaces are this one NIC's. What the engine knows of its
//! routes says only whether there is one, which address to send from, and how large a packet is.

use clearway_engine::ip;
use clearway_nic::interface::{HostWatch, Ways};
use clearway_nic::udp::{Config, ROUTER_MAC};
use clearway_nic::{Capabilities, Error, MacAddress};
use clearway_wire::ethernet;

use super::follower::{self, Follower};
use super::{KernelSide, MTU_BYTES_DEFAULT, OpenNic};
use crate::config::Nic;

/// Jumbo frames of most networks. Larger ones would take much memory for buffers, and are known
/// from interfaces without a network behind them.
const MTU_BYTES_MAX: u16 = 9216;

pub(super) const ONLY_MESSAGES: &str = "it goes by UDP sockets of the kernel (`driver = \"udp\"`), \
                             which carry messages and no frames; attach to a NIC with `interface` \
                             or of driver memif, which a daemon may have beside it";

pub(super) fn open(nic: &Nic, udp_port: u16) -> Result<OpenNic, Error> {
    // First of all: from here on no change is missed.
    let mut watch = HostWatch::open()?;
    let ways = watch.ways()?;
    let config = Config {
        // Others of several are refused by the engine.
        address: match nic.addresses.as_slice() {
            [only] => Some(only.address),
            _ => None,
        },
        queues: nic.engines,
        mtu_bytes: nic.mtu_bytes.unwrap_or_else(|| mtu_of(&ways)),
        ..Config::new(udp_port)
    };
    let queues = clearway_nic::udp::open(&config)?;
    let (mac, capabilities) = (queues[0].info().mac, queues[0].capabilities());
    let follower = Follower::of_host(watch, nic, mac, capabilities, &ways);
    let interface = follower.network().clone();
    if interface.addresses.is_empty() {
        tracing::warn!(
            nic = nic.name,
            "this host has no address that others could reach; those that it gets are used \
             (`ip address`)"
        );
    }
    let (follower, only_messages) = (Some(follower), Some(ONLY_MESSAGES));
    let kernel = KernelSide { follower, only_messages, ..KernelSide::default() };
    Ok(OpenNic { queues, copies: None, interface, kernel })
}

/// The largest packet that any of the interfaces carries, within reason.
pub(crate) fn mtu_of(ways: &Ways) -> u16 {
    match u16::try_from(ways.mtu) {
        Ok(0) => MTU_BYTES_DEFAULT,
        Ok(mtu) => mtu.clamp(MTU_BYTES_DEFAULT, MTU_BYTES_MAX),
        Err(_) => MTU_BYTES_MAX,
    }
}

/// What the engine is to know: the host's addresses, or those of them that are configured.
pub(super) fn network(
    nic: &Nic,
    mac: MacAddress,
    capabilities: &Capabilities,
    ways: &Ways,
) -> ip::Config {
    let is_wanted = |own: &&clearway_nic::interface::Address| {
        nic.addresses.is_empty() || nic.addresses.iter().any(|named| named.address == own.address)
    };
    let wanted = ways.addresses.iter().filter(is_wanted);
    let fits = capabilities.frame_bytes_max - ethernet::HEADER_LENGTH;
    ip::Config {
        mac,
        addresses: wanted.map(|own| (own.address, own.prefix_bits)).collect(),
        routes: ways.routes.iter().map(follower::route).collect(),
        vlan: None,
        mtu: mtu_of(ways).min(u16::try_from(fits).unwrap_or(u16::MAX)),
        mtu_max: None,
        kernel_shares: true,
        router: Some(ROUTER_MAC),
        receive_checksum: capabilities.receive_checksum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Driver, Network};
    use clearway_nic::interface::Address;

    #[test]
    fn mtu_is_that_of_the_largest_interface_within_reason() {
        let of = |mtu| mtu_of(&Ways { mtu, ..Ways::default() });
        assert_eq!([of(0), of(1280), of(1500), of(9001)], [1500, 1500, 1500, 9001]);
        assert_eq!([of(65_520), of(1 << 20)], [9216, 9216]);
    }

    #[test]
    fn addresses_are_all_of_the_host_or_those_that_are_named() {
        let address = |text: &str| text.parse().expect("an address");
        let own = |text| Address { address: address(text), prefix_bits: 24 };
        let ways = Ways {
            addresses: vec![own("10.0.0.1"), own("10.0.1.1")],
            mtu: 9000,
            ..Ways::default()
        };
        let capabilities = Capabilities {
            frame_bytes_max: 1514,
            transmit_checksum: false,
            receive_checksum: true,
            kernel_shares: true,
            reaches_kernel: false,
            receive_is_call: true,
            flush_is_call: true,
            receive_together: false,
        };
        let chosen = |named: &[&str]| {
            let named =
                named.iter().map(|text| Network { address: address(text), prefix_bits: 24 });
            let nic = Nic::new("udp", Driver::Udp, named.collect());
            network(&nic, [2; 6], &capabilities, &ways)
        };
        assert_eq!(chosen(&[]).addresses.len(), 2);
        let named = chosen(&["10.0.1.1", "10.0.2.1"]);
        assert_eq!(named.addresses, [(address("10.0.1.1"), 24)]);
        assert_eq!(named.mtu, 1500, "what was opened");
    }
}
