//! Virtual interfaces through the app library, against a daemon in a thread (`common`).

mod common;

use std::time::Duration;

use clearway_client::{
    BURST_FRAMES_MAX, CaptureOptions, Channel, Code, Error, Event, FRAME_BYTES_MAX, Frames,
    FramesSent, MacChoice, Point, Vif, VifId, VifOptions, Waiting,
};
use common::vifs::{FORBIDDEN, MAC, REASON, SECRET, SEEN};
use common::{Daemon, ECHO, NOW, Order, PATIENCE, address, eventually};

const SHORT: Option<Duration> = Some(Duration::from_millis(5));

fn open(daemon: &Daemon) -> (Channel, VifId) {
    let mut channel = daemon.attach();
    let vif = channel.open_vif(&VifOptions::receiving("udp dst port 5353")).unwrap();
    (channel, vif.id)
}

/// A frame of the ether type for experiments, filled with a number.
fn frame(length: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![number; length];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn forbidden() -> Vec<u8> {
    let mut frame = frame(60, 0);
    frame[12..14].copy_from_slice(&FORBIDDEN.to_be_bytes());
    frame
}

fn bytes_of(frames: &Frames) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.bytes.to_vec()).collect()
}

/// Receives until there are `count` frames.
fn receive(channel: &mut Channel, count: usize) -> Vec<Vec<u8>> {
    let mut received = Vec::new();
    while received.len() < count {
        let frames = channel.recv_frames(PATIENCE).unwrap();
        received.extend(bytes_of(&frames));
        channel.release_frames(frames);
    }
    received
}

#[test]
fn an_interface_says_what_it_became() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let copies = vec!["ether broadcast".to_owned()];
    let options = VifOptions { copies: copies.clone(), ..VifOptions::receiving("arp") };
    let Vif { id, mac, mtu, receive, transmit, copies: found } =
        channel.open_vif(&options).unwrap();
    assert_eq!((mac, mtu, found), (MAC, 1500, copies));
    assert_eq!((receive, transmit), (vec!["arp".to_owned()], vec!["mirrored".to_owned()]));
    let machine = VifOptions::machine(MacChoice::Own, "10.0.0.9/24".parse().unwrap());
    assert_ne!(channel.open_vif(&machine).unwrap().id, id);
}

#[test]
fn a_refusal_is_told_in_the_daemons_words() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let error = channel.open_vif(&VifOptions::receiving(SECRET)).unwrap_err();
    assert_eq!(error.code(), Code::Denied);
    assert!(error.to_string().contains(SECRET), "{error}");
    let unknown = channel.send_frame(VifId::from_u32(9), &frame(60, 0)).unwrap_err();
    assert!(matches!(unknown, Error::Vif { code: Code::Closed, .. }));
    assert!(unknown.to_string().starts_with("virtual interface 9 is not open"), "{unknown}");
}

#[test]
fn frames_go_there_and_back_in_every_way_of_waiting() {
    for waiting in [Waiting::Spin, Waiting::Yield, Waiting::Block, Waiting::Adaptive] {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let vif = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
        for round in 0..100 {
            let sent: Vec<_> = [14, 60, 61, 1514].map(|length| frame(length, round)).into();
            for frame in &sent {
                channel.send_frame(vif, frame).unwrap();
            }
            channel.flush_frames(vif, PATIENCE).unwrap();
            let frames = channel.recv_frames(PATIENCE).unwrap();
            assert_eq!((frames.vif(), frames.len(), bytes_of(&frames)), (vif, 4, sent));
            for frame in &frames {
                assert_eq!(frame.info.time_ns, SEEN.as_nanos() as u64);
            }
        }
        channel.detach(PATIENCE).unwrap();
    }
}

#[test]
fn bursts_leave_when_they_are_full() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    let count = usize::from(BURST_FRAMES_MAX);
    for number in 0..count {
        assert!(matches!(channel.recv_frames(NOW), Err(Error::WouldBlock)));
        channel.send_frame(vif, &frame(60, number as u8)).unwrap();
    }
    let frames = channel.recv_frames(PATIENCE).unwrap();
    assert_eq!(frames.len(), count);
    // By bytes as well: with the one that does not fit any more.
    for number in 0..6 {
        channel.send_frame(vif, &frame(1514, number)).unwrap();
    }
    assert_eq!(channel.recv_frames(PATIENCE).unwrap().len(), 5);
    // A call that waits sends what is left, or it might wait for ever.
    assert_eq!(bytes_of(&channel.recv_frames(PATIENCE).unwrap()), [frame(1514, 5)]);
}

#[test]
fn frames_are_written_in_place() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    for number in 0..200u8 {
        let sent = frame(100 + usize::from(number), number);
        channel.frame_buffer(vif, sent.len(), PATIENCE).unwrap().copy_from_slice(&sent);
        channel.flush_frames(vif, PATIENCE).unwrap();
        assert_eq!(receive(&mut channel, 1), [sent]);
    }
    let largest = frame(FRAME_BYTES_MAX as usize, 1);
    channel.frame_buffer(vif, largest.len(), PATIENCE).unwrap().copy_from_slice(&largest);
    assert_eq!(receive(&mut channel, 1), [largest]);
}

#[test]
fn frames_of_impossible_lengths_are_not_sent() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    for (length, code) in [(0, Code::Invalid), (13, Code::Invalid), (65_536, Code::TooLarge)] {
        let error = channel.send_frame(vif, &vec![0; length]).unwrap_err();
        assert_eq!(error.code(), code);
        assert!(error.to_string().starts_with(&format!("a frame of {length} bytes; 14 to 65535")));
        assert!(channel.frame_buffer(vif, length, NOW).is_err());
    }
    channel.flush_frames(vif, PATIENCE).unwrap();
    assert_eq!(channel.frames_sent(vif).unwrap(), FramesSent::default());
}

#[test]
fn what_was_refused_is_told() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    channel.send_frame(vif, &forbidden()).unwrap();
    channel.send_frame(vif, &frame(60, 1)).unwrap();
    channel.send_frame(vif, &forbidden()).unwrap();
    channel.flush_frames(vif, PATIENCE).unwrap();
    assert_eq!(receive(&mut channel, 1), [frame(60, 1)]);
    let expected = FramesSent { sent: 1, rejected: 2, reason: Some(REASON) };
    eventually(|| channel.frames_sent(vif).unwrap() == expected);
}

#[test]
fn many_frames_arrive_in_order_and_all_memory_comes_back() {
    let daemon = Daemon::start();
    let mut options = daemon.options(Waiting::Adaptive);
    options.sizes.receive_pool_bytes = 1 << 22;
    let mut channel = Channel::attach(&options).unwrap();
    let vif = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
    let (mut sent, mut received) = (0u32, 0u32);
    while received < 50_000 {
        // No more than the receive pool holds: what finds no room is lost.
        while sent < 50_000 && sent - received < 256 {
            let mut bytes = frame(60 + sent as usize % 200, 0);
            bytes[14..18].copy_from_slice(&sent.to_ne_bytes());
            channel.send_frame(vif, &bytes).unwrap();
            sent += 1;
        }
        let frames = channel.recv_frames(PATIENCE).unwrap();
        for frame in &frames {
            assert_eq!(frame.bytes.len(), 60 + received as usize % 200);
            assert_eq!(frame.bytes[14..18], received.to_ne_bytes());
            received += 1;
        }
    }
    channel.flush();
    eventually(|| daemon.counters().receive_pool_used_bytes == 0);
    eventually(|| channel.frames_sent(vif).unwrap().sent == 50_000);
    // Were an extent lost per burst, this would not fit any more.
    drop(channel.send_buffer(1 << 18, PATIENCE).unwrap());
}

#[test]
fn a_full_pool_blocks_waits_and_tells_when_there_is_room() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    daemon.order(Order::Pause);
    // A round trip through the orders: from here on the daemon takes nothing.
    daemon.counters();
    let mut sent = 0;
    while channel.try_send_frame(vif, &frame(1514, 1)).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 5 * 32, "32 bursts of 8 KiB");
    assert!(matches!(channel.try_send_frame(vif, &frame(60, 1)), Err(Error::WouldBlock)));
    let error = channel.send_frame_timeout(vif, &frame(1514, 1), SHORT).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }));
    daemon.order(Order::Resume);
    let (mut writable, mut frames) = (false, 0);
    while !writable || frames == 0 {
        match channel.next_event(PATIENCE).unwrap() {
            Event::Writable => writable = true,
            Event::Frames(found) => frames += found.len(),
            other => panic!("{other:?}"),
        }
    }
    channel.send_frame_timeout(vif, &frame(1514, 1), PATIENCE).unwrap();
}

#[test]
fn a_full_ring_keeps_the_frames_for_later() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let vif = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
    daemon.order(Order::Pause);
    daemon.counters();
    while channel.try_send(connection, b"x").is_ok() {}
    for number in 0..40 {
        // The burst is full after 32, and finds no room in the ring.
        let expected = number < 32;
        assert_eq!(channel.try_send_frame(vif, &frame(60, number)).is_ok(), expected);
    }
    assert!(matches!(channel.flush_frames(vif, NOW), Err(Error::WouldBlock)));
    assert!(matches!(channel.flush_frames(vif, SHORT), Err(Error::TimedOut { .. })));
    daemon.order(Order::Resume);
    channel.flush_frames(vif, PATIENCE).unwrap();
    let frames = channel.recv_frames(PATIENCE).unwrap();
    assert_eq!((frames.len(), frames.iter().last().unwrap().bytes), (32, &*frame(60, 31)));
}

/// They may be what the app waits for an answer to.
#[test]
fn frames_that_a_full_ring_has_kept_leave_while_a_call_waits() {
    for waiting in [Waiting::Spin, Waiting::Yield, Waiting::Block, Waiting::Adaptive] {
        let daemon = Daemon::start();
        let mut channel = Channel::attach(&daemon.options(waiting)).unwrap();
        let connection = channel.connect(address(ECHO), PATIENCE).unwrap();
        let vif = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
        daemon.takes_all();
        daemon.order(Order::Pause);
        daemon.counters();
        for _ in 0..channel.sizes().submission_entries {
            channel.set_silence(connection, Duration::from_secs(3)).unwrap();
        }
        channel.send_frame(vif, &frame(60, 1)).unwrap();
        assert!(!channel.arm(), "a frame has to leave");
        channel.disarm();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                daemon.order(Order::Resume);
            });
            let frames = channel.recv_frames(PATIENCE).unwrap();
            assert_eq!(bytes_of(&frames), [frame(60, 1)], "{waiting:?}");
        });
    }
}

#[test]
fn frames_messages_and_ends_each_wait_for_their_call() {
    let daemon = Daemon::start();
    let (mut channel, connection) = daemon.echo();
    let vif = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
    channel.send_frame(vif, &frame(60, 1)).unwrap();
    channel.send(connection, b"message").unwrap();
    channel.flush_frames(vif, PATIENCE).unwrap();
    channel.send(connection, b"another").unwrap();
    assert_eq!(&*channel.recv_zero_copy(PATIENCE).unwrap(), b"message");
    assert_eq!(&*channel.recv_zero_copy(PATIENCE).unwrap(), b"another");
    assert!(!channel.arm(), "frames are waiting");
    channel.disarm();
    daemon.order(Order::CloseVif { vif: vif.as_u32(), code: Code::Denied });
    assert_eq!(bytes_of(&channel.recv_frames(PATIENCE).unwrap()), [frame(60, 1)]);
    let ended = channel.recv_frames(PATIENCE).unwrap_err();
    assert!(ended.to_string().contains("was taken away: the daemon's policy"), "{ended}");
    assert!(matches!(ended, Error::Vif { vif: ended, code: Code::Denied } if ended == vif));
    assert!(matches!(channel.recv_frames(NOW), Err(Error::WouldBlock)));
    assert_eq!(channel.send_frame(vif, &frame(60, 1)).unwrap_err().code(), Code::Closed);
}

#[test]
fn events_tell_of_frames_and_of_the_end() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    let frames = vec![frame(60, 1), frame(70, 2)];
    daemon.order(Order::Frames { vif: vif.as_u32(), frames: frames.clone() });
    daemon.order(Order::CloseVif { vif: vif.as_u32(), code: Code::Limit });
    let Event::Frames(found) = channel.next_event(PATIENCE).unwrap() else { panic!() };
    assert_eq!(bytes_of(&found), frames);
    let Event::VifClosed { vif: closed, code } = channel.next_event(PATIENCE).unwrap() else {
        panic!();
    };
    assert_eq!((closed, code), (vif, Code::Limit));
    assert!(channel.close_vif(vif).is_err(), "it was told already");
}

#[test]
fn an_interface_that_is_taken_away_leaves_no_memory_behind() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    daemon.order(Order::Pause);
    daemon.counters();
    for number in 0..40 {
        channel.try_send_frame(vif, &frame(1000, number)).unwrap();
    }
    daemon.order(Order::CloseVif { vif: vif.as_u32(), code: Code::Closed });
    assert!(channel.recv_frames(PATIENCE).is_err());
    drop(channel.send_buffer(1 << 18, NOW).unwrap());
    daemon.order(Order::Resume);
    eventually(|| daemon.counters().sends_outstanding == 0);
    channel.detach(PATIENCE).unwrap();
}

#[test]
fn closing_lets_everything_leave_and_then_nothing_is_heard() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    let other = channel.open_vif(&VifOptions::receiving("arp")).unwrap().id;
    channel.send_frame(vif, &frame(60, 1)).unwrap();
    channel.send_frame(other, &frame(60, 2)).unwrap();
    channel.close_vif(vif).unwrap();
    daemon.order(Order::Frames { vif: vif.as_u32(), frames: vec![frame(60, 3)] });
    assert_eq!(bytes_of(&channel.recv_frames(PATIENCE).unwrap()), [frame(60, 2)]);
    assert!(matches!(channel.close_vif(vif), Err(Error::Vif { .. })));
    assert!(matches!(channel.frames_sent(vif), Err(Error::Vif { .. })));
    assert_eq!(channel.frames_sent(other).unwrap().sent, 1);
    channel.flush();
    eventually(|| daemon.counters().receive_pool_used_bytes == 0);
}

#[test]
fn detaching_lets_gathered_frames_leave() {
    let ends: [fn(Channel); 2] = [|channel| channel.detach(PATIENCE).unwrap(), drop];
    for end in ends {
        let daemon = Daemon::start();
        let (mut channel, vif) = open(&daemon);
        channel.send_frame(vif, &frame(60, 1)).unwrap();
        end(channel);
        assert_eq!(daemon.heard(), frame(60, 1));
    }
}

#[test]
fn a_capture_says_where_it_saw_a_frame() {
    let daemon = Daemon::start();
    let mut channel = daemon.attach();
    let options = CaptureOptions { filter: vec!["udp".into()], ..CaptureOptions::default() };
    let vif = channel.open_capture(&options).unwrap();
    assert_eq!((vif.copies, vif.transmit), (vec!["udp".to_owned()], vec![]));
    daemon.order(Order::Frames { vif: vif.id.as_u32(), frames: vec![frame(60, 1)] });
    let frames = channel.recv_frames(PATIENCE).unwrap();
    let info = frames.iter().next().unwrap().info;
    assert_eq!((info.point(), info.channel()), (Point::Delivered, Some(1)));
    assert!(info.is_outgoing());
}

#[test]
fn frames_outlive_their_interface_and_their_channel() {
    let daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    channel.send_frame(vif, &frame(60, 9)).unwrap();
    let frames = channel.recv_frames(PATIENCE).unwrap();
    channel.close_vif(vif).unwrap();
    let elsewhere = std::thread::spawn(move || bytes_of(&frames));
    drop(channel);
    assert_eq!(elsewhere.join().unwrap(), [frame(60, 9)]);
}

#[test]
fn the_end_of_the_daemon_is_an_error() {
    let mut daemon = Daemon::start();
    let (mut channel, vif) = open(&daemon);
    daemon.order(Order::Die);
    daemon.join();
    let error = channel.recv_frames(PATIENCE).unwrap_err();
    assert_eq!(error.code(), Code::DaemonGone);
    let error = channel.flush_frames(vif, PATIENCE).unwrap_err();
    assert_eq!(error.code(), Code::DaemonGone);
    assert_eq!(channel.close_vif(vif).unwrap_err().code(), Code::DaemonGone);
}
