//! How connections end: in order, by death, by silence. Two daemons, real processes, joined by memif.

mod support;

use std::time::Duration;

use clearway_client::{Code, Ended};
use support::{Network, PATIENCE};

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
