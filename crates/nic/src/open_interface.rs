//! Opening a kernel interface in the best way there is: AF_XDP, else a packet socket.

use crate::interface::Steering;
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

/// Opens with AF_XDP, and a packet socket for copies beside it.
pub fn open_xdp(config: &af_xdp::Config) -> Result<Opened, Error> {
    let (queues, mut steering) = af_xdp::open(config)?;
    let copies = Some(af_packet::open_copies(&config.interface, &mut steering)?);
    Ok(Opened { queues, steering: Box::new(steering), copies })
}

/// Opens with AF_XDP, and where that cannot be and the mode is left to us with one queue of a
/// packet socket, which `super_frames` is for ([`af_packet::Config::super_frames`]). `Info::driver`
/// and `Info::mode` say which it is and why.
pub fn open_interface(
    config: &af_xdp::Config,
    super_frames: Option<bool>,
) -> Result<Opened, Error> {
    match open_xdp(config) {
        Ok(opened) => Ok(opened),
        Err(error) if may_fall_back(config, &error) => open_packet(config, super_frames, error),
        Err(error) => Err(error),
    }
}

fn may_fall_back(config: &af_xdp::Config, error: &Error) -> bool {
    config.mode == af_xdp::Mode::Auto
        && config.queues.is_none_or(|count| count == 1)
        && !matches!(error, Error::NotFound(_))
}

/// If that fails as well, the first error is the one to mend.
fn open_packet(
    config: &af_xdp::Config,
    super_frames: Option<bool>,
    error: Error,
) -> Result<Opened, Error> {
    let config = af_packet::Config {
        interface: config.interface.clone(),
        descriptors: config.descriptors as usize,
        super_frames,
        because: Some(format!("no AF_XDP: {error}")),
    };
    match af_packet::open(&config) {
        Ok((queue, steering)) => {
            let (queues, steering) = (vec![queue], Box::new(steering));
            Ok(Opened { queues, steering, copies: None })
        }
        Err(_) => Err(error),
    }
}
