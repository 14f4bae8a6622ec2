//! Daemons and apps of several users, each a thread: the kernel keeps a user for each thread. Needs
//! root.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Gid, Uid, chown};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::*;
use crate::session::Session;

/// Users that nobody else has.
const DAEMON: u32 = 31_001;
const APP: u32 = 31_002;
const STRANGER: u32 = 31_003;

/// A directory of root's in which the test puts what it likes.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-identity-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).unwrap();
        folder.mode("", 0o755);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), permissions).unwrap();
    }

    /// A directory of this user's.
    fn make(&self, name: &str, user: u32, mode: u32) {
        std::fs::create_dir(self.path(name)).unwrap();
        self.mode(name, mode);
        chown(self.path(name), Some(Uid::from_raw(user)), Some(Gid::from_raw(user))).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Does this as that user.
fn run_as<T: Send>(user: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            let user = Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        work.join().unwrap()
    })
}

/// What listens at `path` for this user. Root has made the file, since it may everywhere.
fn daemon(user: u32, path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    let _ = std::fs::remove_file(path);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
    run_as(user, || rustix::net::listen(&socket, 8).unwrap());
    socket
}

fn attach(user: u32, path: &Path, expected: Option<u32>) -> Result<(), Error> {
    run_as(user, || Session::connect(path, expected, None).map(drop))
}

/// Who answered, and who should have.
fn refusal(user: u32, path: &Path, expected: Option<u32>) -> (u32, String) {
    let error = attach(user, path, expected).expect_err("it is taken for the daemon");
    let text = error.to_string();
    assert!(text.contains("daemon_user") && text.contains("CLEARWAY_SOCKET"), "{text}");
    let Error::WrongDaemon { answered, whom, .. } = error else { panic!("{error}") };
    (answered, whom)
}

#[test]
fn root_and_the_own_user_are_taken_for_the_daemon_wherever_they_are() {
    let folder = Folder::new();
    folder.make("open", STRANGER, 0o777);
    let path = folder.path("open/socket");
    for (user, app) in [(ROOT, APP), (APP, APP), (ROOT, ROOT)] {
        let _daemon = daemon(user, &path);
        attach(app, &path, None).unwrap();
    }
}

#[test]
fn the_owner_of_the_directory_is_taken_for_the_daemon_and_nobody_else() {
    let folder = Folder::new();
    folder.make("run", DAEMON, 0o755);
    let path = folder.path("run/socket");
    for app in [APP, ROOT, DAEMON] {
        let _daemon = daemon(DAEMON, &path);
        attach(app, &path, None).unwrap();
    }
    let _stranger = daemon(STRANGER, &path);
    let (answered, whom) = refusal(APP, &path, None);
    assert_eq!(answered, STRANGER);
    assert!(whom.contains(&format!("root or user {APP}")), "{whom}");
    assert!(whom.contains(&format!("run belongs to user {DAEMON}")), "{whom}");
    assert!(refusal(ROOT, &path, None).1.starts_with("root, or the owner"));
}

/// The stranger has moved the daemon's directory away, and made one of its own.
#[test]
fn a_directory_that_others_can_replace_proves_nothing() {
    for (mode, safe) in [(0o755, true), (0o1777, true), (0o777, false), (0o775, false)] {
        let folder = Folder::new();
        folder.make("above", ROOT, mode);
        folder.make("above/run", DAEMON, 0o755);
        let path = folder.path("above/run/socket");
        let _daemon = daemon(DAEMON, &path);
        if safe {
            attach(APP, &path, None).unwrap();
        } else {
            let (_, whom) = refusal(APP, &path, None);
            assert!(whom.contains("others may write") && whom.contains("above"), "{whom}");
        }
    }
    let folder = Folder::new();
    folder.make("strangers", STRANGER, 0o755);
    folder.make("strangers/run", DAEMON, 0o755);
    let path = folder.path("strangers/run/socket");
    let _daemon = daemon(DAEMON, &path);
    let (_, whom) = refusal(APP, &path, None);
    assert!(whom.contains(&format!("strangers belongs to user {STRANGER}")), "{whom}");
}

/// The way there is the one that the kernel takes.
#[test]
fn links_on_the_way_are_followed_and_looked_at() {
    let folder = Folder::new();
    folder.make("run", DAEMON, 0o755);
    folder.make("open", ROOT, 0o777);
    let path = folder.path("run/socket");
    let _daemon = daemon(DAEMON, &path);
    symlink(folder.path("run"), folder.path("link")).unwrap();
    symlink("../open/../run", folder.path("run/roundabout")).unwrap();
    attach(APP, &folder.path("link/socket"), None).unwrap();
    attach(APP, &folder.path("link/../run/socket"), None).unwrap();
    let (_, whom) = refusal(APP, &folder.path("run/roundabout/socket"), None);
    assert!(whom.contains("others may write"), "{whom}");
    symlink(folder.path("run"), folder.path("open/link")).unwrap();
    let (_, whom) = refusal(APP, &folder.path("open/link/socket"), None);
    assert!(whom.contains("others may write"), "{whom}");
    let strangers = folder.path("strangers");
    symlink(folder.path("run"), &strangers).unwrap();
    rustix::fs::chownat(
        rustix::fs::CWD,
        &strangers,
        Some(Uid::from_raw(STRANGER)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    let (_, whom) = refusal(APP, &folder.path("strangers/socket"), None);
    assert!(whom.contains(&format!("strangers belongs to user {STRANGER}")), "{whom}");
    symlink("loop", folder.path("loop")).unwrap();
    let way = owner_of_directory(&folder.path("loop/socket"), [ROOT, APP, DAEMON]);
    assert!(way.unwrap_err().contains("loop"));
}

#[test]
fn who_the_app_expects_is_taken_for_the_daemon_and_nobody_else() {
    let folder = Folder::new();
    folder.make("open", STRANGER, 0o777);
    let path = folder.path("open/socket");
    let _daemon = daemon(DAEMON, &path);
    attach(APP, &path, Some(DAEMON)).unwrap();
    let (answered, whom) = refusal(APP, &path, Some(STRANGER));
    assert_eq!((answered, whom), (DAEMON, format!("user {STRANGER}, as the app says")));
    let _root = daemon(ROOT, &path);
    assert_eq!(refusal(APP, &path, Some(DAEMON)).0, ROOT);
}

/// Sockets without a path, or in the directory where the app is.
#[test]
fn paths_need_not_be_absolute() {
    let here = owner_of_directory(Path::new("socket"), [ROOT; 3]);
    let absolute = std::env::current_dir().unwrap().join("socket");
    assert_eq!(here, owner_of_directory(&absolute, [ROOT; 3]));
    let (ours, _theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    check(ours.as_fd(), Path::new("nowhere"), None).unwrap();
}
