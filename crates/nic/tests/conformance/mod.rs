//! What every driver must do, checked through the queue trait alone. A driver's test file says how
//! to make two connected queues and calls [`run`]; that is all.
//!
//! Frames are UDP over IPv4 to [`UDP_PORT`], so that a driver that steers traffic can be told to
//! let them through. Anything else that arrives, such as what a kernel says by itself on a veth, is
//! ignored.

use std::time::{Duration, Instant};

use clearway_nic::{BURST_FRAMES, Checksums, Counters, Queue, Receiver, Together, Transmit};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The UDP port that all test frames go to.
pub(crate) const UDP_PORT: u16 = 31_580;
/// The IPv4 addresses of both ends, for drivers that steer by address too.
pub(crate) const ADDRESSES: [[u8; 4]; 2] = [[10, 77, 0, 1], [10, 77, 0, 2]];

/// Smallest Ethernet frame without frame check sequence.
const FRAME_BYTES_MIN: usize = 60;
/// No queue takes more frames than this without a flush.
const QUEUE_FRAMES_MAX: usize = 100_000;
/// How long anything may take before it counts as never. Generous, because machines that run tests
/// are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes one end of a link away.
pub(crate) type Cut = Box<dyn FnOnce(Box<dyn Queue>)>;

/// What a driver must do, and its name.
type Case = (&'static str, fn(Pair));

/// Two connected queues.
pub(crate) struct Pair {
    /// One end.
    pub(crate) a: Box<dyn Queue>,
    /// The other end.
    pub(crate) b: Box<dyn Queue>,
    /// Takes `b` away in such a way that the link of `a` goes down, where the driver can know that.
    pub(crate) cut: Option<Cut>,
    /// Whatever must live as long as the queues: namespaces, handles.
    pub(crate) keep: Box<dyn std::any::Any>,
}

/// Runs all cases over pairs that `make` makes, a fresh one for each case.
pub(crate) fn run(make: impl Fn() -> Pair) {
    let cases: [Case; 13] = [
        ("every size arrives intact", every_size_arrives_intact),
        ("frames keep their order", frames_keep_their_order),
        ("a full queue says so", a_full_queue_says_so_and_loses_nothing),
        ("the budget is respected", the_budget_is_respected),
        ("a burst stays as it is", a_burst_stays_as_it_is),
        ("frames come to who takes segments", frames_come_to_who_takes_segments_together),
        ("nothing to send uses nothing", nothing_to_send_uses_nothing),
        ("the buffer has the promised size", the_buffer_has_the_promised_size),
        ("counters are right", counters_are_right),
        ("a sleeper is woken", a_sleeper_is_woken),
        ("nobody sleeps while frames wait", nobody_sleeps_while_frames_wait),
        ("an idle queue stays quiet", an_idle_queue_stays_quiet),
        ("a cut link is noticed", a_cut_link_is_noticed),
    ];
    for (name, case) in cases {
        println!("conformance: {name}");
        let mut pair = make();
        until("both links are up", || {
            frames_of(&mut *pair.a);
            frames_of(&mut *pair.b);
            pair.a.link_up() && pair.b.link_up()
        });
        case(pair);
    }
}

fn every_size_arrives_intact(mut pair: Pair) {
    let max = pair.a.capabilities().frame_bytes_max;
    assert_eq!(max, pair.b.capabilities().frame_bytes_max);
    for (number, length) in [FRAME_BYTES_MIN, 64, 65, 127, 1000, 1500, max - 1, max]
        .into_iter()
        .filter(|length| *length <= max)
        .enumerate()
    {
        let frame = frame(&*pair.a, &*pair.b, number as u32, length);
        send(&mut *pair.a, &frame);
        assert_eq!(receive([&mut *pair.a, &mut *pair.b], 1), [frame], "{length} bytes from a to b");
        let frame = back(self::frame(&*pair.b, &*pair.a, number as u32, length));
        send(&mut *pair.b, &frame);
        assert_eq!(receive([&mut *pair.b, &mut *pair.a], 1), [frame], "{length} bytes from b to a");
    }
}

fn frames_keep_their_order(mut pair: Pair) {
    let mut number = 0;
    for burst in [1, 2, 31, 32, 33, 100] {
        for _ in 0..20 {
            let frames: Vec<_> = (0..burst)
                .map(|ahead| {
                    frame(&*pair.a, &*pair.b, number + ahead, FRAME_BYTES_MIN + ahead as usize)
                })
                .collect();
            number += burst;
            frames
                .iter()
                .for_each(|frame| assert_eq!(queue(&mut *pair.a, frame), Transmit::Queued));
            pair.a.flush();
            assert_eq!(receive([&mut *pair.a, &mut *pair.b], frames.len()), frames);
        }
    }
}

fn a_full_queue_says_so_and_loses_nothing(mut pair: Pair) {
    for lap in 0..3 {
        let mut frames = Vec::new();
        loop {
            let frame = frame(&*pair.a, &*pair.b, frames.len() as u32, FRAME_BYTES_MIN + lap);
            match queue(&mut *pair.a, &frame) {
                Transmit::Queued => frames.push(frame),
                Transmit::Full => break,
                Transmit::Nothing => panic!("a frame is not nothing"),
            }
            assert!(frames.len() <= QUEUE_FRAMES_MAX, "a queue without end");
        }
        assert!(frames.len() >= clearway_nic::LCD_DESCRIPTORS, "room for {}", frames.len());
        assert_eq!(pair.a.transmit(&mut |_| panic!("the queue is full")), Transmit::Full);
        pair.a.flush();
        assert_eq!(receive([&mut *pair.a, &mut *pair.b], frames.len()), frames);
        until("there is room again", || pair.a.transmit(&mut |_| 0) == Transmit::Nothing);
    }
}

fn the_budget_is_respected(mut pair: Pair) {
    let frames: Vec<_> =
        (0..40).map(|number| frame(&*pair.a, &*pair.b, number, FRAME_BYTES_MIN)).collect();
    frames.iter().for_each(|frame| assert_eq!(queue(&mut *pair.a, frame), Transmit::Queued));
    pair.a.flush();
    let mut arrived = Vec::new();
    until("all frames have arrived", || {
        assert_eq!(pair.b.receive(0, &mut |_, _| panic!("the budget was 0")), 0);
        let mut shown = 0;
        // At last all of what may have come together with those before.
        let budget = if arrived.len() < frames.len() / 2 { 7 } else { usize::MAX };
        let taken = pair.b.receive(budget, &mut |frames, _| {
            shown += frames.len();
            arrived.extend(ours(frames));
        });
        assert!(taken <= budget);
        assert_eq!(taken, shown, "what is taken is shown");
        arrived.len() >= frames.len()
    });
    assert_eq!(arrived, frames);
}

fn a_burst_stays_as_it_is(mut pair: Pair) {
    let max = pair.a.capabilities().frame_bytes_max;
    for length in [FRAME_BYTES_MIN, 1000, max] {
        let frames: Vec<_> =
            (0..100).map(|number| frame(&*pair.a, &*pair.b, number, length)).collect();
        frames.iter().for_each(|frame| assert_eq!(queue(&mut *pair.a, frame), Transmit::Queued));
        pair.a.flush();
        let mut arrived = Vec::new();
        until("all frames have arrived", || {
            let mut shown = 0;
            let taken = pair.b.receive(64, &mut |frames, _| {
                assert!((1..=BURST_FRAMES).contains(&frames.len()), "{} frames", frames.len());
                shown += frames.len();
                // The whole burst has been given out before the first frame is looked at.
                arrived.extend(ours(frames));
            });
            assert_eq!(taken, shown);
            arrived.len() >= frames.len()
        });
        assert_eq!(arrived, frames);
    }
}

/// Takes segments together, of which these tests send none.
#[derive(Default)]
struct Taker(Vec<Vec<u8>>);

impl Receiver for Taker {
    fn frames(&mut self, frames: &[&[u8]], _: Checksums) {
        self.0.extend(ours(frames));
    }

    fn together(&mut self, segments: Together<'_>) -> bool {
        assert!(!is_ours(segments.first), "a datagram is no segment of TCP");
        false
    }
}

fn frames_come_to_who_takes_segments_together(mut pair: Pair) {
    let frames: Vec<_> = (0..100).map(|number| frame(&*pair.a, &*pair.b, number, 1000)).collect();
    frames.iter().for_each(|frame| assert_eq!(queue(&mut *pair.a, frame), Transmit::Queued));
    pair.a.flush();
    let mut taker = Taker::default();
    until("all frames have arrived", || {
        assert!(pair.b.receive_together(7, &mut taker) <= 7);
        taker.0.len() >= frames.len()
    });
    assert_eq!(taker.0, frames);
}

fn nothing_to_send_uses_nothing(mut pair: Pair) {
    for _ in 0..2 * clearway_nic::LCD_DESCRIPTORS {
        assert_eq!(pair.a.transmit(&mut |_| 0), Transmit::Nothing);
    }
    pair.a.flush();
    let before = pair.a.counters().tx_frames;
    let frame = frame(&*pair.a, &*pair.b, 1, FRAME_BYTES_MIN);
    send(&mut *pair.a, &frame);
    assert_eq!(receive([&mut *pair.a, &mut *pair.b], 1), [frame]);
    assert_eq!(pair.a.counters().tx_frames - before, 1);
}

fn the_buffer_has_the_promised_size(mut pair: Pair) {
    let max = pair.a.capabilities().frame_bytes_max;
    assert!(max >= 1514, "every NIC carries 1500 bytes and an Ethernet header");
    for queue in [&mut pair.a, &mut pair.b] {
        let mut seen = 0;
        queue.transmit(&mut |buffer| {
            seen = buffer.len();
            0
        });
        assert_eq!(seen, max);
    }
}

fn counters_are_right(mut pair: Pair) {
    let lengths = [60, 100, 1000];
    let bytes = lengths.iter().sum::<usize>() as u64;
    let sent = |queue: &dyn Queue| {
        let Counters { tx_frames, tx_bytes, tx_frames_dropped, .. } = queue.counters();
        [tx_frames, tx_bytes, tx_frames_dropped]
    };
    let arrived = |queue: &dyn Queue| {
        let Counters { rx_frames, rx_bytes, rx_frames_dropped, .. } = queue.counters();
        [rx_frames, rx_bytes, rx_frames_dropped]
    };
    // One of several queues may have sent or received before: which it is was found out like that.
    let before = (sent(&*pair.a), arrived(&*pair.b));
    for length in lengths {
        let frame = frame(&*pair.a, &*pair.b, 0, length);
        send(&mut *pair.a, &frame);
    }
    assert_eq!(receive([&mut *pair.a, &mut *pair.b], lengths.len()).len(), lengths.len());
    assert_eq!(gained(sent(&*pair.a), before.0), [3, bytes, 0]);
    let arrived = gained(arrived(&*pair.b), before.1);
    // A kernel may have said something of its own.
    if arrived[0] == 3 {
        assert_eq!(arrived, [3, bytes, 0]);
    }
}

fn gained(after: [u64; 3], before: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|index| after[index] - before[index])
}

fn a_sleeper_is_woken(mut pair: Pair) {
    if pair.b.wait_fd().is_none() {
        return;
    }
    for number in 0..20 {
        let frame = frame(&*pair.a, &*pair.b, number, FRAME_BYTES_MIN);
        let mut arrived = Vec::new();
        std::thread::scope(|scope| {
            let (a, frame) = (&mut pair.a, &frame);
            // Sometimes the frame comes before the receiver sleeps, sometimes after.
            scope.spawn(move || {
                if number % 2 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                send(&mut **a, frame);
            });
            let start = Instant::now();
            while arrived.is_empty() {
                assert!(start.elapsed() < PATIENCE, "frame {number} never came");
                if pair.b.arm() {
                    assert!(sleep(&*pair.b, PATIENCE), "frame {number}: nobody woke the sleeper");
                }
                pair.b.disarm();
                arrived.append(&mut frames_of(&mut *pair.b));
            }
        });
        assert_eq!(arrived, [frame]);
    }
}

fn nobody_sleeps_while_frames_wait(mut pair: Pair) {
    let frame = frame(&*pair.a, &*pair.b, 1, FRAME_BYTES_MIN);
    send(&mut *pair.a, &frame);
    // The frame is under way; a driver with a wire in between may not have it yet, but must not
    // miss it.
    if pair.b.wait_fd().is_some() {
        while pair.b.arm() {
            assert!(sleep(&*pair.b, PATIENCE), "the frame was missed");
            pair.b.disarm();
            if frames_of(&mut *pair.b) == [frame.clone()] {
                return;
            }
        }
        pair.b.disarm();
    }
    assert_eq!(receive([&mut *pair.a, &mut *pair.b], 1), [frame]);
}

fn an_idle_queue_stays_quiet(mut pair: Pair) {
    if pair.b.wait_fd().is_none() {
        return;
    }
    let frame = frame(&*pair.a, &*pair.b, 1, FRAME_BYTES_MIN);
    send(&mut *pair.a, &frame);
    assert_eq!(receive([&mut *pair.a, &mut *pair.b], 1), [frame]);
    // Whatever was left over from setting up is consumed after a few rounds; then there is silence.
    until("the queue is quiet", || {
        let quiet = pair.b.arm() && !sleep(&*pair.b, Duration::from_millis(50));
        pair.b.disarm();
        frames_of(&mut *pair.b);
        quiet
    });
}

fn a_cut_link_is_noticed(pair: Pair) {
    let Pair { mut a, b, cut, keep } = pair;
    let Some(cut) = cut else { return };
    let frame = frame(&*a, &*b, 1, FRAME_BYTES_MIN);
    cut(b);
    until("the link is down", || {
        // As one that sleeps: who never does may look after the link now and then only.
        a.arm();
        a.disarm();
        frames_of(&mut *a);
        !a.link_up()
    });
    let before = a.counters();
    assert_eq!(queue(&mut *a, &frame), Transmit::Queued, "what cannot leave is dropped");
    a.flush();
    let after = a.counters();
    assert_eq!(after.tx_frames_dropped, before.tx_frames_dropped + 1);
    assert_eq!(after.tx_frames, before.tx_frames);
    drop(keep);
}

/// A UDP frame of `length` bytes with this number, and the rest of it depending on the number.
pub(crate) fn frame(from: &dyn Queue, to: &dyn Queue, number: u32, length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    let (from, to) = (from.info().mac, to.info().mac);
    frame.extend_from_slice(&to);
    // Both ends say the same of themselves where no Ethernet addresses are on the wire.
    frame.extend_from_slice(if from == to { &clearway_nic::udp::ROUTER_MAC } else { &from });
    frame.extend_from_slice(&[0x08, 0x00]);
    frame.extend_from_slice(&ipv4_header((length - 14) as u16));
    frame.extend_from_slice(&UDP_PORT.to_be_bytes());
    frame.extend_from_slice(&UDP_PORT.to_be_bytes());
    frame.extend_from_slice(&((length - 34) as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((frame.len()..length).map(|index| (index as u32).wrapping_mul(number + 7) as u8));
    frame
}

/// The same the other way: swapping the addresses leaves the checksum as it is.
pub(crate) fn back(mut frame: Vec<u8>) -> Vec<u8> {
    frame[26..34].rotate_left(4);
    frame
}

fn ipv4_header(total_bytes: u16) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    header[6] = 0x40; // "don't fragment", as all of Clearway's packets say
    header[8..10].copy_from_slice(&[64, 17]);
    header[12..16].copy_from_slice(&ADDRESSES[0]);
    header[16..20].copy_from_slice(&ADDRESSES[1]);
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn is_ours(frame: &[u8]) -> bool {
    frame.len() >= FRAME_BYTES_MIN
        && frame[12..14] == [0x08, 0x00]
        && frame[23] == 17
        && frame[36..38] == UDP_PORT.to_be_bytes()
}

fn ours(frames: &[&[u8]]) -> impl Iterator<Item = Vec<u8>> {
    frames.iter().filter(|frame| is_ours(frame)).map(|frame| frame.to_vec())
}

fn queue(queue: &mut dyn Queue, frame: &[u8]) -> Transmit {
    queue.transmit(&mut |buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    })
}

fn send(queue: &mut dyn Queue, frame: &[u8]) {
    assert_eq!(self::queue(queue, frame), Transmit::Queued);
    queue.flush();
}

/// All test frames that are there now.
fn frames_of(queue: &mut dyn Queue) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    queue.receive(1024, &mut |burst, _| frames.extend(ours(burst)));
    frames
}

/// The next `count` test frames from one queue to the other, and no more. The first takes turns,
/// too, as in an engine: what the kernel had no room for leaves in one of them.
fn receive([from, to]: [&mut dyn Queue; 2], count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    until("all frames have arrived", || {
        from.receive(0, &mut |_, _| panic!("the budget was 0"));
        frames.append(&mut frames_of(to));
        frames.len() >= count
    });
    frames.append(&mut frames_of(to));
    assert_eq!(frames.len(), count, "more frames than were sent");
    frames
}

/// Sleeps on the queue's descriptor; false if nothing woke us.
fn sleep(queue: &dyn Queue, at_most: Duration) -> bool {
    let fd = queue.wait_fd().expect("the queue can be waited for");
    let timeout = Timespec {
        tv_sec: at_most.as_secs().cast_signed(),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // Some of DPDK's devices signal the process.
    let poll = || rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
    rustix::io::retry_on_intr(poll).expect("poll") > 0
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
