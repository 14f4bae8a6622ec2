//! Reading the configuration again.

use super::*;
use crate::broker::{Broker, Reread, packet};

/// Whoever asks while it is read for others may have changed it meanwhile.
#[test]
fn who_asks_while_it_is_read_is_told_of_the_next_time() {
    let mut ends = None;
    let host = Live::start_as(Limits::default(), 1, |host| {
        let (broker, its) = Broker::played().expect("pairs of sockets");
        host.control.serve_by(broker).expect("it is watched");
        ends = Some(its);
    });
    let [line, _groups] = ends.expect("it is played");
    set_socket_timeout(&line, Timeout::Recv, Some(PATIENCE)).expect("a timeout");
    let apps = [host.app(), host.app()];
    for app in &apps {
        control::send(&app.socket, &Request::Reload(Empty {}), &[]).expect("sent");
        packet::receive(&line).expect("an order");
    }
    for (app, problem) in apps.iter().zip(["the first", "the second"]) {
        let reread = serde_json::to_vec(&Reread::Problem(problem.to_owned())).expect("JSON");
        packet::send(&line, &reread, &[]).expect("sent");
        match app.reply().expect("in time") {
            Some(Reply::Error(refusal)) => assert_eq!(refusal.message, problem),
            other => panic!("{other:?}"),
        }
    }
}
