//! One suite for all of the kernel's endpoints: client and server take turns in one thread.

use super::*;
use crate::load::{Client, Load, Server, Workload};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Enough turns to move every window many times, bounded so that a stall fails the test.
const TURNS: usize = 20_000;

fn exchange<A: Endpoint, B: Endpoint>(load: Load, client_end: &mut A, server_end: &mut B) {
    let mut client = Client::new(load);
    let mut server = Server::new(load.answer_bytes());
    client.begin();
    let mut answers = 0;
    for _ in 0..TURNS {
        answers += client.turn(client_end).expect("the client's turn");
        server.turn(server_end).expect("the server's turn");
        if answers >= 5 * load.window {
            return;
        }
    }
    panic!("{load:?}: only {answers} answers in {TURNS} turns");
}

fn loads() -> impl Iterator<Item = Load> {
    let sizes = [0, 1, 7, 8, 64, 2048, 2049, 32 << 10, 1 << 20];
    let kinds = [(Workload::Rtt, 1), (Workload::Rate, 32), (Workload::Stream, 8)];
    sizes.into_iter().flat_map(move |size| {
        kinds.map(|(workload, window)| Load {
            workload,
            size,
            window,
            connections: 1,
            seconds: 1.0,
        })
    })
}

#[test]
fn calls_per_message_carry_every_size() {
    for load in loads() {
        let (client, server) = UnixStream::pair().expect("a socket pair");
        let mut client = PerMessage::<false>::new(client.into(), load.answer_bytes());
        let mut server = PerMessage::<false>::new(server.into(), load.size);
        exchange(load, &mut client, &mut server);
    }
}

#[test]
fn blocking_ends_never_wait_for_each_other() {
    for load in loads() {
        let (client, server) = UnixStream::pair().expect("a socket pair");
        let mut client = PerMessage::<true>::new(client.into(), load.answer_bytes());
        let thread = std::thread::spawn(move || {
            let mut end = PerMessage::<true>::new(server.into(), load.size);
            let mut server = Server::new(load.answer_bytes());
            while server.turn(&mut end).is_ok() {}
        });
        let mut app = Client::new(load);
        for _ in 0..2 * load.window {
            app.turn(&mut client).expect("the client's turn");
        }
        drop(client);
        thread.join().expect("the server ends when the client leaves");
    }
}

#[test]
fn batches_carry_every_size() {
    for load in loads() {
        let (client, server) = UnixStream::pair().expect("a socket pair");
        let mut client = Batch::new(OwnedFd::from(client), load.answer_bytes(), load.window);
        let mut server = Batch::new(OwnedFd::from(server), load.size, load.window);
        exchange(load, &mut client, &mut server);
    }
}

#[test]
fn datagrams_carry_what_fits() {
    for load in loads().filter(|load| load.size <= 32 << 10) {
        let any = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (client, server) = (any(), any());
        client.connect(server.local_addr().expect("an address")).expect("connect");
        server.connect(client.local_addr().expect("an address")).expect("connect");
        let mut client = Datagram::new(client, load.answer_bytes());
        let mut server = Datagram::new(server, load.size);
        // What does not fit into the socket's buffer is lost, and found to be so by the clock.
        let load = Load { window: load.window.min(4), ..load };
        exchange(load, &mut client, &mut server);
    }
}

#[test]
fn many_messages_share_a_call() {
    let (client, server) = UnixStream::pair().expect("a socket pair");
    let mut client = Batch::new(OwnedFd::from(client), 64, 32);
    let mut server = Batch::new(OwnedFd::from(server), 64, 32);
    for value in 0..32_u8 {
        assert!(client.send(&[value; 64]).expect("send"));
    }
    assert!(server.receive().expect("nothing was flushed yet").is_none());
    client.flush().expect("flush");
    server.flush().expect("flush");
    for value in 0..32_u8 {
        assert_eq!(server.receive().expect("receive"), Some(&[value; 64][..]));
    }
    assert_eq!(server.receive().expect("receive"), None);
}

#[test]
fn a_length_that_was_not_agreed_is_refused() {
    let (client, server) = UnixStream::pair().expect("a socket pair");
    let mut client = Batch::new(OwnedFd::from(client), 1 << 20, 1);
    let mut plain = PerMessage::<false>::new(server.into(), 64);
    assert!(client.send(&[0; 65]).expect("send"));
    client.flush().expect("flush");
    assert!(plain.receive().is_err());
}
