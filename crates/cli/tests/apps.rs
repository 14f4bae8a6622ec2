//! How connections end: in order, by death, by silence. Two daemons, real processes, joined by memif.

mod support;

use std::time::Duration;

use clearway_client::{Code, Ended, Error};
use support::app::{App, PARTING};
use support::{Network, PATIENCE, eventually};

/// Not a test: the process of an app, see `support::app`.
#[test]
fn app_process() {
    support::app::play();
}

/// A program that sends and ends: its peer, which reads late, gets all of it, and then an orderly
/// end. The log tells that from a kill.
#[test]
fn what_an_app_has_sent_arrives_after_its_end() {
    let network = Network::talkative();
    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let app = App::start("parting", &network.client, 4000);
    let accepted = server.accept(Some(PATIENCE)).expect("a client");
    eventually("the client's session has ended", || {
        network.client.status()["apps"].as_array().is_some_and(Vec::is_empty)
    });
    for number in 0..PARTING.0 {
        let message = server.recv_zero_copy(Some(PATIENCE)).expect("a message");
        assert!(message.len() == PARTING.1 && message[0] == number as u8, "message {number}");
    }
    let error = server.recv_zero_copy(Some(PATIENCE)).expect_err("an end");
    assert!(matches!(error, Error::Connection { connection, code: Code::Closed }
        if connection == accepted.connection));
    eventually("its channel is given back", || network.client.apps() == 0);
    assert!(network.client.log().contains("detached"), "{}", network.client.log());
    let mut killed = App::start("echo", &network.client, 4001);
    killed.kill();
    eventually("the log tells", || network.client.log().contains("was it killed"));
    drop(app);
}

#[test]
fn detaching_is_an_orderly_end_for_peers() {
    let network = Network::start();
    for is_dropped in [false, true] {
        let (mut server, mut client) =
            (network.server.attach("server"), network.client.attach("client"));
        server.listen(4000).expect("listening");
        let connection =
            client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
        assert!(connection.as_u64() > 0, "ids begin at 1");
        client.send(connection, b"goodbye").expect("sent");
        match is_dropped {
            true => drop(client),
            false => client.detach(Some(PATIENCE)).expect("delivered"),
        }
        assert_eq!(&*server.recv_zero_copy(Some(PATIENCE)).expect("a message"), b"goodbye");
        let error = server.recv_zero_copy(Some(PATIENCE)).expect_err("an end");
        assert_eq!(error.code(), Code::Closed);
    }
}

/// A host that vanishes is lost to its peers, after the time that the configuration says, or the
/// connection; and a connection that is waited on says so, rather than that time is up.
#[test]
fn a_host_that_vanishes_is_lost() {
    let mut network = Network::with_policies("silence_s = 600");
    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let mut client = network.client.attach("client");
    client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    let accepted = server.accept(Some(PATIENCE)).expect("a client");
    server.set_silence(accepted.connection, Duration::from_secs(1)).expect("open");
    network.client.kill();
    let error = server.recv_zero_copy(Some(PATIENCE)).expect_err("nothing comes any more");
    assert_eq!((error.code(), error.ended()), (Code::Lost, Ended::Connection), "{error}");
    // Nobody there: what is said names the peer and where to look.
    let error = server.connect("10.8.0.1:4000", Some(PATIENCE)).expect_err("nobody is there");
    let text = error.to_string();
    assert!(
        text.contains("10.8.0.1 port 4000") && text.contains("clearway ping 10.8.0.1"),
        "{text}"
    );
    assert_eq!((error.code(), error.ended()), (Code::Unreachable, Ended::Nothing));
}
