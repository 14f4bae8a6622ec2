//! `clearway vif capture`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clearway_client::{CaptureOptions, Channel, Error, Frame, Options, Sizes, VifId};

use super::observer::{Observer, wall_clock_ns};
use super::packet;
use super::pcapng::{Direction, Packet, Statistics, Writer};
use super::sightings::{Party, verdict};
use crate::output::{Failure, eprint, write};
use crate::stop::Stop;

/// How often it is looked whether Ctrl-C has come, and what was captured is handed on.
const TICK: Duration = Duration::from_millis(100);
/// Room for some ten thousand packets while the disk is slow.
const SIZES: Sizes = Sizes {
    submission_entries: 64,
    completion_entries: 4096,
    transmit_pool_bytes: 1 << 16,
    receive_pool_bytes: 32 << 20,
    shared_bytes: 0,
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to capture, as for tcpdump; everything if not given
    filter: Vec<String>,
    /// Only what the app of this name sends and receives
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Only what this connection of the app sends and receives, by its number in `clearway status`
    #[arg(long, value_name = "CONNECTION", requires = "app")]
    flow: Option<u64>,
    /// Write pcapng to this file, or with "-" to standard output, for `tcpdump -r -` or Wireshark
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    write: Option<PathBuf>,
    /// End after so many packets; 0: at Ctrl-C
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,
    /// Print the bytes of each packet, too
    #[arg(long, conflicts_with = "write")]
    hex: bool,
    /// The NIC to capture on, or one of its engines, by its name in `clearway status`
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let stop = Stop::hold_back()?;
    let mut observer = Observer::new(arguments.socket.as_deref())?;
    let mut channel = attach(arguments)?;
    let (nic, _) = channel.engine().rsplit_once('/').unwrap_or((channel.engine(), ""));
    observer.nic = nic.to_owned();
    let filter = arguments.filter.join(" ");
    let options = CaptureOptions {
        filter: if filter.is_empty() { Vec::new() } else { vec![filter] },
        app: arguments.app.clone(),
        connection: arguments.flow,
    };
    let capture = channel.open_capture(&options).map_err(Failure::failed)?;
    // A file that is there already is not emptied for a capture that is refused.
    let mut output = Output::open(arguments)?;
    let start_ns = wall_clock_ns();
    eprint("capturing; Ctrl-C ends it\n");
    let result = receive(arguments, &mut channel, &mut observer, &mut output, &stop);
    let dropped = observer.frames_dropped(capture.id.as_u32());
    output.finish(start_ns, dropped)?;
    eprint(&summary(output.frames(), dropped));
    result?;
    close(&mut channel, capture.id)
}

fn attach(arguments: &Arguments) -> Result<Channel, Failure> {
    let mut options = Options {
        engine: arguments.engine.clone(),
        sizes: SIZES,
        ..Options::new("clearway vif capture")
    };
    if let Some(socket) = &arguments.socket {
        options.socket = socket.clone();
    }
    Channel::attach(&options).map_err(Failure::failed)
}

/// Takes packets until there are enough, Ctrl-C comes, or the reader has gone. What had come before
/// Ctrl-C is taken, too: no more than the ring has room for.
fn receive(
    arguments: &Arguments,
    channel: &mut Channel,
    observer: &mut Observer,
    output: &mut Output,
    stop: &Stop,
) -> Result<(), Failure> {
    let most = super::wanted(arguments.count);
    let mut bursts_left = None;
    while output.frames() < most && bursts_left != Some(0) {
        if bursts_left.is_none() && stop.has_come() {
            bursts_left = Some(SIZES.completion_entries);
        }
        let patience = if bursts_left.is_some() { Duration::ZERO } else { TICK };
        let frames = match channel.recv_frames(Some(patience)) {
            Ok(frames) => frames,
            Err(Error::TimedOut { .. } | Error::WouldBlock) if bursts_left.is_some() => break,
            Err(Error::TimedOut { .. }) => {
                if !output.flush()? {
                    break;
                }
                continue;
            }
            Err(error) => return Err(Failure::failed(error)),
        };
        bursts_left = bursts_left.map(|left| left - 1);
        let left = usize::try_from(most - output.frames()).unwrap_or(usize::MAX);
        for frame in frames.iter().take(left) {
            if !output.take(&frame, observer)? {
                return Ok(());
            }
        }
        channel.release_frames(frames);
    }
    Ok(())
}

fn close(channel: &mut Channel, capture: VifId) -> Result<(), Failure> {
    match channel.close_vif(capture) {
        // The daemon has ended meanwhile, and has closed it so.
        Err(Error::Vif { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn summary(frames: u64, dropped: Option<u64>) -> String {
    let rest = match dropped {
        Some(0) => String::new(),
        Some(dropped) => format!(
            "{dropped} frames were dropped, because they came faster than they were written; \
             capture less with a filter, or write to a file instead of a pipe\n"
        ),
        None => "whether frames were dropped is not known: the daemon does not say\n".to_owned(),
    };
    format!("{frames} frames captured\n{rest}")
}

/// What becomes of what is captured.
enum Output {
    Lines { hex: bool, frames: u64 },
    Pcapng(Box<Recording>),
}

/// A pcapng file that is being written.
struct Recording {
    writer: Writer<Box<dyn Write>>,
    /// The interface of each place where frames were seen, by its name, and how many were.
    interfaces: HashMap<String, (u32, u64)>,
    frames: u64,
    name: String,
    /// The reader has gone.
    has_ended: bool,
}

impl Output {
    fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let Some(path) = &arguments.write else {
            return Ok(Self::Lines { hex: arguments.hex, frames: 0 });
        };
        let (file, name) = open_file(path)?;
        let application = concat!("clearway ", env!("CARGO_PKG_VERSION"));
        let writer =
            Writer::start(file, application).map_err(|error| cannot_write(&name, &error))?;
        let recording =
            Recording { writer, interfaces: HashMap::new(), frames: 0, name, has_ended: false };
        Ok(Self::Pcapng(Box::new(recording)))
    }

    fn frames(&self) -> u64 {
        match self {
            Self::Lines { frames, .. } => *frames,
            Self::Pcapng(recording) => recording.frames,
        }
    }

    /// False if the reader has gone.
    fn take(&mut self, frame: &Frame<'_>, observer: &mut Observer) -> Result<bool, Failure> {
        match self {
            Self::Lines { hex, frames } => {
                *frames += 1;
                write(&lines(frame, *hex, observer))
            }
            Self::Pcapng(recording) => {
                let result = recording.take(frame, observer);
                recording.alive(result)
            }
        }
    }

    /// False if the reader has gone.
    fn flush(&mut self) -> Result<bool, Failure> {
        match self {
            Self::Lines { .. } => Ok(true),
            Self::Pcapng(recording) => {
                let result = recording.writer.flush();
                recording.alive(result)
            }
        }
    }

    fn finish(&mut self, start_ns: u64, dropped: Option<u64>) -> Result<(), Failure> {
        match self {
            Self::Pcapng(recording) if !recording.has_ended => {
                let result = recording.finish(start_ns, dropped);
                recording.alive(result).map(drop)
            }
            _ => Ok(()),
        }
    }
}

impl Recording {
    fn take(&mut self, frame: &Frame<'_>, observer: &mut Observer) -> io::Result<()> {
        let interface = self.interface(Party::of(frame.info), observer)?;
        let is_outgoing = frame.info.is_outgoing();
        self.writer.packet(&Packet {
            interface,
            time_ns: observer.time_since_1970_ns(frame.info.time_ns),
            direction: if is_outgoing { Direction::Outgoing } else { Direction::Incoming },
            bytes: frame.bytes,
            comment: &verdict(frame.info, observer),
        })?;
        self.frames += 1;
        Ok(())
    }

    /// The interface of a party, which is described when its first frame is seen. One of a channel
    /// that has become another app's is another.
    fn interface(&mut self, party: Party, observer: &mut Observer) -> io::Result<u32> {
        let (name, description) = party.describe(observer);
        if let Some((interface, frames)) = self.interfaces.get_mut(&name) {
            *frames += 1;
            return Ok(*interface);
        }
        let interface = self.writer.interface(&name, &description)?;
        self.interfaces.insert(name, (interface, 1));
        Ok(interface)
    }

    /// What was dropped is counted on the first interface: nobody knows whose it was. If nobody
    /// knows how much that is, nothing is said of it.
    fn finish(&mut self, start_ns: u64, dropped: Option<u64>) -> io::Result<()> {
        let Some(dropped) = dropped else { return self.writer.flush() };
        let end_ns = wall_clock_ns();
        let mut interfaces: Vec<(u32, u64)> = self.interfaces.values().copied().collect();
        interfaces.sort_unstable();
        for (interface, frames) in interfaces {
            let dropped = if interface == 0 { dropped } else { 0 };
            let received = frames + dropped;
            self.writer
                .statistics(interface, &Statistics { start_ns, end_ns, received, dropped })?;
        }
        self.writer.flush()
    }

    /// False if the reader has gone, who then has seen enough.
    fn alive(&mut self, result: io::Result<()>) -> Result<bool, Failure> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.has_ended = true;
                Ok(false)
            }
            Err(error) => Err(cannot_write(&self.name, &error)),
        }
    }
}

fn open_file(path: &Path) -> Result<(Box<dyn Write>, String), Failure> {
    if path.as_os_str() == "-" {
        if io::stdout().is_terminal() {
            return Err(Failure::Usage(
                "-w - writes pcapng, which is not for terminals; add `| tcpdump -r -`, or give the \
                 name of a file"
                    .to_owned(),
            ));
        }
        return Ok((Box::new(BufWriter::new(io::stdout())), "standard output".to_owned()));
    }
    let name = path.display().to_string();
    let file = File::create(path).map_err(|error| cannot_write(&name, &error))?;
    Ok((Box::new(BufWriter::with_capacity(1 << 18, file)), name))
}

fn cannot_write(name: &str, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write to {name}: {error}; give another file with -w"))
}

fn lines(frame: &Frame<'_>, hex: bool, observer: &mut Observer) -> String {
    let time = packet::time_of_day(observer.time_since_1970_ns(frame.info.time_ns));
    let direction = if frame.info.is_outgoing() { "out" } else { "in " };
    let verdict = verdict(frame.info, observer);
    let line = packet::line(frame.bytes, observer.udp_port);
    let mut text = format!("{time} {direction} {line} ({verdict})\n");
    if hex {
        text += &packet::hex(frame.bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_to_be_dropped_is_not_said_to_be_there() {
        assert_eq!(summary(3, Some(0)), "3 frames captured\n");
        assert!(summary(3, Some(2)).contains("\n2 frames were dropped, "));
        assert!(summary(3, None).ends_with(" is not known: the daemon does not say\n"));
    }
}
