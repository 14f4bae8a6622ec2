//! What takes privileges: making the device, or taking hold of it, with a file for each queue.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::QUEUES_MAX;
use crate::interface::{Device, last_errno};
use crate::segments::Offload;
use crate::{Error, KERNEL_DESCRIPTORS};

/// Where the kernel gives devices out.
pub const PATH: &str = "/dev/net/tun";

/// How the other drivers of the kernel call what is made here.
const DRIVER: &str = "tun";

/// Ethernet frames as they are, each behind an `Offload`.
const FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// What we take of the kernel's hands: checksums, and the cutting of TCP.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// The cutting of UDP, since Linux 6.2.
const OFFLOADS_OF_UDP: u32 = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Takes hold of a tap device, with so many queues. One that is not there is made, with this MTU if
/// one is given, is set up, and lives as long as the files. Needs CAP_NET_ADMIN, unless the device
/// is there and this user's.
pub fn attach(
    interface: &str,
    queues: usize,
    mtu_bytes: Option<u16>,
) -> Result<Vec<OwnedFd>, Error> {
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(too_many(interface, queues));
    }
    let before = Device::open(interface).ok();
    if let Some(device) = &before {
        check(device)?;
        // It has a carrier as long as somebody has one of its queues.
        if device.running().unwrap_or(false) {
            return Err(busy(interface));
        }
    }
    let first = open_file()?;
    let kind = take_first(&first, interface, queues)
        .map_err(|errno| cannot_attach(interface, queues, before.as_ref(), errno))?;
    let mut files = vec![first];
    while files.len() < queues {
        let file = open_file()?;
        set_interface(&file, interface, kind)
            .map_err(|errno| cannot_attach(interface, queues, before.as_ref(), errno))?;
        files.push(file);
    }
    if before.is_none() {
        set_up(interface, mtu_bytes)?;
    }
    Ok(files)
}

/// Whether there can be tap devices here at all; whether this user may have one is another
/// question.
pub fn is_possible() -> Result<(), Error> {
    open_file().map(drop)
}

/// What a file is of, as a sentence.
pub(super) fn mode(file: &OwnedFd, interface: &str) -> String {
    let mut request = request_for("");
    // SAFETY: TUNGETIFF takes an ifreq and fills it in.
    let outcome = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    // SAFETY: TUNGETIFF has filled in this member, or it is zero.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let is_lasting = outcome == 0 && flags & libc::IFF_PERSIST != 0;
    let life = if is_lasting { "stays without this daemon" } else { "goes with this daemon" };
    format!("the other end of {interface}, which is the kernel's and {life}; each frame is a call")
}

/// Whether an interface is a tap device.
pub fn check(device: &Device) -> Result<(), Error> {
    let name = device.name();
    let driver = device.driver().unwrap_or_else(|| "unknown".to_owned());
    if driver != DRIVER {
        return Err(Error::Invalid(format!(
            "there is an interface {name} of another kind (driver {driver}), and no tap device can \
             have its name. Choose another name"
        )));
    }
    if device.mac().is_err() {
        return Err(Error::Invalid(format!(
            "{name} is a tun device, which carries no Ethernet. Choose another name, or make it \
             again: ip link del {name}; ip tuntap add dev {name} mode tap multi_queue"
        )));
    }
    Ok(())
}

fn busy(name: &str) -> Error {
    Error::Invalid(format!(
        "another program has the tap device {name} open, perhaps a virtual machine or another \
         clearwayd, and would lose frames to this one. Stop it, or choose another name"
    ))
}

fn too_many(interface: &str, queues: usize) -> Error {
    Error::Invalid(format!(
        "{queues} queues of the tap device {interface} cannot be had: the kernel gives a device 1 \
         to {QUEUES_MAX} in all. Lower `engines`"
    ))
}

fn open_file() -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Not `open`, which is another system call on x86, and which a confined opener does without.
    openat(CWD, PATH, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => Error::NotFound(format!(
            "there is no {PATH}, which tap devices are made by. Load the kernel's module (modprobe \
             tun), and give it to the container (--device {PATH}) or the service \
             (PrivateDevices=no, DeviceAllow={PATH} rw) if this is one"
        )),
        Errno::ACCESS | Errno::PERM => Error::Permission(format!(
            "this user may not open {PATH}. Run as root, or allow it: chmod 0666 {PATH}, or in a \
             service DeviceAllow={PATH} rw"
        )),
        errno => Error::System {
            action: format!("cannot open {PATH}"),
            remedy: "Allow more open files (`ulimit -n`)".into(),
            source: errno.into(),
        },
    })
}

/// Takes the first queue, and says how frames are to come by all of them. Returns the kind of the
/// device: an old one with a single queue may be one.
fn take_first(file: &OwnedFd, interface: &str, queues: usize) -> Result<i32, Errno> {
    let mut kind = FLAGS | libc::IFF_MULTI_QUEUE;
    match set_interface(file, interface, kind) {
        Err(Errno::INVAL) if queues == 1 => {
            kind = FLAGS;
            set_interface(file, interface, kind)?;
        }
        outcome => outcome?,
    }
    let header_bytes = Offload::BYTES as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads an int.
    let outcome =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_bytes) };
    checked(outcome)?;
    set_offloads(file, OFFLOADS | OFFLOADS_OF_UDP).or_else(|_| set_offloads(file, OFFLOADS))?;
    Ok(kind)
}

fn set_interface(file: &OwnedFd, interface: &str, flags: i32) -> Result<(), Errno> {
    let mut request = request_for(interface);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF takes an ifreq, which lives until the call returns.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

fn set_offloads(file: &OwnedFd, offloads: u32) -> Result<(), Errno> {
    // SAFETY: TUNSETOFFLOAD takes a number in place of a pointer.
    checked(unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
    })
}

fn checked(outcome: libc::c_int) -> Result<(), Errno> {
    if outcome < 0 { Err(last_errno()) } else { Ok(()) }
}

/// What is too long for a name is cut, and was refused before.
fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid one: an empty name and an empty union.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.bytes().take(libc::IFNAMSIZ - 1);
    request.ifr_name.iter_mut().zip(name).for_each(|(to, from)| *to = from as libc::c_char);
    request
}

/// A new device waits for nobody to set it up.
fn set_up(interface: &str, mtu_bytes: Option<u16>) -> Result<(), Error> {
    let device = Device::open(interface)?;
    let settings = || -> io::Result<()> {
        if let Some(mtu) = mtu_bytes {
            device.set_mtu(mtu.into())?;
        }
        // Frames that wait for a queue's engine.
        device.set_waiting_frames(KERNEL_DESCRIPTORS)?;
        device.set_up()
    };
    settings().map_err(|source| Error::System {
        action: format!("cannot set up the tap device {interface}"),
        remedy: "Give it an MTU that the kernel takes (68 to 65521)".into(),
        source,
    })
}

fn cannot_attach(interface: &str, queues: usize, before: Option<&Device>, errno: Errno) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS => Error::Permission(match before {
            Some(_) => format!(
                "the tap device {interface} is another user's, and taking it needs CAP_NET_ADMIN. \
                 Run as root, or make it this user's: ip tuntap add dev {interface} mode tap \
                 multi_queue user NAME"
            ),
            None => format!(
                "there is no tap device {interface}, and making one needs CAP_NET_ADMIN. Run as \
                 root, or make it beforehand for this user: ip tuntap add dev {interface} mode tap \
                 multi_queue user NAME"
            ),
        }),
        Errno::TOOBIG => too_many(interface, queues),
        Errno::BUSY => busy(interface),
        Errno::INVAL if before.is_some() => Error::Invalid(format!(
            "the tap device {interface} was made for one queue, and {queues} are wanted. Lower \
             `engines` to 1, or make it again: ip link del {interface}; ip tuntap add dev \
             {interface} mode tap multi_queue"
        )),
        Errno::INVAL => Error::Invalid(format!(
            "{interface:?} cannot be the name of an interface. Choose 1 to 15 letters, digits, \
             '-', '_' and '.'"
        )),
        errno => Error::System {
            action: format!("cannot take the tap device {interface}"),
            remedy: "It needs a kernel with CONFIG_TUN, Linux 3.8 or newer".into(),
            source: errno.into(),
        },
    }
}
