//! Daemons over the kernel's UDP sockets, which an ordinary user starts, in two network namespaces:
//! what they carry, with whom they talk, what they refuse, and what changes while they run. Root
//! is needed to make the namespaces, and for nothing else.

mod support;

use std::net::{IpAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clearway_client::{Channel, Code, VifOptions};
use serde_json::Value;
use support::traffic::Traffic;
use support::veth::{INTERFACE, IPV4, IPV6, Veth};
use support::{
    Daemon, NOBODY, Network, PATIENCE, Starter, as_nobody, clearway, eventually, exchange_all_sizes,
};

const UDP: &str = "[[nic]]\ndriver = \"udp\"\n";
const PORT: u16 = 4000;

/// Two hosts whose daemons an ordinary user has started.
fn hosts(veth: &Veth, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
    hosts_by([Starter::Nobody; 2], veth, nics, at)
}

fn hosts_by(starters: [Starter; 2], veth: &Veth, nics: [&str; 2], at: [IpAddr; 2]) -> Network {
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces_by(starters, [first, second], nics, at);
    network.wait_until_ready();
    network
}

fn queue(daemon: &Daemon) -> Value {
    daemon.status()["engines"][0]["queues"][0].clone()
}

#[test]
fn an_ordinary_users_daemons_carry_messages_of_all_sizes() {
    let Some(veth) = Veth::new() else { return };
    for at in [IPV4.map(IpAddr::V4), IPV6.map(IpAddr::V6)] {
        let mut network = hosts(&veth, [UDP, UDP], at);
        exchange_all_sizes(&network.client, &network.server);
        let queue = queue(&network.client);
        assert_eq!(queue["driver"], "udp", "{queue:#}");
        let mode = queue["mode"].as_str().expect("a mode");
        assert!(mode.contains("UDP_SEGMENT") && mode.contains("UDP_GRO"), "{mode}");
        let ping = clearway(&["ping", &at[1].to_string(), "--count", "1"], &network.client);
        assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
        assert!(network.client.terminate() && network.server.terminate(), "not in good order");
        // A system call that the confinement does not know would stand there.
        assert_eq!(network.client.log() + &network.server.log(), "");
    }
}

/// What is on the wire is the same, whoever sends it.
#[test]
fn daemons_of_other_drivers_are_peers_as_all_others() {
    let Some(veth) = Veth::new() else { return };
    let starters = [Starter::Nobody, Starter::Root];
    for driver in ["af_packet", "af_xdp"] {
        let other = format!("[[nic]]\ninterface = \"{INTERFACE}\"\ndriver = \"{driver}\"\n");
        let network = hosts_by(starters, &veth, [UDP, &other], IPV4.map(IpAddr::V4));
        assert_eq!(queue(&network.server)["driver"], driver);
        exchange_all_sizes(&network.client, &network.server);
        exchange_all_sizes(&network.server, &network.client);
        // The kernel leaves it to the veth to part 64 packets, which are lost nowhere.
        let queue = queue(&network.server);
        assert_eq!(queue["rx_frames_dropped"], 0, "{queue:#}");
        assert!(queue["rx_super_frames"].as_u64().expect("a number") > 100, "{queue:#}");
    }
}

#[test]
fn several_engines_share_the_port() {
    let Some(veth) = Veth::new() else { return };
    let two = format!("{UDP}engines = 2\n");
    let network = hosts(&veth, [&two, &two], IPV4.map(IpAddr::V4));
    for (client, server) in [("udp/0", "udp/0"), ("udp/0", "udp/1"), ("udp/1", "udp/0")] {
        let mut listening = network.server.attach_at(server, "server");
        listening.listen(PORT).expect("listening");
        let mut channel = network.client.attach_at(client, "client");
        let connection = channel.connect(network.server.at(PORT), Some(PATIENCE));
        let connection = connection.unwrap_or_else(|error| panic!("{client}, {server}: {error}"));
        let mut number = 0_u8;
        let mut send_next = || {
            number = number.wrapping_add(1);
            channel.send(connection, &[number; 3000]).expect("sent");
            let message = listening.recv_zero_copy(Some(PATIENCE)).expect("arrived");
            assert_eq!(*message, [number; 3000]);
        };
        (0..100).for_each(|_| send_next());
        // The hash of SO_REUSEPORT is found out: nothing goes by a lane from engine to engine. A
        // host that was busy when it was asked is asked again, as long as there are messages.
        eventually("packets come straight to their engines", || {
            send_next();
            detours(&network).is_empty()
        });
    }
}

/// Flows whose packets another engine passes on.
fn detours(network: &Network) -> Vec<Value> {
    let engines =
        [&network.client, &network.server].map(|daemon| daemon.status()["engines"].take());
    let engines = engines.iter().flat_map(|engines| engines.as_array().expect("engines"));
    let flows = engines.flat_map(|engine| engine["flows"].as_array().expect("flows"));
    flows.filter(|flow| flow["detour"] == true).cloned().collect()
}

#[test]
fn addresses_links_and_mtus_may_change() {
    let Some(veth) = Veth::new() else { return };
    let network = hosts(&veth, [UDP, UDP], IPV4.map(IpAddr::V4));
    let traffic = Traffic::start(&network, PORT);
    traffic.goes_on();
    // A path that takes less than before: the kernel says so, and nothing is lost.
    veth.ip(0, &format!("link set {INTERFACE} mtu 1300"));
    veth.ip(1, &format!("link set {INTERFACE} mtu 1300"));
    traffic.goes_on();
    veth.ip(0, &format!("link set {INTERFACE} down"));
    veth.ip(0, &format!("link set {INTERFACE} up"));
    traffic.goes_on();
    // Another interface with another network.
    let there = veth.spaces[1].path();
    let peer = format!("peer name cw1 netns {}", there.display());
    veth.ip(0, &format!("link add cw1 type veth {peer}"));
    for index in [0, 1] {
        veth.ip(index, &format!("addr add 10.79.0.{}/24 dev cw1", index + 1));
        veth.ip(index, "link set cw1 up");
    }
    eventually("the daemon answers at its new address", || {
        clearway(&["ping", "10.79.0.2", "--count", "1"], &network.client).status.success()
    });
    traffic.goes_on();
    let added = |network: &Network| network.client.status().to_string().contains("10.79.0.1");
    assert!(added(&network));
    veth.ip(0, "link del cw1");
    eventually("the address is gone", || !added(&network));
    traffic.goes_on();
}

/// A command on each host, by a user without privilege and without a file: `clearway daemon`.
#[test]
fn two_commands_and_no_file() {
    let Some(veth) = Veth::new() else { return };
    let hosts = [Home::new(), Home::new()];
    let daemons = [0, 1].map(|index| {
        let space = &veth.spaces[index];
        let daemon = space.within(|| hosts[index].command(&["daemon"]).spawn());
        Ended(daemon.expect("entered").expect("started"))
    });
    let mut ping = hosts[0].command(&["ping", "10.78.0.2", "--count", "1"]);
    eventually("the other host answers", || ping.output().expect("started").status.success());
    let status = hosts[0].command(&["status", "--json"]).output().expect("started");
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["socket"], hosts[0].0.join("clearway.sock").to_str().expect("text"));
    assert_eq!(status["engines"][0]["queues"][0]["driver"], "udp");
    let reload = hosts[0].command(&["reload"]).output().expect("started");
    let text = String::from_utf8_lossy(&reload.stderr);
    assert!(!reload.status.success() && text.contains("--config FILE"), "{text}");
    drop(daemons);
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where nobody's programs are, and the runtime directory that a login would have made.
struct Home(PathBuf);

impl Home {
    fn new() -> Home {
        let home = Home(support::new_directory());
        for program in [env!("CARGO_BIN_EXE_clearway"), env!("CARGO_BIN_EXE_clearwayd")] {
            let name = Path::new(program).file_name().expect("a program has a name");
            std::fs::copy(program, home.0.join(name)).expect("copied");
        }
        std::os::unix::fs::chown(&home.0, Some(NOBODY), Some(NOBODY)).expect("root may");
        home
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("clearway"));
        command.args(arguments).env_remove("CLEARWAY_SOCKET").env("XDG_RUNTIME_DIR", &self.0);
        command.stderr(Stdio::piped()).stdout(Stdio::piped()).uid(NOBODY).gid(NOBODY);
        command
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_the_kernel_had_no_room_for_is_counted() {
    let Some(veth) = Veth::new() else { return };
    let network = hosts(&veth, [UDP, UDP], IPV4.map(IpAddr::V4));
    let sender = veth.spaces[0].within(|| UdpSocket::bind((IPV4[0], 0))).expect("entered");
    let sender = sender.expect("a socket");
    network.server.signal("STOP");
    for _ in 0..20_000 {
        // A full device is no reason to give up.
        let _ = sender.send_to(&[7; 1000], (IPV4[1], 20_707));
    }
    network.server.signal("CONT");
    eventually("drops are counted", || {
        queue(&network.server)["rx_frames_dropped"].as_u64().expect("a number") > 1000
    });
    Traffic::start(&network, PORT).goes_on();
}

#[test]
fn virtual_interfaces_are_refused_with_the_reason() {
    let Some(veth) = Veth::new() else { return };
    let network = hosts(&veth, [UDP, UDP], IPV4.map(IpAddr::V4));
    let mut channel: Channel = network.client.attach("own-stack");
    let wanted = VifOptions::receiving("dst host own and udp dst port 5353");
    let refused = channel.open_vif(&wanted).expect_err("there are no frames");
    assert_eq!(refused.code(), Code::Unsupported);
    let text = refused.to_string();
    assert!(text.contains("`driver = \"udp\"`") && text.contains("driver memif"), "{text}");
    let listed = as_nobody(&network.client, &["vif", "list"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    Traffic::start(&network, PORT).goes_on();
}
