//! VIFs with apps' channels, but without engine or NIC: what is counted, what is told, and that
//! whatever a VIF had is given back when it goes.

mod sending;

use clearway_channel::burst::SentFrame;
use clearway_nic::Checksums;

use super::*;
use crate::switch::Reach;
use crate::testing::World;

const OWN_MAC: MacAddress = [2, 9, 9, 9, 9, 9];
const THIRD_MAC: MacAddress = [2, 8, 8, 8, 8, 8];

/// The VIFs of an engine, and the apps of channels 0 and 1.
struct Rig {
    frames: Frames,
    world: World,
}

impl Rig {
    fn new() -> Self {
        Self { frames: Frames::new(), world: World::new() }
    }

    fn open(&mut self, channel: u32, id: u32, mac: MacAddress) -> VifKey {
        let opened = self.frames.open(&mut self.world.common, channel, id, spec(mac));
        assert_eq!(opened, Ok(()));
        self.frames.keys[&(channel, id)]
    }

    fn deliver(&mut self, key: VifKey, lengths: &[usize]) {
        let frames: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![7; length]).collect();
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        self.frames.receive(
            &mut self.world.common,
            NOW,
            key,
            &frames,
            Via::Queue(Checksums::Unknown),
        );
    }

    /// Lets an app send a burst of one frame, and its VIF take it.
    fn send(&mut self, channel: u32, id: u32) {
        let burst = Command::SendFrames { vif: id, offset: 0, length: 80, count: 1 };
        self.world.app(channel).submit(&burst).expect("there is room");
        assert_eq!(self.world.end(channel).next_command(), Ok(Some(burst)));
        self.frames.command(&mut self.world.common, NOW, channel, burst);
    }

    /// The burst that a VIF is sending has been walked to its end.
    fn finish_burst(&mut self, key: VifKey) {
        let walked = SentBurst::new(0, 80, 1).past(1, SentFrame { offset: 16, length: 60 });
        self.frames.go_on(&mut self.world.common.channels, key, walked);
    }

    fn end_turn(&mut self) {
        self.frames.end_turn(&mut self.world.common.channels);
        self.world.flush();
    }

    fn close(&mut self, channel: u32, id: u32, told: Option<Code>) -> bool {
        self.frames.close(&mut self.world.common, channel, id, told)
    }

    fn is_here(&self, mac: MacAddress) -> bool {
        self.world.common.switch.reach(&to_mac(mac)) == Reach::Here
    }

    fn counter(&self, key: VifKey, name: &str) -> u64 {
        let snapshot = self.frames.snapshot(key.slot()).expect("it is open");
        snapshot.counters.iter().find(|(other, _)| *other == name).expect("a counter").1
    }
}

/// What comes to an Ethernet address.
fn spec(mac: MacAddress) -> VifSpec {
    let text: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
    let receive = vec![filter(&format!("ether dst {}", text.join(":")))];
    VifSpec { receive, mac, ..VifSpec::default() }
}

fn to_mac(mac: MacAddress) -> Digest {
    Digest::of(&[&mac[..], &OTHER_MAC, &[0x88, 0xb5], &[0; 46]].concat())
}

#[test]
fn frames_are_counted_where_they_go_and_told_once_a_turn() {
    let mut rig = Rig::new();
    let key = rig.open(0, 1, OWN_MAC);
    rig.deliver(key, &[60, 61, 1000]);
    rig.deliver(key, &[13, 62]);
    rig.end_turn();
    let told = rig.world.told(0);
    let counts = told.iter().map(|completion| match completion {
        Completion::Frames { vif: 1, count, .. } => *count,
        other => panic!("{other:?}"),
    });
    assert_eq!(counts.sum::<u16>(), 4);
    assert_eq!(rig.counter(key, "received_frames"), 4);
    assert_eq!(rig.counter(key, "received_bytes"), 60 + 61 + 1000 + 62);
    assert_eq!(rig.counter(key, "dropped_no_room"), 1, "a frame of 13 bytes is none");
    rig.end_turn();
    assert!(rig.world.told(0).is_empty(), "nothing has happened");
    rig.frames.count_sent(key, 3, 300);
    rig.frames.count_sent(key, 4, 500);
    for reason in [FrameRefusal::Source, FrameRefusal::Vlan, FrameRefusal::Source] {
        rig.frames.refuse(key, reason);
    }
    assert_eq!((rig.counter(key, "sent_frames"), rig.counter(key, "sent_bytes")), (7, 800));
    let mut refused = rig.frames.snapshot(key.slot()).expect("it is open").refused;
    refused.sort_unstable();
    assert_eq!(refused, [(FrameRefusal::Source.word(), 2), (FrameRefusal::Vlan.word(), 1)]);
    rig.send(0, 1);
    rig.finish_burst(key);
    rig.end_turn();
    let reason = FrameRefusal::Source.as_u8();
    let told = Completion::FramesSent { vif: 1, bursts: 1, sent: 7, rejected: 3, reason };
    assert_eq!(rig.world.told(0), [told]);
    rig.deliver(key, &[60]);
    rig.end_turn();
    let told = rig.world.told(0);
    assert!(matches!(told[..], [Completion::Frames { vif: 1, count: 1, .. }]), "{told:?}");
}

#[test]
fn who_has_something_to_send_is_in_the_row_once() {
    let mut rig = Rig::new();
    let [first, second] = [rig.open(0, 1, OWN_MAC), rig.open(1, 1, THIRD_MAC)];
    assert!(!rig.frames.has_output());
    assert_eq!(rig.frames.count(), 2);
    for (channel, id) in [(0, 1), (0, 1), (1, 1)] {
        rig.send(channel, id);
    }
    assert!(rig.frames.has_output());
    assert_eq!(rig.frames.senders.len(), 2);
    assert_eq!((rig.frames.bursts_of(0), rig.frames.bursts_of(1)), (2, 1));
    let row: Vec<_> = (0..4).filter_map(|_| rig.frames.next_sender()).collect();
    assert_eq!(row, [first, second, first, second]);
    for (key, left) in [(first, 1), (second, 0), (first, 0)] {
        rig.finish_burst(key);
        assert_eq!(rig.frames.bursts_of(key.channel()), left);
        assert_eq!(rig.world.end(key.channel()).counters().sends_outstanding, left);
    }
    assert!(!rig.frames.has_output());
    rig.send(0, 77);
    assert_eq!(rig.world.end(0).counters().sends_outstanding, 0, "one for nobody is over at once");
}

/// One that ends without having had its turn.
#[test]
fn who_ends_leaves_the_others_in_the_row() {
    let mut rig = Rig::new();
    let [first, second] = [rig.open(0, 1, OWN_MAC), rig.open(1, 1, THIRD_MAC)];
    rig.send(0, 1);
    rig.send(1, 1);
    rig.finish_burst(first);
    assert_eq!(rig.frames.senders, [second]);
}

#[test]
fn a_channel_that_goes_leaves_the_vifs_of_others() {
    let mut rig = Rig::new();
    let [first, second] = [rig.open(0, 1, OWN_MAC), rig.open(1, 1, THIRD_MAC)];
    for key in [first, second] {
        rig.send(key.channel(), 1);
        rig.deliver(key, &[60]);
    }
    assert_eq!(rig.frames.first(), Some(first));
    rig.frames.remove_channel(&mut rig.world.common.switch, 0);
    assert_eq!((&rig.frames.senders, &rig.frames.touched[..]), (&[second].into(), &[second][..]));
    assert_eq!((rig.frames.first(), rig.frames.count()), (Some(second), 1));
}

/// A report is no completion that waits in the engine's memory, and holds up no VIF without one.
#[test]
fn a_report_waits_until_the_app_has_room_for_it() {
    let mut rig = Rig::new();
    let [sent, other] = [rig.open(0, 1, OWN_MAC), rig.open(0, 2, THIRD_MAC)];
    rig.send(0, 1);
    let app = rig.world.common.channels.channel(0).expect("it is there");
    while app.may_tell() {
        app.tell(Completion::VifClosed { vif: 77, code: Code::Limit });
    }
    rig.world.flush();
    rig.finish_burst(sent);
    rig.frames.copy(&mut rig.world.common.channels, NOW, other, &[7; 60]);
    rig.end_turn();
    assert_eq!(rig.frames.touched, [sent]);
    assert!(rig.frames.has_reports());
    let is_report = |told: &Completion| matches!(told, Completion::FramesSent { vif: 1, .. });
    assert!(!rig.world.told(0).iter().any(is_report));
    rig.world.common.channels.channel(0).expect("it is there").tell_pending();
    rig.end_turn();
    assert_eq!(rig.world.told(0).iter().filter(|told| is_report(told)).count(), 1);
    assert!(!rig.frames.has_reports());
}

/// And nothing of anybody else's.
#[test]
fn what_a_vif_had_goes_with_it() {
    let mut rig = Rig::new();
    let macs = [OWN_MAC, THIRD_MAC, OWN_MAC, MAC];
    let keys: Vec<VifKey> = (0..4).map(|id| rig.open(id % 2, id, macs[id as usize])).collect();
    for &key in &keys {
        rig.deliver(key, &[60]);
    }
    (0..4).for_each(|id| rig.send(id % 2, id));
    assert!(rig.world.end(0).counters().receive_pool_used_bytes > 0);
    assert!(rig.close(0, 0, Some(Code::Limit)));
    assert!(!rig.close(0, 0, Some(Code::Limit)), "there is none any more");
    assert!(rig.is_here(OWN_MAC), "another has the same address");
    assert!(rig.close(0, 2, None));
    assert!(!rig.is_here(OWN_MAC) && rig.is_here(THIRD_MAC) && rig.is_here(MAC));
    let counters = rig.world.end(0).counters();
    assert_eq!((counters.receive_pool_used_bytes, counters.sends_outstanding), (0, 0));
    assert_eq!(rig.frames.senders.len(), 2);
    assert_eq!((rig.frames.bursts_of(0), rig.frames.bursts_of(1)), (0, 2));
    rig.end_turn();
    assert_eq!(rig.world.told(0), [Completion::VifClosed { vif: 0, code: Code::Limit }]);
    let of_others = rig.world.told(1);
    let vifs = of_others.iter().map(|completion| match completion {
        Completion::Frames { vif, count: 1, .. } => *vif,
        other => panic!("{other:?}"),
    });
    let vifs: Vec<u32> = vifs.collect();
    assert!(vifs.len() == 2 && vifs.contains(&1) && vifs.contains(&3), "{vifs:?}");
    assert!(rig.close(1, 1, None) && rig.close(1, 3, None));
    assert!(rig.world.common.is_simple() && rig.is_here(MAC) && !rig.is_here(THIRD_MAC));
    assert_eq!((rig.frames.count(), rig.frames.places()), (0, 4));
    assert!(rig.frames.keys.is_empty());
    let again = rig.open(0, 9, OWN_MAC);
    assert!(rig.frames.places() == 4 && rig.is_here(OWN_MAC), "a slot is used again");
    assert_eq!(rig.world.common.switch.owner(&to_mac(OWN_MAC)), Some(FrameOwner::Vif(again)));
}
