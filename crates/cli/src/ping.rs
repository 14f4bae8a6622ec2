//! `clearway ping`, in the manner of the ping that everybody knows: also its options, its summary
//! and its exit codes, which are 0 if there was an answer, 1 if there was none, and 2 if something
//! else went wrong.
//!
//! What a packet carries is sent by the daemon, and answered by the other host's. What is larger is
//! a message, and comes back from `clearway bench --serve`.

mod options;
mod packets;
mod statistics;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clearway_bench::{BENCH_PORT, Echo};
use clearway_channel::Code;
use clearway_channel::control::{Pong, Probe, Refusal};
use clearway_client::resolve;
use clearway_daemon::text::escaped_lines;

use crate::output::{Failure, print, write};
use crate::reason;
use crate::stop::Stop;

pub(crate) use options::Arguments;
use packets::{Next, Packets};
use statistics::Statistics;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let begun = Instant::now();
    let (stop, statistics) = (Stop::hold_back()?, Statistics::default());
    let mut ping = Ping { arguments, stop, begun, statistics, is_interrupted: false };
    ping.run().map_err(Failure::without_answer)?;
    ping.conclude()
}

/// A ping in work.
struct Ping<'a> {
    arguments: &'a Arguments,
    stop: Stop,
    begun: Instant,
    statistics: Statistics,
    /// By Ctrl-C, or by a reader of the output that has gone.
    is_interrupted: bool,
}

/// How sending packets has ended.
enum Sent {
    All,
    /// Until there was a Ctrl-C, or nobody looked any more.
    Some,
    /// They cannot be sent, for this reason.
    Refused(Refusal),
}

impl Ping<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let peers = resolve(&self.arguments.peer, BENCH_PORT).map_err(Failure::failed)?;
        if self.arguments.is_message() {
            return self.send_messages(&peers);
        }
        let mut others = peers.iter().skip(1);
        let mut peer = &peers[0];
        loop {
            match (self.send_packets(peer)?, others.next()) {
                (Sent::All, _) => return Ok(()),
                (Sent::Some, _) => {
                    self.is_interrupted = true;
                    return Ok(());
                }
                (Sent::Refused(refusal), _) if refusal.code == Code::TooLarge => {
                    return self.send_messages(&peers);
                }
                (Sent::Refused(refusal), Some(other)) if refusal.code == Code::Unreachable => {
                    peer = other;
                }
                (Sent::Refused(refusal), _) => return Err(Failure::Failed(refusal.message)),
            }
        }
    }

    fn send_packets(&mut self, peer: &SocketAddr) -> Result<Sent, Failure> {
        let mut packets = Packets::begin(self.arguments, *peer)?;
        loop {
            match packets.next(&self.stop)? {
                Next::Pong(pong) => {
                    if !self.note(&pong)? {
                        return Ok(Sent::Some);
                    }
                }
                Next::Refused(refusal) => return Ok(Sent::Refused(refusal)),
                Next::Interrupted => return Ok(Sent::Some),
                Next::End => return Ok(Sent::All),
            }
        }
    }

    fn send_messages(&mut self, peers: &[SocketAddr]) -> Result<(), Failure> {
        let arguments = self.arguments;
        if arguments.udp_port.is_some() {
            let text = "--udp-port is for packets: no connection goes to a daemon with another \
                        port, and so no message; leave it out, or give HOST without a port and a \
                        --size that a packet carries";
            return Err(Failure::Usage(text.to_owned()));
        }
        let socket = arguments.socket.as_deref();
        let mut echo = Echo::open(socket, peers, arguments.size)
            .map_err(|error| reason::of_bench(socket, error))?;
        self.begun = Instant::now();
        for number in 1..=arguments.count() {
            let sent = Instant::now();
            let answer = echo.round_trip(arguments.timeout()).map_err(Failure::Bench)?;
            let round_trip_ns = answer.map(|time| time.as_nanos() as u64);
            let last = number == arguments.count();
            let probe = round_trip_ns.map_or(Probe::Lost, Probe::Answered);
            let is_read = self.note(&Pong { number, probe, last })?;
            let at_once = last || (arguments.is_eager() && answer.is_some());
            let next = if at_once { sent } else { sent + arguments.interval() };
            if !is_read || self.stop.comes_before(next)? {
                self.is_interrupted = true;
                break;
            }
        }
        Ok(())
    }

    /// Counts a probe, and shows it; false if nobody looks any more.
    fn note(&mut self, &Pong { number, probe, .. }: &Pong) -> Result<bool, Failure> {
        self.statistics.sent(number);
        if let Probe::Answered(ns) = probe {
            self.statistics.answered(Duration::from_nanos(ns));
        }
        if self.arguments.quiet {
            return Ok(true);
        }
        if self.arguments.flood {
            let is_answered = matches!(probe, Probe::Answered(_));
            return if is_answered { Ok(true) } else { write(".") };
        }
        let Arguments { size, peer, .. } = self.arguments;
        let text = match probe {
            Probe::Answered(ns) => {
                let time = statistics::microseconds(ns as f64);
                format!("{size} bytes from {peer}: probe {number}, {time} µs\n")
            }
            Probe::Lost => format!("no answer from {peer}: probe {number}\n"),
            Probe::NoNeighbour => format!("no host at {peer} on the link: probe {number}\n"),
            Probe::NoPort => format!("no daemon at {peer}, says that host: probe {number}\n"),
            Probe::NoWay => format!("no way to {peer}, says a router: probe {number}\n"),
        };
        write(&escaped_lines(&text))
    }

    /// The summary; a failure if there was no answer at all.
    fn conclude(self) -> Result<(), Failure> {
        let Arguments { peer, udp_port, socket, flood, quiet, .. } = self.arguments;
        let dots = if *flood && !quiet { "\n" } else { "" };
        print(&format!("{dots}{}", self.statistics.text(peer, self.begun.elapsed())))?;
        if self.statistics.received() > 0 {
            return Ok(());
        }
        if self.is_interrupted {
            return Err(Failure::Failed(format!("{peer} had not answered yet")));
        }
        self.stop.let_go();
        Err(Failure::Failed(reason::of_silence(socket.as_deref(), peer, *udp_port)))
    }
}
