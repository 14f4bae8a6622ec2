//! Two apps, each with its own engine in its own thread, say hello over a memif:
//!
//! ```text
//! cargo run -p clearway-embed --example embed
//! ```

use std::error::Error;

use clearway_embed::nic::memif::{self, Config, Role};
use clearway_embed::{Channel, Host, Options};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One end of the wire, and a channel over it.
fn open(role: Role, number: u8) -> Result<Channel> {
    let name = format!("@clearway-embed-{}", std::process::id());
    let link = memif::open(Config::new(name.as_str(), role, [2, 0, 0, 0, 0, number]))?;
    let address = [10, 0, 0, number].into();
    Ok(Host::new(link, &[(address, 24)]).open(&Options::new("hello"))?)
}

/// Answers until its client is gone.
fn serve(mut server: Channel) -> Result<()> {
    let connection = server.accept(None)?.connection;
    while let Ok(message) = server.recv_zero_copy(None) {
        let answer = [&message[..], b", too"].concat();
        server.release(message);
        server.send(connection, &answer)?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut server = open(Role::Server, 1)?;
    server.listen(4000)?;
    let serving = std::thread::spawn(|| serve(server));
    let mut client = open(Role::Client, 2)?;
    let connection = client.connect("10.0.0.1:4000", None)?;
    client.send(connection, b"hello")?;
    let answer = client.recv_zero_copy(None)?;
    println!("{}", String::from_utf8_lossy(&answer));
    drop((answer, client));
    serving.join().expect("the server does not panic")
}
