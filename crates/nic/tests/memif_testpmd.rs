//! memif against another implementation: DPDK's `dpdk-testpmd` forwards frames between two memifs,
//! and we are at the other end of both. Needs no privilege and no hugepages. Where the program is
//! not installed (Debian package `dpdk-dev`), the tests say so and pass.

mod testpmd;

use std::time::{Duration, Instant};

use clearway_nic::memif::{self, Config, Queue, Role};
use clearway_nic::{Queue as _, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec};
use testpmd::{Directory, Testpmd, until};

#[test]
fn testpmd_as_two_servers() {
    forward(["server", "server"], &[], |_| ());
}

#[test]
fn testpmd_as_two_clients() {
    forward(["client", "client"], &[], |_| ());
}

#[test]
fn testpmd_as_server_and_client() {
    forward(["server", "client"], &[], |_| ());
}

/// Our frames span several of our own small buffers, and testpmd's several of its own. DPDK (22.11)
/// never clears the chain flag of a descriptor that it has used once, so its second lap through a
/// ring would be garbage: hence a ring so large that there is none.
#[test]
fn frames_are_chained() {
    let small = |config: &mut Config| (config.buffer_bytes, config.ring_size_log2) = (512, 10);
    forward(["server", "client"], &["bsize=512", "rsize=14"], small);
}

/// It does not say what it takes. Our buffers, and what we may send to others, are large.
#[test]
fn who_takes_large_frames_sends_testpmd_usual_ones() {
    for theirs in [["server", "client"], ["client", "server"]] {
        forward(theirs, &[], |config| {
            *config = config.clone().with_frames(33_018);
            config.frame_bytes_unsaid = Some(1514);
        });
    }
}

#[test]
fn a_secret_is_understood() {
    forward(["server", "client"], &["secret=sesame"], |config| {
        config.secret = Some("sesame".into());
    });
}

/// Runs testpmd with these roles and sends frames through it, both ways.
fn forward(theirs: [&str; 2], arguments: &[&str], change: impl Fn(&mut Config)) {
    if !testpmd::is_there() {
        return;
    }
    let directory = Directory::new();
    let sockets = [directory.0.join("a.sock"), directory.0.join("b.sock")];
    let open = |end: usize| {
        let role = if theirs[end] == "server" { Role::Client } else { Role::Server };
        let mut config = Config::new(
            memif::Socket::Path(sockets[end].clone()),
            role,
            [2, 0, 0, 0, 0, end as u8],
        );
        config.frame_bytes_max = 1514;
        change(&mut config);
        memif::open(config).expect("memif opens").remove(0)
    };
    let (mut a, mut b) = (open(0), open(1));
    let devices = [0, 1].map(|end| {
        let (role, socket) = (theirs[end], sockets[end].display());
        let given = [&["socket-abstract=no"], arguments].concat().join(",");
        format!("net_memif{end},role={role},id=0,socket={socket},{given}")
    });
    let forwarding = ["--forward-mode=io", "--total-num-mbufs=4096"];
    let mut testpmd = Testpmd::start(&directory, 128, &devices, &forwarding);
    testpmd.wait_until("both links are up", || {
        take(&mut a);
        take(&mut b);
        a.link_up() && b.link_up()
    });
    open_path(&mut testpmd, &mut a, &mut b);
    open_path(&mut testpmd, &mut b, &mut a);
    let before = [a.counters(), b.counters()];
    for round in 0..50 {
        pass(&mut testpmd, &mut a, &mut b, round);
        pass(&mut testpmd, &mut b, &mut a, round);
    }
    sleep_and_wake(&mut testpmd, &mut a, &mut b);
    drop(testpmd);
    until("the end of testpmd is noticed", || {
        // Who has slept looks at the control sockets at once, and not after 16,384 receives,
        // between each of which others have this core for some milliseconds if they want it.
        for queue in [&mut a, &mut b] {
            queue.disarm();
            take(queue);
        }
        !a.link_up() && !b.link_up()
    });
    let [from_a, from_b] = [(&a, before[0]), (&b, before[1])].map(|(queue, before)| {
        assert_eq!(queue.link_counters().violations, 0);
        let after = queue.counters();
        assert_eq!(after.rx_frames_dropped, 0);
        (after.tx_frames - before.tx_frames, after.rx_frames - before.rx_frames)
    });
    assert_eq!(from_a, (from_b.1, from_b.0), "what goes in comes out");
}

/// Testpmd discards what arrives before it starts to forward, which it does at some time after its
/// links are up: sends frames until one comes through, and then a last one, behind which nothing is
/// under way.
fn open_path(testpmd: &mut Testpmd, from: &mut Queue, to: &mut Queue) {
    let probe = frame(60, 1);
    testpmd.wait_until("the first frame has come through", || {
        if from.transmit(&mut |_| 0) == Transmit::Nothing {
            send(from, &probe);
            from.flush();
        }
        take(from);
        !take(to).is_empty()
    });
    // One that finds testpmd's ring full of others is lost: then there is one more.
    let (mut length, mut next) = (60, Instant::now());
    testpmd.wait_until("the last of the first frames has come through", || {
        if Instant::now() >= next {
            (length, next) = (length + 1, Instant::now() + Duration::from_secs(1));
            send(from, &frame(length, 1));
            from.flush();
        }
        take(to).last() == Some(&frame(length, 1))
    });
}

/// Sends a burst in at one end, and expects it at the other.
fn pass(testpmd: &mut Testpmd, from: &mut Queue, to: &mut Queue, round: usize) {
    let lengths = [60, 64, 65, 128, 511, 512, 513, 1000, 1024, 1025, 1500, 1514];
    let frames: Vec<_> =
        lengths.iter().map(|length| frame(*length, round)).chain([frame(60 + round, 3)]).collect();
    frames.iter().for_each(|frame| send(from, frame));
    from.flush();
    let mut arrived = Vec::new();
    testpmd.wait_until("the burst has come through", || {
        arrived.append(&mut take(to));
        arrived.len() >= frames.len()
    });
    assert!(arrived == frames, "round {round}: frames changed on their way");
}

/// Lets the receiver sleep until testpmd interrupts it. Testpmd has no fence between publishing a
/// frame and asking whether the receiver sleeps, so an interrupt can be missed; but seldom.
fn sleep_and_wake(testpmd: &mut Testpmd, from: &mut Queue, to: &mut Queue) {
    let mut woken = 0;
    for round in 0..100 {
        let armed = to.arm();
        send(from, &frame(64, round));
        from.flush();
        if armed {
            let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
            let fd = to.wait_fd().expect("a memif can be waited for");
            woken += rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout))
                .expect("poll");
        }
        to.disarm();
        let mut arrived = Vec::new();
        testpmd.wait_until("the frame has come through", || {
            arrived.append(&mut take(to));
            !arrived.is_empty()
        });
        assert_eq!(arrived, [frame(64, round)]);
    }
    assert!(woken >= 90, "woken {woken} times of 100");
}

fn send(queue: &mut Queue, frame: &[u8]) {
    let queued = queue.transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert_eq!(queued, Transmit::Queued);
}

fn take(queue: &mut Queue) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    queue.receive(256, &mut |burst, _| frames.extend(burst.iter().map(|frame| frame.to_vec())));
    frames
}

fn frame(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 3 + seed * 5) as u8).collect()
}
