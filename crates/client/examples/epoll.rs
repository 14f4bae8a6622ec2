//! One event loop for Clearway and ordinary sockets: what comes by either is sent back where it
//! came from. `epoll TCP-PORT` listens on Clearway's port 4000 of the host, and on that of
//! 127.0.0.1.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use clearway_client::{Channel, Ended, Error, Event, Options};
use rustix::event::{Timespec, epoll};

const PORT: u16 = 4000;
const DOORBELL: u64 = 0;
const LISTENER: u64 = 1;

fn main() {
    let port = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let Some(port) = port else { return eprintln!("usage: epoll TCP-PORT") };
    if let Err(error) = serve(port) {
        eprintln!("epoll: {error}");
        std::process::exit(1);
    }
}

fn serve(port: u16) -> Result<(), Error> {
    let mut channel = Channel::attach(&Options::new("epoll"))?;
    channel.listen(PORT)?;
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("listening; TCP port {}", listener.local_addr()?.port());
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&set, &channel, DOORBELL)?;
    watch(&set, &listener, LISTENER)?;
    let mut clients = HashMap::new();
    loop {
        // Armed, the channel makes its descriptor readable; if something is there already, do not
        // wait.
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        let patience = if channel.arm() { None } else { Some(&no_wait) };
        let mut events = Vec::with_capacity(64);
        let waited = epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), patience);
        channel.disarm();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for token in events.iter().map(|event| event.data.u64()).filter(|it| *it != DOORBELL) {
            echo_tcp(&set, token, &listener, &mut clients)?;
        }
        echo_clearway(&mut channel)?;
    }
}

fn watch(set: &OwnedFd, descriptor: impl AsFd, token: u64) -> Result<(), Error> {
    let data = epoll::EventData::new_u64(token);
    Ok(epoll::add(set, descriptor, data, epoll::EventFlags::IN)?)
}

fn echo_tcp(
    set: &OwnedFd,
    token: u64,
    listener: &TcpListener,
    clients: &mut HashMap<u64, TcpStream>,
) -> Result<(), Error> {
    if token == LISTENER {
        let Ok((client, _)) = listener.accept() else { return Ok(()) };
        let token = LISTENER + 1 + client.as_raw_fd() as u64;
        watch(set, &client, token)?;
        clients.insert(token, client);
        return Ok(());
    }
    let Some(client) = clients.get_mut(&token) else { return Ok(()) };
    let mut bytes = [0; 4096];
    let echoed = match client.read(&mut bytes) {
        Ok(length @ 1..) => client.write_all(&bytes[..length]).is_ok(),
        _ => false,
    };
    if !echoed {
        clients.remove(&token);
    }
    Ok(())
}

/// Takes all that has happened on the channel. A peer that has gone is no reason to stop.
fn echo_clearway(channel: &mut Channel) -> Result<(), Error> {
    loop {
        match channel.next_event(Some(Duration::ZERO)) {
            Ok(Event::Message(message)) => {
                // Without waiting: a peer that does not read its answers loses them, and holds up
                // nobody.
                match channel.try_send(message.connection(), &message) {
                    Err(error) if error.ended() == Ended::Channel => return Err(error),
                    _ => channel.release(message),
                }
            }
            Ok(_) => {}
            Err(Error::WouldBlock) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
