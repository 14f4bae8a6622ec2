//! The control socket as a file: binding it, taking over what a dead daemon left, removing it.
//!
//! What is said over it is `crate::control`'s business.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clearway_control::policy::Peer;
use clearway_nic::strangers::{self, SpareThreads};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::Error;
use crate::config::Policy;
use crate::users;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How long another daemon is waited for that is at the same path just now. A stranger who holds
/// the lock of the directory keeps no daemon from starting.
const LOCK_TIME: Duration = Duration::from_secs(1);
/// Time between two looks whether it is done.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A bound control socket. Its file disappears with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file, so that only the own one is ever removed.
    identity: (u64, u64),
    /// Who closes connections in which there may be descriptors: nobody, if there cannot be any.
    closers: Option<SpareThreads>,
}

impl Listener {
    /// Binds `path`. If the policy lets others in, every user may connect (and is then checked by
    /// its credentials); otherwise only the daemon's own.
    pub(crate) fn bind(path: &Path, policy: &Policy) -> Result<Self, Error> {
        let failed = |action: &str, source: io::Error| Error::System {
            action: format!("cannot {action} the control socket {}", path.display()),
            source,
            remedy: "choose a path that this user may write, with [control] socket in the \
                     configuration or CLEARWAY_SOCKET"
                .to_owned(),
        };
        make_directory(path).map_err(|error| failed("make the directory of", error))?;
        // Until it listens, it looks as stale as what a dead daemon left.
        let _lock = lock_directory(path);
        remove_stale(path)?;
        let socket = new_socket().map_err(|error| failed("create", error.into()))?;
        // Connections take it over from the socket that they were accepted on.
        let closers =
            (!strangers::refuse_descriptors(&socket)).then(|| SpareThreads::new("closer"));
        let address = SocketAddrUnix::new(path).map_err(|error| failed("bind", error.into()))?;
        // Nobody gets in between bind and chmod: the file takes over the mode of the socket.
        fchmod(&socket, Mode::from_raw_mode(0o600))
            .map_err(|error| failed("bind", error.into()))?;
        bind(&socket, &address).map_err(|error| failed("bind", error.into()))?;
        listen(&socket, BACKLOG).map_err(|error| failed("listen on", error.into()))?;
        let mode = if policy.lets_others_in() { 0o666 } else { 0o600 };
        let metadata = fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(path))
            .map_err(|error| failed("set the mode of", error))?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self { socket, path: path.to_owned(), identity, closers })
    }

    /// The next waiting connection and who is behind it.
    pub(crate) fn accept(&self) -> io::Result<(strangers::Socket, Peer)> {
        if self.closers.as_ref().is_some_and(|closers| !closers.has_room()) {
            return Err(io::Error::other("too many connections hang in closing"));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.socket, flags)?;
        let peer = users::peer_of(&socket)?;
        let socket = match &self.closers {
            None => strangers::Socket::clean(socket),
            Some(closers) => strangers::Socket::of(peer.user, socket, closers.clone()),
        };
        Ok((socket, peer))
    }
}

/// Works as on a kernel that cannot refuse descriptors.
#[cfg(test)]
impl Listener {
    pub(crate) fn accept_descriptors(&mut self) {
        strangers::accept_descriptors(&self.socket);
        self.closers = Some(SpareThreads::new("closer"));
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "control socket left behind");
        }
        // With it go the connections that nobody has accepted yet.
        if let Some(closers) = self.closers.take()
            && let Ok(last) = rustix::io::fcntl_dupfd_cloexec(&self.socket, 0)
        {
            closers.run(0, move || drop(last));
        }
    }
}

/// The file of a socket: the same one whatever is put at its path later.
pub(crate) fn file_of(path: &Path) -> io::Result<File> {
    let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32; // two bits of them
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.file_type().is_socket() {
        return Ok(file);
    }
    let text = format!("what is at {} is no socket: who has put it there?", path.display());
    Err(io::Error::other(text))
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The directory may be missing after a boot (`/run/clearway`); only the last level is made.
fn make_directory(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    match fs::create_dir(directory) {
        Ok(()) => fs::set_permissions(directory, fs::Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Keeps other daemons from the directory of `path` until the file is closed, if it can be read.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = File::open(path.parent()?).ok()?;
    let deadline = Instant::now() + LOCK_TIME;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_PAUSE),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "cannot lock the directory of the control socket: start no other daemon there \
                     at the same time"
                );
                return None;
            }
        }
    }
}

/// A daemon that was killed leaves its socket behind; connecting tells whether somebody is there.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    let in_use = |cause: &str, remedy: &str| Error::SocketInUse {
        path: path.to_owned(),
        cause: cause.to_owned(),
        remedy: remedy.to_owned(),
    };
    if !metadata.file_type().is_socket() {
        return Err(in_use(
            "is a file and not a socket",
            "remove it, or choose another path with [control] socket",
        ));
    }
    let alive =
        || -> rustix::io::Result<()> { connect(new_socket()?, &SocketAddrUnix::new(path)?) };
    match alive() {
        Err(rustix::io::Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "replacing the socket of a dead daemon");
            fs::remove_file(path).map_err(|source| Error::System {
                action: format!("cannot remove the stale socket {}", path.display()),
                source,
                remedy: "remove it by hand".to_owned(),
            })
        }
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(rustix::io::Errno::ACCESS) => Err(in_use(
            "is another user's, so that nobody can say here whether its daemon is running",
            "stop that daemon, or remove the file if there is none, or choose another path with \
             [control] socket or CLEARWAY_SOCKET",
        )),
        _ => Err(in_use(
            "belongs to a daemon that is running",
            "stop that daemon, or choose another path with [control] socket or CLEARWAY_SOCKET",
        )),
    }
}

#[cfg(test)]
mod tests;
