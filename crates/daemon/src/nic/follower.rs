//! What the kernel says of an interface, or the other end of a memif of itself, as a network for
//! the engine: at the start, and again whenever it has changed.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use clearway_engine::ip::{self, Route};
use clearway_nic::interface::{Facts, HostWatch, TableRoute, Watch, Ways};
use clearway_nic::memif;
use clearway_nic::{Capabilities, Error, MacAddress};
use clearway_wire::{ethernet, vlan};

use super::memif::mtu_of;
use super::udp;
use crate::config::Nic;

/// RFC 791, section 3.1: every host takes packets of that size.
const MTU_BYTES_MIN: u16 = 576;

/// Follows the interface of one NIC, or all of them for one that goes by whichever.
#[derive(Debug)]
pub(crate) struct Follower {
    watch: Watching,
    nic: Nic,
    of_kernel: bool,
    /// What was found last.
    network: ip::Config,
    is_running: bool,
    /// The NIC has the Ethernet address of the kernel's interface: it is not the other end of one.
    has_its_mac: bool,
    /// What the interface carried when the NIC was opened, which has no room for more.
    carried: u16,
}

impl Follower {
    /// Follows an interface whose `facts` were read by `watch` just now.
    pub(super) fn new(
        watch: Watch,
        nic: &Nic,
        mac: MacAddress,
        capabilities: Capabilities,
        facts: &Facts,
    ) -> Result<Self, Error> {
        check_mtu(nic, &capabilities, facts)?;
        let of_kernel = are_of_kernel(nic, facts)?;
        let network = network(nic, mac, &capabilities, of_kernel, facts);
        let nic = nic.clone();
        let (is_running, has_its_mac) = (facts.running, facts.mac == Some(mac));
        let watch = Watching::Interface(watch, capabilities);
        let carried = of_interface(facts);
        Ok(Self { watch, nic, of_kernel, network, is_running, has_its_mac, carried })
    }

    /// Follows all interfaces of a host, whose `ways` were read by `watch` just now.
    pub(super) fn of_host(
        watch: HostWatch,
        nic: &Nic,
        mac: MacAddress,
        capabilities: Capabilities,
        ways: &Ways,
    ) -> Self {
        let network = udp::network(nic, mac, &capabilities, ways);
        let (watch, nic) = (Watching::Host(watch, capabilities), nic.clone());
        let (of_kernel, is_running, has_its_mac) = (true, true, false);
        let carried = udp::mtu_of(ways);
        Self { watch, nic, of_kernel, network, is_running, has_its_mac, carried }
    }

    /// Follows the link of a memif that is being waited for.
    pub(super) fn of_memif(watch: memif::Watch, nic: &Nic, network: ip::Config) -> Self {
        let (watch, nic) = (Watching::Memif(watch), nic.clone());
        let (of_kernel, is_running, has_its_mac) = (false, false, false);
        let carried = network.mtu;
        Self { watch, nic, of_kernel, network, is_running, has_its_mac, carried }
    }

    /// The network as it was found last.
    pub(crate) fn network(&self) -> &ip::Config {
        &self.network
    }

    /// True if the addresses are those of the kernel.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.of_kernel
    }

    /// Takes the news. True if it is worth reading everything again.
    pub(crate) fn has_changed(&mut self) -> Result<bool, Error> {
        match &mut self.watch {
            Watching::Interface(watch, _) => watch.has_changed(),
            Watching::Host(watch, _) => watch.has_changed(),
            Watching::Memif(watch) => {
                watch.silence();
                Ok(true)
            }
        }
    }

    /// Reads everything again.
    pub(crate) fn read(&mut self) -> Result<Change, Error> {
        match &mut self.watch {
            Watching::Interface(watch, capabilities) => {
                let (facts, capabilities) = (watch.facts()?, *capabilities);
                Ok(self.take_facts(&facts, &capabilities))
            }
            Watching::Host(watch, capabilities) => {
                // A host is always there: what cannot be read now stays as it is until it changes.
                let ways = watch.ways().inspect_err(|error| tracing::warn!(%error));
                let Ok(ways) = ways else {
                    return Ok(self.take_network(self.network.clone(), true));
                };
                let network = udp::network(&self.nic, self.network.mac, capabilities, &ways);
                let change = self.take_network(network, true);
                Ok(Change { mtu_unused: self.unused(udp::mtu_of(&ways)), ..change })
            }
            Watching::Memif(watch) => {
                // Without a link all stays as it is: most likely the same peer comes back.
                let mtu = mtu_of(watch);
                let mtu_now = mtu.unwrap_or(self.network.mtu);
                let network = ip::Config { mtu: mtu_now, ..self.network.clone() };
                Ok(self.take_network(network, mtu.is_some()))
            }
        }
    }

    fn take_facts(&mut self, facts: &Facts, capabilities: &Capabilities) -> Change {
        let network = network(&self.nic, self.network.mac, capabilities, self.of_kernel, facts);
        if let Some(wanted) = self.nic.mtu_bytes
            && network.mtu < wanted
            && network.mtu != self.network.mtu
        {
            tracing::warn!(
                nic = self.nic.name,
                "mtu_bytes = {wanted} is more than {} carries now: {} is used",
                facts.name,
                network.mtu
            );
        }
        let change = self.take_network(network, facts.running);
        // One that has another name has no address under that which it was opened by.
        let is_another = self.has_its_mac && facts.mac != Some(self.network.mac);
        Change { is_another, mtu_unused: self.unused(of_interface(facts)), ..change }
    }

    /// What packets could have and do not, where the interface `carries` more than when the NIC was
    /// opened, and nobody has said that they shall not.
    fn unused(&self, carries: u16) -> Option<u16> {
        (self.nic.mtu_bytes.is_none() && carries > self.carried).then_some(carries)
    }

    fn take_network(&mut self, network: ip::Config, is_running: bool) -> Change {
        let is_other = network != self.network;
        let was_running = std::mem::replace(&mut self.is_running, is_running);
        self.network = network;
        let carrier = (was_running != is_running).then_some(is_running);
        Change { is_other, carrier, is_another: false, mtu_unused: None }
    }
}

/// What is watched.
#[derive(Debug)]
enum Watching {
    Interface(Watch, Capabilities),
    Host(HostWatch, Capabilities),
    Memif(memif::Watch),
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The network is another.
    pub(crate) is_other: bool,
    /// The link has come up or gone down.
    pub(crate) carrier: Option<bool>,
    /// The interface has another Ethernet address, or another name, than when it was opened.
    pub(crate) is_another: bool,
    /// It carries packets of so many bytes, which the NIC has no room for until it is opened again.
    pub(crate) mtu_unused: Option<u16>,
}

impl AsFd for Follower {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.watch {
            Watching::Interface(watch, _) => watch.as_fd(),
            Watching::Host(watch, _) => watch.as_fd(),
            Watching::Memif(watch) => watch.as_fd(),
        }
    }
}

/// Whether the addresses of a NIC are the kernel's or others, but not both. On a VLAN they are
/// others: the kernel's addresses of this interface belong to untagged frames.
pub(crate) fn are_of_kernel(nic: &Nic, facts: &Facts) -> Result<bool, Error> {
    let name = &facts.name;
    let invalid = |text: String| Err(Error::Invalid(text));
    match (nic.addresses.is_empty(), nic.vlan) {
        (true, Some(_)) => {
            return invalid("a NIC with `vlan` needs `addresses` of its own".to_owned());
        }
        (false, Some(_)) => return Ok(false),
        (true, None) => {
            if facts.addresses.is_empty() && !facts.has_tentative_addresses {
                tracing::warn!(
                    "{name} has no IP address yet; it is used when it has one (ip address add \
                     10.0.0.1/24 dev {name}, or set `addresses`)"
                );
            }
            return Ok(true);
        }
        (false, None) => {}
    }
    let is_of_kernel = |address: IpAddr| facts.addresses.iter().any(|own| own.address == address);
    let shared = nic.addresses.iter().filter(|network| is_of_kernel(network.address)).count();
    if shared != 0 && shared != nic.addresses.len() {
        return invalid(format!(
            "some of the `addresses` are the kernel's on {name} and some are not. Name only those \
             of {name}, or none of them"
        ));
    }
    Ok(shared != 0)
}

fn network(
    nic: &Nic,
    mac: MacAddress,
    capabilities: &Capabilities,
    of_kernel: bool,
    facts: &Facts,
) -> ip::Config {
    let mut routes = nic.routes.clone();
    if of_kernel {
        routes.extend(facts.routes.iter().map(route));
    }
    ip::Config {
        mac,
        addresses: addresses(nic, of_kernel, facts),
        routes,
        vlan: nic.vlan,
        mtu: mtu(nic, capabilities, facts),
        mtu_max: None,
        kernel_shares: of_kernel && capabilities.kernel_shares,
        router: None,
        receive_checksum: capabilities.receive_checksum,
    }
}

/// Those of the configuration, as far as the kernel has them if they are the kernel's; all of the
/// kernel's if none are configured.
fn addresses(nic: &Nic, of_kernel: bool, facts: &Facts) -> Vec<(IpAddr, u8)> {
    let of_facts = facts.addresses.iter().map(|own| (own.address, own.prefix_bits));
    if !of_kernel {
        return nic.addresses.iter().map(|own| (own.address, own.prefix_bits)).collect();
    }
    let is_wanted = |address: IpAddr| {
        nic.addresses.is_empty() || nic.addresses.iter().any(|own| own.address == address)
    };
    of_facts.filter(|(address, _)| is_wanted(*address)).collect()
}

pub(super) fn route(route: &TableRoute) -> Route {
    let TableRoute { to, prefix_bits, via, metric, mtu, source } = *route;
    let mtu = mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
    Route { to, prefix_bits, via, metric, mtu, source }
}

/// What is configured, as far as interface and driver carry it; else all that they carry.
fn mtu(nic: &Nic, capabilities: &Capabilities, facts: &Facts) -> u16 {
    let most = of_interface(facts).min(of_driver(nic, capabilities).max(MTU_BYTES_MIN));
    nic.mtu_bytes.map_or(most, |wanted| wanted.min(most))
}

/// Says what carries less than is configured.
fn check_mtu(nic: &Nic, capabilities: &Capabilities, facts: &Facts) -> Result<(), Error> {
    let Some(wanted) = nic.mtu_bytes else { return Ok(()) };
    let (name, most, fits) = (&facts.name, of_interface(facts), of_driver(nic, capabilities));
    if wanted > most {
        return Err(Error::Invalid(format!(
            "mtu_bytes = {wanted} is more than the MTU {most} of {name}. Lower it, or raise that \
             of the interface: ip link set {name} mtu {wanted}"
        )));
    }
    if wanted > fits {
        return Err(Error::Invalid(format!(
            "mtu_bytes = {wanted}: the driver has room for {fits} on {name}, beside the Ethernet \
             header and a VLAN tag if there is one. Lower it; `clearway doctor {name}` says what \
             the driver can do"
        )));
    }
    Ok(())
}

fn of_interface(facts: &Facts) -> u16 {
    u16::try_from(facts.mtu).unwrap_or(u16::MAX)
}

fn of_driver(nic: &Nic, capabilities: &Capabilities) -> u16 {
    let header_bytes = ethernet::HEADER_LENGTH + nic.vlan.map_or(0, |_| vlan::TAG_LENGTH);
    let bytes = capabilities.frame_bytes_max.saturating_sub(header_bytes);
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Driver, Interface, InterfaceDriver, Network, XdpMode};
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
            has_tentative_addresses: false,
            routes: Vec::new(),
        }
    }

    fn nic(addresses: &[&str], vlan: Option<u16>) -> Nic {
        let kernel = Interface {
            name: "eth0".into(),
            driver: InterfaceDriver::Auto,
            mode: XdpMode::Auto,
            queues: None,
            super_frames: None,
        };
        let network =
            |text: &&str| Network { address: text.parse().expect("an address"), prefix_bits: 24 };
        let networks = addresses.iter().map(network).collect();
        Nic { vlan, ..Nic::new("eth0", Driver::Interface(kernel), networks) }
    }

    #[test]
    fn addresses_are_the_kernels_or_others_but_not_both() {
        let facts = facts(&[("10.0.0.1", 24), ("fe80::1", 64)]);
        let chosen = |wanted: &[&str], vlan| are_of_kernel(&nic(wanted, vlan), &facts);
        assert!(chosen(&[], None).expect("its own"));
        assert!(chosen(&["10.0.0.1"], None).expect("one of its own"));
        assert!(!chosen(&["10.0.0.7"], None).expect("another"));
        assert!(!chosen(&["10.0.0.1"], Some(5)).expect("on a VLAN"));
        assert!(chosen(&["10.0.0.1", "10.0.0.7"], None).is_err());
        assert!(chosen(&[], Some(5)).is_err());
        assert_eq!(addresses(&nic(&[], None), true, &facts).len(), 2);
        // One that the kernel has not, or not any more, is not there for the time being.
        let named = nic(&["10.0.0.1", "10.0.0.7"], None);
        assert_eq!(addresses(&named, true, &facts), [("10.0.0.1".parse().expect("one"), 24)]);
    }

    #[test]
    fn interface_without_address_will_have_the_kernels() {
        assert!(are_of_kernel(&nic(&[], None), &facts(&[])).expect("the kernel's"));
        assert_eq!(addresses(&nic(&[], None), true, &facts(&[])), []);
    }

    #[test]
    fn mtu_is_the_interfaces_unless_a_smaller_one_is_wanted() {
        let capabilities = |frame_bytes_max| Capabilities {
            frame_bytes_max,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: true,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
            receive_together: false,
        };
        let with = |mtu_bytes| Nic { mtu_bytes, ..nic(&[], None) };
        let chosen = |nic: &Nic, frame| mtu(nic, &capabilities(frame), &facts(&[]));
        let checked = |nic: &Nic, frame| check_mtu(nic, &capabilities(frame), &facts(&[]));
        assert_eq!(chosen(&with(None), 4000), 1500);
        assert_eq!(chosen(&with(None), 1018), 1004, "the driver's");
        let on_vlan = |mtu_bytes| Nic { vlan: Some(5), ..with(mtu_bytes) };
        assert_eq!(chosen(&on_vlan(None), 1018), 1000, "less a tag");
        assert_eq!(chosen(&with(Some(1280)), 4000), 1280);
        checked(&with(Some(1280)), 4000).expect("smaller");
        let error = checked(&with(Some(9000)), 4000).expect_err("larger").to_string();
        assert!(error.contains("ip link set eth0 mtu 9000"), "{error}");
        // What the interface carries, but not with a tag in the driver's buffer.
        let error = checked(&on_vlan(Some(1500)), 1514).expect_err("too large").to_string();
        assert!(error.contains("room for 1496"), "{error}");
        // The interface's MTU was lowered after the start.
        assert_eq!(chosen(&with(Some(9000)), 9014), 1500);
    }
}
