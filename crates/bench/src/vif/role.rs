//! Engine and app in one thread, in turn: the app's end of the channel, the daemon's, the engine
//! and its memif are all real; only the scheduler is left out.

use super::flows::{ADDRESS, Flows, MAC, MAC_TEXT, PORT};
use super::{BURST_FRAMES, FRAME_BYTES, RING_LOG2};
use crate::error::Error;
use crate::host::engine_config;
use crate::instructions::Ticks;
use crate::process::Event;
use crate::role::tell;
use clearway_base::Time;
use clearway_channel::burst::{Filling, ReceivedBurst, packed_bytes};
use clearway_channel::{AppEnd, Command, Completion, DaemonEnd, Extent, Granted, Sizes, Told};
#[cfg(feature = "unchecked")]
use clearway_engine::Checks;
use clearway_engine::{Allowance, Clock, Control, Engine, Event as EngineEvent, Request, VifSpec};
use clearway_nic::{Queue, memif};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

const VIF: u32 = 1;
const CHANNEL: u32 = 0;
const SIZES: Sizes = Sizes {
    submission_entries: 256,
    completion_entries: 256,
    transmit_pool_bytes: 1 << 20,
    receive_pool_bytes: 1 << 20,
    shared_bytes: 0,
};
/// Bursts that the app keeps submitted: as many as leave in two turns.
const BURSTS_SUBMITTED: usize = 4;
/// Frames before those that are counted.
const WARM_UP_FRAMES: u64 = 500_000;
/// Turns between two looks at the clock.
const TURNS_PER_LOOK: u32 = 64;

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// From the wire to the virtual interface.
    Receive,
    /// From the virtual interface to the wire.
    Send,
}

/// What this process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VifRole {
    pub(super) socket: PathBuf,
    pub(super) direction: Direction,
    pub(super) checks: bool,
    pub(super) flows: u16,
    pub(super) seconds: f64,
}

impl VifRole {
    /// Runs until it is ended from outside; tells once how many frames passed in how long.
    pub(crate) fn play(&self) -> Result<(), Error> {
        let failed = |error: io::Error| Error::System { what: "running an engine", source: error };
        let clock = Clock::new();
        let mut station =
            Station::open(&self.socket, self.checks, self.flows, clock.now()).map_err(failed)?;
        let mut turn = || {
            station.turn(clock.now(), self.direction, BURSTS_SUBMITTED);
            station.app.frames
        };
        tell(&Event::Ready(String::new()));
        while turn() < WARM_UP_FRAMES {}
        let (before, start) = (turn(), clock.now());
        tell(&Event::Measuring);
        let end = start + (self.seconds * 1e9) as u64;
        let mut now = start;
        while now < end {
            for _ in 0..TURNS_PER_LOOK {
                turn();
            }
            now = clock.now();
        }
        let (frames, seconds) = (turn() - before, now.since(start) as f64 / 1e9);
        tell(&Event::Counted { frames, seconds });
        loop {
            turn();
        }
    }
}

/// A host with one app.
struct Station {
    engine: Engine,
    _control: Control,
    app: App,
}

impl Station {
    fn open(socket: &Path, checks: bool, flows: u16, now: Time) -> io::Result<Self> {
        let mut wire =
            memif::Config::new(memif::Socket::Path(socket.to_owned()), memif::Role::Client, MAC);
        wire.ring_size_log2 = RING_LOG2;
        let queues = memif::open(wire).map_err(io::Error::other)?;
        let queues = queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
        let config = engine_config(MAC, ADDRESS.into());
        let (mut engine, control) = Engine::new(config, queues, 1, [1; 16], now)?;
        let (end, handover) = DaemonEnd::create(SIZES)?;
        let app_end = AppEnd::open(handover, SIZES).map_err(io::Error::other)?;
        let app = App::new(app_end, Flows::of_host(flows));
        let (app_name, end) = ("bench".into(), Box::new(end));
        let add = Request::AddChannel {
            channel: CHANNEL,
            app: app_name,
            user: 0,
            end,
            allowance: Allowance::of_connections(1),
        };
        let open = Request::OpenVif { channel: CHANNEL, vif: VIF, spec: Box::new(vif_spec()) };
        for request in [add, open] {
            control.post(request).map_err(|_| io::Error::other("the mailbox is full"))?;
            engine.turn(now);
        }
        match control.next_event() {
            Some(EngineEvent::VifOpened { result: Ok(()), .. }) => {}
            other => return Err(io::Error::other(format!("no interface: {other:?}"))),
        }
        #[cfg(feature = "unchecked")]
        engine.set_checks(if checks { Checks::On } else { Checks::Off });
        assert!(checks || super::HAS_UNCHECKED, "this build checks everything");
        Ok(Self { engine, _control: control, app })
    }

    /// Moves frames; who sends keeps `bursts` submitted.
    fn turn(&mut self, now: Time, direction: Direction, bursts: usize) {
        if direction == Direction::Send {
            self.app.send(bursts);
        }
        self.engine.turn(now);
        self.app.poll();
    }
}

/// A host with one app and the other end of its wire in one thread, for who counts what the host
/// does.
pub(crate) struct CountedFrames {
    station: Station,
    wire: memif::Queue,
    flows: Flows,
    direction: Direction,
    ticks: Ticks,
}

impl CountedFrames {
    /// Frames that pass in a round.
    pub(crate) const PER_ROUND: u64 = BURST_FRAMES as u64;

    /// `socket` is where the two ends of the wire meet.
    pub(crate) fn open(socket: &Path, direction: Direction) -> io::Result<Self> {
        let wire = super::generator::open(socket).map_err(io::Error::other)?;
        let ticks = Ticks::default();
        let station = Station::open(socket, true, 1, ticks.next())?;
        let mut frames = Self { station, wire, flows: Flows::of_peer(1), direction, ticks };
        // Until both ends of the wire are up, what the host sends is dropped, which costs less.
        while frames.round(|turn| turn()) == 0 {}
        Ok(frames)
    }

    /// A burst passes, once the wire is up. The host's part of it is what `turn` is given to do.
    /// Gives back how many frames came to the other end.
    pub(crate) fn round(&mut self, turn: impl FnOnce(&mut dyn FnMut())) -> u64 {
        if self.direction == Direction::Receive {
            super::generator::send_burst(&mut self.wire, &mut self.flows);
        }
        let before = self.station.app.frames;
        turn(&mut || self.station.turn(self.ticks.next(), self.direction, 1));
        // All of it, also what the host sent before this end was up: a full ring costs tries.
        let mut sent = 0;
        while let burst @ 1.. = self.wire.receive(BURST_FRAMES, &mut |_, _| ()) {
            sent += burst as u64;
        }
        self.wire.flush();
        match self.direction {
            Direction::Receive => self.station.app.frames - before,
            Direction::Send => sent,
        }
    }
}

fn vif_spec() -> VifSpec {
    let filter = |text: String| vec![text.parse().expect("the filter is valid")];
    VifSpec {
        receive: filter(format!(
            "ether dst {MAC_TEXT} and dst host {ADDRESS} and udp dst port {PORT}"
        )),
        transmit: filter(format!(
            "ether src {MAC_TEXT} and src host {ADDRESS} and udp src port {PORT}"
        )),
        priority: 0,
        mac: MAC,
        ..VifSpec::default()
    }
}

/// The app: reads the headers of what it is given, or sends as fast as it may.
struct App {
    end: AppEnd,
    flows: Flows,
    /// Bursts that were submitted and are not finished.
    bursts: VecDeque<Extent>,
    finished: u32,
    /// Frames received, or sent and out of the app's hands.
    frames: u64,
    /// What was read of the frames.
    sum: u64,
}

impl App {
    fn new(end: AppEnd, flows: Flows) -> Self {
        let (bursts, finished, frames, sum) = (VecDeque::new(), 0, 0, 0);
        Self { end, flows, bursts, finished, frames, sum }
    }

    fn poll(&mut self) {
        while let Some(told) = self.end.next_told().expect("the engine is our own") {
            match told {
                Told::Frames { bytes, count, .. } => {
                    self.read(&bytes, count);
                    self.end.release(bytes);
                }
                Told::Other(Completion::FramesSent { bursts, sent, .. }) => self.sent(bursts, sent),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        self.end.flush();
    }

    fn read(&mut self, bytes: &Granted, count: u16) {
        let burst = ReceivedBurst::new(self.end.receive_bytes(bytes), count);
        for frame in burst {
            let (head, _) = frame.bytes.split_at(42);
            self.sum = self.sum.wrapping_add(u64::from(head[37]) + u64::from(head[29]));
            self.frames += 1;
        }
        core::hint::black_box(self.sum);
    }

    fn sent(&mut self, bursts: u32, sent: u64) {
        while self.finished != bursts {
            self.finished = self.finished.wrapping_add(1);
            let extent = self.bursts.pop_front().expect("no more finished than were sent");
            self.end.free(extent);
        }
        self.frames = sent;
    }

    fn send(&mut self, bursts: usize) {
        let bytes = BURST_FRAMES as u32 * packed_bytes(FRAME_BYTES as u32);
        while self.bursts.len() < bursts && self.end.has_room() {
            let Some(extent) = self.end.allocate(bytes) else { return };
            let mut filling = Filling::default();
            for _ in 0..BURST_FRAMES {
                let buffer = self.end.transmit_bytes(&extent);
                let place = filling.append(buffer, FRAME_BYTES as u32).expect("room for a burst");
                place.copy_from_slice(self.flows.next_frame());
            }
            let (offset, length) = (extent.offset(), extent.length());
            let count = BURST_FRAMES as u16;
            self.bursts.push_back(extent);
            let command = Command::SendFrames { vif: VIF, offset, length, count };
            self.end.submit(&command).expect("there is room");
        }
        self.end.flush();
    }
}
