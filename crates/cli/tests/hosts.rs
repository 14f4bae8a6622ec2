//! Two daemons, real processes, joined by memif: what users do, and what goes wrong on bad days.

mod support;

use std::time::{Duration, Instant};

use clearway_client::{Channel, Code, ConnectionId, Error, Sizes};
use support::app::App;
use support::traffic::Traffic;
use support::{Daemon, Network, PATIENCE, SMALL, clearway, eventually};

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

/// Sends a message and waits for its echo.
fn exchange(channel: &mut Channel, connection: ConnectionId, message: &[u8]) {
    channel.send(connection, message).expect("sent");
    let answer = channel.recv_zero_copy(Some(PATIENCE)).expect("answered");
    assert!(*answer == *message, "the echo of {} bytes is damaged", message.len());
}

#[test]
fn messages_of_all_sizes_arrive_intact() {
    let network = Network::start();
    let large =
        Sizes { transmit_pool_bytes: 32 << 20, receive_pool_bytes: 32 << 20, ..Sizes::default() };
    let mut server = network.server.try_attach("server", large).expect("attached");
    server.listen(4000).expect("listening");
    let serving = std::thread::spawn(move || support::app::echo(&mut server));
    let mut client = network.client.try_attach("client", large).expect("attached");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    for length in [0, 1, 63, 64, 1400, 1500, 9000, 65_536, 1_000_000, 8 << 20] {
        let message: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        exchange(&mut client, connection, &message);
    }
    let status = network.client.status();
    assert_eq!(status["engines"][0]["flows"][0]["path"], "wire");
    assert_eq!(status["engines"][0]["flows"][0]["messages_sent"], 10);
    drop(client);
    eventually("the client's channel is given back", || network.client.apps() == 0);
    drop(network);
    serving.join().expect("the server ends with its daemon");
}

#[test]
fn ping_and_status_for_people() {
    let network = Network::start();
    eventually("the wire is up", || {
        clearway(&["ping", "10.8.0.2", "--count", "1"], &network.client).status.success()
    });
    let ping = clearway(&["ping", "10.8.0.2", "--count", "2", "--interval", "0"], &network.client);
    let text = String::from_utf8_lossy(&ping.stdout);
    assert!(ping.status.success(), "{text}{}", String::from_utf8_lossy(&ping.stderr));
    assert!(text.contains("2 sent, 2 received"), "{text}");
    let _app = network.client.attach("somebody");
    let status = clearway(&["status"], &network.client);
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(text.contains("somebody") && text.contains("memif"), "{text}");
}

#[test]
fn ping_waits_for_an_answer_that_takes_longer_than_the_time_between_probes() {
    let network = Network::start();
    eventually("the wire is up", || {
        clearway(&["ping", "10.8.0.2", "--count", "1"], &network.client).status.success()
    });
    network.server.signal("STOP");
    let sent = || network.client.status()["engines"][0]["counters"]["packets_sent"].as_u64();
    let before = sent().expect("a counter");
    let ping = std::thread::scope(|threads| {
        let ping = threads.spawn(|| {
            let options = ["--count", "2", "--interval", "0.01", "--timeout", "30"];
            clearway(&[&["ping", "10.8.0.2"][..], &options].concat(), &network.client)
        });
        eventually("the second probe has gone", || sent() >= Some(before + 2));
        network.server.signal("CONT");
        ping.join().expect("no panic")
    });
    let text = String::from_utf8_lossy(&ping.stdout);
    assert!(text.contains("2 sent, 2 received"), "{text}");
}

#[test]
fn killed_app_gives_everything_back_and_its_peer_gets_a_reset() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    for _ in 0..3 {
        let mut server = App::start("echo", &network.server, 4001);
        let mut client = network.client.attach("client");
        let connection =
            client.connect(network.server.at(4001), Some(PATIENCE)).expect("connected");
        exchange(&mut client, connection, b"hello");
        server.kill();
        let error = client.recv_zero_copy(Some(PATIENCE)).expect_err("a reset");
        assert!(
            matches!(&error, Error::Connection { code: Code::Reset, .. }),
            "{error} instead of a reset"
        );
        drop(client);
        eventually("only the traffic is left", || {
            network.server.apps() == 1 && network.client.apps() == 1
        });
        traffic.goes_on();
    }
    assert_eq!(network.server.flows(), 1);
}

#[test]
fn killed_client_gives_everything_back_while_it_sends() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    let mut server = network.server.attach("server");
    server.listen(4001).expect("listening");
    // An app that accepts and sends: the listening side is the one that is killed.
    let mut app = App::start("echo", &network.client, 4002);
    let peer = network.client.at(4002);
    let connection = server.connect(peer, Some(PATIENCE)).expect("connected");
    for _ in 0..100 {
        server.send(connection, &[7; 4000]).expect("sent");
    }
    app.kill();
    let ended = loop {
        match server.recv_zero_copy(Some(PATIENCE)) {
            Ok(message) => assert_eq!(message.len(), 4000),
            Err(error) => break error,
        }
    };
    assert!(matches!(ended, Error::Connection { code: Code::Reset, .. }), "{ended}");
    eventually("the killed app is gone", || network.client.apps() == 1);
    traffic.goes_on();
}

#[test]
fn killed_daemon_is_an_error_for_its_apps_and_no_hang() {
    let mut network = Network::start();
    let mut waiting = network.server.attach("waiting");
    waiting.listen(4000).expect("listening");
    let mut sending = network.server.attach("sending");
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    client.send(connection, b"hello").expect("sent");
    let blocked = std::thread::spawn(move || {
        waiting.recv_zero_copy(None).expect("the first message");
        waiting.recv_zero_copy(None).map(|_| ())
    });
    eventually("the server has its message", || {
        network.server.status()["engines"][0]["flows"][0]["messages_received"] == 1
    });
    network.server.kill();
    let error = blocked.join().expect("no panic").expect_err("the daemon is gone");
    assert_eq!(error.code(), Code::DaemonGone, "{error}");
    let error = sending.connect(network.client.at(1), Some(PATIENCE)).expect_err("gone");
    assert_eq!(error.code(), Code::DaemonGone, "{error}");
}

#[test]
fn restarted_daemon_serves_again() {
    let mut network = Network::start();
    network.server.kill();
    network.server.restart();
    let traffic = Traffic::start(&network, 4000);
    traffic.goes_on();
    drop(traffic);
    network.client.kill();
    network.client.restart();
    Traffic::start(&network, 4001).goes_on();
}

#[test]
fn terminated_daemon_says_goodbye_and_leaves_nothing() {
    let mut network = Network::start();
    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    client.send(connection, b"hello").expect("sent");
    server.recv_zero_copy(Some(PATIENCE)).expect("a message");
    assert!(network.server.terminate(), "the daemon did not end in good order");
    let error = server.recv_zero_copy(Some(PATIENCE)).expect_err("the daemon is gone");
    assert_eq!(error.code(), Code::DaemonGone, "{error}");
    let error = client.recv_zero_copy(Some(PATIENCE)).expect_err("the peer is gone");
    assert!(matches!(error, Error::Connection { .. }), "{error}");
    assert!(network.client.terminate(), "the daemon did not end in good order");
    assert_eq!(network.files(), ["client.log", "client.toml", "server.log", "server.toml"]);
}

/// The stopped app's peer is slowed down, and nobody else; nothing is lost.
#[test]
fn stopped_app_holds_up_only_its_peer() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    let server = App::start("echo", &network.server, 4001);
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4001), Some(PATIENCE)).expect("connected");
    exchange(&mut client, connection, b"hello");
    server.stop();
    let sent = fill(&mut client, connection);
    traffic.goes_on();
    server.go_on();
    for number in 0..sent {
        let message = client.recv_zero_copy(Some(PATIENCE)).expect("an echo");
        assert_eq!(message[..4], number.to_ne_bytes(), "out of order");
    }
    traffic.goes_on();
}

/// Sends until there has been no room for a while. Returns how many messages were taken.
fn fill(client: &mut Channel, connection: ConnectionId) -> u32 {
    const QUIET: Duration = Duration::from_millis(300);
    let deadline = Instant::now() + PATIENCE;
    let mut message = [0; 4000];
    for number in 0u32.. {
        assert!(Instant::now() < deadline, "the sender was never slowed down");
        message[..4].copy_from_slice(&number.to_ne_bytes());
        match client.send_timeout(connection, &message, Some(QUIET)) {
            Ok(()) => {}
            Err(Error::TimedOut { .. }) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a message for each number was sent")
}

#[test]
fn app_that_never_reads_stops_only_its_sender() {
    let network = Network::start();
    let traffic = Traffic::start(&network, 4000);
    let mut deaf = App::start("deaf", &network.server, 4001);
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4001), Some(PATIENCE)).expect("connected");
    assert!(fill(&mut client, connection) > 0);
    traffic.goes_on();
    deaf.kill();
    let error = client.recv_zero_copy(Some(PATIENCE)).expect_err("a reset");
    assert!(matches!(error, Error::Connection { code: Code::Reset, .. }), "{error}");
    eventually("the deaf app is gone", || network.server.apps() == 1);
    traffic.goes_on();
}

/// A program with a pace of its own never waits in the library. Its peers are not to wait for it
/// longer than until it looks again: what it has read, copied or in place, makes room for more.
#[test]
fn who_looks_now_and_then_holds_up_nobody() {
    const MESSAGES: usize = 200;
    let network = Network::start();
    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let peer = network.server.at(4000);
    let sending = [("far", &network.client), ("near", &network.server)].map(|(app, host)| {
        let mut channel = host.attach(app);
        std::thread::spawn(move || {
            let connection = channel.connect(peer, Some(PATIENCE)).expect("connected");
            for _ in 0..MESSAGES {
                channel.send_timeout(connection, &[7; 10_000], Some(PATIENCE)).expect("sent");
            }
            channel.detach(Some(PATIENCE)).expect("all has come");
        })
    });
    let at_once = Some(Duration::ZERO);
    let (mut received, mut buffer) = (0, [0; 10_000]);
    eventually("all has come", || {
        loop {
            let came = match received % 2 {
                0 => server.recv(&mut buffer, at_once).map(drop),
                _ => server.recv_zero_copy(at_once).map(drop),
            };
            match came {
                Ok(()) => received += 1,
                Err(Error::Connection { code: Code::Closed, .. }) => {}
                Err(Error::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        received == 2 * MESSAGES
    });
    sending.into_iter().for_each(|app| app.join().expect("no panic"));
}

/// Of a connection and a stream over the wire, and a connection within a host, whose messages the
/// server holds, status says that they wait for it, and not that those do that the server reads.
#[test]
fn status_tells_whose_app_holds_up_a_connection() {
    let network = Network::start();
    let mut server = network.server.attach("server");
    server.take_streams(true).expect("takes streams");
    server.listen(4000).expect("listening");
    let peer = network.server.at(4000);
    let mut far = network.client.attach("far");
    let mut near = network.server.attach("near");
    let connection = far.connect(peer, Some(PATIENCE)).expect("connected");
    let stream = far.open_stream(connection, Some(PATIENCE)).expect("open");
    let read = far.connect(peer, Some(PATIENCE)).expect("connected");
    let local = near.connect(peer, Some(PATIENCE)).expect("connected");
    let held = |network: &Network| {
        let hosts = [&network.client, &network.server];
        let held = hosts.into_iter().flat_map(flows_of).filter(|flow| flow.2);
        held.map(|(id, outstanding, _)| (id, outstanding > 0)).collect::<Vec<_>>()
    };
    far.send(read, b"read").expect("sent");
    drop(server.recv_zero_copy(Some(PATIENCE)).expect("arrived"));
    assert_eq!(held(&network), []);

    for _ in 0..20 {
        far.send(connection, &[7; 10_000]).expect("sent");
        far.send(stream, &[7; 10_000]).expect("sent");
        near.send(local, &[7; 10_000]).expect("sent");
    }
    let expected = [stream, connection, local].map(|id| (id.as_u64(), true));
    let mut messages = Vec::new();
    eventually("three wait for the server", || {
        while let Ok(message) = server.recv_zero_copy(Some(Duration::ZERO)) {
            messages.push(message);
        }
        held(&network) == expected
    });
    let text = String::from_utf8(clearway(&["status"], &network.client).stdout).expect("UTF-8");
    let told = format!("  far waits on connection {stream}: the app at {peer} does not release");
    assert!(text.contains(&told), "{text}");

    eventually("nobody waits", || {
        messages.clear();
        while server.recv_zero_copy(Some(Duration::ZERO)).is_ok() {}
        let mut flows = [&network.client, &network.server].into_iter().flat_map(flows_of);
        flows.all(|(_, outstanding, is_held)| (outstanding, is_held) == (0, false))
    });
}

/// The connections of a host: the id, the messages outstanding, and whether the peer holds it up.
fn flows_of(host: &Daemon) -> Vec<(u64, u64, bool)> {
    let status = host.status();
    let flows = status["engines"][0]["flows"].as_array().expect("flows").iter();
    let told = flows.map(|flow| {
        let number = |key: &str| flow[key].as_u64().expect("a number");
        let is_held = flow["held_by_peer"].as_bool().expect("a truth");
        (number("connection"), number("messages_outstanding"), is_held)
    });
    told.collect()
}

#[test]
fn apps_over_the_limit_are_refused_and_the_others_go_on() {
    let network = Network::with_server_policy("[policy.limits]\nchannels_total = 3\n");
    let traffic = Traffic::start(&network, 4000);
    for _ in 0..3 {
        let others = [network.server.attach("second"), network.server.attach("third")];
        let Err(refused) = network.server.try_attach("fourth", SMALL) else {
            panic!("a fourth app was let in");
        };
        assert_eq!(refused.code(), Code::Limit, "{refused}");
        assert!(refused.to_string().contains("channels_total"), "{refused}");
        traffic.goes_on();
        drop(others);
        eventually("the others are gone", || network.server.apps() == 1);
    }
}

/// The command puts a status together that does not fit in one packet.
#[test]
fn status_shows_hundreds_of_apps() {
    const APPS: usize = 200;
    let limits = format!("[policy.limits]\nchannels_per_user = {APPS}\n");
    let network = Network::with_server_policy(&limits);
    let sizes = Sizes { transmit_pool_bytes: 1 << 16, receive_pool_bytes: 1 << 16, ..SMALL };
    let attach = |_| {
        network
            .server
            .try_attach("one of hundreds of apps with a name that takes some room", sizes)
            .expect("attached")
    };
    let apps: Vec<Channel> = (0..APPS).map(attach).collect();
    assert_eq!(network.server.apps(), APPS);
    assert!(network.server.status().to_string().len() > 1 << 16);
    drop(apps);
}

#[test]
fn two_apps_of_one_host_exchange_without_the_wire() {
    let network = Network::start();
    let mut server = network.client.attach("server");
    server.listen(4000).expect("listening");
    let mut client = network.client.attach("client");
    let peer = network.client.at(4000);
    let connection = client.connect(peer, Some(PATIENCE)).expect("connected");
    client.send(connection, b"next door").expect("sent");
    let message = server.recv_zero_copy(Some(PATIENCE)).expect("a message");
    assert_eq!(*message, *b"next door");
    assert_eq!(network.client.status()["engines"][0]["flows"][0]["path"], "local");
}

#[test]
fn configuration_is_checked_before_anything_is_opened() {
    let network = Network::start();
    let file = network.client.socket.with_file_name("bad.toml");
    std::fs::write(&file, "[[nic]]\ninterface = \"lo\"\nidel = 1\n").expect("written");
    for extra in [&["--check"][..], &[]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_clearwayd"))
            .arg("--config")
            .arg(&file)
            .args(extra)
            .output()
            .expect("the command starts");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("bad.toml:2:13: \"lo\" leads to no other host"), "{text}");
        assert!(text.contains("bad.toml:3:1: unknown key `idel`"), "{text}");
        assert!(text.contains("did you mean `idle`?"), "{text}");
    }
    std::fs::remove_file(&file).expect("removed");
}
