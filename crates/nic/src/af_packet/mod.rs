//! AF_PACKET: a packet socket on an interface of the kernel's.
//!
//! A packet socket gets a copy of what the kernel receives. A socket filter leaves of it what
//! patterns may match, and the kernel goes on with its own copy. That it has one must not show. So
//! an eBPF program behind the packet sockets ends there what patterns match (`ebpf/hiding.rs`), and
//! the kernel never sees it. Where that cannot be had (before Linux 6.6, without CAP_BPF):
//!
//! - UDP to a registered port of one of the kernel's addresses would be answered with ICMP port
//!   unreachable. So each registered port is bound by a kernel socket that drops everything
//!   (`interface/claim.rs`); no packet filter of the host is touched.
//! - TCP to a claimed port of one of the kernel's addresses is answered with a reset.
//! - What is for one of our own addresses is not for the kernel's stack, which drops it without a
//!   word, unless this host forwards packets (`net.ipv4.ip_forward`): then own addresses should
//!   not be used with this driver.
//!
//! With that program there is another, by which virtual interfaces with Ethernet addresses of their
//! own and the kernel of this host reach each other (`ebpf/turning.rs`, `to_kernel.rs`).
//!
//! Packets of one flow come and go together, up to 64 KB of them in one frame (PACKET_VNET_HDR):
//! what a kernel hands on as a super-frame, be it that its sender made one (a veth) or that it was
//! put together on the way (GRO), is cut where it is received, unless it is of TCP and whoever
//! receives it takes it whole. Consecutive packets of one flow of UDP or TCP leave as one, which
//! the kernel, the NIC or the receiver cuts. Linux takes and gives UDP so since 6.2; before, it
//! drops what it would have to give. Over a veth packets leave one by one where frames cannot be
//! hidden: AF_XDP at its other end, under the same kernel, then loses super-frames.
//!
//! As many queues as one likes, each a socket of one group (PACKET_FANOUT). Frames leave past the
//! queueing discipline (`PACKET_QDISC_BYPASS`): pacing is the transport's business, and a NIC whose
//! ring is full is better told at once.

mod fanout;
mod filter;
mod queue;
mod ring;
mod steering;
mod whole;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clearway_wire::{ethernet, vlan};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::ebpf::{Hiding, Opener, ThisProcess, Turning};
use crate::interface::{
    Device, KernelSteering, PatternTable, attach_filter, gso_limits, last_errno, set_option,
};
use crate::to_kernel::ToKernel;
use crate::vnet::{Limits, Sender};
use crate::{Error, Info, KERNEL_DESCRIPTORS, LCD_DESCRIPTORS, MacAddress, Queue};
use queue::PacketQueue;
use ring::Ring;
use steering::PacketPatterns;

/// The most descriptors.
const DESCRIPTORS_MAX: usize = 4096;

/// What is said where there is no way to the kernel.
pub(crate) const NO_WAY: &str = "virtual interfaces do not reach this host's own kernel";

/// Room for super-frames, which the kernel doubles for its own overhead.
const ROOM_BYTES: i32 = 4 << 20;

/// What to open.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the interface, in the calling thread's network namespace.
    pub interface: String,
    /// Frames that wait for us, and that may wait to be sent: a power of two, 256 to 4096.
    pub descriptors: usize,
    /// How many queues.
    pub queues: usize,
    /// Whether packets of one flow leave as one frame; if not given, unless this is a veth whose
    /// other end may lose them.
    pub super_frames: Option<bool>,
    /// Why nothing better is used, for `Info::mode`.
    pub because: Option<String>,
    /// Who does what takes privileges that a daemon at work has not.
    pub opener: Arc<dyn Opener>,
}

impl Config {
    /// One queue, as deep as those of AF_XDP.
    pub fn new(interface: &str) -> Config {
        let (interface, descriptors) = (interface.to_owned(), KERNEL_DESCRIPTORS);
        let opener = Arc::new(ThisProcess);
        Config { interface, descriptors, queues: 1, super_frames: None, because: None, opener }
    }
}

/// The queues of an interface, and their control side.
type Opened = (Vec<Box<dyn Queue>>, KernelSteering);

/// Opens an interface and steers nothing to the queues yet: see
/// [`Steering`](crate::interface::Steering).
pub fn open(config: &Config) -> Result<Opened, Error> {
    let device = Device::open(&config.interface)?;
    let hiding = Hiding::begin(&*config.opener, &device);
    open_with(config, device, hiding)
}

/// The same, or nothing where the kernel would see what is ours.
pub(crate) fn open_hidden(config: &Config) -> Result<Opened, Error> {
    let device = Device::open(&config.interface)?;
    let hiding = Hiding::begin(&*config.opener, &device)?;
    open_with(config, device, Ok(hiding))
}

fn open_with(
    config: &Config,
    device: Device,
    hiding: Result<Hiding, Error>,
) -> Result<Opened, Error> {
    let sockets = (0..config.queues.max(1)).map(|_| Socket::open(config));
    let mut sockets = sockets.collect::<Result<Vec<_>, Error>>()?;
    let limits = limits(config.super_frames, hiding.is_ok(), &device)?;
    let mut mode = match &hiding {
        Ok(_) => "packet socket: every frame is copied, and then hidden from the kernel".to_owned(),
        Err(why) => format!(
            "packet socket: every frame is copied, and the kernel handles a copy of its own and \
             resets TCP to ports of ours: {why}"
        ),
    };
    if let Some(reason) = &config.because {
        mode += &format!("; {reason}");
    }
    if config.queues > 1 {
        mode += "; flows are shared out among the queues (PACKET_FANOUT)";
    }
    let table = Box::new(filter_of(&config.interface, &mut sockets)?);
    // What is not hidden cannot be told from what goes to the kernel.
    let ways = hiding.is_ok().then(|| ToKernel::begin(&*config.opener, &device));
    mode += &match &ways {
        Some(Ok(_)) => String::new(),
        Some(Err(why)) => format!("; {NO_WAY}: {why}"),
        None => format!("; {NO_WAY}, for the same reason"),
    };
    let (to_kernel, turning) = ways.and_then(Result::ok).unzip();
    let mut steering = match hiding {
        Ok(hiding) => {
            let mut steering = KernelSteering::new(Box::new(hiding), device)?;
            // What is hidden has been seen: first to the socket, then not to the kernel.
            steering.go_first_by(table.clone());
            steering
        }
        Err(_) => KernelSteering::new(table.clone(), device)?,
    };
    // The kernel keeps what copies are made of.
    steering.set_copies(table);
    if let Some(turning) = turning {
        steering.turn_by(turning);
    }
    let queue = |socket: Socket| -> Box<dyn Queue> {
        let queue = socket.into_queue(mode.clone(), config.descriptors, limits);
        Box::new(queue.with_way(to_kernel.clone()))
    };
    Ok((sockets.into_iter().map(queue).collect(), steering))
}

/// Opens a queue beside those of another driver that swallows what it receives: what `steering` is
/// asked for by [`Steering::add_copies`](crate::interface::Steering::add_copies) comes here, and
/// goes on to the kernel. Not for sending.
pub fn open_copies(
    interface: &str,
    steering: &mut KernelSteering,
) -> Result<Box<dyn Queue>, Error> {
    let mut socket = Socket::open(&Config::new(interface))?;
    steering.set_copies(Box::new(filter_of(interface, std::slice::from_mut(&mut socket))?));
    Ok(socket.into_receiver("packet socket: copies of what goes to the kernel"))
}

/// A packet socket beside the queues of another driver.
pub(crate) struct Beside {
    /// Not for sending.
    pub(crate) queue: Box<dyn Queue>,
    /// These have to have the patterns before that driver has them.
    pub(crate) tables: KernelTables,
    /// For the queues of that driver.
    pub(crate) to_kernel: Arc<ToKernel>,
    /// For its steering.
    pub(crate) turning: Turning,
}

/// Opens a queue beside those of another driver that leaves some of what is ours to the kernel: it
/// comes here, super-frames cut and checksums made, and no further; as does what the kernel itself
/// sends to virtual interfaces.
pub(crate) fn open_beside(interface: &str, opener: &dyn Opener) -> Result<Beside, Error> {
    let device = Device::open(interface)?;
    let hiding = Hiding::begin(opener, &device)?;
    let (to_kernel, turning) = ToKernel::begin(opener, &device)?;
    let mut socket = Socket::open(&Config::new(interface))?;
    let table = Box::new(filter_of(interface, std::slice::from_mut(&mut socket))?);
    let mode = "packet socket beside AF_XDP: super-frames, packets without their checksum, and \
                what this host's kernel sends to virtual interfaces";
    let (queue, tables): (_, KernelTables) =
        (socket.into_receiver(mode), [table, Box::new(hiding)]);
    Ok(Beside { queue, tables, to_kernel, turning })
}

/// The socket's own, which sees frames first, and then that of what hides them from the kernel.
pub(crate) type KernelTables = [Box<dyn PatternTable>; 2];

/// The super-frames that may leave.
fn limits(wanted: Option<bool>, are_hidden: bool, device: &Device) -> Result<Limits, Error> {
    let is_veth = device.driver().as_deref() == Some("veth");
    if !wanted.unwrap_or(are_hidden || !is_veth) {
        return Ok(Limits::NONE);
    }
    let (gso_bytes_max, gso_segments_max) = gso_limits(device)?;
    Ok(Limits::new(gso_bytes_max, gso_segments_max))
}

/// Makes a group of sockets of one interface, which have one filter from now on.
fn filter_of(interface: &str, sockets: &mut [Socket]) -> Result<PacketPatterns, Error> {
    let is_open = Arc::new(AtomicBool::new(false));
    for socket in sockets.iter_mut() {
        socket.is_open = Arc::clone(&is_open);
    }
    let sockets: Vec<_> = sockets.iter().map(|socket| Arc::clone(&socket.socket)).collect();
    fanout::join(&sockets).map_err(|errno| open_failed(interface, errno))?;
    Ok(PacketPatterns::new(sockets, is_open))
}

/// A bound socket, whose filter lets nothing through yet.
struct Socket {
    socket: Arc<OwnedFd>,
    ring: Ring,
    device: Device,
    mac: MacAddress,
    is_open: Arc<AtomicBool>,
    frame_bytes: usize,
}

impl Socket {
    fn open(config: &Config) -> Result<Socket, Error> {
        check_descriptors(config.descriptors)?;
        let device = Device::open(&config.interface)?;
        let mac = device.mac()?;
        let frame_bytes = device.mtu()? + ethernet::HEADER_LENGTH;
        // The kernel takes off one VLAN tag; a second one stays in the frame.
        let (socket, ring) = prepare(config.descriptors, frame_bytes + vlan::TAG_LENGTH)
            .and_then(|(socket, ring)| {
                bind(&socket, device.index(), libc::ETH_P_ALL).map(|()| (socket, ring))
            })
            .map_err(|errno| open_failed(&config.interface, errno))?;
        let (socket, is_open) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
        Ok(Socket { socket, ring, device, mac, is_open, frame_bytes })
    }

    fn into_queue(self, mode: String, descriptors: usize, limits: Limits) -> PacketQueue {
        let Socket { socket, ring, device, mac, is_open, frame_bytes } = self;
        let info = Info { driver: "af_packet", mode, mac };
        let sender = Sender::new(descriptors, frame_bytes, limits);
        PacketQueue::new(socket, ring, device, info, is_open, sender, frame_bytes)
    }

    /// A queue that sends nothing.
    fn into_receiver(self, mode: &str) -> Box<dyn Queue> {
        Box::new(self.into_queue(mode.to_owned(), 0, Limits::NONE))
    }
}

fn check_descriptors(descriptors: usize) -> Result<(), Error> {
    let range = LCD_DESCRIPTORS..=DESCRIPTORS_MAX;
    if descriptors.is_power_of_two() && range.contains(&descriptors) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{descriptors} descriptors cannot be had; choose a power of two from 256 to 4096"
    )))
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

/// Binds a packet socket to an interface and a protocol, 0 for none.
pub(crate) fn bind(socket: &OwnedFd, interface_index: u32, protocol: i32) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: all-zero is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
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
