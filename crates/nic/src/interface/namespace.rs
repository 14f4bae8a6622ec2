//! Network namespaces: making one, naming one, and doing something inside.
//!
//! A namespace made here has no name in the file system. It lives as long as this handle, a
//! process or a thread is in it, so nothing is left behind however its maker ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::fstat;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::Error;

/// A handle to a network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: OwnedFd,
}

impl Namespace {
    /// A new namespace with nothing in it but a loopback interface that is down.
    pub fn create() -> Result<Namespace, Error> {
        // On a thread of its own: the caller stays where it is.
        let made = std::thread::spawn(|| {
            // SAFETY: only CLONE_FILES has unsafe consequences, and it is not asked for.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Namespace::of_this_thread()
        });
        made.join().expect("nothing in it panics").map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission(
                "cannot make a network namespace: that needs CAP_SYS_ADMIN; run as root".into(),
            ),
            _ => Error::System {
                action: "cannot make a network namespace".into(),
                remedy: "The limit may be reached (sysctl user.max_net_namespaces)".into(),
                source,
            },
        })
    }

    /// The namespace of this name (`ip netns list`), or that of a path such as `/proc/1/ns/net`.
    pub fn open(name: &str) -> Result<Namespace, Error> {
        let path = if name.contains('/') {
            PathBuf::from(name)
        } else {
            Path::new("/run/netns").join(name)
        };
        let file = File::open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::NotFound(format!(
                "there is no network namespace {name:?}; `ip netns list` shows those that there are"
            )),
            _ => Error::System {
                action: format!("cannot open the network namespace {name:?}"),
                remedy: "Run as root".into(),
                source,
            },
        })?;
        Ok(Namespace { file: file.into() })
    }

    /// The namespace that the calling thread is in.
    pub fn of_this_thread() -> io::Result<Namespace> {
        Ok(Namespace { file: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Moves the calling thread into it, for good. Sockets opened from here on belong to it.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// True if the calling thread is in it.
    fn is_here(&self) -> bool {
        let identity = |file: BorrowedFd<'_>| fstat(file).map(|s| (s.st_dev, s.st_ino)).ok();
        let here = Namespace::of_this_thread().ok();
        here.is_some_and(|here| identity(here.as_fd()) == identity(self.as_fd()))
    }

    /// Runs `work` inside: right here if this thread is in it, else on a thread of its own (and
    /// that needs CAP_SYS_ADMIN).
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        if self.is_here() {
            return Ok(work());
        }
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| self.enter().map(|()| work()));
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs iproute2's `ip` inside with these words; an error has what it said.
    pub fn ip(&self, words: &str) -> io::Result<String> {
        self.within(|| {
            let output = Command::new("ip").args(words.split_whitespace()).output()?;
            if output.status.success() {
                return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("ip {words}: {}", complaint.trim())))
        })?
    }

    /// A path that names it to other programs while this handle lives, for `ip link ... netns`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
