//! Links between two queues of this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::buffers::Buffers;
use super::*;
use crate::{Queue as _, Transmit};

mod sizes;
mod wraps;

/// A socket name that no other test uses.
fn socket() -> Socket {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    Socket::Abstract(format!("clearway-unit-{}-{number}", std::process::id()))
}

fn config(socket: &Socket, role: Role) -> Config {
    Config::new(socket.clone(), role, [2, 0, 0, 0, 0, role as u8])
}

/// Opens both sides, the server first.
fn open_both(server: Config, client: Config) -> (Vec<Queue>, Vec<Queue>) {
    let (mut server, mut client) = (open(server).unwrap(), open(client).unwrap());
    connect(&mut server, &mut client);
    (server, client)
}

#[test]
fn a_frame_has_one_buffer_or_a_few_unless_that_is_too_much_memory() {
    let at = socket();
    let buffer_bytes = |queue_pairs, frame_bytes_max| {
        let config = Config { queue_pairs, ..config(&at, Role::Client) };
        let config = config.with_frames(frame_bytes_max);
        config.check().expect("possible");
        assert_eq!(config.frame_bytes_max, frame_bytes_max);
        config.buffer_bytes
    };
    assert_eq!(buffer_bytes(1, 1518), 2048, "as everybody has it");
    assert_eq!(buffer_bytes(1, 9018), 9024);
    assert_eq!(buffer_bytes(64, 9018), 9024);
    assert_eq!(buffer_bytes(1, 33_018), 9024, "four, side by side");
    assert_eq!(Buffers::stride(9024), 9024, "else they are not");
    assert_eq!(buffer_bytes(256, 33_018), 2048, "more than 1 GiB otherwise");
}

/// Drives both sides until all queues of the shorter one have a link.
fn connect(server: &mut [Queue], client: &mut [Queue]) {
    until("the link is up", || {
        server.iter_mut().chain(&mut *client).for_each(|queue| assert_eq!(drain(queue), 0));
        server.iter().zip(&*client).all(|(a, b)| a.link_up() && b.link_up())
    });
}

/// Calls `done` until it is true, for at most half a minute.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 30, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Receives after a look at the control sockets, as a queue does that has slept. One that never
/// sleeps and has a link looks every 16,384 receives only: where each gives way to other programs
/// for some milliseconds, that is a minute.
fn drain(queue: &mut Queue) -> usize {
    queue.disarm();
    queue.receive(64, &mut |_, _| ())
}

fn send(queue: &mut Queue, frame: &[u8]) -> Transmit {
    let result = queue.transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    queue.flush();
    result
}

fn received(queue: &mut Queue) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    queue.receive(1024, &mut |burst, _| frames.extend(burst.iter().map(|frame| frame.to_vec())));
    frames
}

fn frame(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + seed) as u8).collect()
}

#[test]
fn frames_go_both_ways() {
    let at = socket();
    let (mut a, mut b) = open_both(config(&at, Role::Server), config(&at, Role::Client));
    for (seed, length) in [60, 64, 65, 1500, 1518].into_iter().enumerate() {
        let frame = frame(length, seed);
        assert_eq!(send(&mut a[0], &frame), Transmit::Queued);
        assert_eq!(received(&mut b[0]), std::slice::from_ref(&frame));
        assert_eq!(send(&mut b[0], &frame), Transmit::Queued);
        assert_eq!(received(&mut a[0]), [frame]);
    }
    assert!(a[0].info().mode.contains("connected to clearway0 of clearway"));
}

#[test]
fn small_buffers_are_chained() {
    let at = socket();
    let mut client = config(&at, Role::Client);
    client.buffer_bytes = 128;
    let (mut a, mut b) = open_both(config(&at, Role::Server), client);
    for round in 0..500 {
        let frame = frame(1 + (round * 37) % 1518, round);
        assert_eq!(send(&mut a[0], &frame), Transmit::Queued);
        assert_eq!(received(&mut b[0]), std::slice::from_ref(&frame));
        assert_eq!(send(&mut b[0], &frame), Transmit::Queued);
        assert_eq!(received(&mut a[0]), [frame]);
    }
}

#[test]
fn buffers_go_back_behind_what_is_sent_or_when_they_are_many_or_when_there_is_time() {
    for sender in [Role::Server, Role::Client] {
        let at = socket();
        let small = |role| Config { ring_size_log2: 5, ..config(&at, role) };
        let (mut from, mut to) = {
            let (server, client) = open_both(small(Role::Server), small(Role::Client));
            if sender == Role::Server { (server, client) } else { (client, server) }
        };
        let ((from, to), message) = ((&mut from[0], &mut to[0]), frame(60, 1));
        let fill = |from: &mut Queue| {
            std::iter::repeat_with(|| send(from, &message))
                .take_while(|sent| *sent == Transmit::Queued)
                .count()
        };
        let take = |to: &mut Queue, count| to.receive(count, &mut |_, _| ());
        assert_eq!((fill(from), fill(from)), (32, 0));
        assert_eq!((take(to, 3), fill(from)), (3, 0), "they can wait");
        to.flush();
        assert_eq!(fill(from), 3, "something was sent");
        assert_eq!((take(to, 4), fill(from)), (4, 4), "an eighth of the ring");
        assert_eq!((take(to, 29), take(to, 3)), (29, 3));
        assert_eq!((take(to, 1), fill(from)), (0, 32), "there was nothing to receive");
    }
}

#[test]
fn jumbo_frames_fit_large_buffers() {
    let at = socket();
    let configs = [Role::Server, Role::Client].map(|role| {
        let (buffer_bytes, frame_bytes_max) = (16_384, 9018);
        Config { buffer_bytes, frame_bytes_max, ..config(&at, role) }
    });
    let [server, client] = configs;
    let (mut a, mut b) = open_both(server, client);
    assert_eq!(send(&mut a[0], &frame(9018, 3)), Transmit::Queued);
    assert_eq!(received(&mut b[0]), [frame(9018, 3)]);
}

#[test]
fn a_full_ring_says_so_and_goes_on() {
    let at = socket();
    let (mut a, mut b) = open_both(config(&at, Role::Server), config(&at, Role::Client));
    for lap in 0..10 {
        let (from, to) = if lap % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let queued = (0..400).take_while(|_| send(&mut from[0], &[lap; 60]) == Transmit::Queued);
        assert_eq!(queued.count(), 256);
        assert_eq!(received(&mut to[0]), vec![vec![lap; 60]; 256]);
    }
}

#[test]
fn tiny_rings_work() {
    for ring_size_log2 in 0..3 {
        let at = socket();
        let client = Config { ring_size_log2, ..config(&at, Role::Client) };
        let (mut a, mut b) = open_both(config(&at, Role::Server), client);
        for seed in 0..100 {
            let queued = (0..9).take_while(|_| send(&mut a[0], &[seed; 60]) == Transmit::Queued);
            assert_eq!(queued.count(), 1 << ring_size_log2);
            assert_eq!(received(&mut b[0]), vec![vec![seed; 60]; 1 << ring_size_log2]);
            assert_eq!(send(&mut b[0], &frame(99, 1)), Transmit::Queued);
            assert_eq!(received(&mut a[0]), [frame(99, 1)]);
        }
    }
}

#[test]
fn several_queues_and_the_smaller_number_counts() {
    let at = socket();
    let server = Config { queue_pairs: 3, ..config(&at, Role::Server) };
    let client = Config { queue_pairs: 2, ..config(&at, Role::Client) };
    let (mut a, mut b) = open_both(server, client);
    for index in 0..2 {
        assert_eq!(send(&mut a[index], &frame(60, index)), Transmit::Queued);
        assert_eq!(send(&mut b[index], &frame(70, index)), Transmit::Queued);
    }
    for index in 0..2 {
        assert_eq!(received(&mut b[index]), [frame(60, index)]);
        assert_eq!(received(&mut a[index]), [frame(70, index)]);
    }
    assert_eq!(drain(&mut a[2]), 0);
    assert!(!a[2].link_up());
}

#[test]
fn either_side_may_restart() {
    let at = socket();
    let (mut a, mut b) = open_both(config(&at, Role::Server), config(&at, Role::Client));
    for round in 0..4 {
        if round % 2 == 0 {
            drop(std::mem::take(&mut a));
            until("the client has noticed", || drain(&mut b[0]) == 0 && !b[0].link_up());
            assert_eq!(send(&mut b[0], &[1; 60]), Transmit::Queued);
            a = open(config(&at, Role::Server)).unwrap();
        } else {
            drop(std::mem::take(&mut b));
            until("the server has noticed", || drain(&mut a[0]) == 0 && !a[0].link_up());
            b = open(config(&at, Role::Client)).unwrap();
        }
        connect(&mut a, &mut b);
        assert_eq!(send(&mut a[0], &frame(80, round)), Transmit::Queued);
        assert_eq!(received(&mut b[0]), [frame(80, round)]);
        assert_eq!(send(&mut b[0], &frame(90, round)), Transmit::Queued);
        assert_eq!(received(&mut a[0]), [frame(90, round)]);
    }
}

#[test]
fn what_was_sent_last_outlives_the_link() {
    for server_leaves in [true, false] {
        let socket = socket();
        let (server, client) =
            open_both(config(&socket, Role::Server), config(&socket, Role::Client));
        let (mut leaving, mut staying) =
            if server_leaves { (server, client) } else { (client, server) };
        let frames: Vec<_> = (0..100).map(|number| frame(60 + number, number)).collect();
        frames.iter().for_each(|frame| assert_eq!(send(&mut leaving[0], frame), Transmit::Queued));
        drop(leaving);
        let mut arrived = Vec::new();
        until("the link is down, and all has arrived", || {
            // Word of the end comes before the frames are looked at.
            staying[0].disarm();
            arrived.append(&mut received(&mut staying[0]));
            !staying[0].link_up() && arrived.len() >= frames.len()
        });
        assert_eq!(arrived, frames);
        assert_eq!(send(&mut staying[0], &frames[0]), Transmit::Queued);
        assert_eq!(staying[0].counters().tx_frames_dropped, 1);
    }
}

#[test]
fn the_secret_decides() {
    let at = socket();
    let with = |role, secret: &str| Config { secret: Some(secret.into()), ..config(&at, role) };
    let mut server = open(with(Role::Server, "sesame")).unwrap();
    for wrong in
        [config(&at, Role::Client), with(Role::Client, "sesam"), with(Role::Client, "sesamE")]
    {
        let mut client = open(wrong).unwrap();
        let before = server[0].link_counters().refused;
        until("the client is refused", || {
            drain(&mut server[0]);
            drain(&mut client[0]);
            assert!(!server[0].link_up() && !client[0].link_up());
            server[0].link_counters().refused > before
        });
    }
    let mut client = open(with(Role::Client, "sesame")).unwrap();
    connect(&mut server, &mut client);
}

#[test]
fn a_second_client_is_sent_away() {
    let at = socket();
    let (mut a, mut b) = open_both(config(&at, Role::Server), config(&at, Role::Client));
    let mut second = open(config(&at, Role::Client)).unwrap();
    until("the second client is told", || {
        for queue in [&mut a[0], &mut b[0], &mut second[0]] {
            drain(queue);
        }
        second[0].info().mode.contains("already connected")
    });
    assert_eq!(send(&mut a[0], &frame(60, 1)), Transmit::Queued);
    assert_eq!(received(&mut b[0]), [frame(60, 1)]);
}

/// Counted in receives, which take as long as the machine likes.
#[test]
fn a_queue_that_never_sleeps_sees_the_end_of_its_link_after_so_many_receives() {
    const RECEIVES: usize = 16 * 1024;
    let at = socket();
    for leaver in [Role::Server, Role::Client] {
        let (mut a, mut b) = open_both(config(&at, Role::Server), config(&at, Role::Client));
        if leaver == Role::Server {
            std::mem::swap(&mut a, &mut b);
        }
        drop(b);
        let has_link = |_: &usize| {
            a[0].receive(64, &mut |_, _| ());
            a[0].link_up()
        };
        let receives = (0..2 * RECEIVES).take_while(has_link).count();
        assert!((100..=RECEIVES).contains(&receives), "{receives}, {leaver:?} has left");
    }
}

#[test]
fn socket_paths_are_taken_over_from_the_dead_only() {
    let directory = std::env::temp_dir().join(format!("clearway-memif-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("memif.sock");
    let at = Socket::Path(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = open(config(&at, Role::Server)).expect("nobody listens there");
    let error = open(config(&at, Role::Server)).unwrap_err();
    assert!(error.to_string().contains("Another process listens"), "{error}");
    drop(server);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(open(config(&at, Role::Server)).is_err());
    assert!(path.exists());
    std::fs::remove_dir_all(&directory).unwrap();
    let error = open(config(&Socket::Path(path), Role::Server)).unwrap_err();
    assert!(matches!(error, crate::Error::NotFound(_)), "{error}");
}

#[test]
fn impossible_configurations_are_refused() {
    let base = config(&socket(), Role::Client);
    let wrong = [
        Config { queue_pairs: 0, ..base.clone() },
        Config { queue_pairs: 257, ..base.clone() },
        Config { ring_size_log2: 15, ..base.clone() },
        Config { buffer_bytes: 63, ..base.clone() },
        Config { frame_bytes_max: 63, ..base.clone() },
        Config { frame_bytes_max: 65_537, ..base.clone() },
        Config { ring_size_log2: 1, buffer_bytes: 512, ..base.clone() },
        Config { ring_size_log2: 14, buffer_bytes: 65_536, ..base.clone() },
        Config { secret: Some("x".repeat(24)), ..base.clone() },
        Config { socket: Socket::Path(PathBuf::from("/".repeat(108))), ..base.clone() },
        Config { socket: Socket::Abstract(String::new()), ..base },
    ];
    for config in wrong {
        let text = format!("{config:?}");
        assert!(matches!(open(config), Err(crate::Error::Invalid(_))), "{text}");
    }
}

#[test]
fn a_broken_rule_found_by_a_later_queue_ends_the_whole_link() {
    let at = socket();
    let pairs = |role| Config { queue_pairs: 2, ..config(&at, role) };
    let (mut a, mut b) = open_both(pairs(Role::Server), pairs(Role::Client));
    b[1].violated(buffers::Violation::Index);
    assert!(!b[1].link_up());
    until("all others have noticed", || {
        a.iter_mut().chain(&mut b[..1]).for_each(|queue| _ = drain(queue));
        b[0].link_counters().lost == 1 && a[0].link_counters().lost == 1
    });
    connect(&mut a, &mut b);
    assert_eq!(b[0].link_counters().violations, 1);
    assert_eq!(send(&mut a[1], &frame(60, 1)), Transmit::Queued);
    assert_eq!(received(&mut b[1]), [frame(60, 1)]);
}

#[test]
fn sleeping_queues_are_woken_by_a_new_link_and_by_its_end() {
    let at = socket();
    let pairs = |role| Config { queue_pairs: 2, ..config(&at, role) };
    let mut client = open(pairs(Role::Client)).unwrap();
    let sleeps = |client: &mut [Queue], up: bool| {
        std::thread::scope(|scope| {
            for queue in client {
                scope.spawn(move || {
                    until("the sleeper sees the link change", || {
                        if queue.arm() {
                            sleep(queue);
                        }
                        queue.disarm();
                        queue.link_up() == up
                    });
                });
            }
            let mut server = up.then(|| open(pairs(Role::Server)).unwrap());
            until("the server is connected", || {
                server.iter_mut().flatten().for_each(|queue| _ = drain(queue));
                server.iter().flatten().all(crate::Queue::link_up)
            });
            server
        })
    };
    let server = sleeps(&mut client, true);
    drop(server);
    sleeps(&mut client, false);
}

/// Until the queue's descriptor is readable, for at most ten seconds.
fn sleep(queue: &Queue) {
    let fd = queue.wait_fd().unwrap();
    let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    let mut poll = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut poll, Some(&timeout)), Ok(1), "nobody woke the sleeper");
}

/// Four threads, one for each queue, while one side comes and goes.
#[test]
fn queues_on_their_own_threads_survive_restarts() {
    const FRAMES: u32 = 2000;
    let at = socket();
    let pairs = |role| Config { queue_pairs: 2, ..config(&at, role) };
    let mut server = open(pairs(Role::Server)).unwrap();
    for round in 0..5 {
        let mut client = open(pairs(Role::Client)).unwrap();
        let up = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for queue in server.iter_mut().chain(&mut client) {
                let up = &up;
                scope.spawn(move || {
                    until("the link is up", || {
                        queue.receive(0, &mut |_, _| ());
                        queue.link_up()
                    });
                    up.wait();
                    exchange(queue, FRAMES);
                    up.wait();
                });
            }
        });
        assert_eq!(server[0].link_counters().established, round + 1);
        drop(client);
        until("the server has noticed", || {
            server.iter_mut().for_each(|queue| _ = drain(queue));
            server.iter().all(|queue| !queue.link_up())
        });
    }
}

/// Sends and receives this many numbered frames, all of which must come in order.
fn exchange(queue: &mut Queue, frames: u32) {
    let (mut sent, mut seen) = (0u32, 0u32);
    until("all frames have come", || {
        while sent < frames
            && send(queue, &[&[0; 60][..], &sent.to_ne_bytes()].concat()) == Transmit::Queued
        {
            sent += 1;
        }
        queue.receive(64, &mut |burst, _| {
            for frame in burst {
                assert_eq!(frame[60..], seen.to_ne_bytes());
                seen += 1;
            }
        });
        sent == frames && seen == frames
    });
}
