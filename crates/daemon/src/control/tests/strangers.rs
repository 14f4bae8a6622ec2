//! Descriptors that a stranger sends, and memory that it keeps in its hands.

use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use rustix::fs::FallocateFlags;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, recv, sendmsg};

use super::*;
use crate::broker::Broker;
use crate::control::REFUSED_PER_USER_MAX;
use crate::control::descriptors::Descriptors;

/// The user that owns nothing.
const NOBODY: u32 = 65534;
/// One that the policy of these tests names.
const NAMED: u32 = 12345;

/// Connects as this user, so many times. Credentials are those of the thread that connects.
fn connected_as(user: u32, host: &Live, count: usize) -> Vec<App> {
    let path = host.path();
    let work = move || {
        let user = rustix::thread::Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).expect("root becomes anybody");
        (0..count).map(|_| connected(&path)).collect()
    };
    std::thread::spawn(work).join().expect("no panic")
}

/// Whether the daemon has said something that was not read yet.
fn has_heard(app: &App) -> bool {
    let mut byte = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(&app.socket, &mut byte, flags).is_ok()
}

/// A socket whose closing waits for an hour, and what keeps it waiting.
pub(super) fn slow_socket() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let slow = TcpStream::connect(listener.local_addr().expect("its address")).expect("connected");
    let (kept_waiting, _) = listener.accept().expect("accepted");
    slow.set_nonblocking(true).expect("non-blocking");
    while (&slow).write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&slow, Some(Duration::from_secs(3600))).expect("a linger time");
    (slow, kept_waiting)
}

/// Sends a request with the last reference to such a socket. What keeps it waiting is returned.
fn send_slow(app: &App) -> rustix::io::Result<TcpStream> {
    let (slow, kept_waiting) = slow_socket();
    let descriptors = [slow.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let request = serde_json::to_vec(&Request::Status(Empty {})).expect("JSON");
    let request = [IoSlice::new(&request)];
    let sent = sendmsg(&app.socket, &request, &mut ancillary, SendFlags::NOSIGNAL);
    if sent.is_err() {
        // Else it is this thread that waits.
        set_socket_linger(&slow, None).expect("no linger time");
    }
    // Elsewhere, for the daemon may be done with it already.
    std::thread::spawn(move || drop(slow));
    sent.map(|_| kept_waiting)
}

/// Reads until the daemon hangs up. A socket that is closed with unread packets tells so first.
fn wait_for_end(app: &App) {
    loop {
        match app.reply() {
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}

/// Stops a host, which has to end though it was never let go.
fn stop_in_time(mut host: Live) {
    let (told, word) = channel();
    std::thread::spawn(move || {
        host.stop();
        told.send(host)
    });
    drop(word.recv_timeout(PATIENCE).expect("it ends in time"));
}

/// This kernel (Linux 6.16 or newer) keeps descriptors out; those who send one are told, and
/// nothing else happens.
#[test]
fn descriptors_do_not_even_arrive() {
    let host = Live::start(Limits::default());
    let app = host.app();
    assert_eq!(send_slow(&app).expect_err("refused"), rustix::io::Errno::PERM);
    assert_eq!(apps(&app.status()), 0);
}

/// Where the kernel cannot do that: sessions that are read, that are not, that are refused, and
/// those that nobody has accepted yet when the host ends.
#[test]
fn on_older_kernels_descriptors_hold_nobody_up() {
    let limits = Limits { sessions_per_user: 200, ..Limits::default() };
    let host = Live::start_with_older_kernel(limits);
    let (mut kept, attached) = (Vec::new(), host.app());
    let _channel = attached.attach();
    for _ in 0..20 {
        let app = host.app();
        kept.push(send_slow(&app).expect("sent"));
        wait_for_end(&app);
        // A request is worked on, and the next waits in the socket when the app goes.
        let app = host.app();
        control::send(&app.socket, &ping("10.9.0.9", 9, 900), &[]).expect("sent");
        kept.push(send_slow(&app).expect("sent"));
        drop(app);
        assert!(matches!(attached.listen(7000), Reply::Listening(_) | Reply::Error(_)));
    }
    assert_eq!(apps(&host.status()), 1);
    let waiting = host.app();
    kept.push(send_slow(&waiting).expect("sent"));
    stop_in_time(host);
}

/// Refused users are heard as well, so that they find out why.
#[test]
fn on_older_kernels_refused_users_hold_nobody_up() {
    let host = Live::start_with_older_kernel(Limits::default());
    let path = host.path();
    let (told, word) = channel();
    // Credentials are those of the thread that connects.
    std::thread::spawn(move || {
        let user = rustix::thread::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(user, user, user).expect("root becomes anybody");
        let apps: Vec<App> = (0..REFUSED_PER_USER_MAX).map(|_| connected(&path)).collect();
        let kept: Vec<_> = apps.iter().map(send_slow).collect();
        apps.iter().for_each(wait_for_end);
        told.send(kept.into_iter().all(|sent| sent.is_ok()))
    });
    assert_eq!(word.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(apps(&host.status()), 0);
    stop_in_time(host);
}

/// Of a user that is refused a few connections are held until they ask; further ones are told and
/// closed. Other users have as many.
#[test]
fn refused_connections_of_one_user_are_few_and_leave_room_for_others() {
    let host = Live::start(Limits::default());
    let crowd = connected_as(NOBODY, &host, REFUSED_PER_USER_MAX + 5);
    let (held, told) = crowd.split_at(REFUSED_PER_USER_MAX);
    for app in told {
        let reply = app.reply().expect("in time");
        assert!(matches!(reply, Some(Reply::Error(refusal)) if refusal.code == Code::Denied));
        wait_for_end(app);
    }
    let others = connected_as(NOBODY - 1, &host, REFUSED_PER_USER_MAX);
    // By then the daemon has seen all who came before.
    assert_eq!(apps(&host.status()), 0);
    assert!(!held.iter().chain(&others).any(has_heard), "they are held");
    for app in held.iter().chain(&others) {
        assert_eq!(app.refusal(&Request::Status(Empty {})).0, Code::Denied);
        wait_for_end(app);
    }
    let again = connected_as(NOBODY, &host, REFUSED_PER_USER_MAX);
    assert_eq!(apps(&host.status()), 0);
    assert!(!again.iter().any(has_heard), "the places are free again");
}

/// Each user has a few sessions that may have the daemon send at the same time.
#[test]
fn a_users_pings_are_bounded() {
    let host = Live::start(Limits::default());
    let mut apps = connected_as(NAMED, &host, 9);
    let last = apps.pop().expect("nine");
    for app in &apps {
        control::send(&app.socket, &ping("10.9.0.2", 2, 60_000), &[]).expect("sent");
        assert!(matches!(app.reply(), Ok(Some(Reply::Pong(_)))), "it has begun");
    }
    let (code, text) = last.refusal(&ping("10.9.0.2", 1, 1));
    assert_eq!(code, Code::Limit);
    assert!(text.contains("other sessions of this user"), "{text}");
    assert!(matches!(host.app().ask(&ping("10.9.0.2", 1, 1)), Reply::Pong(_)), "another's");
    drop(apps.pop());
    host.wait_for("its end", |status| status["sessions"] == 9);
    assert!(matches!(last.ask(&ping("10.9.0.2", 1, 1)), Reply::Pong(_)));
}

/// When users have taken all open files but those that are reserved, they are told, and
/// administrators find room.
#[test]
fn the_last_open_files_are_for_administrators() {
    let used_up = |host: &mut Host| host.control.descriptors = Descriptors::used_up();
    let host = Live::start_as(Limits::default(), 1, used_up);
    let user = connected_as(NAMED, &host, 1).remove(0);
    let (code, text) = user.refusal(&Request::Status(Empty {}));
    assert_eq!(code, Code::Limit);
    assert!(text.contains("no open files left") && text.contains("LimitNOFILE="), "{text}");
    let administrator = host.app();
    let _channel = administrator.attach();
    assert_eq!(channels(&host.status()), 1);
    let roomy = Live::start(Limits::default());
    connected_as(NAMED, &roomy, 1).remove(0).status();
}

/// Nobody waits for what a broker would say that has gone, and administrators come in as ever.
#[test]
fn who_needs_a_broker_that_has_gone_is_told() {
    let host = Live::start_as(Limits::default(), 1, |host| {
        let broker = Broker::gone().expect("pairs of sockets");
        host.control.serve_by(broker).expect("it is watched");
        host.control.config.policy.groups = vec![NAMED];
    });
    let user = connected_as(NAMED, &host, 1).remove(0);
    let reply = user.reply().expect("in time");
    let Some(Reply::Error(refusal)) = reply else { panic!("{reply:?}") };
    assert_eq!(refusal.code, Code::DaemonGone, "{}", refusal.message);
    wait_for_end(&user);
    let (code, text) = host.app().refusal(&Request::Reload(Empty {}));
    assert_eq!(code, Code::DaemonGone);
    assert!(text.contains("restart the daemon"), "{text}");
    host.app().attach();
}

/// An app that never says that it has mapped its memory, or says so and has not sealed it, never
/// gets an engine; what it holds comes back.
#[test]
fn memory_that_an_app_keeps_in_its_hands_never_gets_to_an_engine() {
    let limits = Limits { channels_total: 1, ..Limits::default() };
    let host = Live::start(limits);
    let attach = Request::Attach(Attach::new("hands on", None, SMALL));
    let first = host.app();
    let listen = Request::Listen(Listen { address: None, port: 7000 });
    assert_eq!(first.refusal(&Request::Mapped(Empty {})).0, Code::Invalid);
    control::send(&first.socket, &attach, &[]).expect("sent");
    let packet = control::receive(&first.socket).expect("in time").expect("an answer");
    assert!(matches!(Reply::parse(&packet.bytes), Ok(Reply::Attached(_))));
    assert_eq!(channels(&host.status()), 0);
    assert_eq!(first.refusal(&listen).0, Code::Invalid);
    assert!(first.refusal(&attach).1.contains("already"));
    let second = host.app();
    assert_eq!(second.refusal(&attach).0, Code::Limit, "it counts");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let bytes = SMALL.total_bytes() as u64;
    rustix::fs::fallocate(&packet.descriptors[0], hole, 0, bytes).expect("a hole");
    let (code, text) = first.refusal(&Request::Mapped(Empty {}));
    assert_eq!(code, Code::Violation);
    assert!(text.contains("not sealed") && text.contains("app library"), "{text}");
    first.wait_for_end();
    // The place is free once the memory is.
    let deadline = Instant::now() + PATIENCE;
    let third = loop {
        let third = host.app();
        control::send(&third.socket, &attach, &[]).expect("sent");
        let packet = control::receive(&third.socket).expect("in time").expect("an answer");
        match Reply::parse(&packet.bytes) {
            Ok(Reply::Attached(_)) => break third,
            _ => assert!(Instant::now() < deadline, "the place never comes back"),
        }
    };
    drop(third);
    host.wait_for("the end of the others", |status| status["sessions"] == 2);
    second.attach();
}
