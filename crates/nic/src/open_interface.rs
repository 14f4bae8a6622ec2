//! Opening a kernel interface in the best way there is: AF_XDP, else a packet socket.

use crate::interface::Steering;
use crate::{Error, Queue, af_packet, af_xdp};

/// The queues of an interface, and the control side that says which frames are theirs.
pub type Opened = (Vec<Box<dyn Queue>>, Box<dyn Steering>);

/// Opens with AF_XDP, and where that cannot be and the mode is left to us with one queue of a
/// packet socket. `Info::driver` and `Info::mode` say which it is and why.
pub fn open_interface(config: &af_xdp::Config) -> Result<Opened, Error> {
    match af_xdp::open(config) {
        Ok((queues, steering)) => Ok((queues, Box::new(steering))),
        Err(error) if may_fall_back(config, &error) => open_packet(config, error),
        Err(error) => Err(error),
    }
}

fn may_fall_back(config: &af_xdp::Config, error: &Error) -> bool {
    config.mode == af_xdp::Mode::Auto
        && config.queues.is_none_or(|count| count == 1)
        && !matches!(error, Error::NotFound(_))
}

/// If that fails as well, the first error is the one to mend.
fn open_packet(config: &af_xdp::Config, error: Error) -> Result<Opened, Error> {
    let config = af_packet::Config {
        interface: config.interface.clone(),
        descriptors: config.descriptors as usize,
        because: Some(format!("no AF_XDP: {error}")),
    };
    match af_packet::open(&config) {
        Ok((queue, steering)) => Ok((vec![queue], Box::new(steering))),
        Err(_) => Err(error),
    }
}
