use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use super::*;

/// Nothing here takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

fn seqpacket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn send(socket: &OwnedFd, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = [io::IoSlice::new(b"x")];
    rustix::net::sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL)
}

/// A socket whose last `close` waits for an hour: what was sent is never read. With it comes the
/// other end, which keeps it waiting.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &sender, &[0; 1 << 16]).is_ok() {}
    set_socket_linger(&sender, Some(Duration::from_secs(3600))).unwrap();
    (sender, receiver)
}

/// Waits for a word from somebody else, in vain if that one is stuck.
fn hear<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("somebody is stuck")
}

fn says<T: Send + 'static>(to: &Sender<T>, word: T) -> impl FnOnce() + Send + 'static {
    let to = to.clone();
    move || to.send(word).unwrap()
}

/// What the design relies on: connections take the refusal over from the listening socket, so that
/// there is no moment at which a descriptor could slip in. Needs Linux 6.16.
#[test]
fn connections_inherit_that_descriptors_are_refused() {
    let listener = seqpacket();
    assert!(refuse_descriptors(&listener), "this kernel cannot refuse descriptors");
    let name = format!("clearway-strangers-{}", std::process::id());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let stranger = seqpacket();
    rustix::net::connect(&stranger, &address).unwrap();
    let own = listener.as_fd();
    assert_eq!(send(&stranger, &[own]), Err(Errno::PERM), "before it is accepted");
    let accepted = rustix::net::accept_with(&listener, SocketFlags::NONBLOCK).unwrap();
    assert_eq!(send(&stranger, &[own]), Err(Errno::PERM), "after");
    send(&stranger, &[]).unwrap();
    accept_descriptors(&accepted);
    send(&stranger, &[own]).unwrap();
}

#[test]
fn dropping_a_strangers_socket_never_waits() {
    let pool = SpareThreads::new("test");
    let (told, word) = channel();
    let mut kept = Vec::new();
    for _ in 0..8 {
        let (ours, theirs) = pair();
        let (slow, kept_waiting) = slow_to_close();
        send(&theirs, &[slow.as_fd()]).unwrap();
        drop(slow);
        kept.push((kept_waiting, theirs));
        let (told, pool) = (told.clone(), pool.clone());
        std::thread::spawn(move || {
            drop(Socket::of(7, ours, pool));
            told.send(()).unwrap();
        });
    }
    (0..8).for_each(|_| hear(&word));
}

/// Two threads per user are stuck, and everybody else's work is done.
#[test]
fn one_user_cannot_hold_up_another() {
    let pool = SpareThreads::new("test");
    let (told, word) = channel();
    let (let_go, gate) = channel::<()>();
    let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
    for _ in 0..WAITING {
        let (gate, told) = (gate.clone(), told.clone());
        pool.run(1, move || {
            let _ = gate.lock().unwrap().recv();
            told.send(1).unwrap();
        });
    }
    assert!(!pool.has_room(), "nobody else is let in");
    for _ in 0..100 {
        pool.run(2, says(&told, 2));
    }
    (0..100).for_each(|_| assert_eq!(hear(&word), 2));
    drop(let_go);
    (0..WAITING).for_each(|_| assert_eq!(hear(&word), 1));
    pool.run(1, says(&told, 3));
    assert_eq!(hear(&word), 3, "and is served again afterwards");
    assert!(pool.has_room());
}

/// More than a user may have waiting and at work.
const WAITING: usize = 260;

#[test]
fn a_job_that_panics_takes_nobody_along() {
    let pool = SpareThreads::new("test");
    let (told, word) = channel();
    for _ in 0..100 {
        pool.run(1, || panic!("a job of this test"));
    }
    pool.run(1, says(&told, ()));
    hear(&word);
}
