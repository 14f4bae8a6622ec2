//! What an engine shows to other threads is what it says when it is asked.

mod world;

use clearway_engine::catalogue;
use clearway_nic::fabric::Faults;
use world::{SIZES, World};

#[test]
fn the_board_has_what_the_snapshot_has() {
    let mut world = World::new(1, Faults::default());
    let board = world.hosts[0].members[0].engine.board();
    let before = board.read().expect("nobody writes");
    assert!(before.values.iter().all(|value| *value == 0), "nothing is published yet");
    let (mut client, mut server) = (world.attach(0, SIZES), world.attach(1, SIZES));
    world.listen(&server, 7000).expect("free");
    world.connect(&mut client, &mut server, 7000);

    let snapshot = world.snapshot(0);
    world.hosts[0].members[0].engine.publish(world.now);
    let reading = board.read().expect("nobody writes");
    assert_eq!(reading.at_ns, world.now.as_ns());
    assert_eq!(board.labels().len(), reading.values.len());
    let value = |name: &str| {
        let at = board.labels().iter().position(|label| label.counter.name == name);
        reading.values[at.unwrap_or_else(|| panic!("no {name}"))]
    };
    for (name, counted) in &snapshot.counters {
        assert_eq!(value(name), *counted, "{name}");
    }
    let queue = &snapshot.queues[0];
    assert_eq!(value("link_up"), 1);
    assert!(value("rx_frames") >= queue.counters.rx_frames);
    assert!(value("rx_frames") > 0 && value("turns") >= snapshot.turns);
    assert_eq!((value("channels_open"), value("flows_open")), (1, 1));
    assert_eq!((snapshot.channels_open, snapshot.flows_open), (1, 1));

    // Everything on it is in the catalogue, under the same name.
    let groups = catalogue();
    for label in board.labels() {
        let group = groups.iter().find(|group| group.name == label.group).expect("a group");
        assert!(group.counters.contains(&label.counter), "{label:?}");
    }
}
