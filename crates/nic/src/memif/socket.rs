//! System calls of the control socket: listen, accept, connect, and packets with a descriptor. None
//! of them waits. Nor does closing: what strangers may have put into a socket is for
//! [`crate::strangers`].

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use super::Socket;
use super::link::Parcel;
use super::message::MESSAGE_BYTES;
use crate::{Error, strangers};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 8;
/// The most descriptors that a packet can have (`SCM_MAX_FD` of the kernel). There is room for all
/// of them: those without a place the kernel would close, in this thread.
const DESCRIPTORS_MAX: usize = 253;

/// A listening socket; its path, if it has one, goes with it.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    path: Option<(PathBuf, Identity)>,
}

/// Device and inode of a socket's path, to tell our own from one that somebody else put there
/// later.
type Identity = (u64, u64);

impl Listener {
    /// Listens on `at`. A path that a dead process left behind is taken over.
    pub(super) fn new(at: &Socket) -> Result<Self, Error> {
        Self::over(listen_on(at)?, at)
    }

    /// The same with a socket that somebody else has made.
    pub(super) fn over(fd: OwnedFd, at: &Socket) -> Result<Self, Error> {
        let fail = |error: io::Error| error_text(at, "listen on", error);
        let path = match at {
            Socket::Path(path) => Some((path.clone(), identity(path).map_err(fail)?)),
            Socket::Abstract(_) => None,
        };
        Ok(Self { fd, path })
    }

    /// The next connection, if one is waiting. After an error it still is.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(&self.fd, flags) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, ours)) = &self.path
            && identity(path).is_ok_and(|now| now == *ours)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket that listens on `at`.
pub(super) fn listen_on(at: &Socket) -> Result<OwnedFd, Error> {
    let fail = |error: io::Error| error_text(at, "listen on", error);
    let fd = new_socket().map_err(fail)?;
    let address = address(at).map_err(fail)?;
    if let Err(error) = bind(&fd, &address) {
        remove_if_dead(at, error, &address)?;
        bind(&fd, &address).map_err(|error| fail(error.into()))?;
    }
    listen(&fd, BACKLOG).map_err(|error| fail(error.into()))?;
    Ok(fd)
}

/// Connects to `to`, at once or not at all.
pub(super) fn connect_to(to: &Socket) -> io::Result<OwnedFd> {
    let fd = new_socket()?;
    connect(&fd, &address(to)?)?;
    Ok(fd)
}

/// The user at the other end of a connection.
pub(super) fn user_of(socket: impl AsFd) -> u32 {
    rustix::net::sockopt::socket_peercred(socket).map_or(u32::MAX, |peer| peer.uid.as_raw())
}

/// Sends a packet, with its descriptor if it has one. A full socket is an error: a peer that keeps
/// to the protocol never has more than a packet or two waiting.
pub(super) fn send(socket: impl AsFd, parcel: &Parcel) -> io::Result<()> {
    let bytes = parcel.0.to_bytes();
    let descriptors: Vec<BorrowedFd<'_>> = parcel.1.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// A received packet.
pub(super) struct Packet {
    /// One more byte than a message has, so that a longer packet is seen to be longer.
    bytes: [u8; MESSAGE_BYTES + 1],
    length: usize,
    /// The descriptors that came along. Closing them may take long.
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Packet {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The next packet; `None` if none is there yet. The end of the connection is an error.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Option<Packet>> {
    let mut packet = Packet { bytes: [0; MESSAGE_BYTES + 1], length: 0, descriptors: Vec::new() };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut packet.bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let length = match recvmsg(socket, &mut into, &mut ancillary, flags) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    packet.length = length;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            packet.descriptors.extend(descriptors);
        }
    }
    Ok(Some(packet))
}

/// A timer that becomes readable every so often while it runs.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    running: bool,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, running: false })
    }

    /// Starts or stops. Does nothing if it is so already.
    pub(super) fn run(&mut self, wanted: bool, period_ns: i64) {
        if wanted == self.running {
            return;
        }
        let period = Timespec { tv_sec: 0, tv_nsec: if wanted { period_ns } else { 0 } };
        let times = Itimerspec { it_interval: period, it_value: period };
        let set = rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &times);
        self.running = set.is_ok() && wanted;
    }

    /// Makes the timer unreadable until its next period. Returns whether one was over.
    pub(super) fn consume(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Where the kernel can, nobody sends a descriptor before it is wanted; connections take it
    // over.
    let _ = strangers::refuse_descriptors(&socket);
    Ok(socket)
}

fn address(of: &Socket) -> io::Result<SocketAddrUnix> {
    Ok(match of {
        Socket::Path(path) => SocketAddrUnix::new(path.as_path())?,
        Socket::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    })
}

fn identity(path: &PathBuf) -> io::Result<Identity> {
    let stat = rustix::fs::lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// After `bind` has failed with `error`: removes the path if it is a socket on which nobody
/// listens.
fn remove_if_dead(at: &Socket, error: Errno, address: &SocketAddrUnix) -> Result<(), Error> {
    let Socket::Path(path) = at else { return Err(error_text(at, "listen on", error.into())) };
    let probe = new_socket().map_err(|error| error_text(at, "listen on", error))?;
    // Only a socket that nobody listens on refuses; a file that is no socket does so too.
    let dead = error == Errno::ADDRINUSE
        && connect(&probe, address) == Err(Errno::CONNREFUSED)
        && is_socket(path);
    if !dead {
        return Err(error_text(at, "listen on", error.into()));
    }
    std::fs::remove_file(path).map_err(|error| error_text(at, "replace", error))
}

fn is_socket(path: &PathBuf) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn error_text(socket: &Socket, what: &str, error: io::Error) -> Error {
    let action = format!("memif: {what} {socket}");
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound(format!(
            "{action}: {error}. Create the directory, or choose another socket path"
        )),
        io::ErrorKind::PermissionDenied => Error::Permission(format!(
            "{action}: {error}. Choose a socket path in a directory that this user may write to"
        )),
        io::ErrorKind::AddrInUse => Error::Invalid(format!(
            "{action}: {error}. Another process listens there, or it is not a socket: stop that \
             process, or choose another path"
        )),
        _ => Error::System {
            action,
            remedy: "Check the socket path in the configuration".into(),
            source: error,
        },
    }
}
