//! NICs that come, go and come again while the daemon runs: interfaces that are made again under
//! their name, and what a reload says. The daemon stays the same process, and what goes over its
//! other NICs goes on. Needs root; says so and passes otherwise.

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use clearway_channel::Code;
use clearway_client::{Channel, ConnectionId, Options, VifOptions};
use support::traffic::Traffic;
use support::veth::{INTERFACE, Veth};
use support::{Daemon, Network, PATIENCE, clearway, eventually};

/// The second pair's interface, whose addresses are 10.79.0.x.
const SECOND: &str = "cw1";

fn at(network: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, network, 0, host).into()
}

fn nic(interface: &str, keys: &str) -> String {
    format!("[[nic]]\ninterface = \"{interface}\"\n{keys}\n")
}

/// Two hosts with two veth pairs; the configuration names the second pair first.
fn on_both(veth: &Veth, top: &str, keys: &str) -> Network {
    veth.connect(SECOND, 79);
    let nics = format!("{top}{}{}", nic(SECOND, keys), nic(INTERFACE, keys));
    let [first, second] = &veth.spaces;
    Network::in_namespaces([first, second], [&nics, &nics], [at(79, 1), at(79, 2)])
}

/// What `clearway reload` says.
fn reload(daemon: &Daemon) -> String {
    let output = clearway(&["reload"], daemon);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The engine of the NIC of this name, as status has it.
fn engine(daemon: &Daemon, nic: &str) -> serde_json::Value {
    let status = daemon.status();
    let engines = status["engines"].as_array().expect("a list");
    engines.iter().find(|engine| engine["nic"] == nic).cloned().unwrap_or_default()
}

fn is_open(daemon: &Daemon, nic: &str) -> bool {
    let engine = engine(daemon, nic);
    let has_address = engine["addresses"].as_array().is_some_and(|all| !all.is_empty());
    engine["interface_gone"] == false && has_address
}

fn echo_at(daemon: &Daemon, nic: &str, port: u16) {
    let mut server = daemon.attach_at(nic, "echo");
    server.listen(port).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
}

/// Sends a message over a connection, which comes back.
fn exchange(client: &mut Channel, connection: ConnectionId) {
    let message: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    client.send(connection, &message).expect("sent");
    assert!(*client.recv_zero_copy(Some(PATIENCE)).expect("echoed") == *message);
}

/// An app at the client that is connected over the pair to one that sends everything back.
fn talking(network: &Network) -> (Channel, ConnectionId) {
    echo_at(&network.server, INTERFACE, 4001);
    let mut client = network.client.attach_at(INTERFACE, "client");
    let to = SocketAddr::new(at(78, 2), 4001);
    let connection = client.connect(to, Some(PATIENCE)).expect("connected");
    exchange(&mut client, connection);
    (client, connection)
}

/// A datagram of the kernel comes to an interface of an app.
fn is_seen(veth: &Veth, channel: &mut Channel) {
    let sender = veth.spaces[0].within(|| UdpSocket::bind(SocketAddr::new(at(78, 1), 0)));
    let sender = sender.expect("entered").expect("a socket");
    eventually("a datagram comes to the interface", || {
        let _ = sender.send_to(b"seen?", SocketAddr::new(at(78, 2), 4444));
        channel.recv_frames(Some(Duration::from_millis(50))).is_ok_and(|frames| !frames.is_empty())
    });
}

/// Both ends of the first pair are removed and made again, with other Ethernet addresses and
/// indexes: apps, connections, listeners and interfaces that there were work on, and the other
/// pair's traffic has not noticed.
fn interface_is_made_again(top: &str, keys: &str) {
    let Some(veth) = Veth::new() else { return };
    let network = on_both(&veth, top, keys);
    let undisturbed = Traffic::start(&network, 4000);
    let (mut client, connection) = talking(&network);
    let mut watcher = network.server.attach_at(INTERFACE, "watcher");
    let filter = "dst host 10.78.0.2 and udp dst port 4444";
    let options = VifOptions { transmit: Some(Vec::new()), ..VifOptions::receiving(filter) };
    watcher.open_vif(&options).expect("an interface");
    is_seen(&veth, &mut watcher);
    for _ in 0..2 {
        let before = veth.facts(1);
        veth.ip(0, &format!("link del {INTERFACE}"));
        for daemon in [&network.client, &network.server] {
            eventually("it notices", || engine(daemon, INTERFACE)["interface_gone"] == true);
            let output = clearway(&["status"], daemon);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains("not open"), "{text}");
        }
        undisturbed.goes_on();
        veth.connect(INTERFACE, 78);
        assert_ne!(veth.facts(1).mac, before.mac, "another one");
        for daemon in [&network.client, &network.server] {
            eventually("it is open again", || is_open(daemon, INTERFACE));
        }
        exchange(&mut client, connection);
        let another = client
            .connect(SocketAddr::new(at(78, 2), 4001), Some(PATIENCE))
            .expect("connected, time and again");
        exchange(&mut client, another);
        client.close(another).expect("closed");
        is_seen(&veth, &mut watcher);
        undisturbed.goes_on();
    }
    veth.kernel_goes_on();
}

#[test]
fn interface_is_made_again_on_af_packet() {
    interface_is_made_again("", "driver = \"af_packet\"");
}

/// By a daemon that has become another user.
#[test]
fn interface_is_made_again_on_af_xdp() {
    interface_is_made_again("user = \"nobody\"\n", "driver = \"af_xdp\"");
}

#[test]
fn interface_is_made_again_as_the_daemon_likes_it() {
    interface_is_made_again("user = \"nobody\"\n", "");
}

/// The server's end of the pair is given another Ethernet address, and then another name, which it
/// has for a while: connections go on.
fn interface_becomes_another(keys: &str) {
    let Some(veth) = Veth::new() else { return };
    let network = on_both(&veth, "", keys);
    let undisturbed = Traffic::start(&network, 4000);
    let (mut client, connection) = talking(&network);
    let mut sender = network.server.attach_at(INTERFACE, "sender");
    let options = VifOptions::receiving("dst host 10.78.0.2 and udp dst port 4444");
    let vif = sender.open_vif(&options).expect("an interface").id;
    veth.ip(1, &format!("link set {INTERFACE} address 02:78:00:00:00:02"));
    eventually("it is opened again", || {
        engine(&network.server, INTERFACE)["queues"][0]["mac"] == "02:78:00:00:00:02"
    });
    exchange(&mut client, connection);
    // What sends from the address before is no more, and its program opens it again.
    let told = sender.recv_frames(Some(PATIENCE)).expect_err("told").to_string();
    let words = format!("virtual interface {vif} was taken away: its NIC has another Ethernet");
    assert!(told.starts_with(&words), "{told}");
    let again = sender.open_vif(&options).expect("an interface");
    assert_eq!(again.mac.to_string(), "02:78:00:00:00:02");
    is_seen(&veth, &mut sender);
    for (now, then) in [(INTERFACE, "other"), ("other", INTERFACE)] {
        veth.ip(1, &format!("link set {now} down"));
        veth.ip(1, &format!("link set {now} name {then}"));
        veth.ip(1, &format!("link set {then} up"));
        let is_gone = then != INTERFACE;
        eventually("it notices", || {
            engine(&network.server, INTERFACE)["interface_gone"] == is_gone
        });
    }
    exchange(&mut client, connection);
    undisturbed.goes_on();
    veth.kernel_goes_on();
}

#[test]
fn interface_becomes_another_on_af_packet() {
    interface_becomes_another("driver = \"af_packet\"");
}

#[test]
fn interface_becomes_another_on_af_xdp() {
    interface_becomes_another("driver = \"af_xdp\"");
}

/// A reload brings a NIC, takes it away, and brings it again.
fn nic_comes_by_reload(top: &str, keys: &str) {
    let Some(veth) = Veth::new() else { return };
    veth.connect(SECOND, 79);
    let only = format!("{top}{}", nic(SECOND, keys));
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces([first, second], [&only, &only], [at(79, 1), at(79, 2)]);
    let undisturbed = Traffic::start(&network, 4000);
    // Who listens already is reached over what comes later.
    let mut early = network.server.attach("early");
    early.listen(4001).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut early));
    let mut client = network.client.attach("client");
    for _ in 0..2 {
        for daemon in [&network.client, &network.server] {
            daemon.rewrite_config(|text| text + &nic(INTERFACE, keys));
            assert_eq!(reload(daemon), format!("taken over: [[nic]] {INTERFACE}\n"));
            eventually("it is open", || is_open(daemon, INTERFACE));
        }
        let to = |port| SocketAddr::new(at(78, 2), port);
        let connection = client.connect(to(4001), Some(PATIENCE)).expect("over the new NIC");
        exchange(&mut client, connection);
        // From an app at its engine, to one that comes later, there, too.
        let mut late = network.server.attach_at(INTERFACE, "late");
        late.listen(0).expect("listening");
        let mut there = network.client.attach_at(INTERFACE, "there");
        let over_new = there.connect(to(4001), Some(PATIENCE)).expect("from an engine of its own");
        exchange(&mut there, over_new);
        drop((late, there));
        undisturbed.goes_on();
        for daemon in [&network.client, &network.server] {
            daemon.rewrite_config(|text| text.replace(&nic(INTERFACE, keys), ""));
            assert_eq!(reload(daemon), format!("taken over: [[nic]] {INTERFACE}, which is gone\n"));
            eventually("it is gone", || engine(daemon, INTERFACE).is_null());
            let (socket, engine) = (daemon.socket.clone(), Some(INTERFACE.to_owned()));
            let refused = Channel::attach(&Options { socket, engine, ..Options::new("late") });
            let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains("there is no engine"), "{text}");
        }
        client.close(connection).expect("closed");
        undisturbed.goes_on();
        veth.kernel_goes_on();
    }
}

#[test]
fn nic_comes_by_reload_on_af_packet() {
    nic_comes_by_reload("user = \"nobody\"\n", "driver = \"af_packet\"");
}

#[test]
fn nic_comes_by_reload_on_af_xdp() {
    nic_comes_by_reload("", "driver = \"af_xdp\"");
}

/// By UDP sockets, beside an interface.
#[test]
fn nic_of_udp_sockets_comes_by_reload() {
    let Some(veth) = Veth::new() else { return };
    veth.connect(SECOND, 79);
    let only = format!("user = \"nobody\"\n{}", nic(INTERFACE, ""));
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces([first, second], [&only, &only], [at(78, 1), at(78, 2)]);
    let undisturbed = Traffic::start(&network, 4000);
    for (daemon, host) in [(&network.client, 1), (&network.server, 2)] {
        let udp = format!(
            "[[nic]]\nname = \"u\"\ndriver = \"udp\"\naddresses = [\"10.79.0.{host}/24\"]\n"
        );
        daemon.rewrite_config(|text| text + &udp);
        assert_eq!(reload(daemon), "taken over: [[nic]] u\n");
        eventually("it is open", || is_open(daemon, "u"));
    }
    echo_at(&network.server, "u", 4001);
    let mut client = network.client.attach_at("u", "client");
    let to = SocketAddr::new(at(79, 2), 4001);
    let connection = client.connect(to, Some(PATIENCE)).expect("connected");
    exchange(&mut client, connection);
    undisturbed.goes_on();
}

/// Both roles: the opener listens, and connects. What a daemon without interfaces of the kernel
/// cannot open, it says.
#[test]
fn memif_comes_by_reload_and_is_configured_otherwise() {
    let network = Network::start();
    let undisturbed = Traffic::start(&network, 4000);
    let socket = network.server.socket.with_extension("second");
    let both = [(&network.client, "client", 1), (&network.server, "server", 2)];
    let second = |role: &str, host: u8, keys: &str| {
        format!(
            "[[nic]]\nname = \"b\"\ndriver = \"memif\"\nsocket = {socket:?}\nrole = \"{role}\"\n\
             addresses = [\"10.9.0.{host}/24\"]\n{keys}"
        )
    };
    for (daemon, role, host) in both {
        daemon.rewrite_config(|text| text + &second(role, host, ""));
        assert_eq!(reload(daemon), "taken over: [[nic]] b\n");
    }
    let mut server = network.server.attach("echo");
    server.listen(4001).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
    let mut client = network.client.attach("client");
    let to = SocketAddr::new(at(9, 2), 4001);
    let is_up = |daemon: &Daemon| engine(daemon, "b")["queues"][0]["link_up"] == true;
    eventually("the link is up", || is_up(&network.client) && is_up(&network.server));
    let connection = client.connect(to, Some(PATIENCE)).expect("connected");
    exchange(&mut client, connection);
    for (daemon, role, host) in both {
        let (old, new) = (second(role, host, ""), second(role, host, "mtu_bytes = 1400\n"));
        daemon.rewrite_config(|text| text.replace(&old, &new));
        assert_eq!(reload(daemon), "taken over: [[nic]] b\n");
    }
    exchange(&mut client, connection);
    network.server.rewrite_config(|text| text + "[[nic]]\nname = \"u\"\ndriver = \"udp\"\n");
    let text = reload(&network.server);
    assert!(
        text.contains("needs a restart of the daemon: [[nic]] u: a daemon that had no"),
        "{text}"
    );
    undisturbed.goes_on();
}

/// A NIC becomes another: the driver, the MTU, and its addresses. What cannot is said.
#[test]
fn nic_is_configured_otherwise() {
    let Some(veth) = Veth::new() else { return };
    let network = on_both(&veth, "", "driver = \"af_packet\"");
    let undisturbed = Traffic::start(&network, 4000);
    let (mut client, connection) = talking(&network);
    let before = nic(INTERFACE, "driver = \"af_packet\"");
    let after = nic(INTERFACE, "driver = \"af_xdp\"\nmtu_bytes = 1300");
    network.server.rewrite_config(|text| text.replace(&before, &after));
    assert_eq!(reload(&network.server), format!("taken over: [[nic]] {INTERFACE}\n"));
    eventually("it is another", || {
        let engine = engine(&network.server, INTERFACE);
        engine["queues"][0]["driver"] == "af_xdp" && is_open(&network.server, INTERFACE)
    });
    exchange(&mut client, connection);
    let more = nic(INTERFACE, "driver = \"af_xdp\"\nmtu_bytes = 1300\nengines = 2");
    network.server.rewrite_config(|text| text.replace(&after, &more));
    let text = reload(&network.server);
    assert!(text.contains("needs a restart") && text.contains("`engines` is that"), "{text}");
    exchange(&mut client, connection);
    undisturbed.goes_on();
}

/// A NIC whose interface is not there is waited for, as at the start: connections over it are lost
/// after the usual time, and the configuration may name something else meanwhile.
#[test]
fn nic_that_goes_for_good_is_waited_for_and_its_connections_are_lost() {
    let Some(veth) = Veth::new() else { return };
    let network = on_both(&veth, "silence_s = 2\n", "");
    let undisturbed = Traffic::start(&network, 4000);
    let (mut client, connection) = talking(&network);
    veth.ip(0, &format!("link del {INTERFACE}"));
    client.send(connection, b"nobody has this").expect("it may come back");
    let lost = client.recv_zero_copy(Some(PATIENCE)).expect_err("nothing comes any more");
    assert_eq!(lost.code(), Code::Lost, "{lost}");
    eventually("it says so", || {
        let trouble = engine(&network.server, INTERFACE)["nic_trouble"].clone();
        trouble.as_str().is_some_and(|text| text.contains("cw0 is not there"))
    });
    let doctor = clearway(&["doctor"], &network.server);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("nic cw0") && text.contains("not open: cw0 is not there"), "{text}");
    let mut app = network.server.attach_at(INTERFACE, "app");
    let to = SocketAddr::new(at(79, 1), 4002);
    let refused = app.connect(to, Some(PATIENCE)).expect_err("nobody listens there");
    assert!(refused.to_string().contains("nobody listens"), "over the other NIC: {refused}");
    network.server.rewrite_config(|text| text.replace(&nic(INTERFACE, ""), ""));
    assert_eq!(
        reload(&network.server),
        format!("taken over: [[nic]] {INTERFACE}, which is gone\n")
    );
    // Its apps are still there, and so is its engine, which says why there is no NIC.
    let trouble = engine(&network.server, INTERFACE)["nic_trouble"].clone();
    assert_eq!(trouble, "the configuration names it no more");
    undisturbed.goes_on();
}
