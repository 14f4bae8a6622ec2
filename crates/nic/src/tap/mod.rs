//! Tap: an interface of the kernel's whose other end is this queue. What the kernel sends through
//! the interface comes here, and what is sent here the kernel receives by it.
//!
//! ```text
//!  host's own kernel ─┐ cw-tap: its MAC, its addresses        ours: another MAC, others
//!                     ├──────── the wire, which is this device ──────── queues ── engine
//!  a guest, by way of ┘  (multi-queue: one file of /dev/net/tun each)
//!  a bridge
//! ```
//!
//! - So the two ends are two hosts, as at the ends of a memif, and have an Ethernet address each:
//!   the interface's is the kernel's. The kernel shares nothing of this NIC.
//! - Packets of one flow come and go together, up to 64 KB of them in one frame (IFF_VNET_HDR), as
//!   with packet sockets: what the kernel hands on is cut here, and of what leaves here it has the
//!   work of one packet. UDP so since Linux 6.2; before, it comes one by one.
//! - Each queue is a file. The kernel chooses by the flow: that from which packets of the flow have
//!   come last, else by a hash that nobody knows.
//! - Each frame, or super-frame, is one system call: the kernel has no other way for a tap. What is
//!   written the kernel handles within the call, to the receiving program's socket; nothing waits.
//! - A device that is there is used as it is, down or up, and stays; one that is not is made, is
//!   up, and goes with the last of the files.
//!
//! *Not* here: addresses of the interface, which are the kernel's administrator's; a guest that has
//! the device's files itself (vhost, `-netdev tap` of this very device): the ends are two.

mod attach;
mod queue;

use std::os::fd::OwnedFd;

use clearway_wire::ethernet;

use crate::interface::Device;
use crate::vnet::{Limits, Sender};
use crate::{Error, Info, KERNEL_DESCRIPTORS, MacAddress, Queue};
pub use attach::{PATH, attach, check, is_possible};
use queue::TapQueue;

/// The most queues of a tap device (`MAX_TAP_QUEUES` of drivers/net/tun.c).
pub const QUEUES_MAX: usize = 256;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of the device, in the calling thread's network namespace.
    pub interface: String,
    /// Our Ethernet address, which is not that of the interface.
    pub mac: MacAddress,
    /// Whether packets of one flow leave as one frame.
    pub super_frames: bool,
}

/// Makes queues of the files of a device: those that [`attach`] has given.
pub fn open(config: &Config, files: Vec<OwnedFd>) -> Result<Vec<Box<dyn Queue>>, Error> {
    let queues = files.into_iter().map(|file| open_one(config, file));
    queues.collect()
}

fn open_one(config: &Config, file: OwnedFd) -> Result<Box<dyn Queue>, Error> {
    let Config { interface, mac, super_frames } = config;
    let device = Device::open(interface)?;
    if device.mac()? == *mac {
        return Err(Error::Invalid(format!(
            "{interface} has the Ethernet address {mac:02x?}, and so has the kernel: give this end \
             another one (`mac`)"
        )));
    }
    let frame_bytes_max = device.mtu()? + ethernet::HEADER_LENGTH;
    let limits = if *super_frames { Limits::OF_KERNEL } else { Limits::NONE };
    let sender = Sender::new(KERNEL_DESCRIPTORS, frame_bytes_max, limits);
    let info = Info { driver: "tap", mode: attach::mode(&file, interface), mac: *mac };
    Ok(Box::new(TapQueue::new(file, device, info, sender, frame_bytes_max)))
}
