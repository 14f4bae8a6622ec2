//! AF_PACKET: the last resort on an interface of the kernel's, where AF_XDP cannot be had.
//!
//! A packet socket gets a copy of what the kernel receives. A socket filter leaves of it what
//! patterns may match, and the kernel goes on with its own copy. That it has one must not show:
//!
//! - UDP to a registered port of one of the kernel's addresses would be answered with ICMP port
//!   unreachable. So each registered port is bound by a kernel socket that drops everything
//!   (`interface/claim.rs`); no packet filter of the host is touched.
//! - What is for one of our own addresses is not for the kernel's stack, which drops it without a
//!   word, unless this host forwards packets (`net.ipv4.ip_forward`): then own addresses should
//!   not be used with this driver.
//!
//! Packets of one flow come and go together, up to 64 KB of them in one frame (PACKET_VNET_HDR): what
//! a kernel hands on as a super-frame, be it that its sender made one (a veth) or that it was put
//! together on the way (GRO), is cut where it is received, and consecutive packets of one flow of
//! UDP leave as one, which the kernel, the NIC or the receiver cuts. Linux takes and gives UDP so
//! since 6.2; before, it drops what it would have to give. Over a veth packets leave one by one
//! unless asked for otherwise: AF_XDP in generic mode at its other end loses super-frames.
//!
//! One queue. Frames leave past the queueing discipline (`PACKET_QDISC_BYPASS`): pacing is the
//! transport's business, and a NIC whose ring is full is better told at once.

mod filter;
mod queue;
mod ring;
mod sender;
mod stage;
mod steering;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clearway_wire::{ethernet, vlan};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::interface::{Device, KernelSteering, attach_filter, gso_limits, last_errno, set_option};
use crate::{Error, Info, KERNEL_DESCRIPTORS, LCD_DESCRIPTORS, Queue};
use queue::PacketQueue;
use ring::Ring;
use sender::{Limits, Sender};
use steering::PacketPatterns;

/// The most descriptors.
const DESCRIPTORS_MAX: usize = 4096;

/// Room for super-frames, which the kernel doubles for its own overhead.
const ROOM_BYTES: i32 = 4 << 20;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The name of the interface, in the calling thread's network namespace.
    pub interface: String,
    /// Frames that wait for us, and that may wait to be sent: a power of two, 256 to 4096.
    pub descriptors: usize,
    /// Whether packets of one flow leave as one frame; if not given, unless this is a veth.
    pub super_frames: Option<bool>,
    /// Why nothing better is used, for `Info::mode`.
    pub because: Option<String>,
}

impl Config {
    /// As deep as the queues of AF_XDP.
    pub fn new(interface: &str) -> Config {
        let (interface, descriptors) = (interface.to_owned(), KERNEL_DESCRIPTORS);
        Config { interface, descriptors, super_frames: None, because: None }
    }
}

/// Opens an interface and steers nothing to the queue yet: see
/// [`Steering`](crate::interface::Steering).
pub fn open(config: &Config) -> Result<(Box<dyn Queue>, KernelSteering), Error> {
    let (queue, table) = open_queue(config)?;
    let steering = KernelSteering::new(Box::new(table), Device::open(&config.interface)?)?;
    Ok((queue, steering))
}

/// Opens a queue beside those of another driver that swallows what it receives: what `steering` is
/// asked for by [`Steering::add_copies`](crate::interface::Steering::add_copies) comes here, and
/// goes on to the kernel. Not for sending.
pub fn open_copies(
    interface: &str,
    steering: &mut KernelSteering,
) -> Result<Box<dyn Queue>, Error> {
    let (queue, table) = open_queue(&Config::new(interface))?;
    steering.set_copies(Box::new(table));
    Ok(queue)
}

fn open_queue(config: &Config) -> Result<(Box<dyn Queue>, PacketPatterns), Error> {
    let range = LCD_DESCRIPTORS..=DESCRIPTORS_MAX;
    if !config.descriptors.is_power_of_two() || !range.contains(&config.descriptors) {
        return Err(Error::Invalid(format!(
            "{} descriptors cannot be had; choose a power of two from 256 to 4096",
            config.descriptors
        )));
    }
    let device = Device::open(&config.interface)?;
    let mac = device.mac()?;
    let frame_bytes = device.mtu()? + ethernet::HEADER_LENGTH;
    // The kernel takes off one VLAN tag; a second one stays in the frame.
    let (socket, ring) = prepare(config.descriptors, frame_bytes + vlan::TAG_LENGTH)
        .and_then(|(socket, ring)| bind(&socket, device.index()).map(|()| (socket, ring)))
        .map_err(|errno| open_failed(&config.interface, errno))?;
    let socket = Arc::new(socket);
    let mut mode =
        "packet socket: every frame is copied, and the kernel handles a copy of its own".to_owned();
    if let Some(reason) = &config.because {
        mode += &format!("; {reason}");
    }
    let info = Info { driver: "af_packet", mode, mac };
    let is_open = Arc::new(AtomicBool::new(false));
    let table = PacketPatterns::new(Arc::clone(&socket), Arc::clone(&is_open));
    let is_veth = || device.driver().as_deref() == Some("veth");
    let limits = if config.super_frames.unwrap_or_else(|| !is_veth()) {
        let (gso_bytes_max, gso_segments_max) = gso_limits(&device)?;
        Limits::new(gso_bytes_max, gso_segments_max)
    } else {
        Limits::NONE
    };
    let sender = Sender::new(config.descriptors, frame_bytes, limits);
    let queue = PacketQueue::new(socket, ring, device, info, is_open, sender, frame_bytes);
    Ok((Box::new(queue), table))
}

/// A socket with its ring and options. It has no protocol yet, so that nothing can arrive before
/// the filter is there.
fn prepare(slots: usize, frame_bytes: usize) -> Result<(OwnedFd, Ring), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    attach_filter(&socket, &filter::nothing())?;
    set_option(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1_i32)?;
    set_option(&socket, libc::SOL_PACKET, PACKET_COPY_THRESH, &1_i32)?;
    want_room(&socket);
    let ring = Ring::new(&socket, slots, frame_bytes)?;
    set_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1_i32)?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1_i32)?;
    Ok((socket, ring))
}

// Not in the libc crate (linux/if_packet.h).
const PACKET_COPY_THRESH: i32 = 7;
const PACKET_VNET_HDR: i32 = 15;
/// Since Linux 4.20.
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Room for super-frames that wait for us, and for those that a NIC has yet to send. Without
/// CAP_NET_ADMIN there is what all sockets may have (net.core.rmem_max and wmem_max).
fn want_room(socket: &OwnedFd) {
    for (forced, asked) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        let _ = set_option(socket, libc::SOL_SOCKET, forced, &ROOM_BYTES)
            .or_else(|_| set_option(socket, libc::SOL_SOCKET, asked, &ROOM_BYTES));
    }
}

fn bind(socket: &OwnedFd, interface_index: u32) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface_index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of the address, all of which are there.
    let outcome = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

fn open_failed(interface: &str, errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS => Error::Permission(format!(
            "cannot open a packet socket on {interface}: that needs CAP_NET_RAW. Run as root, or \
             give the program that capability (setcap, or AmbientCapabilities= in a systemd unit)"
        )),
        _ => Error::System {
            action: format!("cannot open a packet socket on {interface}"),
            remedy: "It needs Linux 4.20 or newer with CONFIG_PACKET; fewer descriptors take less \
                     memory"
                .into(),
            source: errno.into(),
        },
    }
}
