//! A daemon in a thread, without engine or network: it echoes, and does on demand what a real one
//! does on bad days.

#![allow(dead_code)] // Each test program uses its own part.

pub(crate) mod engine;
pub(crate) mod programs;
pub(crate) mod vifs;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_channel::control::{
    self, Attached, Empty, Leave, Listening, MemoryAdded, Reply, Request,
};
use clearway_channel::{
    Code, Command, Completion, Counters, DaemonEnd, Shared, Unposted, Versions,
};
use clearway_client::{Channel, ConnectionId, Options, Sizes, Waiting};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections to this port are echoed.
pub(crate) const ECHO: u16 = 7;
/// Connections to this port are refused.
pub(crate) const REFUSED: u16 = 9;
/// Connections to this port are answered when `Order::AnswerLate` comes.
pub(crate) const LATE: u16 = 11;
/// Connections to this port are opened and reset.
pub(crate) const RESET: u16 = 13;
/// A connection to this port is opened, and then nothing is taken any more, as by `Order::Pause`.
pub(crate) const PAUSE: u16 = 15;
/// What is sent to this port is taken, and nothing comes back.
pub(crate) const SINK: u16 = 17;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));
pub(crate) const NOW: Option<Duration> = Some(Duration::ZERO);

/// What a test tells the daemon to do.
pub(crate) enum Order {
    /// A peer connects to a listener.
    Accept {
        listener: u32,
        connection: u64,
    },
    /// A message comes by a connection.
    Deliver {
        connection: u64,
        bytes: Vec<u8>,
    },
    /// The peer closes or resets.
    Close {
        connection: u64,
        code: Code,
    },
    /// Frames come to a virtual interface.
    Frames {
        vif: u32,
        frames: Vec<Vec<u8>>,
    },
    /// The daemon takes a virtual interface away.
    CloseVif {
        vif: u32,
        code: Code,
    },
    /// Take no commands until `Resume`.
    Pause,
    Resume,
    /// Answer the connects to `LATE`.
    AnswerLate,
    /// Attempts to connect by TCP have failed.
    FailTcp,
    /// Answer no requests any more.
    Ignore,
    /// Tell what the channel has counted.
    Count(Sender<Counters>),
    /// Tell what it was last sent.
    Tell(Sender<Vec<u8>>),
    /// Close the channel in good order, and end.
    Shutdown,
    /// End without a word, as if killed.
    Die,
    /// Say why, and end.
    Condemn,
}

pub(crate) struct Daemon {
    pub(crate) path: PathBuf,
    orders: Sender<Order>,
    bell: OwnedFd,
    /// Ends with the last message or frame that the daemon was sent.
    thread: Option<JoinHandle<Vec<u8>>>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// A daemon that hands out the frames that are sent, instead of sending them back.
    pub(crate) fn tapped() -> (Self, Receiver<Vec<u8>>) {
        let (tap, frames) = channel();
        (Self::start_with(Some(tap)), frames)
    }

    fn start_with(tap: Option<Sender<Vec<u8>>>) -> Self {
        let path = new_path();
        let socket = listener_at(&path);
        Self::serving(path, socket, tap)
    }

    /// Another daemon in its place, which has gone.
    pub(crate) fn restart(&mut self) {
        self.join();
        std::fs::remove_file(&self.path).unwrap();
        let socket = listener_at(&self.path);
        let mut gone = std::mem::replace(self, Self::serving(self.path.clone(), socket, None));
        gone.path.clear();
    }

    fn serving(path: PathBuf, socket: OwnedFd, tap: Option<Sender<Vec<u8>>>) -> Self {
        let (orders, receiver) = channel();
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags).unwrap();
        let bell_inside = bell.try_clone().unwrap();
        let thread = std::thread::spawn(move || serve(socket, receiver, bell_inside, tap));
        Self { path, orders, bell, thread: Some(thread) }
    }

    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
    }

    pub(crate) fn counters(&self) -> Counters {
        let (sender, receiver) = channel();
        self.order(Order::Count(sender));
        receiver.recv().unwrap()
    }

    /// Waits until it has taken what was submitted: who answers for the second time has taken all
    /// that there was before the first.
    pub(crate) fn takes_all(&self) {
        self.counters();
        self.counters();
    }

    pub(crate) fn options(&self, waiting: Waiting) -> Options {
        let sizes = Sizes {
            submission_entries: 64,
            completion_entries: 64,
            transmit_pool_bytes: 1 << 18,
            receive_pool_bytes: 1 << 18,
            shared_bytes: 0,
        };
        Options { socket: self.path.clone(), waiting, sizes, ..Options::new("test") }
    }

    pub(crate) fn attach(&self) -> Channel {
        Channel::attach(&self.options(Waiting::Adaptive)).unwrap()
    }

    /// A channel with an open connection to the echo port.
    pub(crate) fn echo(&self) -> (Channel, ConnectionId) {
        let mut channel = self.attach();
        let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
        (channel, connection)
    }

    /// Waits for the last message or frame that the daemon was sent.
    pub(crate) fn heard_next(&self) -> Vec<u8> {
        let mut heard = Vec::new();
        eventually(|| {
            let (sender, receiver) = channel();
            self.order(Order::Tell(sender));
            heard = receiver.recv().unwrap();
            !heard.is_empty()
        });
        heard
    }

    /// Waits until the daemon has ended.
    pub(crate) fn join(&mut self) {
        self.thread.take().map(JoinHandle::join);
    }

    /// Waits until the daemon has ended, because its app has; the last message or frame it was
    /// sent.
    pub(crate) fn heard(mut self) -> Vec<u8> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.order(Order::Die);
        self.join();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A daemon that answers its only client with a refusal, whatever it asks, and reads nothing. Where
/// it is, and the thread that ends when it has answered.
pub(crate) fn unwilling(code: Code) -> (PathBuf, JoinHandle<()>) {
    let path = new_path();
    let listener = listener_at(&path);
    let thread = std::thread::spawn(move || {
        assert!(wait_readable(&[&listener]));
        let client = rustix::net::accept(&listener).unwrap();
        assert!(wait_readable(&[&client]));
        control::send(&client, &Reply::error(code), &[]).unwrap();
    });
    (path, thread)
}

/// A daemon that lets its only client connect, and says nothing; the thread ends with that client.
pub(crate) fn mute() -> (PathBuf, JoinHandle<()>) {
    let path = new_path();
    let listener = listener_at(&path);
    let thread = std::thread::spawn(move || {
        assert!(wait_readable(&[&listener]));
        let client = rustix::net::accept(&listener).unwrap();
        while control::receive(&client).unwrap().is_some() {}
    });
    (path, thread)
}

/// A daemon that takes nobody: who connects waits for ever. And what keeps others from it.
pub(crate) fn unreachable() -> (PathBuf, [OwnedFd; 2]) {
    let (path, unix) = (new_path(), AddressFamily::UNIX);
    let listener = listener_at(&path);
    rustix::net::listen(&listener, 0).unwrap();
    let flags = SocketFlags::CLOEXEC;
    let first = rustix::net::socket_with(unix, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&first, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    (path, [listener, first])
}

fn new_path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("clearway-fake-{}-{number}.sock", std::process::id());
    std::env::temp_dir().join(name)
}

fn listener_at(path: &std::path::Path) -> OwnedFd {
    let (unix, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(unix, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 4).unwrap();
    socket
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

/// Polls a condition, at most as long as `PATIENCE`.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE.unwrap();
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never came true");
        std::thread::yield_now();
    }
}

struct Connection {
    id: u64,
    is_sink: bool,
    sent: u32,
}

/// A message on its way to the app.
struct Undelivered {
    connection: u64,
    bytes: Vec<u8>,
    /// The app's own message: finished when it has come back.
    is_echo: bool,
}

struct Serving {
    control: OwnedFd,
    end: DaemonEnd,
    connections: Vec<Connection>,
    /// Tokens of connects to `LATE`.
    late: Vec<u64>,
    /// Messages that found no room yet.
    waiting: VecDeque<Undelivered>,
    vifs: vifs::Vifs,
    connection_next: u64,
    is_paused: bool,
    /// Requests are left unread.
    ignores: bool,
    /// Tokens of connects by TCP.
    tcp: Vec<u64>,
    heard: Vec<u8>,
    /// Where the app is to send memory of its own, and how many bytes.
    inlet: Option<(OwnedFd, u64)>,
    /// Memory that it has added.
    memories: Vec<Shared>,
    /// The app has said goodbye.
    leave: Option<Leave>,
}

fn serve(
    listener: OwnedFd,
    orders: Receiver<Order>,
    bell: OwnedFd,
    tap: Option<Sender<Vec<u8>>>,
) -> Vec<u8> {
    while wait_readable(&[&listener, &bell]) {
        if let Some(mut server) = attach(&listener) {
            server.vifs.tap = tap;
            server.run(&orders, &bell);
            return server.heard;
        }
        // Only an order before anybody attached ends up here: there is nothing to serve, and frames
        // are lost.
        drain(&bell);
        if orders.try_iter().any(|order| !matches!(order, Order::Frames { .. })) {
            break;
        }
    }
    Vec::new()
}

fn attach(listener: &OwnedFd) -> Option<Serving> {
    if !readable(&[listener], 0) {
        return None;
    }
    let control = rustix::net::accept_with(listener, SocketFlags::NONBLOCK).unwrap();
    assert!(wait_readable(&[&control]));
    let packet = control::receive(&control).unwrap()?;
    let Request::Attach(attach) = Request::parse(&packet.bytes).unwrap() else { panic!() };
    assert!(attach.layout.common(Versions::DAEMON).is_ok());
    let (end, handover) = DaemonEnd::create(attach.sizes).unwrap();
    let reply = Reply::Attached(Attached {
        channel: 1,
        engine: 0,
        engine_name: "test/0".into(),
        sizes: attach.sizes,
        wake_up_ns: 0,
    });
    let descriptors =
        [handover.memory.as_fd(), handover.daemon_doorbell.as_fd(), handover.app_doorbell.as_fd()];
    control::send(&control, &reply, &descriptors).unwrap();
    Some(Serving {
        control,
        end,
        connections: Vec::new(),
        late: Vec::new(),
        waiting: VecDeque::new(),
        vifs: vifs::Vifs::default(),
        connection_next: 100,
        is_paused: false,
        ignores: false,
        tcp: Vec::new(),
        heard: Vec::new(),
        inlet: None,
        memories: Vec::new(),
        leave: None,
    })
}

impl Serving {
    fn run(&mut self, orders: &Receiver<Order>, bell: &OwnedFd) {
        loop {
            match orders.try_recv() {
                Ok(Order::Die) | Err(TryRecvError::Disconnected) => return,
                Ok(Order::Shutdown) => return self.end.close(),
                Ok(Order::Condemn) => {
                    let refusal = Reply::error(Code::Violation);
                    return control::send(&self.control, &refusal, &[]).unwrap();
                }
                Ok(order) => self.obey(order),
                Err(TryRecvError::Empty) => {}
            }
            if !self.answer_control() {
                // What is in the ring of an app that has left in good order still counts.
                if self.leave.is_some() {
                    self.is_paused = false;
                    self.turn();
                }
                return;
            }
            if !self.turn() {
                self.sleep(bell);
            }
        }
    }

    fn sleep(&mut self, bell: &OwnedFd) {
        if self.end.arm() || self.is_paused {
            let doorbell = self.end.doorbell();
            let fds = [doorbell, bell.as_fd(), self.control.as_fd()];
            let mut fds = fds.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
            // Not for ever: what waits for room is looked at again.
            let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            poll(&mut fds, Some(&timeout)).unwrap();
        }
        self.end.disarm();
        drain(bell);
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Accept { listener, connection } => {
                self.connections.push(Connection { id: connection, is_sink: false, sent: 0 });
                let peer = address(40_000);
                self.tell(Completion::Accepted { listener, connection, peer });
            }
            Order::Deliver { connection, bytes } => {
                self.waiting.push_back(Undelivered { connection, bytes, is_echo: false });
            }
            Order::Close { connection, code } => self.close(connection, code),
            Order::Frames { vif, frames } => self.deliver_frames(vif, &frames),
            Order::CloseVif { vif, code } => self.close_vif(vif, code),
            Order::Pause => self.is_paused = true,
            Order::Resume => self.is_paused = false,
            Order::AnswerLate => {
                for token in std::mem::take(&mut self.late) {
                    self.open(token, LATE);
                }
            }
            Order::FailTcp => {
                for token in std::mem::take(&mut self.tcp) {
                    self.tell(Completion::TcpConnectFailed { token, code: Code::Refused });
                }
            }
            Order::Ignore => self.ignores = true,
            Order::Count(sender) => sender.send(self.end.counters()).unwrap(),
            Order::Tell(sender) => sender.send(self.heard.clone()).unwrap(),
            Order::Shutdown | Order::Die | Order::Condemn => unreachable!("handled by the caller"),
        }
    }

    /// False when the app is gone.
    fn answer_control(&mut self) -> bool {
        if self.ignores {
            return true;
        }
        let Ok(packet) = control::receive(&self.control) else { return true };
        let Some(packet) = packet else { return false };
        let reply = match Request::parse(&packet.bytes) {
            Ok(Request::Leave(leave)) => {
                self.leave = Some(leave);
                return true;
            }
            Err(error) => Reply::error_with(Code::Invalid, error.to_string()),
            Ok(Request::Mapped(_)) => Reply::Mapped(Empty {}),
            Ok(Request::Listen(listen)) if listen.port == REFUSED => Reply::error(Code::Denied),
            Ok(Request::Listen(listen)) => {
                Reply::Listening(Listening { listener: 5, address: address(listen.port) })
            }
            Ok(Request::Unlisten(_)) => Reply::Unlistened(Empty {}),
            Ok(Request::AddMemory(add)) => {
                self.bring_memory(add.bytes);
                return true;
            }
            Ok(Request::MemorySent(_)) => self.take_memory(),
            Ok(other) => self.answer_vif(other),
        };
        control::send(&self.control, &reply, &[]).unwrap();
        true
    }

    /// Has the app send memory of its own.
    fn bring_memory(&mut self, bytes: u64) {
        let (unix, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (own, for_app) =
            rustix::net::socketpair(unix, SocketType::STREAM, flags, None).unwrap();
        control::send(&self.control, &Reply::BringMemory(Empty {}), &[for_app.as_fd()]).unwrap();
        self.inlet = Some((own, bytes));
    }

    /// Takes it, and keeps it as long as the daemon lives.
    fn take_memory(&mut self) -> Reply {
        let (inlet, bytes) = self.inlet.take().expect("memory was asked for");
        let packet = control::receive(&inlet).unwrap().expect("the app has sent it");
        self.memories.push(Shared::adopt(&packet.descriptors[0], bytes).expect("it is offered"));
        Reply::MemoryAdded(MemoryAdded { memory: self.memories.len() as u64 })
    }

    /// Whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mut busy = self.deliver();
        while !self.is_paused {
            let Some(command) = self.end.next_command().expect("the client library is honest")
            else {
                break;
            };
            busy = true;
            self.handle(command);
            self.deliver();
        }
        self.end.flush();
        busy
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Connect { token, peer } | Command::ConnectShared { token, peer } => {
                match peer.port() {
                    REFUSED => self.tell(Completion::ConnectFailed { token, code: Code::Refused }),
                    LATE => self.late.push(token),
                    port => self.open(token, port),
                }
            }
            Command::Send { connection, offset, length, .. } => {
                let mut bytes = vec![0; length as usize];
                self.end.read(offset, &mut bytes);
                self.heard.clone_from(&bytes);
                match self.find(connection) {
                    Some(found) if found.is_sink => {
                        found.sent += 1;
                        let sent = found.sent;
                        self.end.sends_finished(1);
                        self.tell(Completion::Sent { connection, sent });
                    }
                    _ => self.waiting.push_back(Undelivered { connection, bytes, is_echo: true }),
                }
            }
            Command::SendWithin { connection, offset, length, within_us } => {
                let mut bytes = vec![0; length as usize];
                self.end.read(offset, &mut bytes);
                let words = String::from_utf8_lossy(&bytes);
                self.heard = format!("within {within_us} {connection} {words}").into_bytes();
                self.end.sends_finished(1);
            }
            Command::Release { buffers } => {
                for &id in buffers.as_slice() {
                    self.end.release(id).expect("the client library is honest");
                }
            }
            Command::Close { connection, .. } => self.close(connection, Code::Closed),
            Command::SetSilence { connection, silence_ms } => {
                self.heard = format!("silence {connection} {silence_ms}").into_bytes();
            }
            Command::SendFrames { vif, offset, length, count } => {
                self.send_frames(vif, offset, length, count);
            }
            Command::TakeStreams { are_taken } => {
                self.heard = format!("streams {are_taken}").into_bytes();
            }
            Command::SetPriority { connection, urgency, weight } => {
                self.heard = format!("priority {connection} {urgency} {weight}").into_bytes();
            }
            Command::SetUnordered { connection } => {
                self.heard = format!("unordered {connection}").into_bytes();
            }
            Command::Post { connection, tag, memory, start, bytes } => {
                let heard = format!("post {connection} {tag} {memory} {start} {bytes}");
                self.heard = heard.into_bytes();
            }
            Command::Unpost { connection, tag } => {
                let why = Unposted::Cancelled as u8;
                self.tell(Completion::Unposted { why, connection, tag });
            }
            Command::TcpConnect { token, .. } => self.tcp.push(token),
            Command::TcpListen { .. } => {}
            other => panic!("{other:?}, and this daemon has neither TCP nor operations"),
        }
    }

    fn open(&mut self, token: u64, port: u16) {
        self.connection_next += 1;
        let id = self.connection_next;
        self.connections.push(Connection { id, is_sink: port == SINK, sent: 0 });
        self.tell(Completion::Connected { token, connection: id, peer: address(port) });
        self.is_paused |= port == PAUSE;
        if port == RESET {
            self.close(id, Code::Reset);
        }
    }

    fn close(&mut self, id: u64, code: Code) {
        let Some(at) = self.connections.iter().position(|found| found.id == id) else { return };
        let sent = self.connections.remove(at).sent;
        self.tell(Completion::Closed { connection: id, code, sent });
    }

    /// Delivers what waits, as far as there is room.
    fn deliver(&mut self) -> bool {
        let mut delivered = false;
        while let Some(Undelivered { connection, bytes, is_echo }) = self.waiting.front() {
            let (connection, is_echo) = (*connection, u32::from(*is_echo));
            let length = bytes.len() as u32;
            let is_open = self.connections.iter().any(|found| found.id == connection);
            if is_open && self.end.completion_room() < 4 {
                break;
            }
            let buffer = if is_open { self.end.allocate(length, 0) } else { None };
            if is_open && buffer.is_none() {
                break;
            }
            let message = self.waiting.pop_front().unwrap();
            self.end.sends_finished(is_echo);
            let Some(buffer) = buffer else { continue };
            let found = self.find(connection).unwrap();
            found.sent += is_echo;
            let sent = found.sent;
            self.end.write(buffer, 0, &message.bytes);
            self.end.grant(buffer.id);
            let (offset, id) = (buffer.offset, buffer.id);
            self.tell(Completion::Received {
                connection,
                stream: 0,
                offset,
                length,
                buffer: id,
                sent,
            });
            delivered = true;
        }
        delivered
    }

    fn find(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|found| found.id == id)
    }

    fn tell(&mut self, completion: Completion) {
        let deadline = Instant::now() + PATIENCE.unwrap();
        while self.end.completion_room() == 0 {
            assert!(Instant::now() < deadline, "the app takes nothing");
            std::thread::yield_now();
        }
        self.end.complete(&completion);
        self.end.flush();
    }
}

fn drain(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

fn wait_readable(fds: &[&OwnedFd]) -> bool {
    readable(fds, 20)
}

fn readable(fds: &[&OwnedFd], seconds: i64) -> bool {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}
