//! `clearway vif open`.

use std::path::PathBuf;
use std::time::Duration;

use clearway_client::{Channel, Error, InterfaceAddress, MacChoice, Options, Vif, VifOptions};

use super::observer::Observer;
use super::packet;
use crate::output::{Failure, eprint, write};
use crate::stop::Stop;

/// How often it is looked whether Ctrl-C has come.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to receive, as for tcpdump: `dst host 10.0.0.2 and udp dst port 7000`; `own` is each of
    /// the host's addresses
    #[arg(
        required_unless_present = "address",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    filter: Vec<String>,
    /// What may be sent, which keeps others from sending it; by default the answers to FILTER
    #[arg(long, value_name = "FILTER")]
    send: Vec<String>,
    /// Nothing may be sent
    #[arg(long, conflicts_with = "send")]
    receive_only: bool,
    /// Get copies of this, while its owner gets it, too
    #[arg(long, value_name = "FILTER")]
    copies: Vec<String>,
    /// Above 0: come before others that want the same
    #[arg(long, default_value_t = 0)]
    priority: u16,
    /// Have an Ethernet address of its own: this one, or "own" for one that the daemon makes up
    #[arg(long, value_name = "own|MAC")]
    mac: Option<MacChoice>,
    /// Have this address, such as 10.0.0.50/24
    #[arg(long, requires = "mac")]
    address: Option<InterfaceAddress>,
    /// End after so many packets; 0: at Ctrl-C
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,
    /// Print the bytes of each packet, too
    #[arg(long)]
    hex: bool,
    /// The engine to use, or the NIC, by its name in `clearway status`
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let stop = Stop::hold_back()?;
    let observer = Observer::new(arguments.socket.as_deref())?;
    let mut channel = attach("clearway vif open", arguments)?;
    let vif = channel.open_vif(&options(arguments)).map_err(Failure::failed)?;
    eprint(&opened(&vif));
    let mut left = super::wanted(arguments.count);
    while left > 0 && !stop.has_come() {
        let frames = match channel.recv_frames(Some(TICK)) {
            Ok(frames) => frames,
            Err(Error::TimedOut { .. }) => continue,
            Err(error) => return Err(Failure::failed(error)),
        };
        let mut text = String::new();
        for frame in frames.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            text += &packet_text(frame.bytes, frame.info.time_ns, arguments.hex, &observer);
        }
        channel.release_frames(frames);
        if !write(&text)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Attaches with the room that a person needs who cannot read as fast as packets come.
fn attach(name: &str, arguments: &Arguments) -> Result<Channel, Failure> {
    let mut options = Options { engine: arguments.engine.clone(), ..Options::new(name) };
    if let Some(socket) = &arguments.socket {
        options.socket = socket.clone();
    }
    Channel::attach(&options).map_err(Failure::failed)
}

fn options(arguments: &Arguments) -> VifOptions {
    let filter = arguments.filter.join(" ");
    let transmit =
        (arguments.receive_only || !arguments.send.is_empty()).then(|| arguments.send.clone());
    VifOptions {
        receive: if filter.is_empty() { Vec::new() } else { vec![filter] },
        transmit,
        copies: arguments.copies.clone(),
        priority: arguments.priority,
        mac: arguments.mac,
        address: arguments.address,
    }
}

fn opened(vif: &Vif) -> String {
    let mut text = format!("virtual interface {} at {}, MTU {}\n", vif.id, vif.mac, vif.mtu);
    for (title, filters) in
        [("receives", &vif.receive), ("copies of", &vif.copies), ("may send", &vif.transmit)]
    {
        filters.iter().for_each(|filter| text += &format!("  {title} {filter}\n"));
    }
    text
}

fn packet_text(bytes: &[u8], time_ns: u64, hex: bool, observer: &Observer) -> String {
    let time = packet::time_of_day(observer.time_since_1970_ns(time_ns));
    let mut text = format!("{time} {}\n", packet::line(bytes, observer.udp_port));
    if hex {
        text += &packet::hex(bytes);
    }
    text
}
