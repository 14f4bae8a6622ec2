//! What a peer can try with its memory, against this kernel.

use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::*;
use crate::memif::work::Patience;
use crate::strangers::SpareThreads;

/// Nothing here takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);
const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const PAGE_BYTES: usize = 4096;
/// More than one piece, and not a whole number of them.
const BYTES: usize = PIECE_BYTES + 5 * PAGE_BYTES;

fn account() -> Account {
    Account::new(7, SpareThreads::new("test"))
}

fn create(bytes: usize) -> (Region, OwnedFd) {
    Region::create(bytes, &account()).unwrap()
}

fn adopt(fd: &OwnedFd, bytes: u64) -> Result<Region, String> {
    Region::adopt(fd.as_fd(), bytes, &account())
}

fn secure(region: &Region, fd: &OwnedFd) -> Result<(), String> {
    let patience = Patience::default();
    region.secure(fd.as_fd(), &patience.wanted())
}

fn memfd(bytes: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("t", flags | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn punch(fd: impl AsFd) -> rustix::io::Result<()> {
    rustix::fs::fallocate(fd, HOLE, 0, BYTES as u64)
}

fn advise(region: &Region, advice: Advice) -> rustix::io::Result<()> {
    let mapping = &region.mapping;
    // SAFETY: no reference into the mapping exists in these tests, so its bytes may change or go.
    unsafe { rustix::mm::madvise(mapping.base.as_ptr().cast(), mapping.bytes, advice) }
}

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // proc_pid_stat(5): minflt is the eighth after the name, which is in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Page faults that it takes to write to every page.
fn faults_of_writing(region: &Region) -> u64 {
    let before = faults();
    for page in (0..BYTES).step_by(PAGE_BYTES) {
        let byte = region.at(page as u32, 1).unwrap();
        // SAFETY: inside the mapping, to which no references exist.
        unsafe { byte.write_volatile(7) };
    }
    faults() - before
}

/// A few of the test's own are allowed: reading how many there were.
fn assert_populated(region: &Region) {
    let (faults, pages) = (faults_of_writing(region), BYTES / PAGE_BYTES);
    assert!(faults < 64, "{faults} page faults over {pages} pages");
}

#[test]
fn own_region_is_shared_and_sealed() {
    let (ours, fd) = create(8192);
    let theirs = adopt(&fd, 8192).unwrap();
    // SAFETY: both addresses are inside their mappings.
    unsafe {
        ours.at(8191, 1).unwrap().write(7);
        assert_eq!(theirs.at(8191, 1).unwrap().read(), 7);
    }
    assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
    assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
}

/// Whichever side secures it first, and whosever it is.
#[test]
fn no_page_can_be_taken_away_once_a_region_is_secured() {
    for server_first in [true, false] {
        let (client, fd) = create(BYTES);
        let server = adopt(&fd, BYTES as u64).unwrap();
        punch(&fd).unwrap();
        assert!(faults_of_writing(&client) > 100, "there is a hole");
        punch(&fd).unwrap();
        let (first, second) = if server_first { (&server, &client) } else { (&client, &server) };
        secure(first, &fd).unwrap();
        assert_populated(first);
        let again = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let again = rustix::fs::open(&again, OFlags::RDWR, Mode::empty()).unwrap();
        for fd in [&fd, &again] {
            assert_eq!(punch(fd), Err(Errno::PERM));
            assert_eq!(rustix::fs::ftruncate(fd, 0), Err(Errno::PERM));
            assert_eq!(rustix::io::pwrite(fd, &[1], 0), Err(Errno::PERM));
        }
        assert_eq!(advise(second, Advice::LinuxRemove), Err(Errno::PERM));
        let _ = advise(second, Advice::LinuxDontNeed);
        let _ = advise(second, Advice::LinuxPageOut);
        assert_populated(first);
        secure(second, &fd).unwrap();
        assert_populated(second);
    }
}

#[test]
fn memory_that_cannot_be_secured_is_refused() {
    let plain = MemfdFlags::empty();
    let refusal = |fd: &OwnedFd, bytes| adopt(fd, bytes).unwrap_err();
    let not_sealed = "not sealed against shrinking";
    assert!(refusal(&memfd(4096, plain, SealFlags::empty()), 4096).contains(not_sealed));
    assert!(refusal(&memfd(4096, plain, SealFlags::GROW), 4096).contains(not_sealed));
    let sealed = memfd(4096, plain, SealFlags::SHRINK);
    assert!(adopt(&sealed, 4096).is_ok());
    assert!(refusal(&sealed, 4097).contains("4097 bytes in memory of 4096"));
    assert!(refusal(&sealed, 0).contains("region of 0 bytes"));
    assert!(refusal(&sealed, u64::MAX).contains("in memory of 4096"));
    let file = std::fs::File::open("/proc/self/exe").unwrap().into();
    assert!(refusal(&file, 64).contains("no seals"));
    let for_good = memfd(4096, plain, SealFlags::SHRINK | SealFlags::SEAL);
    assert!(refusal(&for_good, 4096).contains("leave F_SEAL_SEAL out"));
    for write in [SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
        let read_only = memfd(4096, plain, SealFlags::SHRINK | write);
        assert!(refusal(&read_only, 4096).contains("sealed against writing"));
    }
    let huge = memfd(2 << 20, MemfdFlags::HUGETLB, SealFlags::SHRINK);
    assert!(refusal(&huge, 2 << 20).contains("huge pages"));
}

#[test]
fn a_peer_that_seals_a_region_for_good_is_found_out() {
    let (region, fd) = create(BYTES);
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SEAL).unwrap();
    assert!(secure(&region, &fd).unwrap_err().contains("leave F_SEAL_SEAL out"));
}

#[test]
fn what_nobody_waits_for_is_not_filled() {
    let (region, fd) = create(BYTES);
    let given_up = Patience::default().wanted();
    assert!(region.secure(fd.as_fd(), &given_up).unwrap_err().contains("nobody waits"));
    assert!(faults_of_writing(&region) > 100);
}

#[test]
fn a_region_that_is_dropped_is_unmapped() {
    let (region, fd) = create(BYTES);
    let address = region.at(0, BYTES).unwrap().as_ptr() as usize;
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let lines = maps.lines().filter(|line| line.contains("clearway-memif"));
        let mut starts =
            lines.filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
        starts.any(|start| (address..address + BYTES).contains(&start))
    };
    assert!(is_mapped());
    drop((region, fd));
    let start = std::time::Instant::now();
    while is_mapped() {
        assert!(start.elapsed() < PATIENCE, "it stays mapped");
        std::thread::yield_now();
    }
}

#[test]
fn addresses_are_bounded() {
    let (region, _fd) = create(4096);
    assert!(region.at(0, 4096).is_some());
    assert!(region.at(4095, 1).is_some());
    assert!(region.at(4095, 2).is_none());
    assert!(region.at(u32::MAX, usize::MAX).is_none());
}
