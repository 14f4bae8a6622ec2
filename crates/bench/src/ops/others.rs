//! Programs of others beside Clearway: a server and a client of each, with a core each, which spin.

use std::time::{Duration, Instant};

use crate::cpu::Pins;
use crate::error::{Error, While as _};
use crate::interrupt::Interrupt;
use crate::kernel::START_PATIENCE;
use crate::process::{RoleProcess, helper_output};
use crate::role::{Part, Role};

const RETRY: Duration = Duration::from_millis(10);

/// The two halves of a program's test, as command lines.
pub(super) struct Halves<'a> {
    pub(super) server: &'a [&'a str],
    pub(super) client: &'a [&'a str],
}

impl Halves<'_> {
    /// Runs both. Returns what the client says.
    pub(super) fn run(&self, pins: Pins, interrupt: &Interrupt) -> Result<String, Error> {
        let [program, arguments @ ..] = self.server else { return Ok(String::new()) };
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let part = Part::Become { program: (*program).to_owned(), arguments };
        let role = Role::new(part).on_core(pins.server);
        let _server = RoleProcess::start("the server of another's program", &role)?;
        let core = pins.client.unwrap_or(0).to_string();
        let words = [&["-c", &core], self.client].concat();
        patiently(&words, interrupt).map(|output| String::from_utf8_lossy(&output).into_owned())
    }
}

/// The server may not listen yet.
fn patiently(words: &[&str], interrupt: &Interrupt) -> Result<Vec<u8>, Error> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        match helper_output("taskset", words) {
            Err(Error::Helper { .. }) if Instant::now() < deadline => {
                interrupt.check()?;
                std::thread::sleep(RETRY);
            }
            done => return done,
        }
    }
}

/// A port that nobody has.
pub(super) fn free_port() -> Result<String, Error> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").while_("choosing a port")?;
    Ok(listener.local_addr().while_("choosing a port")?.port().to_string())
}
