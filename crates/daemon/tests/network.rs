//! Two daemons on kernel interfaces whose network changes while messages flow: addresses, gateways, MTU,
//! and a link that goes down. Needs root; says so and passes otherwise.

mod support;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearway_nic::interface::Namespace;
use support::traffic::Traffic;
use support::veth::{INTERFACE, IPV4, IPV6, Veth};
use support::{Daemon, Network, eventually};

/// True if the daemon says that it has this address, or that it has not.
fn has_address(daemon: &Daemon, address: &str) -> bool {
    let status = daemon.status();
    let addresses = status["engines"][0]["addresses"].as_array().expect("a list").clone();
    addresses.iter().any(|own| own.as_str().is_some_and(|own| own.starts_with(address)))
}

/// An address that the kernel gets is the daemon's as well, and one that it loses is not.
fn addresses_follow_the_kernels(nic: &str) {
    let Some(veth) = Veth::new() else { return };
    let mut network = veth.hosts([nic, nic], IPV4.map(IpAddr::V4));
    let before = Traffic::start(&network, 4000);
    before.goes_on();
    let added: [IpAddr; 2] =
        [Ipv4Addr::new(10, 78, 0, 9).into(), Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 9).into()];
    for (address, port) in added.into_iter().zip(4001..) {
        let words = match address {
            IpAddr::V4(address) => format!("{address}/24"),
            IpAddr::V6(address) => format!("{address}/64"),
        };
        veth.ip(1, &format!("addr add {words} dev {INTERFACE} noprefixroute"));
        eventually("the daemon has it", || has_address(&network.server, &address.to_string()));
        network.server.address = address;
        Traffic::start(&network, port).goes_on();
        veth.ip(1, &format!("addr del {words} dev {INTERFACE}"));
        eventually("the daemon has it not", || !has_address(&network.server, &address.to_string()));
    }
    before.goes_on();
    veth.kernel_goes_on();
}

#[test]
fn addresses_follow_the_kernels_on_af_xdp() {
    addresses_follow_the_kernels("driver = \"af_xdp\"");
}

#[test]
fn addresses_follow_the_kernels_on_af_packet() {
    addresses_follow_the_kernels("driver = \"af_packet\"");
}

/// Flows outlive a link that is down for a moment, and with IPv6 even the loss of their addresses, which
/// the kernel takes away meanwhile.
fn flows_outlive_a_link_that_flaps(nic: &str, at: [IpAddr; 2]) {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts([nic, nic], at);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    veth.ip(1, &format!("link set {INTERFACE} down"));
    eventually("both ends see it", || {
        let is_down = |daemon: &Daemon| {
            daemon.status()["engines"][0]["queues"][0]["link_up"] == serde_json::json!(false)
        };
        is_down(&network.client) && is_down(&network.server)
    });
    veth.ip(1, &format!("link set {INTERFACE} up"));
    if at[1].is_ipv6() {
        eventually("the kernel has taken it away", || !has_address(&network.server, "fd78::2"));
        veth.ip(1, &format!("addr add {}/64 dev {INTERFACE} nodad", IPV6[1]));
    }
    traffic.goes_on();
}

#[test]
fn flows_outlive_a_link_that_flaps_on_af_xdp() {
    flows_outlive_a_link_that_flaps("driver = \"af_xdp\"", IPV4.map(IpAddr::V4));
}

#[test]
fn flows_outlive_a_link_that_flaps_on_af_packet() {
    flows_outlive_a_link_that_flaps("driver = \"af_packet\"", IPV4.map(IpAddr::V4));
}

#[test]
fn flows_outlive_the_loss_of_their_address() {
    flows_outlive_a_link_that_flaps("", IPV6.map(IpAddr::V6));
}

/// Two networks, and two routers between them.
struct Routed {
    ends: [Namespace; 2],
    routers: [Namespace; 2],
}

impl Routed {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to make network namespaces");
            return None;
        }
        let space = || Namespace::create().expect("root may make namespaces");
        let routed = Self { ends: [space(), space()], routers: [space(), space()] };
        for router in &routed.routers {
            router.within(forward).expect("entered").expect("the kernel can forward");
        }
        for network in [0, 1] {
            routed.connect(network);
        }
        Some(routed)
    }

    /// A bridge in the namespace of the first router joins an end and both routers.
    fn connect(&self, network: usize) {
        let [first, second] = &self.routers;
        let (end, bridge) = (&self.ends[network], format!("net{network}"));
        ip(first, &format!("link add {bridge} type bridge"));
        for (space, name, port) in [(end, INTERFACE, "e"), (second, &*format!("r{network}"), "r")] {
            let to = format!("peer name {port}{network}");
            ip(space, &format!("link add {name} type veth {to} netns {}", first.path().display()));
            ip(first, &format!("link set {port}{network} master {bridge} up"));
            ip(space, &format!("link set {name} up"));
        }
        ip(first, &format!("link set {bridge} up"));
        ip(end, &format!("addr add {}/24 dev {INTERFACE}", Self::end(network)));
        ip(first, &format!("addr add {}/24 dev {bridge}", Self::router(network, 0)));
        ip(second, &format!("addr add {}/24 dev r{network}", Self::router(network, 1)));
        ip(end, &format!("route add default via {}", Self::router(network, 0)));
    }

    fn end(network: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 1 + network as u8, 1)
    }

    fn router(network: usize, router: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 1 + network as u8, 251 + router as u8)
    }

    fn hosts(&self) -> Network {
        let nic = format!("[[nic]]\ninterface = \"{INTERFACE}\"\n");
        let [first, second] = &self.ends;
        let at = [0, 1].map(|network| Self::end(network).into());
        Network::in_namespaces([first, second], [&nic, &nic], at)
    }
}

fn ip(space: &Namespace, words: &str) {
    space.ip(words).expect("iproute2 is installed and the command is right");
}

fn forward() -> std::io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")
}

/// The default route changes to another router, and the first one forwards nothing any more.
#[test]
fn flows_go_on_over_another_gateway() {
    let Some(routed) = Routed::new() else { return };
    let network = routed.hosts();
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    for network in [0, 1] {
        let gateway = Routed::router(network, 1);
        ip(&routed.ends[network], &format!("route replace default via {gateway}"));
    }
    for network in [0, 1] {
        ip(&routed.routers[0], &format!("addr flush dev net{network}"));
    }
    traffic.goes_on();
}
