//! One kernel interface, asked through ioctls: index, MAC, MTU, driver, queues, link state.
//!
//! These are the questions that drivers ask when they open and, seldom, while they run, and what
//! they set of an interface that they have made themselves. Everything
//! that takes a table (addresses, routes, neighbours) is asked over netlink in `facts.rs`. Not
//! sysfs: it shows the network namespace it was mounted in, not the caller's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use super::Namespace;
use crate::{Error, MacAddress};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;

/// Longest interface name, without the closing zero (`IFNAMSIZ` - 1).
const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// A kernel interface in the network namespace in which it was looked up. The handle keeps asking
/// in that namespace, whichever thread uses it.
#[derive(Debug)]
pub struct Device {
    name: String,
    index: u32,
    socket: OwnedFd,
    namespace: Namespace,
}

/// How many queues an interface has (`struct ethtool_channels`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    command: u32,
    receive_max: u32,
    transmit_max: u32,
    other_max: u32,
    combined_max: u32,
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

impl Channels {
    /// Receive queues in use.
    pub fn receive_queues(&self) -> u32 {
        self.receive + self.combined
    }

    /// Queues that an engine can own: a receive queue with a transmit queue of the same number.
    pub fn pairs(&self) -> u32 {
        self.receive_queues().min(self.transmit + self.combined)
    }

    /// The most pairs that the interface can be set to.
    pub fn pairs_max(&self) -> u32 {
        self.combined_max.max(self.receive_max.min(self.transmit_max))
    }

    /// These channels with `pairs` queues of each direction, combined where the NIC combines.
    fn with_pairs(&self, pairs: u32) -> Channels {
        if self.combined_max > 0 {
            Channels { combined: pairs, receive: 0, transmit: 0, ..*self }
        } else {
            Channels { receive: pairs, transmit: pairs, ..*self }
        }
    }
}

/// `struct ethtool_drvinfo`, of which only the driver's name matters here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_rxnfc` up to the part that ETHTOOL_GRXRINGS fills in.
#[repr(C)]
struct ReceiveRings {
    command: u32,
    flow_type: u32,
    count: u64,
    rest: [u64; 24],
}

impl Device {
    /// Looks `name` up in the calling thread's network namespace.
    pub fn open(name: &str) -> Result<Device, Error> {
        let missing = || {
            Error::NotFound(format!(
                "there is no interface {name:?} in this network namespace; `ip link` lists those \
                 that there are"
            ))
        };
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(missing());
        }
        // Any socket will do. This one sends to nobody but the kernel, so that a confined daemon
        // may have it.
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(|errno| Error::System {
                    action: "cannot open a socket to ask about interfaces".into(),
                    remedy: "Raise the limit on open files (ulimit -n)".into(),
                    source: errno.into(),
                })?;
        let index = netdevice::name_to_index(&socket, name).map_err(|_| missing())?;
        let namespace = Namespace::of_this_thread().map_err(|source| Error::System {
            action: "cannot tell which network namespace this is".into(),
            remedy: "Mount /proc".into(),
            source,
        })?;
        Ok(Device { name: name.to_owned(), index, socket, namespace })
    }

    /// Runs `work` in the network namespace of this interface.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.within(work).map_err(|source| Error::System {
            action: format!("cannot enter the network namespace of {}", self.name),
            remedy: "Run the daemon in that namespace, or give it CAP_SYS_ADMIN".into(),
            source,
        })
    }

    /// The name it was looked up by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for it.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// True if it is up and has a carrier.
    pub fn running(&self) -> io::Result<bool> {
        let needed = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(self.flags()? & needed == needed)
    }

    /// True if it is up, whether it has a carrier or not.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(self.flags()? & libc::IFF_UP != 0)
    }

    fn flags(&self) -> io::Result<i32> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS filled in this member.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Sets it up.
    pub(crate) fn set_up(&self) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = (self.flags()? | libc::IFF_UP) as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Sets the largest packet that it carries.
    pub(crate) fn set_mtu(&self, bytes: i32) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = bytes;
        self.ioctl(libc::SIOCSIFMTU, &mut request)
    }

    /// Sets how many frames may wait to leave by each of its queues.
    pub(crate) fn set_waiting_frames(&self, count: usize) -> io::Result<()> {
        let mut request = self.request();
        // The member of this size that all of the library's targets have (`ifr_qlen`).
        request.ifr_ifru.ifru_metric = count as libc::c_int;
        self.ioctl(libc::SIOCSIFTXQLEN, &mut request)
    }

    /// Its Ethernet address; an error if it is not an Ethernet interface.
    pub fn mac(&self) -> Result<MacAddress, Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR, &mut request).map_err(|e| self.failed("MAC address", e))?;
        // SAFETY: SIOCGIFHWADDR filled in this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            return Err(Error::Invalid(format!(
                "{} is not an Ethernet interface (hardware type {}); name one that is",
                self.name, address.sa_family
            )));
        }
        Ok(std::array::from_fn(|index| address.sa_data[index] as u8))
    }

    /// The largest packet it carries, without the Ethernet header.
    pub fn mtu(&self) -> Result<usize, Error> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU, &mut request).map_err(|e| self.failed("MTU", e))?;
        // SAFETY: SIOCGIFMTU filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize)
    }

    /// The name of its kernel driver; `None` if the driver does not say.
    pub fn driver(&self) -> Option<String> {
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        self.ethtool(&mut info).ok()?;
        let name: Vec<u8> = info.driver.into_iter().take_while(|&byte| byte != 0).collect();
        String::from_utf8(name).ok().filter(|name| !name.is_empty())
    }

    /// Its queues. An interface that cannot say has one.
    pub fn channels(&self) -> Channels {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        if self.ethtool(&mut channels).is_ok() && channels.pairs() > 0 {
            return channels;
        }
        let mut rings =
            ReceiveRings { command: ETHTOOL_GRXRINGS, flow_type: 0, count: 0, rest: [0; 24] };
        let count = match self.ethtool(&mut rings) {
            Ok(()) => (rings.count as u32).max(1),
            Err(_) => 1,
        };
        Channels { combined: count, combined_max: count, ..Channels::default() }
    }

    /// Sets the number of queue pairs and returns what was set before, for
    /// [`Device::restore_channels`].
    pub fn set_pairs(&self, pairs: u32) -> Result<Channels, Error> {
        let before = self.channels();
        self.write_channels(before.with_pairs(pairs)).map_err(|source| Error::System {
            action: format!("cannot set {} to {pairs} queues", self.name),
            remedy: format!(
                "It has {} and can have up to {}; leave `queues` out to use what it has",
                before.pairs(),
                before.pairs_max()
            ),
            source,
        })?;
        Ok(before)
    }

    /// Undoes [`Device::set_pairs`].
    pub fn restore_channels(&self, before: Channels) -> io::Result<()> {
        self.write_channels(before)
    }

    fn write_channels(&self, channels: Channels) -> io::Result<()> {
        self.ethtool(&mut Channels { command: ETHTOOL_SCHANNELS, ..channels })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an all-zero ifreq is a valid one: an empty name and an empty union.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    /// Performs an ethtool command; `command` starts with its number and is as long as the kernel
    /// takes it to be.
    fn ethtool<T>(&self, command: &mut T) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
        self.ioctl(SIOCETHTOOL, &mut request)
    }

    fn ioctl(&self, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: all requests used here take an ifreq; a pointer inside it goes to a structure
        // of the size that its command has, which lives until the call returns.
        let outcome = unsafe { libc::ioctl(self.socket.as_raw_fd(), number, request) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn failed(&self, what: &str, source: io::Error) -> Error {
        Error::System {
            action: format!("cannot read the {what} of {}", self.name),
            remedy: "The interface may have been removed; check with `ip link`".into(),
            source,
        }
    }
}
