//! What must be asked of the kernel so that it leaves registered frames to us.
//!
//! A claimed port is bound by a plain kernel socket: for UDP one that drops whatever it gets, for
//! TCP one that does not listen. That does two things: no other program can take the port (nor can
//! the kernel hand it out as an ephemeral one), and where the kernel sees datagrams as well
//! (`af_packet`), it does not answer them with ICMP port unreachable. TCP it answers there with a
//! reset all the same.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::Device;
use crate::Error;

/// Whose ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// An address, or with `None` any, and a port.
pub(crate) type Endpoint = (Option<IpAddr>, u16);

/// The ports of one interface that no other program can have while this lives.
///
/// A port that is registered for any address needs no further socket for one address, and could
/// not have one: both would be bound to the same port.
#[derive(Debug)]
pub(crate) struct PortClaims {
    device: Arc<Device>,
    protocol: Protocol,
    sockets: BTreeMap<Endpoint, Vec<OwnedFd>>,
}

impl PortClaims {
    pub(crate) fn new(device: Arc<Device>, protocol: Protocol) -> PortClaims {
        PortClaims { device, protocol, sockets: BTreeMap::new() }
    }

    pub(crate) fn contains(&self, endpoint: Endpoint) -> bool {
        self.sockets.contains_key(&endpoint)
    }

    /// Takes the port from the kernel, or says who has it.
    pub(crate) fn add(&mut self, endpoint: Endpoint) -> Result<(), Error> {
        let (address, port) = endpoint;
        if port == 0 {
            let name = self.protocol.name();
            let text = format!("{name} port 0 cannot be registered; choose 1 to 65535");
            return Err(Error::Invalid(text));
        }
        if address.is_some() && self.contains((None, port)) {
            self.sockets.insert(endpoint, Vec::new());
            return Ok(());
        }
        if address.is_none() {
            self.single_addresses(port).for_each(|(_, sockets)| sockets.clear());
        }
        match self.claim(address, port) {
            Ok(sockets) => {
                self.sockets.insert(endpoint, sockets);
                Ok(())
            }
            Err(error) => {
                self.claim_single_addresses(port);
                Err(error)
            }
        }
    }

    /// Gives the port back to the kernel.
    pub(crate) fn remove(&mut self, endpoint: Endpoint) {
        let (address, port) = endpoint;
        if self.sockets.remove(&endpoint).is_some() && address.is_none() {
            self.claim_single_addresses(port);
        }
    }

    /// Gives the claims of `port` for one address sockets of their own again. If somebody took the
    /// port in the meantime, frames are steered all the same.
    fn claim_single_addresses(&mut self, port: u16) {
        let endpoints: Vec<_> =
            self.single_addresses(port).map(|(endpoint, _)| *endpoint).collect();
        for endpoint in endpoints {
            let sockets = self.claim(endpoint.0, port).unwrap_or_default();
            self.sockets.insert(endpoint, sockets);
        }
    }

    fn single_addresses(
        &mut self,
        port: u16,
    ) -> impl Iterator<Item = (&Endpoint, &mut Vec<OwnedFd>)> {
        self.sockets.iter_mut().filter(move |((ip, p), _)| ip.is_some() && *p == port)
    }

    /// Binds `port` of `address`, or of all addresses. No socket if the address is not the
    /// kernel's: then it has nothing to give.
    fn claim(&self, address: Option<IpAddr>, port: u16) -> Result<Vec<OwnedFd>, Error> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = address.as_ref().map_or(&any[..], std::slice::from_ref);
        let claim_all = || {
            let mut sockets = Vec::new();
            for &address in addresses {
                match claim_one(&self.device, self.protocol, address, port) {
                    Ok(socket) => sockets.push(socket),
                    // The kernel does not have this address, or not this family.
                    Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => {}
                    Err(errno) => return Err(claim_failed(self.protocol, address, port, errno)),
                }
            }
            Ok(sockets)
        };
        self.device.within(claim_all)?
    }
}

fn claim_one(
    device: &Device,
    protocol: Protocol,
    address: IpAddr,
    port: u16,
) -> Result<OwnedFd, Errno> {
    let (family, address) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, SocketAddr::new(address, port)),
        // A link-local address means nothing without its interface.
        IpAddr::V6(address) => {
            (AddressFamily::INET6, SocketAddrV6::new(address, port, 0, device.index()).into())
        }
    };
    let kind = match protocol {
        Protocol::Udp => SocketType::DGRAM,
        Protocol::Tcp => SocketType::STREAM,
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    attach_filter(&socket, &[return_instruction(0)])?;
    if protocol == Protocol::Udp {
        // Super-frames are dropped whole, and not parted first; and the kernel puts together what
        // comes from a NIC, for `af_packet` as well. Not before Linux 5.0.
        let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, &1_i32);
    }
    bind_to_device(&socket, device)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn claim_failed(protocol: Protocol, address: IpAddr, port: u16, errno: Errno) -> Error {
    let name = protocol.name();
    match errno {
        Errno::ADDRINUSE => Error::Invalid(format!(
            "{name} port {port} of {address} is in use by another program on this host; `ss -anp` \
             shows which. Stop it, or choose another port"
        )),
        Errno::ACCESS | Errno::PERM => Error::Permission(format!(
            "cannot reserve {name} port {port} of {address}: ports below 1024 need \
             CAP_NET_BIND_SERVICE. Add that capability, or choose a higher port"
        )),
        _ => Error::System {
            action: format!("cannot reserve {name} port {port} of {address}"),
            remedy: "Each registered port takes a descriptor: raise the limit (ulimit -n)".into(),
            source: errno.into(),
        },
    }
}

fn bind_to_device(socket: &OwnedFd, device: &Device) -> Result<(), Errno> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.name().as_bytes())
}

/// The instruction that ends a classic BPF program with `value`: how many bytes to let through.
pub(crate) fn return_instruction(value: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

/// Replaces the classic BPF filter of `socket`.
pub(crate) fn attach_filter(
    socket: &impl AsFd,
    program: &[libc::sock_filter],
) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// `setsockopt` for options that rustix does not have.
pub(crate) fn set_option<T: ?Sized>(
    socket: &impl AsFd,
    level: i32,
    name: i32,
    value: &T,
) -> Result<(), Errno> {
    let length = size_of_val(value) as libc::socklen_t;
    let file = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `value`, all of which are there; the pointer in a
    // sock_fprog goes to a slice that outlives the call.
    let outcome =
        unsafe { libc::setsockopt(file, level, name, std::ptr::from_ref(value).cast(), length) };
    if outcome == 0 { Ok(()) } else { Err(last_errno()) }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
