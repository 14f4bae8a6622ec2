//! Two daemons on kernel interfaces, a veth pair between two network namespaces: the drivers, the
//! kernel's neighbours and addresses, and that the interface stays usable for everything else.
//! Needs root; says so and passes otherwise.

mod support;

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::Duration;

use clearway_client::{MacChoice, VifOptions};
use support::traffic::Traffic;
use support::veth::{IPV4, IPV6, Veth};
use support::{Daemon, PATIENCE, clearway, eventually, exchange_all_sizes};

/// Messages go over the wire, the kernel's own traffic too, and in the end nothing is left behind.
fn drivers_work(driver: &str, nic: &str, at: [IpAddr; 2]) {
    let Some(veth) = Veth::new() else { return };
    let mut network = veth.hosts([nic, nic], at);
    let status = network.client.status();
    assert_eq!(status["engines"][0]["queues"][0]["driver"], driver, "{status:#}");
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    veth.kernel_goes_on();
    let ping = clearway(&["ping", &at[1].to_string(), "--count", "1"], &network.client);
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    drop(traffic);
    assert!(network.client.terminate() && network.server.terminate(), "not in good order");
    eventually("no XDP program is left behind", || {
        veth.facts(0).xdp_program.is_none() && veth.facts(1).xdp_program.is_none()
    });
    veth.kernel_goes_on();
}

#[test]
fn af_xdp_with_the_kernels_addresses() {
    drivers_work("af_xdp", "driver = \"af_xdp\"", IPV4.map(IpAddr::V4));
}

#[test]
fn automatic_choice_with_the_kernels_ipv6_addresses() {
    drivers_work("af_packet", "", IPV6.map(IpAddr::V6));
}

#[test]
fn af_packet_with_the_kernels_addresses() {
    drivers_work("af_packet", "driver = \"af_packet\"", IPV4.map(IpAddr::V4));
}

/// What one sends, the other receives, both ways, with the settings that both begin with; of the
/// super-frames that AF_PACKET sends, AF_XDP in generic mode loses none.
#[test]
fn a_daemon_on_af_packet_and_one_on_af_xdp_are_peers() {
    let Some(veth) = Veth::new() else { return };
    let nics = ["driver = \"af_packet\"", "driver = \"af_xdp\""];
    let network = veth.hosts(nics, IPV4.map(IpAddr::V4));
    exchange_all_sizes(&network.client, &network.server);
    exchange_all_sizes(&network.server, &network.client);
    let queue = |daemon: &Daemon| daemon.status()["engines"][0]["queues"][0].clone();
    let (packet, xdp) = (queue(&network.client), queue(&network.server));
    let count = |queue: &serde_json::Value, name: &str| queue[name].as_u64().expect("a number");
    // 8 MiB are 5,800 packets of this MTU.
    assert!(count(&packet, "tx_super_frames") > 100, "{packet:#}");
    assert_eq!(count(&xdp, "rx_super_frames"), count(&packet, "tx_super_frames"), "{xdp:#}");
    assert_eq!(count(&xdp, "rx_frames_dropped"), 0, "{xdp:#}");
    assert!(xdp["mode"].as_str().expect("text").contains("super-frames"), "{xdp:#}");
}

/// An interface with one queue, whose flows the kernel shares out among engines by a hash that they
/// find out: nothing goes by a lane.
#[test]
fn several_engines_share_an_interface_of_one_queue() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["engines = 2"; 2], IPV4.map(IpAddr::V4));
    let status = network.server.status();
    let mode = status["engines"][1]["queues"][0]["mode"].as_str().expect("text");
    assert!(mode.contains("PACKET_FANOUT"), "{mode}");
    let engine = |number: usize| status["engines"][number]["engine"].as_str().expect("a name");
    for (client, server) in [(0, 0), (0, 1), (1, 0)] {
        let mut listening = network.server.attach_at(engine(server), "server");
        listening.listen(4000).expect("listening");
        let mut channel = network.client.attach_at(engine(client), "client");
        let connected = channel.connect(network.server.at(4000), Some(PATIENCE));
        let connection = connected.expect("connected");
        let mut send_next = || {
            channel.send(connection, &[7; 30_000]).expect("sent");
            let message = listening.recv_zero_copy(Some(PATIENCE)).expect("arrived");
            assert_eq!(*message, [7; 30_000]);
        };
        (0..100).for_each(|_| send_next());
        eventually("packets come straight to their engines", || {
            send_next();
            [&network.client, &network.server].iter().all(|daemon| {
                let status = daemon.status();
                let engines = status["engines"].as_array().expect("engines");
                let flows = engines.iter().flat_map(|engine| engine["flows"].as_array());
                flows.flatten().all(|flow| flow["detour"] == false)
            })
        });
    }
}

/// The host's addresses are not the kernel's: the daemon answers ARP for them itself.
#[test]
fn own_addresses_beside_those_of_the_kernel() {
    let Some(veth) = Veth::new() else { return };
    let own = [Ipv4Addr::new(10, 78, 0, 101), Ipv4Addr::new(10, 78, 0, 102)];
    let nics = own.map(|address| format!("addresses = [\"{address}/24\"]"));
    let network = veth.hosts([&nics[0], &nics[1]], own.map(IpAddr::V4));
    Traffic::start(&network, 4000).goes_on();
    veth.kernel_goes_on();
}

/// `kill -9` leaves no program behind that would swallow packets.
#[test]
fn killed_daemon_leaves_the_interface_to_the_kernel() {
    let Some(veth) = Veth::new() else { return };
    let mut network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    Traffic::start(&network, 4000).goes_on();
    network.client.kill();
    network.server.kill();
    eventually("no XDP program is left behind", || {
        veth.facts(0).xdp_program.is_none() && veth.facts(1).xdp_program.is_none()
    });
    veth.kernel_goes_on();
}

/// What a virtual interface asks for comes to it, and to the kernel again when it is closed.
fn frames_are_steered(nic: &str) {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts([nic, nic], IPV4.map(IpAddr::V4));
    let entered = "the namespace can be entered";
    let sender = veth.spaces[0].within(|| UdpSocket::bind((IPV4[0], 0))).expect(entered);
    let sender = sender.expect("a socket");
    let mut channel = network.server.attach("steered");
    let options = VifOptions::receiving("dst host own and udp dst port 4001");
    let vif = channel.open_vif(&options).expect("an interface");
    eventually("a datagram comes to the interface", || {
        sender.send_to(b"raw", (IPV4[1], 4001)).expect("sent");
        let frames = channel.recv_frames(Some(Duration::from_millis(20)));
        frames.is_ok_and(|frames| frames.iter().any(|frame| frame.bytes[42..].starts_with(b"raw")))
    });
    veth.kernel_goes_on();
    channel.close_vif(vif.id).expect("closed");
    let kernel = veth.spaces[1].within(|| UdpSocket::bind((IPV4[1], 4001))).expect(entered);
    let kernel = kernel.expect("the port is free");
    kernel.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    eventually("a datagram comes to the kernel", || {
        sender.send_to(b"again", (IPV4[1], 4001)).expect("sent");
        kernel.recv(&mut [0; 9]).is_ok_and(|length| length == 5)
    });
}

#[test]
fn af_xdp_steers_to_virtual_interfaces() {
    frames_are_steered("driver = \"af_xdp\"");
}

#[test]
fn af_packet_steers_to_virtual_interfaces() {
    frames_are_steered("driver = \"af_packet\"");
}

/// A machine on the LAN: the kernel of the other host asks for its address, is answered, and sends
/// to its Ethernet address. And the app's end takes it off the LAN.
#[test]
fn machine_of_its_own_is_found_by_the_kernel() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let entered = "the namespace can be entered";
    let sender = veth.spaces[0].within(|| UdpSocket::bind((IPV4[0], 0))).expect(entered);
    let sender = sender.expect("a socket");
    let mut channel = network.server.attach("machine");
    let own = Ipv4Addr::new(10, 78, 0, 50);
    let address = format!("{own}/24").parse().expect("an address");
    let machine = VifOptions::machine(MacChoice::Own, address);
    let vif = channel.open_vif(&machine).expect("an interface");
    eventually("the kernel asks, is told, and sends", || {
        sender.send_to(b"to the machine", (own, 7)).expect("sent");
        let Ok(frames) = channel.recv_frames(Some(Duration::from_millis(20))) else { return false };
        let copies: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.to_vec()).collect();
        drop(frames);
        for frame in &copies {
            // ARP: who has the machine's address?
            if frame[12..14] == [8, 6] && frame[21] == 1 && frame[38..42] == own.octets() {
                let answer = arp_answer(frame, vif.mac.0);
                channel.send_frame(vif.id, &answer).expect("sent");
            }
        }
        channel.flush_frames(vif.id, Some(PATIENCE)).expect("sent");
        copies.iter().any(|frame| {
            frame[..6] == vif.mac.0
                && frame.len() > 42
                && frame[42..].starts_with(b"to the machine")
        })
    });
    veth.kernel_goes_on();
    let sent = channel.frames_sent(vif.id).expect("open");
    assert_eq!(sent.rejected, 0, "{:?}", sent.reason);
}

/// A port is the kernel's or ours, never both: who has it first keeps it.
#[test]
fn ports_of_kernel_programs_are_not_taken_from_them() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let mut channel = network.server.attach("taker");
    let entered = "the namespace can be entered";
    let bind_udp = || veth.spaces[1].within(|| UdpSocket::bind((IPV4[1], 4500))).expect(entered);
    let bind_tcp = || veth.spaces[1].within(|| TcpListener::bind((IPV4[1], 4500))).expect(entered);
    for protocol in ["udp", "tcp"] {
        let filter = format!("dst host own and {protocol} dst port 4500");
        let kernel = (given_back(|| bind_udp().ok()), given_back(|| bind_tcp().ok()));
        let refused = channel.open_vif(&VifOptions::receiving(&filter)).expect_err("it is taken");
        assert!(refused.to_string().contains("port 4500 of 10.78.0.2 is in use"), "{refused}");
        drop(kernel);
        let vif = given_back(|| channel.open_vif(&VifOptions::receiving(&filter)).ok());
        assert_eq!(
            (bind_udp().is_err(), bind_tcp().is_err()),
            (protocol == "udp", protocol == "tcp")
        );
        channel.close_vif(vif.id).expect("closed");
        eventually("the port is the kernel's again", || bind_udp().is_ok() && bind_tcp().is_ok());
    }
}

/// What takes a port that was given back. Until a process that another test starts runs its own
/// program, it has a copy of what held the port.
fn given_back<T>(mut take: impl FnMut() -> Option<T>) -> T {
    let mut taken = None;
    eventually("the port is free again", || {
        taken = take();
        taken.is_some()
    });
    taken.expect("until it is taken")
}

/// Sending from a port is having it, as receiving at it is: no other program's sockets are spoken
/// for.
#[test]
fn ports_of_kernel_programs_are_not_sent_from() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let mut channel = network.server.attach("forger");
    let entered = "the namespace can be entered";
    let bind_udp = || veth.spaces[1].within(|| UdpSocket::bind((IPV4[1], 4500))).expect(entered);
    let bind_tcp = || veth.spaces[1].within(|| TcpListener::bind((IPV4[1], 4500))).expect(entered);
    for protocol in ["udp", "tcp"] {
        let filter = format!("src host own and {protocol} src port 4500");
        let sending = VifOptions {
            receive: Vec::new(),
            transmit: Some(vec![filter]),
            ..VifOptions::default()
        };
        let kernel = (given_back(|| bind_udp().ok()), given_back(|| bind_tcp().ok()));
        let refused = channel.open_vif(&sending).expect_err("it is taken");
        assert!(refused.to_string().contains("port 4500 of 10.78.0.2 is in use"), "{refused}");
        drop(kernel);
        let vif = given_back(|| channel.open_vif(&sending).ok());
        assert_eq!(
            (bind_udp().is_err(), bind_tcp().is_err()),
            (protocol == "udp", protocol == "tcp")
        );
        channel.close_vif(vif.id).expect("closed");
        eventually("the port is the kernel's again", || bind_udp().is_ok() && bind_tcp().is_ok());
    }
}

/// A rule's range is a prefix, and a raw mask that is none leaves one port of it: that one is
/// claimed.
#[test]
fn a_raw_mask_takes_no_port_from_a_kernel_program() {
    let Some(veth) = Veth::new() else { return };
    let network = veth.hosts(["", ""], IPV4.map(IpAddr::V4));
    let mut channel = network.server.attach("thief");
    let entered = "the namespace can be entered";
    let kernel = || veth.spaces[1].within(|| UdpSocket::bind((IPV4[1], 5001))).expect(entered);
    let filter = "dst host own and udp dst portrange 4096-8191 and \
                  digest[0] & 0x0fff00000000 = 0x038900000000";
    let taken = kernel().expect("free");
    let refused = channel.open_vif(&VifOptions::receiving(filter)).expect_err("it is taken");
    assert!(refused.to_string().contains("port 5001 of 10.78.0.2 is in use"), "{refused}");
    drop(taken);
    given_back(|| channel.open_vif(&VifOptions::receiving(filter)).ok());
    assert!(kernel().is_err(), "the kernel's programs cannot have it meanwhile");
}

/// Also the ports that only the mighty may bind: the policy says who may have them.
#[test]
fn low_ports_are_given_to_whom_the_policy_allows_them() {
    let Some(veth) = Veth::new() else { return };
    let rule =
        "[[policy.vif]]\nusers = [\"*\"]\nreceive = [\"dst host own and tcp dst port 80\"]\n";
    let network = veth.hosts(["", rule], IPV4.map(IpAddr::V4));
    let mut channel = network.server.attach("web");
    let filter = "dst host own and tcp dst port 80";
    let vif = channel.open_vif(&VifOptions::receiving(filter)).expect("the policy allows it");
    let bound = veth.spaces[1].within(|| TcpListener::bind((IPV4[1], 80))).expect("entered");
    assert!(bound.is_err(), "the kernel's programs cannot have it meanwhile");
    channel.close_vif(vif.id).expect("closed");
}

/// One user does not take all ports from the kernel's programs.
#[test]
fn ports_of_one_user_are_limited() {
    let Some(veth) = Veth::new() else { return };
    let limits = "[policy.limits]\nports_per_user = 3\n";
    let network = veth.hosts(["", limits], IPV4.map(IpAddr::V4));
    let mut channel = network.server.attach("greedy");
    let mut open = |ports: &str| {
        let filter = format!("dst host 10.78.0.2 and udp dst portrange {ports}");
        channel.open_vif(&VifOptions::receiving(&filter)).map(|vif| vif.id)
    };
    let first = open("5000-5001").expect("two ports");
    let refused = open("6000-6001").expect_err("four ports").to_string();
    assert!(refused.contains("`ports_per_user`"), "{refused}");
    channel.close_vif(first).expect("closed");
    let filter = "dst host 10.78.0.2 and udp dst portrange 6000-6002";
    channel
        .open_vif(&VifOptions::receiving(filter))
        .expect("three ports, now that the others are free");
}

/// The answer to an ARP request (RFC 826): source and target exchanged.
fn arp_answer(request: &[u8], mac: [u8; 6]) -> Vec<u8> {
    [&request[6..12], &mac, &request[12..21], &[2], &mac, &request[38..42], &request[22..32]]
        .concat()
}
