//! `clearway bench threads`: many threads of an app on one core, each with a channel, that wait for
//! messages (Machnet, figure 13): what it costs if they sleep meanwhile, and if they all poll.
//!
//! ```text
//!  core 0                         core 1
//!  64 threads, a channel each ◀── daemon ◀── sender: so many messages per second, to each in turn
//! ```
//!
//! One host: the wire is measured elsewhere (`suite`).

mod apps;
mod report;

use crate::arguments::{seconds, whole};
use crate::cpu::{Cores, pin, seconds_used};
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::host::STAYS_ROOT;
use crate::interrupt::Interrupt;
use crate::process::{RoleProcess, own_program};
use crate::role::{Part, Role};
use crate::table::print_report;
use apps::{Crowd, Sender};
use clearway_client::Waiting;
use report::{Outcome, Report};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the daemon may take to start.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Many threads that wait for messages on one core: asleep, and polling
#[derive(clap::Args, Clone, Debug)]
pub struct ThreadsCommand {
    /// Threads, all on one core.
    #[arg(long, default_value_t = 64, value_parser = whole(1..=1000))]
    threads: usize,
    /// Messages per second, to all threads together; 0 for what it costs that they are there.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 10_000, 50_000],
        value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    loads: Vec<u32>,
    /// How the threads wait. Hundreds that poll leave each other so little of a core that the
    /// daemon gives up those that are just attaching.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Wait::Block, Wait::Poll])]
    waiting: Vec<Wait>,
    /// Seconds per load.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Write the plot to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Wait {
    /// Asleep.
    Block,
    /// Looking all the time.
    Poll,
}

impl From<Wait> for Waiting {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Block => Self::Block,
            Wait::Poll => Self::Spin,
        }
    }
}

impl ThreadsCommand {
    /// Measures and prints.
    pub fn execute(&self) -> Result<(), Error> {
        let report = self.measure(&Interrupt::catch()?)?;
        if let Some(path) = &self.plot {
            std::fs::write(path, report.svg()).while_("writing the plot")?;
        }
        print_report(self.json, &report, || report.text())
    }

    fn measure(&self, interrupt: &Interrupt) -> Result<Report, Error> {
        let cores = Cores::choose();
        let mut outcomes = Vec::new();
        for waiting in self.waiting.iter().copied().map(Waiting::from) {
            let directory = Directory::create().while_("making a directory for sockets")?;
            let mut daemon = self.start_daemon(directory.path(), cores, interrupt)?;
            let socket = directory.path().join("sock");
            let result = self.with_daemon(daemon.id(), &socket, waiting, cores, interrupt);
            daemon.terminate();
            interrupt.check()?;
            outcomes.extend(result?);
        }
        Ok(Report::new(self.threads, self.seconds, outcomes, cores.shared()))
    }

    fn start_daemon(
        &self,
        directory: &Path,
        cores: Cores,
        interrupt: &Interrupt,
    ) -> Result<RoleProcess, Error> {
        let (socket, config) = (directory.join("sock"), directory.join("toml"));
        let text = format!(
            "{STAYS_ROOT}[control]\nsocket = {socket:?}\n[log]\nlevel = \"warn\"\n\
             [policy.limits]\nchannels_total = {channels}\nchannels_per_user = {channels}\n\
             sessions_per_user = {channels}\nsessions_total = {channels}\n\
             [[nic]]\ndriver = \"memif\"\nsocket = {:?}\nrole = \"server\"\n\
             addresses = [\"10.0.0.1/24\"]\n",
            directory.join("memif"),
            channels = self.threads + 8,
        );
        std::fs::write(&config, text).while_("writing a configuration")?;
        let arguments = vec!["daemon".into(), "--config".into(), config.display().to_string()];
        let part = Part::Become { program: own_program(), arguments };
        let role = Role::new(part).on_core(cores.server);
        let mut daemon = RoleProcess::start("the daemon", &role)?;
        daemon.await_condition(START_PATIENCE, interrupt, || socket.exists())?;
        Ok(daemon)
    }

    fn with_daemon(
        &self,
        daemon: u32,
        socket: &Path,
        waiting: Waiting,
        cores: Cores,
        interrupt: &Interrupt,
    ) -> Result<Vec<Outcome>, Error> {
        let crowd = Crowd::start(socket, self.threads, waiting, cores.client)
            .while_("starting the threads")?;
        pin(cores.server).while_("pinning a thread to a core")?;
        let mut sender =
            Sender::connect(socket, crowd.addresses()).while_("connecting to the threads")?;
        let mut outcomes = Vec::new();
        for &load in &self.loads {
            interrupt.check()?;
            crowd.begin();
            let used_s = || [crowd.cpu_seconds(), seconds_used(daemon)];
            let (before_s, began) = (used_s(), Instant::now());
            let sent = sender
                .send_for(load, Duration::from_secs_f64(self.seconds), crowd.epoch())
                .while_("sending")?;
            let (after_s, elapsed_s) = (used_s(), began.elapsed().as_secs_f64());
            let percent = |index: usize| (after_s[index] - before_s[index]) / elapsed_s * 100.0;
            outcomes.push(crowd.outcome(load, sent, percent(0), percent(1)));
        }
        sender.end().and_then(|()| crowd.join()).while_("ending the threads")?;
        Ok(outcomes)
    }
}
