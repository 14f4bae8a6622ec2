//! Programs of others beside Clearway: a server and a client of each, with a core each, which spin.

use std::time::{Duration, Instant};

use crate::cpu::Pins;
use crate::error::{Error, While as _};
use crate::interrupt::Interrupt;
use crate::kernel::{Outcome, START_PATIENCE};
use crate::load::Sample;
use crate::process::{RoleProcess, helper_output};
use crate::role::{Part, Role};

const RETRY: Duration = Duration::from_millis(10);

/// What has to be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Ucx,
    Libfabric,
}

impl Program {
    pub(super) const ALL: [Self; 2] = [Self::Ucx, Self::Libfabric];

    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Ucx => "ucx_perftest",
            Self::Libfabric => "fi_pingpong",
        }
    }

    /// What it ends with does not matter: `fi_pingpong -h` ends with 1.
    pub(super) fn is_installed(self) -> bool {
        !matches!(helper_output(self.file(), &["-h"]), Err(Error::Start { .. }))
    }

    /// Who does not have it is told.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Ucx => "ucx is left out: install ucx_perftest (Debian package ucx-utils)",
            Self::Libfabric => {
                "libfabric is left out: install fi_pingpong (Debian package libfabric-bin)"
            }
        }
    }
}

/// The two halves of a program's test, as command lines.
pub(super) struct Halves<'a> {
    pub(super) program: Program,
    pub(super) server: &'a [&'a str],
    pub(super) client: &'a [&'a str],
}

impl Halves<'_> {
    /// Runs both. What the client says has a result, which `read` reads; what it does not tell, of
    /// tails and of processor time, is 0.
    pub(super) fn run(
        &self,
        pins: Pins,
        interrupt: &Interrupt,
        read: impl FnOnce(&str) -> Option<Sample>,
    ) -> Result<Outcome, Error> {
        let arguments = self.server.iter().map(|word| (*word).to_owned()).collect();
        let part = Part::Become { program: "env".to_owned(), arguments };
        let role = Role::new(part).on_core(pins.server);
        let _server = RoleProcess::start("the server of another's program", &role)?;
        let core = pins.client.unwrap_or(0).to_string();
        let output = patiently(&[&["-c", &core, "env"], self.client].concat(), interrupt)?;
        let text = String::from_utf8_lossy(&output);
        read(&text).map(|sample| Outcome { sample, cpu_s: 0.0, cpu_s_per_gbit: 0.0 }).ok_or_else(
            || Error::Role {
                who: self.program.file().into(),
                message: format!("said what is no result: {}", text.trim()),
            },
        )
    }
}

/// The server may not listen yet.
fn patiently(words: &[&str], interrupt: &Interrupt) -> Result<Vec<u8>, Error> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        match helper_output("taskset", words) {
            Err(Error::Helper { .. }) if Instant::now() < deadline => {
                interrupt.pause(RETRY)?;
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
