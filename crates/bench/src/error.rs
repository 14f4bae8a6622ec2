//! What can go wrong in a benchmark, each with what to do about it.

use std::io;
use std::net::SocketAddr;

/// Why a benchmark did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This signal has come: Ctrl-C, or a request to end. Everything that was started has been
    /// ended.
    #[error("interrupted; everything that was started has been ended")]
    Interrupted(u8),
    /// A combination of options that means nothing.
    #[error("{0}")]
    Options(String),
    /// A program could not be started.
    #[error("cannot start {program}: {source}; is it installed and executable?")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it was not.
        source: io::Error,
    },
    /// A helper program said no.
    #[error("`{command}` failed: {message}")]
    Helper {
        /// The whole command line.
        command: String,
        /// What it wrote to its standard error.
        message: String,
    },
    /// One of the processes of a contender failed.
    #[error("{who} failed: {message}")]
    Role {
        /// Which process.
        who: String,
        /// What it said.
        message: String,
    },
    /// One of the processes of a contender said nothing for too long.
    #[error("{who} said nothing for {seconds} s; it has been ended. Is the machine overloaded?")]
    Silent {
        /// Which process.
        who: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A connection to the server of a measurement between hosts could not be opened.
    #[error("{cause}")]
    Connect {
        /// Where to.
        peer: SocketAddr,
        /// Why not.
        cause: clearway_client::Error,
    },
    /// Who listens there answers, but not as a server of measurements does.
    #[error(
        "who listens at {to} is no `clearway bench --serve` of this version: it answers {answer}; \
         name the port of one (--to HOST:PORT), or install the same version on both hosts"
    )]
    NotServed {
        /// Where.
        to: String,
        /// What it answers.
        answer: String,
    },
    /// A server that answered before does not after a load.
    #[error(
        "`clearway bench --serve` at {to} answered before the load, and for {seconds} s not behind \
         it: what was sent takes that long, or one of the two hosts is too busy; measure with \
         smaller messages or fewer at a time (--size, --window)"
    )]
    Late {
        /// Where.
        to: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The daemon does not say how the packets of a connection travel.
    #[error(
        "`clearway status` shows no connection {connection} of the app {app}; are daemon and \
         command of the same version, or has it too many flows to show them all?"
    )]
    Path {
        /// The app.
        app: String,
        /// The connection.
        connection: String,
    },
    /// Tables of a classifier have found other rules than the first that match.
    #[error(
        "{0} answers are wrong (the column \"wrong\"), so that the figures mean nothing; with \
         --trace, is it one of these rules? Otherwise report it, with the rules"
    )]
    Wrong(u64),
    /// A call of an app failed.
    #[error("{0}")]
    App(clearway_client::Error),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The refusal.
        source: io::Error,
    },
}

impl Error {
    /// What a program that fails with this exits with. By the custom of shells, 128 and the number
    /// of the signal that ended it.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Interrupted(signal) => 128 + signal,
            _ => 1,
        }
    }
}

/// Attaches what was being done to an error of the operating system.
pub(crate) trait While<T> {
    fn while_(self, what: &'static str) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn while_(self, what: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::System { what, source: source.into() })
    }
}
