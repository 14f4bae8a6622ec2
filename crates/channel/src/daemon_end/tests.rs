//! Both ends together, and the daemon's end against an app that writes whatever it likes.

use proptest::prelude::*;

use super::*;
use crate::burst::SentBurst;
use crate::doorbell::OwnerBell;
use crate::layout::{Areas, ENTRY_BYTES, PAGE_BYTES, SUBMISSION_RING};
use crate::sync::Ordering;
use crate::{
    AppEnd, Code, MESSAGE_BYTES_MAX, NO_BUFFER, Operated, Received, ReleaseList, Told, Versions,
};
use crate::{Submitted, SubmittedBytes};

fn sizes() -> Sizes {
    Sizes {
        submission_entries: 16,
        completion_entries: 16,
        transmit_pool_bytes: 1 << 16,
        receive_pool_bytes: 1 << 16,
        shared_bytes: 0,
    }
}

/// Both ends on ordinary memory, and the memory itself for the hostile.
pub(super) fn pair() -> (DaemonEnd, AppEnd, Arc<Memory>) {
    let memory = Memory::heap(&sizes());
    assert_eq!(memory.read_header(&sizes()), Some((Versions::APP.max, *memory.areas())));
    let (daemon_bells, app_bells) = crate::doorbell::create().unwrap();
    let daemon = DaemonEnd::on(Arc::clone(&memory), daemon_bells, sizes());
    (daemon, AppEnd::on(Arc::clone(&memory), app_bells, OwnerBell::new().unwrap(), sizes()), memory)
}

fn send(app: &mut AppEnd, bytes: &[u8]) -> crate::Extent {
    let extent = app.allocate(bytes.len() as u32).unwrap();
    app.transmit_bytes(&extent).copy_from_slice(bytes);
    let (offset, length) = (extent.offset(), extent.length());
    app.submit(&Command::Send { connection: 1, stream: 0, offset, length }).unwrap();
    extent
}

/// Takes one message from the app and gives it back to it, as an engine would.
fn echo(daemon: &mut DaemonEnd, sent: u32) -> u32 {
    let Ok(Some(Command::Send { connection, stream, offset, length })) = daemon.next_command()
    else {
        panic!("no message");
    };
    let mut bytes = vec![0; length as usize];
    daemon.read(offset, &mut bytes);
    daemon.sends_finished(1);
    let buffer = daemon.allocate(length, 77).unwrap();
    daemon.write(buffer, 0, &bytes);
    assert!(daemon.completion_room() > 0);
    daemon.grant(buffer.id);
    let (offset, id) = (buffer.offset, buffer.id);
    daemon.complete(&Completion::Received { connection, stream, offset, length, buffer: id, sent });
    daemon.flush();
    id
}

/// Saves the daemon's end, drops it, and makes it again on the same memory.
fn restore(daemon: DaemonEnd) -> DaemonEnd {
    let saved = daemon.save();
    let restored = DaemonEnd::restore(&saved, daemon.into_remains()).expect("just saved");
    assert_eq!(restored.save(), saved);
    restored
}

/// Over many laps of both rings, with the ends at different places in them, and asleep or not.
#[test]
fn an_app_does_not_notice_that_its_daemon_is_another() {
    let (mut daemon, mut app, _memory) = pair();
    let mut kept = Vec::new();
    let rounds: u32 = if cfg!(miri) { 6 } else { 100 };
    for round in 0..rounds {
        daemon = restore(daemon);
        let message = vec![round as u8; 1 + round as usize % 60];
        let extent = send(&mut app, &message);
        daemon = restore(daemon);
        if round % 3 == 0 {
            assert!(!daemon.arm(), "something waits");
            daemon = restore(daemon);
            daemon.disarm();
        }
        echo(&mut daemon, round + 1);
        daemon = restore(daemon);
        let (bytes, id) = received(&mut app);
        assert_eq!(bytes, message);
        app.free(extent);
        kept.push(id);
        if kept.len() > 4 {
            let mut buffers = ReleaseList::default();
            buffers.push(kept.remove(0));
            app.submit_untrue(&Command::Release { buffers }).unwrap();
            daemon = restore(daemon);
            let Ok(Some(Command::Release { buffers })) = daemon.next_command() else {
                panic!("nothing is released");
            };
            for id in buffers.as_slice() {
                daemon.release(*id).expect("it was granted");
            }
        }
    }
    assert_eq!(daemon.counters().sends_outstanding, 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// What is no state is refused, and what is taken serves an honest app or ends its session.
    #[test]
    fn any_state_is_refused_or_works(
        (commands, completions, read) in (any::<u64>(), any::<u64>(), any::<u32>()),
        small in (0u64..40, 0u64..40, 0u32..40, any::<bool>()),
        buffers in proptest::collection::vec(
            (0u32..1 << 11, 0u32..5000, any::<bool>()),
            0..4,
        ),
    ) {
        let (mut daemon, mut app, _memory) = pair();
        let mut state = daemon.save();
        (state.commands, state.completions, state.completions_read) = match small {
            (commands, completions, read, true) => (commands, completions, read),
            _ => (commands, completions, read),
        };
        state.buffers.extend(buffers.into_iter().map(|(unit, length, is_granted)| {
            BufferState { offset: unit * 64, length, owner: 7, is_granted }
        }));
        let Ok(restored) = DaemonEnd::restore(&state, daemon.into_remains()) else { return Ok(()) };
        daemon = restored;
        prop_assert_eq!(daemon.save(), state);
        let held: Vec<u32> = daemon.held().map(|buffer| buffer.id).collect();
        held.into_iter().for_each(|id| daemon.discard(id));
        let _sent = send(&mut app, b"hello");
        let _ = daemon.next_command();
        if daemon.completion_room() > 0 {
            daemon.complete(&Completion::Sent { connection: 1, sent: 1 });
            daemon.flush();
        }
        while let Some(buffer) = daemon.allocate(100, 1) {
            daemon.write(buffer, 0, &[1; 100]);
        }
    }
}

fn received(app: &mut AppEnd) -> (Vec<u8>, u32) {
    match app.next_completion() {
        Ok(Some(Completion::Received { offset, length, buffer, .. })) => {
            (app.receive_bytes(&app.granted(offset, length, buffer)).to_vec(), buffer)
        }
        other => panic!("{other:?}"),
    }
}

fn release(app: &mut AppEnd, ids: &[u32]) {
    let mut buffers = ReleaseList::default();
    assert!(ids.iter().all(|&id| buffers.push(id)));
    app.submit_untrue(&Command::Release { buffers }).unwrap();
}

#[test]
fn a_message_goes_there_and_back() {
    let (mut daemon, mut app, _) = pair();
    for (round, length) in [0usize, 1, 64, 1000, 20_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + round) as u8).collect();
        let extent = send(&mut app, &bytes);
        app.flush();
        echo(&mut daemon, round as u32 + 1);
        let (back, id) = received(&mut app);
        assert_eq!(back, bytes);
        app.free(extent);
        release(&mut app, &[id]);
        let Ok(Some(Command::Release { buffers })) = daemon.next_command() else { panic!() };
        let released = daemon.release(buffers.as_slice()[0]);
        assert_eq!(released, Ok(Released { owner: 77, length: length as u32 }));
    }
    assert_eq!(app.transmit_pool_used_bytes(), 0);
    let counters = daemon.counters();
    assert_eq!((counters.commands, counters.completions), (10, 5));
    assert_eq!((counters.sends_outstanding, counters.receive_pool_used_bytes), (0, 0));
}

/// What lines of the memory hold, to see which of them are written.
#[cfg(not(miri))]
struct Lines(Vec<[u64; 8]>);

#[cfg(not(miri))]
impl Lines {
    fn of(memory: &Memory) -> Self {
        let line = |at: usize| core::array::from_fn(|word| memory.word(at + 8 * word));
        let line = |at| line(at).map(|word| word.load(Ordering::Relaxed));
        Self((0..Areas::new(&sizes()).total_bytes).step_by(64).map(line).collect())
    }

    /// The areas of the lines that have been written since, each as often as it has such lines.
    fn written(&mut self, memory: &Memory) -> Vec<&'static str> {
        let (now, areas) = (Self::of(memory), Areas::new(&sizes()));
        let area = |line: usize| match 64 * line {
            at if at >= areas.receive_pool => "receive pool",
            at if at >= areas.transmit_pool => "transmit pool",
            at if at >= areas.completion_ring => "completion ring",
            at if at >= areas.submission_ring => "submission ring",
            SYNC_SUBMISSION_HEAD => "submission head",
            SYNC_COMPLETION_HEAD => "completion head",
            _ => "other",
        };
        let lines = self.0.iter().zip(&now.0).enumerate().filter(|(_, (was, is))| was != is);
        let written = lines.map(|(line, _)| area(line)).collect();
        *self = now;
        written
    }
}

/// The table of docs/performance.md: what crosses between the cores of app and engine.
#[cfg(not(miri))]
#[test]
fn a_message_of_64_bytes_takes_two_lines_each_way() {
    let (mut daemon, mut app, memory) = pair();
    let mut lines = Lines::of(&memory);
    for round in 1..15 {
        let extent = send(&mut app, &[round; 64]);
        app.flush();
        assert_eq!(lines.written(&memory), ["submission ring", "transmit pool"]);
        echo(&mut daemon, round.into());
        assert_eq!(lines.written(&memory), ["completion ring", "receive pool"]);
        // Heads are there for the rare case that a ring seems full: nobody waits for them.
        assert_eq!(daemon.next_command(), Ok(None));
        assert_eq!(lines.written(&memory), ["submission head"]);
        let (_, id) = received(&mut app);
        app.free(extent);
        let head = if round % 4 == 0 { &["completion head"][..] } else { &[] };
        assert_eq!(lines.written(&memory), head, "{round}");
        app.release(app.granted(0, 64, id));
        let released = if round == 14 { &["submission ring"][..] } else { &[] };
        assert_eq!(lines.written(&memory), released, "fourteen go in one entry");
    }
}

#[test]
fn bytes_go_from_app_to_app_in_one_copy() {
    let (mut from, mut app, _) = pair();
    let (mut to, mut other, _) = pair();
    let extent = send(&mut app, b"neighbour");
    let Ok(Some(Command::Send { offset, length, .. })) = from.next_command() else { panic!() };
    let buffer = to.allocate(length + 2, 0).unwrap();
    from.copy_to(offset, length, &mut to, buffer, 2);
    to.write(buffer, 0, b"a ");
    to.grant(buffer.id);
    let (offset, length, id) = (buffer.offset, buffer.length, buffer.id);
    let completion =
        Completion::Received { connection: 9, stream: 0, offset, length, buffer: id, sent: 0 };
    to.complete(&completion);
    assert_eq!(received(&mut other).0, b"a neighbour");
    app.free(extent);
}

#[test]
fn owned_buffers_outlive_the_borrow_of_the_channel() {
    let (mut daemon, mut app, _) = pair();
    let extent = app.allocate(5).unwrap();
    let mut buffer = app.into_buffer(extent);
    buffer.copy_from_slice(b"owned");
    assert_eq!(&*buffer, b"owned");
    let extent = buffer.into_extent();
    let (offset, length) = (extent.offset(), extent.length());
    app.submit(&Command::Send { connection: 1, stream: 0, offset, length }).unwrap();
    echo(&mut daemon, 1);
    let Ok(Some(Completion::Received { offset, length, buffer, .. })) = app.next_completion()
    else {
        panic!();
    };
    let message = app.receive_buffer(app.granted(offset, length, buffer));
    drop(app);
    drop(daemon);
    assert_eq!(&*message, b"owned");
}

#[test]
fn buffers_that_are_dropped_or_released_come_back_together() {
    let (mut daemon, mut app, _) = pair();
    let mut messages = Vec::new();
    for round in 0..20 {
        let extent = send(&mut app, b"x");
        echo(&mut daemon, round);
        app.free(extent);
        let Ok(Some(Completion::Received { offset, length, buffer, .. })) = app.next_completion()
        else {
            panic!();
        };
        match round % 2 {
            0 => messages.push(app.receive_buffer(app.granted(offset, length, buffer))),
            _ => app.release(app.granted(offset, length, buffer)),
        }
    }
    assert_eq!(daemon.next_command(), Ok(None), "ten wait for more");
    drop(messages);
    app.flush();
    let Ok(Some(Command::Release { buffers })) = daemon.next_command() else { panic!() };
    assert_eq!(buffers.as_slice().len(), 14);
    assert_eq!(daemon.next_command(), Ok(None), "six wait for more");
    app.flush_releases();
    let Ok(Some(Command::Release { buffers: rest })) = daemon.next_command() else { panic!() };
    for &id in buffers.as_slice().iter().chain(rest.as_slice()) {
        daemon.release(id).unwrap();
    }
    assert_eq!(daemon.counters().receive_pool_used_bytes, 0);
}

#[test]
fn large_buffers_come_back_at_once_and_a_full_ring_only_delays_them() {
    let (mut daemon, mut app, _) = pair();
    let ids: Vec<u32> = (0..40).map(|_| daemon.allocate(1024, 0).unwrap().id).collect();
    ids.iter().for_each(|&id| daemon.grant(id));
    while app.submit(&Command::Close { connection: 1, abort: false }).is_ok() {}
    ids.iter().for_each(|&id| app.release(app.granted(0, 1024, id)));
    let mut released = 0;
    while released < 40 {
        match daemon.next_command().unwrap() {
            Some(Command::Release { buffers }) => {
                released += buffers.as_slice().len();
                for &id in buffers.as_slice() {
                    daemon.release(id).unwrap();
                }
            }
            Some(_) => {}
            None => app.flush_releases(),
        }
    }
    assert_eq!(daemon.counters().receive_pool_used_bytes, 0);
}

/// The daemon hears of a small part of the pool at once: it may be waiting for that.
#[test]
fn a_sixty_fourth_of_the_pool_is_not_held_back() {
    let (mut daemon, mut app, _) = pair();
    let ids: Vec<u32> = (0..4).map(|_| daemon.allocate(512, 0).unwrap().id).collect();
    ids.iter().for_each(|&id| daemon.grant(id));
    app.release(app.granted(0, 511, ids[0]));
    assert_eq!(daemon.next_command(), Ok(None), "less than 1 KiB");
    app.release(app.granted(0, 513, ids[1]));
    let Ok(Some(Command::Release { buffers })) = daemon.next_command() else { panic!() };
    assert_eq!(buffers.as_slice(), &ids[..2]);
    app.release(app.granted(0, 512, ids[2]));
    assert_eq!(daemon.next_command(), Ok(None), "counted from the beginning");
}

#[test]
fn transmit_buffers_that_are_dropped_come_back_when_needed() {
    let (_daemon, mut app, _) = pair();
    for _ in 0..10 {
        let extent = app.allocate(1 << 16).expect("room again");
        assert_eq!(app.allocate(1), None, "all of it is in use");
        assert_eq!(app.transmit_pool_used_bytes(), 1 << 16);
        drop(app.into_buffer(extent));
    }
}

#[test]
fn a_received_buffer_goes_back_to_its_own_channel_however_it_is_given_back() {
    let (mut daemon, mut app, _) = pair();
    let (mut other_daemon, mut other, _) = pair();
    let mut receive = |length: u32| {
        let buffer = daemon.allocate(length, 5).unwrap();
        daemon.grant(buffer.id);
        (buffer.id, app.receive_buffer(app.granted(buffer.offset, length, buffer.id)))
    };
    let [(id, first), (second_id, second), (foreign_id, foreign)] = [4096; 3].map(&mut receive);
    let ids = [id, second_id, foreign_id];
    assert!(ids[0] != ids[1] && ids[2] != 0);
    app.release_buffer(first);
    let Ok(Some(Command::Release { buffers })) = daemon.next_command() else { panic!() };
    assert_eq!(buffers.as_slice(), [ids[0]], "at once, as it is large");
    other.release_buffer(foreign);
    other.flush_releases();
    assert_eq!(other_daemon.next_command(), Ok(None), "it is not the other's");
    drop(second);
    app.flush();
    app.flush_releases();
    let mut found = Vec::new();
    while let Some(command) = daemon.next_command().unwrap() {
        let Command::Release { buffers } = command else { panic!() };
        found.extend_from_slice(buffers.as_slice());
    }
    found.sort_unstable();
    assert_eq!(found, ids[1..], "each of them once");
}

#[test]
fn an_app_that_talks_to_itself_gets_its_bytes() {
    let (mut daemon, mut app, _) = pair();
    let _first = send(&mut app, b"somewhere else");
    let _second = send(&mut app, b"echo");
    daemon.next_command().unwrap();
    let Ok(Some(Command::Send { offset, length, .. })) = daemon.next_command() else { panic!() };
    let _used = daemon.allocate(7, 0).unwrap();
    let buffer = daemon.allocate(7, 0).unwrap();
    daemon.write(buffer, 0, b"(     )");
    daemon.copy_within(offset, length, buffer, 2);
    assert!(buffer.offset > 0 && offset > 0);
    assert_eq!(app.receive_bytes(&app.granted(buffer.offset, 7, buffer.id)), b"( echo)");
}

/// Those of another would be read where they may be overwritten.
#[test]
#[should_panic(expected = "received bytes of another channel")]
fn received_bytes_are_read_by_their_own_channel_only() {
    let (_daemon, app, _) = pair();
    let (_other_daemon, other, _) = pair();
    let _bytes = other.receive_bytes(&app.granted(0, 1, 0));
}

#[test]
#[should_panic(expected = "received bytes of another channel")]
fn who_lies_reads_nothing_that_was_received_before() {
    let (_daemon, mut app, _) = pair();
    let granted = app.granted(0, 1, 0);
    app.submit_untrue(&Command::Release { buffers: ReleaseList::default() }).unwrap();
    let _bytes = app.receive_bytes(&granted);
}

#[test]
#[should_panic(expected = "a buffer of this channel is in use")]
fn nobody_lies_while_a_buffer_is_read() {
    let (_daemon, mut app, _) = pair();
    let _buffer = app.receive_buffer(app.granted(0, 1, 0));
    let _ = app.submit_untrue(&Command::Release { buffers: ReleaseList::default() });
}

#[test]
#[should_panic(expected = "a release by hand")]
fn buffers_are_not_released_by_hand() {
    let (_daemon, mut app, _) = pair();
    let _ = app.submit(&Command::Release { buffers: ReleaseList::default() });
}

/// In both directions, as between versions that have not agreed.
#[test]
fn an_unknown_opcode_ends_the_channel() {
    let (mut daemon, mut app, memory) = pair();
    let unknown = Command::KINDS.len() as u8 + 1;
    forge(&memory, 0, 1, unknown.into(), &[]);
    assert_eq!(daemon.next_command(), Err(Violation::Opcode(unknown)));
    let at = Areas::new(&sizes()).completion_ring;
    let unknown = Completion::KINDS.len() as u64 + 1;
    memory.word(at).store(unknown << 32 | 1, Ordering::Relaxed);
    assert_eq!(app.next_told(), Err(crate::Corrupt));
}

#[test]
fn each_end_knows_where_the_other_runs() {
    let (mut daemon, mut app, _) = pair();
    assert!(daemon.meet(3), "an app that never said where it is may wait on any core");
    assert!(app.meet(3) && !app.meet(4));
    assert!(!daemon.meet(3) && daemon.meet(4));
    assert_eq!(daemon.app_processor(), Some(4));
    assert!(app.meet(4));
}

#[test]
fn ends_know_their_sizes_and_what_is_used() {
    let (mut daemon, mut app, _) = pair();
    assert_eq!((daemon.sizes(), app.sizes()), (sizes(), sizes()));
    assert!(daemon.has_room(1 << 16) && !daemon.has_room((1 << 16) + 1));
    assert_eq!(daemon.counters().receive_pool_used_bytes, 0, "asking takes nothing");
    let buffer = daemon.allocate(100, 0).unwrap();
    assert!(daemon.has_room(128) && !daemon.has_room(1 << 15));
    assert_eq!(daemon.counters().receive_pool_used_bytes, 128);
    let extent = app.allocate(100).unwrap();
    assert_eq!(app.transmit_pool_used_bytes(), 128);
    let buffers = (app.into_buffer(extent), app.receive_buffer(app.granted(0, 5, 9)));
    let texts = [format!("{:?}", buffers.0), format!("{:?}", buffers.1), format!("{app:?}")];
    let pool = "AppEnd { pool: Pool(128 of 65536 bytes used), .. }";
    assert_eq!(texts, ["TransmitBuffer(100 bytes)", "ReceiveBuffer(9, 5 bytes)", pool]);
    assert!(format!("{daemon:?}").contains("receive_pool_used_bytes: 128"));
    let buffers = core::iter::once(7).fold(ReleaseList::default(), |mut list, id| {
        assert!(list.push(id));
        list
    });
    assert_eq!(format!("{buffers:?}"), "[7]");
    daemon.discard(buffer.id);
}

/// Only an app whose kernel passes on the daemon's barriers, and whose daemon makes them, does
/// without its own; and no fence is needed where both ends are used by one thread.
#[cfg(not(miri))]
#[test]
fn who_fences_is_agreed_when_the_ends_are_opened() {
    assert!(barrier::is_supported(), "Linux 4.16 and later");
    let (mut daemon, app, memory) = pair();
    assert_eq!((daemon.fence, app.fence), (Fence::Own, Fence::Sleepers));
    daemon.share_thread();
    assert_eq!(daemon.fence, Fence::None);
    memory.word(crate::layout::HEADER_DAEMON_BARRIERS).store(0, Ordering::Relaxed);
    let (_, app_bells) = crate::doorbell::create().unwrap();
    let app = AppEnd::on(memory, app_bells, OwnerBell::new().unwrap(), sizes());
    assert_eq!(app.fence, Fence::Own);
}

/// Each word of the header by itself.
#[test]
fn a_header_with_one_wrong_word_is_refused() {
    use crate::layout::{HEADER_LAYOUT, HEADER_MAGIC, HEADER_SIZES, HEADER_TOTAL_BYTES};
    let memory = Memory::heap(&sizes());
    let words = [HEADER_MAGIC, HEADER_LAYOUT, HEADER_TOTAL_BYTES];
    for at in words.into_iter().chain((0..4).map(|index| HEADER_SIZES + 8 * index)) {
        let right = memory.word(at).fetch_xor(1 << 20, Ordering::Relaxed);
        assert_eq!(memory.read_header(&sizes()), None, "the word at {at}");
        memory.word(at).store(right, Ordering::Relaxed);
        assert!(memory.read_header(&sizes()).is_some());
    }
}

/// The shared head is a line that the app writes: the daemon looks only when little room is left.
#[test]
fn the_apps_head_is_looked_at_when_a_quarter_is_left() {
    let (mut daemon, mut app, memory) = pair();
    let head = |found| memory.sync_word(SYNC_COMPLETION_HEAD).store(found, Ordering::Relaxed);
    for sent in 0..12 {
        daemon.complete(&Completion::Sent { connection: 1, sent });
    }
    head(99);
    assert_eq!(daemon.completion_room(), 4);
    assert_eq!(daemon.next_command(), Ok(None), "it was not looked at");
    head(0);
    daemon.complete(&Completion::Sent { connection: 1, sent: 12 });
    while app.next_completion().unwrap().is_some() {}
    assert_eq!(daemon.completion_room(), 16);
}

#[test]
fn bursts_have_their_own_buffers() {
    let (mut daemon, mut app, _) = pair();
    let bursts = [(); 2].map(|()| {
        let mut burst = daemon.allocate_burst(1000, 1).unwrap();
        daemon.append_frame(&mut burst, crate::burst::FrameInfo::default(), &[7; 60]);
        burst
    });
    assert_ne!(bursts[0].id(), bursts[1].id());
    for burst in &bursts {
        let Completion::Frames { buffer, count, .. } = burst.completion(3) else { panic!() };
        assert_eq!((buffer, count), (burst.id(), burst.count()));
        assert!(burst.has_room(1000 - 80 - 16) && !burst.has_room(1000 - 80));
        daemon.grant(burst.id());
        daemon.complete(&burst.completion(3));
        assert!(matches!(app.next_completion(), Ok(Some(Completion::Frames { .. }))));
        assert_eq!(daemon.release(buffer), Ok(Released { owner: 1, length: 1000 }));
    }
}

#[test]
#[should_panic(expected = "an extent of another channel")]
fn extents_of_other_channels_are_refused() {
    let (_daemon, mut app, _) = pair();
    let (_other_daemon, mut other, _) = pair();
    let extent = other.allocate(1).unwrap();
    app.free(extent);
}

#[test]
fn a_full_submission_ring_is_an_error_and_recovers() {
    let (mut daemon, mut app, _) = pair();
    let close = Command::Close { connection: 1, abort: false };
    for _ in 0..16 {
        app.submit(&close).unwrap();
    }
    assert_eq!(app.submit(&close), Err(crate::Full));
    assert!(!app.has_room());
    while daemon.next_command().unwrap().is_some() {}
    assert!(app.has_room());
    app.submit(&close).unwrap();
}

#[test]
fn a_full_completion_ring_shows_as_no_room() {
    let (mut daemon, mut app, _) = pair();
    for sent in 0..16 {
        assert!(daemon.completion_room() > 0);
        daemon.complete(&Completion::Sent { connection: 1, sent });
    }
    assert_eq!(daemon.completion_room(), 0);
    while app.next_completion().unwrap().is_some() {}
    assert_eq!(daemon.completion_room(), 16);
}

#[test]
fn an_end_is_not_armed_while_something_waits() {
    let (mut daemon, mut app, _) = pair();
    assert!(daemon.arm() && app.arm());
    daemon.disarm();
    app.disarm();
    app.submit(&Command::Close { connection: 1, abort: true }).unwrap();
    assert!(!daemon.arm());
    daemon.complete(&Completion::Sent { connection: 1, sent: 1 });
    assert!(!app.arm());
}

#[test]
fn a_closed_channel_is_noticed_awake_and_asleep() {
    let (mut daemon, mut app, _) = pair();
    assert!(!app.is_closed() && app.arm());
    daemon.close();
    assert_eq!(daemon.counters().doorbells_rung, 1);
    app.disarm();
    assert!(app.is_closed() && !app.arm());
}

// From here on the app is hostile: it writes into the memory as it likes.

fn entry_at(index: usize) -> usize {
    SUBMISSION_RING + index * ENTRY_BYTES
}

/// Writes a submission entry, word 0 last.
fn forge(memory: &Memory, index: usize, turn: u32, upper: u32, words: &[u64]) {
    for (at, &word) in words.iter().enumerate() {
        memory.word(entry_at(index) + 8 + 8 * at).store(word, Ordering::Relaxed);
    }
    let word = u64::from(turn) | u64::from(upper) << 32;
    memory.word(entry_at(index)).store(word, Ordering::Release);
}

#[test]
fn an_entry_out_of_turn_is_a_violation() {
    let (mut daemon, _app, memory) = pair();
    assert_eq!(daemon.next_command(), Ok(None));
    forge(&memory, 0, 7, u32::from(Command::CLOSE), &[1]);
    let violation = Violation::Turn { found: 7, expected: 1 };
    assert_eq!(daemon.next_command(), Err(violation));
    assert_eq!(daemon.next_command(), Err(violation), "it stays");
    assert!(!daemon.arm(), "and is no reason to sleep");
}

#[test]
fn an_overrun_ring_is_a_violation() {
    let (mut daemon, _app, memory) = pair();
    for lap in 1..=2 {
        for index in 0..16 {
            forge(&memory, index, lap, u32::from(Command::CLOSE), &[1]);
        }
    }
    assert_eq!(daemon.next_command(), Err(Violation::Turn { found: 2, expected: 1 }));
}

#[test]
fn an_unknown_opcode_is_a_violation() {
    let (mut daemon, _app, memory) = pair();
    forge(&memory, 0, 1, 200, &[]);
    assert_eq!(daemon.next_command(), Err(Violation::Opcode(200)));
}

#[test]
fn a_send_from_outside_the_pool_is_a_violation() {
    let (mut daemon, _app, memory) = pair();
    for (offset, length) in [(1 << 16, 1), (u32::MAX, u32::MAX >> 12), (0, (1 << 16) + 1)] {
        let extent = u64::from(offset) | u64::from(length) << 32;
        forge(&memory, 0, 1, u32::from(Command::SEND), &[1, extent]);
        assert_eq!(daemon.next_submitted(), Next::Other);
        assert_eq!(daemon.next_command(), Err(Violation::Extent { offset, length }));
    }
    let length = MESSAGE_BYTES_MAX + 1;
    forge(&memory, 0, 1, u32::from(Command::SEND), &[1, u64::from(length) << 32]);
    assert_eq!(daemon.next_submitted(), Next::Other);
    assert_eq!(daemon.next_command(), Err(Violation::MessageTooLarge(length)));
}

#[test]
fn an_extent_cannot_change_after_it_was_checked() {
    let (mut daemon, _app, memory) = pair();
    forge(&memory, 0, 1, u32::from(Command::SEND), &[1, 8 << 32]);
    let command = daemon.next_command().unwrap();
    memory.word(entry_at(0) + 16).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(command, Some(Command::Send { connection: 1, stream: 0, offset: 0, length: 8 }));
}

#[test]
fn too_many_sends_are_a_violation() {
    let (mut daemon, mut app, _) = pair();
    let send = Command::Send { connection: 1, stream: 0, offset: 0, length: 1 };
    daemon.sends_outstanding = OUTSTANDING_SENDS_MAX - 1;
    app.submit(&send).unwrap();
    app.submit(&send).unwrap();
    assert_eq!(daemon.next_command(), Ok(Some(send)));
    assert_eq!(daemon.next_submitted(), Next::Other);
    assert_eq!(daemon.next_command(), Err(Violation::TooManySends));
}

/// What the short ways take is what the long ones would, and all else is left to those.
#[test]
fn messages_and_bytes_take_a_short_way_and_nothing_else_does() {
    let (mut daemon, mut app, _) = pair();
    let (connection, offset, length, has_more) = (1, 64, 5, true);
    let send = |stream| Command::Send { connection, stream, offset, length };
    let bytes = Command::TcpSend { connection, offset, length, has_more };
    for command in [send(0), bytes, send(1), Command::Close { connection, abort: false }, send(0)] {
        app.submit(&command).unwrap();
    }
    let submitted = Next::Message(Submitted { connection, offset, length });
    assert_eq!(daemon.next_submitted(), submitted);
    let bytes = SubmittedBytes { connection, offset, length, has_more };
    assert_eq!(daemon.next_submitted(), Next::Bytes(bytes));
    assert_eq!(daemon.next_submitted(), Next::Other);
    assert_eq!(daemon.next_command(), Ok(Some(send(1))));
    assert_eq!(daemon.next_submitted(), Next::Other);
    assert!(matches!(daemon.next_command(), Ok(Some(Command::Close { .. }))));
    assert!(daemon.has_asked());
    assert_eq!(daemon.next_submitted(), submitted);
    assert_eq!((daemon.next_submitted(), daemon.next_command()), (Next::Nothing, Ok(None)));
    assert!(!daemon.has_asked());
    assert_eq!(daemon.counters().sends_outstanding, 4);
    let (buffer, sent) = (2, 7);
    let completion = Completion::Received { connection, stream: 0, offset, length, buffer, sent };
    let rare = Completion::Sent { connection, sent };
    for completion in [completion, rare, completion] {
        daemon.complete(&completion);
    }
    let bytes = |app: &AppEnd| app.granted(offset, length, buffer);
    let received = |app: &AppEnd| Received { connection, stream: 0, sent, bytes: bytes(app) };
    assert_eq!(app.next_received(), Some(received(&app)));
    assert_eq!(app.next_received(), None);
    assert_eq!(app.next_told(), Ok(Some(Told::Other(rare))));
    let told = app.next_told().unwrap().unwrap();
    assert_eq!(told.completion(), completion);
    assert_eq!(told, Told::Message(received(&app)), "the long way brings the same");
    assert_eq!((app.next_received(), app.next_completion()), (None, Ok(None)));
}

#[test]
fn operations_take_a_short_way_and_nothing_else_does() {
    let (mut daemon, mut app, _) = pair();
    let ask = |connection| Command::Ask {
        kind: 2,
        stride: 3,
        connection,
        token: 4,
        region: 5,
        place: 6,
        bytes: 7,
        count: 8,
        operand: 9,
        second: 10,
    };
    let close = Command::Close { connection: 1, abort: false };
    for command in [ask(1), ask(2), close, ask(1)] {
        app.submit(&command).unwrap();
    }
    assert_eq!((daemon.next_asked(1), daemon.next_asked(1)), (Some(ask(1)), None));
    assert_eq!((daemon.next_asked(2), daemon.next_asked(1)), (Some(ask(2)), None));
    assert_eq!(daemon.next_command(), Ok(Some(close)));
    assert_eq!((daemon.next_asked(1), daemon.next_asked(1)), (Some(ask(1)), None));
    let over = |length, buffer| {
        let (status, token, value, extra, offset) = (1, 2, 3, 4, 64);
        Completion::Operated { status, token, value, extra, offset, length, buffer }
    };
    let rare = Completion::Sent { connection: 1, sent: 1 };
    let completions = [over(5, 6), rare, over(5, 6), over(0, NO_BUFFER)];
    for completion in &completions {
        daemon.complete(completion);
    }
    let operated = |bytes| Operated { status: 1, token: 2, value: 3, extra: 4, bytes };
    let read = |app: &AppEnd| operated(Some(app.granted(64, 5, 6)));
    assert_eq!(app.next_operated(), Some(read(&app)));
    assert_eq!(app.next_operated(), None);
    assert_eq!(app.next_told(), Ok(Some(Told::Other(rare))));
    assert_eq!(app.next_told(), Ok(Some(Told::Operated(read(&app)))), "the long way, the same");
    assert_eq!((app.next_operated(), app.next_operated()), (Some(operated(None)), None));
}

#[test]
fn a_head_that_cannot_be_is_a_violation() {
    let (mut daemon, _app, memory) = pair();
    for sent in 0..14 {
        daemon.complete(&Completion::Sent { connection: 1, sent });
    }
    memory.sync_word(SYNC_COMPLETION_HEAD).store(15, Ordering::Relaxed);
    assert_eq!(daemon.completion_room(), 2, "it is not believed");
    let violation = Violation::Head { found: 15, taken: 0, written: 14 };
    assert_eq!(daemon.next_command(), Err(violation));
}

#[test]
fn buffers_can_be_released_once_and_only_if_granted() {
    let (mut daemon, mut app, _) = pair();
    let held = daemon.allocate(100, 1).unwrap();
    assert_eq!(daemon.release(held.id), Err(Violation::NotGranted(held.id)));
    daemon.grant(held.id);
    assert_eq!(daemon.release(held.id + 1), Err(Violation::NotGranted(held.id + 1)));
    assert!(daemon.release(held.id).is_ok());
    assert_eq!(daemon.release(held.id), Err(Violation::NotGranted(held.id)));
    for id in [0, 1, 1 << 10, u32::MAX] {
        assert_eq!(daemon.release(id), Err(Violation::NotGranted(id)));
    }
    release(&mut app, &[5, 5]);
    let Ok(Some(Command::Release { buffers })) = daemon.next_command() else { panic!() };
    assert_eq!(buffers.as_slice(), [5, 5]);
    let discarded = daemon.allocate(100, 1).unwrap();
    daemon.discard(discarded.id);
    assert_eq!(daemon.counters().receive_pool_used_bytes, 0);
}

#[test]
fn an_exhausted_receive_pool_says_so() {
    let (mut daemon, _app, _) = pair();
    let buffers: Vec<_> = core::iter::from_fn(|| daemon.allocate(1024, 0)).collect();
    assert_eq!(buffers.len(), 64);
    for buffer in buffers {
        daemon.discard(buffer.id);
    }
    assert!(daemon.allocate(1 << 16, 0).is_some());
}

#[test]
#[should_panic(expected = "do not fit")]
fn a_write_beyond_a_buffer_is_a_bug_of_the_engine() {
    let (mut daemon, _app, _) = pair();
    let buffer = daemon.allocate(10, 0).unwrap();
    daemon.write(buffer, 8, b"abc");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 300 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Frames in place are the frames of a copy, whatever the bytes say.
    #[test]
    fn a_burst_is_the_same_in_place_and_in_a_copy(
        lengths in proptest::collection::vec(10..100u32, 1..8),
        lie in (0..400u32, any::<u8>()),
        at in 0..8u32,
    ) {
        let (daemon, mut app, _) = pair();
        let start = 64 * at;
        let extent = app.allocate(4096).unwrap();
        let bytes = app.transmit_bytes(&extent);
        let mut end = start as usize;
        for &length in &lengths {
            let words = crate::burst::FrameInfo::default().words(length);
            bytes[end..][..8].copy_from_slice(&words[0].to_ne_bytes());
            bytes[end + 8..][..8].copy_from_slice(&words[1].to_ne_bytes());
            bytes[end + 16..][..length as usize].fill(0xee);
            end += crate::burst::packed_bytes(length) as usize;
        }
        if lie.1 % 2 == 1 {
            bytes[(start + lie.0) as usize] = lie.1;
        }
        let copy = bytes[start as usize..end].to_vec();
        let from = extent.offset() + start;
        let mut in_place = SentBurst::new(from, copy.len() as u32, lengths.len() as u16);
        let mut copied = in_place;
        loop {
            let found = daemon.next_frame(&mut in_place);
            prop_assert_eq!(found, copied.next_copied(&copy, from));
            prop_assert_eq!(in_place, copied);
            match found {
                Ok(Some(frame)) => prop_assert!(frame.offset >= from + 16),
                Ok(None) => break prop_assert_eq!(in_place.frames_left(), 0),
                Err(_) => break,
            }
        }
        app.free(extent);
    }

    /// Random words all over the shared pages, entries that look right among them, while the
    /// daemon does what an engine does.
    #[test]
    fn garbage_everywhere_is_bounded_or_a_violation(
        writes in proptest::collection::vec(
            (any::<bool>(), 0usize..32, 0u32..4, 0u32..8, any::<[u64; 3]>()), 1..40),
    ) {
        let (mut daemon, mut app, memory) = pair();
        let ring_words = (Areas::new(&sizes()).transmit_pool - PAGE_BYTES) / 8;
        for (raw, index, turn, opcode, words) in writes {
            if raw {
                scribble(&memory, PAGE_BYTES + 8 * (words[0] as usize % ring_words), words[1]);
            } else {
                forge(&memory, index % 16, turn, opcode | (words[2] as u32 & 0xf) << 8, &words);
            }
            let _ = app.next_completion();
            drive(&mut daemon);
        }
    }
}

/// Writes as the layout does, a `u32` or a `u64`: Miri knows no atomics of mixed sizes.
fn scribble(memory: &Memory, at: usize, word: u64) {
    if at < SUBMISSION_RING {
        memory.sync_word(at).store(word as u32, Ordering::Relaxed);
    } else {
        memory.word(at).store(word, Ordering::Relaxed);
    }
}

/// An engine's turn against an app that may have lied.
fn drive(daemon: &mut DaemonEnd) {
    for look in 0..20 {
        if !daemon.has_asked() {
            assert_eq!(daemon.next_command(), Ok(None));
        }
        if look % 3 == 0 && daemon.next_asked(1).is_some() {
            continue;
        }
        let next = if look % 2 == 0 { daemon.next_submitted() } else { Next::Other };
        if let Next::Message(Submitted { offset, length, .. })
        | Next::Bytes(SubmittedBytes { offset, length, .. }) = next
        {
            daemon.read(offset, &mut vec![0; length as usize]);
            daemon.sends_finished(1);
            continue;
        }
        match daemon.next_command() {
            Ok(Some(Command::Send { offset, length, .. })) => {
                daemon.read(offset, &mut vec![0; length as usize]);
                daemon.sends_finished(1);
            }
            Ok(Some(Command::SendFrames { offset, length, count, .. })) => {
                let mut burst = SentBurst::new(offset, length, count);
                while let Ok(Some(frame)) = daemon.next_frame(&mut burst) {
                    daemon.read(frame.offset, &mut vec![0; frame.length as usize]);
                }
                daemon.sends_finished(1);
            }
            Ok(Some(Command::Release { buffers })) => {
                for &id in buffers.as_slice() {
                    let _ = daemon.release(id);
                }
            }
            Ok(Some(Command::Connect { token, .. })) if daemon.completion_room() > 0 => {
                daemon.complete(&Completion::ConnectFailed { token, code: Code::Refused });
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    if let Some(buffer) = daemon.allocate(64, 3) {
        daemon.grant(buffer.id);
    }
    assert!(daemon.completion_room() <= 16);
    daemon.flush();
    daemon.arm();
    daemon.disarm();
}

/// What needs two mappings of a real memfd, real doorbells, and time.
#[cfg(not(miri))]
mod with_descriptors {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::OFlags;

    use super::*;
    use crate::{OpenError, ReceiveBuffer};

    fn open() -> (DaemonEnd, AppEnd) {
        let (daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        (daemon, AppEnd::open(handover, sizes()).unwrap())
    }

    /// For so long a wake may take on a busy machine.
    const PATIENCE_S: i64 = 30;

    fn readable(fd: BorrowedFd<'_>, wait_s: i64) -> bool {
        let timeout = Timespec { tv_sec: wait_s, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    #[test]
    fn the_ends_meet_in_a_sealed_memfd() {
        let (mut daemon, mut app) = open();
        let extent = send(&mut app, b"hello");
        echo(&mut daemon, 1);
        assert_eq!(received(&mut app).0, b"hello");
        app.free(extent);
    }

    #[test]
    fn each_end_wakes_the_other_once_per_sleep() {
        let (mut daemon, mut app) = open();
        for _ in 0..3 {
            assert!(daemon.arm() && !readable(daemon.doorbell(), 0));
            let extents = [send(&mut app, b"1"), send(&mut app, b"2")];
            app.flush();
            assert!(readable(daemon.doorbell(), PATIENCE_S));
            daemon.disarm();
            assert!(!readable(daemon.doorbell(), 0));
            assert!(app.arm() && !readable(app.doorbell(), 0));
            let ids = [echo(&mut daemon, 1), echo(&mut daemon, 2)];
            assert!(readable(app.doorbell(), PATIENCE_S));
            assert!(app.disarm() && !app.disarm(), "it has rung once");
            assert!(!readable(app.doorbell(), 0));
            assert_eq!((received(&mut app).1, received(&mut app).1), (ids[0], ids[1]));
            for extent in extents {
                app.free(extent);
            }
            release(&mut app, &ids);
            assert!(matches!(daemon.next_command(), Ok(Some(Command::Release { .. }))));
            for id in ids {
                daemon.release(id).unwrap();
            }
        }
        assert_eq!(daemon.counters().doorbells_rung, 3);
    }

    /// The daemon is held up between the two steps of a ring, and the app wakes up meanwhile.
    #[test]
    fn a_ring_that_comes_late_wakes_the_app_no_more_than_once() {
        let (daemon, mut app) = open();
        let is_told = || sleep::must_ring(daemon.memory.sync_word(SYNC_APP_SLEEPING), daemon.fence);
        for late in 1..3 {
            for _ in 0..late {
                assert!(app.arm() && is_told());
                app.disarm();
            }
            for _ in 0..late {
                assert!(app.arm() && !readable(app.doorbell(), 0));
                daemon.bells.ring();
                assert!(readable(app.doorbell(), PATIENCE_S));
                app.disarm();
                assert!(!readable(app.doorbell(), 0));
            }
            assert!(app.arm() && is_told());
            daemon.bells.ring();
            app.disarm();
            assert!(!readable(app.doorbell(), 0), "and the next one as ever");
        }
    }

    #[test]
    fn nobody_is_rung_who_is_awake() {
        let (mut daemon, mut app) = open();
        for _ in 0..2 {
            let extent = send(&mut app, b"x");
            app.flush();
            assert!(!readable(daemon.doorbell(), 0));
            let id = echo(&mut daemon, 1);
            assert!(!readable(app.doorbell(), 0));
            app.free(extent);
            assert_eq!(received(&mut app).1, id);
            // Nor who was asleep, and is not any more.
            assert!(daemon.arm() && app.arm());
            daemon.disarm();
            assert!(!app.disarm());
        }
        assert_eq!(daemon.counters().doorbells_rung, 0);
    }

    /// A received buffer of 64 bytes.
    fn lend(daemon: &mut DaemonEnd, app: &AppEnd) -> ReceiveBuffer {
        let buffer = daemon.allocate(64, 0).unwrap();
        daemon.grant(buffer.id);
        app.receive_buffer(app.granted(buffer.offset, 64, buffer.id))
    }

    /// How many buffers the app has released.
    fn released(daemon: &mut DaemonEnd) -> usize {
        let mut count = 0;
        while let Ok(Some(Command::Release { buffers })) = daemon.next_command() {
            buffers.as_slice().iter().for_each(|&id| _ = daemon.release(id).unwrap());
            count += buffers.as_slice().len();
        }
        count
    }

    #[test]
    fn who_drops_a_buffer_elsewhere_wakes_an_owner_that_sleeps_and_no_other() {
        let (mut daemon, mut app) = open();
        for _ in 0..3 {
            let [first, second, third] = [(); 3].map(|()| lend(&mut daemon, &app));
            drop(first);
            assert!(!readable(app.owner_bell(), 0), "it is awake");
            assert!(!app.expect_returns() && app.hears_of_returns() && app.arm());
            assert_eq!(released(&mut daemon), 1);
            std::thread::spawn(move || drop((second, third))).join().unwrap();
            assert!(readable(app.owner_bell(), PATIENCE_S));
            app.disarm();
            assert!(!app.hears_of_returns() && !readable(app.owner_bell(), 0));
            assert!(!app.expect_returns() && app.arm());
            assert!(!app.hears_of_returns(), "nobody has anything");
            assert_eq!(released(&mut daemon), 2);
            app.disarm();
        }
        let extent = app.allocate(1 << 16).unwrap();
        let buffer = app.into_buffer(extent);
        assert!(!app.expect_returns() && app.arm());
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        assert!(readable(app.owner_bell(), PATIENCE_S));
        app.disarm();
        assert!(app.expect_returns(), "there is room again");
        app.disarm();
        assert_eq!(app.transmit_pool_used_bytes(), 0);
    }

    /// Whenever it is dropped: before the owner says that it sleeps, meanwhile, or after it.
    #[test]
    fn no_buffer_that_is_dropped_elsewhere_is_overlooked() {
        let (mut daemon, mut app) = open();
        let (sender, receiver) = std::sync::mpsc::channel::<ReceiveBuffer>();
        let other = std::thread::spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..5000 {
            sender.send(lend(&mut daemon, &app)).unwrap();
            loop {
                app.expect_returns();
                assert!(app.arm());
                let is_back = released(&mut daemon) == 1;
                assert!(is_back || readable(app.owner_bell(), PATIENCE_S), "it sleeps for ever");
                app.disarm();
                if is_back {
                    break;
                }
            }
        }
        drop(sender);
        other.join().unwrap();
        assert!(!readable(app.owner_bell(), 0));
    }

    /// An app gives its doorbells to no program that it starts, and nobody waits in a read or
    /// write.
    #[test]
    fn descriptors_are_closed_on_exec_and_never_wait() {
        let (daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let owner_bell = OwnerBell::new().unwrap();
        let bells = [daemon.doorbell(), handover.app_doorbell.as_fd(), owner_bell.own()];
        for fd in bells.into_iter().chain([handover.daemon_doorbell.as_fd()]) {
            assert!(rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK));
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        let flags = rustix::io::fcntl_getfd(&handover.memory).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    /// The lines of /proc/self/smaps about the mappings of a file.
    fn mappings(fd: impl AsFd) -> Vec<String> {
        let inode = rustix::fs::fstat(fd).unwrap().st_ino.to_string();
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = false;
        let mut found = Vec::new();
        for line in text.lines() {
            if line.contains("memfd:clearway-channel") {
                ours = line.split_whitespace().nth(4) == Some(&inode);
            } else if line.chars().next().is_some_and(|first| first.is_ascii_hexdigit())
                && line.split_whitespace().next().is_some_and(|word| word.contains('-'))
            {
                ours = false;
            }
            if ours {
                found.push(line.to_owned());
            }
        }
        found
    }

    /// It is kept out of swap while the daemon uses it, and nothing is left of it afterwards.
    #[test]
    fn memory_is_locked_and_goes_with_its_channel() {
        let (daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let memory = handover.memory.try_clone().unwrap();
        let flags: Vec<_> =
            mappings(&memory).into_iter().filter(|line| line.starts_with("VmFlags:")).collect();
        assert_eq!(flags.len(), 1, "one mapping");
        assert!(flags[0].split_whitespace().any(|flag| flag == "lo"), "locked: {}", flags[0]);
        let app = AppEnd::open(handover, sizes()).unwrap();
        let maps = || mappings(&memory).iter().filter(|line| line.starts_with("VmFlags:")).count();
        assert_eq!(maps(), 2);
        drop(daemon);
        assert_eq!(maps(), 1);
        drop(app);
        assert_eq!(maps(), 0);
    }

    #[test]
    fn sleepers_in_two_threads_miss_nothing() {
        let (mut daemon, mut app) = open();
        let engine = std::thread::spawn(move || {
            let mut echoed = 0;
            while echoed < 2000 {
                match daemon.next_command().unwrap() {
                    Some(Command::Send { length, .. }) => {
                        echoed += 1;
                        daemon.sends_finished(1);
                        assert_eq!(length, 3);
                        assert!(daemon.completion_room() > 0);
                        daemon.complete(&Completion::Sent { connection: 1, sent: echoed });
                        daemon.flush();
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {
                        if daemon.arm() {
                            assert!(readable(daemon.doorbell(), PATIENCE_S), "a wake was lost");
                        }
                        daemon.disarm();
                    }
                }
            }
        });
        for round in 1..=2000 {
            let extent = send(&mut app, b"abc");
            app.flush();
            let deadline = Instant::now() + Duration::from_secs(30);
            let sent = loop {
                match app.next_completion().unwrap() {
                    Some(Completion::Sent { sent, .. }) => break sent,
                    Some(other) => panic!("{other:?}"),
                    None => {
                        if app.arm() {
                            assert!(readable(app.doorbell(), PATIENCE_S), "a wake was lost");
                        }
                        app.disarm();
                        assert!(Instant::now() < deadline);
                    }
                }
            };
            assert_eq!(sent, round);
            app.free(extent);
        }
        engine.join().unwrap();
    }

    #[test]
    fn an_app_cannot_block_the_daemon_by_its_doorbells() {
        let (mut daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        // The app fills everything it holds and makes it blocking.
        rustix::io::write(&handover.daemon_doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let filler = [0u8; 4096];
        while rustix::io::write(&handover.app_doorbell, &filler).is_ok() {}
        for fd in [&handover.daemon_doorbell, &handover.app_doorbell] {
            rustix::fs::fcntl_setfl(fd, OFlags::empty()).unwrap();
        }
        let memory = crate::memory::open(&handover.memory, &sizes()).unwrap().unwrap();
        for sent in 0..1000 {
            memory.sync_word(SYNC_APP_SLEEPING).store(1, Ordering::Relaxed);
            if daemon.completion_room() == 0 {
                memory.sync_word(SYNC_COMPLETION_HEAD).store(sent, Ordering::Relaxed);
                assert!(daemon.completion_room() > 0);
            }
            daemon.complete(&Completion::Sent { connection: 1, sent });
            daemon.flush();
            memory.sync_word(SYNC_DAEMON_SLEEPING).store(0, Ordering::Relaxed);
            daemon.disarm();
        }
        assert_eq!(daemon.counters().doorbells_rung, 1000);
        drop(handover);
        memory.sync_word(SYNC_APP_SLEEPING).store(1, Ordering::Relaxed);
        daemon.close();
    }

    /// What would be closed with the daemon's end of the doorbell never gets there.
    #[test]
    fn an_app_cannot_put_descriptors_into_the_doorbell() {
        use std::io::Write;
        let (daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        let descriptors = [reader.as_fd()];
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors));
        let bytes = [io::IoSlice::new(b"x")];
        let flags = rustix::net::SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&handover.app_doorbell, &bytes, &mut ancillary, flags);
        assert_eq!(sent, Err(rustix::io::Errno::PIPE));
        drop(reader);
        let gone = writer.write(b"x").unwrap_err().kind();
        assert_eq!(gone, io::ErrorKind::BrokenPipe, "the daemon holds the other end");
        drop(daemon);
    }

    /// An app that has not sealed the memory, or whose library is of another time, gets no engine.
    #[test]
    fn memory_that_the_app_could_still_change_is_not_used() {
        let (mut daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let memory = handover.memory.try_clone().unwrap();
        assert!(matches!(daemon.secure(&memory), Err(NotSecured::NotSealed)));
        rustix::fs::fcntl_add_seals(&memory, rustix::fs::SealFlags::SEAL).unwrap();
        assert!(matches!(daemon.secure(&memory), Err(NotSecured::NotSealed)));
        assert!(matches!(AppEnd::open(handover, sizes()), Err(OpenError::Io(_))));
        let (mut daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let memory = handover.memory.try_clone().unwrap();
        let _app = AppEnd::open(handover, sizes()).unwrap();
        daemon.secure(&memory).unwrap();
    }

    #[test]
    fn memory_that_is_not_as_announced_is_refused() {
        let (_daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let larger = Sizes { receive_pool_bytes: 1 << 17, ..sizes() };
        assert!(matches!(AppEnd::open(handover, larger), Err(OpenError::Mismatch)));
        let (_daemon, handover) = DaemonEnd::create(sizes()).unwrap();
        let swapped = Sizes { submission_entries: 32, ..sizes() };
        assert!(matches!(AppEnd::open(handover, swapped), Err(OpenError::Mismatch)));
        let (_daemon, mut handover) = DaemonEnd::create(sizes()).unwrap();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        handover.memory = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&handover.memory, sizes().total_bytes() as u64).unwrap();
        assert!(matches!(AppEnd::open(handover, sizes()), Err(OpenError::Mismatch)));
    }

    #[test]
    fn sizes_out_of_range_are_refused_with_the_field() {
        let wrong = Sizes { submission_entries: 3, ..sizes() };
        let error = DaemonEnd::create(wrong).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("submission_entries is 3"));
    }
}
