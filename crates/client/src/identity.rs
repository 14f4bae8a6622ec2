//! Whether the daemon is who it should be. It reads and writes all that an app sends and receives,
//! so an app attaches to nobody else, whoever may have put a socket into the daemon's place.
//!
//! The kernel says who listens (`SO_PEERCRED`). That has to be root, the app's own user, or the
//! user to whom the socket's directory belongs; the latter only where the way there is safe: each
//! directory and symbolic link on it belongs to root, the app's user or that one, and no other user
//! can replace what is in it. (In a sticky directory as `/tmp` nobody can replace what another user
//! made; but whoever comes first can make it.) Or it has to be exactly who the app expects
//! ([`crate::Options::daemon_user`]).
//!
//! Not here: what the daemon may think of the app, which is its policy.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::Error;

const ROOT: u32 = 0;
/// Symbolic links that are followed on the way to a socket; the kernel follows as many.
const LINKS_MAX: u32 = 40;
/// Bits of a mode (inode(7)): the group or others may write; only owners may remove and rename.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// An error if who listens at the other end of `socket`, which was connected to `path`, is not whom
/// the app means by that.
pub(crate) fn check(
    socket: BorrowedFd<'_>,
    path: &Path,
    expected: Option<u32>,
) -> Result<(), Error> {
    let answered = rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw();
    let wrong = |whom: String| Error::WrongDaemon { path: path.to_owned(), answered, whom };
    if let Some(expected) = expected {
        let right = answered == expected;
        return if right {
            Ok(())
        } else {
            Err(wrong(format!("user {expected}, as the app says")))
        };
    }
    let own = rustix::process::geteuid().as_raw();
    if answered == ROOT || answered == own {
        return Ok(());
    }
    let of_directory = owner_of_directory(path, [ROOT, own, answered]).and_then(|owner| {
        let right = owner == answered;
        if right { Ok(()) } else { Err(format!("its directory belongs to user {owner}")) }
    });
    of_directory.map_err(|why| {
        let whom = if own == ROOT { "root".to_owned() } else { format!("root or user {own}") };
        wrong(format!("{whom}, or the owner of its directory ({why})"))
    })
}

/// To whom the directory of `path` belongs, if nobody but these users can put another into its
/// place.
fn owner_of_directory(path: &Path, trusted: [u32; 3]) -> Result<u32, String> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let absolute = std::path::absolute(Path::new(".").join(directory));
    let mut walk = Walk { at: PathBuf::from("/"), ahead: VecDeque::new(), links_left: LINKS_MAX };
    walk.go(&absolute.map_err(|error| error.to_string())?);
    let look = |at: &Path| {
        let metadata = std::fs::symlink_metadata(at);
        metadata.map_err(|error| format!("{}: {error}", at.display()))
    };
    is_safe(&walk.at, &look(&walk.at)?, trusted)?;
    while let Some(name) = walk.ahead.pop_front() {
        if name == ".." {
            walk.at.pop();
            continue;
        }
        let next = walk.at.join(&name);
        let metadata = look(&next)?;
        is_safe(&next, &metadata, trusted)?;
        if metadata.is_symlink() {
            walk.follow(&next).map_err(|error| format!("{}: {error}", next.display()))?;
        } else {
            walk.at = next;
        }
    }
    look(&walk.at).map(|metadata| metadata.uid())
}

/// Whether only these users can replace it, or what is in it.
fn is_safe(at: &Path, metadata: &Metadata, trusted: [u32; 3]) -> Result<(), String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if !trusted.contains(&owner) {
        return Err(format!("{} belongs to user {owner}", at.display()));
    }
    // Of a symbolic link, whose mode says nothing, it is the directory that counts.
    if !metadata.is_symlink() && mode & WRITABLE != 0 && mode & STICKY == 0 {
        return Err(format!("others may write {}", at.display()));
    }
    Ok(())
}

/// The way through the file system that the kernel takes, step by step.
struct Walk {
    /// A directory, without symbolic links.
    at: PathBuf,
    /// Names still to be gone through.
    ahead: VecDeque<OsString>,
    links_left: u32,
}

impl Walk {
    /// Goes along `path` before anything else.
    fn go(&mut self, path: &Path) {
        let mut names = VecDeque::new();
        for component in path.components() {
            match component {
                Component::RootDir => self.at = PathBuf::from("/"),
                Component::Normal(name) => names.push_back(name.to_owned()),
                Component::ParentDir => names.push_back(OsStr::new("..").to_owned()),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        names.append(&mut self.ahead);
        self.ahead = names;
    }

    fn follow(&mut self, link: &Path) -> io::Result<()> {
        self.links_left = self
            .links_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::from(rustix::io::Errno::LOOP))?;
        self.go(&std::fs::read_link(link)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
