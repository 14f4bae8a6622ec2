//! Messages with deadlines between apps of two hosts and of one, through real channels and engines.

mod world;

use clearway_channel::{Command, Completion};
use clearway_nic::fabric::Faults;
use world::pair::restore;
use world::{App, SIZES, World};

const PORT: u16 = 4000;
const LENGTH: u32 = 2000;
/// Messages that are more than the window, which is a sixteenth of the receive pool.
const FILL: u32 = SIZES.receive_pool_bytes / 16 / LENGTH;

/// Sends a message that is to leave within so many microseconds.
fn send_within(app: &mut App, connection: u64, within_us: u32) -> bool {
    app.send_by(connection, &[7; LENGTH as usize], |offset, length| Command::SendWithin {
        connection,
        offset,
        length,
        within_us,
    })
}

/// An app does not read, and so what another sends waits; what waits too long is dropped, its
/// memory is its app's again, both hear of it, and the rest arrives. Engines are saved and restored
/// meanwhile.
#[test]
fn both_apps_hear_of_what_was_dropped() {
    for (server_host, server_hears) in [(1, true), (1, false), (0, true), (0, false)] {
        let mut world = World::new(1, Faults::default());
        let mut client = world.attach(0, SIZES);
        let mut server = world.attach(server_host, SIZES);
        world.listen(&server, PORT).expect("a free port");
        let (near, far) = world.connect(&mut client, &mut server, PORT);
        if server_hears {
            server.submit(&Command::TellSkipped { is_told: true });
            world.turn();
        }
        for _ in 0..FILL {
            assert!(client.send(near, &[7; LENGTH as usize]), "room for all");
            world.turn();
        }
        (0..5).for_each(|_| assert!(send_within(&mut client, near, 20)));
        assert!(send_within(&mut client, near, 1_000_000), "that is time enough");
        (0..100).for_each(|_| world.turn());
        server.poll();
        let unread = server.received.len();
        assert!(unread < FILL as usize, "a window is less");
        (0..2).for_each(|host| restore(&mut world, host));
        assert!(client.told.is_empty() && server.told.is_empty());
        let mut received = 0;
        world.turn_until(|_| {
            client.poll();
            server.poll();
            while let Some(message) = server.received.pop_front() {
                assert_eq!(message.connection, far);
                server.release(message);
                received += 1;
            }
            client.unfinished() == 0
        });
        assert_eq!(received, FILL + 1, "server on host {server_host}");
        let dropped = (FILL..FILL + 5).map(|send| Completion::Dropped { connection: near, send });
        assert!(client.told.iter().copied().eq(dropped), "{:?}", client.told);
        let skipped = server.told.iter().map(|told| match told {
            Completion::Skipped { connection, messages } if *connection == far => *messages,
            other => panic!("{other:?}"),
        });
        assert_eq!(skipped.sum::<u32>(), if server_hears { 5 } else { 0 });
        assert_eq!(world.counter(0, "messages_dropped"), 5);
    }
}
