//! Apps with an engine of their own: over memif on threads of their own, and over a fabric in one
//! thread, which shows that nobody else does the work.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearway_client::{
    CaptureOptions, Description, Grant, Grantee, MemoryId, Operation, PostEnd, Rights, Unposted,
    VifOptions,
};
use clearway_embed::nic::fabric::{self, Faults};
use clearway_embed::nic::memif::{self, Config, Role};
use clearway_embed::nic::{Capabilities, Counters, HEADER_BYTES_MAX, Info, Queue, Sink, Transmit};
use clearway_embed::{Channel, Code, ConnectionId, Error, Event, Host, Options, Waiting};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Nothing here takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

fn options(waiting: Waiting) -> Options {
    Options { waiting, ..Options::new("test") }
}

fn at(number: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], port))
}

/// Where a memif's two ends meet, of no other test.
fn meeting_point() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("@clearway-embed-test-{}-{number}", std::process::id())
}

/// Server and client over memif.
fn over_memif(waiting: Waiting) -> (Channel, Channel) {
    let name = meeting_point();
    let open = |role, number: u8| {
        let link = memif::open(Config::new(name.as_str(), role, [2, 0, 0, 0, 0, number]));
        let host = Host::new(link.expect("memif opens"), &[(at(number, 0).ip(), 24)]);
        host.open(&options(waiting)).expect("the host opens")
    };
    (open(Role::Server, 1), open(Role::Client, 2))
}

/// Answers until the other side is gone.
fn echo(mut server: Channel) {
    while let Ok(message) = server.recv_zero_copy(Some(PATIENCE)) {
        let connection = message.connection();
        server.send(connection, &message).expect("sent");
        server.release(message);
    }
}

fn exchange(waiting: Waiting) {
    let (mut server, mut client) = over_memif(waiting);
    let listener = server.listen(4000).expect("listening");
    assert_eq!(listener.address.port(), 4000);
    let serving = std::thread::spawn(move || echo(server));
    let connection = client.connect(at(1, 4000), Some(PATIENCE)).expect("connected");
    for length in [0, 1, 64, 1400, 1500, 9000, 200_000] {
        let message: Vec<u8> = (0..length).map(|at: u32| (at % 251) as u8).collect();
        client.send(connection, &message).expect("sent");
        let answer = client.recv_zero_copy(Some(PATIENCE)).expect("answered");
        assert!(*answer == *message, "the echo of {length} bytes is damaged");
    }
    client.detach(Some(PATIENCE)).expect("all is sent");
    serving.join().expect("the server ends when its client does");
}

#[test]
fn messages_cross_while_both_spin() {
    exchange(Waiting::Adaptive);
}

#[test]
fn messages_cross_while_both_sleep() {
    exchange(Waiting::Block);
}

#[test]
fn a_sleeper_wakes_in_time() {
    let (mut server, _client) = over_memif(Waiting::Block);
    let begun = Instant::now();
    let error = server.accept(Some(Duration::from_millis(20))).expect_err("nobody comes");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

/// A queue that notes how long frames are that leave by it.
struct Noted {
    queue: memif::Queue,
    lengths: Arc<Mutex<Vec<usize>>>,
}

impl Queue for Noted {
    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities()
    }

    fn info(&self) -> Info {
        self.queue.info()
    }

    fn link_up(&self) -> bool {
        self.queue.link_up()
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.queue.receive(budget, sink)
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let lengths = &self.lengths;
        self.queue.transmit(&mut |frame| {
            let length = fill(frame);
            lengths.lock().expect("nobody panics").push(length);
            length
        })
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.queue.arm()
    }

    fn disarm(&mut self) {
        self.queue.disarm();
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }
}

/// The longest frames that a message of 32 KiB leaves in, the longest first, where server and
/// client take packets of so many bytes.
fn longest_frames([server, client]: [usize; 2]) -> Vec<usize> {
    let (name, lengths) = (meeting_point(), Arc::new(Mutex::new(Vec::new())));
    let open = |role, number: u8, packet_bytes: usize| {
        let config = Config::new(name.as_str(), role, [2, 0, 0, 0, 0, number]);
        let config = config.with_frames(packet_bytes + HEADER_BYTES_MAX);
        let queue = memif::open(config).expect("memif opens").remove(0);
        let lengths =
            if number == 2 { Arc::clone(&lengths) } else { Arc::new(Mutex::new(Vec::new())) };
        let host = Host::new(vec![Noted { queue, lengths }], &[(at(number, 0).ip(), 24)]);
        host.open(&options(Waiting::Block)).expect("the host opens")
    };
    let mut server = open(Role::Server, 1, server);
    let mut client = open(Role::Client, 2, client);
    server.listen(4000).expect("listening");
    let serving = std::thread::spawn(move || echo(server));
    let connection = client.connect(at(1, 4000), Some(PATIENCE)).expect("connected");
    client.send(connection, &[7; 32 << 10]).expect("sent");
    let answer = client.recv_zero_copy(Some(PATIENCE)).expect("answered");
    assert!(*answer == [7; 32 << 10]);
    client.release(answer);
    client.detach(Some(PATIENCE)).expect("all is sent");
    serving.join().expect("the server ends when its client does");
    let mut lengths = std::mem::take(&mut *lengths.lock().expect("nobody panics"));
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths
}

#[test]
fn a_message_of_32_kib_is_one_frame_where_both_sides_take_that() {
    let lengths = longest_frames([33_000, 33_000]);
    assert!(lengths[0] > 32 << 10, "{lengths:?}");
    // Sent again, where this machine was slow, it is one frame again.
    assert!(lengths.iter().all(|bytes| !(9000..=32 << 10).contains(bytes)), "{lengths:?}");
    for either in [[33_000, 9000], [9000, 33_000]] {
        let lengths = longest_frames(either);
        assert!(lengths[0] <= 9014 && lengths[2] > 8900, "{either:?}: {lengths:?}");
    }
}

/// Server, client and their connection, over a fabric. What their engines do happens in calls of
/// the one thread that has both, and nowhere else.
fn in_one_thread() -> (Channel, Channel, ConnectionId, fabric::Handle) {
    let (a, b, wire) = fabric::pair(fabric::Options::new(1), [Faults::default(); 2]);
    let open = |queue, number| {
        let host = Host::new(vec![queue], &[(at(number, 0).ip(), 24)]);
        host.open(&options(Waiting::Spin)).expect("the host opens")
    };
    let (mut server, mut client) = (open(a, 1), open(b, 2));
    server.listen(4000).expect("listening");
    let token = client.start_connect(at(1, 4000)).expect("begun");
    let mut connection = None;
    eventually("both are connected", || {
        let _ = server.next_event(Some(Duration::ZERO));
        if let Ok(Event::Connected { token: of, connection: opened, .. }) =
            client.next_event(Some(Duration::ZERO))
        {
            assert_eq!(of, token);
            connection = Some(opened);
        }
        connection.is_some()
    });
    (server, client, connection.expect("connected"), wire)
}

#[test]
fn two_hosts_in_one_thread() {
    let (mut server, mut client, connection, _wire) = in_one_thread();
    client.send(connection, b"no receive call follows").expect("sent");
    let message = server.recv_zero_copy(Some(PATIENCE)).expect("the call that sent has sent it");
    assert_eq!(*message, *b"no receive call follows");
}

/// A memfd that held something before: peers read and change it, and the app has it back in the
/// end.
#[test]
fn memory_of_the_apps_own_is_shared_and_taken_back() {
    const BYTES: u64 = 1 << 20;
    let (mut server, mut client, connection, _wire) = in_one_thread();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("of-the-app", flags).expect("a memfd");
    assert!(matches!(server.add_memory(&memfd), Err(Error::Memory(_))), "it has no page");
    ftruncate(&memfd, BYTES).expect("its size");
    rustix::io::pwrite(&memfd, b"before", 64).expect("written");
    let memory = server.add_memory(&memfd).expect("added");
    let shared = server.memory(memory).expect("just added");
    let grants = vec![Grant { to: Grantee::Anybody, rights: Rights::ALL }];
    let description = Description { name: b"own".to_vec(), grants };
    let region = server.share_in(memory, 64..BYTES, &description, Some(PATIENCE)).expect("shared");
    let mut operate = |operation: Operation<'_>| {
        let id = client.start(connection, &operation).expect("started");
        loop {
            server.flush();
            match client.next_operated(Some(Duration::ZERO)) {
                Ok(over) => {
                    assert_eq!(over.id, id);
                    break over.done().expect("done");
                }
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let found = operate(Operation::Find { name: b"own" });
    assert_eq!((found.value, found.extra), (region.as_u64(), BYTES - 64));
    assert_eq!(operate(Operation::Read { region, offset: 0, length: 6 }).bytes(), b"before");
    operate(Operation::Write { region, offset: 8, bytes: &[7; 100_000] });
    let add = operate(Operation::FetchAdd { region, offset: BYTES - 72, addend: 5 });
    let mut written = [0; 100_000];
    assert!(shared.read(72, &mut written) && written == [7; 100_000]);
    assert_eq!((add.value, shared.load(BYTES - 8)), (0, Some(5)));
    rustix::io::pread(&memfd, &mut written, 72).expect("the app reads it by the descriptor, too");
    assert_eq!(written, [7; 100_000]);

    let refused = server.remove_memory(memory).expect_err("a region is in it");
    assert!(refused.to_string().contains("unshare"), "{refused}");
    server.unshare(region, Some(PATIENCE)).expect("revoked");
    server.remove_memory(memory).expect("nobody can reach it any more");
    assert!(server.memory(memory).is_none() && server.remove_memory(memory).is_err());
    // Nothing has sealed it against a channel of its own later.
    let again = server.add_memory(&memfd).expect("added again");
    assert_ne!(again, memory);
    assert_eq!(server.memory(again).and_then(|shared| shared.load(BYTES - 8)), Some(5));
}

/// What the server calls the connection.
fn connection_of(
    server: &mut Channel,
    client: &mut Channel,
    connection: ConnectionId,
) -> ConnectionId {
    client.send(connection, b"hello").expect("sent");
    server.recv_zero_copy(Some(PATIENCE)).expect("the call that sent has sent it").connection()
}

/// The server posts; the client's large messages go there, its small ones to the pool. Each buffer
/// has one end, and those that nothing came into are taken back.
#[test]
fn large_messages_go_into_posted_buffers() {
    const BYTES: u64 = 1 << 20;
    let (mut server, mut client, connection, _wire) = in_one_thread();
    let far = connection_of(&mut server, &mut client, connection);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("of-the-app", flags).expect("a memfd");
    ftruncate(&memfd, BYTES).expect("its size");
    let memory = server.add_memory(&memfd).expect("added");
    let shared = server.memory(memory).expect("just added");

    for (tag, start) in [(1, 5), (2, 400_005), (3, 800_000)] {
        server.post(far, memory, start..start + 200_000, tag).expect("posted");
    }
    server.unpost(far, 3).expect("asked");
    let cancelled = Err(Unposted::Cancelled);
    let end = |tag, outcome| PostEnd { connection: far, tag, outcome };
    assert_eq!(server.next_posted(Some(PATIENCE)).expect("told"), end(3, cancelled));
    assert_eq!(server.posts_outstanding(), 2);

    client.send(connection, b"small").expect("sent");
    client.send(connection, &[7; 150_000]).expect("sent");
    client.send(connection, b"behind").expect("sent");
    let mut turn = || _ = client.next_event(Some(Duration::ZERO));
    let mut received = Vec::new();
    while received.len() < 2 {
        turn();
        match server.recv_zero_copy(Some(Duration::ZERO)) {
            Ok(message) => received.push(message.to_vec()),
            Err(Error::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(received, [b"small".to_vec(), b"behind".to_vec()]);
    assert_eq!(server.next_posted(Some(Duration::ZERO)).expect("passed by"), end(1, Ok(150_000)));
    let mut bytes = vec![0; 150_001];
    assert!(shared.read(5, &mut bytes) && bytes == [&[7; 150_000][..], &[0]].concat());

    let refused = server.remove_memory(memory).expect_err("a buffer is posted there");
    assert!(refused.to_string().contains("posted"), "{refused}");
    server.close(far).expect("closed");
    let event = server.next_event(Some(PATIENCE)).expect("told, if the app has closed it, too");
    assert!(matches!(event, Event::PostEnded(it) if it == end(2, Err(Unposted::Ended))));
    assert_eq!(server.posts_outstanding(), 0);
    server.remove_memory(memory).expect("nothing comes there any more");
}

#[test]
fn wrong_posts_are_refused() {
    let (mut server, mut client, connection, _wire) = in_one_thread();
    let far = connection_of(&mut server, &mut client, connection);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create("of-the-app", flags).expect("a memfd");
    ftruncate(&memfd, 1 << 20).expect("its size");
    let memory = server.add_memory(&memfd).expect("added");
    let mut refused = |connection, memory, piece| match server.post(connection, memory, piece, 7) {
        Err(Error::Post { why }) => why,
        other => panic!("{other:?}"),
    };
    let other = MemoryId::from_u64(77);
    assert_eq!(refused(far, other, 0..100_000), Unposted::NoMemory);
    assert_eq!(refused(far, MemoryId::CHANNEL, 0..100_000), Unposted::OutOfBounds, "it has none");
    assert_eq!(refused(far, memory, 1000..1000 + (8 << 10)), Unposted::Size);
    #[expect(clippy::reversed_empty_ranges, reason = "that is wrong")]
    let reversed = 100_000..0;
    assert_eq!(refused(far, memory, reversed), Unposted::Size);
    assert_eq!(refused(far, memory, 1..(1 << 20) + 1), Unposted::OutOfBounds);
    assert_eq!(refused(far, memory, u64::MAX - 100_000..u64::MAX), Unposted::OutOfBounds);
    let nobody = ConnectionId::from_u64(far.as_u64() + 77);
    let unknown = server.post(nobody, memory, 0..100_000, 7).expect_err("there is none");
    assert!(matches!(unknown, Error::Connection { .. }), "{unknown}");
    assert_eq!(server.posts_outstanding(), 0);
    // What overlaps, the engine finds.
    server.post(far, memory, 0..100_000, 1).expect("posted");
    server.post(far, memory, 99_999..200_000, 2).expect("asked");
    let end = server.next_posted(Some(PATIENCE)).expect("told");
    assert_eq!((end.tag, end.outcome), (2, Err(Unposted::Overlaps)));
    assert_eq!(server.posts_outstanding(), 1);
}

/// Where packets are that long.
#[test]
fn a_large_message_in_one_packet_goes_into_a_posted_buffer() {
    let name = meeting_point();
    let open = |role, number: u8| {
        let config = Config::new(name.as_str(), role, [2, 0, 0, 0, 0, number]);
        let link = memif::open(config.with_frames(33_000 + HEADER_BYTES_MAX));
        let host = Host::new(link.expect("memif opens"), &[(at(number, 0).ip(), 24)]);
        host.open(&options(Waiting::Block)).expect("the host opens")
    };
    let (mut server, mut client) = (open(Role::Server, 1), open(Role::Client, 2));
    server.listen(4000).expect("listening");
    let serving = std::thread::spawn(move || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = memfd_create("of-the-app", flags).expect("a memfd");
        ftruncate(&memfd, 1 << 16).expect("its size");
        let memory = server.add_memory(&memfd).expect("added");
        let connection = server.accept(Some(PATIENCE)).expect("connected").connection;
        server.post(connection, memory, 0..40_000, 5).expect("posted");
        server.send(connection, b"ready").expect("sent");
        let end = server.next_posted(Some(PATIENCE)).expect("a message");
        let mut bytes = vec![0; 32 << 10];
        let is_it = server.memory(memory).is_some_and(|it| it.read(0, &mut bytes));
        assert!(is_it && bytes == [7; 32 << 10]);
        (end.tag, end.outcome)
    });
    let connection = client.connect(at(1, 4000), Some(PATIENCE)).expect("connected");
    client.recv_zero_copy(Some(PATIENCE)).expect("ready");
    client.send(connection, &[7; 32 << 10]).expect("sent");
    client.detach(Some(PATIENCE)).expect("all is sent");
    assert_eq!(serving.join().expect("all is right"), (5, Ok(32 << 10)));
}

#[test]
fn messages_sent_later_leave_together() {
    let (mut server, mut client, connection, wire) = in_one_thread();
    let before = wire.frames_sent();
    for number in 0..10 {
        client.send_later(connection, &[number; 64]).expect("there is room");
    }
    assert_eq!(wire.frames_sent(), before, "none leaves before a call that sends");
    client.send(connection, &[10; 64]).expect("sent");
    // One that acknowledges, or asks how large packets may be, may leave with it.
    assert!(wire.frames_sent() <= before + 3, "eleven messages share a packet");
    for number in 0..=10 {
        let message = server.recv_zero_copy(Some(PATIENCE)).expect("it has been sent");
        assert_eq!(*message, [number; 64], "in the order in which they were sent");
    }
    client.send_later(connection, b"the last").expect("there is room");
    client.flush();
    assert_eq!(*server.recv_zero_copy(Some(PATIENCE)).expect("flushed"), *b"the last");
}

#[test]
fn refusals_are_the_same_as_a_daemons() {
    let (mut server, mut client) = over_memif(Waiting::Adaptive);
    let listener = server.listen(4000).expect("listening");
    let code = |result: Result<_, Error>| result.expect_err("refused").code();
    assert_eq!(code(server.listen(4000).map(drop)), Code::AddressInUse);
    server.unlisten(listener.id).expect("it is open");
    server.listen(4000).expect("the port is free again");
    let dynamic = [(); 2].map(|()| server.listen(0).expect("listening").address.port());
    assert_eq!(dynamic, [49152, 49153]);
    let own = VifOptions::receiving("dst host own and udp dst port 20707");
    assert_eq!(code(client.open_vif(&own).map(drop)), Code::Denied, "the host's own service");
    let serving = std::thread::spawn(move || server.accept(Some(PATIENCE)).map(drop));
    assert_eq!(code(client.connect(at(1, 4001), Some(PATIENCE)).map(drop)), Code::Refused);
    client.connect(at(1, 4000), Some(PATIENCE)).expect("there is somebody at this one");
    serving.join().expect("no panic").expect("accepted");
}

/// Virtual interfaces and captures are the same as a daemon's: the control plane is.
#[test]
fn raw_frames_cross_and_a_capture_sees_them() {
    let (mut server, mut client) = over_memif(Waiting::Adaptive);
    let filter = "ether proto 0x88b5";
    let [to, from] = [&mut server, &mut client].map(|channel| {
        let options =
            VifOptions { transmit: Some(vec![filter.to_owned()]), ..VifOptions::receiving(filter) };
        channel.open_vif(&options).expect("nobody else has these frames")
    });
    let capture = client.open_capture(&CaptureOptions::default()).expect("a capture");
    let mut frame = vec![7; 60];
    frame[..6].copy_from_slice(&to.mac.0);
    frame[6..12].copy_from_slice(&from.mac.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let receiving = std::thread::spawn(move || {
        let frames = server.recv_frames(Some(PATIENCE)).expect("a frame");
        assert_eq!(frames.vif(), to.id);
        frames.iter().map(|frame| frame.bytes.to_vec()).collect::<Vec<_>>()
    });
    eventually("the frame has crossed and was seen", || {
        // The link may come up while they are sent: a raw interface may lose frames.
        client.send_frame(from.id, &frame).expect("sent");
        let frames = client.recv_frames(Some(Duration::from_millis(10)));
        let is_seen = frames.is_ok_and(|frames| {
            assert_eq!(frames.vif(), capture.id);
            let is_it = frames.iter().any(|seen| seen.bytes == frame);
            client.release_frames(frames);
            is_it
        });
        is_seen && receiving.is_finished()
    });
    assert_eq!(receiving.join().expect("no panic")[0], frame);
    client.close_vif(capture.id).expect("it is open");
    client.close_vif(from.id).expect("it is open");
}

#[test]
fn the_peer_of_a_channel_that_is_dropped_is_told() {
    let (mut server, mut client) = over_memif(Waiting::Adaptive);
    server.listen(4000).expect("listening");
    let serving = std::thread::spawn(move || server.accept(Some(PATIENCE)).map(drop));
    client.connect(at(1, 4000), Some(PATIENCE)).expect("connected");
    serving.join().expect("no panic").expect("accepted, and dropped");
    let begun = Instant::now();
    let error = client.recv_zero_copy(Some(PATIENCE)).expect_err("the connection has ended");
    assert!(matches!(error, Error::Connection { .. }), "{error}");
    assert!(begun.elapsed() < PATIENCE);
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
