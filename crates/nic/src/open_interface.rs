//! Opening a kernel interface in the best way there is: AF_XDP or a packet socket.

use crate::af_packet::Beside;
use crate::interface::{Device, KernelSteering, Steering};
use crate::joined::Joined;
use crate::{Error, Queue, af_packet, af_xdp};

/// An interface that is open.
pub struct Opened {
    /// Its queues.
    pub queues: Vec<Box<dyn Queue>>,
    /// The control side, which says which frames are theirs.
    pub steering: Box<dyn Steering>,
    /// Where copies come of what goes to the kernel, if that is not the first of the queues. Not
    /// for sending.
    pub copies: Option<Box<dyn Queue>>,
}

/// Opens with AF_XDP, and packet sockets beside it: one for copies, and one that is part of the
/// first queue, for what this host's kernel sends to virtual interfaces, and for the super-frames
/// of generic mode. Where there is none, these are lost, and the mode says so.
pub fn open_xdp(config: &af_xdp::Config) -> Result<Opened, Error> {
    let mut prepared = af_xdp::Prepared::new(config)?;
    let beside = match af_packet::open_beside(&config.interface, &*config.opener) {
        Ok(beside) => {
            prepared.be_beside(&beside.to_kernel);
            Some(beside)
        }
        Err(why) => {
            prepared.be_alone(&why);
            None
        }
    };
    let (mut queues, mut steering) = prepared.finish()?;
    if let Some(Beside { queue, tables, turning, .. }) = beside {
        let first = Joined::new(queues.remove(0), queue)?;
        queues.insert(0, Box::new(first));
        tables.into_iter().rev().for_each(|table| steering.go_first_by(table));
        steering.turn_by(turning);
    }
    let copies = Some(af_packet::open_copies(&config.interface, &mut steering)?);
    Ok(Opened { queues, steering: Box::new(steering), copies })
}

/// Opens in the way that is best, with at least so many queues: AF_XDP where the NIC's driver has
/// it, else a packet socket with super-frames, which carries more than AF_XDP's generic mode and
/// hides from the kernel what is ours just as well; where that cannot be, AF_XDP in any mode, and a
/// packet socket as it is. `super_frames` is for packet sockets
/// ([`af_packet::Config::super_frames`]).
/// `Info::driver` and `Info::mode` say which it is and why.
///
/// A mode that is given, or more than one queue, leaves AF_XDP only.
pub fn open_interface(
    config: &af_xdp::Config,
    super_frames: Option<bool>,
    queues: usize,
) -> Result<Opened, Error> {
    if config.mode != af_xdp::Mode::Auto || config.queues.is_some_and(|count| count > 1) {
        return open_xdp(config);
    }
    let packet = |because| af_packet::Config {
        interface: config.interface.clone(),
        descriptors: config.descriptors as usize,
        queues,
        super_frames,
        because: Some(because),
        opener: config.opener.clone(),
    };
    let why = match open_native(config, queues) {
        Ok(opened) => return Ok(opened),
        Err(error @ Error::NotFound(_)) => return Err(error),
        Err(error) => error.to_string(),
    };
    if let Ok(opened) = af_packet::open_hidden(&packet(why)) {
        return Ok(opened.into());
    }
    // If the last fails as well, the first error is the one to mend.
    open_enough(config, queues).or_else(|error| {
        let opened = af_packet::open(&packet(format!("no AF_XDP: {error}")));
        opened.map(Opened::from).map_err(|_| error)
    })
}

/// With AF_XDP, if it has so many queues.
fn open_enough(config: &af_xdp::Config, queues: usize) -> Result<Opened, Error> {
    let opened = open_xdp(config)?;
    if opened.queues.len() >= queues {
        return Ok(opened);
    }
    Err(Error::Invalid(format!(
        "{} has {} queues for AF_XDP, and {queues} are wanted (`ethtool -L`)",
        config.interface,
        opened.queues.len()
    )))
}

/// With AF_XDP in the NIC's driver, where that is worth it.
fn open_native(config: &af_xdp::Config, queues: usize) -> Result<Opened, Error> {
    if Device::open(&config.interface)?.driver().as_deref() == Some("veth") {
        // Measured: docs/performance.md, "Three drivers on one veth pair".
        return Err(Error::Invalid(
            "chosen for veth, over which super-frames carry bulk at twice AF_XDP's rate, and small \
             messages take as long"
                .into(),
        ));
    }
    open_enough(&af_xdp::Config { mode: af_xdp::Mode::Native, ..config.clone() }, queues)
}

impl From<(Vec<Box<dyn Queue>>, KernelSteering)> for Opened {
    /// Packet sockets, which get copies by themselves.
    fn from((queues, steering): (Vec<Box<dyn Queue>>, KernelSteering)) -> Opened {
        Opened { queues, steering: Box::new(steering), copies: None }
    }
}

/// What [`open_interface`] would choose for one queue and why, as a sentence. Opens it for that and
/// closes it again: nothing stays behind, but some NICs lose their link for a moment when an XDP
/// program comes and goes. An interface that is in use by a daemon says so in the error.
pub fn probe(interface: &str) -> Result<String, Error> {
    let opened = open_interface(&af_xdp::Config::new(interface), None, 1)?;
    let info = opened.queues.first().map(|queue| queue.info());
    let text = info.map_or_else(String::new, |info| format!("{}: {}", info.driver, info.mode));
    Ok(format!("{text}; {} queue(s)", opened.queues.len()))
}
