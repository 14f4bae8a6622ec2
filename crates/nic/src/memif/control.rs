//! The control sockets of one memif: accepts or connects, runs the handshake with whoever is there,
//! publishes the link, and notices its end. Owned and driven by the first queue; nothing here
//! waits.
//!
//! A descriptor whose closing takes long would hold up the engine. Peers can send none before their
//! secret was checked, where the kernel can refuse them (Linux 6.16); what comes, and the
//! connections themselves, are closed by [`SpareThreads`], on the account of the user at the other
//! end. Others do what the handshakes ask for (`work`), and close what takes no longer than it is
//! large.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handshake::{ClientHandshake, Handshake, Refusal, ServerHandshake, Step};
use super::message::{Message, Text, parse};
use super::poller::{Poller, Source};
use super::shared::Shared;
use super::socket::{self, Listener, Timer, connect_to};
use super::work::{Patience, Work, Workshop};
use super::{Config, Role};
use crate::Error;
use crate::strangers::{self, Account, File, SpareThreads};

/// How often a client tries to connect, and how often unfinished handshakes are looked at.
const PERIOD_NS: i64 = 50_000_000;
/// After this many periods an unfinished handshake is given up: 2 seconds.
const PERIODS_MAX: u32 = 40;
/// After this many periods its memory is given up, should the peer hold it up: 10 seconds, in which
/// the slowest of machines fills a gigabyte.
const WORK_PERIODS_MAX: u32 = 200;
/// Unfinished handshakes that a server keeps; the oldest goes when one more comes, so that silent
/// strangers cannot keep the peer out. Also how many connections are accepted in one go.
const STRANGERS_MAX: usize = 8;
/// Messages read from one peer in one go, so that a chatterer cannot hold up the engine. A whole
/// handshake with 256 queue pairs takes that many.
const MESSAGES_MAX: usize = 520;

/// Who words for the log are written for: no user has this number.
const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Control {
    config: Arc<Config>,
    shared: Arc<Shared>,
    poller: Arc<Poller>,
    timer: Timer,
    closers: SpareThreads,
    /// Those who work on memory.
    keepers: SpareThreads,
    workshop: Workshop,
    listener: Option<Listener>,
    /// Nobody is accepted before the next period.
    is_paused: bool,
    /// Whoever is connected; the one that has the link first.
    peers: Vec<Peer>,
    peers_so_far: u32,
}

#[derive(Debug)]
struct Peer {
    number: u32,
    socket: strangers::Socket,
    /// Who works on its memory.
    account: Account,
    handshake: Handshake,
    stage: Stage,
    /// For how long it has been in this stage.
    periods: u32,
}

/// How far a peer has come.
#[derive(Debug)]
enum Stage {
    Talking,
    /// Its link is being worked on.
    Working(
        #[expect(dead_code, reason = "says that we wait, for as long as it is there")] Patience,
    ),
    /// It has the link.
    Established,
}

impl Peer {
    const fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Established)
    }

    /// Nobody else can have the link.
    const fn has_claim(&self) -> bool {
        !matches!(self.stage, Stage::Talking)
    }

    const fn periods_max(&self) -> u32 {
        match self.stage {
            Stage::Talking => PERIODS_MAX,
            Stage::Working(_) => WORK_PERIODS_MAX,
            Stage::Established => u32::MAX,
        }
    }
}

impl Control {
    pub(super) fn open(
        config: Arc<Config>,
        shared: Arc<Shared>,
        poller: Arc<Poller>,
    ) -> Result<Self, Error> {
        let listener = match config.role {
            Role::Server => Some(match &config.listening {
                Some(socket) => {
                    let socket = socket.try_clone().map_err(system_error)?;
                    Listener::over(socket, &config.socket)?
                }
                None => Listener::new(&config.socket)?,
            }),
            Role::Client => None,
        };
        let timer = Timer::new().map_err(system_error)?;
        poller.add(&timer, Source::Timer).map_err(system_error)?;
        if let Some(listener) = &listener {
            poller.add(listener, Source::Listener).map_err(system_error)?;
        }
        let workshop = Workshop::new(config.clone(), shared.clone());
        let mut control = Self {
            config,
            shared,
            poller,
            timer,
            closers: SpareThreads::new("memif closer"),
            keepers: SpareThreads::new("memif memory"),
            workshop,
            listener,
            is_paused: false,
            peers: Vec::new(),
            peers_so_far: 0,
        };
        control.connect_if_alone();
        control.update_timer();
        Ok(control)
    }

    /// Does what `source` asks for.
    pub(super) fn handle(&mut self, source: Source) {
        match source {
            Source::Doorbell => {}
            Source::News => {
                self.end_if_violated();
                self.take_outcomes();
            }
            Source::Listener => self.accept(),
            Source::Timer => self.period(),
            Source::Socket(number) => self.read(number),
        }
        self.update_timer();
    }

    /// Ends the link if a queue has found it broken.
    pub(super) fn end_if_violated(&mut self) {
        if let Some(violation) = self.shared.take_violation()
            && let Some(at) = self.peers.iter().position(Peer::is_established)
        {
            self.refuse(at, Refusal(violation.to_string()));
        }
    }

    fn accept(&mut self) {
        if !self.has_room() {
            return self.pause_accepting(true);
        }
        for _ in 0..STRANGERS_MAX {
            let socket = match self.listener.as_ref().map_or(Ok(None), Listener::accept) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => return self.pause_accepting(true), // too many files are open
            };
            if self.peers.iter().filter(|peer| !peer.has_claim()).count() >= STRANGERS_MAX {
                let oldest = self.peers.iter().position(|peer| !peer.has_claim());
                oldest.into_iter().for_each(|at| self.refuse(at, "too many connections".into()));
            }
            let hello = ServerHandshake::hello(&self.config);
            if socket::send(&socket, &(hello, None)).is_ok() {
                self.add_peer(socket, Handshake::Server(ServerHandshake::default()));
            }
        }
    }

    /// Who is not accepted, and waits outside, would keep the engine awake.
    fn pause_accepting(&mut self, is_paused: bool) {
        let Some(listener) = &self.listener else { return };
        let outcome = self.poller.pause(listener, Source::Listener, is_paused);
        self.is_paused = is_paused || outcome.is_err();
    }

    /// If not, too much hangs in closing already: who knocks waits outside.
    fn has_room(&self) -> bool {
        self.closers.has_room() && self.keepers.has_room()
    }

    fn connect_if_alone(&mut self) {
        if self.config.role == Role::Server || !self.peers.is_empty() || !self.has_room() {
            return;
        }
        let connected = match &self.config.connector {
            Some(connector) => connector.connect(),
            None => connect_to(&self.config.socket),
        };
        match connected {
            Ok(socket) => {
                // Somebody else may have made it.
                let _ = strangers::refuse_descriptors(&socket);
                self.add_peer(socket, Handshake::Client(ClientHandshake::default()));
            }
            Err(error) => self.shared.explain(format!("waiting for the server: {error}")),
        }
    }

    fn add_peer(&mut self, socket: OwnedFd, handshake: Handshake) {
        self.peers_so_far = self.peers_so_far.wrapping_add(1);
        let number = self.peers_so_far;
        let user = socket::user_of(&socket);
        let account = Account::new(user, self.keepers.clone());
        let socket = strangers::Socket::of(user, socket, self.closers.clone());
        if self.poller.add(&socket, Source::Socket(number)).is_ok() {
            let stage = Stage::Talking;
            self.peers.push(Peer { number, socket, account, handshake, stage, periods: 0 });
        }
    }

    /// Reads what peer `number` has sent. If somebody else has the link, looks first whether that
    /// one is still there: a restarted peer may come back before its predecessor's end has been
    /// seen.
    fn read(&mut self, number: u32) {
        if let Some(holder) = self.peers.iter().find(|peer| peer.has_claim())
            && holder.number != number
        {
            self.read_all(holder.number);
        }
        self.read_all(number);
    }

    fn read_all(&mut self, number: u32) {
        for _ in 0..MESSAGES_MAX {
            let Some(at) = self.peers.iter().position(|peer| peer.number == number) else { return };
            match socket::receive(&self.peers[at].socket) {
                Ok(Some(packet)) => self.take(at, packet),
                Ok(None) => return,
                Err(_) => return self.forget(at, "the peer closed the connection".into()),
            }
        }
    }

    fn take(&mut self, at: usize, mut packet: socket::Packet) {
        let account = &self.peers[at].account;
        let descriptor = packet.descriptors.pop();
        if !packet.descriptors.is_empty() || !descriptor.as_ref().is_none_or(is_harmless) {
            self.closers.run(account.user(), move || drop((descriptor, packet)));
            let text = "a descriptor that is neither a memfd with seals nor an eventfd, or several";
            return self.refuse(at, text.into());
        }
        let message = match parse(packet.bytes()) {
            Ok(message) => message,
            Err(error) => return self.refuse(at, Refusal(error.to_string())),
        };
        let descriptor = descriptor.map(|descriptor| File::new(descriptor, account.clone()));
        let taken = self.peers.iter().any(Peer::has_claim);
        let handshake = &mut self.peers[at].handshake;
        match handshake.handle(&self.config, message, descriptor, taken) {
            Ok(step) => {
                if let Message::Init(_) = message {
                    strangers::accept_descriptors(&self.peers[at].socket);
                }
                self.step(at, step);
            }
            Err(refusal) => self.refuse(at, refusal),
        }
    }

    fn step(&mut self, at: usize, step: Step) {
        match step {
            Step::Reply(parcel) => {
                if let Err(error) = socket::send(&self.peers[at].socket, &parcel) {
                    self.forget(at, format!("the peer takes no messages: {error}"));
                }
            }
            Step::Work(work) => self.begin(at, work),
            Step::Established(answer, established) => {
                let answer = answer.map(|message| (message, None));
                if answer.is_none_or(|parcel| socket::send(&self.peers[at].socket, &parcel).is_ok())
                {
                    let _ = strangers::refuse_descriptors(&self.peers[at].socket);
                    self.peers[at].stage = Stage::Established;
                    self.shared.publish(established);
                }
            }
            Step::Left(reason) => self.forget(at, format!("the peer left: {reason}")),
        }
    }

    /// Has something done for a peer, which waits.
    fn begin(&mut self, at: usize, work: Work) {
        let peer = &mut self.peers[at];
        let Some(patience) = self.workshop.begin(peer.number, &peer.account, work) else {
            return self.refuse(at, "earlier peers hold up their memory; end those".into());
        };
        (peer.stage, peer.periods) = (Stage::Working(patience), 0);
    }

    /// Goes on with those whose work is done.
    fn take_outcomes(&mut self) {
        while let Some((number, outcome)) = self.workshop.next_outcome() {
            // Otherwise it has gone meanwhile, and what was done for it goes too.
            let Some(at) = self.peers.iter().position(|peer| peer.number == number) else {
                continue;
            };
            match outcome {
                Ok(done) => {
                    let peer = &mut self.peers[at];
                    (peer.stage, peer.periods) = (Stage::Talking, 0);
                    let step = peer.handshake.done(&self.config, done);
                    self.step(at, step);
                }
                Err(text) => self.refuse(at, Refusal(text)),
            }
        }
    }

    /// Tells the peer why, and drops it.
    fn refuse(&mut self, at: usize, refusal: Refusal) {
        self.shared.peers_refused.fetch_add(1, Ordering::Relaxed);
        let goodbye = Message::Disconnect { code: 0, reason: Text::new(&refusal.0) };
        let _ = socket::send(&self.peers[at].socket, &(goodbye, None));
        if let Some(witness) = self.config.witness.clone() {
            let text = refusal.0.clone();
            self.closers.run(NOBODY, move || witness.refused(&text));
        }
        self.forget(at, format!("the peer was refused: {}", refusal.0));
    }

    fn forget(&mut self, at: usize, reason: String) {
        let peer = self.peers.remove(at);
        self.poller.remove(&peer.socket);
        if peer.is_established() {
            self.shared.retract(reason);
        } else {
            self.shared.explain(reason);
        }
    }

    fn period(&mut self) {
        if !self.timer.consume() {
            return;
        }
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_established()) {
            peer.periods += 1;
        }
        while let Some(at) = self.peers.iter().position(|peer| peer.periods > peer.periods_max()) {
            let text = match self.peers[at].stage {
                Stage::Working(_) => "the peer holds its memory up; it has to let go of the file",
                _ => "the handshake took too long",
            };
            self.refuse(at, text.into());
        }
        self.connect_if_alone();
        if self.is_paused {
            self.pause_accepting(false);
        }
    }

    /// The timer runs while there is something to wait for: a server to connect to, a handshake to
    /// finish, or room for who connects.
    fn update_timer(&mut self) {
        let alone = self.config.role == Role::Client && self.peers.is_empty();
        let unfinished = self.peers.iter().any(|peer| !peer.is_established());
        self.timer.run(alone || unfinished || self.is_paused, PERIOD_NS);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        while let Some(last) = self.peers.len().checked_sub(1) {
            let goodbye = Message::Disconnect { code: 0, reason: Text::new("interface closed") };
            let _ = socket::send(&self.peers[last].socket, &(goodbye, None));
            self.forget(last, "the interface's first queue was closed".into());
        }
    }
}

/// Whether closing a descriptor takes no longer than anything else here. Asks nothing of the file
/// itself, which could take long too: only files in memory have seals, and how an eventfd is called
/// no other file can be, since names begin with a slash.
fn is_harmless(descriptor: &OwnedFd) -> bool {
    let name = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    rustix::fs::fcntl_get_seals(descriptor).is_ok()
        || std::fs::read_link(name).is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

fn system_error(source: std::io::Error) -> Error {
    Error::System {
        action: "memif: set up the control socket".into(),
        remedy: "Raise the limit of open files (ulimit -n)".into(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::memif::Socket;

    /// Handles what is ready. True if somebody who connects was.
    fn turn(control: &mut Control, poller: &Poller) -> bool {
        let ready: Vec<Source> = poller.ready().collect();
        ready.iter().for_each(|source| control.handle(*source));
        ready.contains(&Source::Listener)
    }

    #[test]
    fn who_waits_outside_wakes_nobody_and_comes_in_when_there_is_room() {
        let at = Socket::Abstract(format!("clearway-outside-{}", std::process::id()));
        let config = Arc::new(Config::new(at, Role::Server, [2, 0, 0, 0, 0, 1]));
        let (shared, poller) = (Shared::new(1).unwrap(), Arc::new(Poller::new().unwrap()));
        let mut control = Control::open(config.clone(), shared.into(), poller.clone()).unwrap();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        for _ in 0..300 {
            let gate = gate.clone();
            control.closers.run(7, move || drop(gate.lock()));
        }
        assert!(!control.has_room());
        let _client = connect_to(&config.socket).unwrap();
        assert!(turn(&mut control, &poller), "somebody connects");
        assert!(!turn(&mut control, &poller) && control.peers.is_empty());
        drop(closed);
        let start = Instant::now();
        while control.peers.is_empty() {
            assert!(start.elapsed().as_secs() < 30, "never let in");
            turn(&mut control, &poller);
            std::thread::yield_now();
        }
        assert!(!control.is_paused);
    }
}
