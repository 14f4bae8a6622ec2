//! What the calls of the app library cost, without any waiting for another core: an app and a
//! daemon that only echoes take turns in one thread.
//!
//! `cargo run --release -p clearway-client --example cost`

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use clearway_channel::control::{self, Attached, Empty, Reply, Request};
use clearway_channel::{Command, Completion, DaemonEnd};
use clearway_client::{Channel, ConnectionId, Options};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const ROUNDS: u32 = 2_000_000;
const NOW: Option<Duration> = Some(Duration::ZERO);

fn main() {
    let (mut channel, mut daemon, _control) = attach();
    let connection = connect(&mut channel, &mut daemon);
    println!("64 B, ns per echo, both ends and the daemon's part together:");
    let mut sent = 0;
    let daemon_ns = daemon_only_ns(&mut channel, connection, &mut daemon, &mut sent);
    println!("  of it the daemon's end            {daemon_ns:6.1}");
    let by_copy = measure(|| {
        channel.try_send(connection, &[7; 64]).expect("room");
        echo(&mut daemon, &mut sent);
        channel.recv(&mut [0; 64], NOW).expect("the echo");
    });
    println!("  send, recv                        {by_copy:6.1}");
    let in_place = measure(|| {
        channel.try_send(connection, &[7; 64]).expect("room");
        echo(&mut daemon, &mut sent);
        let message = channel.recv_zero_copy(NOW).expect("the echo");
        channel.release(message);
    });
    println!("  send, recv_zero_copy, release     {in_place:6.1}");
    let zero_copy = measure(|| {
        let mut buffer = channel.send_buffer(64, NOW).expect("room");
        buffer.fill(7);
        channel.send_zero_copy(connection, buffer).expect("room");
        echo(&mut daemon, &mut sent);
        drop(channel.recv_zero_copy(NOW).expect("the echo"));
    });
    println!("  send_zero_copy, recv_zero_copy    {zero_copy:6.1}");
    let empty = measure(|| assert!(channel.recv(&mut [0; 64], NOW).is_err()));
    println!("recv when nothing has come          {empty:6.1}");
}

/// The same work at the daemon's end, with the app's part left out of the clock.
fn daemon_only_ns(
    channel: &mut Channel,
    connection: ConnectionId,
    daemon: &mut DaemonEnd,
    sent: &mut u32,
) -> f64 {
    let mut spent = Duration::ZERO;
    for _ in 0..ROUNDS / 500 {
        for _ in 0..500 {
            channel.try_send(connection, &[7; 64]).expect("room");
        }
        let start = Instant::now();
        for _ in 0..500 {
            echo(daemon, sent);
        }
        spent += start.elapsed();
        for _ in 0..500 {
            channel.recv(&mut [0; 64], NOW).expect("the echo");
        }
    }
    spent.as_nanos() as f64 / f64::from(ROUNDS)
}

fn measure(mut round: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

/// Echoes one message, taking releases on the way.
fn echo(daemon: &mut DaemonEnd, sent: &mut u32) {
    loop {
        match daemon.next_command().expect("the library is honest") {
            Some(Command::Send { connection, stream, offset, length }) => {
                let buffer = daemon.allocate(length, 0).expect("room");
                daemon.copy_within(offset, length, buffer, 0);
                daemon.sends_finished(1);
                *sent = sent.wrapping_add(1);
                daemon.grant(buffer.id);
                assert!(daemon.completion_room() > 0);
                let (offset, buffer) = (buffer.offset, buffer.id);
                let received = Completion::Received {
                    connection,
                    stream,
                    offset,
                    length,
                    buffer,
                    sent: *sent,
                };
                daemon.complete(&received);
                daemon.flush();
                return;
            }
            Some(Command::Release { buffers }) => {
                for &id in buffers.as_slice() {
                    daemon.release(id).expect("the library is honest");
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Attaches to a daemon that is this process itself.
fn attach() -> (Channel, DaemonEnd, OwnedFd) {
    let path = std::env::temp_dir().join(format!("clearway-cost-{}.sock", std::process::id()));
    let listener = listen(&path);
    let server = std::thread::spawn(move || {
        let control = rustix::net::accept(&listener).expect("the app");
        let packet = control::receive(&control).expect("a packet").expect("a packet");
        let Ok(Request::Attach(attach)) = Request::parse(&packet.bytes) else { panic!("attach") };
        let (end, handover) = DaemonEnd::create(attach.sizes).expect("memory");
        let reply = Reply::Attached(Attached {
            channel: 1,
            engine: 0,
            engine_name: "test/0".into(),
            sizes: attach.sizes,
            wake_up_ns: 0,
        });
        let fds = [&handover.memory, &handover.daemon_doorbell, &handover.app_doorbell];
        control::send(&control, &reply, &fds.map(AsFd::as_fd)).expect("a reply");
        let mapped = control::receive(&control).expect("a packet").expect("a packet");
        assert_eq!(Request::parse(&mapped.bytes).ok(), Some(Request::Mapped(Empty {})));
        control::send(&control, &Reply::Mapped(Empty {}), &[]).expect("a reply");
        (end, control)
    });
    let options = Options { socket: path.clone(), linger: Duration::ZERO, ..Options::new("cost") };
    let channel = Channel::attach(&options).expect("a channel");
    let (daemon, control) = server.join().expect("the daemon");
    let _ = std::fs::remove_file(path);
    (channel, daemon, control)
}

fn listen(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("the path");
    rustix::net::listen(&socket, 1).expect("listening");
    socket
}

fn connect(channel: &mut Channel, daemon: &mut DaemonEnd) -> ConnectionId {
    let peer = "10.0.0.2:7".parse().expect("an address");
    channel.start_connect(peer).expect("room");
    let Ok(Some(Command::Connect { token, peer })) = daemon.next_command() else { panic!() };
    daemon.complete(&Completion::Connected { token, connection: 1 << 32, peer });
    match channel.next_event(NOW).expect("the answer") {
        clearway_client::Event::Connected { connection, .. } => connection,
        other => panic!("{other:?}"),
    }
}
