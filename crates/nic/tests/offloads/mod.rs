//! Checksums and segments left to a device of DPDK, and not: the same frames arrive either way.

mod tap;
mod testpmd;

use clearway_nic::{Checksums, Queue};

use crate::conformance::Pair;
use crate::veth::{PORT, Stream, datagrams, is_ours, segments, send_all, send_unsummed, until};
use crate::{fresh, open_with};

pub(crate) fn run() {
    for offloads in [true, false] {
        let Pair { mut a, mut b, .. } = vhost(offloads);
        wait_for_links(&mut *a, &mut *b);
        let known = if offloads { Checksums::Right } else { Checksums::Unknown };
        streams_arrive_as_they_were(&mut *a, &mut *b, offloads);
        streams_arrive_as_they_were(&mut *b, &mut *a, false);
        checksums_are_known(&mut *a, &mut *b, known);
        checksums_are_known(&mut *b, &mut *a, known);
        frames_keep_their_order(&mut *a, &mut *b, known);
        for queue in [a, b] {
            assert_eq!(queue.capabilities().transmit_checksum, offloads);
            let is_refused = queue.info().mode.contains("in software, as the configuration says");
            assert_eq!(is_refused, !offloads, "{}", queue.info().mode);
        }
    }
    not_offered();
    tap::run();
    testpmd::run();
}

/// A device that does nothing of it.
fn not_offered() {
    let Pair { mut a, mut b, .. } = crate::memif("client");
    wait_for_links(&mut *a, &mut *b);
    assert!(!a.capabilities().transmit_checksum);
    let mode = a.info().mode;
    assert!(mode.contains("in software, which the device does not offer"), "{mode}");
    streams_arrive_as_they_were(&mut *a, &mut *b, false);
    streams_arrive_as_they_were(&mut *b, &mut *a, false);
    checksums_are_known(&mut *a, &mut *b, Checksums::Unknown);
    checksums_are_known(&mut *b, &mut *a, Checksums::Unknown);
}

fn wait_for_links(a: &mut dyn Queue, b: &mut dyn Queue) {
    until("both links are up", || {
        // A client of net_memif gives no buffers before it is asked for frames.
        a.receive(1, &mut |_, _| ());
        b.receive(1, &mut |_, _| ());
        a.link_up() && b.link_up()
    });
}

/// A guest's device (virtio), which can part packets, and its host's (vhost), which cannot but
/// takes those of the guest.
pub(crate) fn vhost(offloads: bool) -> Pair {
    let number = fresh();
    let path = std::env::temp_dir().join(format!("clearway-dpdk-{}-{number}", std::process::id()));
    let path = path.display();
    let host = format!("net_vhost{number},iface={path},queues=1,tso=1");
    let b = open_with(&host, offloads);
    let guest = format!("net_virtio_user{number},path={path},queues=1,queue_size=1024");
    let a = open_with(&guest, offloads);
    Pair { a: Box::new(a), b: Box::new(b), cut: None, keep: Box::new(()) }
}

/// Streams with and without their checksums; as super-frames, or not.
fn streams_arrive_as_they_were(from: &mut dyn Queue, to: &mut dyn Queue, as_super_frames: bool) {
    let macs = [to.info().mac, from.info().mac];
    let mut sizes = vec![1400; 100];
    sizes.extend([33, 1400, 77, 77, 77, 1, 1200]);
    let stream = Stream { to: PORT, sequence: u32::MAX - 9000, acknowledgement: 5 };
    for is_v4 in [true, false] {
        for (tags, is_summed) in [(&[][..], true), (&[5], true), (&[], false), (&[5], false)] {
            let frames = segments(macs, tags, is_v4, stream, &sizes);
            let before = (from.counters(), to.counters());
            if is_summed {
                send_all(from, &frames);
            } else {
                send_unsummed(from, &frames, tags, is_v4);
            }
            let received = receive(to, frames.len());
            assert!(received.iter().map(|(frame, _)| frame).eq(&frames), "{is_v4} {tags:?}");
            let after = (from.counters(), to.counters());
            assert_eq!(after.0.tx_frames - before.0.tx_frames, frames.len() as u64);
            assert_eq!(after.1.rx_frames_dropped, before.1.rx_frames_dropped);
            let sent = after.0.tx_super_frames - before.0.tx_super_frames;
            let taken = after.1.rx_super_frames - before.1.rx_super_frames;
            assert_eq!(sent, taken, "what leaves as one comes as one");
            assert_eq!(sent > 0, as_super_frames, "{sent} super-frames");
        }
    }
}

/// Of what was left to the device so much is known at the other end; of all else nothing, be it
/// right or wrong.
fn checksums_are_known(from: &mut dyn Queue, to: &mut dyn Queue, known: Checksums) {
    let macs = [to.info().mac, from.info().mac];
    let stream = Stream { to: PORT, sequence: 1, acknowledgement: 5 };
    for is_v4 in [true, false] {
        let mut one = |frame: &Vec<u8>, is_left: bool| {
            let frames = std::slice::from_ref(frame);
            if is_left {
                send_unsummed(from, frames, &[], is_v4);
            } else {
                send_all(from, frames);
            }
            receive(to, 1).remove(0)
        };
        let frame = &segments(macs, &[], is_v4, stream, &[700])[0];
        assert_eq!(one(frame, true), (frame.clone(), known));
        assert_eq!(one(frame, false), (frame.clone(), Checksums::Unknown));
        let mut wrong = frame.clone();
        *wrong.last_mut().expect("it has a payload") ^= 1;
        assert_eq!(one(&wrong, false), (wrong, Checksums::Unknown));
        let datagram = &datagrams(macs, &[], is_v4, &[700])[0];
        assert_eq!(one(datagram, false), (datagram.clone(), Checksums::Unknown));
    }
}

/// Super-frames, and frames of which something is known and of which nothing is, in turn.
fn frames_keep_their_order(from: &mut dyn Queue, to: &mut dyn Queue, known: Checksums) {
    let macs = [to.info().mac, from.info().mac];
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut sequence = 1;
    for round in 0..5 {
        let stream = Stream { to: PORT, sequence, acknowledgement: 5 };
        let stream = segments(macs, &[], true, stream, &[700, 700, 700, 20 + round]);
        sequence += 2120 + round as u32;
        send_unsummed(from, &stream[..3], &[], true);
        send_unsummed(from, &stream[3..], &[], true);
        let datagrams = datagrams(macs, &[], true, &[50 + round; 2]);
        send_all(from, &datagrams);
        sent.extend(stream.into_iter().map(|frame| (frame, known)));
        sent.extend(datagrams.into_iter().map(|frame| (frame, Checksums::Unknown)));
    }
    until("all of them have come", || {
        received.append(&mut take(to));
        received.len() >= sent.len()
    });
    assert!(received == sent, "frames have changed places");
}

/// The next `count` frames of these tests, with what is known of them.
fn receive(queue: &mut dyn Queue, count: usize) -> Vec<(Vec<u8>, Checksums)> {
    let mut received = Vec::new();
    until("all of them have come", || {
        received.append(&mut take(queue));
        received.len() >= count
    });
    assert_eq!(received.len(), count, "more frames than were sent");
    received
}

/// Those that are there now.
fn take(queue: &mut dyn Queue) -> Vec<(Vec<u8>, Checksums)> {
    let mut taken = Vec::new();
    queue.receive(10, &mut |frames, checksums| {
        let ours = frames.iter().filter(|frame| is_ours(frame));
        taken.extend(ours.map(|frame| (frame.to_vec(), checksums)));
    });
    taken
}
