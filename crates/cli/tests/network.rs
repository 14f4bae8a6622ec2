//! Two daemons on kernel interfaces whose network changes while messages flow: addresses, gateways,
//! MTU, and a link that goes down. Needs root; says so and passes otherwise.

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

/// Flows outlive a link that is down for a moment, and with IPv6 even the loss of their addresses,
/// which the kernel takes away meanwhile.
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

    /// Hosts with the kernel's addresses.
    fn hosts(&self) -> Network {
        self.hosts_with([String::new(), String::new()], [0, 1].map(Self::end))
    }

    /// Hosts with addresses of their own, for which the kernel does nothing.
    fn hosts_apart(&self) -> Network {
        let at = [0, 1].map(|network| Ipv4Addr::new(10, 78, 1 + network, 7));
        let nics = [0, 1].map(|network: usize| {
            let gateway = Self::router(network, 0);
            format!("addresses = [\"{}/24\"]\ngateway = \"{gateway}\"", at[network])
        });
        self.hosts_with(nics, at)
    }

    fn hosts_with(&self, nics: [String; 2], at: [Ipv4Addr; 2]) -> Network {
        let nics = nics.map(|nic| format!("[[nic]]\ninterface = \"{INTERFACE}\"\n{nic}\n"));
        let [first, second] = &self.ends;
        Network::in_namespaces([first, second], [&nics[0], &nics[1]], at.map(IpAddr::V4))
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

/// The largest packets of the client's flow.
fn packet_bytes(network: &Network) -> u64 {
    let status = network.client.status();
    status["engines"][0]["flows"][0]["packet_bytes"].as_u64().expect("a number")
}

/// A host that is held up for some probe timeouts looks like a path that has become smaller, for a
/// moment.
fn largest_packets_are(network: &Network, bytes: u64) {
    eventually("the flow sends the largest packets", || packet_bytes(network) == bytes);
}

/// Larger than the link in the middle will take. A host that was held up so often that even probes
/// of what passes seemed lost has ended its search below the largest, for ten minutes.
fn packets_are_large(network: &Network) {
    eventually("the flow sends large packets", || packet_bytes(network) > 1300);
}

/// A link in the middle takes smaller packets than those at the ends, all of a sudden; the router
/// says so, and the flow goes on with packets that fit.
#[test]
fn a_smaller_link_in_the_middle_is_told_of_by_its_router() {
    let Some(routed) = Routed::new() else { return };
    let network = routed.hosts_apart();
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are_large(&network);
    ip(&routed.routers[0], "link set net1 mtu 1300");
    // Exactly what fits, or nearly, if a host was held up meanwhile and the flow had to search.
    let fits = 1300 - 28 - 16..=1300 - 28;
    eventually("the flow sends smaller packets", || fits.contains(&packet_bytes(&network)));
    traffic.goes_on();
}

/// The same where the addresses are the kernel's, which is told as well. A search ends within 16
/// bytes of what fits (`transport/src/mtu.rs`), and here some bytes below: what fits exactly was
/// told. Where a host was held up, and the flow had to search, it is told of the next link.
fn a_smaller_link_is_told_of_where_the_kernel_shares(driver: &str) {
    let Some(routed) = Routed::new() else { return };
    let nics = [(); 2].map(|()| format!("driver = \"{driver}\""));
    let network = routed.hosts_with(nics, [0, 1].map(Routed::end));
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are_large(&network);
    let is_told = [1300, 1280, 1260].into_iter().any(|mtu| {
        ip(&routed.routers[0], &format!("link set net1 mtu {mtu}"));
        let fits = mtu - 28 - 16..=mtu - 28;
        eventually("the flow sends smaller packets", || fits.contains(&packet_bytes(&network)));
        packet_bytes(&network) == mtu - 28
    });
    assert!(is_told, "the flow has found each by searching");
    traffic.goes_on();
}

#[test]
fn a_smaller_link_is_told_of_where_the_kernel_shares_on_af_xdp() {
    a_smaller_link_is_told_of_where_the_kernel_shares("af_xdp");
}

#[test]
fn a_smaller_link_is_told_of_where_the_kernel_shares_on_af_packet() {
    a_smaller_link_is_told_of_where_the_kernel_shares("af_packet");
}

/// The same where nobody says so, since the router is silenced. The flow finds a size that passes.
#[test]
fn a_smaller_link_in_the_middle_that_is_a_black_hole_is_found() {
    for is_of_kernel in [true, false] {
        let Some(routed) = Routed::new() else { return };
        let network = if is_of_kernel { routed.hosts() } else { routed.hosts_apart() };
        // Whatever the router itself says to the client is lost, but not what it forwards.
        let client = network.client.address;
        ip(&routed.routers[0], &format!("rule add iif lo to {client} blackhole"));
        let traffic = Traffic::start(&network, 4000);
        traffic.goes_on();
        ip(&routed.routers[0], "link set net1 mtu 1300");
        eventually("the flow sends smaller packets", || packet_bytes(&network) <= 1300 - 28);
        traffic.goes_on();
    }
}

/// The MTU of the own interface is lowered: flows follow at once, and new ones begin with it.
#[test]
fn flows_follow_the_mtu_of_the_own_interface() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    largest_packets_are(&network, 1452); // of either family
    for index in [0, 1] {
        veth.ip(index, &format!("link set {INTERFACE} mtu 1000"));
    }
    eventually("the flow sends smaller packets", || packet_bytes(&network) <= 1000 - 28);
    traffic.goes_on();
    drop(traffic);
    Traffic::start(&network, 4001).goes_on();
}

/// The MTU of the own interface is raised: who looks is told what to do to have that, and has it
/// then.
fn a_larger_mtu_is_told_of(driver: &str) {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts([driver, driver], IPV4.map(IpAddr::V4));
    let traffic = Traffic::start(&network, 4000);
    largest_packets_are(&network, 1452);
    for index in [0, 1] {
        veth.ip(index, &format!("link set {INTERFACE} mtu 3000"));
    }
    let trouble = || network.client.status()["engines"][0]["nic_trouble"].clone();
    eventually("it is told", || trouble().as_str().is_some_and(|text| text.contains("3000")));
    let words = "packets have 1500 bytes at most, although 3000 would be carried now";
    for command in ["status", "doctor"] {
        let output = support::clearway(&[command], &network.client);
        let text = String::from_utf8_lossy(&output.stdout).replace("\n  ", " ");
        assert!(text.contains(words) && text.contains("`mtu_bytes = 3000`"), "{text}");
    }
    traffic.goes_on();
    for daemon in [&network.client, &network.server] {
        daemon.rewrite_config(|text| text + "mtu_bytes = 3000\n");
        assert!(support::clearway(&["reload"], daemon).status.success());
    }
    eventually("there is nothing to be told any more", || trouble() == "");
    traffic.goes_on();
    // What begins from now on has it.
    drop(traffic);
    eventually("its flow is gone", || network.client.flows() == 0);
    let traffic = Traffic::start(&network, 4001);
    largest_packets_are(&network, 2952);
    traffic.goes_on();
}

#[test]
fn a_larger_mtu_is_told_of_on_af_xdp() {
    a_larger_mtu_is_told_of("driver = \"af_xdp\"");
}

#[test]
fn a_larger_mtu_is_told_of_on_af_packet() {
    a_larger_mtu_is_told_of("driver = \"af_packet\"");
}

#[test]
fn a_larger_mtu_is_told_of_on_udp_sockets() {
    let Some(veth) = Veth::new() else { return };
    let nic = "[[nic]]\ndriver = \"udp\"\n";
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces([first, second], [nic, nic], IPV4.map(IpAddr::V4));
    Traffic::start(&network, 4000).goes_on();
    veth.ip(0, &format!("link set {INTERFACE} mtu 3000"));
    let told = "packets have 1500 bytes at most, although 3000 would be carried now; restart the";
    eventually("it is told", || {
        let trouble = network.client.status()["engines"][0]["nic_trouble"].clone();
        trouble.as_str().is_some_and(|text| text.starts_with(told))
    });
}

/// The kernel at the other end has an address that is given to a daemon as well: its answers to the
/// daemon's probes tell.
#[test]
fn an_address_that_somebody_else_has_is_found_out() {
    let Some(veth) = Veth::new() else { return };
    let addresses = [format!("{}/24", IPV4[1]), format!("{}/64", IPV6[1])];
    for (driver, address) in ["af_xdp", "af_packet"]
        .into_iter()
        .flat_map(|driver| addresses.iter().map(move |address| (driver, address)))
    {
        let taken = format!("driver = \"{driver}\"\naddresses = [\"{address}\"]");
        let network = veth.hosts([&taken, ""], IPV4.map(IpAddr::V4));
        let conflicts = || {
            let status = network.client.status();
            status["engines"][0]["counters"]["address_conflict"].as_u64().unwrap_or(0)
        };
        eventually(&format!("the daemon notices {address} on {driver}"), || conflicts() > 0);
    }
}

/// Messages of both families over a VLAN; what the kernel sends untagged goes on beside it.
fn messages_go_over_a_vlan(driver: &str) {
    let Some(veth) = Veth::new() else { return };
    let [first, second] = [1, 2].map(|host| {
        let addresses = format!("addresses = [\"10.79.0.{host}/24\", \"fd79::{host}/64\"]");
        format!("driver = \"{driver}\"\nvlan = 5\n{addresses}")
    });
    let mut network = veth.hosts([&first, &second], ON_VLAN);
    both_families_work(&mut network);
    veth.kernel_goes_on();
}

const ON_VLAN: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 79, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 79, 0, 2))];

fn both_families_work(network: &mut Network) {
    Traffic::start(network, 4000).goes_on();
    network.server.address = Ipv6Addr::new(0xfd79, 0, 0, 0, 0, 0, 0, 2).into();
    Traffic::start(network, 4001).goes_on();
    let to = network.server.address.to_string();
    let ping = support::clearway(&["ping", &to, "--count", "1"], &network.client);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
}

#[test]
fn messages_go_over_a_vlan_on_af_xdp() {
    messages_go_over_a_vlan("af_xdp");
}

#[test]
fn messages_go_over_a_vlan_on_af_packet() {
    messages_go_over_a_vlan("af_packet");
}

#[test]
fn messages_go_over_a_vlan_on_memif() {
    for vlan in ["", "vlan = 5"] {
        let nics = [1, 2].map(|host| {
            format!("addresses = [\"10.79.0.{host}/24\", \"fd79::{host}/64\"]\n{vlan}")
        });
        both_families_work(&mut Network::on_memif([&nics[0], &nics[1]], ON_VLAN));
    }
}

/// Messages in jumbo frames, both of the daemon's own drivers.
#[test]
fn messages_go_in_jumbo_frames() {
    let Some(veth) = Veth::new() else { return };
    for index in [0, 1] {
        veth.ip(index, &format!("link set {INTERFACE} mtu 9000"));
    }
    for (driver, port) in [("af_xdp", 4000), ("af_packet", 4001)] {
        let nic = format!("driver = \"{driver}\"");
        let network = veth.hosts([&nic, &nic], IPV4.map(IpAddr::V4));
        let traffic = Traffic::start(&network, port);
        traffic.goes_on();
        // The longest messages of the traffic fit into one packet.
        let queue = network.client.status()["engines"][0]["queues"][0].clone();
        let (frames, bytes) = (queue["tx_frames"].as_u64(), queue["tx_bytes"].as_u64());
        let mean = bytes.expect("counted") / frames.expect("counted").max(1);
        assert!(mean > 700, "{driver}: frames of {mean} bytes");
    }
}

/// `--check` holds a configuration against the interface.
#[test]
fn check_finds_what_an_interface_cannot_do() {
    let Some(veth) = Veth::new() else { return };
    veth.ip(0, "link add cw9 type veth peer name cw8");
    veth.ip(0, "addr add 10.99.0.1/24 dev cw9");
    let path = std::env::temp_dir().join(format!("clearway-check-if-{}", std::process::id()));
    let socket = path.with_extension("sock");
    let checked = |keys: &str| {
        let nic = format!("[[nic]]\ninterface = \"{INTERFACE}\"\n{keys}\n");
        fs::write(&path, format!("control.socket = {socket:?}\n{nic}")).expect("written");
        let output = veth.spaces[0].within(|| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_clearway"));
            command.args(["daemon", "--check", "--config"]).arg(&path).output().expect("it starts")
        });
        let output = output.expect("the namespace can be entered");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    assert_eq!(checked("").0, Some(0), "{}", checked("").1);
    let wrong = [
        ("driver = \"af_xdp\"\nengines = 64", "wants 64 queues"),
        ("mtu_bytes = 9000", "ip link set cw0 mtu 9000"),
        ("mode = \"zero-copy\"", "has no zero-copy"),
        ("gateway = \"10.99.1.1\"", "is on no network of cw0"),
        ("addresses = [\"10.99.0.1/24\"]", "10.99.0.1 on cw9 already"),
    ];
    for (keys, part) in wrong {
        let (code, text) = checked(keys);
        assert_eq!(code, Some(2), "{keys}: {text}");
        assert!(text.contains(part), "{keys}: {part} is missing in {text}");
    }
    fs::remove_file(&path).expect("removed");
}

/// A daemon that is started first waits for its interface, and for an address.
#[test]
fn daemon_waits_for_its_interface_and_its_address() {
    let Some(veth) = Veth::new() else { return };
    veth.ip(0, &format!("link del {INTERFACE}"));
    for (nic, port) in [("driver = \"af_xdp\"", 4000), ("driver = \"af_packet\"", 4001)] {
        let mut late = veth.hosts_not_ready([nic, nic], IPV4.map(IpAddr::V4));
        eventually("it says what it waits for", || {
            late.server.log().contains("waiting for interfaces to be there and up: cw0")
        });
        let peer = format!("peer name {INTERFACE} netns {}", veth.spaces[1].path().display());
        veth.ip(0, &format!("link add {INTERFACE} type veth {peer}"));
        for index in [0, 1] {
            veth.ip(index, &format!("link set {INTERFACE} up"));
        }
        late.wait_until_ready();
        assert_eq!(late.server.status()["engines"][0]["addresses"], serde_json::json!([]));
        for index in [0, 1] {
            veth.ip(index, &format!("addr add {}/24 dev {INTERFACE}", IPV4[index]));
        }
        for daemon in [&late.client, &late.server] {
            eventually("it has an address", || has_address(daemon, "10.78"));
        }
        Traffic::start(&late, port).goes_on();
        assert!(late.server.terminate() && late.client.terminate());
        veth.ip(0, &format!("link del {INTERFACE}"));
    }
}
