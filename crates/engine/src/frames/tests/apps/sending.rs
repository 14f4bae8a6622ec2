//! How many bursts are sent in a turn, to a queue that may be full, with checks and without.

use clearway_channel::burst::{Filling, packed_bytes};
use clearway_nic::{Queue as _, fabric};

use super::*;

/// The VIFs of a rig, and a queue that nobody empties.
struct Sender {
    rig: Rig,
    queue: fabric::Queue,
    _other_end: fabric::Queue,
}

/// Ways of sending that this build has: with checks, and perhaps without.
const CHECKS: &[bool] = if cfg!(feature = "unchecked") { &[true, false] } else { &[true] };

impl Sender {
    fn new(checks: bool) -> Self {
        let (queue, other_end, _) = fabric::pair(fabric::Options::new(1), Default::default());
        assert!(CHECKS.contains(&checks), "this build checks everything");
        let sender = Self { rig: Rig::new(), queue, _other_end: other_end };
        #[cfg(feature = "unchecked")]
        let sender = sender.with(if checks { Checks::On } else { Checks::Off });
        sender
    }

    #[cfg(feature = "unchecked")]
    fn with(mut self, checks: Checks) -> Self {
        self.rig.frames.checks = checks;
        self
    }

    /// A VIF of channel 0 that may send what is from an address.
    fn open(&mut self, id: u32, mac: MacAddress) -> VifKey {
        let text: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
        let transmit = vec![filter(&format!("ether src {}", text.join(":")))];
        let spec = VifSpec { transmit, ..spec(mac) };
        self.rig.frames.open(&mut self.rig.world.common, 0, id, spec).expect("an app");
        self.rig.frames.keys[&(0, id)]
    }

    /// Has a VIF send `count` frames in a burst that says it has `announced`.
    fn submit(&mut self, id: u32, frame: &[u8], count: u16, announced: u16) {
        let app = self.rig.world.app(0);
        let bytes = packed_bytes(frame.len() as u32) * u32::from(count);
        let extent = app.allocate(bytes).expect("room in the pool");
        let mut filling = Filling::default();
        for _ in 0..count {
            let buffer = app.transmit_bytes(&extent);
            filling.append(buffer, frame.len() as u32).expect("room").copy_from_slice(frame);
        }
        let (offset, length) = (extent.offset(), extent.length());
        let burst = Command::SendFrames { vif: id, offset, length, count: announced };
        app.submit(&burst).expect("there is room");
        assert_eq!(self.rig.world.end(0).next_command(), Ok(Some(burst)));
        self.rig.frames.command(&mut self.rig.world.common, NOW, 0, burst);
    }

    /// Frames taken and queued.
    fn send(&mut self, budget: usize) -> (usize, usize) {
        let Rig { frames, world } = &mut self.rig;
        let sending = frames.send(&mut world.common, NOW, &mut self.queue, budget);
        (sending.taken, sending.queued)
    }

    /// Fills the queue but for `room` frames.
    fn fill(&mut self, room: usize) {
        for _ in room..fabric::Options::new(1).descriptors {
            assert_eq!(self.queue.transmit(&mut |_| 60), clearway_nic::Transmit::Queued);
        }
    }

    fn sent(&self, key: VifKey) -> (u64, u64) {
        (self.rig.counter(key, "sent_frames"), self.rig.counter(key, "sent_bytes"))
    }

    fn row(&self) -> Vec<VifKey> {
        self.rig.frames.senders.iter().copied().collect()
    }
}

fn from(source: MacAddress, to: MacAddress, length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &source, &[0x88, 0xb5]].concat();
    frame.resize(length, 7);
    frame
}

#[test]
fn bursts_are_sent_until_the_budget_is_used_up() {
    for &checks in CHECKS {
        let mut sender = Sender::new(checks);
        let key = sender.open(1, OWN_MAC);
        let frame = from(OWN_MAC, OTHER_MAC, 100);
        (0..4).for_each(|_| sender.submit(1, &frame, 4, 4));
        assert_eq!(sender.send(4), (4, 4), "checks: {checks}");
        assert_eq!(sender.sent(key), (4, 400), "checks: {checks}");
        assert_eq!((sender.rig.frames.bursts_of(0), sender.row()), (3, vec![key]));
        assert_eq!(sender.send(100), (12, 12), "checks: {checks}");
        assert_eq!(sender.sent(key), (16, 1600), "checks: {checks}");
        assert_eq!((sender.rig.frames.bursts_of(0), sender.row()), (0, vec![]));
        assert_eq!(sender.send(100), (0, 0), "checks: {checks}");
    }
}

#[test]
fn a_burst_that_meets_a_full_queue_waits_where_it_stopped() {
    for &checks in CHECKS {
        let mut sender = Sender::new(checks);
        let key = sender.open(1, OWN_MAC);
        sender.fill(3);
        (0..2).for_each(|_| sender.submit(1, &from(OWN_MAC, OTHER_MAC, 100), 4, 4));
        assert_eq!(sender.send(100), (3, 3), "checks: {checks}");
        assert_eq!(sender.send(100), (0, 0), "checks: {checks}");
        assert_eq!(sender.sent(key), (3, 300), "checks: {checks}");
        assert_eq!((sender.rig.frames.bursts_of(0), sender.row()), (2, vec![key]));
    }
}

/// The fifth could send to this host; it has its turn in the next.
#[test]
fn four_that_are_stuck_end_the_turn() {
    let mut sender = Sender::new(true);
    let macs: Vec<MacAddress> = (1..6).map(|last| [2, 7, 7, 7, 7, last]).collect();
    let keys: Vec<VifKey> =
        macs.iter().enumerate().map(|(id, mac)| sender.open(id as u32, *mac)).collect();
    sender.fill(0);
    (0..4).for_each(|id| sender.submit(id, &from(macs[id as usize], OTHER_MAC, 60), 2, 2));
    sender.submit(4, &from(macs[4], macs[0], 60), 2, 2);
    assert_eq!(sender.send(100), (0, 0));
    assert_eq!(sender.row()[0], keys[4], "it is the next");
    assert_eq!(sender.send(100), (2, 0));
    assert_eq!(sender.sent(keys[4]), (2, 120));
}

/// What is sent without looking at it ends where it makes no sense.
#[cfg(feature = "unchecked")]
#[test]
fn a_malformed_burst_that_nobody_checks_is_not_tried_again() {
    let mut sender = Sender::new(false);
    let key = sender.open(1, OWN_MAC);
    sender.submit(1, &from(OWN_MAC, OTHER_MAC, 100), 2, 4);
    assert_eq!(sender.send(100), (2, 2));
    assert_eq!(sender.sent(key), (2, 200));
    assert!(sender.row().is_empty());
}
