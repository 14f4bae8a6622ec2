//! Clearway's apps as C programs with the C library: `bench/app.c`. `make build` puts the program
//! beside this one; it is not installed.

use crate::arguments::Idle;
use crate::error::Error;
use crate::load::Load;
use crate::role::Part;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// In which language Clearway's apps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// A program with the C library.
    C,
    /// This program, with the Rust library.
    Rust,
}

/// Its name beside this program.
const PROGRAM: &str = "clearway-bench-app";

/// Where the program is, if it has been built.
pub(crate) fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    beside.exists().then_some(beside)
}

/// What is said where it is asked for, and not there.
pub(crate) fn not_built() -> Error {
    Error::Options(format!(
        "the C program of the benchmarks, {PROGRAM}, is not beside this one; build it with `make \
         build` in Clearway's sources and use target/release/clearway, or say --app rust"
    ))
}

/// One of two apps, and what it needs to know.
pub(crate) enum End {
    /// Who answers.
    Server,
    /// Who sends and measures.
    Client,
}

impl End {
    /// What its process does.
    pub(crate) fn part(
        self,
        program: &Path,
        socket: &Path,
        idle: Idle,
        load: &Load,
        at: SocketAddr,
    ) -> Part {
        let (name, times) = match self {
            Self::Server => ("server", Vec::new()),
            Self::Client => ("client", vec![load.warm_up(), load.duration()]),
        };
        let mut arguments = vec![
            name.to_owned(),
            socket.to_string_lossy().into_owned(),
            waiting(idle).to_string(),
            load.size.to_string(),
            load.window.to_string(),
            load.answer_bytes().to_string(),
            at.ip().to_string(),
            at.port().to_string(),
        ];
        arguments.extend(times.iter().map(|time| time.as_nanos().to_string()));
        Part::Become { program: program.to_string_lossy().into_owned(), arguments }
    }
}

/// `enum clearway_waiting`.
const fn waiting(idle: Idle) -> u32 {
    match idle {
        Idle::Adaptive => 0,
        Idle::Spin => 1,
        Idle::Yield => 2,
        Idle::Block => 3,
    }
}
