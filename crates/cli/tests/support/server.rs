//! What `clearway bench --to`, and `clearway ping` of messages, are answered by.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::Daemon;

/// `clearway bench --serve` on a host.
pub(crate) struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(daemon: &Daemon, at: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["bench", "--serve"])
            .args(at)
            .arg("--socket")
            .arg(&daemon.socket)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(line.starts_with("serving at"), "{line}");
        Self { process, output }
    }

    /// Ctrl-C ends it in good order, and without another word.
    pub(crate) fn interrupt(mut self) {
        super::signal(&self.process, "INT");
        assert!(self.process.wait().expect("its end").success());
        let mut rest = String::new();
        self.output.read_line(&mut rest).expect("its output");
        assert_eq!(rest, "");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
