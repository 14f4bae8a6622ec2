//! When apps are told that what they have sent is finished, by an engine that always has something
//! else to do.

mod world;

use clearway_base::MILLISECOND;
use clearway_channel::{Command, Completion, Told};
use clearway_nic::fabric::Faults;
use world::{App, SIZES, World};

const PORT: u16 = 7000;

/// Two apps of two hosts that have met, and one beside the first that never lets its engine rest.
struct Scene {
    world: World,
    near: App,
    far: App,
    restless: App,
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new(31, Faults::default());
        let near = world.attach(0, SIZES);
        let far = world.attach(1, SIZES);
        let restless = world.attach(0, SIZES);
        world.listen(&far, PORT).expect("free");
        Self { world, near, far, restless }
    }

    /// A connection of the two: its ids at both.
    fn connect(&mut self) -> (u64, u64) {
        self.world.connect(&mut self.near, &mut self.far, PORT)
    }

    /// A turn of each engine, in which that of the first host takes a command.
    fn turn(&mut self) {
        self.restless.submit(&Command::TakeStreams { are_taken: true });
        self.world.turn();
        self.restless.poll();
    }
}

/// All that it sends lies in its pool until it is told.
#[test]
fn who_only_sends_is_told_though_its_engine_is_never_idle() {
    for count in [1, 31, 40] {
        let mut scene = Scene::new();
        let (connection, _) = scene.connect();
        for _ in 0..count {
            assert!(scene.near.send(connection, &[7; 100]));
        }
        let begin = scene.world.now;
        while scene.near.unfinished() > 0 {
            scene.turn();
            scene.near.poll();
            let waited_ns = scene.world.now.since(begin);
            assert!(waited_ns < MILLISECOND, "{} of {count}", scene.near.unfinished());
        }
    }
}

/// A completion of its own costs an app more than one that comes with a message.
#[test]
fn a_question_is_told_of_with_its_answer() {
    let mut scene = Scene::new();
    let (near, far) = scene.connect();
    let begin = scene.world.now;
    let (mut answers, mut told) = (0, 0);
    assert!(scene.near.send(near, &[1; 64]));
    while answers < 1000 {
        scene.turn();
        scene.far.poll();
        while let Some(question) = scene.far.received.pop_front() {
            scene.far.release(question);
            assert!(scene.far.send(far, &[2; 64]));
        }
        while let Some(completion) = scene.near.end.next_told().expect("valid") {
            match completion {
                Told::Message(answer) => {
                    answers += 1;
                    scene.near.end.release(answer.bytes);
                    scene.near.end.flush_releases();
                    assert!(scene.near.send(near, &[1; 64]));
                }
                Told::Other(Completion::Sent { .. }) => told += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(scene.world.now.since(begin) < 100 * MILLISECOND, "{answers} answers");
    }
    // It could have been due some times.
    assert!(scene.world.now.since(begin) > MILLISECOND);
    assert_eq!(told, 0);
}
