//! What goes with a message over a socket beside its bytes: addresses, marks, the size of segments.

use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_UDP, c_int, cmsghdr, msghdr};

use super::socket::Family;

/// Room for all control messages of one message: addresses, a mark and a size, of both families.
pub(super) const CONTROL_BYTES: usize = 128;

/// Control messages have to lie as their headers do.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

impl Control {
    pub(super) const EMPTY: Control = Control([0; CONTROL_BYTES]);
}

/// A socket address of either family, as the kernel has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    pub(super) const BYTES_MAX: u32 = size_of::<Name>() as u32;

    pub(super) fn empty() -> Name {
        // SAFETY: integers only, which all-zero is a value of.
        unsafe { zeroed() }
    }

    /// The name by which sockets of this family know `address`, and its length.
    pub(super) fn of(family: Family, address: SocketAddr) -> (Name, u32) {
        let mut name = Name::empty();
        let port = address.port().to_be();
        match (family, address.ip()) {
            (Family::V4, IpAddr::V4(ip)) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: port,
                    sin_addr: in_addr(ip),
                    sin_zero: [0; 8],
                };
                (name, size_of::<libc::sockaddr_in>() as u32)
            }
            (_, ip) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: port,
                    sin6_flowinfo: 0,
                    sin6_addr: in6_addr(as_v6(ip)),
                    sin6_scope_id: 0,
                };
                (name, size_of::<libc::sockaddr_in6>() as u32)
            }
        }
    }

    /// What the kernel has written.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        // SAFETY: all of it is integers, written by `empty` at least; both begin with the family.
        let (v4, v6) = unsafe { (self.v4, self.v6) };
        match i32::from(v4.sin_family) {
            libc::AF_INET => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr).to_canonical();
                Some(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}

/// What comes with a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The address that it was sent to.
    pub(super) destination: Option<IpAddr>,
    /// The byte that IPv4 calls type of service and IPv6 traffic class.
    pub(super) traffic_class: u8,
    /// It is several packets of so many bytes, the last perhaps of fewer.
    pub(super) segment_bytes: Option<usize>,
}

impl Received {
    /// Reads the control messages of `message`, whose control pointer and length are as the kernel
    /// has left them.
    pub(super) fn read(message: &msghdr) -> Received {
        let mut received = Received::default();
        each(message, |level, kind, data| match (level, kind) {
            (IPPROTO_IP, libc::IP_PKTINFO) => {
                let info: Option<libc::in_pktinfo> = value(data);
                let ip = info.map(|info| Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()));
                received.destination = ip.map(IpAddr::V4);
            }
            (IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let info: Option<libc::in6_pktinfo> = value(data);
                let ip = info.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical());
                received.destination = ip;
            }
            // One byte of IPv4, an integer of IPv6.
            (IPPROTO_IP, libc::IP_TOS) => {
                received.traffic_class = data.first().copied().unwrap_or(0);
            }
            (IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                received.traffic_class = value::<c_int>(data).unwrap_or(0) as u8;
            }
            (SOL_UDP, libc::UDP_GRO) => {
                let bytes = value::<c_int>(data).and_then(|bytes| usize::try_from(bytes).ok());
                received.segment_bytes = bytes.filter(|bytes| *bytes > 0);
            }
            _ => {}
        });
        received
    }
}

/// The largest packet that the path takes, if that is what an entry of an error queue says.
pub(super) fn mtu_of_error(message: &msghdr) -> Option<u32> {
    let mut mtu = None;
    each(message, |level, kind, data| {
        let is_error = matches!(
            (level, kind),
            (IPPROTO_IP, libc::IP_RECVERR) | (IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        let error: Option<libc::sock_extended_err> = value(data).filter(|_| is_error);
        if let Some(error) = error
            && error.ee_errno == libc::EMSGSIZE as u32
        {
            mtu = Some(error.ee_info);
        }
    });
    mtu
}

/// Shows each control message: level, type and data.
fn each(message: &msghdr, mut show: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: control pointer and length of `message` are those of memory that the kernel has
    // written; the macros stay within it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, and so a whole header within the control data, whose data has as many
        // bytes as its length says beside the header.
        unsafe {
            let cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = header.read_unaligned();
            let bytes = cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), bytes);
            show(cmsg_level, cmsg_type, data);
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// The C value that `data` begins with, if it is that long. For structures of integers only.
fn value<T: Copy>(data: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, and any are a value of the types that this is called for.
    (data.len() >= size_of::<T>()).then(|| unsafe { ptr::read_unaligned(data.as_ptr().cast()) })
}

/// Writes the control messages of what is sent from `source`.
pub(super) struct Writer<'a> {
    control: &'a mut Control,
    length: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(control: &'a mut Control) -> Writer<'a> {
        Writer { control, length: 0 }
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    pub(super) fn source(&mut self, source: IpAddr) {
        match source {
            IpAddr::V4(ip) => {
                let ipi_spec_dst = in_addr(ip);
                let ipi_addr = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr };
                self.push(IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            IpAddr::V6(ip) => {
                let info = libc::in6_pktinfo { ipi6_addr: in6_addr(ip), ipi6_ifindex: 0 };
                self.push(IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
    }

    pub(super) fn traffic_class(&mut self, destination: IpAddr, class: u8) {
        let (level, kind) = match destination {
            IpAddr::V4(_) => (IPPROTO_IP, libc::IP_TOS),
            IpAddr::V6(_) => (IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        self.push(level, kind, c_int::from(class));
    }

    pub(super) fn segment_bytes(&mut self, bytes: u16) {
        self.push(SOL_UDP, libc::UDP_SEGMENT, bytes);
    }

    fn push<T: Copy>(&mut self, level: c_int, kind: c_int, data: T) {
        // SAFETY: these compute sizes from a size.
        let (length, space) = unsafe {
            let bytes = size_of::<T>() as u32;
            (libc::CMSG_LEN(bytes) as usize, libc::CMSG_SPACE(bytes) as usize)
        };
        let place = &mut self.control.0[self.length..self.length + space];
        // SAFETY: all-zero is a value of it.
        let mut header: cmsghdr = unsafe { zeroed() };
        header.cmsg_len = length as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: `place` has room for header and data, which begin where CMSG_DATA says; writes
        // are unaligned.
        unsafe {
            let at = place.as_mut_ptr().cast::<cmsghdr>();
            at.write_unaligned(header);
            libc::CMSG_DATA(at).cast::<T>().write_unaligned(data);
        }
        self.length += space;
    }
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

fn in6_addr(ip: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr { s6_addr: ip.octets() }
}
