//! Hello through Clearway: `hello server`, and on another host `hello client ADDRESS`.

use clearway_client::{Channel, Ended, Event, Options};

const PORT: u16 = 4000;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.as_slice() {
        [role] if role == "server" => serve(),
        [role, address] if role == "client" => ask(address),
        _ => Err("usage: hello server | hello client ADDRESS".into()),
    };
    if let Err(error) = result {
        eprintln!("hello: {error}");
        std::process::exit(1);
    }
}

fn serve() -> Result {
    let mut channel = Channel::attach(&Options::new("hello"))?;
    println!("listening on {}", channel.listen(PORT)?.address);
    loop {
        // That a client has closed, died or vanished is an event, too, and nothing to do here.
        let Event::Message(message) = channel.next_event(None)? else { continue };
        let answer = format!("hello, {}", String::from_utf8_lossy(&message));
        match channel.send(message.connection(), answer.as_bytes()) {
            Err(error) if error.ended() == Ended::Channel => return Err(error.into()),
            Err(error) => eprintln!("{error}"), // One client less.
            Ok(()) => {}
        }
    }
}

fn ask(server: &str) -> Result {
    let mut channel = Channel::attach(&Options::new("hello"))?;
    let connection = channel.connect((server, PORT), None)?;
    channel.send(connection, b"Clearway")?;
    println!("{}", String::from_utf8_lossy(&channel.recv_zero_copy(None)?));
    Ok(channel.close(connection)?)
}
