//! A `clearway fabric` process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

pub(crate) struct Fabric {
    ports: Vec<String>,
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Fabric {
    /// One with these ports, as they stand behind `--port`.
    pub(crate) fn start(ports: &[String]) -> Self {
        let (process, output) = spawn(ports);
        Self { ports: ports.to_vec(), process, output }
    }

    /// Ends it as `kill -9` does, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("gone");
        (self.process, self.output) = spawn(&self.ports);
    }

    /// Tells it something.
    pub(crate) fn order(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().expect("piped");
        writeln!(input, "{line}").expect("the fabric reads");
    }

    /// The counters of its ports.
    pub(crate) fn counters(&mut self) -> Value {
        self.order("counters");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the fabric answers");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Ends it as an operator does; its last words.
    pub(crate) fn finish(mut self) -> Value {
        super::signal(&self.process, "TERM");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("last words");
        assert!(self.process.wait().expect("gone").success());
        serde_json::from_str(&line).expect("JSON")
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(ports: &[String]) -> (Child, BufReader<ChildStdout>) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["fabric", "--json", "--seed", "1"])
        .args(ports.iter().flat_map(|port| ["--port", port]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the fabric starts");
    let output = BufReader::new(process.stdout.take().expect("piped"));
    (process, output)
}
