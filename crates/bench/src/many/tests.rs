use super::*;
use crate::endpoint::{Batch, PerMessage};
use crate::load::Workload;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const CONNECTIONS: usize = 5;

/// Sockets of a client, and those of its server.
fn pairs() -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let pair = |_| {
        let client = TcpStream::connect(at).expect("it listens");
        (client.into(), listener.accept().expect("it has connected").0.into())
    };
    (0..CONNECTIONS).map(pair).unzip()
}

/// Lets clients and their server work until each client has had some answers.
fn exchange<E: Endpoint + 'static>(load: Load, is_spinning: bool, end: fn(OwnedFd, usize) -> E) {
    let (clients, servers) = pairs();
    let serving = std::thread::spawn(move || {
        let end = |socket| end(socket, load.size);
        Sockets::new(servers, is_spinning, end).expect("an epoll").serve(&load)
    });
    let answer = load.answer_bytes();
    let mut ends =
        Sockets::new(clients, is_spinning, |socket| end(socket, answer)).expect("an epoll");
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::new(load)).collect();
    for at in 0..CONNECTIONS {
        let mut answers = 0;
        while answers < 3 * load.window {
            let soon = Instant::now() + Duration::from_millis(1);
            go_on(&mut ends, &mut clients, soon).expect("answers in order");
            answers = clients[at].answered() as usize;
        }
    }
    drop(ends);
    let ended = serving.join().expect("it does not panic").expect_err("the client has left");
    assert!(crate::role::is_end(&ended), "{ended}");
}

#[test]
fn each_connection_has_answers() {
    for size in [64, 300_000] {
        let load = Load {
            workload: Workload::Stream,
            size,
            window: 4,
            connections: CONNECTIONS,
            seconds: 1.0,
        };
        for is_spinning in [false, true] {
            exchange(load, is_spinning, PerMessage::<false>::new);
            exchange(load, is_spinning, |socket, size| Batch::new(socket, size, 4));
        }
    }
}
