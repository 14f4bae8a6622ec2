//! How connections end: in order, by death, by silence. Two daemons, real processes, joined by
//! memif.

mod support;

use std::time::Duration;

use clearway_client::{
    Channel, Code, Description, Ended, Error, Grant, Grantee, MemoryId, Operation, Rights,
};
use rustix::fs::MemfdFlags;
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

/// A daemon is restarted: its apps are attached again, listen again and are connected again.
#[test]
fn a_restarted_daemon_has_its_apps_back() {
    let mut network = Network::start();
    let mut server = network.server.attach("server");
    server.listen(4000).expect("listening");
    let mut client = network.client.attach("client");
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    network.client.kill();
    while client.next_event(Some(PATIENCE)).is_ok() {}
    network.client.restart();
    let told = client.reattach(Some(PATIENCE)).expect("attached");
    let [again] = &told.connections[..] else { panic!("{told:?}") };
    assert_eq!(again.was, connection);
    client.send(*again.now.as_ref().expect("connected"), b"here again").expect("sent");
    let message = loop {
        match server.recv_zero_copy(Some(PATIENCE)) {
            Ok(message) => break message,
            Err(error) => assert_eq!(error.ended(), Ended::Connection, "{error}"),
        }
    };
    assert_eq!(&*message, b"here again");
    network.server.kill();
    while server.next_event(Some(PATIENCE)).is_ok() {}
    network.server.restart();
    let told = server.reattach(Some(PATIENCE)).expect("attached");
    assert_eq!((told.listeners.len(), told.listeners[0].1.address.port()), (1, 4000));
    eventually("a client finds it", || client.connect("10.8.0.2:4000", Some(PATIENCE)).is_ok());
    server.accept(Some(PATIENCE)).expect("a client");
}

/// An owner's memory is there again at the next daemon, as it was: it is shared anew, and its peer
/// goes on with what it finds.
#[test]
fn memory_of_the_apps_own_is_handed_over_again() {
    const BYTES: u64 = 3 << 20;
    let mut network = Network::start();
    let mut owner = network.server.attach("owner");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memories = [0, 1].map(|number: u64| {
        let memfd = rustix::fs::memfd_create("of-the-app", flags).expect("a memfd");
        rustix::fs::ftruncate(&memfd, BYTES).expect("its size");
        let memory = owner.add_memory(&memfd).expect("added");
        let shared = owner.memory(memory).expect("just added");
        assert!(shared.store(BYTES - 8, 70 + number));
        memory
    });
    owner.remove_memory(memories[0]).expect("no region is in it");
    let before = owner.memory(memories[1]).expect("still there");
    let share = |owner: &mut Channel, memory| {
        let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::ATOMIC }];
        let description = Description { name: b"own".to_vec(), grants };
        owner.share_in(memory, 0..BYTES, &description, Some(PATIENCE)).expect("shared")
    };
    share(&mut owner, memories[1]);
    owner.listen(4000).expect("listening");
    network.server.kill();
    while owner.next_event(Some(PATIENCE)).is_ok() {}
    network.server.restart();
    let told = owner.reattach(Some(PATIENCE)).expect("attached");

    let [(was, now)] = &told.memories[..] else { panic!("{told:?}") };
    assert_eq!(*was, memories[1], "what was removed is not there");
    let memory = *now.as_ref().expect("handed over");
    let region = share(&mut owner, memory);
    let mut asker = network.client.attach("asker");
    let mut connection = None;
    eventually("the owner is found", || {
        connection = asker.connect(network.server.at(4000), Some(PATIENCE)).ok();
        connection.is_some()
    });
    let connection = connection.expect("connected");
    let add = Operation::FetchAdd { region, offset: BYTES - 8, addend: 9 };
    let added = asker.operate(connection, &add, Some(PATIENCE)).expect("done");
    assert_eq!(added.value, 71);
    let after = owner.memory(memory).expect("added");
    assert_eq!((after.load(BYTES - 8), before.load(BYTES - 8)), (Some(80), Some(71)));
    assert_eq!(owner.memory(MemoryId::CHANNEL).map(|shared| shared.length()), Some(0));
    // And once more.
    network.server.kill();
    while owner.next_event(Some(PATIENCE)).is_ok() {}
    network.server.restart();
    let told = owner.reattach(Some(PATIENCE)).expect("attached");
    let [(was, Ok(again))] = told.memories[..] else { panic!("{told:?}") };
    assert_eq!(was, memory);
    assert_eq!(owner.memory(again).and_then(|shared| shared.load(BYTES - 8)), Some(80));
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
