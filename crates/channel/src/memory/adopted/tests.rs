//! What an app can try with memory of its own, against this kernel.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::*;
use crate::Shared;

const BYTES: u64 = 4 * PAGE_BYTES as u64;
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn memfd(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("of-the-app", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    fd
}

fn seal(fd: &OwnedFd, seals: SealFlags) {
    rustix::fs::fcntl_add_seals(fd, seals).unwrap();
}

/// One whose size is sealed.
fn sealed(bytes: u64) -> OwnedFd {
    let fd = memfd(bytes);
    seal(&fd, daemon_seals());
    fd
}

fn refusal(fd: impl AsFd) -> NotShareable {
    Shared::adopt(fd, BYTES).expect_err("refused")
}

/// Another way to the same file.
fn opened_again(fd: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())
}

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // proc_pid_stat(5): minflt is the eighth after the name, which is in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn both_see_what_either_writes_and_what_was_there_before() {
    let fd = memfd(BYTES);
    rustix::io::pwrite(&fd, b"before", 8).unwrap();
    let app = Shared::offer(&fd).unwrap();
    let daemon = Shared::adopt(&fd, BYTES).unwrap();
    drop(fd);
    assert_eq!((app.length(), daemon.length()), (BYTES, BYTES));
    let mut found = [0; 6];
    assert!(daemon.read(8, &mut found) && &found == b"before");
    assert!(app.store(BYTES - 8, 5));
    assert_eq!(daemon.fetch_add(BYTES - 8, 2), Some(5));
    assert_eq!(app.load(BYTES - 8), Some(7));
}

#[test]
fn no_page_can_be_taken_away_once_it_is_secured() {
    let fd = memfd(BYTES);
    let app = Shared::offer(&fd).unwrap();
    let again = opened_again(&fd, OFlags::RDWR).unwrap();
    let daemon = Shared::adopt(&fd, BYTES).unwrap();
    for fd in [&fd, &again] {
        assert_eq!(rustix::fs::fallocate(fd, HOLE, 0, BYTES), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, 2 * BYTES), Err(Errno::PERM));
        assert_eq!(rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE), Err(Errno::PERM));
        assert!(map(fd.as_fd(), BYTES as usize).is_err(), "a new way to write");
    }
    assert!(opened_again(&fd, OFlags::RDWR | OFlags::TRUNC).is_err());
    let (place, remove) = (app.as_ptr().cast(), rustix::mm::Advice::LinuxRemove);
    // SAFETY: no reference into the mapping exists here, so its bytes may change or go.
    let removed = unsafe { rustix::mm::madvise(place, BYTES as usize, remove) };
    assert_eq!(removed, Err(Errno::PERM));
    assert!(daemon.store(0, 1) && app.load(0) == Some(1));
}

/// The app has never made its pages, or has taken them away after it had mapped them.
#[test]
fn pages_that_are_missing_are_filled_before_an_engine_comes() {
    let bytes = 256 * PAGE_BYTES as u64;
    let punched = memfd(bytes);
    let _app = Shared::offer(&punched).unwrap();
    rustix::fs::fallocate(&punched, HOLE, 0, bytes).unwrap();
    for fd in [sealed(bytes), punched] {
        let daemon = Shared::adopt(&fd, bytes).unwrap();
        let before = faults();
        for page in (0..bytes).step_by(PAGE_BYTES) {
            assert!(daemon.store(page, 7));
        }
        // A few of the test's own are allowed: reading how many there were.
        assert!(faults() - before < 64, "{} page faults", faults() - before);
    }
}

#[test]
fn what_is_no_memfd_is_refused() {
    let (pipe, _other) = std::io::pipe().unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let null = File::open("/dev/null").unwrap();
    let program = File::open("/proc/self/exe").unwrap();
    let directory = File::open("/").unwrap();
    let others = [pipe.as_fd(), socket.as_fd(), null.as_fd(), program.as_fd(), directory.as_fd()];
    for fd in others {
        assert!(matches!(refusal(fd), NotShareable::NoMemfd), "{fd:?}");
        assert!(matches!(Shared::offer(fd), Err(NotShareable::NoMemfd)));
    }
    // A file of a memory file system has seals, but takes none.
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::fs::ftruncate(&file, BYTES).unwrap();
    assert!(matches!(refusal(&file), NotShareable::SealedAgainstSealing));
    let unsealable = rustix::fs::memfd_create("unsealable", MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(refusal(&unsealable), NotShareable::SealedAgainstSealing));
}

#[test]
fn what_is_sealed_too_early_is_refused() {
    for early in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let fd = sealed(BYTES);
        seal(&fd, early);
        assert!(matches!(refusal(&fd), NotShareable::SealedTooEarly), "{early:?}");
        assert!(matches!(Shared::offer(&fd), Err(NotShareable::SealedTooEarly)));
    }
    let fd = sealed(BYTES);
    seal(&fd, SealFlags::SEAL);
    assert!(matches!(refusal(&fd), NotShareable::SealedAgainstSealing));
    let fd = sealed(BYTES);
    Shared::adopt(&fd, BYTES).unwrap();
    assert!(matches!(refusal(&fd), NotShareable::SealedTooEarly), "a second time");
}

#[test]
fn what_can_change_its_size_or_has_another_is_refused() {
    assert!(matches!(refusal(memfd(BYTES)), NotShareable::SizeNotSealed));
    let fd = memfd(BYTES);
    seal(&fd, SealFlags::GROW);
    assert!(matches!(refusal(&fd), NotShareable::SizeNotSealed));
    for bytes in [0, 1, BYTES - PAGE_BYTES as u64, BYTES - 1, BYTES + 1, 2 * BYTES] {
        let refused = refusal(sealed(bytes));
        assert!(
            matches!(refused, NotShareable::Size { found, told: BYTES } if found == bytes),
            "{refused}"
        );
    }
    for bytes in [0, 1, BYTES - 1] {
        let told = Shared::adopt(sealed(bytes), bytes);
        assert!(matches!(told, Err(NotShareable::Size { .. })), "{bytes} bytes, as was said");
        assert!(matches!(Shared::offer(memfd(bytes)), Err(NotShareable::Size { .. })));
    }
}

#[test]
fn what_may_only_be_read_is_refused() {
    let fd = sealed(BYTES);
    let read_only = opened_again(&fd, OFlags::RDONLY).unwrap();
    assert!(matches!(refusal(&read_only), NotShareable::Io(_)));
    assert!(Shared::adopt(&fd, BYTES).is_ok(), "nothing was done to it");
}

/// No huge page is needed to see that.
#[test]
fn huge_pages_are_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let fd = match rustix::fs::memfd_create("huge", flags) {
        Ok(fd) => fd,
        // This kernel has none.
        Err(error) => return assert_eq!(error, Errno::NOSYS),
    };
    rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
    seal(&fd, daemon_seals());
    assert!(matches!(refusal(&fd), NotShareable::HugePages));
    assert!(refusal(&fd).to_string().contains("MADV_HUGEPAGE"));
}

#[test]
fn memory_that_the_machine_does_not_have_is_refused_before_a_page_is_made() {
    let fd = memfd(BYTES);
    rustix::io::pwrite(&fd, b"one page", 0).unwrap();
    let missing = BYTES - PAGE_BYTES as u64;
    let refused = offer_within(fd.as_fd(), missing - 1).err();
    assert!(
        matches!(refused, Some(NotShareable::NoRoom { missing: told, room })
            if told == missing && room == missing - 1),
        "{refused:?}"
    );
    assert_eq!(filled(fd.as_fd()).unwrap(), PAGE_BYTES as u64, "nothing was filled");
    assert!(!rustix::fs::fcntl_get_seals(&fd).unwrap().contains(daemon_seals()), "nor sealed");
    assert!(offer_within(fd.as_fd(), missing).is_ok());
    assert!(offer_within(fd.as_fd(), 0).is_ok(), "all of it is there");
}
