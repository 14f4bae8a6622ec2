//! Memory of apps' own, and what apps send instead.

use std::os::fd::BorrowedFd;

use clearway_channel::control::{AddMemory, RemoveMemory};
use clearway_nic::strangers::{Account, File, SpareThreads};
use rustix::fs::{MemfdFlags, SealFlags};

use super::strangers::slow_socket;
use super::*;
use crate::control::memories::Inlet;
use crate::control::workers::Done;

const BYTES: u64 = 1 << 16;

/// A memfd whose size is sealed.
fn memfd(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("of-the-app", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, bytes).expect("its size");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
    fd
}

fn add(bytes: u64) -> Request {
    Request::AddMemory(AddMemory { bytes })
}

impl App {
    /// The socket to send memory by.
    fn begin_memory(&self, bytes: u64) -> OwnedFd {
        control::send(&self.socket, &add(bytes), &[]).expect("sent");
        let packet = control::receive(&self.socket).expect("in time").expect("an answer");
        let reply = Reply::parse(&packet.bytes).expect("a reply");
        assert_eq!(reply, Reply::BringMemory(Empty {}));
        packet.descriptors.into_iter().next().expect("a socket")
    }

    /// What the daemon says to these descriptors.
    fn send_memory(&self, descriptors: &[BorrowedFd<'_>]) -> Reply {
        let socket = self.begin_memory(BYTES);
        control::send(&socket, &Empty {}, descriptors).expect("sent");
        self.ask(&Request::MemorySent(Empty {}))
    }

    fn add_memory(&self) -> u64 {
        match self.send_memory(&[memfd(BYTES).as_fd()]) {
            Reply::MemoryAdded(added) => added.memory,
            other => panic!("{other:?}"),
        }
    }

    /// As soon as the bytes of others count no more.
    fn begin_in_time(&self, bytes: u64) {
        let deadline = Instant::now() + PATIENCE;
        while let Reply::Error(refusal) = self.ask(&add(bytes)) {
            assert_eq!(refusal.code, Code::Limit, "{}", refusal.message);
            assert!(Instant::now() < deadline, "{}", refusal.message);
            std::thread::yield_now();
        }
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Error(refusal) => refusal.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_is_added_and_taken_back_and_counts_meanwhile() {
    let memory_per_user_bytes = SMALL.total_bytes() as u64 + BYTES;
    let host = Live::start(Limits { memory_per_user_bytes, ..Limits::default() });
    let app = host.app();
    assert_eq!(app.refusal(&add(BYTES)).0, Code::Invalid, "it has no channel");
    let _channel = app.attach();
    let mut last = 0;
    for _ in 0..3 {
        let memory = app.add_memory();
        assert!(memory > last, "a number is not used again");
        last = memory;
        let (code, message) = app.refusal(&add(4096));
        assert_eq!(code, Code::Limit);
        assert!(message.contains("memory_per_user_bytes"), "{message}");
        let remove = Request::RemoveMemory(RemoveMemory { memory });
        assert_eq!(app.ask(&remove), Reply::MemoryRemoved(Empty {}));
        assert_eq!(app.refusal(&remove).0, Code::Invalid);
    }
    app.add_memory();
    drop(app);
    let next = host.app();
    let _channel = next.attach_in_time();
    next.begin_in_time(BYTES);
}

#[test]
fn memories_are_limited_and_belong_to_their_channel() {
    let host = Live::start(Limits { memories_per_user: 2, ..Limits::default() });
    let (first, second) = (host.app(), host.app());
    let _channels = (first.attach(), second.attach());
    let memory = first.add_memory();
    let remove = Request::RemoveMemory(RemoveMemory { memory });
    assert_eq!(second.refusal(&remove).0, Code::Invalid, "another's");
    second.add_memory();
    let (code, message) = first.refusal(&add(BYTES));
    assert!(code == Code::Limit && message.contains("memories_per_user"), "{message}");
    for bytes in [0, 1, 4095, 4097] {
        let refused = first.refusal(&add(bytes));
        assert!(refused.0 == Code::Invalid && refused.1.contains("multiple of 4096"));
    }
    let sent = Request::MemorySent(Empty {});
    assert!(first.refusal(&sent).1.contains("add_memory"), "nothing is awaited");
}

/// Each of them is told what is wrong, and may try again.
#[test]
fn what_is_no_sound_memory_is_refused_with_the_reason() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let _channel = app.attach();
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    let early = memfd(BYTES);
    rustix::fs::fcntl_add_seals(&early, SealFlags::FUTURE_WRITE).expect("sealed");
    let (short, good) = (memfd(BYTES / 2), memfd(BYTES));
    let cases: [(&[BorrowedFd<'_>], &str); 6] = [
        (&[], "0 descriptors came"),
        (&[good.as_fd(), good.as_fd()], "2 descriptors came"),
        (&[pipe.as_fd()], "no memfd"),
        (&[app.socket.as_fd()], "no memfd"),
        (&[early.as_fd()], "F_SEAL_FUTURE_WRITE"),
        (&[short.as_fd()], "32768 bytes, not 65536"),
    ];
    for (descriptors, reason) in cases {
        let message = text(app.send_memory(descriptors));
        assert!(message.contains(reason), "{reason}: {message}");
    }
    app.begin_memory(BYTES);
    let nothing = app.ask(&Request::MemorySent(Empty {}));
    assert!(text(nothing).contains("no memory came"));
    app.add_memory();
}

/// As when the daemon's answer came too late. What was sent nevertheless is given back, and of what
/// becomes of it nobody is told.
#[test]
fn who_asks_again_has_given_up_what_was_awaited() {
    let memory_per_user_bytes = SMALL.total_bytes() as u64 + 2 * BYTES;
    let host = Live::start(Limits { memory_per_user_bytes, ..Limits::default() });
    let app = host.app();
    let _channel = app.attach();
    let socket = app.begin_memory(BYTES);
    control::send(&socket, &Empty {}, &[memfd(BYTES).as_fd()]).expect("sent");
    app.begin_in_time(BYTES);
    app.begin_in_time(2 * BYTES);
    assert!(text(app.ask(&Request::MemorySent(Empty {}))).contains("no memory came"));
    app.begin_in_time(2 * BYTES);
    assert!(matches!(app.listen(7000), Reply::Listening(_)), "the answer is to this request");
}

/// What takes an hour to close keeps its own session waiting, and counts until then; sessions that
/// end without sending, or before an answer, leave nothing else behind. Others go on.
#[test]
fn descriptors_that_are_slow_to_close_hold_nobody_up() {
    let host = Live::start(Limits { memories_per_user: 8, ..Limits::default() });
    let mut kept = Vec::new();
    for is_sent in [true, false, true] {
        let app = host.app();
        let _channel = app.attach();
        let socket = app.begin_memory(BYTES);
        let (slow, kept_waiting) = slow_socket();
        control::send(&socket, &Empty {}, &[slow.as_fd()]).expect("sent");
        // The daemon takes it when it is told, or when the session ends: the last to close it.
        drop(slow);
        if is_sent {
            control::send(&app.socket, &Request::MemorySent(Empty {}), &[]).expect("sent");
        }
        kept.push(kept_waiting);
        host.status();
    }
    host.wait_for("the end of those", |status| apps(status) == 0);
    let other = host.app();
    let _channel = other.attach();
    assert!(matches!(other.listen(7000), Reply::Listening(_)));
    // Root's spare threads are in use, and what is not closed counts.
    for _ in 0..5 {
        let app = host.app();
        let _channel = app.attach();
        app.begin_memory(BYTES);
    }
    let (code, message) = other.refusal(&add(BYTES));
    assert_eq!(code, Code::Limit, "{message}");
    // Resets end the waiting.
    drop(kept);
    other.begin_in_time(BYTES);
}

/// Else it would wait for an answer for good.
#[test]
fn the_app_whose_memory_a_bug_is_about_is_told() {
    let (socket, _app) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let socket = File::new(socket.into(), Account::new(0, SpareThreads::new("a test")));
    let done = Inlet { memory: 7, socket }.emptied(|_| panic!("a test"));
    let Done::Taken { memory: 7, taken: Err(refusal) } = done else { panic!("not told") };
    assert_eq!(refusal.code, Code::Internal);
}
