//! The sockets: which there are, and how they are set up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use clearway_base::Random;
use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, SOL_UDP};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};

use super::Config;
use crate::Error;
use crate::interface::{attach_filter, last_errno, return_instruction, set_option};

/// Sending sockets of a queue: with eight queues at the peer, some of so many random ports lead to
/// each of them in all but one case of a thousand.
const SENDERS: usize = 64;
/// The same if there are many queues.
const SENDERS_OF_MANY: usize = 16;
/// The lowest port to send from (RFC 6335, section 6), which is what peers expect (`docs/wire.md`).
const SENDING_PORT_MIN: u16 = 49_152;
/// Tries for a port that nobody has.
const BIND_TRIES: usize = 100;
/// Room for what comes while the engine does not run: what the kernel's own queue of a NIC has at
/// 10 Gbit/s in three milliseconds.
const RECEIVE_BYTES: i32 = 4 << 20;
/// Room for what a NIC has yet to send.
const SEND_BYTES: i32 = 4 << 20;
/// How long a call looks at the NIC's queue itself, where the system lets it.
const BUSY_POLL_MICROSECONDS: i32 = 20;
/// What peers expect: see `HOP_LIMIT` of crate `ip`.
const HOP_LIMIT: i32 = 64;

/// Which addresses a socket knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4 only.
    V4,
    /// IPv6, and IPv4 written as such (RFC 4291, section 2.5.5.2).
    V6,
}

/// The sockets of one queue.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) family: Family,
    /// At the port to which packets come.
    pub(super) receiver: OwnedFd,
    pub(super) port: u16,
    /// The others, by the port that they send from, in order.
    pub(super) senders: Vec<(u16, OwnedFd)>,
    pub(super) features: Features,
}

/// What the system has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// Packets come coalesced.
    pub(super) coalesces: bool,
    /// A call may look at the NIC's queue itself.
    pub(super) busy_polls: bool,
    /// Room for what waits to be received, as the kernel counts it.
    pub(super) receive_bytes: i32,
}

impl Features {
    /// True if there is as much room as was asked for. The kernel counts its own overhead as well.
    pub(super) const fn has_room(self) -> bool {
        self.receive_bytes >= RECEIVE_BYTES
    }
}

/// The sockets of all queues.
pub(super) fn open(config: &Config) -> Result<Vec<Sockets>, Error> {
    let (family, at) = match config.address {
        Some(IpAddr::V4(address)) => (Family::V4, address.into()),
        Some(IpAddr::V6(address)) => (Family::V6, address.into()),
        None if has_ipv6() => (Family::V6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        None => (Family::V4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let opened = || -> Result<Vec<Sockets>, Errno> {
        // Whoever has the port, be it with the same right to share it, is found out.
        bind(new_socket(family, at)?, &SocketAddr::new(at, config.port))?;
        (0..config.queues).map(|_| of_queue(config, family, at)).collect()
    };
    opened().map_err(|errno| cannot_open(config, errno))
}

fn cannot_open(config: &Config, errno: Errno) -> Error {
    let port = config.port;
    let remedy = match errno {
        Errno::ADDRINUSE => format!(
            "Another program has it (`ss -ulpn sport = {port}`), perhaps another clearwayd; stop \
             it, or choose another `udp_port` for this host and all its peers"
        ),
        Errno::ADDRNOTAVAIL => {
            "The host has no such address (`ip address`); correct `addresses`".to_owned()
        }
        Errno::ACCESS => "Choose a `udp_port` from 1024 up".to_owned(),
        Errno::MFILE | Errno::NFILE => "Allow more open files (`ulimit -n`)".to_owned(),
        _ => "Check what the system allows this user".to_owned(),
    };
    Error::System { action: format!("cannot open UDP port {port}"), remedy, source: errno.into() }
}

fn has_ipv6() -> bool {
    let at = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    new_socket(Family::V6, at).and_then(|socket| bind(socket, &SocketAddr::new(at, 0))).is_ok()
}

fn of_queue(config: &Config, family: Family, at: IpAddr) -> Result<Sockets, Errno> {
    let receiver = new_socket(family, at)?;
    if config.queues > 1 {
        set_option(&receiver, SOL_SOCKET, libc::SO_REUSEPORT, &1_i32)?;
    }
    let features = prepare_receiver(&receiver, family)?;
    bind(&receiver, &SocketAddr::new(at, config.port))?;
    let mut seed = [0; 8];
    getrandom(&mut seed, GetRandomFlags::empty())?;
    let mut random = Random::new(u64::from_ne_bytes(seed));
    let count = if config.queues > 16 { SENDERS_OF_MANY } else { SENDERS };
    let senders = (0..count).map(|_| sender(family, at, &mut random));
    let mut senders = senders.collect::<Result<Vec<_>, _>>()?;
    senders.sort_unstable_by_key(|(port, _)| *port);
    Ok(Sockets { family, receiver, port: config.port, senders, features })
}

/// A socket that can send from `at`, and never makes fragments: who sends too much has to know.
fn new_socket(family: Family, at: IpAddr) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let of_rustix = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let socket = socket_with(of_rustix, SocketType::DGRAM, flags, None)?;
    if family == Family::V6 {
        let only = i32::from(!at.is_unspecified());
        set_option(&socket, IPPROTO_IPV6, libc::IPV6_V6ONLY, &only)?;
        set_option(&socket, IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IPV6_PMTUDISC_DO)?;
        set_option(&socket, IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &HOP_LIMIT)?;
    }
    set_option(&socket, IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DO)?;
    set_option(&socket, IPPROTO_IP, libc::IP_TTL, &HOP_LIMIT)?;
    want_room(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BYTES);
    Ok(socket)
}

fn prepare_receiver(socket: &OwnedFd, family: Family) -> Result<Features, Errno> {
    match family {
        Family::V4 => set_option(socket, IPPROTO_IP, libc::IP_PKTINFO, &1_i32)?,
        Family::V6 => {
            set_option(socket, IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1_i32)?;
            set_option(socket, IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1_i32)?;
        }
    }
    set_option(socket, IPPROTO_IP, libc::IP_RECVTOS, &1_i32)?;
    want_room(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BYTES);
    let busy_poll = libc::SO_BUSY_POLL;
    Ok(Features {
        coalesces: set_option(socket, SOL_UDP, libc::UDP_GRO, &1_i32).is_ok(),
        busy_polls: set_option(socket, SOL_SOCKET, busy_poll, &BUSY_POLL_MICROSECONDS).is_ok(),
        receive_bytes: integer_option(socket, SOL_SOCKET, libc::SO_RCVBUF)?,
    })
}

/// As much as there may be; root may have more than others.
fn want_room(socket: &OwnedFd, forced: i32, asked: i32, bytes: i32) {
    let _ = set_option(socket, SOL_SOCKET, forced, &bytes)
        .or_else(|_| set_option(socket, SOL_SOCKET, asked, &bytes));
}

/// A socket at a random port that sends only. What comes to it is dropped before it costs memory;
/// what became of its packets can be asked for.
fn sender(family: Family, at: IpAddr, random: &mut Random) -> Result<(u16, OwnedFd), Errno> {
    let socket = new_socket(family, at)?;
    attach_filter(&socket, &[return_instruction(0)])?;
    set_option(&socket, IPPROTO_IP, libc::IP_RECVERR, &1_i32)?;
    if family == Family::V6 {
        set_option(&socket, IPPROTO_IPV6, libc::IPV6_RECVERR, &1_i32)?;
    }
    let mut outcome = Err(Errno::ADDRINUSE);
    for _ in 0..BIND_TRIES {
        let port = SENDING_PORT_MIN | random.next_u32() as u16; // the lowest has only high bits
        outcome = bind(&socket, &SocketAddr::new(at, port)).map(|()| port);
        if outcome != Err(Errno::ADDRINUSE) {
            break;
        }
    }
    outcome.map(|port| (port, socket))
}

fn integer_option(socket: &OwnedFd, level: i32, name: i32) -> Result<i32, Errno> {
    let mut value = [0_i32];
    read_option(socket, level, name, &mut value).map(|_| value[0])
}

/// `getsockopt` for options that rustix does not have. Returns how many bytes there were.
pub(super) fn read_option<T: Copy>(
    socket: &impl AsFd,
    level: i32,
    name: i32,
    values: &mut [T],
) -> Result<usize, Errno> {
    let mut length = size_of_val(values) as libc::socklen_t;
    let file = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, for which there is room, into integers,
    // which any bytes are.
    let outcome =
        unsafe { libc::getsockopt(file, level, name, values.as_mut_ptr().cast(), &raw mut length) };
    if outcome == 0 { Ok(length as usize) } else { Err(last_errno()) }
}
