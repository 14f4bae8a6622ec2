//! What routers and hosts say of packets that did not arrive, to addresses that the kernel shares:
//! who has sent them is told at once, be it an app or a program of the kernel's. The second host is
//! the router, and its daemon the one that is not there. Needs root; says so and passes otherwise.

mod support;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clearway_client::{Channel, Code, Error, Options, Tcp};
use support::veth::{INTERFACE, IPV4, IPV6, Veth};
use support::{Daemon, Network, PATIENCE, clearway, eventually};

/// Networks behind the second host, to which it forwards nothing: they cannot be reached, or nobody
/// may.
const UNREACHABLE: [&str; 2] = ["192.0.2.0/24", "2001:db8:1::/64"];
const PROHIBITED: [&str; 2] = ["198.51.100.0/24", "2001:db8:2::/64"];
/// A host in each of them.
const BEHIND: [&str; 4] = ["192.0.2.9", "2001:db8:1::9", "198.51.100.9", "2001:db8:2::9"];

const PORT: u16 = 4000;
/// An attempt to connect to who says nothing takes longer, and so does a ping.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// What the kernel of the second host is to do: forward, and say of each packet that it did not
/// arrive, as often as it likes.
const SETTINGS: [(&str, &str); 4] = [
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
];

/// Lets the second host forward, but to none of those networks.
fn make_router(veth: &Veth) {
    let set = || {
        for (path, value) in SETTINGS {
            std::fs::write(format!("/proc/sys/net/{path}"), value).expect("the kernel has it");
        }
    };
    veth.spaces[1].within(set).expect("the namespace can be entered");
    for (kind, networks) in [("unreachable", UNREACHABLE), ("prohibit", PROHIBITED)] {
        for network in networks {
            veth.ip(1, &format!("route add {kind} {network}"));
        }
    }
    for router in [IPV4[1].to_string(), IPV6[1].to_string()] {
        veth.ip(0, &format!("route add default via {router} dev {INTERFACE}"));
    }
}

/// Two hosts, of which the second routes and has no daemon any more.
fn hosts(veth: &Veth, keys: &str) -> Network {
    make_router(veth);
    let mut network = veth.hosts([keys, keys], IPV4.map(IpAddr::V4));
    network.server.kill();
    network
}

/// An attempt that fails because somebody says so at once. The first may have to wait for a
/// neighbour, and Linux says of no more than one IPv4 packet a second that there is no route for it
/// (`net.ipv4.route.error_cost`, which no namespace has for itself).
fn is_told(what: &str, mut attempt: impl FnMut() -> Option<Code>) {
    eventually(&format!("{what} is told at once"), || {
        let begun = Instant::now();
        let code = attempt();
        code == Some(Code::Unreachable) && begun.elapsed() < AT_ONCE
    });
}

fn messages_are_told(client: &mut Channel, to: IpAddr) {
    is_told(&format!("a connection to {to}"), || {
        match client.connect(SocketAddr::new(to, PORT), Some(PATIENCE)) {
            Err(Error::Connect { code, .. }) => Some(code),
            _ => None,
        }
    });
}

fn tcp_is_told(daemon: &Daemon, to: IpAddr) {
    let tcp = Tcp::attach(&Options { socket: daemon.socket.clone(), ..Options::new("tcp") });
    let tcp = tcp.expect("attached");
    is_told(&format!("a connection of TCP to {to}"), || {
        tcp.connect(SocketAddr::new(to, PORT), Some(PATIENCE)).err().map(|error| error.code())
    });
}

fn ping_is_told(daemon: &Daemon, host: IpAddr, part: &str) {
    let words = ["ping", "-c", "1", "-W", "1", &host.to_string()];
    eventually(&format!("a ping of {host} is told"), || {
        let output = clearway(&words, daemon);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        text.contains(part)
    });
}

/// The kernel's own programs are told as before.
fn kernel_is_told(veth: &Veth, to: IpAddr) {
    let local: IpAddr = if to.is_ipv4() { IPV4[0].into() } else { IPV6[0].into() };
    let socket = veth.spaces[0].within(|| UdpSocket::bind((local, 0)));
    let socket = socket.expect("the namespace can be entered").expect("a socket");
    socket.connect((to, PORT)).expect("there is a route");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    eventually("the kernel's program is told", || {
        let _ = socket.send(b"to nobody"); // what became of the one before is told here, too
        let refused = socket.recv(&mut [0; 8]).expect_err("nobody answers").kind();
        refused == ErrorKind::ConnectionRefused
    });
}

/// Everybody at all engines is told, of both families.
fn everybody_is_told(keys: &str) {
    let Some(veth) = Veth::new() else { return };
    let network = hosts(&veth, keys);
    let daemon = &network.client;
    let hosts: [IpAddr; 2] = [IPV4[1].into(), IPV6[1].into()];
    let behind = BEHIND.map(|host| host.parse().expect("an address"));
    let engines = daemon.status()["engines"].as_array().map_or(0, Vec::len);
    for engine in 0..engines {
        let mut client = daemon.attach_at(&format!("{INTERFACE}/{engine}"), "client");
        hosts.iter().chain(&behind).for_each(|host| messages_are_told(&mut client, *host));
    }
    for host in hosts {
        ping_is_told(daemon, host, "is there, and nobody on it has UDP port");
        kernel_is_told(&veth, host);
    }
    for host in behind {
        ping_is_told(daemon, host, "a router on the way says that");
    }
    // What cannot be reached now, TCP tries again (RFC 9293, section 3.9.2.2).
    for host in &behind[2..] {
        tcp_is_told(daemon, *host);
    }
    veth.kernel_goes_on();
}

#[test]
fn everybody_is_told_on_af_xdp() {
    everybody_is_told("driver = \"af_xdp\"");
}

#[test]
fn everybody_is_told_on_af_packet() {
    everybody_is_told("driver = \"af_packet\"\nengines = 2");
}

/// By daemons that have become another user, at an address that the interface gets later, and after
/// it was made again.
fn news_come_to_a_daemon_that_is_confined(keys: &str) {
    const LATER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 0, 1), Ipv4Addr::new(10, 79, 0, 2)];
    let Some(veth) = Veth::new() else { return };
    make_router(&veth);
    let mut network = veth.hosts_as("nobody", [keys, keys], IPV4.map(IpAddr::V4));
    network.server.kill();
    let mut client = network.client.attach("client");
    messages_are_told(&mut client, IPV4[1].into());
    let has = |address: Ipv4Addr| {
        let addresses = network.client.status()["engines"][0]["addresses"].to_string();
        addresses.contains(&address.to_string())
    };
    for index in [0, 1] {
        veth.ip(index, &format!("addr add {}/24 dev {INTERFACE}", LATER[index]));
    }
    eventually("the daemon has it", || has(LATER[0]));
    messages_are_told(&mut client, LATER[1].into());
    veth.ip(0, &format!("link del {INTERFACE}"));
    eventually("it notices", || !has(IPV4[0]));
    veth.connect(INTERFACE, 79);
    eventually("it is open again", || has(LATER[0]));
    messages_are_told(&mut client, LATER[1].into());
}

#[test]
fn news_come_to_a_daemon_that_is_confined_on_af_xdp() {
    news_come_to_a_daemon_that_is_confined("driver = \"af_xdp\"");
}

#[test]
fn news_come_to_a_daemon_that_is_confined_on_af_packet() {
    news_come_to_a_daemon_that_is_confined("driver = \"af_packet\"");
}
