//! Calls: `calls server`, and on another host `calls client ADDRESS WORDS...`, which asks for all
//! words at a time and prints the answers as they come.

use std::collections::HashMap;
use std::time::Duration;

use clearway_client::{CallEvent, CallId, Calls, Channel, Error, Event, Options, Outcome, Refusal};

const PORT: u16 = 4000;
/// What the server can do: the app's own numbers.
const UPPER_CASE: u16 = 1;
/// For one answer.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.as_slice() {
        [role] if role == "server" => serve(),
        [role, address, words @ ..] if role == "client" => ask(address, words),
        _ => return eprintln!("usage: calls server | calls client ADDRESS WORDS..."),
    };
    if let Err(error) = result {
        eprintln!("calls: {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("calls"))?;
    println!("listening on {}", channel.listen(PORT)?.address);
    let end = Calls::new().serve(&mut channel, |request| match request.method() {
        UPPER_CASE => Ok(request.to_ascii_uppercase()),
        _ => Err(Refusal::NO_METHOD),
    });
    end.map(|never| match never {})
}

fn ask(server: &str, words: &[String]) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("calls"))?;
    let server = channel.connect((server, PORT), None)?;
    let mut calls = Calls::new();
    let mut asked: HashMap<CallId, &String> = HashMap::new();
    let mut unasked = words.iter().peekable();
    while unasked.peek().is_some() || !asked.is_empty() {
        while let Some(word) = unasked.peek() {
            match calls.start(&mut channel, server, UPPER_CASE, word.as_bytes(), PATIENCE) {
                Ok(call) => _ = asked.insert(call, word),
                Err(Error::WouldBlock) => break, // until the channel is writable
                Err(error) => return Err(error),
            }
            unasked.next();
        }
        match calls.next(&mut channel, None)? {
            CallEvent::Ended { call, outcome } => {
                let word = asked.remove(&call).expect("it was asked");
                match outcome {
                    Outcome::Answered(answer) => {
                        println!("{word}: {}", String::from_utf8_lossy(&answer));
                    }
                    Outcome::Refused { reason, .. } => println!("{word}: refused ({reason})"),
                    Outcome::Expired => println!("{word}: no answer in time"),
                    Outcome::Lost(code) => println!("{word}: lost ({code})"),
                }
            }
            CallEvent::Channel(Event::Closed { connection, code }) if !asked.is_empty() => {
                return Err(Error::Connection { connection, code });
            }
            _ => {}
        }
    }
    calls.close(&mut channel, server)
}
