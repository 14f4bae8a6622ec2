//! A directory for the sockets and files of one run, gone with it.
//!
//! Its owner holds a lock on it, which the kernel gives back however the owner ends. A directory
//! that nobody holds was left behind by `kill -9`; the next run removes it.

use rustix::fs::{FlockOperation, Mode, OFlags, Stat, flock, fstat, lstat, open};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the names of all of them begin with.
const PREFIX: &str = "clearway-bench-";

/// A private directory. Dropping it removes it and what is in it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Directory {
    /// A new one, which nobody else can enter. Removes those that dead processes of the same user
    /// have left.
    pub(crate) fn create() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_stale(&parent);
        Self::create_in(&parent)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Another process may have taken it for a stale one before it was locked.
                Ok(()) => match lock(&path) {
                    Some(lock) => return Ok(Self { path, _lock: lock }),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of this user that nobody holds. What cannot be removed stays: it is in
/// nobody's way.
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Some(_lock) = lock(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes a directory of this user, if nobody has it and it is still there.
fn lock(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).ok()?;
    let opened = fstat(&directory).ok()?;
    if opened.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
    (identity(lstat(path).ok()?) == identity(opened)).then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_and_goes_with_all_in_it() {
        let (one, two) = (Directory::create().unwrap(), Directory::create().unwrap());
        assert_ne!(one.path(), two.path());
        fs::write(one.path().join("file"), "content").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }

    #[test]
    fn what_the_dead_have_left_is_removed_and_nothing_else() {
        let parent = Directory::create().unwrap();
        let living = Directory::create_in(parent.path()).unwrap();
        let stale = parent.path().join(format!("{PREFIX}1-0"));
        let stranger = parent.path().join("clearway-hosts-1-0");
        let link = parent.path().join(format!("{PREFIX}2-0"));
        for path in [&stale, &stranger] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "content").unwrap();
        }
        std::os::unix::fs::symlink(&stranger, &link).unwrap();
        remove_stale(parent.path());
        assert!(!stale.exists());
        assert!(living.path().exists() && stranger.join("file").exists());
    }
}
