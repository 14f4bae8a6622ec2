//! What an app can try with its memory, against this kernel.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use super::*;
use unserved::unserved;

mod unserved;

/// Nothing here takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn sizes() -> Sizes {
    Sizes {
        submission_entries: 16,
        completion_entries: 16,
        transmit_pool_bytes: 1 << 21,
        receive_pool_bytes: 1 << 21,
        shared_bytes: 0,
    }
}

/// The daemon's mapping, and the app's file and mapping.
fn mapped() -> (Arc<Memory>, OwnedFd, Arc<Memory>) {
    let (daemon, fd) = create(&sizes(), Versions::APP.max).unwrap();
    let app = open(&fd, &sizes()).unwrap().unwrap();
    (daemon, fd, app)
}

fn punch(fd: impl AsFd) -> rustix::io::Result<()> {
    rustix::fs::fallocate(fd, HOLE, 0, sizes().total_bytes() as u64)
}

fn advise(memory: &Mapping, advice: Advice) -> rustix::io::Result<()> {
    // SAFETY: no reference into the mapping exists in these tests, so its bytes may change or go.
    unsafe { rustix::mm::madvise(memory.base.as_ptr().cast(), memory.bytes, advice) }
}

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // proc_pid_stat(5): minflt is the eighth after the name, which is in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Page faults that it takes to write to every page.
fn faults_of_writing(memory: &Mapping) -> u64 {
    let before = faults();
    for page in (0..memory.bytes).step_by(PAGE_BYTES) {
        memory.word(page).store(7, Relaxed);
    }
    faults() - before
}

/// A few of the test's own are allowed: allocating, and reading how many there were.
fn assert_populated(memory: &Mapping) {
    let (faults, pages) = (faults_of_writing(memory), memory.bytes / PAGE_BYTES);
    assert!(faults < 64, "{faults} page faults over {pages} pages");
}

#[test]
fn no_page_can_be_taken_away_once_the_app_has_mapped_them() {
    let (daemon, fd, app) = mapped();
    assert!(daemon.secure(fd.as_fd()).unwrap());
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let again = rustix::fs::open(&path, OFlags::RDWR, Mode::empty()).unwrap();
    let total = sizes().total_bytes() as u64;
    for fd in [&fd, &again] {
        assert_eq!(punch(fd), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(fd, total * 2), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(fd, &[1], 0), Err(Errno::PERM));
        let more = rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE);
        assert_eq!(more, Err(Errno::PERM));
        for flags in [
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::COLLAPSE_RANGE,
            FallocateFlags::INSERT_RANGE,
        ] {
            assert!(rustix::fs::fallocate(fd, flags, 0, PAGE_BYTES as u64).is_err(), "{flags:?}");
        }
        assert!(map(fd.as_fd(), sizes().total_bytes()).is_err(), "a new way to write");
    }
    let truncated = rustix::fs::open(&path, OFlags::RDWR | OFlags::TRUNC, Mode::empty());
    assert!(truncated.is_err());
    assert_eq!(advise(&app.mapping, Advice::LinuxRemove), Err(Errno::PERM));
    assert_populated(&daemon.mapping);
}

/// What the kernel lets an app say about its own mapping does nothing to the daemon's.
#[test]
fn advice_about_the_apps_mapping_costs_the_daemon_nothing() {
    let (daemon, fd, app) = mapped();
    assert!(daemon.secure(fd.as_fd()).unwrap());
    for advice in [
        Advice::LinuxDontNeed,
        Advice::LinuxCold,
        Advice::LinuxPageOut,
        Advice::LinuxDontFork,
        Advice::LinuxNoHugepage,
    ] {
        let _ = advise(&app.mapping, advice);
        assert_populated(&daemon.mapping);
    }
    drop(app);
    assert_populated(&daemon.mapping);
}

/// Holes that were made before the seal are filled, on the thread that looks.
#[test]
fn holes_made_before_are_filled_before_an_engine_comes() {
    let (daemon, fd) = create(&sizes(), Versions::APP.max).unwrap();
    punch(&fd).unwrap();
    assert!(!daemon.secure(fd.as_fd()).unwrap(), "not sealed yet");
    let missing = faults_of_writing(&daemon.mapping);
    assert!(missing > 100, "the hole is one: {missing}");
    punch(&fd).unwrap();
    // Without it the app would not know what it has.
    daemon.write_header(&sizes());
    let _app = open(&fd, &sizes()).unwrap().unwrap();
    assert!(daemon.secure(fd.as_fd()).unwrap());
    assert_populated(&daemon.mapping);
}

/// Whoever fills large memory lets others change the mappings of the process in between: engines,
/// which allocate, and workers for other users.
#[test]
fn large_memory_is_filled_piece_by_piece() {
    let pool_bytes = 256 << 20;
    let large =
        Sizes { transmit_pool_bytes: pool_bytes, receive_pool_bytes: pool_bytes, ..sizes() };
    let (memory, fd) = create(&large, Versions::APP.max).unwrap();
    rustix::fs::fallocate(&fd, HOLE, 0, large.total_bytes() as u64).unwrap();
    let (ended, changes) = (AtomicBool::new(false), AtomicU32::new(0));
    let during = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                // SAFETY: new memory, which nobody uses.
                unsafe {
                    let (read, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
                    let page =
                        rustix::mm::mmap_anonymous(null_mut(), PAGE_BYTES, read, flags).unwrap();
                    rustix::mm::munmap(page, PAGE_BYTES).unwrap();
                }
                changes.fetch_add(1, Relaxed);
            }
        });
        while changes.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let before = changes.load(Relaxed);
        memory.mapping.fill().unwrap();
        let during = changes.load(Relaxed) - before;
        ended.store(true, Relaxed);
        during
    });
    let pieces = large.total_bytes() / PIECE_BYTES;
    assert!(during >= 8, "{during} changes in the time of {pieces} pieces");
}

/// The app holds the lock of the file for as long as it likes: it writes to it from memory that
/// never comes. The kernel lets it do so before it has sealed the file (some kernels
/// afterwards, too). Needs root, since only root's kernel waits for a program's page faults by
/// default.
#[test]
fn an_app_that_holds_the_files_lock_holds_up_nobody() {
    let (daemon, fd) = create(&sizes(), Versions::APP.max).unwrap();
    let (uffd, source) = unserved();
    let theirs = fd.try_clone().unwrap();
    let writer = std::thread::spawn(move || rustix::io::pwrite(&theirs, source, 0));
    let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fault = [PollFd::new(&uffd, PollFlags::IN)];
    assert_eq!(poll(&mut fault, Some(&timeout)), Ok(1), "the writer waits, with the lock");
    let (told, word) = channel();
    std::thread::spawn(move || told.send(daemon.secure(fd.as_fd()).unwrap()));
    assert_eq!(word.recv_timeout(PATIENCE), Ok(false), "the daemon waits for the app");
    assert!(!writer.is_finished(), "it has held the lock all the time");
    drop(uffd);
    assert_eq!(writer.join().unwrap(), Ok(PAGE_BYTES));
}
