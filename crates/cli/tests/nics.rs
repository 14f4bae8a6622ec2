//! Hosts of several NICs: each address is reached from every channel, and listened on where the app
//! says.

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_channel::Code;
use clearway_client::{Channel, Error};
use support::veth::{INTERFACE, Veth};
use support::{Daemon, Network, PATIENCE};

/// Two networks, and the address of each host in each of them.
fn at(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, network, 0, host).into()
}

/// An app that sends everything back, at an engine of this NIC, until its daemon goes.
fn echo_at(daemon: &Daemon, nic: &str, listen: impl Into<clearway_client::ListenAddress>) {
    let mut server = daemon.attach_at(nic, &format!("echo-{nic}"));
    server.listen(listen).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
}

/// Connects, and has messages of one packet and of many come back.
fn exchange(client: &mut Channel, to: SocketAddr) {
    let connection = client.connect(to, Some(PATIENCE)).unwrap_or_else(|e| panic!("{to}: {e}"));
    for length in [0, 1, 1000, 60_000, 300_000] {
        let message: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        client.send(connection, &message).expect("sent");
        let echo = client.recv_zero_copy(Some(PATIENCE)).expect("echoed");
        assert!(*echo == *message, "{length} bytes to {to} are damaged");
    }
    client.close(connection).expect("closed");
}

fn is_refused(client: &mut Channel, to: SocketAddr) -> bool {
    let refused = client.connect(to, Some(PATIENCE));
    matches!(refused, Err(Error::Connect { code: Code::Refused, .. }))
}

/// Any channel reaches both networks of the peer, whose apps are at engines of either NIC and
/// listen on all addresses; an app that listens on one address is nobody at the other. `nics` are
/// the names.
fn each_address_is_reached(network: &Network, nics: [&str; 2], networks: [u8; 2]) {
    let [near, far] = networks;
    echo_at(&network.server, nics[0], 4000);
    echo_at(&network.server, nics[1], 4001);
    echo_at(&network.server, nics[0], SocketAddr::new(at(far, 2), 4002));
    for nic in nics {
        let mut client = network.client.attach_at(nic, &format!("client-{nic}"));
        for port in [4000, 4001] {
            for network in networks {
                exchange(&mut client, SocketAddr::new(at(network, 2), port));
            }
        }
        exchange(&mut client, SocketAddr::new(at(far, 2), 4002));
        assert!(is_refused(&mut client, SocketAddr::new(at(near, 2), 4002)), "from {nic}");
    }
    each_address_is_this_host(network, nics, networks);
}

/// The same on the host itself.
fn each_address_is_this_host(network: &Network, nics: [&str; 2], [near, far]: [u8; 2]) {
    for nic in nics {
        let mut local = network.server.attach_at(nic, &format!("local-{nic}"));
        for port in [4000, 4001] {
            exchange(&mut local, SocketAddr::new(at(near, 2), port));
            exchange(&mut local, SocketAddr::new(at(far, 2), port));
        }
        exchange(&mut local, SocketAddr::new(at(far, 2), 4002));
        assert!(is_refused(&mut local, SocketAddr::new(at(near, 2), 4002)), "from {nic}");
    }
}

#[test]
fn two_memifs() {
    let network = Network::on_two_memifs();
    each_address_is_reached(&network, ["a", "b"], [8, 9]);
}

#[test]
fn an_address_that_no_nic_has_is_refused_and_a_port_is_one_listeners() {
    let network = Network::on_two_memifs();
    let mut first = network.server.attach_at("a", "first");
    let mut second = network.server.attach_at("b", "second");
    let foreign = first.listen(SocketAddr::new(at(8, 99), 4000)).expect_err("not an own address");
    assert!(matches!(foreign, Error::Refused { code: Code::AddressUnavailable, .. }), "{foreign}");
    first.listen(SocketAddr::new(at(9, 2), 4000)).expect("an address of the other NIC");
    let taken = second.listen(4000).expect_err("the port is taken");
    assert!(matches!(taken, Error::Refused { code: Code::AddressInUse, .. }), "{taken}");
}

/// An app whose packets take the way by another NIC's engine can see it.
#[test]
fn status_says_which_flows_go_over_another_nic() {
    let network = Network::on_two_memifs();
    echo_at(&network.server, "a", 4000);
    for (nic, engine, path) in [("a", 0, "other NIC"), ("b", 1, "wire")] {
        let mut client = network.client.attach_at(nic, "client");
        client.connect(SocketAddr::new(at(9, 2), 4000), Some(PATIENCE)).expect("connected");
        let status = network.client.status();
        assert_eq!(status["engines"][engine]["flows"][0]["path"], path, "{status:#}");
    }
}

/// The name of the second pair's interface.
const SECOND: &str = "cw1";

/// Two namespaces with two veth pairs; the kernel has addresses on both.
fn on_two_veths(keys: &str) {
    let Some(veth) = Veth::new() else { return };
    veth.connect(SECOND, 79);
    let nic = |interface| format!("[[nic]]\ninterface = \"{interface}\"\n{keys}\n");
    let nics = nic(INTERFACE) + &nic(SECOND);
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces([first, second], [&nics, &nics], [at(78, 1), at(78, 2)]);
    // The kernels' addresses are 10.78.0.x and 10.79.0.x.
    each_address_is_reached(&network, [INTERFACE, SECOND], [78, 79]);
    veth.kernel_goes_on();
}

#[test]
fn two_veths_on_af_xdp() {
    on_two_veths("driver = \"af_xdp\"");
}

#[test]
fn two_veths_on_af_packet() {
    on_two_veths("driver = \"af_packet\"");
}
