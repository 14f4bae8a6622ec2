//! The examples against this daemon, whatever language they are written in.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use clearway_client::Code;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{Daemon, Order, eventually};

/// A program that runs. Dropping it ends it.
pub(crate) struct Program {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(command: &mut Command, daemon: &Daemon) -> Self {
        let command = command.env("CLEARWAY_SOCKET", &daemon.path);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next line of its output that has this word.
    fn says(&mut self, word: &str) -> String {
        let line = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(word));
        line.unwrap_or_else(|| panic!("it has ended without a word of {word}"))
    }

    fn succeeds(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn hello_survives_its_clients(mut hello: Command) {
    let daemon = Daemon::start();
    let mut server = Program::start(hello.arg("server"), &daemon);
    server.says("listening");
    clients_come_and_go(&daemon);
    // What it answers comes back as another question, and so on.
    answers(&daemon, b"world", |answer| answer.starts_with(b"hello, hello, "));
}

pub(crate) fn hello_is_greeted(mut hello: Command) {
    let daemon = Daemon::start();
    let mut client = Program::start(hello.args(["client", "10.0.0.2"]), &daemon);
    client.says("Clearway");
    client.succeeds();
}

/// One thread, since there is room for one channel.
pub(crate) fn threads_are_greeted(mut threads: Command) {
    let daemon = Daemon::start();
    let mut client = Program::start(threads.args(["10.0.0.2", "1"]), &daemon);
    client.says("1 threads, 100 greetings each, 0 failed");
    client.succeeds();
}

pub(crate) fn workers_answer(mut workers: Command) {
    let daemon = Daemon::start();
    let mut server = Program::start(workers.arg("3"), &daemon);
    server.says("listening");
    clients_come_and_go(&daemon);
    answers(&daemon, b"world", |answer| answer == b"WORLD");
}

/// Who sends what is no call is cut off; others are answered.
pub(crate) fn calls_are_answered(mut calls: Command) {
    let daemon = Daemon::start();
    let mut server = Program::start(calls.arg("server"), &daemon);
    server.says("listening");
    clients_come_and_go(&daemon);
    let request = [&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5][..], b"world"].concat();
    let answer = [&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5][..], b"WORLD"].concat();
    answers(&daemon, &request, |heard| heard == answer);
}

pub(crate) fn epoll_serves_both_kinds(mut epoll: Command) {
    let daemon = Daemon::start();
    let mut server = Program::start(epoll.arg("0"), &daemon);
    let line = server.says("TCP port ");
    let port = line.rsplit(' ').next().and_then(|word| word.parse().ok());
    let mut socket = TcpStream::connect(("127.0.0.1", port.expect("a port"))).unwrap();
    for _ in 0..3 {
        let mut echo = [0; 8];
        socket.write_all(b"over TCP").unwrap();
        socket.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"over TCP");
    }
    clients_come_and_go(&daemon);
    answers(&daemon, b"over Clearway", |answer| answer == b"over Clearway");
}

/// The daemon is restarted between two greetings.
pub(crate) fn reattach_goes_on(mut reattach: Command) {
    let mut daemon = Daemon::start();
    let mut client = Program::start(reattach.args(["10.0.0.2", "2"]), &daemon);
    client.says("Clearway");
    daemon.order(Order::Die);
    daemon.restart();
    client.says("Clearway");
    client.succeeds();
}

/// The program takes a socket and a memfd, which it inherits.
pub(crate) fn memory_is_there_again(mut owner: Command) {
    let memfd = memfd_create("of-the-program", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memfd, 4096).unwrap();
    let mut daemon = Daemon::start();
    owner.arg(&daemon.path).arg(memfd.as_raw_fd().to_string());
    let mut owner = Program::start(&mut owner, &daemon);
    owner.says("added");
    daemon.order(Order::Die);
    daemon.restart();
    owner.succeeds();
}

/// A program says that it has attached, and does what it does at the daemon after that one.
pub(crate) fn goes_on_at_the_next_daemon(mut program: Command, words: &[&str]) {
    let mut daemon = Daemon::start();
    let mut program = Program::start(program.arg(&daemon.path).args(words), &daemon);
    program.says("attached");
    daemon.order(Order::Die);
    daemon.restart();
    program.succeeds();
}

/// Clients close, die and vanish, before they have their answers; a server goes on for the next.
fn clients_come_and_go(daemon: &Daemon) {
    for (connection, code) in (1..).zip([Code::Closed, Code::Reset, Code::Lost]) {
        ask(daemon, connection, b"nobody waits for this");
        daemon.order(Order::Close { connection, code });
    }
}

/// Waits until the program has given such an answer to a new client.
fn answers(daemon: &Daemon, question: &[u8], is_answer: impl Fn(&[u8]) -> bool) {
    ask(daemon, 9, question);
    eventually(|| is_answer(&daemon.heard_next()));
}

fn ask(daemon: &Daemon, connection: u64, question: &[u8]) {
    daemon.order(Order::Accept { listener: 5, connection });
    daemon.order(Order::Deliver { connection, bytes: question.to_vec() });
}
