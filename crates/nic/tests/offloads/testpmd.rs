//! DPDK's `dpdk-testpmd` at the other end: it sends back what it receives, with checksums and
//! segments left to its own device (`csum`).

use std::fs;
use std::time::{Duration, Instant};

use clearway_nic::{Checksums, Counters, Queue};

use super::take;
use crate::testpmd::{Directory, Testpmd, is_there};
use crate::veth::{PORT, Stream, checksum, segments, send_all, send_unsummed};
use crate::{fresh, open_with};

/// What is sent: a stream in segments of these sizes.
const SIZES: [usize; 20] = [1400; 20];
/// Where it begins; what is before finds out whether frames come back.
const START: u32 = 1_000_000;

pub(super) fn run() {
    if is_there() {
        as_guest();
        as_host();
    }
}

/// Our device is virtio, testpmd's vhost: it takes our super-frames whole, and sends back large
/// packets of which it does not say that they were several.
fn as_guest() {
    let directory = Directory::new();
    let socket = directory.0.join("socket");
    let host = format!("net_vhost0,iface={},queues=1,tso=1", socket.display());
    let mut testpmd = start(&directory, host, "csum set tcp hw 0");
    testpmd.wait_until("it has its socket", || socket.exists());
    let (number, path) = (fresh(), socket.display());
    let guest = format!("net_virtio_user{number},path={path},queues=1,queue_size=1024");
    let mut queue = open_with(&guest, true);
    let gained = there_and_back(&mut testpmd, &mut queue, |at| 1514 - at);
    assert!(gained.tx_super_frames > 0 && gained.rx_super_frames > 0, "{gained:?}");
}

/// Our device is vhost, testpmd's virtio, which parts our segments once more.
fn as_host() {
    let directory = Directory::new();
    let (number, path) = (fresh(), directory.0.join("socket"));
    let path = path.display();
    let mut queue = open_with(&format!("net_vhost{number},iface={path},queues=1,tso=1"), true);
    let guest = format!("net_virtio_user0,path={path},queues=1,queue_size=1024");
    let mut testpmd = start(&directory, guest, "csum set tcp hw 0\ntso set 500 0");
    let gained = there_and_back(&mut testpmd, &mut queue, |_| 500);
    assert_eq!((gained.tx_super_frames, gained.rx_super_frames), (0, 4 * SIZES.len() as u64));
}

/// Sends streams, and has them back, with right checksums, the first segment as long as
/// `first_bytes` says of what begins there. What that took.
fn there_and_back(
    testpmd: &mut Testpmd,
    queue: &mut dyn Queue,
    first_bytes: impl Fn(usize) -> usize,
) -> Counters {
    open_path(testpmd, queue);
    let before = queue.counters();
    for (is_v4, is_left) in [(true, false), (true, true), (false, false), (false, true)] {
        let payload_at = 14 + if is_v4 { 20 } else { 40 } + 20;
        let frames = stream(queue, is_v4, START, &SIZES);
        if is_left {
            send_unsummed(queue, &frames, &[], is_v4);
        } else {
            send_all(queue, &frames);
        }
        let sent: Vec<u8> = frames.iter().flat_map(|frame| &frame[payload_at..]).copied().collect();
        let (mut received, mut first) = (Vec::new(), None);
        testpmd.wait_until("the stream has come back", || {
            for (frame, checksums) in take(queue) {
                assert_eq!(checksums, Checksums::Right);
                assert!(has_right_checksum(&frame, is_v4));
                let expected = START + received.len() as u32;
                assert_eq!(sequence(&frame, is_v4), expected, "all of it, in order");
                received.extend_from_slice(&frame[payload_at..]);
                first = first.or(Some(frame.len() - payload_at));
            }
            received.len() >= sent.len()
        });
        assert!(received == sent, "the stream has changed on its way");
        assert_eq!(first, Some(first_bytes(payload_at)));
    }
    let after = queue.counters();
    assert_eq!(after.rx_frames_dropped, before.rx_frames_dropped);
    Counters {
        tx_super_frames: after.tx_super_frames - before.tx_super_frames,
        rx_super_frames: after.rx_super_frames - before.rx_super_frames,
        ..Counters::default()
    }
}

/// Testpmd discards what arrives before it starts to forward, which it does at some time after its
/// link is up: sends frames until one comes back, and then a last one, behind which nothing is
/// under way.
fn open_path(testpmd: &mut Testpmd, queue: &mut dyn Queue) {
    testpmd.wait_until("the link is up", || {
        queue.receive(0, &mut |_, _| ());
        queue.link_up()
    });
    let (mut number, mut next) = (0, Instant::now());
    testpmd.wait_until("the first frame has come back", || {
        if Instant::now() >= next {
            (number, next) = (number + 1, Instant::now() + Duration::from_millis(100));
            let probe = stream(queue, true, number, &[10]);
            send_all(queue, &probe);
        }
        take(queue).iter().any(|(frame, _)| sequence(frame, true) == number)
    });
}

fn stream(queue: &dyn Queue, is_v4: bool, sequence: u32, sizes: &[usize]) -> Vec<Vec<u8>> {
    let macs = [[2, 0, 0, 0, 0, 9], queue.info().mac];
    let stream = Stream { to: PORT, sequence, acknowledgement: 5 };
    segments(macs, &[], is_v4, stream, sizes)
}

fn sequence(frame: &[u8], is_v4: bool) -> u32 {
    let at = 14 + if is_v4 { 20 } else { 40 } + 4;
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("of four bytes"))
}

fn has_right_checksum(frame: &[u8], is_v4: bool) -> bool {
    let (addresses, tcp) =
        if is_v4 { (&frame[26..34], &frame[34..]) } else { (&frame[22..54], &frame[54..]) };
    let length = (tcp.len() as u16).to_be_bytes();
    checksum(&[addresses, &length, &[0, 6], tcp].concat()) == 0
}

fn start(directory: &Directory, device: String, settings: &str) -> Testpmd {
    let commands = directory.0.join("commands");
    let text = format!("set fwd csum\nport stop 0\n{settings}\nport start 0\nstart\n");
    fs::write(&commands, text).expect("the directory is ours");
    let file = format!("--cmdline-file={}", commands.display());
    Testpmd::start(directory, 256, &[device], &["-i", "--total-num-mbufs=8192", &file])
}
