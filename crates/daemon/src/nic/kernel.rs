//! A NIC that is a kernel interface: AF_XDP, else AF_PACKET.
//!
//! If the host's addresses are those of the interface, the kernel goes on to answer for them, and
//! only packets to the daemons' UDP port are taken. If they are others, they are the daemon's alone.

use std::net::IpAddr;

use clearway_engine::interface;
use clearway_nic::interface::{Facts, Neighbours};
use clearway_nic::{Capabilities, Error, Opened, af_packet, af_xdp, open_interface};

use super::{KernelSide, OpenNic, gateways};
use crate::config::{Interface, InterfaceDriver, Nic, XdpMode};

/// Ethernet header and one VLAN tag, which the MTU does not count.
const HEADER_BYTES: usize = 14 + 4;

pub(super) fn open(nic: &Nic, kernel: &Interface, udp_port: u16) -> Result<OpenNic, Error> {
    let facts = Facts::of(&kernel.name)?;
    let (addresses, of_kernel) = addresses(nic, &facts)?;
    let (queues, mut steering) = open_queues(kernel)?;
    let Some(first) = queues.first() else {
        return Err(Error::Invalid(format!("{} has no queue that can be used", kernel.name)));
    };
    let (capabilities, mac) = (first.capabilities(), first.info().mac);
    for &(address, _) in &addresses {
        if !of_kernel {
            steering.add_own_address(address)?;
        }
        steering.register_udp_port(Some(address), udp_port)?;
    }
    let kernel_shares = of_kernel && capabilities.kernel_shares;
    let (gateway_v4, gateway_v6) = gateways(&nic.gateways);
    let interface = interface::Config {
        mac,
        addresses,
        gateway_v4: gateway_v4.or(facts.gateway_ipv4.filter(|_| of_kernel)),
        gateway_v6: gateway_v6.or(facts.gateway_ipv6.filter(|_| of_kernel)),
        vlan: nic.vlan,
        mtu: mtu(nic, &facts, &capabilities)?,
        kernel_shares,
        receive_checksum: capabilities.receive_checksum,
    };
    let neighbours = kernel_shares.then(|| Neighbours::open(&kernel.name)).transpose()?;
    let kernel = KernelSide { steering: Some(steering), neighbours };
    Ok(OpenNic { queues, interface, kernel })
}

/// The addresses to use, and whether they are the kernel's. On a VLAN they never are: the kernel's
/// addresses of this interface belong to untagged frames.
fn addresses(nic: &Nic, facts: &Facts) -> Result<(Vec<(IpAddr, u8)>, bool), Error> {
    let of_kernel = |address: &IpAddr| facts.addresses.iter().any(|own| own.address == *address);
    let wanted: Vec<(IpAddr, u8)> =
        nic.addresses.iter().map(|network| (network.address, network.prefix_bits)).collect();
    let invalid = |text: String| Err(Error::Invalid(text));
    if wanted.is_empty() && nic.vlan.is_some() {
        return invalid("a NIC with `vlan` needs `addresses` of its own".to_owned());
    }
    if nic.vlan.is_some() {
        return Ok((wanted, false));
    }
    if wanted.is_empty() {
        if facts.addresses.is_empty() {
            let name = &facts.name;
            return invalid(format!(
                "{name} has no IP address. Give it one (ip address add 10.0.0.1/24 dev {name}), or \
                 set `addresses`"
            ));
        }
        let own = facts.addresses.iter().map(|own| (own.address, own.prefix_bits));
        return Ok((own.collect(), true));
    }
    let shared = wanted.iter().filter(|(address, _)| of_kernel(address)).count();
    if shared != 0 && shared != wanted.len() {
        let name = &facts.name;
        return invalid(format!(
            "some of the `addresses` are the kernel's on {name} and some are not. Name only those \
             of {name}, or none of them"
        ));
    }
    Ok((wanted, shared != 0))
}

fn open_queues(kernel: &Interface) -> Result<Opened, Error> {
    let config = af_xdp::Config {
        queues: kernel.queues.map(|queues| queues as u16),
        mode: match kernel.mode {
            XdpMode::Auto => af_xdp::Mode::Auto,
            XdpMode::ZeroCopy => af_xdp::Mode::ZeroCopy,
            XdpMode::Copy => af_xdp::Mode::Copy,
            XdpMode::Generic => af_xdp::Mode::Generic,
        },
        ..af_xdp::Config::new(&kernel.name)
    };
    match kernel.driver {
        InterfaceDriver::Auto => open_interface(&config),
        InterfaceDriver::AfXdp => {
            let (queues, steering) = af_xdp::open(&config)?;
            Ok((queues, Box::new(steering)))
        }
        InterfaceDriver::AfPacket => {
            let (queue, steering) = af_packet::open(&af_packet::Config::new(&kernel.name))?;
            Ok((vec![queue], Box::new(steering)))
        }
    }
}

fn mtu(nic: &Nic, facts: &Facts, capabilities: &Capabilities) -> Result<u16, Error> {
    let of_driver = capabilities.frame_bytes_max.saturating_sub(HEADER_BYTES);
    let most = facts.mtu.min(usize::from(u16::MAX)) as u16;
    match nic.mtu_bytes {
        Some(wanted) if wanted > most => Err(Error::Invalid(format!(
            "mtu_bytes = {wanted} is more than the MTU {most} of {0}. Lower it, or raise that of \
             the interface: ip link set {0} mtu {wanted}",
            facts.name
        ))),
        Some(wanted) => Ok(wanted),
        None => Ok(most.min(of_driver.max(usize::from(MTU_BYTES_MIN)) as u16)),
    }
}

/// RFC 791, section 3.1: every host takes packets of that size.
const MTU_BYTES_MIN: u16 = 576;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Driver, Network};
    use clearway_nic::interface::Address;

    fn facts(addresses: &[(&str, u8)]) -> Facts {
        let address = |&(text, prefix_bits): &(&str, u8)| Address {
            address: text.parse().expect("an address"),
            prefix_bits,
        };
        Facts {
            name: "eth0".into(),
            index: 2,
            mac: None,
            mtu: 1500,
            driver: None,
            receive_queues: 1,
            queue_pairs_max: 1,
            operstate: "up".into(),
            running: true,
            xdp_program: None,
            addresses: addresses.iter().map(address).collect(),
            gateway_ipv4: None,
            gateway_ipv6: None,
        }
    }

    fn nic(addresses: &[&str], vlan: Option<u16>) -> Nic {
        let kernel = Interface {
            name: "eth0".into(),
            driver: InterfaceDriver::Auto,
            mode: XdpMode::Auto,
            queues: None,
        };
        let network =
            |text: &&str| Network { address: text.parse().expect("an address"), prefix_bits: 24 };
        let networks = addresses.iter().map(network).collect();
        Nic { vlan, ..Nic::new("eth0", Driver::Interface(kernel), networks) }
    }

    #[test]
    fn addresses_are_the_kernels_or_others_but_not_both() {
        let facts = facts(&[("10.0.0.1", 24), ("fe80::1", 64)]);
        let chosen = |wanted: &[&str], vlan| addresses(&nic(wanted, vlan), &facts);
        assert_eq!(chosen(&[], None).expect("its own").0.len(), 2);
        assert!(chosen(&["10.0.0.1"], None).expect("one of its own").1);
        assert!(!chosen(&["10.0.0.7"], None).expect("another").1);
        assert!(!chosen(&["10.0.0.1"], Some(5)).expect("on a VLAN").1);
        assert!(chosen(&["10.0.0.1", "10.0.0.7"], None).is_err());
        assert!(chosen(&[], Some(5)).is_err());
    }

    #[test]
    fn interface_without_address_says_what_to_do() {
        let error = addresses(&nic(&[], None), &facts(&[])).expect_err("no address").to_string();
        assert!(error.contains("ip address add"), "{error}");
    }

    #[test]
    fn mtu_is_the_interfaces_unless_a_smaller_one_is_wanted() {
        let capabilities = |frame_bytes_max| Capabilities {
            frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: true,
        };
        let with = |mtu_bytes| Nic { mtu_bytes, ..nic(&[], None) };
        let chosen = |nic: &Nic, frame| mtu(nic, &facts(&[]), &capabilities(frame));
        assert_eq!(chosen(&with(None), 4000).expect("the interface's"), 1500);
        assert_eq!(chosen(&with(None), 1018).expect("the driver's"), 1000);
        assert_eq!(chosen(&with(Some(1280)), 4000).expect("smaller"), 1280);
        let error = chosen(&with(Some(9000)), 4000).expect_err("larger").to_string();
        assert!(error.contains("ip link set eth0 mtu 9000"), "{error}");
    }
}
