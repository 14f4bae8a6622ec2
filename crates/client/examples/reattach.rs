//! A client that stays: it greets `hello server` once a second, and goes on when its own daemon,
//! the server or the server's daemon is restarted. `reattach ADDRESS [COUNT]`.

use std::time::Duration;

use clearway_client::{Channel, ConnectionId, Ended, Error, Options};

const PORT: u16 = 4000;
const PAUSE: Duration = Duration::from_secs(1);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (server, count) = match words.as_slice() {
        [server] => (server, u64::MAX),
        [server, count] => (server, count.parse().expect("a number of greetings")),
        _ => return eprintln!("usage: reattach ADDRESS [COUNT]"),
    };
    if let Err(error) = greet_for_ever(server, count) {
        eprintln!("reattach: {error}");
        std::process::exit(1);
    }
}

fn greet_for_ever(server: &str, count: u64) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("reattach"))?;
    let mut connection = None;
    let mut greeted = 0;
    while greeted < count {
        match greet(&mut channel, server, &mut connection) {
            Ok(()) => greeted += 1,
            Err(error) => mend(&mut channel, &error, &mut connection)?,
        }
        if greeted < count {
            std::thread::sleep(PAUSE);
        }
    }
    channel.detach(Some(PAUSE))
}

/// One greeting and its answer.
fn greet(
    channel: &mut Channel,
    server: &str,
    connection: &mut Option<ConnectionId>,
) -> Result<(), Error> {
    let connection = match *connection {
        Some(connection) => connection,
        None => *connection.insert(channel.connect((server, PORT), None)?),
    };
    channel.send_timeout(connection, b"Clearway", Some(PAUSE))?;
    let mut answer = [0; 120];
    let length = channel.recv_from(connection, &mut answer, Some(5 * PAUSE))?;
    println!("{}", String::from_utf8_lossy(&answer[..length]));
    Ok(())
}

/// What failed decides how much begins anew.
fn mend(
    channel: &mut Channel,
    error: &Error,
    connection: &mut Option<ConnectionId>,
) -> Result<(), Error> {
    eprintln!("reattach: {error}");
    match error.ended() {
        Ended::Nothing => {}
        Ended::Connection => *connection = None,
        Ended::Channel => {
            let told = channel.reattach(None)?;
            let again = told.connections.into_iter().next();
            let lost = again.as_ref().map_or(0, |again| again.messages_unacknowledged);
            eprintln!("reattach: attached again, {lost} messages may be lost");
            *connection = again.and_then(|again| again.now.ok());
        }
    }
    Ok(())
}
