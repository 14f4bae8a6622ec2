//! Apps in processes of their own, to be killed and stopped: this test program, started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clearway_client::{Channel, Event, Options, Tcp};

use super::{Daemon, SMALL, signal};

const ROLE: &str = "CLEARWAY_TEST_ROLE";
const SOCKET: &str = "CLEARWAY_TEST_SOCKET";
const PORT: &str = "CLEARWAY_TEST_PORT";

/// An app. It ends with this value.
pub(crate) struct App {
    process: Child,
}

impl App {
    /// Starts an app in `role` that listens on `port`, and waits until it does.
    pub(crate) fn start(role: &str, daemon: &Daemon, port: u16) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "app_process", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, &daemon.socket)
            .env(PORT, port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the app starts");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let ready = output.lines().any(|line| line.expect("a line").contains("ready"));
        assert!(ready, "the app in role {role} did not get ready");
        Self { process }
    }

    /// Has an app go on that waits for a word.
    pub(crate) fn wake(&mut self) {
        let input = self.process.stdin.as_mut().expect("its input");
        input.write_all(b"go on\n").expect("said");
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
    }

    pub(crate) fn stop(&self) {
        signal(&self.process, "STOP");
    }

    pub(crate) fn go_on(&self) {
        signal(&self.process, "CONT");
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the test `app_process` does when it is an app's process, and nothing otherwise.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = std::env::var(SOCKET).expect("a socket");
    let port: u16 = std::env::var(PORT).expect("a port").parse().expect("a number");
    let mut channel = attach(Path::new(&socket), &role);
    match role.as_str() {
        "parting" => return part(channel, port),
        "tcp" => return accept(channel, port),
        "tcp-endless" => return send_without_end(channel, port),
        "tcp-late" => return read_late(channel, port),
        _ => {}
    }
    channel.listen(port).expect("listening");
    println!("ready");
    std::io::stdout().flush().expect("said");
    match role.as_str() {
        "echo" => echo(&mut channel),
        "deaf" => never_read(),
        other => panic!("no role {other}"),
    }
}

fn attach(socket: &Path, role: &str) -> Channel {
    let options = Options { socket: socket.to_owned(), sizes: SMALL, ..Options::new(role) };
    Channel::attach(&options).expect("attached")
}

/// Messages that an app in the role "parting" sends, and the bytes of each.
pub(crate) const PARTING: (usize, usize) = (20, 30_000);

/// Sends to the server's host, and ends as programs do that do not think about their end.
fn part(mut channel: Channel, port: u16) {
    let connection = channel.connect(("10.8.0.2", port), Some(super::PATIENCE)).expect("connected");
    for number in 0..PARTING.0 {
        channel.send(connection, &vec![number as u8; PARTING.1]).expect("sent");
    }
    println!("ready");
    std::io::stdout().flush().expect("said");
    std::process::exit(0);
}

/// Accepts TCP connections, and does nothing with them, until killed.
fn accept(channel: Channel, port: u16) {
    let tcp = Tcp::new(channel);
    let listener = tcp.listen(port).expect("listening");
    println!("ready");
    std::io::stdout().flush().expect("said");
    let mut accepted = Vec::new();
    while let Ok((stream, _)) = listener.accept() {
        accepted.push(stream);
    }
}

/// Sends by TCP to the server's host, until killed.
fn send_without_end(channel: Channel, port: u16) {
    let tcp = Tcp::new(channel);
    let to = SocketAddr::from(([10, 8, 0, 2], port));
    let mut stream = tcp.connect(to, Some(super::PATIENCE)).expect("connected");
    stream.write_all(&[7; 1000]).expect("written");
    println!("ready");
    std::io::stdout().flush().expect("said");
    while stream.write_all(&[7; 1000]).is_ok() {}
}

/// Listens for TCP connections, and takes nothing until it is told to. Then it reads what each of
/// them has, in turn, and sends all of it back when there will be no more.
fn read_late(channel: Channel, port: u16) {
    let tcp = Tcp::new(channel);
    let mut listener = tcp.listen(port).expect("listening");
    println!("ready");
    std::io::stdout().flush().expect("said");
    std::io::stdin().read_line(&mut String::new()).expect("a word");
    listener.set_timeout(Some(Duration::ZERO));
    let accepted = std::iter::from_fn(|| listener.accept().ok());
    let mut open: Vec<_> = accepted.map(|(stream, _)| (stream, Vec::new())).collect();
    let mut part = vec![0; 1 << 16];
    while !open.is_empty() {
        open.retain_mut(|(stream, received)| {
            stream.set_timeout(Some(Duration::from_millis(1)));
            let Ok(count) = stream.read(&mut part) else { return true };
            received.extend_from_slice(&part[..count]);
            if count == 0 {
                stream.set_timeout(Some(super::PATIENCE));
                stream.write_all(received).expect("sent back");
            }
            count > 0
        });
    }
    never_read();
}

/// Sends everything back, to whomever, until killed or until the daemon goes.
pub(crate) fn echo(channel: &mut Channel) {
    loop {
        match channel.next_event(None) {
            Ok(Event::Message(message)) => {
                let connection = message.connection();
                // The peer may have gone.
                let _ = channel.send(connection, &message);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Holds the channel and looks at nothing. Killed by the test, or by its end.
fn never_read() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
