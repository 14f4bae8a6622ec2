//! `clearway ping` between real daemons: what it sends, what it sums up, its exit codes, and that
//! it tells apart why a host does not answer, each with what to look at. So does
//! `clearway bench --to`.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Output, Stdio};

use support::server::Server;
use support::veth::{INTERFACE, IPV4, Veth};
use support::{Daemon, Network, as_nobody, clearway, eventually};

/// The exit code of a command, and all that it says.
fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn run(from: &Daemon, words: &str) -> (Option<i32>, String) {
    told(&clearway(&words.split_whitespace().collect::<Vec<_>>(), from))
}

/// It ends with this code, and says all of these words.
fn says(from: &Daemon, words: &str, code: i32, parts: &[&str]) {
    let (ended, text) = run(from, words);
    assert_eq!(ended, Some(code), "{words}: {text}");
    for part in parts {
        assert!(text.contains(part), "{words}: {part} is missing in {text}");
    }
}

/// What the host answers, as soon as it does: links and neighbours come up in their own time.
fn wait_until_it_answers(from: &Daemon, host: &str) {
    eventually("the other host answers", || run(from, &format!("ping -c 1 {host}")).0 == Some(0));
}

/// Whose link takes packets of 9000 bytes, however long it is up.
fn network_of_9000() -> Network {
    let at = [1, 2].map(|host| IpAddr::from(Ipv4Addr::new(10, 8, 0, host)));
    let nics = at.map(|at| format!("addresses = [\"{at}/24\"]\nmtu_bytes = 9000\n"));
    Network::on_memif([&nics[0], &nics[1]], at)
}

#[test]
fn it_is_used_and_sums_up_as_ping_does() {
    let network = network_of_9000();
    let client = &network.client;
    wait_until_it_answers(client, "10.8.0.2");
    let all = "3 sent, 3 received, 0 lost (0.000%), time";
    let times = "round trip min/avg/max/mdev = ";
    says(client, "ping -c 3 -i 0.01 10.8.0.2", 0, &["probe 3, ", all, times]);
    // The largest packet of a link of 9000 bytes.
    says(client, "ping -c 3 -i 0 -s 8972 10.8.0.2", 0, &["8972 bytes from 10.8.0.2", all]);
    for eager in ["--adaptive", "--flood"] {
        // Each waits for an answer only, and not for its time.
        let (code, text) = run(client, &format!("ping {eager} -i 60 -W 60 -q 10.8.0.2"));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("1000 sent, 1000 received") && !text.contains("probe"), "{text}");
    }
}

/// It goes on until Ctrl-C, and then sums up.
#[test]
fn ctrl_c_ends_it_with_the_summary() {
    let network = Network::start();
    wait_until_it_answers(&network.client, "10.8.0.2");
    for (host, code) in [("10.8.0.2", 0), ("10.8.0.9", 1)] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_clearway"));
        process.args(["ping", "-c", "0", "-i", "0.01", host, "--socket"]);
        process.arg(&network.client.socket).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = process.spawn().expect("the command starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut text = String::new();
        output.read_line(&mut text).expect("what became of the first");
        support::signal(&process, "INT");
        output.read_to_string(&mut text).expect("the rest");
        let ended = process.wait().expect("its end").code();
        assert_eq!(ended, Some(code), "{text}");
        assert!(text.contains(" sent, ") && text.contains(" received, "), "{text}");
    }
}

/// `clearway ping -c 0 HOST | head -n 1`.
#[test]
fn it_ends_when_its_reader_has_seen_enough() {
    let network = Network::start();
    wait_until_it_answers(&network.client, "10.8.0.2");
    let mut process = support::command(&["ping", "-c", "0", "-i", "0.01"], &network.client);
    process.arg("10.8.0.2").stdout(Stdio::piped());
    let mut process = process.spawn().expect("the command starts");
    drop(process.stdout.take());
    eventually("it ends", || process.try_wait().expect("a child").is_some());
    assert!(process.wait().expect("it has ended").success());
}

/// What is larger than a packet is a message, and what answers it is `bench --serve`.
#[test]
fn what_no_packet_carries_is_sent_as_a_message() {
    let network = network_of_9000();
    let client = &network.client;
    wait_until_it_answers(client, "10.8.0.2");
    let start = "nobody listens on port 5001 of 10.8.0.2; start `clearway bench --serve` there";
    says(client, "ping -c 1 -s 8973 10.8.0.2", 2, &[start]);
    let server = Server::start(&network.server, &[]);
    let all = "2 sent, 2 received, 0 lost";
    for size in [8973, 70_000, 8 << 20] {
        let from = format!("{size} bytes from 10.8.0.2: probe 2, ");
        says(client, &format!("ping -c 2 -i 0 -W 30 -s {size} 10.8.0.2"), 0, &[&from, all]);
    }
    // With a port it is one whatever its size.
    says(client, "ping -c 2 -A -s 24 10.8.0.2:5001", 0, &["24 bytes from", all]);
    says(client, "ping -c 1 10.8.0.2:5002", 2, &["nobody listens on port 5002 of 10.8.0.2"]);
    server.interrupt();
}

/// Names and addresses of one link are taken by all that take addresses.
#[test]
fn hosts_are_found_by_name_and_by_addresses_of_one_link() {
    let Some(veth) = Veth::new() else { return };
    let link_local = link_local(&veth);
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let client = &network.client;
    let _server = Server::start(&network.server, &[]);
    let hosts = ["fd78::2", "[fd78::2]", "10.78.0.2", "10.78.0.2:5001", "[fd78::2]:5001"];
    // Of the interfaces in the namespace of the command: connections go by the daemon's own link.
    let scoped = [link_local.to_string(), format!("[{link_local}%lo]:5001")];
    for host in hosts.into_iter().chain(scoped.iter().map(String::as_str)) {
        wait_until_it_answers(client, host);
        says(client, &format!("bench rtt --to {host} --size 64 --runs 1 --seconds 0.05"), 0, &[]);
    }
    says(client, "ping -c 1 no-such-host.invalid", 2, &["no-such-host.invalid", "getent hosts"]);
    says(client, "bench --to no-such-host.invalid", 1, &["no-such-host.invalid", "getent hosts"]);
}

/// One link has the other's addresses, too, and there is nobody.
#[test]
fn probes_to_an_address_of_one_link_go_by_the_interface_that_it_names() {
    let Some(veth) = Veth::new() else { return };
    veth.connect("cw1", 79);
    let link_local = link_local(&veth);
    let nics = ["cw1", INTERFACE].map(|name| format!("[[nic]]\ninterface = \"{name}\"\n"));
    let [first, second] = &veth.spaces;
    let network =
        Network::in_namespaces([first, second], [&nics.concat(), &nics[1]], IPV4.map(IpAddr::V4));
    let client = &network.client;
    let ping = |interface: &str| {
        let words = format!("ping -c 1 {link_local}%{interface}");
        first.within(|| run(client, &words)).expect("the namespace can be entered")
    };
    eventually("the other host answers", || ping(INTERFACE).0 == Some(0));
    eventually("nobody answers on the other link", || {
        let (code, text) = ping("cw1");
        code == Some(1) && text.contains("no host answers for")
    });
    let (code, text) = ping("lo");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no NIC of this host is the interface \"lo\""), "{text}");
}

/// That of the second host.
fn link_local(veth: &Veth) -> Ipv6Addr {
    let mut found = None;
    eventually("it has been tried out", || {
        let of_link = |address: IpAddr| match address {
            IpAddr::V6(address) => Some(address).filter(Ipv6Addr::is_unicast_link_local),
            IpAddr::V4(_) => None,
        };
        found = veth.facts(1).addresses.iter().find_map(|own| of_link(own.address));
        found.is_some()
    });
    found.expect("just seen")
}

/// Ordinary users may send no faster than each 2 ms.
#[test]
fn an_ordinary_users_flood_is_bounded() {
    let policy = "[policy]\nusers = [\"*\"]\n";
    let network = Network::with_policies(policy);
    wait_until_it_answers(&network.client, "10.8.0.2");
    let begun = std::time::Instant::now();
    let words = ["ping", "--flood", "-c", "100", "10.8.0.2"];
    let (code, text) = told(&as_nobody(&network.client, &words));
    assert_eq!(code, Some(0), "{text}");
    assert!(begun.elapsed() >= std::time::Duration::from_millis(198), "{text}");
}

#[test]
fn each_reason_of_silence_is_told_apart() {
    let Some(veth) = Veth::new() else { return };
    let mut network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    wait_until_it_answers(&network.client, "10.78.0.2");
    let client = &network.client;
    let serving = Server::start(&network.server, &[]);
    for (host, code, parts) in [
        ("10.78.0.1", 2, ["is an address of this host itself", "clearway status"]),
        ("192.0.2.1", 2, ["there is no route to 192.0.2.1", "ip route"]),
        ("10.78.0.9", 1, ["no host answers for 10.78.0.9 on the link", "clearway status"]),
    ] {
        says(client, &format!("ping -c 1 {host}"), code, &parts);
    }
    // A port that nobody listens on, at a host that answers, and this host itself.
    let port = "nobody listens on port 77 of 10.78.0.2; start `clearway bench --serve` there";
    says(client, "bench --to 10.78.0.2:77", 1, &[port, "LISTENERS"]);
    for (host, part) in [
        ("192.0.2.1", "there is no route to 192.0.2.1"),
        ("10.78.0.9", "no host answers for 10.78.0.9 on the link"),
        ("10.78.0.1", "nobody listens on port 5001 of 10.78.0.1, which is this host itself"),
    ] {
        says(client, &format!("bench --to {host}"), 1, &[part]);
    }
    drop(serving);
    // The host is there, and its daemon is not, which its kernel says: to a few packets at once.
    assert!(network.server.terminate());
    let none = "the host 10.78.0.2 is there, and nobody on it has UDP port 20707";
    says(&network.client, "ping -c 1 10.78.0.2", 1, &[none, "`udp_port`"]);
    says(
        &network.client,
        "bench --to 10.78.0.2",
        1,
        &["10.78.0.2", "UDP port 20707", "`udp_port`"],
    );
    // It says nothing.
    veth.ip(1, "rule add iif lo to 10.78.0.1 blackhole");
    let silent = ["no daemon answers at 10.78.0.2, UDP port 20707", "does one run", "`udp_port`"];
    says(&network.client, "ping -c 1 10.78.0.2", 1, &silent);
    says(&network.client, "bench --to 10.78.0.2", 1, &silent);
}

/// On each side: this daemon has the port that all should have, or the other one has.
#[test]
fn daemons_with_different_udp_ports_find_out() {
    let Some(veth) = Veth::new() else { return };
    let nic = format!("[[nic]]\ninterface = \"{INTERFACE}\"\n");
    let other = format!("udp_port = 20999\n{nic}");
    let [first, second] = &veth.spaces;
    let network = Network::in_namespaces([first, second], [&other, &nic], IPV4.map(IpAddr::V4));
    let (with_other, with_default) = (&network.client, &network.server);
    let differs = ["no daemon at 10.78.0.2 has UDP port 20999", "answers there at 20707"];
    says(with_other, "ping -c 1 10.78.0.2", 1, &differs);
    says(with_other, "bench --to 10.78.0.2", 1, &differs);
    says(with_other, "ping -c 1 --udp-port 20707 10.78.0.2", 0, &["1 received"]);
    let hint = ["UDP port 20707", "`clearway ping --udp-port N` asks for"];
    says(with_default, "ping -c 1 10.78.0.1", 1, &hint);
    says(with_default, "ping -c 1 --udp-port 20999 10.78.0.1", 0, &["1 received"]);
}

/// Where the addresses are the daemons' own, it is their IP layer that says that nobody has the
/// port.
#[test]
fn a_host_that_says_that_nobody_has_the_port_is_believed() {
    let network = Network::with_server_policy("udp_port = 20999\n");
    let there = ["the host 10.8.0.2 is there, and nobody on it has UDP port 20707", "`udp_port`"];
    eventually("the link is up", || {
        let (_, text) = run(&network.client, "ping -c 1 10.8.0.2");
        there.iter().all(|part| text.contains(part))
    });
    let another = ["nobody on it has UDP port 20998"];
    says(&network.client, "ping -c 1 --udp-port 20998 10.8.0.2", 1, &another);
    let differs = ["no daemon at 10.8.0.1 has UDP port 20999", "answers there at 20707"];
    says(&network.server, "ping -c 1 10.8.0.1", 1, &differs);
}
