//! Two daemons, real processes, at the ports of a third, `clearway fabric`: a network that loses,
//! reorders and spreads as it likes.

mod support;

use clearway_client::{Channel, ConnectionId, Sizes};
use support::{Network, PATIENCE, eventually};

/// Sends messages of many sizes one after the other, and waits for the echo of each.
fn exchange(client: &mut Channel, connection: ConnectionId, messages: u32) {
    for number in 0..messages {
        let length = (number * number * 37 + number) % 40_000;
        let message: Vec<u8> = (0..length).map(|at| ((at + number) % 251) as u8).collect();
        client.send(connection, &message).expect("sent");
        let echo = client.recv_zero_copy(Some(PATIENCE)).expect("echoed");
        assert!(*echo == *message, "message {number}, of {length} bytes, is damaged");
    }
}

/// A client at the one host, connected to an echo at the other.
fn connect(network: &Network) -> (Channel, ConnectionId) {
    let sizes =
        Sizes { transmit_pool_bytes: 4 << 20, receive_pool_bytes: 4 << 20, ..support::SMALL };
    let mut server = network.server.try_attach("server", sizes).expect("attached");
    server.listen(4000).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
    let mut client = network.client.try_attach("client", sizes).expect("attached");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    (client, connection)
}

#[test]
fn messages_survive_loss_duplication_reordering_and_corruption() {
    let bad = ",sends.loss_ppm=20000,sends.reordering_ppm=50000,sends.duplication_ppm=20000,\
               receives.corruption_ppm=20000,receives.latency_ns=20000,receives.jitter_ns=30000";
    let (network, fabric) = Network::at_fabric(4, [bad, bad]);
    let (mut client, connection) = connect(&network);
    exchange(&mut client, connection, 300);
    let ports = fabric.finish();
    for port in [&ports[0], &ports[1]] {
        assert!(port["sent_frames"].as_u64() > Some(100), "{port}");
        for (way, what) in [
            ("sends", "lost"),
            ("sends", "reordered"),
            ("sends", "duplicated"),
            ("receives", "corrupted"),
        ] {
            assert!(port[way][what].as_u64() > Some(0), "{what}: {port}");
        }
    }
}

/// The process at the other end of the hosts' memifs dies and comes back: the links go down, and up
/// again, and no message is lost.
#[test]
fn flows_survive_a_memif_whose_other_end_starts_again() {
    let (network, mut fabric) = Network::at_fabric(1, ["", ""]);
    let (mut client, connection) = connect(&network);
    exchange(&mut client, connection, 10);
    for _ in 0..3 {
        client.send(connection, b"on its way").expect("sent");
        fabric.restart();
        let echo = client.recv_zero_copy(Some(PATIENCE)).expect("echoed in the end");
        assert_eq!(*echo, *b"on its way");
        drop(echo);
        exchange(&mut client, connection, 10);
    }
    let flows = network.client.status()["engines"][0]["flows"].as_array().map_or(0, Vec::len);
    assert_eq!(flows, 1, "the flow is the one that it was");
}

#[test]
fn orders_change_a_fabric_that_runs() {
    let (network, mut fabric) = Network::at_fabric(4, [",rss=toeplitz", ",rss=folded"]);
    let (mut client, connection) = connect(&network);
    exchange(&mut client, connection, 3);
    assert_eq!(fabric.counters()[1]["queues_up"], 4);
    fabric.order("rekey");
    fabric.order("link server down");
    eventually("the new keys are there", || fabric.counters()[1]["rekeyed"] == 1);
    client.send(connection, b"into the dark").expect("sent");
    eventually("frames are dropped", || fabric.counters()[1]["dropped_down"].as_u64() > Some(0));
    fabric.order("link server up");
    let echo = client.recv_zero_copy(Some(PATIENCE)).expect("echoed in the end");
    assert_eq!(*echo, *b"into the dark");
    drop(echo);
    exchange(&mut client, connection, 3);
    let ports = fabric.finish();
    let queues = ports[0]["queues"].as_array().expect("queues");
    assert_eq!(queues.len(), 4);
    let sum: u64 = queues.iter().filter_map(|queue| queue["sent_frames"].as_u64()).sum();
    assert_eq!(ports[0]["sent_frames"], sum);
}
