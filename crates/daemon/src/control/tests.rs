//! A live control plane over an engine on a memif without a peer.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_base::Random;
use clearway_channel::control::{
    self, Attach, Attached, Empty, Listen, Listening, Ping, Probe, Refusal, Reply, Request,
    Unlisten,
};
use clearway_channel::{AppEnd, Code, Command, Handover, ReleaseList, Sizes, Understood};
use clearway_engine::{Clock, Group, Idle};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use super::Stopper;
use crate::config::{Config, Limits, Memif, MemifRole, Network, Nic, Policy};
use crate::{Error, Host};

/// Nothing in these tests takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

const SMALL: Sizes = Sizes {
    submission_entries: 16,
    completion_entries: 16,
    transmit_pool_bytes: 1 << 16,
    receive_pool_bytes: 1 << 16,
    shared_bytes: 0,
};

/// A host in this process.
struct Live {
    directory: PathBuf,
    stopper: Stopper,
    control: Option<JoinHandle<Result<(), Error>>>,
    group: Option<JoinHandle<()>>,
}

impl Live {
    fn start(limits: Limits) -> Self {
        Self::start_with(limits, 1)
    }

    fn start_with(limits: Limits, engines: usize) -> Self {
        Self::start_as(limits, engines, |_| ())
    }

    /// As on a kernel that cannot refuse descriptors, and with a socket that everybody may connect
    /// to.
    fn start_with_older_kernel(limits: Limits) -> Self {
        Self::start_as(limits, 1, |host| {
            let listener = host.control.listener.as_mut().expect("it listens");
            listener.accept_descriptors();
        })
    }

    fn start_as(limits: Limits, engines: usize, prepare: impl FnOnce(&mut Host)) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearway-control-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let mut link = Memif::new(format!("@{}", directory.display()), MemifRole::Server);
        link.queue_pairs = engines as u16;
        let address = Network { address: [10, 9, 0, 1].into(), prefix_bits: 24 };
        let mut config = Config {
            nics: vec![Nic { engines, ..Nic::memif("link", link, address) }],
            policy: Policy { limits, users: vec![12345], ..Policy::default() },
            ..Config::default()
        };
        config.control.socket = directory.join("control.sock");
        let clock = Clock::new();
        let mut host = Host::open(&config, &clock).expect("a host");
        prepare(&mut host);
        let stopper = host.control.stopper();
        let control = std::thread::spawn(move || host.control.run());
        let group = std::thread::spawn(move || Group::new(host.engines, Idle::Block, clock).run());
        Self { directory, stopper, control: Some(control), group: Some(group) }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    fn app(&self) -> App {
        connected(&self.path())
    }

    fn status(&self) -> serde_json::Value {
        self.app().status()
    }

    /// Waits until the status is as wanted.
    fn wait_for(&self, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if wanted(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "{what} did not happen: {status:#}");
            std::thread::yield_now();
        }
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(control) = self.control.take() {
            control.join().expect("no panic").expect("an orderly end");
        }
        if let Some(group) = self.group.take() {
            group.join().expect("no panic");
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
            assert!(!self.path().exists(), "the control socket is left behind");
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn connected(path: &Path) -> App {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("an address")).expect("connected");
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("a timeout");
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE)).expect("a timeout");
    App { socket }
}

/// The app's side of the control socket, without manners.
struct App {
    socket: OwnedFd,
}

impl App {
    fn raw(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        send(&self.socket, bytes, SendFlags::NOSIGNAL)
    }

    fn reply(&self) -> io::Result<Option<Reply>> {
        let packet = control::receive(&self.socket)?;
        Ok(packet.map(|packet| Reply::parse(&packet.bytes).expect("a reply")))
    }

    fn ask(&self, request: &Request) -> Reply {
        control::send(&self.socket, request, &[]).expect("sent");
        self.reply().expect("an answer in time").expect("an answer")
    }

    /// The whole status, all parts of it.
    fn status(&self) -> serde_json::Value {
        control::send(&self.socket, &Request::Status(Empty {}), &[]).expect("sent");
        self.status_reply()
    }

    fn status_reply(&self) -> serde_json::Value {
        let mut text = String::new();
        loop {
            match self.reply().expect("an answer in time").expect("an answer") {
                Reply::Status(part) => {
                    text += &part.text;
                    if !part.more {
                        return serde_json::from_str(&text).expect("JSON");
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn refusal(&self, request: &Request) -> (Code, String) {
        match self.ask(request) {
            Reply::Error(refusal) => (refusal.code, refusal.message),
            other => panic!("{request:?} was answered with {other:?}"),
        }
    }

    fn attach(&self) -> (Attached, AppEnd) {
        self.attach_as(Attach::new("test", None, SMALL))
    }

    /// As soon as there is room: the memory of channels that are gone is given back by threads of
    /// its own.
    fn attach_in_time(&self) -> (Attached, AppEnd) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_attach(Attach::new("test", None, SMALL)) {
                Ok(attached) => return attached,
                Err(refusal) => {
                    assert_eq!(refusal.code, Code::Limit, "{}", refusal.message);
                    assert!(Instant::now() < deadline, "{}", refusal.message);
                }
            }
            std::thread::yield_now();
        }
    }

    fn attach_as(&self, attach: Attach) -> (Attached, AppEnd) {
        self.try_attach(attach).unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    fn try_attach(&self, attach: Attach) -> Result<(Attached, AppEnd), Refusal> {
        control::send(&self.socket, &Request::Attach(attach), &[]).expect("sent");
        let packet = control::receive(&self.socket).expect("in time").expect("an answer");
        let attached = match Reply::parse(&packet.bytes).expect("a reply") {
            Reply::Attached(attached) => attached,
            Reply::Error(refusal) => return Err(refusal),
            other => panic!("{other:?}"),
        };
        let [memory, daemon, app]: [OwnedFd; 3] =
            packet.descriptors.try_into().expect("three descriptors");
        let handover = Handover { memory, daemon_doorbell: daemon, app_doorbell: app };
        let end = AppEnd::open(handover, SMALL).expect("a channel");
        assert_eq!(self.ask(&Request::Mapped(Empty {})), Reply::Mapped(Empty {}));
        Ok((attached, end))
    }

    fn listen(&self, port: u16) -> Reply {
        self.ask(&Request::Listen(Listen { address: None, port }))
    }

    /// Reads until the daemon hangs up.
    fn wait_for_end(&self) {
        while self.reply().expect("the end in time").is_some() {}
    }
}

fn apps(status: &serde_json::Value) -> usize {
    status["apps"].as_array().map_or(0, Vec::len)
}

fn channels(status: &serde_json::Value) -> usize {
    status["engines"][0]["channels"].as_array().map_or(0, Vec::len)
}

#[test]
fn attach_listen_unlisten() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let (attached, _end) = app.attach();
    assert_eq!((attached.engine, attached.sizes), (0, SMALL));
    let Reply::Listening(Listening { listener, address }) = app.listen(7000) else { panic!() };
    assert_eq!(address.port(), 7000);
    let Reply::Listening(Listening { address, .. }) = app.listen(0) else { panic!() };
    assert!(address.port() >= 49152);
    let unlisten = Request::Unlisten(Unlisten { listener });
    assert_eq!(app.ask(&unlisten), Reply::Unlistened(Empty {}));
    assert_eq!(app.refusal(&unlisten).0, Code::Invalid);
    assert!(matches!(app.listen(7000), Reply::Listening(_)));
}

#[test]
fn port_belongs_to_the_first_until_it_is_gone() {
    let host = Live::start(Limits::default());
    let (first, second) = (host.app(), host.app());
    let _channels = (first.attach(), second.attach());
    assert!(matches!(first.listen(7000), Reply::Listening(_)));
    let listen = Request::Listen(Listen { address: None, port: 7000 });
    assert_eq!(second.refusal(&listen).0, Code::AddressInUse);
    drop(first);
    host.wait_for("the end of the first app", |status| channels(status) == 1);
    assert!(matches!(second.listen(7000), Reply::Listening(_)));
}

#[test]
fn requests_out_of_turn_are_refused_and_the_session_lives_on() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let listen = Request::Listen(Listen { address: None, port: 7000 });
    assert!(app.refusal(&listen).1.contains("attach"));
    assert_eq!(app.refusal(&Request::Unlisten(Unlisten { listener: 1 })).0, Code::Invalid);
    let odd = Attach::new("odd", None, Sizes { submission_entries: 17, ..SMALL });
    assert!(app.refusal(&Request::Attach(odd)).1.contains("power of two"));
    let nowhere = Attach::new("nowhere", Some("9".into()), SMALL);
    assert!(app.refusal(&Request::Attach(nowhere)).1.contains("no engine \"9\""));
    let layout = Understood::Hash("0".into());
    let old = Attach { layout, ..Attach::new("old", None, SMALL) };
    assert_eq!(app.refusal(&Request::Attach(old)).0, Code::Mismatch);
    let _channel = app.attach();
    let again = Request::Attach(Attach::new("again", None, SMALL));
    assert!(app.refusal(&again).1.contains("already"));
    assert!(matches!(app.listen(7000), Reply::Listening(_)));
}

#[test]
fn limits_are_enforced_and_everything_comes_back() {
    let limits = Limits { channels_total: 2, listeners_per_channel: 2, ..Limits::default() };
    let host = Live::start(limits);
    for _ in 0..3 {
        let (first, second, third) = (host.app(), host.app(), host.app());
        let _channels = (first.attach_in_time(), second.attach_in_time());
        let attach = Request::Attach(Attach::new("third", None, SMALL));
        let (code, message) = third.refusal(&attach);
        assert_eq!(code, Code::Limit);
        assert!(message.contains("channels_total"), "{message}");
        assert!(matches!(first.listen(7001), Reply::Listening(_)));
        assert!(matches!(first.listen(7002), Reply::Listening(_)));
        let listen = Request::Listen(Listen { address: None, port: 7003 });
        assert_eq!(first.refusal(&listen).0, Code::Limit);
        drop((first, second, third));
        host.wait_for("the return of both channels", |status| {
            channels(status) == 0 && apps(status) == 0
        });
    }
    host.app().attach_in_time();
}

#[test]
fn sessions_over_the_limit_are_told_and_closed() {
    let host = Live::start(Limits { sessions_per_user: 3, ..Limits::default() });
    let apps = [host.app(), host.app(), host.app()];
    let fourth = host.app();
    assert_eq!(fourth.refusal(&Request::Status(Empty {})).0, Code::Limit);
    fourth.wait_for_end();
    let _channel = apps[2].attach();
}

/// Nobody waits in line for nothing: those that are refused hold no place.
#[test]
fn refused_sessions_are_bounded_and_harmless() {
    let host = Live::start(Limits { sessions_per_user: 1, ..Limits::default() });
    let first = host.app();
    let _channel = first.attach();
    let crowd: Vec<App> = (0..super::REFUSED_MAX + 10).map(|_| host.app()).collect();
    let last = crowd.last().expect("somebody");
    let Ok(Some(Reply::Error(refusal))) = last.reply() else { panic!("no refusal") };
    assert_eq!(refusal.code, Code::Limit);
    assert_eq!(crowd[0].refusal(&Request::Status(Empty {})).0, Code::Limit);
    drop(crowd);
    assert!(matches!(first.listen(7000), Reply::Listening(_)));
}

/// Without open files none is accepted for a while; a host that ends meanwhile is not kept awake by
/// that.
#[test]
fn a_host_that_ends_accepts_nobody_later() {
    drop(Live::start_as(Limits::default(), 1, |host| {
        host.control.pause_accepting(true);
        assert!(host.control.accept_again.is_some());
        host.control.begin_shutdown("a test");
        assert_eq!(host.control.accept_again, None);
    }));
}

#[test]
fn status_shows_host_engines_and_apps() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let (attached, _end) = app.attach();
    let Reply::Listening(_) = app.listen(7000) else { panic!() };
    let status = host.status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["process"], std::process::id());
    assert_eq!(status["engines"][0]["addresses"][0], "10.9.0.1/24");
    assert_eq!(status["engines"][0]["queues"][0]["driver"], "memif");
    assert_eq!(status["engines"][0]["listeners"][0]["port"], 7000);
    assert_eq!(status["apps"][0]["app"], "test");
    assert_eq!(status["apps"][0]["channel"], attached.channel);
    assert_eq!(status["apps"][0]["process"], std::process::id());
    assert_eq!(status["apps"][0]["user"], rustix::process::getuid().as_raw());
    assert_eq!(status["apps"][0]["memory_bytes"], SMALL.total_bytes());
}

/// The engines are asked once for all who want to know.
#[test]
fn status_requests_that_come_together_are_answered_together() {
    let host = Live::start(Limits::default());
    let apps: Vec<App> = (0..8).map(|_| host.app()).collect();
    for app in &apps {
        control::send(&app.socket, &Request::Status(Empty {}), &[]).expect("sent");
    }
    let mut times: Vec<u64> =
        apps.iter().map(|app| app.status_reply()["clock_ns"].as_u64().expect("a time")).collect();
    times.sort_unstable();
    times.dedup();
    assert!(times.len() <= 4, "{times:?}");
}

#[test]
fn ping_of_a_host_that_is_not_there_ends() {
    let host = Live::start(Limits::default());
    let app = host.app();
    control::send(&app.socket, &ping("10.9.0.2", 2, 1), &[]).expect("sent");
    for (number, last) in [(1, false), (2, true)] {
        let Ok(Some(Reply::Pong(pong))) = app.reply() else { panic!("no answer") };
        assert_eq!((pong.number, pong.last), (number, last));
        assert!(matches!(pong.probe, Probe::Lost | Probe::NoNeighbour), "{pong:?}");
    }
    // The session is there for the next request.
    assert_eq!(app.refusal(&ping("fd00::1", 1, 1)).0, Code::Unreachable);
}

fn ping(peer: &str, count: u32, interval_ms: u32) -> Request {
    Request::Ping(Ping {
        peer: peer.parse().expect("an address"),
        zone: None,
        udp_port: None,
        count,
        interval_ms,
        eager: false,
        timeout_ms: 100,
        bytes: 64,
    })
}

/// Each says what to look at.
#[test]
fn ping_of_what_cannot_be_reached_is_refused_with_the_reason() {
    let host = Live::start(Limits::default());
    let (code, text) = host.app().refusal(&ping("10.9.0.1", 1, 1));
    assert_eq!(code, Code::Invalid);
    assert!(text.contains("address of this host itself"), "{text}");
    let (code, text) = host.app().refusal(&ping("192.0.2.1", 1, 1));
    assert_eq!(code, Code::Unreachable);
    assert!(text.contains("no route") && text.contains("ip route"), "{text}");
    let Request::Ping(large) = ping("10.9.0.2", 1, 1) else { unreachable!() };
    let (code, text) = host.app().refusal(&Request::Ping(Ping { bytes: 60_000, ..large }));
    assert_eq!(code, Code::TooLarge);
    assert!(text.contains("60000 bytes are more than a packet"), "{text}");
    let Request::Ping(zoned) = ping("10.9.0.2", 1, 1) else { unreachable!() };
    let zoned = Ping { zone: Some("eth1".into()), ..zoned };
    let (code, text) = host.app().refusal(&Request::Ping(zoned));
    assert_eq!(code, Code::Unreachable);
    assert!(text.contains("no NIC of this host is the interface \"eth1\""), "{text}");
}

/// One that does not read what it asked for holds up nobody, and loses nothing of it.
#[test]
fn an_app_that_does_not_read_its_pongs_is_told_them_later() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let Request::Ping(fast) = ping("10.9.0.2", 2000, 0) else { unreachable!() };
    let fast = Request::Ping(Ping { timeout_ms: 0, ..fast });
    control::send(&app.socket, &fast, &[]).expect("sent");
    let (mut seen, mut last) = (Vec::new(), false);
    host.wait_for("others are served", |status| status["sessions"] == 2);
    while !last {
        let Ok(Some(Reply::Pong(pong))) = app.reply() else { panic!("no answer") };
        seen.push(pong.number);
        last = pong.last;
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=2000).collect::<Vec<_>>());
}

#[test]
fn session_that_waits_for_a_ping_may_die() {
    let host = Live::start(Limits::default());
    let app = host.app();
    control::send(&app.socket, &ping("10.9.0.2", 1000, 60_000), &[]).expect("sent");
    host.wait_for("the session", |status| status["sessions"] == 2);
    drop(app);
    host.wait_for("the end of the session", |status| status["sessions"] == 1);
}

#[test]
fn an_app_that_breaks_its_channel_is_told_why_and_ended_and_no_other() {
    let host = Live::start(Limits::default());
    let (good, bad) = (host.app(), host.app());
    let _good_end = good.attach();
    let (_, mut bad_end) = bad.attach();
    // A buffer that it was never given.
    let mut buffers = ReleaseList::default();
    buffers.push(77);
    bad_end.submit_untrue(&Command::Release { buffers }).expect("room");
    bad_end.flush();
    let Ok(Some(Reply::Error(refusal))) = bad.reply() else { panic!("no reason given") };
    assert_eq!(refusal.code, Code::Violation);
    assert!(refusal.message.contains("77"), "{}", refusal.message);
    bad.wait_for_end();
    host.wait_for("the end of its channel", |status| channels(status) == 1);
    assert!(matches!(good.listen(7000), Reply::Listening(_)));
}

#[test]
fn shutdown_tells_apps_and_leaves_nothing() {
    let mut host = Live::start(Limits::default());
    let app = host.app();
    let _channel = app.attach();
    host.stop();
    let Ok(Some(Reply::Error(refusal))) = app.reply() else { panic!("no reason given") };
    assert_eq!(refusal.code, Code::DaemonGone);
    app.wait_for_end();
}

/// Random bytes, valid requests with random bytes changed, and cut requests; others are served
/// meanwhile.
#[test]
fn garbage_disturbs_nobody() {
    let host = Live::start(Limits::default());
    let good = host.app();
    let _channel = good.attach();
    let mut random = Random::new(20707);
    let valid: Vec<Vec<u8>> = [
        Request::Attach(Attach::new("x", Some("0".into()), SMALL)),
        Request::Listen(Listen { address: None, port: 7001 }),
        Request::Unlisten(Unlisten { listener: 1 }),
        Request::Status(Empty {}),
        ping("10.9.0.2", 1, 0),
    ]
    .iter()
    .map(|request| serde_json::to_vec(request).expect("JSON"))
    .collect();
    for round in 0..300 {
        let app = host.app();
        for _ in 0..random.below(6) {
            let mut bytes = valid[random.below(valid.len() as u64) as usize].clone();
            match random.below(3) {
                0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                1 => {
                    for _ in 0..=random.below(4) {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] = random.next_u32() as u8;
                    }
                }
                _ => bytes = (0..random.below(300)).map(|_| random.next_u32() as u8).collect(),
            }
            if app.raw(&bytes).is_err() {
                break;
            }
        }
        drop(app);
        if round % 50 == 0 {
            let Reply::Listening(Listening { listener, .. }) = good.listen(7000) else { panic!() };
            good.ask(&Request::Unlisten(Unlisten { listener }));
        }
    }
    host.wait_for("the end of all strangers", |status| {
        apps(status) == 1 && channels(status) == 1 && status["sessions"] == 2
    });
}

#[test]
fn malformed_requests_are_answered_until_there_are_too_many() {
    let host = Live::start(Limits::default());
    let app = host.app();
    for _ in 0..16 {
        app.raw(b"{}").expect("sent");
        let Ok(Some(Reply::Error(refusal))) = app.reply() else { panic!("no answer") };
        assert_eq!(refusal.code, Code::Invalid);
    }
    app.raw(b"{}").expect("sent");
    app.wait_for_end();
}

#[test]
fn oversized_packet_is_refused() {
    let host = Live::start(Limits::default());
    let app = host.app();
    app.raw(&vec![b' '; control::PACKET_BYTES_MAX + 1]).expect("sent");
    let Ok(Some(Reply::Error(refusal))) = app.reply() else { panic!("no answer") };
    assert!(refusal.message.contains("limit"), "{}", refusal.message);
}

/// An app that floods requests and never reads a reply loses its session; others do not notice.
#[test]
fn flood_without_reading_ends_the_session() {
    let host = Live::start(Limits::default());
    let flood = host.app();
    let status = serde_json::to_vec(&Request::Status(Empty {})).expect("JSON");
    let deadline = Instant::now() + PATIENCE;
    while flood.raw(&status).is_ok() {
        assert!(Instant::now() < deadline, "the flood was never stopped");
    }
    host.wait_for("the end of the flood", |status| status["sessions"] == 1);
}

/// What an app that takes its time gets is whole, and it can ask again.
#[test]
fn status_of_many_apps_is_told_in_parts() {
    const APPS: usize = 200;
    let limits = Limits { channels_total: APPS, channels_per_user: APPS, ..Limits::default() };
    let host = Live::start(limits);
    let name = "n".repeat(control::APP_NAME_BYTES_MAX);
    let apps: Vec<App> = (0..APPS).map(|_| host.app()).collect();
    let attach = |app: &App| app.attach_as(Attach::new(&name, None, SMALL));
    let _channels: Vec<_> = apps.iter().map(attach).collect();
    for _ in 0..3 {
        let status = apps[0].status();
        assert!(status.to_string().len() > control::PACKET_BYTES_MAX);
        assert_eq!(status["apps"].as_array().map(Vec::len), Some(APPS));
        assert_eq!(status["engines"][0]["channels"].as_array().map(Vec::len), Some(APPS));
        assert_eq!(status["flows_omitted"], 0);
    }
    // Who asks and does not read holds up nobody.
    control::send(&apps[1].socket, &Request::Status(Empty {}), &[]).expect("sent");
    assert_eq!(host.status()["sessions"], APPS + 1);
}

mod memories;
mod placing;
mod plugging;
mod reload;
mod steering;
mod strangers;
mod vifs;
