use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::burst::{Filling, FrameInfo, Point, ReceivedBurst, SentBurst, packed_bytes};
use crate::daemon_end::tests::pair;
use crate::{AppEnd, Command, Completion, DaemonEnd, Extent, Violation};

/// Sends frames of these lengths, filled with their numbers from 1.
fn send(app: &mut AppEnd, lengths: &[u32]) -> Extent {
    let capacity = lengths.iter().map(|&length| packed_bytes(length)).sum();
    let extent = app.allocate(capacity).unwrap();
    let mut filling = Filling::default();
    for (index, &length) in lengths.iter().enumerate() {
        let place = filling.append(app.transmit_bytes(&extent), length).unwrap();
        place.fill(index as u8 + 1);
    }
    let (offset, length, count) = (extent.offset(), filling.used_bytes(), filling.count());
    app.submit(&Command::SendFrames { vif: 3, offset, length, count }).unwrap();
    extent
}

fn burst(daemon: &mut DaemonEnd) -> SentBurst {
    match daemon.next_command() {
        Ok(Some(Command::SendFrames { vif: 3, offset, length, count })) => {
            SentBurst::new(offset, length, count)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn frames_go_there_and_back() {
    let (mut daemon, mut app, _) = pair();
    let lengths = [60, 14, 1514, 61];
    let extent = send(&mut app, &lengths);
    let mut sent = burst(&mut daemon);
    assert_eq!(daemon.counters().sends_outstanding, 1);
    let capacity = lengths.iter().map(|&length| packed_bytes(length)).sum();
    let mut back = daemon.allocate_burst(capacity, 5).unwrap();
    while let Some(frame) = daemon.next_frame(&mut sent).unwrap() {
        let mut bytes = vec![0; frame.length as usize];
        daemon.read(frame.offset, &mut bytes);
        assert!(back.has_room(frame.length));
        daemon.append_frame(&mut back, FrameInfo::received(u64::from(frame.length)), &bytes);
    }
    assert_eq!((sent.frames_left(), back.count()), (0, 4));
    assert!(!back.has_room(14));
    daemon.sends_finished(1);
    assert!(daemon.completion_room() >= 2);
    daemon.grant(back.id());
    daemon.complete(&back.completion(3));
    daemon.complete(&Completion::FramesSent { vif: 3, bursts: 1, sent: 4, rejected: 0, reason: 0 });
    let Ok(Some(Completion::Frames { vif: 3, offset, length, buffer, count: 4 })) =
        app.next_completion()
    else {
        panic!("no frames");
    };
    let received = ReceivedBurst::new(app.receive_bytes(&app.granted(offset, length, buffer)), 4);
    assert!(received.is_whole());
    for (index, frame) in received.enumerate() {
        assert_eq!(frame.bytes, vec![index as u8 + 1; lengths[index] as usize]);
        assert_eq!(frame.info.time_ns, u64::from(lengths[index]));
        assert_eq!(frame.info.point(), Point::Wire);
    }
    app.free(extent);
    assert_eq!(daemon.release(buffer).unwrap().owner, 5);
    assert_eq!(daemon.counters().sends_outstanding, 0);
}

#[test]
fn a_malformed_burst_is_a_violation() {
    let (mut daemon, mut app, memory) = pair();
    let extent = send(&mut app, &[60, 60]);
    let header = memory.areas().transmit_pool + extent.offset() as usize + 80;
    memory.word(header).store(13, Ordering::Relaxed);
    let mut sent = burst(&mut daemon);
    assert!(daemon.next_frame(&mut sent).unwrap().is_some());
    assert_eq!(daemon.next_frame(&mut sent), Err(Violation::FrameLength(13)));
    app.free(extent);
}

#[test]
#[should_panic(expected = "room for the frame")]
fn a_frame_that_does_not_fit_is_a_bug_of_the_engine() {
    let (mut daemon, _app, _) = pair();
    let mut burst = daemon.allocate_burst(packed_bytes(60), 0).unwrap();
    daemon.append_frame(&mut burst, FrameInfo::default(), &[0; 65]);
}

/// A second thread of the app writes lengths into the headers while the daemon walks: whatever it
/// sees is a frame inside the burst, or a violation.
#[test]
fn headers_that_change_meanwhile_do_no_harm() {
    let (mut daemon, mut app, memory) = pair();
    let extent = send(&mut app, &[60; 4]);
    let first = memory.areas().transmit_pool + extent.offset() as usize;
    let sent = burst(&mut daemon);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                for value in [60, u64::MAX, 0, 10_000, 300, 60 | 1 << 40] {
                    (0..4).for_each(|index| {
                        memory.word(first + 80 * index).store(value, Ordering::Relaxed);
                    });
                }
            }
        }
    });
    let rounds = if cfg!(miri) { 50 } else { 100_000 };
    for _ in 0..rounds {
        let mut sent = sent;
        let mut next = extent.offset();
        while let Ok(Some(frame)) = daemon.next_frame(&mut sent) {
            assert_eq!(frame.offset, next + 16);
            assert!((14..=304).contains(&frame.length));
            next += packed_bytes(frame.length);
            assert!(next <= extent.offset() + 4 * 80);
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    app.free(extent);
}
