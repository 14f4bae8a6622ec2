//! A program at work on an interface, as the descriptors that keep it, and who can make them.
//!
//! To bring a program into the kernel takes privileges that a process at work is better off
//! without. So it can be another process that does it: descriptors are all that it hands over.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, IterableMap, Map, MapData, MapError};

use super::patterns::GroupsLayout;
use super::{descriptor_of, map_failed};
use crate::interface::Device;
use crate::{Error, af_xdp};

/// A program at work on an interface, which has nothing in its tables.
#[derive(Debug)]
pub struct Installed {
    /// The program is at work for as long as somebody has this.
    pub link: OwnedFd,
    /// In the order that its driver knows.
    pub tables: Vec<OwnedFd>,
}

/// The memory of an AF_XDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub bytes: usize,
    /// How it is divided.
    pub chunk_bytes: usize,
}

/// An AF_XDP socket, and its memory if it has some already.
#[derive(Debug)]
pub struct XdpSocket {
    /// The socket.
    pub file: OwnedFd,
    /// Stands for memory that is the socket's (`XDP_UMEM_REG`).
    pub memory: Option<OwnedFd>,
}

/// How [`Opener::steer`] attaches its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachMode {
    /// The form for drivers that spread large frames over several buffers.
    pub fragments: bool,
    /// By the kernel's stack, and not in the driver.
    pub generic: bool,
}

/// Why a program is not at work.
#[derive(Debug)]
pub enum NotInstalled {
    /// It cannot be had at all.
    Never(Error),
    /// The kernel does not attach it there in this way. What that means depends on the way.
    NotSo(io::Error),
}

/// What takes privileges in opening an interface.
pub trait Opener: fmt::Debug + Send + Sync {
    /// An AF_XDP socket, which is bound to nothing.
    fn xdp_socket(&self, memory: Memory) -> Result<XdpSocket, Error>;

    /// The AF_XDP driver's program, at work on `device`. Waits a little where the interface is
    /// still busy.
    fn steer(&self, device: &Device, mode: AttachMode) -> Result<Installed, NotInstalled>;

    /// The program that hides from the kernel what packet sockets have seen, at work on `device`.
    fn hide(&self, device: &Device) -> Result<Installed, Error>;

    /// The program that turns around what this host sends to itself by `device`, at work there.
    fn turn(&self, device: &Device) -> Result<Installed, Error>;
}

/// This process, with what privileges it has.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisProcess;

impl ThisProcess {
    /// An AF_XDP socket for another process, whose memory counts against the limits of this one.
    pub fn xdp_socket_with(memory: Memory) -> Result<XdpSocket, Error> {
        af_xdp::socket_with_memory(memory)
    }
}

impl Opener for ThisProcess {
    fn xdp_socket(&self, _: Memory) -> Result<XdpSocket, Error> {
        af_xdp::bare_socket()
    }

    fn steer(&self, device: &Device, mode: AttachMode) -> Result<Installed, NotInstalled> {
        af_xdp::install(device, mode)
    }

    fn hide(&self, device: &Device) -> Result<Installed, Error> {
        super::hiding::install(device)
    }

    fn turn(&self, device: &Device) -> Result<Installed, Error> {
        super::turning::install(device)
    }
}

/// Duplicates of the tables of these names, and then of two arrays of groups
/// ([`super::Patterns`]).
pub(crate) fn tables_of(ebpf: &Ebpf, names: &[&str]) -> Result<Vec<OwnedFd>, Error> {
    let of_program = names.iter().map(|name| table_of(ebpf, name));
    let array = || -> Result<OwnedFd, Error> {
        let array: Array<MapData, GroupsLayout> = Array::create(1, 0).map_err(map_failed)?;
        duplicate(array.map().fd().as_fd())
    };
    of_program.chain([array(), array()]).collect()
}

/// A duplicate of the table of this name.
pub(crate) fn table_of(ebpf: &Ebpf, name: &str) -> Result<OwnedFd, Error> {
    duplicate(descriptor_of(ebpf, name))
}

fn duplicate(descriptor: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    descriptor.try_clone_to_owned().map_err(|source| Error::System {
        action: "cannot duplicate the descriptor of a table".into(),
        remedy: "Raise the limit on open files (ulimit -n)".into(),
        source,
    })
}

/// As many tables as there are to be.
pub(crate) fn in_order<const N: usize>(tables: Vec<OwnedFd>) -> Result<[OwnedFd; N], Error> {
    tables.try_into().map_err(|tables: Vec<OwnedFd>| {
        Error::Invalid(format!("an eBPF program came with {} tables instead of {N}", tables.len()))
    })
}

/// The table behind a descriptor, as what `variant` says that it is.
pub(crate) fn table<T: TryFrom<Map, Error = MapError>>(
    descriptor: OwnedFd,
    variant: fn(MapData) -> Map,
) -> Result<T, Error> {
    MapData::from_fd(descriptor).and_then(|data| T::try_from(variant(data))).map_err(map_failed)
}

/// Where a program is attached (`enum bpf_attach_type` of linux/bpf.h).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Hook {
    Xdp = 37,
    TcxIngress = 46,
    TcxEgress = 47,
}

/// `BPF_LINK_CREATE` of linux/bpf.h.
const LINK_CREATE: libc::c_int = 28;

/// `link_create` in `union bpf_attr` of linux/bpf.h, as far as it is used here.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface_index: u32,
    hook: u32,
    flags: u32,
    rest: [u64; 2],
}

/// Attaches a program by a link, whose descriptor is the caller's. (The library keeps that of its
/// own links to itself, and this one may be for another process.)
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    device: &Device,
    hook: Hook,
    flags: u32,
) -> io::Result<OwnedFd> {
    let request = LinkCreate {
        program: program.as_raw_fd() as u32,
        interface_index: device.index(),
        hook: hook as u32,
        flags,
        rest: [0; 2],
    };
    // SAFETY: the kernel reads as many bytes of the request as it is told, all of which are there.
    let descriptor = unsafe {
        libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const request, size_of::<LinkCreate>())
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

impl From<Error> for NotInstalled {
    fn from(error: Error) -> Self {
        Self::Never(error)
    }
}
