//! What it takes to find those who may not read any more.

use core::cell::Cell;
use std::net::SocketAddr;

use clearway_channel::{Description, Grant, Grantee, Group, GroupName, Member, Rights};
use clearway_transport::FlowKey;

use super::Spot;
use crate::channels::{Bearer, Channel};
use crate::testing::World;

thread_local! {
    /// How often somebody has asked whether a peer may do something with a region.
    pub(super) static FINDS: Cell<u64> = const { Cell::new(0) };
}

const READERS: u32 = 8;

fn name(text: &str) -> GroupName {
    GroupName::new(text.as_bytes()).expect("short")
}

fn to_group(text: &str, rights: Rights) -> Grant {
    Grant { to: Grantee::Group(name(text)), rights }
}

/// Shares a region out of which so many peers, whose connections begin with the one in this slot,
/// read for long.
fn share(channel: &mut Channel, grants: &[Grant], first: u32) {
    let description = Description { name: Vec::new(), grants: grants.to_vec() };
    let piece = (Spot { memory: 0, offset: 0 }, 64);
    let region = channel.operations.regions.share(64, piece, description).expect("room");
    (first..first + READERS).for_each(|slot| channel.operations.begin_reading(region, slot));
}

/// Sets a group, and returns the connections of those who may read no longer, and how many were
/// asked about.
fn set(channel: &mut Channel, text: &str, members: &[Member]) -> (Vec<u32>, u64) {
    let group = Group { name: name(text), members: members.to_vec() };
    channel.operations.regions.set_group(group).expect("room");
    let before = FINDS.get();
    let cut_off = channel.members_cut_off(name(text));
    (cut_off.into_keys().collect(), FINDS.get() - before)
}

#[test]
fn who_reads_what_a_group_has_no_say_in_is_not_asked_about() {
    let mut world = World::new();
    let channel = world.common.channels.channel(0).expect("it is there");
    for slot in 0..2 * READERS {
        let peer = SocketAddr::from(([10, 0, 0, slot as u8], 7000));
        let bearer = Bearer::Flow(FlowKey::of_id(slot.into()).into());
        assert_eq!(channel.open(peer, bearer, None), Some(slot));
    }
    let anybody = Grant { to: Grantee::Anybody, rights: Rights::READ };
    let near = Member::Prefix("10.0.0.0/29".parse().expect("a prefix"));
    set(channel, "writers", &[near]);
    share(channel, &[to_group("writers", Rights::WRITE), anybody], 0);
    share(channel, &[to_group("readers", Rights::READ), anybody], 0);
    share(channel, &[to_group("others", Rights::READ)], READERS);
    assert_eq!(set(channel, "writers", &[]), (Vec::new(), 0));
    assert_eq!(set(channel, "readers", &[]), (Vec::new(), 0));
    assert_eq!(set(channel, "unknown", &[near]), (Vec::new(), 0));
    // These are no members.
    let far = (READERS..2 * READERS).collect::<Vec<_>>();
    assert_eq!(set(channel, "others", &[near]), (far, READERS.into()));
    let all = Member::Prefix("10.0.0.0/28".parse().expect("a prefix"));
    assert_eq!(set(channel, "others", &[all]), (Vec::new(), READERS.into()));
}
