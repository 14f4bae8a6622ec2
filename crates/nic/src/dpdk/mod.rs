//! DPDK: any of its poll-mode drivers through the system's libdpdk, as one more NIC. Feature
//! `dpdk`.
//!
//! DPDK's environment (EAL) is started once per process, with the arguments of the first NIC that
//! is opened (`eal`); it brings its plug-ins, memory and a thread for interrupts along. A
//! `port` is a device of it with all its queues; `queue` is the driver's face, one value per
//! queue pair, each with a pool of its own, so that queues on different threads share nothing.
//! Frames are shown where the device put them and written where it takes them from.
//!
//! Only the LCD floor is taken for granted. How many queues, which MTU and whether arrivals can be
//! waited for is asked; RSS is switched on where there are several queues, with the key and the
//! table that the device has. So are checksums and segments, each where the device offers it
//! ([`Config::offloads`]):
//!
//! - What it says of a received frame's checksums goes with the frame ([`Checksums`]); of what it
//!   says nothing, or that it is wrong, software finds out. Several packets that come as one are
//!   cut.
//! - Checksums of TCP that nobody has filled in
//!   ([`Queue::transmit_segments`](crate::Queue::transmit_segments)) are left to it, and segments
//!   of a stream that follow each other are handed over as one packet, which it parts.
//!
//! What it does not offer is done by [`segments`](crate::segments), as for other drivers.
//!
//! `shim.c` holds what cannot be called from Rust: functions that DPDK has as inline code in
//! headers.

mod arrived;
mod eal;
mod leaving;
mod port;
mod queue;
mod sys;
mod thread;

use std::sync::Arc;

pub use queue::DpdkQueue;

#[cfg(doc)]
use crate::Checksums;
use crate::Error;
use port::Port;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The arguments of DPDK's environment (`--no-huge`, `--vdev=net_memif0,...`), without a
    /// program name. All NICs of a process share them.
    pub eal: Vec<String>,
    /// The device: the name of a port that is there (`0000:00:05.0`, or that of a `--vdev`), or one
    /// to be made, with its arguments: `net_tap0,iface=cw0`.
    pub device: String,
    /// Queues to open; one if not given. At most what the device has.
    pub queues: Option<u16>,
    /// Largest IP packet.
    pub mtu_bytes: u16,
    /// Largest frame that is sent or received, Ethernet header included.
    pub frame_bytes_max: usize,
    /// Leave to the device what it offers to do of checksums and segments.
    pub offloads: bool,
}

impl Config {
    /// One queue for packets of up to 1500 bytes, with an Ethernet header and one VLAN tag.
    #[must_use]
    pub fn new(eal: Vec<String>, device: impl Into<String>) -> Self {
        Self {
            eal,
            device: device.into(),
            queues: None,
            mtu_bytes: 1500,
            frame_bytes_max: 1518,
            offloads: true,
        }
    }
}

/// Opens a device of DPDK: one queue per queue pair. The device is given back when the last of
/// them is dropped.
///
/// # Errors
/// If DPDK cannot be started, has no such device, or the device cannot do what is wanted.
pub fn open(config: &Config) -> Result<Vec<DpdkQueue>, Error> {
    eal::start(&config.eal)?;
    let port = Arc::new(Port::open(config)?);
    (0..port.queues).map(|index| DpdkQueue::open(&port, index)).collect()
}
