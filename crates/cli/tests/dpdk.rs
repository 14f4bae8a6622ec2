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
