use clearway_base::{MICROSECOND, Time};
use clearway_wire::checksum::pseudo_header_v4;
use clearway_wire::protocol;

use super::*;
use crate::{Queue as _, Segments, Transmit, test_frames};

fn send(queue: &mut Queue, frame: &[u8]) {
    let mut fill = |buffer: &mut [u8]| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    };
    assert_eq!(queue.transmit(&mut fill), Transmit::Queued);
    queue.flush();
}

fn received(queue: &mut Queue) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    queue.receive(1000, &mut |burst, _| frames.extend(burst.iter().map(|frame| frame.to_vec())));
    frames
}

/// A frame that says its number.
fn numbered(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[20..24].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends so many numbered frames one by one over a wire with `faults`; what arrives.
fn run(seed: u64, faults: Faults, frames: u32) -> (Vec<Vec<u8>>, FaultCounts) {
    let (mut a, mut b, handle) = pair(Options::new(seed), [faults, Faults::default()]);
    let mut arrived = Vec::new();
    for number in 0..frames {
        send(&mut a, &numbered(number));
        arrived.append(&mut received(&mut b));
    }
    for _ in 0..32 {
        arrived.append(&mut received(&mut b));
    }
    (arrived, handle.fault_counts())
}

#[test]
fn a_perfect_wire_changes_nothing() {
    let (arrived, counts) = run(1, Faults::default(), 1000);
    assert_eq!(arrived, (0..1000).map(numbered).collect::<Vec<_>>());
    assert_eq!(counts, FaultCounts::default());
}

#[test]
fn a_checksum_that_is_left_to_the_queue_is_filled_in() {
    let (mut a, mut b, _) = pair(Options::new(1), [Faults::default(); 2]);
    let segment = [&[0; 12][..], &[0x50, 0x10, 0, 0, 0x12, 0x34, 0, 0], b"payload"].concat();
    let length = (20 + segment.len()) as u8;
    let ip = [0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let frame = test_frames::ethernet(&[], 0x0800, &[&ip[..], &segment].concat());
    let mut fill = |buffer: &mut [u8], most| {
        buffer[..frame.len()].copy_from_slice(&frame);
        assert_eq!(most, 1);
        Segments { bytes: frame.len(), segment_bytes: 0 }
    };
    assert_eq!(a.transmit_segments(&mut fill), Transmit::Queued);
    a.flush();
    let [arrived] = <[_; 1]>::try_from(received(&mut b)).expect("one frame");
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let pseudo = pseudo_header_v4(from, to, protocol::TCP, segment.len() as u16);
    assert!(pseudo.with(&arrived[34..]).is_right() && !pseudo.with(&segment).is_right());
    assert_eq!((&arrived[..50], &arrived[52..]), (&frame[..50], &frame[52..]));
}

#[test]
fn the_seed_decides_everything() {
    let faults = Faults::all(100_000);
    assert_eq!(run(5, faults, 2000), run(5, faults, 2000));
    assert_ne!(run(5, faults, 2000), run(6, faults, 2000));
}

#[test]
fn faults_are_as_frequent_as_asked_for_and_counted() {
    let (arrived, counts) = run(7, Faults::all(100_000), 10_000);
    let plausible = 800..1200;
    assert!(plausible.contains(&counts.lost), "{counts:?}");
    assert!(plausible.contains(&counts.duplicated), "{counts:?}");
    assert!(plausible.contains(&counts.corrupted), "{counts:?}");
    assert!(plausible.contains(&counts.reordered), "{counts:?}");
    assert_eq!(arrived.len() as u64, 10_000 - counts.lost + counts.duplicated);
}

#[test]
fn reordered_frames_arrive_late_but_do_arrive() {
    let faults = Faults { reordering_ppm: 200_000, reordering_frames_max: 4, ..Faults::default() };
    let (arrived, _) = run(3, faults, 1000);
    let mut sorted = arrived.clone();
    sorted.sort();
    assert_eq!(sorted, (0..1000).map(numbered).collect::<Vec<_>>());
    assert_ne!(sorted, arrived);
    for (place, frame) in arrived.iter().enumerate() {
        let number = u32::from_be_bytes(frame[20..24].try_into().unwrap());
        assert!(number.abs_diff(place as u32) <= 8);
    }
}

#[test]
fn a_lone_held_frame_comes_forward() {
    let faults =
        Faults { reordering_ppm: 1_000_000, reordering_frames_max: 5, ..Faults::default() };
    let (mut a, mut b, _) = pair(Options::new(1), [faults; 2]);
    send(&mut a, &numbered(1));
    assert!(!b.arm(), "the receiver must poll on");
    let polls = (1..10).find(|_| !received(&mut b).is_empty()).unwrap();
    assert!(polls <= 6, "{polls}");
}

#[test]
fn corruption_flips_one_to_three_bits() {
    let faults = Faults { corruption_ppm: 1_000_000, ..Faults::default() };
    let (arrived, _) = run(2, faults, 1000);
    for (number, frame) in arrived.iter().enumerate() {
        let sent = numbered(number as u32);
        let flipped = frame.iter().zip(&sent).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
        assert!((1..=3).contains(&flipped));
    }
}

#[test]
fn delayed_frames_wait_for_the_clock() {
    let faults = Faults { latency_ns: 10 * MICROSECOND, ..Faults::default() };
    let (mut a, mut b, handle) = pair(Options::new(1), [faults; 2]);
    send(&mut a, &numbered(1));
    handle.set_time(Time::from_ns(5 * MICROSECOND));
    send(&mut a, &numbered(2));
    assert!(received(&mut b).is_empty());
    assert!(b.arm(), "nothing has arrived yet");
    assert_eq!(handle.next_arrival(), Some(Time::from_ns(10 * MICROSECOND)));
    handle.set_time(Time::from_ns(10 * MICROSECOND));
    b.disarm();
    assert_eq!(received(&mut b), [numbered(1)]);
    assert_eq!(handle.next_arrival(), Some(Time::from_ns(15 * MICROSECOND)));
    handle.set_time(Time::from_ns(15 * MICROSECOND));
    assert_eq!(received(&mut b), [numbered(2)]);
    assert_eq!(handle.next_arrival(), None);
}

#[test]
fn links_and_partitions_can_be_changed() {
    let (mut a, mut b, handle) = pair(Options::new(1), [Faults::default(); 2]);
    handle.set_link(1, false);
    assert!(!a.link_up() && !b.link_up());
    send(&mut a, &numbered(1));
    assert_eq!(a.counters().tx_frames_dropped, 1);
    handle.set_link(1, true);
    handle.set_faults(0, Faults::partition());
    send(&mut a, &numbered(2));
    handle.set_faults(0, Faults::default());
    send(&mut a, &numbered(3));
    assert_eq!(received(&mut b), [numbered(3)]);
}

const MACS: [MacAddress; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

/// An IPv4 UDP frame with these ports.
fn udp(to: MacAddress, source: u16, destination: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&to);
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 46]);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&source.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.to_be_bytes());
    frame
}

fn three(queues: usize, seed: u64) -> Vec<Vec<Queue>> {
    let ports = MACS.map(|mac| Port::new(mac, queues));
    switch(Options::new(seed), &ports).0
}

#[test]
fn a_switch_delivers_to_whom_it_concerns() {
    let mut nics = three(1, 1);
    send(&mut nics[0][0], &udp(MACS[1], 1, 2));
    send(&mut nics[0][0], &udp([0xff; 6], 3, 4));
    send(&mut nics[0][0], &udp([2, 9, 9, 9, 9, 9], 5, 6));
    let frames = nics.iter_mut().map(|nic| received(&mut nic[0]).len()).collect::<Vec<_>>();
    assert_eq!(frames, [0, 2, 1]);
}

#[test]
fn a_switch_drops_what_finds_no_descriptor() {
    let mut nics = three(1, 1);
    (0..300).for_each(|port| send(&mut nics[0][0], &udp(MACS[1], port, 1)));
    assert_eq!(received(&mut nics[1][0]).len(), 256);
    assert_eq!(nics[1][0].counters().rx_frames_dropped, 44);
}

#[test]
fn rss_spreads_ports_and_keeps_flows_together() {
    let queue_of = |seed, source| {
        let mut nics = three(4, seed);
        send(&mut nics[0][0], &udp(MACS[1], source, 7));
        send(&mut nics[0][3], &udp(MACS[1], source, 7));
        let counts = nics[1].iter_mut().map(|queue| received(queue).len()).collect::<Vec<_>>();
        counts.iter().position(|count| *count == 2).expect("both in one queue")
    };
    let queues = |seed| (0..64).map(|source| queue_of(seed, source)).collect::<Vec<_>>();
    let (one, other) = (queues(1), queues(2));
    assert_ne!(one, other, "the key is random");
    assert!((0..4).all(|queue| one.contains(&queue)));
}

#[test]
fn a_new_key_moves_flows_and_nothing_else() {
    let ports = MACS.map(|mac| Port::new(mac, 4));
    let (mut nics, handle) = switch(Options::new(8), &ports);
    let frames: Vec<_> = (0..64).map(|source| udp(MACS[1], source, 7)).collect();
    let queues = || frames.iter().map(|frame| handle.queue_of(1, frame)).collect::<Vec<_>>();
    let before = queues();
    handle.rekey(0);
    assert_eq!(queues(), before, "another port's key");
    handle.rekey(1);
    let after = queues();
    assert_ne!(after, before);
    for (frame, queue) in frames.iter().zip(after) {
        send(&mut nics[0][0], frame);
        assert_eq!(received(&mut nics[1][queue]), std::slice::from_ref(frame));
    }
}

#[test]
fn one_direction_can_be_cut() {
    let mut ports = MACS.map(|mac| Port::new(mac, 1));
    ports[2].receives = Faults::partition();
    let (mut nics, handle) = switch(Options::new(1), &ports);
    handle.set_cut(0, 1, true);
    send(&mut nics[0][0], &udp([0xff; 6], 1, 2));
    send(&mut nics[1][0], &udp([0xff; 6], 3, 4));
    let frames = nics.iter_mut().map(|nic| received(&mut nic[0]).len()).collect::<Vec<_>>();
    assert_eq!(frames, [1, 0, 0]);
    assert_eq!((handle.frames_sent(), handle.fault_counts().lost), (2, 2));
    handle.set_cut(0, 1, false);
    send(&mut nics[0][0], &udp([0xff; 6], 1, 2));
    let frames = nics.iter_mut().map(|nic| received(&mut nic[0]).len()).collect::<Vec<_>>();
    assert_eq!(frames, [0, 1, 0]);
}

#[test]
fn senders_share_the_rate_of_a_receiver() {
    let mut ports = MACS.map(|mac| Port::new(mac, 1));
    // 84 bytes with what Ethernet adds: 672 ns each.
    ports[2].receives.rate = Rate { bits_per_s: 1_000_000_000, queue_bytes: 600, mark_bytes: 0 };
    let (mut nics, handle) = switch(Options::new(1), &ports);
    for port in 0..6 {
        send(&mut nics[port % 2][0], &udp(MACS[2], port as u16, 1));
    }
    handle.set_time(Time::from_ns(4 * 672));
    assert_eq!(received(&mut nics[2][0]).len(), 4);
    handle.set_time(Time::from_ns(6 * 672));
    assert_eq!(received(&mut nics[2][0]).len(), 2);
    (0..20).for_each(|port| send(&mut nics[0][0], &udp(MACS[2], port, 1)));
    assert!((10..15).contains(&handle.fault_counts().overflowed));
}
