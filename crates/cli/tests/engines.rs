//! Daemons with several engines, real processes, at a network that spreads packets as it likes.

mod support;

use std::net::IpAddr;

use clearway_client::{CaptureOptions, Channel, Code, ConnectionId, Error, Options, VifOptions};
use support::fabric::Fabric;
use support::{Daemon, Network, PATIENCE, SMALL, eventually};

const ENGINES: u16 = 2;

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

fn network() -> (Network, Fabric) {
    Network::at_fabric_with(ENGINES, ["", ""], &format!("name = \"nic\"\nengines = {ENGINES}\n"))
}

/// Attaches to one of the engines.
fn attach(daemon: &Daemon, engine: u16) -> Channel {
    let (socket, engine) = (daemon.socket.clone(), Some(format!("nic/{engine}")));
    let options = Options { socket, engine, sizes: SMALL, ..Options::new("app") };
    let channel = Channel::attach(&options).expect("attached");
    assert_eq!(Some(channel.engine()), options.engine.as_deref());
    channel
}

fn exchange(channel: &mut Channel, connection: ConnectionId) {
    for length in [0, 1, 1400, 50_000] {
        let message: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        channel.send(connection, &message).expect("sent");
        let echo = channel.recv_zero_copy(Some(PATIENCE)).expect("echoed");
        assert!(*echo == *message, "the echo of {length} bytes is damaged");
    }
}

/// An echo on `port` of an engine, which ends with its daemon.
fn serve(daemon: &Daemon, engine: u16, port: u16) {
    let mut server = attach(daemon, engine);
    server.listen(port).expect("listening");
    std::thread::spawn(move || support::app::echo(&mut server));
}

/// Apps on each engine of both hosts talk with apps on each engine of the server's.
fn all_pairs_talk(network: &Network) {
    for server in 0..ENGINES {
        serve(&network.server, server, 4000 + server);
    }
    for (host, path) in [(&network.client, "wire"), (&network.server, "")] {
        for engine in 0..ENGINES {
            let mut client = attach(host, engine);
            for server in 0..ENGINES {
                let peer = network.server.at(4000 + server);
                let connection = client.connect(peer, Some(PATIENCE)).expect("connected");
                exchange(&mut client, connection);
                let expected = match path {
                    "" if engine == server => "local",
                    "" => "lane",
                    wire => wire,
                };
                let status = host.status();
                let flows = status["engines"][usize::from(engine)]["flows"].as_array();
                let is_it = |flow: &&serde_json::Value| flow["peer"] == peer.to_string();
                let flow = flows.and_then(|flows| flows.iter().find(is_it)).expect("a flow");
                assert_eq!(flow["path"], expected, "{status:#}");
            }
        }
    }
}

#[test]
fn apps_on_any_engines_of_any_hosts_talk() {
    let (network, _fabric) = network();
    all_pairs_talk(&network);
}

/// Nothing between them spreads packets: what one host's queue sends comes to the queue of the same
/// number, and whoever wants another engine gets there by its host's lane.
#[test]
fn apps_on_any_engines_talk_over_a_memif_without_a_hash() {
    let nic = |host: u8| {
        format!(
            "name = \"nic\"\nengines = {ENGINES}\nqueue_pairs = {ENGINES}\n\
             addresses = [\"10.8.0.{host}/24\"]\n"
        )
    };
    let at = [1, 2].map(|host| IpAddr::from([10, 8, 0, host]));
    let (client, server) = (nic(1), nic(2));
    all_pairs_talk(&Network::on_memif([&client, &server], at));
}

#[test]
fn a_port_is_one_apps_on_whichever_engine_until_it_goes() {
    let (network, _fabric) = network();
    let mut first = attach(&network.server, 0);
    let mut second = attach(&network.server, 1);
    first.listen(4000).expect("listening");
    let refused = second.listen(4000).expect_err("it is the first one's");
    assert_eq!(refused.code(), Code::AddressInUse, "{refused}");
    let dynamic: Vec<u16> = [&mut first, &mut second]
        .map(|app| app.listen(0).expect("listening").address.port())
        .to_vec();
    assert_ne!(dynamic[0], dynamic[1]);
    drop(first);
    eventually("the port is free", || second.listen(4000).is_ok());
    let mut client = attach(&network.client, 0);
    client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected to the second");
}

#[test]
fn the_end_of_an_app_is_heard_on_all_engines() {
    let (network, _fabric) = network();
    let mut app = support::app::App::start("echo", &network.server, 4000);
    let mut clients = [
        attach(&network.client, 0),
        attach(&network.client, 1),
        attach(&network.server, 0),
        attach(&network.server, 1),
    ];
    for client in &mut clients {
        let peer = network.server.at(4000);
        let connection = client.connect(peer, Some(PATIENCE)).expect("connected");
        exchange(client, connection);
    }
    app.kill();
    for client in &mut clients {
        let error = client.recv_zero_copy(Some(PATIENCE)).expect_err("a reset");
        assert!(matches!(&error, Error::Connection { code: Code::Reset, .. }), "{error}");
    }
    eventually("it is gone", || network.server.apps() == 2);
}

#[test]
fn interfaces_and_captures_work_across_engines() {
    let (network, _fabric) = network();
    let host = &network.server;
    let mut apps = [0, 1].map(|engine| attach(host, engine));
    let mut open = |engine: usize, port: u16| {
        let filter = format!("dst host own and udp dst port {port}");
        apps[engine].open_vif(&VifOptions::receiving(filter))
    };
    let vifs = [open(0, 5000).expect("an interface"), open(1, 5001).expect("an interface")];
    let refused = open(1, 5000).expect_err("it is the other one's").to_string();
    assert!(refused.contains("app app (channel 1)"), "{refused}");
    let mut viewer = attach(host, 0);
    let filter = vec!["udp dst port 5001".to_owned()];
    viewer.open_capture(&CaptureOptions { filter, ..Default::default() }).expect("a capture");
    let [sender, receiver] = &mut apps;
    let frame = datagram(vifs[0].mac.0, [10, 8, 0, 2], [5000, 5001], b"next door");
    sender.send_frame(vifs[0].id, &frame).expect("sent");
    sender.flush_frames(vifs[0].id, Some(PATIENCE)).expect("sent");
    let frames = receiver.recv_frames(Some(PATIENCE)).expect("a frame");
    assert!(frames.iter().any(|got| got.bytes == frame));
    let frames = viewer.recv_frames(Some(PATIENCE)).expect("it is seen");
    assert_eq!(frames.iter().filter(|got| got.bytes == frame).count(), 1, "once");
    let [_, mut receiver] = apps;
    receiver.close_vif(vifs[1].id).expect("closed");
    let mut other = attach(host, 0);
    let filter = "dst host own and udp dst port 5001";
    other.open_vif(&VifOptions::receiving(filter)).expect("it is free again");
}

fn datagram(mac: [u8; 6], ip: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0].to_vec();
    header[2..4].copy_from_slice(&(28 + length).to_be_bytes());
    header.extend([ip, ip].concat());
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    header[10..12].copy_from_slice(&(!(sum % 0xffff) as u16).to_be_bytes());
    let [source, destination] = ports.map(u16::to_be_bytes);
    let length = (8 + length).to_be_bytes();
    [&mac, &mac, &[8, 0][..], &header, &source, &destination, &length, &[0, 0], payload].concat()
}
