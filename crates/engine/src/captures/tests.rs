use super::*;
use crate::common::Common;
use crate::testing::{NOW, World};

fn sees(world: &mut World, frame: &[u8], party: Option<u32>, is_again: bool) {
    let digest = Digest::of(frame);
    let party = party.map(|channel| Party { channel, connection: None });
    let sighting = Sighting::received(frame, &digest, Point::Wire, party);
    world.common.show(NOW, &Sighting { is_again, ..sighting });
}

fn close(world: &mut World, channel: u32, id: u32) {
    world.common.captures.close(&mut world.common.channels, channel, id, None);
}

fn end_turn(world: &mut World) {
    world.common.captures.end_turn(&mut world.common.channels);
    world.flush();
}

/// Of each capture of this engine: its id, the frames that it was shown, and those that were lost.
fn counts(world: &World) -> Vec<(u32, u64, u64)> {
    let captures = world.common.captures.snapshot();
    captures.iter().map(|one| (one.vif, one.frames, one.frames_dropped)).collect()
}

#[test]
fn captures_count_what_they_show_and_what_is_lost() {
    let mut world = World::new();
    assert!(world.common.is_simple() && !world.common.captures.any());
    let all = CaptureSpec { filter: Vec::new(), app: None, connection: None };
    let of_app = CaptureSpec { app: Some(1), ..all.clone() };
    world.common.captures.open(None, 0, 1, all.clone());
    world.common.captures.open(None, 0, 2, of_app);
    world.common.captures.open(Some(1), 5, 3, all);
    assert!(!world.common.is_simple() && world.common.captures.any());
    let frame = [7; 60];
    for (party, is_again) in [(None, false), (Some(1), false), (Some(1), true), (Some(0), false)] {
        sees(&mut world, &frame, party, is_again);
    }
    sees(&mut world, &frame[..13], Some(1), false);
    sees(&mut world, &frame[..13], Some(1), false);
    assert_eq!(counts(&world), [(1, 3, 2), (2, 2, 2)], "the third is another engine's");
    for capture in [(0, 2), (5, 3)] {
        let Common { captures, channels, .. } = &mut world.common;
        captures.show_of_sibling(channels, capture, FrameInfo::default(), &frame);
    }
    assert_eq!(counts(&world), [(1, 3, 2), (2, 3, 2)]);
    end_turn(&mut world);
    let mut shown = [0; 3];
    for completion in world.told(0) {
        let Completion::Frames { vif, count, .. } = completion else { panic!("{completion:?}") };
        shown[vif as usize] += count;
    }
    assert_eq!(shown, [0, 3, 3], "all that was counted");
    end_turn(&mut world);
    assert!(world.told(0).is_empty());
    let used = world.end(0).counters().receive_pool_used_bytes;
    sees(&mut world, &frame, Some(1), false);
    assert!(world.end(0).counters().receive_pool_used_bytes > used);
    close(&mut world, 5, 2); // nobody has it
    close(&mut world, 0, 2);
    assert_eq!(counts(&world), [(1, 4, 2)]);
    close(&mut world, 0, 1);
    assert_eq!(world.end(0).counters().receive_pool_used_bytes, used, "what was gathered is lost");
    close(&mut world, 5, 3);
    assert!(world.common.is_simple() && counts(&world).is_empty());
}
