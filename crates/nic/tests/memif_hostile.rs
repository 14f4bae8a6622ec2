//! memif against peers that shake hands properly and then break the rules. Each must cost us that
//! link and nothing else: no crash, no frame that was not sent, and the next peer is served.
//!
//! The peers have mapped the shared memory before they pass it on, as all do; later nobody could.

#![allow(unsafe_code, reason = "peers share memory")]

use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clearway_base::Random;
use clearway_nic::memif::message::{
    AddRing, Direction, Hello, Init, MESSAGE_BYTES, MODE_ETHERNET, Message, Text, VERSION, parse,
};
use clearway_nic::memif::{self, Config, Queue, Role, Socket, Witness};
use clearway_nic::{Queue as _, Transmit};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use unserved::unserved;

#[path = "../../channel/src/memory/mapped/tests/unserved.rs"]
mod unserved;

const REGION_BYTES: u64 = 1 << 20;
const COOKIE: u32 = 0x3E3_1F20;
const RING_SIZE: u16 = 256;
/// Where a hostile client puts its rings and buffers.
const S2M: u64 = 0;
const M2S: u64 = 8192;
const BUFFERS: u64 = 65_536;

#[test]
fn a_proper_client_is_served() {
    let mut server = Server::new("proper");
    let mut peer = server.connect();
    peer.send_frame(&mut server.queue, 0, b"hello, this is a frame");
    assert_eq!(server.received(), [b"hello, this is a frame"]);
    peer.give_buffers(RING_SIZE);
    assert_eq!(server.transmit(), Transmit::Queued);
    assert_eq!(peer.index(M2S + 64), 1);
}

#[test]
fn indexes_out_of_range_end_the_link() {
    let mut server = Server::new("index");
    for head in [257, 0x7fff, 0x8000, 0xffff] {
        server.survives(|server, peer| {
            peer.set_index(S2M + 6, head);
            assert!(server.received().is_empty());
        });
        server.survives(|server, peer| {
            peer.set_index(M2S + 6, head);
            assert_eq!(server.transmit(), Transmit::Full);
        });
    }
}

#[test]
fn descriptors_outside_their_region_end_the_link() {
    let mut server = Server::new("extent");
    let last = (REGION_BYTES - 60) as u32;
    for (region, offset) in
        [(0, last + 1), (0, u32::MAX), (0, u32::MAX - 59), (1, 0), (0x8000, 0), (u16::MAX, last)]
    {
        server.survives(|server, peer| {
            peer.set_descriptor(S2M, 0, Descriptor { flags: 0, region, length: 60, offset });
            peer.set_index(S2M + 6, 1);
            assert!(server.received().is_empty());
        });
        server.survives(|server, peer| {
            let length = 2048;
            peer.set_descriptor(M2S, 0, Descriptor { flags: 0, region, length, offset });
            peer.set_index(M2S + 6, RING_SIZE);
            assert_eq!(server.transmit(), Transmit::Full);
        });
    }
}

#[test]
fn a_frame_at_the_very_end_of_a_region_is_fine() {
    let mut server = Server::new("end");
    let mut peer = server.connect();
    let offset = (REGION_BYTES - 60) as u32;
    peer.set_descriptor(S2M, 0, Descriptor { flags: 0, region: 0, length: 60, offset });
    peer.set_index(S2M + 6, 1);
    assert_eq!(server.received(), [[0; 60]]);
}

#[test]
fn oversize_and_empty_frames_are_dropped_and_counted() {
    let mut server = Server::new("oversize");
    let mut peer = server.connect();
    let place = Descriptor { flags: 0, region: 0, length: 0, offset: BUFFERS as u32 };
    peer.set_descriptor(S2M, 0, place);
    peer.set_descriptor(S2M, 1, Descriptor { length: 1519, ..place });
    peer.set_descriptor(S2M, 2, Descriptor { length: 1000, flags: 1, ..place });
    peer.set_descriptor(S2M, 3, Descriptor { length: 1000, ..place });
    peer.set_descriptor(S2M, 4, Descriptor { length: 1000, flags: 1, ..place });
    peer.set_descriptor(S2M, 5, Descriptor { length: 518, ..place });
    peer.set_index(S2M + 6, 6);
    assert_eq!(server.received(), [vec![0; 1518]]);
    assert_eq!(server.queue.counters().rx_frames_dropped, 3);
    assert!(server.queue.link_up());
    assert!(server.received().is_empty());
    assert_eq!(peer.index(S2M + 64), 6, "all descriptors are given back when nothing more comes");
}

/// Else a peer could have one turn of an engine look at all that a ring holds.
#[test]
fn what_is_dropped_counts_for_the_budget() {
    let mut server = Server::new("budget");
    let mut peer = server.connect();
    let empty = Descriptor { flags: 0, region: 0, length: 0, offset: BUFFERS as u32 };
    (0..200).for_each(|slot| peer.set_descriptor(S2M, slot, empty));
    peer.set_descriptor(S2M, 200, Descriptor { length: 60, ..empty });
    peer.set_index(S2M + 6, 201);
    for (dropped, frames) in [(64, 0), (128, 0), (192, 0), (200, 1)] {
        assert_eq!(server.queue.receive(64, &mut |_, _| ()), frames);
        assert_eq!(server.queue.counters().rx_frames_dropped, dropped);
    }
    assert!(server.queue.link_up());
}

#[test]
fn a_chain_without_end_ends_the_link() {
    let mut server = Server::new("chain");
    for length in [0, 1, 2048] {
        server.survives(|server, peer| {
            for slot in 0..RING_SIZE {
                let offset = BUFFERS as u32;
                peer.set_descriptor(S2M, slot, Descriptor { flags: 1, region: 0, length, offset });
            }
            peer.set_index(S2M + 6, RING_SIZE);
            assert!(server.received().is_empty());
        });
    }
}

#[test]
fn an_unfinished_chain_waits_for_its_rest_and_costs_nothing() {
    let mut server = Server::new("unfinished");
    let mut peer = server.connect();
    let part = Descriptor { flags: 1, region: 0, length: 30, offset: BUFFERS as u32 };
    peer.set_descriptor(S2M, 0, part);
    peer.set_index(S2M + 6, 1);
    for _ in 0..3 {
        assert!(server.received().is_empty());
        assert!(server.queue.arm(), "half a frame is no reason to stay awake");
        server.queue.disarm();
    }
    peer.set_descriptor(S2M, 1, Descriptor { flags: 0, ..part });
    peer.set_index(S2M + 6, 2);
    assert!(!server.queue.arm(), "now a frame is there");
    assert_eq!(server.received(), [vec![0; 60]]);
    assert!(server.queue.link_up());
}

#[test]
fn buffers_that_hold_nothing_end_the_link() {
    let mut server = Server::new("capacity");
    for length in [0, 5] {
        server.survives(|server, peer| {
            for slot in 0..RING_SIZE {
                let offset = BUFFERS as u32;
                peer.set_descriptor(M2S, slot, Descriptor { flags: 0, region: 0, length, offset });
            }
            peer.set_index(M2S + 6, RING_SIZE);
            assert_eq!(server.transmit(), Transmit::Full);
        });
    }
}

/// A server of large frames.
fn large(test: &str) -> Server {
    Server::with(test, |config| {
        (config.frame_bytes_max, config.frame_bytes_unsaid) = (33_018, Some(1518));
    })
}

fn transmit_bytes(server: &mut Server, bytes: usize) -> (Transmit, u64) {
    let before = server.queue.counters().tx_frames_dropped;
    let result = server.queue.transmit(&mut |buffer| {
        buffer[..bytes].fill(7);
        bytes
    });
    server.queue.flush();
    (result, server.queue.counters().tx_frames_dropped - before)
}

#[test]
fn a_peer_that_says_nothing_of_its_size_is_sent_usual_frames() {
    let mut server = large("unsaid");
    let mut peer = server.connect();
    peer.give_buffers(RING_SIZE);
    assert_eq!(transmit_bytes(&mut server, 1518), (Transmit::Queued, 0));
    assert_eq!(transmit_bytes(&mut server, 1519), (Transmit::Queued, 1));
    assert_eq!(peer.index(M2S + 64), 1, "the other one has not left");
    assert!(server.queue.info().mode.contains("the peer does not say what it takes"));
    // It needs no room but for what it is sent.
    let mut peer = {
        drop(peer);
        server.expect_link_down();
        server.connect()
    };
    peer.give_buffers(1);
    assert_eq!(transmit_bytes(&mut server, 1518), (Transmit::Queued, 0));
    assert_eq!(transmit_bytes(&mut server, 60), (Transmit::Full, 0));
}

#[test]
fn a_peer_that_says_that_it_takes_more_than_it_has_room_for_gets_nothing_beyond_its_rings() {
    let mut server = large("liar");
    server.peer_name = "liar 1.0 mtu 65000";
    let mut peer = server.connect();
    assert!(server.queue.info().mode.contains("packets of up to 33000 bytes"));
    // Room for 32,768 bytes, then for one more, then in no order.
    peer.give_buffers(16);
    assert_eq!(transmit_bytes(&mut server, 60), (Transmit::Full, 0));
    peer.give_buffers(17);
    assert_eq!(transmit_bytes(&mut server, 33_018), (Transmit::Queued, 0));
    assert_eq!(peer.index(M2S + 64), 17);
    drop(peer);
    server.expect_link_down();
    // Side by side, but not inside the region, or not inside of what an offset can say.
    let end = REGION_BYTES as u32;
    for first in [end - 3 * 2048, end - 16 * 2048, 0u32.wrapping_sub(3 * 2048)] {
        server.survives(|server, peer| {
            for slot in 0..RING_SIZE {
                let offset = first.wrapping_add(u32::from(slot) * 2048);
                let place = Descriptor { flags: 0, region: 0, length: 2048, offset };
                peer.set_descriptor(M2S, slot, place);
            }
            peer.set_index(M2S + 6, RING_SIZE);
            assert_eq!(transmit_bytes(server, 60), (Transmit::Full, 0));
        });
    }
    // Smaller than they were when they were looked at.
    server.survives(|server, peer| {
        peer.give_buffers(20);
        assert_eq!(transmit_bytes(server, 60), (Transmit::Queued, 0));
        for slot in 1..17 {
            let offset = (BUFFERS + u64::from(slot) * 2048) as u32;
            peer.set_descriptor(M2S, slot, Descriptor { flags: 0, region: 0, length: 1, offset });
        }
        assert_eq!(transmit_bytes(server, 33_018), (Transmit::Full, 0));
    });
}

#[test]
fn random_memory_does_no_harm_to_large_frames() {
    let mut server = large("random-large");
    server.peer_name = "scribbler 1.0 mtu 33000";
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut peer = server.connect();
        peer.give_buffers(RING_SIZE);
        for _ in 0..50 {
            peer.scribble(&mut random);
            server.received();
            let bytes = 1 + random.below(33_018) as usize;
            transmit_bytes(&mut server, bytes);
        }
        drop(peer);
        server.expect_link_down();
    }
}

#[test]
fn anything_said_on_an_established_link_ends_it() {
    let mut server = Server::new("chatter");
    for message in [Message::Ack, Message::Connect { interface: Text::new("again") }] {
        let peer = server.connect();
        send(&peer.socket, &message.to_bytes(), None);
        server.expect_link_down();
        assert!(matches!(peer.last_words(), Some(Message::Disconnect { .. })));
    }
}

#[test]
fn random_control_messages_do_no_harm() {
    let mut server = Server::new("control");
    let mut random = Random::new(1);
    for _ in 0..300 {
        let socket = connect(&server.name);
        for _ in 0..random.below(12) {
            let mut bytes = init().to_bytes().to_vec();
            match random.below(4) {
                0 => {
                    bytes.iter_mut().for_each(|byte| *byte = random.next_u32() as u8);
                    bytes[..2].copy_from_slice(&(random.below(10) as u16).to_ne_bytes());
                }
                1 => bytes.truncate(1 + random.below(127) as usize),
                2 => bytes.extend([0; 100]),
                _ => {}
            }
            let descriptor = (random.below(2) == 0).then(bell);
            // The kernel refuses the descriptor while none is wanted.
            if !send(&socket, &bytes, descriptor.as_ref()) && !send(&socket, &bytes, None) {
                break;
            }
            server.drive();
        }
    }
    drop(server.connect());
}

#[test]
fn strangers_who_say_nothing_keep_nobody_out() {
    let mut server = Server::new("silent");
    let strangers: Vec<_> = (0..100)
        .map(|_| {
            server.drive();
            connect(&server.name)
        })
        .collect();
    let mut peer = server.connect();
    peer.send_frame(&mut server.queue, 0, b"a frame among strangers");
    assert_eq!(server.received().len(), 1);
    drop(strangers);
}

/// A socket whose last `close` waits for an hour, and the other end, which keeps it waiting.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (kept_waiting, _) = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while (&slow).write(&[0; 1 << 16]).is_ok() {}
    let linger = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&slow, linger).unwrap();
    (slow, kept_waiting)
}

/// Descriptors that take an hour to be closed: before the secret was checked the kernel keeps them
/// out, and afterwards somebody else closes them.
#[test]
fn descriptors_that_are_slow_to_close_hold_nobody_up() {
    let (told, word) = std::sync::mpsc::channel();
    // On a thread of its own, so that an engine that is stuck is a failure, and not a test without
    // end.
    std::thread::spawn(move || {
        let mut server = Server::new("slow");
        let mut kept = Vec::new();
        let region = Message::AddRegion { index: 0, bytes: REGION_BYTES };
        for _ in 0..20 {
            let stranger = connect(&server.name);
            let (slow, kept_waiting) = slow_to_close();
            let slow = OwnedFd::from(slow);
            assert!(!send(&stranger, &region.to_bytes(), Some(&slow)), "before the secret");
            server.drive();
            assert!(send(&stranger, &init().to_bytes(), None));
            until("the secret is checked", || {
                server.drive();
                matches!(receive(&stranger), Some((Message::Ack, _)))
            });
            assert!(send(&stranger, &region.to_bytes(), Some(&slow)));
            // Elsewhere, should the server have closed it already; it has not been driven since.
            drop(slow);
            until("the stranger is refused", || {
                server.drive();
                match receive(&stranger) {
                    Some((Message::Disconnect { reason, .. }, _)) => {
                        assert!(reason.to_string().contains("neither a memfd"));
                        true
                    }
                    _ => false,
                }
            });
            kept.push((stranger, kept_waiting));
        }
        let mut peer = server.connect();
        peer.send_frame(&mut server.queue, 0, b"a frame meanwhile");
        assert_eq!(server.received().len(), 1);
        drop(server);
        told.send(()).unwrap();
    });
    word.recv_timeout(Duration::from_secs(60)).expect("the engine is stuck");
}

/// Anything at all in the rings, while frames are received and sent.
#[test]
fn random_memory_does_no_harm() {
    let mut server = Server::new("random");
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut peer = server.connect();
        peer.give_buffers(RING_SIZE);
        for _ in 0..50 {
            peer.scribble(&mut random);
            server.received();
            server.transmit();
            server.queue.arm();
            server.queue.disarm();
        }
        drop(peer);
        server.expect_link_down();
    }
    let mut peer = server.connect();
    peer.send_frame(&mut server.queue, 0, b"after all that");
    assert_eq!(server.received(), [b"after all that"]);
}

/// The other role: the memory is ours, and the server scribbles in it.
#[test]
fn a_hostile_server_does_no_harm() {
    let name = name("server");
    let listener = listen(&name);
    let config = Config::new(Socket::Abstract(name), Role::Client, [2, 0, 0, 0, 0, 1]);
    let mut client = memif::open(config).unwrap().remove(0);
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let mut peer = HostileServer::accept(&listener, &mut client);
        let violations = client.link_counters().violations;
        if seed % 4 == 0 {
            // One wrong word, which must be found out.
            match seed % 3 {
                0 => peer.write(peer.m2s + 64, &300u16.to_ne_bytes()),
                1 => peer.write(peer.s2m + 64, &1u16.to_ne_bytes()),
                _ => {
                    peer.write(peer.m2s + 128 + 4, &2049u32.to_ne_bytes());
                    peer.write(peer.m2s + 64, &1u16.to_ne_bytes());
                }
            }
            client.receive(64, &mut |_, _| panic!("no frame was sent"));
            // Finds the server's index ahead of ours once the ring seems full.
            (0..300).for_each(|_| _ = transmit(&mut client));
            assert_eq!(client.link_counters().violations, violations + 1, "seed {seed}");
        }
        for _ in 0..50 {
            peer.scribble(&mut random);
            client.receive(64, &mut |_, _| ());
            transmit(&mut client);
            client.arm();
            client.disarm();
        }
        drop(peer);
        until("the client notices", || {
            client.disarm();
            client.receive(0, &mut |_, _| ());
            !client.link_up()
        });
    }
}

/// Our role in a link with a hostile peer.
const ROLES: [Role; 2] = [Role::Server, Role::Client];

#[test]
fn no_page_can_be_taken_away_while_a_link_is_up() {
    for role in ROLES {
        let mut pair = Pair::new("holes", role);
        let memory = pair.connect(|_| ());
        assert_eq!(memory.punch(), [Err(Errno::PERM); 2], "{role}");
        assert_eq!(rustix::io::pwrite(&memory.file, &[1], 0), Err(Errno::PERM), "{role}");
        assert!(pair.queue().link_up());
    }
}

/// Holes that are made as late as can be cost the engine nothing: it touches every ring and buffer.
#[test]
fn holes_made_before_are_filled_before_an_engine_comes() {
    for role in ROLES {
        let mut pair = Pair::new("filled", role);
        let _memory = pair.connect(|memory| {
            assert_eq!(memory.punch(), [Ok(()); 2], "nobody has sealed it yet");
            memory.write(S2M, &COOKIE.to_ne_bytes());
            memory.write(M2S, &COOKIE.to_ne_bytes());
        });
        let Pair::Client { queue, .. } = &mut pair else {
            // Buffers all over the region, as only a client can name them.
            let Pair::Server { server, peer } = &mut pair else { unreachable!() };
            let peer = peer.as_mut().unwrap();
            for slot in 0..RING_SIZE {
                let offset = (REGION_BYTES / u64::from(RING_SIZE) * u64::from(slot)) as u32;
                let length = if slot < 8 { 60 } else { 1518 };
                let place = Descriptor { flags: 0, region: 0, length, offset };
                peer.set_descriptor(S2M, slot, place);
            }
            peer.set_index(S2M + 6, RING_SIZE);
            let before = faults();
            let frames = server.queue.receive(usize::from(RING_SIZE), &mut |_, _| ());
            assert_few(faults() - before);
            assert_eq!(frames, usize::from(RING_SIZE));
            continue;
        };
        let before = faults();
        let sent = (0..RING_SIZE).filter(|_| transmit(queue) == Transmit::Queued).count();
        assert_few(faults() - before);
        assert_eq!(sent, usize::from(RING_SIZE));
    }
}

/// Those of the test itself are a few, those of the holes hundreds.
fn assert_few(faults: u64) {
    assert!(faults < 32, "{faults} page faults");
}

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // proc_pid_stat(5): minflt is the eighth after the name, which is in parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Whoever seals waits for the file's lock, which the peer holds: the engine goes on, the peer is
/// given up after its time, and the next one is served.
#[test]
fn a_peer_that_holds_its_files_lock_holds_up_nobody() {
    for role in ROLES {
        let (told, word) = channel();
        // On a thread of its own, so that an engine that is stuck is a failure, and not a test
        // without end.
        std::thread::spawn(move || {
            let mut pair = Pair::new("lock", role);
            let mut lock = None;
            let memory = pair.begin(|memory| lock = Some(Lock::hold(memory)));
            let start = Instant::now();
            // The lock is held all the time: a turn that waits for it never ends.
            while start.elapsed() < Duration::from_millis(500) {
                pair.queue().disarm();
                assert!(!pair.queue().link_up());
            }
            pair.hang_up();
            let second = pair.connect(|_| ());
            assert!(pair.queue().link_up());
            drop(lock);
            drop((memory, second));
            told.send(()).unwrap();
        });
        word.recv_timeout(Duration::from_secs(60)).expect("the engine is stuck");
    }
}

/// What it is, and what to do, is said to the peer, in the status, and to who writes the log.
#[test]
fn memory_that_cannot_be_secured_is_refused_with_the_remedy() {
    let heard = Arc::new(Heard::default());
    let mut server = Server::with("refused", |config| config.witness = Some(heard.clone()));
    let huge = memfd_create("huge", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB).unwrap();
    ftruncate(&huge, 2 << 20).unwrap();
    rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
    let for_good = memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&for_good, REGION_BYTES).unwrap();
    rustix::fs::fcntl_add_seals(&for_good, SealFlags::SHRINK | SealFlags::SEAL).unwrap();
    for (file, cause, remedy) in [
        (huge, "huge pages", "switch zero-copy off at the peer"),
        (for_good, "sealed against sealing", "leave F_SEAL_SEAL out"),
    ] {
        let (socket, bells) = (connect(&server.name), [bell(), bell()]);
        let peer = HostileClient { socket, memory: Memory::new(), bells };
        peer.announce_file(&mut server, &file);
        peer.ask();
        let Message::Disconnect { reason, .. } = peer.answer(&mut server) else {
            panic!("it is not refused");
        };
        let status = server.queue.info().mode;
        until("the log has it", || heard.0.lock().unwrap().last() == Some(&reason.to_string()));
        for text in [reason.to_string(), status] {
            assert!(text.contains(cause) && text.contains(remedy), "{text}");
        }
    }
    drop(server.connect());
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Witness for Heard {
    fn refused(&self, reason: &str) {
        self.0.lock().unwrap().push(reason.to_owned());
    }
}

/// Our side, in either role, and the peer's.
enum Pair {
    Server { server: Server, peer: Option<HostileClient> },
    Client { queue: Queue, listener: OwnedFd, peer: Option<HostileServer> },
}

impl Pair {
    fn new(test: &str, role: Role) -> Self {
        let test = format!("{test}-{role}");
        if role == Role::Server {
            return Self::Server { server: Server::new(&test), peer: None };
        }
        let name = name(&test);
        let listener = listen(&name);
        let config = Config::new(Socket::Abstract(name), role, [2, 0, 0, 0, 0, 1]);
        Self::Client { queue: memif::open(config).unwrap().remove(0), listener, peer: None }
    }

    fn queue(&mut self) -> &mut Queue {
        match self {
            Self::Server { server, .. } => &mut server.queue,
            Self::Client { queue, .. } => queue,
        }
    }

    /// All of the handshake, and another mapping of the memory. Just before the peer's last word it
    /// does something to it.
    fn begin(&mut self, before_the_end: impl FnOnce(&Memory)) -> Memory {
        let again = |memory: &Memory| Memory::map(memory.file.try_clone().unwrap());
        match self {
            Self::Server { server, peer } => {
                let client = HostileClient::announce(server, Memory::new());
                let memory = again(&client.memory);
                before_the_end(&client.memory);
                client.ask();
                *peer = Some(client);
                memory
            }
            Self::Client { queue, listener, peer } => {
                let mut memory = None;
                *peer = Some(HostileServer::accept_with(listener, queue, |theirs| {
                    memory = Some(again(theirs));
                    before_the_end(theirs);
                }));
                memory.unwrap()
            }
        }
    }

    fn connect(&mut self, before_the_end: impl FnOnce(&Memory)) -> Memory {
        let memory = self.begin(before_the_end);
        until("the link is up", || {
            self.queue().disarm();
            self.queue().link_up()
        });
        memory
    }

    fn hang_up(&mut self) {
        match self {
            Self::Server { peer, .. } => *peer = None,
            Self::Client { peer, .. } => *peer = None,
        }
    }
}

/// Holds the lock of a file for as long as it lives: writes to it from memory that never comes.
/// Needs root, since only root's kernel waits for a program's page faults by default.
struct Lock {
    uffd: Option<OwnedFd>,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Lock {
    fn hold(memory: &Memory) -> Self {
        let (uffd, source) = unserved();
        let file = memory.file.try_clone().unwrap();
        let writer = std::thread::spawn(move || _ = rustix::io::pwrite(&file, source, 0));
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut fault = [PollFd::new(&uffd, PollFlags::IN)];
        assert_eq!(poll(&mut fault, Some(&timeout)), Ok(1), "the writer waits, with the lock");
        assert_eq!(fault[0].revents(), PollFlags::IN);
        Self { uffd: Some(uffd), writer: Some(writer) }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.uffd = None;
        self.writer.take().unwrap().join().unwrap();
    }
}

/// Our side, as a server.
struct Server {
    name: String,
    queue: Queue,
    /// How its peers call themselves.
    peer_name: &'static str,
}

impl Server {
    fn new(test: &str) -> Self {
        Self::with(test, |_| ())
    }

    fn with(test: &str, change: impl FnOnce(&mut Config)) -> Self {
        let name = name(test);
        let at = Socket::Abstract(name.clone());
        let mut config = Config::new(at, Role::Server, [2, 0, 0, 0, 0, 1]);
        change(&mut config);
        Self { name, queue: memif::open(config).unwrap().remove(0), peer_name: "hostile" }
    }

    fn drive(&mut self) {
        self.queue.disarm();
    }

    fn connect(&mut self) -> HostileClient {
        let before = self.queue.link_counters().established;
        let peer = HostileClient::connect(self);
        until("the link is up", || {
            self.drive();
            self.queue.link_counters().established > before && self.queue.link_up()
        });
        peer
    }

    /// A fresh peer does something that must end its link, and only that.
    fn survives(&mut self, misbehave: impl FnOnce(&mut Self, &mut HostileClient)) {
        let before = self.queue.link_counters();
        let mut peer = self.connect();
        misbehave(self, &mut peer);
        let after = self.queue.link_counters();
        assert_eq!(after.violations, before.violations + 1, "the violation is counted");
        self.expect_link_down();
        let Some(Message::Disconnect { reason, .. }) = peer.last_words() else {
            panic!("the peer is told why");
        };
        assert!(!reason.as_bytes().is_empty());
    }

    fn expect_link_down(&mut self) {
        until("the link is down", || {
            self.drive();
            !self.queue.link_up()
        });
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.queue
            .receive(1024, &mut |burst, _| frames.extend(burst.iter().map(|frame| frame.to_vec())));
        frames
    }

    fn transmit(&mut self) -> Transmit {
        transmit(&mut self.queue)
    }
}

fn transmit(queue: &mut Queue) -> Transmit {
    let result = queue.transmit(&mut |buffer| {
        buffer.fill(7);
        buffer.len()
    });
    queue.flush();
    result
}

#[derive(Clone, Copy)]
struct Descriptor {
    flags: u16,
    region: u16,
    length: u32,
    offset: u32,
}

/// A peer's mapping of the shared memory, and its file.
struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: an address range, to whose bytes no references exist.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory of a well-behaved client.
    fn new() -> Self {
        let file = memfd_create("hostile", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, REGION_BYTES).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        Self::map(file)
    }

    fn map(file: OwnedFd) -> Self {
        let bytes = rustix::fs::fstat(&file).unwrap().st_size as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping touches no existing memory.
        let base = unsafe {
            rustix::mm::mmap(null_mut(), bytes, protection, MapFlags::SHARED, &file, 0).unwrap()
        };
        Self { base: NonNull::new(base.cast()).unwrap(), bytes, file }
    }

    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        assert!(offset as usize + bytes <= self.bytes);
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let at = self.at(offset, bytes.len());
        // SAFETY: inside the mapping, to which no references exist.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn index(&self, offset: u64) -> u16 {
        // SAFETY: as above.
        unsafe { self.at(offset, 2).cast::<u16>().read_volatile() }
    }

    /// Whether the kernel lets the peer take its pages away.
    fn punch(&self) -> [rustix::io::Result<()>; 2] {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // SAFETY: no references into the mapping exist.
        let advised = unsafe {
            rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxRemove)
        };
        [fallocate(&self.file, hole, 0, self.bytes as u64), advised]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more.
        unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes).unwrap() };
    }
}

/// A client that can write whatever it likes.
struct HostileClient {
    socket: OwnedFd,
    memory: Memory,
    bells: [OwnedFd; 2],
}

impl HostileClient {
    fn connect(server: &mut Server) -> Self {
        let peer = Self::announce(server, Memory::new());
        peer.ask();
        assert!(matches!(peer.answer(server), Message::Connected { .. }));
        peer
    }

    /// Says everything up to the last word.
    fn announce(server: &mut Server, memory: Memory) -> Self {
        let peer = Self { socket: connect(&server.name), memory, bells: [bell(), bell()] };
        peer.memory.write(S2M, &COOKIE.to_ne_bytes());
        peer.memory.write(M2S, &COOKIE.to_ne_bytes());
        peer.announce_file(server, &peer.memory.file);
        peer
    }

    fn announce_file(&self, server: &mut Server, file: &OwnedFd) {
        let ring = |direction, offset: u64| {
            let (index, region, size_log2, private_header_bytes) = (0, 0, 8, 0);
            let offset = offset as u32;
            Message::AddRing(AddRing {
                direction,
                index,
                region,
                offset,
                size_log2,
                private_header_bytes,
            })
        };
        let region = Message::AddRegion { index: 0, bytes: REGION_BYTES };
        let [s2m_bell, m2s_bell] = &self.bells;
        assert!(matches!(self.answer(server), Message::Hello(_)));
        for (message, descriptor) in [
            (init_as(server.peer_name), None),
            (region, Some(file)),
            (ring(Direction::S2m, S2M), Some(s2m_bell)),
            (ring(Direction::M2s, M2S), Some(m2s_bell)),
        ] {
            send(&self.socket, &message.to_bytes(), descriptor);
            assert_eq!(self.answer(server), Message::Ack);
        }
    }

    fn ask(&self) {
        let connect = Message::Connect { interface: Text::new("hostile") };
        send(&self.socket, &connect.to_bytes(), None);
    }

    fn answer(&self, server: &mut Server) -> Message {
        let mut answer = None;
        until("the server answers", || {
            server.drive();
            answer = receive(&self.socket).map(|(message, _)| message);
            answer.is_some()
        });
        answer.unwrap()
    }

    /// The last message that the server has sent.
    fn last_words(&self) -> Option<Message> {
        std::iter::from_fn(|| receive(&self.socket)).last().map(|(message, _)| message)
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    fn index(&self, offset: u64) -> u16 {
        self.memory.index(offset)
    }

    fn set_index(&mut self, offset: u64, index: u16) {
        self.write(offset, &index.to_ne_bytes());
    }

    fn set_descriptor(&mut self, ring: u64, slot: u16, descriptor: Descriptor) {
        let Descriptor { flags, region, length, offset } = descriptor;
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&flags.to_ne_bytes());
        bytes[2..4].copy_from_slice(&region.to_ne_bytes());
        bytes[4..8].copy_from_slice(&length.to_ne_bytes());
        bytes[8..12].copy_from_slice(&offset.to_ne_bytes());
        self.write(ring + 128 + 16 * u64::from(slot), &bytes);
    }

    fn send_frame(&mut self, queue: &mut Queue, slot: u16, frame: &[u8]) {
        assert!(queue.link_up());
        self.write(BUFFERS, frame);
        let (length, offset) = (frame.len() as u32, BUFFERS as u32);
        self.set_descriptor(S2M, slot, Descriptor { flags: 0, region: 0, length, offset });
        self.set_index(S2M + 6, slot + 1);
    }

    fn give_buffers(&mut self, count: u16) {
        for slot in 0..count {
            let offset = (BUFFERS + u64::from(slot) * 2048) as u32;
            self.set_descriptor(
                M2S,
                slot,
                Descriptor { flags: 0, region: 0, length: 2048, offset },
            );
        }
        self.set_index(M2S + 6, count);
    }

    /// Writes nonsense, now and then nonsense that looks good at first sight.
    fn scribble(&mut self, random: &mut Random) {
        let ring = [S2M, M2S][random.below(2) as usize];
        match random.below(4) {
            0 => {
                let offset = ring + random.below(128 + 16 * u64::from(RING_SIZE));
                self.write(offset, &random.next_u64().to_ne_bytes());
            }
            1 => self.set_index(ring + 6, self.index(ring + 64) + random.below(200) as u16),
            _ => {
                let descriptor = Descriptor {
                    flags: random.below(2) as u16,
                    region: u16::from(random.below(20) == 0),
                    length: random.below(3000) as u32,
                    offset: random.below(REGION_BYTES + 1000) as u32,
                };
                self.set_descriptor(ring, random.below(256) as u16, descriptor);
            }
        }
    }
}

/// A server that can write whatever it likes into our memory.
struct HostileServer {
    _socket: OwnedFd,
    memory: Memory,
    s2m: u64,
    m2s: u64,
}

impl HostileServer {
    fn accept(listener: &OwnedFd, client: &mut Queue) -> Self {
        let peer = Self::accept_with(listener, client, |_| ());
        until("the link is up", || {
            client.disarm();
            client.link_up()
        });
        peer
    }

    /// The same, but does something to the memory just before the last word.
    fn accept_with(
        listener: &OwnedFd,
        client: &mut Queue,
        before_the_end: impl FnOnce(&Memory),
    ) -> Self {
        let mut socket = None;
        until("the client connects", || {
            client.disarm();
            socket = rustix::net::accept_with(listener, SocketFlags::NONBLOCK).ok();
            socket.is_some()
        });
        let socket = socket.unwrap();
        let hello = Message::Hello(Hello {
            name: Text::new("hostile"),
            version_min: VERSION,
            version_max: VERSION,
            region_max: 0,
            m2s_ring_max: 0,
            s2m_ring_max: 0,
            ring_size_log2_max: 8,
        });
        send(&socket, &hello.to_bytes(), None);
        let (mut memory, mut rings) = (None, [0; 2]);
        let interface = loop {
            let mut received = None;
            until("the client speaks", || {
                client.disarm();
                received = receive(&socket);
                received.is_some()
            });
            let (message, descriptor) = received.unwrap();
            match message {
                Message::AddRegion { .. } => memory = descriptor.map(Memory::map),
                Message::AddRing(ring) => rings[ring.direction as usize] = u64::from(ring.offset),
                Message::Connect { interface } => break interface,
                _ => {}
            }
            send(&socket, &Message::Ack.to_bytes(), None);
        };
        let memory = memory.expect("the client passes its memory");
        before_the_end(&memory);
        send(&socket, &Message::Connected { interface }.to_bytes(), None);
        Self { _socket: socket, memory, s2m: rings[0], m2s: rings[1] }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.write(offset, bytes);
    }

    fn scribble(&mut self, random: &mut Random) {
        let ring = [self.s2m, self.m2s][random.below(2) as usize];
        let offset = match random.below(3) {
            0 => 64,
            _ => random.below(128 + 16 * u64::from(RING_SIZE)),
        };
        let bytes = random.next_u64().to_ne_bytes();
        let mut small = [0; 2];
        small[0] = bytes[0];
        self.write(ring + offset, if random.below(2) == 0 { &bytes } else { &small });
    }
}

fn init() -> Message {
    init_as("hostile")
}

fn init_as(name: &str) -> Message {
    Message::Init(Init {
        version: VERSION,
        id: 0,
        mode: MODE_ETHERNET,
        secret: Text::new(""),
        name: Text::new(name),
    })
}

fn name(test: &str) -> String {
    format!("clearway-hostile-{test}-{}", std::process::id())
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

fn seqpacket() -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

fn listen(name: &str) -> OwnedFd {
    let socket = seqpacket();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 8).unwrap();
    socket
}

fn connect(name: &str) -> OwnedFd {
    let socket = seqpacket();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

/// False if the other side has hung up.
fn send(socket: &OwnedFd, bytes: &[u8], descriptor: Option<&OwnedFd>) -> bool {
    let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).is_ok()
}

fn receive(socket: &OwnedFd) -> Option<(Message, Option<OwnedFd>)> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let received =
        rustix::net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::DONTWAIT).ok()?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (received.bytes > 0).then(|| (parse(&bytes).expect("we send sound messages"), descriptor))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        std::thread::yield_now();
    }
}
