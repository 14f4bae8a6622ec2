use super::*;

fn taken(lanes: &mut Lanes, engine: usize) -> Vec<Vec<u8>> {
    let mut parcels = Vec::new();
    lanes.take(engine, LANE_FRAMES, &mut parcels);
    let bytes = parcels.iter().map(|parcel| parcel.bytes.clone()).collect();
    lanes.give_back(engine, &mut parcels);
    bytes
}

#[test]
fn frames_arrive_in_order_and_only_where_they_are_for() {
    let mut lanes = between(&[3]).expect("descriptors");
    for round in 0..1000u16 {
        lanes[0].push(2, What::Frame, &round.to_ne_bytes());
        lanes[1].push(2, What::Copy, &[1; 9]);
        assert_eq!(lanes[2].pending(), 0, "nobody has told");
        lanes[0].flush();
        lanes[1].flush();
        assert_eq!((lanes[1].pending(), lanes[2].pending()), (0, 0b011));
        assert_eq!(taken(&mut lanes[2], 0), [round.to_ne_bytes()]);
        assert_eq!(taken(&mut lanes[2], 1), [[1; 9]]);
        assert_eq!(lanes[2].pending(), 0);
    }
    assert_eq!(lanes[0].made, [0, 0, 1], "one buffer goes round");
}

#[test]
fn what_finds_a_lane_full_is_dropped_and_counted_and_holds_up_no_other() {
    let mut lanes = between(&[3]).expect("descriptors");
    for _ in 0..LANE_FRAMES + 5 {
        lanes[0].push(1, What::Frame, b"too many");
    }
    assert_eq!(lanes[0].counters.lane_frames_dropped, 5);
    let others = lanes[0].others();
    assert_eq!(others, 0b110);
    lanes[0].push_to(others, What::Frame, b"another");
    lanes[0].flush();
    assert_eq!(lanes[0].counters.lane_frames_dropped, 6);
    assert_eq!(taken(&mut lanes[2], 0), [b"another"]);
    assert_eq!(taken(&mut lanes[1], 0).len(), LANE_FRAMES);
    lanes[0].push(1, What::Frame, b"room again");
    assert_eq!(taken(&mut lanes[1], 0), [b"room again"]);
}

#[test]
fn what_is_left_is_still_there_the_next_time() {
    let mut lanes = between(&[2]).expect("descriptors");
    for number in 0..10u8 {
        lanes[1].push(0, What::Frame, &[number]);
    }
    lanes[1].flush();
    let mut parcels = Vec::new();
    assert_eq!(lanes[0].pending(), 0b10);
    lanes[0].take(1, 4, &mut parcels);
    assert_eq!(lanes[0].pending(), 0b10, "six are left");
    assert!(!lanes[0].arm());
    lanes[0].disarm();
    lanes[0].take(1, 6, &mut parcels);
    lanes[0].take(1, 6, &mut Vec::new());
    assert_eq!(lanes[0].pending(), 0);
    assert_eq!(
        parcels.iter().map(|parcel| parcel.bytes[0]).collect::<Vec<_>>(),
        Vec::from_iter(0..10)
    );
}

#[test]
fn a_sleeping_engine_is_woken_once() {
    let mut lanes = between(&[2]).expect("descriptors");
    let is_rung = |lanes: &Lanes| {
        let mut bell =
            [rustix::event::PollFd::new(&lanes.doors[0].bell, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut bell, Some(&now)).expect("polled") > 0
    };
    lanes[1].push(0, What::Frame, b"one");
    lanes[1].flush();
    assert!(!is_rung(&lanes[0]), "it is awake");
    assert_eq!(taken(&mut lanes[0], 1).len(), 1);
    assert_eq!(lanes[0].pending(), 0b10);
    assert!(taken(&mut lanes[0], 1).is_empty());
    assert!(lanes[0].arm());
    lanes[1].push(0, What::Frame, b"two");
    lanes[1].flush();
    assert!(is_rung(&lanes[0]));
    lanes[0].disarm();
    assert!(!is_rung(&lanes[0]));
    assert!(!lanes[0].arm(), "there is something");
    lanes[0].disarm();
}

/// Two threads: nothing is lost, doubled or reordered, and nobody sleeps for ever.
#[test]
fn lanes_between_threads() {
    const FRAMES: u32 = 100_000;
    let mut lanes = between(&[2]).expect("descriptors");
    let (mut to, mut from) = (lanes.pop().expect("two"), lanes.pop().expect("two"));
    let sender = std::thread::spawn(move || {
        let mut number = 0u32;
        while number < FRAMES {
            let dropped = from.counters.lane_frames_dropped;
            from.push(1, What::Frame, &number.to_ne_bytes());
            if from.counters.lane_frames_dropped == dropped {
                number += 1;
            } else {
                from.flush();
                std::thread::yield_now();
            }
            if number.is_multiple_of(7) {
                from.flush();
            }
        }
        from.flush();
    });
    let (mut expected, mut parcels) = (0u32, Vec::new());
    while expected < FRAMES {
        if to.pending() == 0 {
            if to.arm() {
                let mut bell =
                    [rustix::event::PollFd::new(&to.doors[1].bell, rustix::event::PollFlags::IN)];
                let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = rustix::event::poll(&mut bell, Some(&patience)).expect("polled");
                assert_eq!(woken, 1, "not woken at {expected}");
            }
            to.disarm();
            continue;
        }
        to.take(0, 32, &mut parcels);
        for parcel in &parcels {
            assert_eq!(parcel.bytes, expected.to_ne_bytes());
            expected += 1;
        }
        to.give_back(0, &mut parcels);
    }
    sender.join().expect("no panic");
}

/// Those that come have lanes to and from all, and those before have theirs as they were.
#[test]
fn engines_that_come_later_have_lanes_to_all() {
    let mut all = between(&[1, 1]).expect("descriptors");
    all[0].push(1, What::Frame, b"before");
    let doors: Vec<_> = all.iter().map(|lanes| Arc::clone(lanes.door())).collect();
    let (mut new, ends) = joining(&doors, 2).expect("descriptors");
    assert_eq!(*new[0].siblings(), 2..4);
    all.iter_mut().zip(ends).for_each(|(lanes, ends)| lanes.extend(ends));
    all.append(&mut new);
    for (from, lanes) in all.iter_mut().enumerate() {
        assert_eq!((lanes.index(), lanes.count()), (from, 4));
        let others = lanes.others();
        assert_eq!(others, 0b1111 & !(1 << from));
        lanes.push_to(others, What::Frame, &[from as u8]);
        lanes.flush();
        lanes.audit().expect("the books agree");
    }
    for (to, lanes) in all.iter_mut().enumerate() {
        assert_eq!(lanes.pending(), lanes.others());
        for from in (0..4).filter(|from| *from != to) {
            let mut expected = vec![vec![from as u8]];
            if (from, to) == (0, 1) {
                expected.insert(0, b"before".to_vec());
            }
            assert_eq!(taken(lanes, from), expected, "{from} to {to}");
        }
        assert_eq!(lanes.pending(), 0);
    }
}
