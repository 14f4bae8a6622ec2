//! A daemon whose NIC is DPDK's `net_memif`, and one whose NIC is our own memif, exchange messages.

mod support;

use clearway_nic::interface::Namespace;
use support::{Network, PATIENCE, eventually};

#[test]
fn messages_cross_from_dpdk_to_memif() {
    let socket = format!("clearway-dpdk-{}", std::process::id());
    let dpdk = format!(
        "[[nic]]\ndriver = \"dpdk\"\neal = [\"--no-huge\", \"-m\", \"64\", \"--no-pci\"]\n\
         device = \"net_memif0,role=server,socket={socket},socket-abstract=yes\"\n\
         addresses = [\"10.8.0.1/24\"]"
    );
    let memif = format!(
        "[[nic]]\ndriver = \"memif\"\nsocket = \"@{socket}\"\nrole = \"client\"\n\
         addresses = [\"10.8.0.2/24\"]"
    );
    let here = Namespace::of_this_thread().expect("a namespace");
    let at = ["10.8.0.1", "10.8.0.2"].map(|address| address.parse().expect("an address"));
    let network = Network::in_namespaces([&here, &here], [&dpdk, &memif], at);

    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let serving = std::thread::spawn(move || support::app::echo(&mut server));
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    for length in [0, 1, 64, 1400, 1500, 9000, 200_000] {
        let message: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        client.send(connection, &message).expect("sent");
        let answer = client.recv_zero_copy(Some(PATIENCE)).expect("answered");
        assert!(*answer == *message, "the echo of {length} bytes is damaged");
    }

    let status = network.client.status();
    let engine = status["engines"][0].to_string();
    assert!(engine.contains("by the poll-mode driver net_memif"), "{engine}");
    let confinement = status["confinement"]["system_calls"].as_str().unwrap_or_default();
    assert!(confinement.contains("except for DPDK's own threads"), "{confinement}");
    drop(client);
    eventually("the client's channel is given back", || network.client.apps() == 0);
    drop(network);
    serving.join().expect("the server ends with its daemon");
}

/// A queue pair of the device for each engine. `net_memif` has no hash: what goes in at one comes
/// out at the same of the other end, and flows between engines of different numbers take a lane.
#[test]
fn several_engines_share_a_device() {
    let socket = format!("clearway-dpdk-engines-{}", std::process::id());
    let dpdk = format!(
        "[[nic]]\ndriver = \"dpdk\"\neal = [\"--no-huge\", \"-m\", \"128\", \"--no-pci\"]\n\
         device = \"net_memif0,role=server,socket={socket},socket-abstract=yes\"\n\
         engines = 2\naddresses = [\"10.8.0.1/24\"]"
    );
    let memif = format!(
        "[[nic]]\ndriver = \"memif\"\nsocket = \"@{socket}\"\nrole = \"client\"\n\
         engines = 2\naddresses = [\"10.8.0.2/24\"]"
    );
    let here = Namespace::of_this_thread().expect("a namespace");
    let at = ["10.8.0.1", "10.8.0.2"].map(|address| address.parse().expect("an address"));
    let network = Network::in_namespaces([&here, &here], [&dpdk, &memif], at);
    for (client, server) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        let engine = |number: usize| number.to_string();
        let mut listening = network.server.attach_at(&engine(server), "server");
        listening.listen(4000).expect("listening");
        let mut channel = network.client.attach_at(&engine(client), "client");
        let connected = channel.connect(network.server.at(4000), Some(PATIENCE));
        let connection = connected.expect("connected");
        for _ in 0..100 {
            channel.send(connection, &[7; 30_000]).expect("sent");
            let message = listening.recv_zero_copy(Some(PATIENCE)).expect("arrived");
            assert_eq!(*message, [7; 30_000]);
        }
    }
    let status = network.client.status();
    for engine in status["engines"].as_array().expect("engines") {
        let queue = &engine["queues"][0];
        let mode = queue["mode"].as_str().expect("text");
        assert!(mode.contains("net_memif, 2 of 255 queues"), "{mode}");
        let received = queue["rx_frames"].as_u64().expect("a number");
        assert!(received > 50, "{received} frames came to a queue: {status:#}");
    }
}
