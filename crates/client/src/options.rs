//! What an app may choose when it attaches.

use std::path::PathBuf;
use std::time::Duration;

use clearway_channel::{Sizes, control};

/// How to attach. [`Options::new`] fits most apps.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon's control socket. By default `CLEARWAY_SOCKET`, else the user's own daemon if
    /// there is one, else the system's.
    pub socket: PathBuf,
    /// Which user's daemon it has to be. By default that of root, of the app's own user, or of the
    /// user to whom the socket's directory belongs, if nobody else can replace that; any other is
    /// refused ([`crate::Error::WrongDaemon`]).
    pub daemon_user: Option<u32>,
    /// The app's name in `clearway status`: up to 64 bytes.
    pub app: String,
    /// Which engine of the daemon to use: its name (`eth0/1`) or number in `clearway status`, or
    /// the name of a NIC (`eth0`) for any of its engines. By default the daemon chooses the one
    /// with the fewest apps on its first NIC. Over that engine's NIC an app has the shortest way;
    /// virtual interfaces and captures are on that one only.
    pub engine: Option<String>,
    /// Share the engine with no other app. Refused if there is no engine without apps, or if the
    /// daemon's policy does not allow it.
    pub exclusive: bool,
    /// How large rings and pools are.
    pub sizes: Sizes,
    /// How calls wait.
    pub waiting: Waiting,
    /// For how long the daemon goes on to deliver what was sent after the channel was dropped, or
    /// the process has ended in good order; 10 seconds by default. The daemon has a limit, too
    /// (`linger_s_max`).
    pub linger: Duration,
}

impl Options {
    /// The defaults, under this name.
    pub fn new(app: impl Into<String>) -> Self {
        Self {
            socket: control::client_path(),
            daemon_user: None,
            app: app.into(),
            engine: None,
            exclusive: false,
            sizes: Sizes::default(),
            waiting: Waiting::default(),
            linger: Duration::from_secs(10),
        }
    }
}

/// How a call waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Looks again and again: the fastest, and takes a core.
    Spin,
    /// Looks, and lets others run in between: for engines that share the core with their app.
    Yield,
    /// Sleeps at once.
    Block,
    /// Stays awake while that has paid lately, for 0.1 to 2 ms at most (the longer it takes on
    /// this machine to wake up, the longer), then sleeps. Awake, it looks again and again while
    /// the engine runs on another core, and gives this core away at once if the engine, or somebody
    /// else, wants it.
    ///
    /// If others want this core again and again for four milliseconds, while the engine runs on
    /// another one, the calling thread moves there, if it may: the two do best on one core where
    /// there are not enough. It says so by `sched_setaffinity`, and at once allows itself again
    /// what it was allowed before.
    #[default]
    Adaptive,
}
