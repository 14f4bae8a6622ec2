//! How large frames are: what two sides agree on, and frames in several buffers.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

const LARGE: usize = 33_018;

fn sized(at: &Socket, role: Role, frame_bytes_max: usize) -> Config {
    config(at, role).with_frames(frame_bytes_max)
}

/// From the first queue of the one to that of the other, and then back.
fn both_ways(a: &mut [Queue], b: &mut [Queue], mut pass: impl FnMut(&mut Queue, &mut Queue)) {
    pass(&mut a[0], &mut b[0]);
    pass(&mut b[0], &mut a[0]);
}

fn has_news(watch: &Watch) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&watch.as_fd(), PollFlags::IN)], Some(&at_once)) == Ok(1)
}

#[test]
fn both_sides_send_what_the_smaller_one_takes() {
    for small in [Role::Server, Role::Client] {
        let at = socket();
        let bytes = |role| if role == small { 9018 } else { LARGE };
        let open_as = |role| sized(&at, role, bytes(role));
        let (mut server, mut client) = open_both(open_as(Role::Server), open_as(Role::Client));
        both_ways(&mut server, &mut client, |from, to| {
            assert_eq!(send(from, &frame(9018, 1)), Transmit::Queued);
            assert_eq!(received(to), [frame(9018, 1)]);
        });
        let (large, small) = match small {
            Role::Server => (&mut client[0], &mut server[0]),
            Role::Client => (&mut server[0], &mut client[0]),
        };
        let dropped = large.counters().tx_frames_dropped;
        assert_eq!(send(large, &frame(9019, 2)), Transmit::Queued);
        assert_eq!(large.counters().tx_frames_dropped, dropped + 1, "it does not leave");
        assert_eq!(send(large, &frame(60, 3)), Transmit::Queued);
        assert_eq!(received(small), [frame(60, 3)], "and nothing is in the way of the next");
        assert_eq!(small.counters().rx_frames_dropped, 0);
        let says = |queue: &Queue, words: &str| queue.info().mode.contains(words);
        assert!(
            says(large, "packets of up to 9000 bytes (as the peer takes)"),
            "{:?}",
            large.info()
        );
        assert!(says(
            small,
            "packets of up to 9000 bytes (the peer takes more, but not this side)"
        ));
    }
}

#[test]
fn who_watches_hears_of_a_peer_that_comes_back_with_another_size() {
    let at = socket();
    let mut server = open(sized(&at, Role::Server, LARGE)).unwrap();
    let watch = server[0].watch();
    assert_eq!((has_news(&watch), watch.limit()), (false, None));
    for (bytes, reason) in [(LARGE, Reason::Both), (9018, Reason::Peer), (60_000, Reason::Own)] {
        let mut client = open(sized(&at, Role::Client, bytes)).unwrap();
        connect(&mut server, &mut client);
        assert!(has_news(&watch));
        watch.silence();
        assert!(!has_news(&watch));
        let frame_bytes = bytes.min(LARGE);
        assert_eq!(watch.limit(), Some(Limit { frame_bytes, reason }));
        assert_eq!(send(&mut server[0], &frame(frame_bytes, bytes)), Transmit::Queued);
        assert_eq!(received(&mut client[0]), [frame(frame_bytes, bytes)]);
        drop(client);
        until("the server has noticed", || drain(&mut server[0]) == 0 && !server[0].link_up());
        assert_eq!((has_news(&watch), watch.limit()), (true, None));
    }
}

/// Of all lengths, in an order by which they begin in each buffer of the ring, with small ones
/// between them.
#[test]
fn large_frames_take_several_buffers_and_nothing_else_changes() {
    let at = socket();
    let open_as = |role| sized(&at, role, LARGE);
    let (mut a, mut b) = open_both(open_as(Role::Server), open_as(Role::Client));
    let lengths = [LARGE, 60, 9024, 9025, 1514, 18_048, 18_049, 27_073, LARGE - 1, 1];
    for round in 0..200 {
        let frames: Vec<_> =
            lengths.iter().map(|length| frame(*length, round)).chain([frame(99, round)]).collect();
        both_ways(&mut a, &mut b, |from, to| {
            frames.iter().for_each(|frame| assert_eq!(send(from, frame), Transmit::Queued));
            assert!(received(to) == frames, "round {round}");
        });
    }
    let counters = [a[0].counters(), b[0].counters()];
    assert!(counters.iter().all(|all| all.rx_frames_dropped + all.tx_frames_dropped == 0));
}

/// Else each frame, the small ones too, were copied once more.
#[test]
fn frames_are_written_where_the_peer_reads_them() {
    let at = socket();
    let open_as = |role| sized(&at, role, LARGE);
    let (mut a, mut b) = open_both(open_as(Role::Server), open_as(Role::Client));
    both_ways(&mut a, &mut b, |from, to| {
        let mut places = Vec::new();
        for number in 0..2 * 256 {
            let fill = &mut |buffer: &mut [u8]| {
                assert_eq!(buffer.len(), LARGE);
                places.push(buffer.as_ptr() as usize);
                60 + number % 2
            };
            assert_eq!(from.transmit(fill), Transmit::Queued);
            from.flush();
            assert_eq!(received(to).len(), 1);
        }
        let beside = places.windows(2).filter(|two| two[1].wrapping_sub(two[0]) == 9024).count();
        // Not so the last three of the ring, behind which there is no room for the largest.
        assert_eq!(beside, 2 * 252);
    });
}

/// Room for the largest frame must not make of each small one a burst of its own.
#[test]
fn small_frames_come_in_bursts_however_large_the_largest_is() {
    let at = socket();
    let open_as = |role| sized(&at, role, LARGE);
    let (mut a, mut b) = open_both(open_as(Role::Server), open_as(Role::Client));
    (0..64).for_each(|number| assert_eq!(send(&mut a[0], &frame(162, number)), Transmit::Queued));
    let mut bursts = Vec::new();
    b[0].receive(64, &mut |burst, _| bursts.push(burst.len()));
    assert_eq!(bursts, [32, 32]);
}
