//! Hello through Clearway: `hello server`, and on another host `hello client ADDRESS`.

use std::net::SocketAddr;

use clearway_client::{Channel, Error, Event, Options};

const PORT: u16 = 4000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => Ok(server()?),
        ["client", address] => Ok(client(SocketAddr::new(address.parse()?, PORT))?),
        _ => Err("usage: hello server | hello client ADDRESS".into()),
    }
}

fn server() -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("hello-server"))?;
    println!("listening on {}", channel.listen(PORT)?.address);
    loop {
        match channel.next_event(None)? {
            Event::Accepted(accepted) => println!("{} connected", accepted.peer),
            Event::Message(message) => {
                let answer = format!("hello, {}", String::from_utf8_lossy(&message));
                if let Err(error) = channel.send(message.connection(), answer.as_bytes()) {
                    println!("{error}");
                }
            }
            Event::Closed { code, .. } => println!("a connection ended: {code}"),
            _ => {}
        }
    }
}

fn client(server: SocketAddr) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("hello-client"))?;
    let connection = channel.connect(server, None)?;
    channel.send(connection, b"Clearway")?;
    let mut answer = [0; 100];
    let (_, length) = channel.recv(&mut answer, None)?;
    println!("{}", String::from_utf8_lossy(&answer[..length]));
    channel.close(connection)
}
