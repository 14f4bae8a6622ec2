//! What a channel costs on this machine: an app on core 0 and an echoing daemon on core 1, with
//! pools, copies and releases as in real life, but without engine or network.
//!
//! `cargo run --release -p clearway-channel --example speed`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clearway_channel::burst::{Filling, FrameInfo, ReceivedBurst, SentBurst, packed_bytes};
use clearway_channel::{
    AppEnd, BURST_FRAMES_MAX, Command, Completion, DaemonEnd, Extent, Pool, Received, Sizes, Told,
};

const MESSAGE_BYTES: usize = 64;
/// Echoes per slice: short enough to fall between two disturbances on a busy machine.
const SLICE_ECHOES: u64 = 1024;

fn main() {
    println!("pool: allocate + free      {:6.1} ns", pool_pair_ns());
    println!("one thread: send + take    {:6.1} ns", one_thread_ns());
    let (sent, received) = one_thread_frame_ns();
    println!("one thread: a frame out    {sent:6.1} ns, in bursts of {BURST_FRAMES_MAX}");
    println!("one thread: a frame in     {received:6.1} ns, in bursts of {BURST_FRAMES_MAX}");
    let (at_once, in_pieces) = copies_ns();
    println!("a copy of 32 KiB           {at_once:6.0} ns at once, {in_pieces:.0} in pieces");
    let mut slices = line_ns();
    slices.sort_by(f64::total_cmp);
    println!("a cache line, to the other core and back: {:6.1} ns", slices[slices.len() / 100]);
    for window in [1, 8, 32, 256] {
        let mut slices = two_threads_ns(window, Duration::from_millis(500));
        slices.sort_by(f64::total_cmp);
        let (best, median) = (slices[slices.len() / 100], slices[slices.len() / 2]);
        println!(
            "two cores, window {window:3}: ns per echo {best:6.1} (undisturbed: best 1 %) \
             {median:6.1} (median)"
        );
    }
}

fn pool_pair_ns() -> f64 {
    let mut pool = Pool::new(16 << 20);
    let rounds = 20_000_000;
    let start = Instant::now();
    for _ in 0..rounds {
        let offset = std::hint::black_box(pool.allocate(64)).expect("room");
        pool.free(std::hint::black_box(offset)).expect("allocated");
    }
    per_round_ns(start, rounds)
}

/// Both ends on one core: what the instructions cost without cache misses.
fn one_thread_ns() -> f64 {
    let (mut daemon, mut app) = open();
    let rounds = 5_000_000;
    let mut bytes = [0; MESSAGE_BYTES];
    let start = Instant::now();
    for _ in 0..rounds {
        let extent = send(&mut app, &bytes);
        app.flush();
        match daemon.next_command() {
            Ok(Some(Command::Send { offset, .. })) => daemon.read(offset, &mut bytes),
            other => panic!("{other:?}"),
        }
        daemon.sends_finished(1);
        app.free(extent);
    }
    per_round_ns(start, rounds)
}

/// The same for a frame of an interface, in full bursts: from app to daemon, and back.
fn one_thread_frame_ns() -> (f64, f64) {
    let (mut daemon, mut app) = open();
    let rounds = 200_000;
    let frames = rounds * u64::from(BURST_FRAMES_MAX);
    let mut bytes = [0; MESSAGE_BYTES];
    let start = Instant::now();
    for _ in 0..rounds {
        let extent = send_frames(&mut app, &bytes);
        take_frames(&mut daemon, &mut bytes);
        app.free(extent);
    }
    let sent_ns = per_round_ns(start, frames);
    let start = Instant::now();
    for _ in 0..rounds {
        give_frames(&mut daemon, &bytes);
        read_frames(&mut app, &mut bytes);
        if let Ok(Some(Command::Release { buffers })) = daemon.next_command() {
            for &id in buffers.as_slice() {
                daemon.release(id).expect("an honest app");
            }
        }
    }
    (sent_ns, per_round_ns(start, frames))
}

/// To where a large buffer of `malloc` begins, from the start of a page: at once, and as a channel
/// copies.
fn copies_ns() -> (f64, f64) {
    const BYTES: usize = 1 << 15;
    const PAGE_BYTES: usize = 4096;
    let (from, mut into) = (vec![7; BYTES + PAGE_BYTES], vec![0; BYTES + 2 * PAGE_BYTES]);
    let page_in = |bytes: &[u8]| bytes.as_ptr().align_offset(PAGE_BYTES);
    let (start, target) = (page_in(&from), page_in(&into) + 16);
    let (from, into) = (&from[start..][..BYTES], &mut into[target..][..BYTES]);
    let rounds = 20_000;
    let mut timed = |copy: fn(&mut [u8], &[u8])| {
        let start = Instant::now();
        for _ in 0..rounds {
            copy(std::hint::black_box(into), std::hint::black_box(from));
        }
        per_round_ns(start, rounds)
    };
    (timed(<[u8]>::copy_from_slice), timed(clearway_base::copy))
}

fn send_frames(app: &mut AppEnd, bytes: &[u8]) -> Extent {
    let extent = app.allocate(8192).expect("room");
    let mut filling = Filling::default();
    while !filling.is_full() {
        let place = filling.append(app.transmit_bytes(&extent), MESSAGE_BYTES as u32);
        place.expect("room").copy_from_slice(bytes);
    }
    let (offset, length, count) = (extent.offset(), filling.used_bytes(), filling.count());
    app.submit(&Command::SendFrames { vif: 1, offset, length, count }).expect("room");
    extent
}

fn take_frames(daemon: &mut DaemonEnd, bytes: &mut [u8]) {
    let Ok(Some(Command::SendFrames { offset, length, count, .. })) = daemon.next_command() else {
        panic!("no frames")
    };
    let mut burst = SentBurst::new(offset, length, count);
    while let Some(frame) = daemon.next_frame(&mut burst).expect("an honest app") {
        daemon.read(frame.offset, &mut bytes[..frame.length as usize]);
    }
    daemon.sends_finished(1);
}

fn give_frames(daemon: &mut DaemonEnd, bytes: &[u8]) {
    let packed = packed_bytes(MESSAGE_BYTES as u32) * u32::from(BURST_FRAMES_MAX);
    let mut burst = daemon.allocate_burst(packed, 0).expect("room");
    for _ in 0..BURST_FRAMES_MAX {
        daemon.append_frame(&mut burst, FrameInfo::received(1), bytes);
    }
    assert!(daemon.completion_room() > 0);
    daemon.grant(burst.id());
    daemon.complete(&burst.completion(1));
}

fn read_frames(app: &mut AppEnd, into: &mut [u8]) {
    let Ok(Some(Told::Frames { count, bytes, .. })) = app.next_told() else { panic!("no frames") };
    let burst = ReceivedBurst::new(app.receive_bytes(&bytes), count);
    assert!(burst.is_whole());
    burst.for_each(|frame| into[..frame.bytes.len()].copy_from_slice(frame.bytes));
    app.release(bytes);
}

/// What the hardware takes for the least that two cores can say to each other.
fn line_ns() -> Vec<f64> {
    static WORD: AtomicU64 = AtomicU64::new(0);
    let rounds = SLICE_ECHOES * 200;
    let other = std::thread::spawn(move || {
        pin(1);
        for round in 0..rounds {
            while WORD.load(Ordering::Acquire) != 2 * round + 1 {
                std::hint::spin_loop();
            }
            WORD.store(2 * round + 2, Ordering::Release);
        }
    });
    pin(0);
    let mut slices = Vec::new();
    for slice in 0..200 {
        let start = Instant::now();
        for round in slice * SLICE_ECHOES..(slice + 1) * SLICE_ECHOES {
            WORD.store(2 * round + 1, Ordering::Release);
            while WORD.load(Ordering::Acquire) != 2 * round + 2 {
                std::hint::spin_loop();
            }
        }
        slices.push(per_round_ns(start, SLICE_ECHOES));
    }
    other.join().expect("the other thread");
    slices
}

/// Nanoseconds per echo, for each slice of a run.
fn two_threads_ns(window: usize, length: Duration) -> Vec<f64> {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Ordering::Relaxed);
    let (mut daemon, app) = open();
    let echo = std::thread::spawn(move || {
        pin(1);
        let mut sent = 0;
        while !STOP.load(Ordering::Relaxed) {
            echo_turn(&mut daemon, &mut sent);
        }
    });
    pin(0);
    let slices = drive(app, window, length);
    STOP.store(true, Ordering::Relaxed);
    echo.join().expect("the echo thread");
    slices
}

/// One turn of an engine that does nothing but echo.
fn echo_turn(daemon: &mut DaemonEnd, sent: &mut u32) {
    let mut room = daemon.completion_room().min(32);
    while room > 0 {
        match daemon.next_command().expect("an honest app") {
            Some(Command::Send { connection, stream, offset, length }) => {
                *sent += 1;
                room -= 1;
                let buffer = daemon.allocate(length, 0).expect("room");
                daemon.copy_within(offset, length, buffer, 0);
                daemon.sends_finished(1);
                daemon.grant(buffer.id);
                daemon.complete(&Completion::Received {
                    connection,
                    stream,
                    offset: buffer.offset,
                    length,
                    buffer: buffer.id,
                    sent: *sent,
                });
            }
            Some(Command::Release { buffers }) => {
                for &id in buffers.as_slice() {
                    daemon.release(id).expect("an honest app");
                }
            }
            Some(_) => {}
            None => break,
        }
    }
    daemon.flush();
}

/// Keeps `window` messages on their way for `length`; how long each slice of echoes took.
fn drive(mut app: AppEnd, window: usize, length: Duration) -> Vec<f64> {
    let bytes = [7; MESSAGE_BYTES];
    let mut into = [0; MESSAGE_BYTES];
    let mut outstanding: std::collections::VecDeque<Extent> =
        (0..window).map(|_| send(&mut app, &bytes)).collect();
    app.flush();
    let mut slices = Vec::with_capacity(100_000);
    let (start, mut slice_start, mut echoes) = (Instant::now(), Instant::now(), 0);
    while start.elapsed() < length {
        while echoes < SLICE_ECHOES {
            let Some(told) = app.next_told().expect("an honest daemon") else {
                std::hint::spin_loop();
                continue;
            };
            let Told::Message(Received { bytes, .. }) = told else { continue };
            into.copy_from_slice(app.receive_bytes(&bytes));
            app.release(bytes);
            app.free(outstanding.pop_front().expect("one per echo"));
            outstanding.push_back(send(&mut app, &into));
            app.flush();
            echoes += 1;
        }
        slices.push(per_round_ns(slice_start, SLICE_ECHOES));
        (slice_start, echoes) = (Instant::now(), 0);
    }
    slices
}

fn send(app: &mut AppEnd, bytes: &[u8]) -> Extent {
    let extent = app.allocate(bytes.len() as u32).expect("room");
    app.transmit_bytes(&extent).copy_from_slice(bytes);
    let (offset, length) = (extent.offset(), extent.length());
    app.submit(&Command::Send { connection: 1, stream: 0, offset, length }).expect("room");
    extent
}

fn open() -> (DaemonEnd, AppEnd) {
    let sizes = Sizes::default();
    let (daemon, handover) = DaemonEnd::create(sizes).expect("shared memory");
    (daemon, AppEnd::open(handover, sizes).expect("the same memory"))
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn per_round_ns(start: Instant, rounds: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / rounds as f64
}
