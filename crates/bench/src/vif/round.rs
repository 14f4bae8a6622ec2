//! What runs when: every contender once per round, in fresh processes, so that whatever else the
//! machine does hits all of them alike.

use super::generator::GeneratorRole;
use super::report::{Contender, Report};
use super::role::{Direction, VifRole};
use super::testpmd::{self, Counted, Setup, Testpmd};
use crate::arguments::Timing;
use crate::cpu::Cores;
use crate::directory::Directory;
use crate::error::{Error, While};
use crate::interrupt::Interrupt;
use crate::process::{Event, RoleProcess};
use crate::progress::Progress;
use crate::role::{Part, Role};
use crate::samples::Samples;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a part may keep silent: on a busy machine it waits for a core of its own.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames that show that all is under way.
const FIRST_FRAMES: u64 = 1024;
const WARM_UP: Duration = Duration::from_millis(200);

/// The machine and the timetable.
struct Round<'a> {
    program: PathBuf,
    cores: Cores,
    seconds: f64,
    flows: u16,
    interrupt: &'a Interrupt,
}

/// Measures all contenders in turn, as often as wanted.
pub(super) fn run(timing: Timing, flows: u16, interrupt: &Interrupt) -> Result<Report, Error> {
    let Some(program) = testpmd::find() else {
        let message = "dpdk-testpmd is not installed; it generates and takes the frames: install \
                       Debian's package dpdk-dev (or dpdk)";
        return Err(Error::Options(message.into()));
    };
    let Timing { seconds, runs } = timing;
    let round = Round { program, cores: Cores::choose(), seconds, flows, interrupt };
    let progress = Progress::new(runs * Contender::ALL.len());
    let mut rates = Samples::new(round.cores, Contender::ALL.iter().copied());
    for _ in 0..runs {
        for &contender in Contender::ALL {
            progress.next(contender.name());
            rates.take(contender, || round.measure(contender))?;
            progress.done();
        }
    }
    Ok(Report::new(timing, flows, &rates))
}

impl Round<'_> {
    /// Frames per second.
    fn measure(&self, contender: Contender) -> Result<f64, Error> {
        let directory = Directory::create().while_("making a directory for sockets")?;
        let socket = directory.path().join("memif.sock");
        match contender {
            Contender::IoForward => self.io_forward(&socket),
            Contender::WireToVif(checks) => self.wire_to_vif(&socket, checks),
            Contender::VifToWire(checks) => self.vif_to_wire(&socket, checks),
        }
    }

    /// `flowgen` sends on both of its ports and takes what comes: generator and sink at once, as
    /// `txonly` and `rxonly` are one by one. Its clones spare it the making of most frames.
    fn io_forward(&self, socket: &Path) -> Result<f64, Error> {
        let mut generator =
            self.testpmd(socket, "flowgen", "server", 2, &["--flowgen-clones=31"])?;
        let (core, more) = (self.cores.server, &[][..]);
        let setup = Setup { mode: "io", memif_role: "client", ports: 2, core, socket, more };
        let _forwarder = Testpmd::start(&self.program, setup)?;
        self.received_by(&mut generator)
    }

    fn wire_to_vif(&self, socket: &Path, checks: bool) -> Result<f64, Error> {
        if self.flows > 1 {
            let role = GeneratorRole { socket: socket.to_owned(), flows: self.flows };
            let role = Role::new(Part::Generator(role)).on_core(self.cores.client);
            let mut generator = RoleProcess::start("the generator", &role)?;
            generator.ready(PATIENCE, self.interrupt)?;
            let mut engine = self.engine(socket, Direction::Receive, checks)?;
            return self.received_by_app(&mut engine);
        }
        let peer = format!("--eth-peer=0,{}", super::flows::MAC_TEXT);
        let _generator = self.testpmd(socket, "txonly", "server", 1, &[&peer])?;
        let mut engine = self.engine(socket, Direction::Receive, checks)?;
        self.received_by_app(&mut engine)
    }

    fn vif_to_wire(&self, socket: &Path, checks: bool) -> Result<f64, Error> {
        let mut sink = self.testpmd(socket, "rxonly", "server", 1, &[])?;
        let _engine = self.engine(socket, Direction::Send, checks)?;
        self.received_by(&mut sink)
    }

    fn engine(
        &self,
        socket: &Path,
        direction: Direction,
        checks: bool,
    ) -> Result<RoleProcess, Error> {
        let (socket, flows, seconds) = (socket.to_owned(), self.flows, self.seconds);
        let role = VifRole { socket, direction, checks, flows, seconds };
        let role = Role::new(Part::Vif(role)).on_core(self.cores.server);
        RoleProcess::start("the engine and its app", &role)
    }

    fn testpmd(
        &self,
        socket: &Path,
        mode: &'static str,
        memif_role: &'static str,
        ports: usize,
        more: &[&str],
    ) -> Result<Testpmd, Error> {
        let core = self.cores.client;
        let setup = Setup { mode, memif_role, ports, core, socket, more };
        let mut testpmd = Testpmd::start(&self.program, setup)?;
        testpmd.listening(socket, self.interrupt)?;
        Ok(testpmd)
    }

    fn received_by_app(&self, app: &mut RoleProcess) -> Result<f64, Error> {
        let patience = PATIENCE + Duration::from_secs_f64(self.seconds);
        loop {
            match app.event(patience, self.interrupt)? {
                Event::Counted { frames, seconds } => return Ok(frames as f64 / seconds),
                _ => continue,
            }
        }
    }

    /// By its counters, once frames come.
    fn received_by(&self, testpmd: &mut Testpmd) -> Result<f64, Error> {
        let deadline = Instant::now() + PATIENCE;
        while testpmd.count(self.interrupt)?.received < FIRST_FRAMES {
            if Instant::now() > deadline {
                let seconds = PATIENCE.as_secs();
                return Err(Error::Silent { who: "the other side of testpmd".into(), seconds });
            }
            self.interrupt.pause(Duration::from_millis(20))?;
        }
        self.interrupt.pause(WARM_UP)?;
        let before = testpmd.count(self.interrupt)?;
        self.interrupt.pause(Duration::from_secs_f64(self.seconds))?;
        let after = testpmd.count(self.interrupt)?;
        Ok(rate(before, after))
    }
}

fn rate(before: Counted, after: Counted) -> f64 {
    let frames = after.received.saturating_sub(before.received);
    frames as f64 / after.at.duration_since(before.at).as_secs_f64()
}
