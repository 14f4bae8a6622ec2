//! Two daemons joined by memif agree on how large packets are: nobody says so in a configuration.

mod support;

use std::net::{IpAddr, Ipv4Addr};

use clearway_client::{Sizes, VifOptions};
use serde_json::Value;
use support::traffic::Traffic;
use support::{Daemon, Network, PATIENCE, clearway, eventually};

/// Headers of IPv4 and UDP.
const HEADERS: u64 = 28;

fn hosts(nics: [&str; 2]) -> Network {
    let at = |host| IpAddr::from(Ipv4Addr::new(10, 8, 0, host));
    let with =
        |index: usize| format!("addresses = [\"{}/24\"]\n{}", at(index as u8 + 1), nics[index]);
    Network::on_memif([&with(0), &with(1)], [at(1), at(2)])
}

fn engine(daemon: &Daemon) -> Value {
    daemon.status()["engines"][0].clone()
}

fn mode(daemon: &Daemon) -> String {
    engine(daemon)["queues"][0]["mode"].as_str().expect("a text").to_owned()
}

/// Waits until the flow of each host sends packets of up to `mtu` bytes.
fn packets_are(network: &Network, mtu: u64) {
    for daemon in [&network.client, &network.server] {
        let is_so = || engine(daemon)["flows"][0]["packet_bytes"] == mtu - HEADERS;
        eventually("packets are of the size that both sides take", is_so);
    }
}

fn reload(daemon: &Daemon, change: impl FnOnce(String) -> String) {
    daemon.rewrite_config(change);
    assert!(clearway(&["reload"], daemon).status.success());
}

#[test]
fn daemons_that_are_told_nothing_use_packets_of_33000_bytes() {
    let network = hosts(["", ""]);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are(&network, 33_000);
    for daemon in [&network.client, &network.server] {
        let words = "packets of up to 33000 bytes (as both sides take)";
        assert!(mode(daemon).contains(words), "{}", mode(daemon));
        let doctor = clearway(&["doctor", "--json"], daemon);
        assert!(String::from_utf8_lossy(&doctor.stdout).contains(words), "{doctor:?}");
    }
    drop(traffic);
    // A message of 32 KB is in one packet, and so is its answer.
    let mut server = network.server.try_attach("server", Sizes::default()).expect("attached");
    server.listen(4001).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
    let mut client = network.client.try_attach("client", Sizes::default()).expect("attached");
    let connection = client.connect(network.server.at(4001), Some(PATIENCE)).expect("connected");
    let message: Vec<u8> = (0..32 << 10).map(|at: u32| (at % 251) as u8).collect();
    let mut exchange = || {
        client.send(connection, &message).expect("sent");
        let answer = client.recv_zero_copy(Some(PATIENCE)).expect("answered");
        assert!(*answer == *message);
    };
    let bytes = || engine(&network.client)["queues"][0]["tx_bytes"].as_u64().expect("a counter");
    let frames = || engine(&network.client)["queues"][0]["tx_frames"].as_u64().expect("a counter");
    exchange();
    let before = (bytes(), frames());
    (0..100).for_each(|_| exchange());
    let (bytes, frames) = (bytes() - before.0, frames() - before.1);
    assert!(bytes >= 100 * 32_768 && frames < 300, "{bytes} bytes in {frames} frames");
    // Apps that bring their own stack are told.
    let vif = client.open_vif(&VifOptions::receiving("udp dst port 7"));
    assert_eq!(vif.expect("free").mtu, 33_000);
}

#[test]
fn what_a_configuration_says_is_the_upper_bound() {
    let network = hosts(["mtu_bytes = 4000\n", ""]);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are(&network, 4000);
    assert!(mode(&network.server).contains("packets of up to 4000 bytes (as the peer takes)"));
    let words = "packets of up to 4000 bytes (the peer takes more, but not this side)";
    assert!(mode(&network.client).contains(words));
}

/// The same flow goes on: with smaller packets, and again with large ones.
#[test]
fn flows_follow_a_peer_that_comes_back_with_another_size() {
    let network = hosts(["", ""]);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are(&network, 33_000);
    reload(&network.server, |text| text + "\nmtu_bytes = 1500\n");
    packets_are(&network, 1500);
    traffic.goes_on();
    reload(&network.server, |text| text.replace("mtu_bytes = 1500\n", ""));
    packets_are(&network, 33_000);
    traffic.goes_on();
    assert_eq!((network.client.flows(), network.server.flows()), (1, 1));
}

/// The port of the fabric says what it takes; that the other one takes less is found by search.
#[test]
fn what_is_behind_a_fabric_is_found() {
    let (network, _fabric) = Network::at_fabric(1, ["", ""]);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    packets_are(&network, 9000);
    drop((traffic, network));
    let (network, _fabric) = Network::at_fabric(1, ["", ",mtu_bytes=1500"]);
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    assert!(mode(&network.client).contains("packets of up to 9000 bytes"));
    let size = || engine(&network.client)["flows"][0]["packet_bytes"].as_u64().expect("a number");
    eventually("the client has found what passes", || (1457..=1472).contains(&size()));
    traffic.goes_on();
}
