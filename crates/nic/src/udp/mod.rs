//! UDP sockets of the kernel as a NIC that carries messages only: no privilege, any interface, any
//! host. What is on the wire is what every other driver sends, so both ends need not be the same.
//!
//! ```text
//!  engine ── Ethernet, IP, UDP, message ──▶ headers off ──▶ sockets at 64 ports ──▶ kernel ▶ wire
//!         ◀─ Ethernet, IP, UDP, message ─── headers on  ◀── socket at the port  ◀── kernel ◀
//! ```
//!
//! - Packets come to one port, at which each queue has a socket. Several share it by SO_REUSEPORT,
//!   whose hash is one more RSS that nobody knows.
//! - Packets leave from as many ports as there are sending sockets, and these are all opened at the
//!   start, because a confined daemon opens nothing. A port that a frame wants to leave from stands
//!   for one of them, always the same. The peer, whose RSS goes by ports, tells which of those that
//!   it has *seen* are good ones; what it names is found as it is.
//! - Consecutive packets of one size to one place are one system call and one pass through the
//!   kernel (UDP_SEGMENT), and come in likewise (UDP_GRO).
//! - The kernel routes. Whatever the Ethernet address, [`ROUTER_MAC`] is as good as any; from there
//!   frames come, to [`OWN_MAC`].
//! - What is too large for the path is not sent. The engine is told by an ICMP message, as a router
//!   would tell it, which is made here.
//!
//! *Not* here: TCP, virtual interfaces, ARP, and all else that is no datagram to or from the port.
//! Such frames are dropped and counted.
//!
//! `quinn-udp` does the same of segments, coalescing and marks. It has no batch of messages to
//! several peers, allocates for control data that it has no name for, and wants the bytes of all
//! segments in one piece: here each is in a frame of its own, and the kernel gathers.

mod control;
mod frame;
mod queue;
mod receiver;
mod sender;
mod socket;

use std::net::IpAddr;

use clearway_wire::ethernet;

use crate::{Error, MacAddress, Queue};
use queue::UdpQueue;

/// What all NICs of this kind say is their Ethernet address. No frame has one on the wire.
pub const OWN_MAC: MacAddress = [0x02, b'u', b'd', b'p', 0, 1];
/// The Ethernet address of everybody else.
pub const ROUTER_MAC: MacAddress = [0x02, b'u', b'd', b'p', 0, 2];

/// The most queues: those that all their sockets are open for under a usual limit of descriptors.
pub const QUEUES_MAX: usize = 64;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The only address to receive at and to send from; all of the host's if `None`.
    pub address: Option<IpAddr>,
    /// The UDP port at which packets come.
    pub port: u16,
    /// How many queues.
    pub queues: usize,
    /// The largest IP packet.
    pub mtu_bytes: u16,
}

impl Config {
    /// One queue at all addresses of the host, with packets of the usual size.
    #[must_use]
    pub const fn new(port: u16) -> Config {
        Config { address: None, port, queues: 1, mtu_bytes: 1500 }
    }
}

/// Opens the sockets, in the network namespace of the calling thread.
pub fn open(config: &Config) -> Result<Vec<Box<dyn Queue>>, Error> {
    if !(1..=QUEUES_MAX).contains(&config.queues) {
        return Err(Error::Invalid(format!(
            "{} queues of UDP sockets cannot be had; choose 1 to {QUEUES_MAX}",
            config.queues
        )));
    }
    let frame_bytes_max = ethernet::HEADER_LENGTH + usize::from(config.mtu_bytes);
    let sockets = socket::open(config)?;
    let queue = |sockets| Box::new(UdpQueue::new(sockets, frame_bytes_max)) as Box<dyn Queue>;
    Ok(sockets.into_iter().map(queue).collect())
}
