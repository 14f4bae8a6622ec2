//! The examples against the daemon of `common`.

mod common;

use std::process::Command;

use clearway_client::Code;
use common::{Daemon, Order, Server};

/// Cargo builds examples before the tests run, beside the folder of the test programs.
fn example(name: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    Command::new(program.parent().unwrap().join("../examples").join(name))
}

/// Clients close, die and vanish; the server goes on for the next.
#[test]
fn hello_survives_its_clients() {
    let daemon = Daemon::start();
    let _server = Server::start(example("hello").arg("server"), &daemon);
    for (connection, code) in (1..).zip([Code::Closed, Code::Reset, Code::Lost]) {
        daemon.order(Order::Accept { listener: 5, connection });
        daemon.order(Order::Close { connection, code });
    }
    daemon.order(Order::Accept { listener: 5, connection: 9 });
    daemon.order(Order::Deliver { connection: 9, bytes: b"world".to_vec() });
    assert!(daemon.heard_next().ends_with(b"hello, world"));
}
