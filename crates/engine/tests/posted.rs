//! Large messages into buffers that the receiver has posted, between apps of two hosts and of one,
//! through real channels and engines.

mod world;

use clearway_base::MILLISECOND;
use clearway_channel::{
    CHANNEL_MEMORY, Code, Command, Completion, POSTS_PER_CONNECTION_MAX, Sizes, Unposted,
};
use clearway_engine::ChannelState;
use clearway_nic::fabric::Faults;
use world::pair::{pattern, restore};
use world::{App, SIZES, World};

const PORT: u16 = 4000;
/// Its receive pool has room for no large message of these tests.
const RECEIVER: Sizes = Sizes { receive_pool_bytes: 64 << 10, shared_bytes: 4 << 20, ..SIZES };
const LARGE: usize = 1 << 20;
/// A sender that was turned away tries again by itself after 100 ms.
const TOLD_NS_MAX: u64 = 50 * MILLISECOND;
const TRIES_AGAIN_NS_MAX: u64 = 300 * MILLISECOND;

/// An app that sends, on host 0, and one that receives, on host 1 or on 0.
struct Pair {
    world: World,
    sender: App,
    receiver: App,
    near: u64,
    far: u64,
}

impl Pair {
    fn new(receiver_host: usize) -> Self {
        Self::with(receiver_host, 1, Faults::default(), RECEIVER)
    }

    fn with(receiver_host: usize, seed: u64, faults: Faults, sizes: Sizes) -> Self {
        let mut world = World::new(seed, faults);
        let mut sender = world.attach(0, SIZES);
        let mut receiver = world.attach(receiver_host, sizes);
        world.listen(&receiver, PORT).expect("a free port");
        let (near, far) = world.connect(&mut sender, &mut receiver, PORT);
        Self { world, sender, receiver, near, far }
    }

    fn post(&mut self, tag: u64, start: usize, bytes: usize) {
        self.post_behind(self.far, tag, start, bytes);
    }

    fn post_behind(&mut self, connection: u64, tag: u64, start: usize, bytes: usize) {
        let (start, bytes) = (start as u64, bytes as u64);
        let post = Command::Post { connection, tag, memory: CHANNEL_MEMORY, start, bytes };
        self.receiver.submit(&post);
        self.world.turn(); // or what is sent now may come before it
    }

    fn unpost(&mut self, tag: u64) {
        self.receiver.submit(&Command::Unpost { connection: self.far, tag });
    }

    fn send(&mut self, bytes: &[u8]) {
        assert!(self.sender.send(self.near, bytes), "room for all");
    }

    /// What the receiver is told next of its buffers: tag, and length of the message, or why there
    /// is none.
    fn next_end(&mut self) -> (u64, Result<u32, Unposted>) {
        self.world.turn_until(|_| {
            self.receiver.poll();
            self.sender.poll();
            !self.receiver.told.is_empty()
        });
        end_of(self.receiver.told.pop_front().expect("just seen"), self.far)
    }

    /// Some turns in which nothing of buffers is told.
    fn rest(&mut self) {
        for _ in 0..200 {
            self.world.turn();
            self.receiver.poll();
            self.sender.poll();
        }
        assert!(self.receiver.told.is_empty(), "{:?}", self.receiver.told);
    }

    /// Turns until a part of a message has come, and not all of it.
    fn turn_to_the_middle(&mut self) {
        (0..3).for_each(|_| self.world.turn());
        self.receiver.poll();
        assert!(self.receiver.told.is_empty(), "that is all of it");
        assert!(self.memory(0, 1000) != vec![0; 1000], "nothing of it has come");
    }

    /// What status says of a message that is too large for the receiver's pool.
    fn too_large(&mut self) -> u64 {
        let receiver = self.receiver.channel;
        let channels = self.world.snapshot(self.receiver.host).channels;
        let mut channels = channels.iter().filter(|channel| channel.channel == receiver);
        channels.next().expect("it is attached").message_too_large_bytes
    }

    fn memory(&self, start: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert!(self.receiver.end.shared().read(start as u64, &mut bytes));
        bytes
    }

    fn receive(&mut self) -> Vec<u8> {
        self.world.turn_until(|_| {
            self.receiver.poll();
            !self.receiver.received.is_empty()
        });
        let message = self.receiver.received.pop_front().expect("just seen");
        let bytes = self.receiver.end.receive_bytes(&message.bytes).to_vec();
        self.receiver.release(message);
        bytes
    }
}

fn end_of(told: Completion, of: u64) -> (u64, Result<u32, Unposted>) {
    match told {
        Completion::Placed { connection, tag, length, .. } if connection == of => (tag, Ok(length)),
        Completion::Unposted { why, connection, tag } if connection == of => {
            (tag, Err(Unposted::of(why)))
        }
        other => panic!("{other:?}"),
    }
}

/// Whatever the state of the pool, which is too small for them; others go there as before. Engines
/// are saved and restored meanwhile.
#[test]
fn large_messages_go_into_posted_buffers() {
    for receiver_host in [1, 0] {
        let mut pair = Pair::new(receiver_host);
        pair.post(7, 0, LARGE);
        pair.post(8, 2 * LARGE + 3, LARGE);
        pair.send(b"small");
        pair.send(&pattern(LARGE));
        pair.send(&pattern(8 << 10));
        pair.send(&pattern(40_000)[1..]);
        for _ in 0..20 {
            pair.world.turn();
            (0..2).for_each(|host| restore(&mut pair.world, host));
        }
        assert_eq!(pair.receive(), b"small");
        assert_eq!(pair.receive(), pattern(8 << 10), "that is small, too");
        assert_eq!(pair.next_end(), (7, Ok(LARGE as u32)));
        assert_eq!(pair.memory(0, LARGE), pattern(LARGE));
        assert_eq!(pair.next_end(), (8, Ok(39_999)));
        assert_eq!(pair.memory(2 * LARGE + 3, 40_000), [&pattern(40_000)[1..], &[0]].concat());
        pair.world.turn_until(|_| {
            pair.sender.poll();
            pair.sender.unfinished() == 0
        });
        assert!(pair.receiver.received.is_empty());
        assert_eq!(pair.world.counter(receiver_host, "messages_placed"), 2);
    }
}

/// The first buffer that it fits; and the pool, if there is none.
#[test]
fn a_message_takes_the_first_buffer_that_it_fits() {
    for receiver_host in [1, 0] {
        let sizes = Sizes { receive_pool_bytes: 16 << 20, ..RECEIVER };
        let mut pair = Pair::with(receiver_host, 1, Faults::default(), sizes);
        pair.post(1, 0, 20_000);
        pair.post(2, 100_000, 100_000);
        pair.send(&pattern(50_000));
        assert_eq!(pair.next_end(), (2, Ok(50_000)));
        pair.send(&pattern(50_001));
        assert_eq!(pair.receive(), pattern(50_001), "from the pool");
        pair.send(&pattern(20_000));
        assert_eq!(pair.next_end(), (1, Ok(20_000)));
        pair.send(&pattern(20_001));
        assert_eq!(pair.receive(), pattern(20_001), "from the pool");
    }
}

/// A message that there is no room for waits, and goes on when a buffer is posted. Those that come
/// one after the other need no more than one.
#[test]
fn who_was_turned_away_goes_on_when_a_buffer_is_posted() {
    for (receiver_host, seed) in [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)] {
        let faults = Faults { loss_ppm: 30_000 * seed.min(1) as u32, ..Faults::default() };
        let mut pair = Pair::with(receiver_host, seed, faults, RECEIVER);
        (0..8_u8).for_each(|nth| pair.send(&vec![nth; 300_000]));
        pair.rest();
        for nth in 0..8_u8 {
            let posted = pair.world.now;
            pair.post(nth.into(), 0, 300_000);
            assert_eq!(pair.next_end(), (nth.into(), Ok(300_000)));
            let took_ns = pair.world.now.since(posted);
            assert!(seed > 0 || took_ns < TOLD_NS_MAX, "its sender is told: {took_ns} ns");
            assert!(pair.memory(0, 300_000) == vec![nth; 300_000], "message {nth}");
        }
        assert_eq!(pair.world.counter(receiver_host, "messages_placed"), 8);
    }
}

/// Status says that a message waits which the pool never holds, and no more when it has a buffer or
/// its connection has ended. Engines are saved and restored meanwhile.
#[test]
fn a_message_that_the_pool_never_holds_is_shown() {
    for receiver_host in [1, 0] {
        let mut pair = Pair::new(receiver_host);
        pair.send(&[1; 40_000]);
        assert_eq!(pair.receive().len(), 40_000);
        assert_eq!(pair.too_large(), 0);
        pair.send(&[2; 300_000]);
        pair.send(&[3; 400_000]);
        pair.rest();
        assert_eq!(pair.too_large(), 300_000);
        restore(&mut pair.world, receiver_host);
        let restored = pair.world.now;
        pair.world.turn_until(|world| world.now.since(restored) > TRIES_AGAIN_NS_MAX);
        assert_eq!(pair.too_large(), 300_000, "receiver on host {receiver_host}");
        pair.post(2, 0, 300_000);
        assert_eq!(pair.next_end(), (2, Ok(300_000)));
        pair.rest();
        assert_eq!(pair.too_large(), 400_000, "that is the next one");
        pair.sender.submit(&Command::Close { connection: pair.near, abort: true });
        pair.rest();
        assert_eq!(pair.too_large(), 0);
    }
}

/// A message that waited for room has a claim to it, which others have to respect; not any more
/// when it has a buffer.
#[test]
fn who_has_a_buffer_holds_up_nobody() {
    for receiver_host in [1, 0] {
        let mut pair = Pair::new(receiver_host);
        let (other, _) = pair.world.connect(&mut pair.sender, &mut pair.receiver, PORT);
        pair.send(&[1; 300_000]);
        pair.rest();
        pair.post(1, 0, 300_000);
        assert_eq!(pair.next_end(), (1, Ok(300_000)));
        let sent = pair.world.now;
        assert!(pair.sender.send(other, b"small"));
        assert_eq!(pair.receive(), b"small");
        let took_ns = pair.world.now.since(sent);
        assert!(took_ns < TOLD_NS_MAX, "{took_ns} ns");
    }
}

#[test]
fn a_buffer_is_taken_back_until_a_message_comes() {
    for receiver_host in [1, 0] {
        let mut pair = Pair::new(receiver_host);
        pair.post(1, 0, LARGE);
        pair.post(2, LARGE, LARGE);
        pair.unpost(2);
        assert_eq!(pair.next_end(), (2, Err(Unposted::Cancelled)));
        pair.unpost(2);
        pair.unpost(77);
        pair.rest();
        pair.post(2, LARGE, LARGE);
        pair.send(&pattern(LARGE));
        if receiver_host == 1 {
            pair.turn_to_the_middle();
        }
        pair.unpost(1);
        assert_eq!(pair.next_end(), (1, Ok(LARGE as u32)));
        assert_eq!(pair.memory(0, LARGE), pattern(LARGE));
        pair.unpost(1);
        pair.rest();
    }
}

/// In mid-message, however the connection ends, and whatever engine goes on with it: each buffer
/// has one end, told before that of the connection, and nothing is written behind it.
#[test]
fn buffers_end_with_their_connection() {
    let ends: [fn(&mut Pair) -> Option<Code>; 4] = [
        |pair| {
            pair.receiver.submit(&Command::Close { connection: pair.far, abort: false });
            None
        },
        |pair| {
            pair.receiver.submit(&Command::Close { connection: pair.far, abort: true });
            None
        },
        |pair| {
            pair.sender.submit(&Command::Close { connection: pair.near, abort: true });
            Some(Code::Reset)
        },
        |pair| {
            let channel = pair.sender.channel;
            pair.world.post(0, clearway_engine::Request::RemoveChannel { channel });
            Some(Code::Reset)
        },
    ];
    for (receiver_host, (nth, end)) in
        [1, 0].into_iter().flat_map(|host| (0..).zip(ends).map(move |it| (host, it)))
    {
        let mut pair = Pair::new(receiver_host);
        pair.post(1, 0, LARGE);
        pair.post(2, LARGE, LARGE);
        if receiver_host == 1 {
            pair.send(&vec![1; LARGE]);
            pair.turn_to_the_middle();
            restore(&mut pair.world, 1);
        } else {
            pair.world.turn();
        }
        let code = end(&mut pair);
        pair.world.turn();
        pair.receiver.poll();
        let is_told = pair.receiver.told.len() == 2;
        assert!(is_told || code.is_some(), "{nth}: who closes waits for nobody");
        let mut tags = [pair.next_end(), pair.next_end()];
        tags.sort_unstable_by_key(|(tag, _)| *tag);
        assert_eq!(tags, [(1, Err(Unposted::Ended)), (2, Err(Unposted::Ended))], "{nth}");
        assert!(pair.receiver.end.shared().write(0, &vec![9; 2 * LARGE]));
        pair.rest();
        assert_eq!(pair.memory(0, 2 * LARGE), vec![9; 2 * LARGE], "{nth}: nobody writes there");
        if let Some(code) = code {
            assert_eq!(pair.receiver.closed, [(pair.far, code)], "{nth}");
        }
        pair.post(3, 0, LARGE);
        assert_eq!(pair.next_end(), (3, Err(Unposted::NoConnection)));
    }
}

/// A stream's buffers are its own.
#[test]
fn each_stream_has_buffers_of_its_own() {
    for receiver_host in [1, 0] {
        let mut pair = Pair::new(receiver_host);
        pair.receiver.submit(&Command::TakeStreams { are_taken: true });
        pair.world.turn();
        pair.sender.submit(&Command::OpenStream { token: 5, connection: pair.near });
        pair.world.turn_until(|_| {
            pair.sender.poll();
            pair.receiver.poll();
            !pair.sender.connected.is_empty() && !pair.receiver.streams.is_empty()
        });
        let stream = pair.sender.connected.pop_front().expect("open");
        let (far_stream, parent) = pair.receiver.streams.pop_front().expect("open");
        assert_eq!(parent, pair.far);
        pair.post(1, 0, LARGE);
        pair.post_behind(far_stream, 2, LARGE, LARGE);
        assert!(pair.sender.send(stream, &pattern(LARGE)));
        pair.world.turn_until(|_| {
            pair.receiver.poll();
            !pair.receiver.told.is_empty()
        });
        let told = pair.receiver.told.pop_front().expect("just seen");
        assert_eq!(end_of(told, far_stream), (2, Ok(LARGE as u32)));
        assert_eq!(pair.memory(LARGE, LARGE), pattern(LARGE));
        pair.post_behind(far_stream, 3, LARGE, LARGE);
        pair.sender.submit(&Command::Close { connection: stream, abort: true });
        pair.world.turn_until(|_| {
            pair.receiver.poll();
            pair.receiver.closed.contains(&(far_stream, Code::Reset))
        });
        let told = pair.receiver.told.pop_front().expect("before that");
        assert_eq!(end_of(told, far_stream), (3, Err(Unposted::Ended)));
        pair.send(&pattern(LARGE));
        assert_eq!(pair.next_end(), (1, Ok(LARGE as u32)), "the connection goes on");
    }
}

/// Wrong posts are told of, and that is all that comes of them.
#[test]
fn wrong_posts_are_refused() {
    let mut pair = Pair::new(1);
    let all = RECEIVER.shared_bytes as usize;
    for (start, bytes, why) in [
        (0, 0, Unposted::Size),
        (0, 8 << 10, Unposted::Size),
        (0, (8 << 20) + 1, Unposted::Size),
        (0, usize::MAX, Unposted::Size),
        (all, LARGE, Unposted::OutOfBounds),
        (all - LARGE + 1, LARGE, Unposted::OutOfBounds),
        (usize::MAX - 5, LARGE, Unposted::OutOfBounds),
    ] {
        pair.post(1, start, bytes);
        assert_eq!(pair.next_end(), (1, Err(why)), "{bytes} at {start}");
    }
    let (connection, start, bytes) = (pair.far, 0, LARGE as u64);
    for memory in [1, u64::MAX] {
        pair.receiver.submit(&Command::Post { connection, tag: 2, memory, start, bytes });
        assert_eq!(pair.next_end(), (2, Err(Unposted::NoMemory)));
    }
    let far = std::mem::replace(&mut pair.far, u64::MAX);
    pair.post(3, 0, LARGE);
    assert_eq!(pair.next_end(), (3, Err(Unposted::NoConnection)));
    pair.far = far;
    pair.post(4, LARGE, LARGE);
    pair.post(5, 2 * LARGE - 1, LARGE);
    assert_eq!(pair.next_end(), (5, Err(Unposted::Overlaps)));
    let each = 20_000;
    let most = POSTS_PER_CONNECTION_MAX as usize - 1;
    (0..most).for_each(|nth| pair.post(6, 2 * LARGE + nth * each, each));
    pair.post(7, 2 * LARGE + most * each, each);
    assert_eq!(pair.next_end(), (7, Err(Unposted::TooMany)));
    pair.send(&pattern(LARGE));
    assert_eq!(pair.next_end(), (4, Ok(LARGE as u32)));
    pair.post(7, 2 * LARGE + most * each, each);
    pair.rest();
    assert_eq!(pair.world.counter(1, "violations"), 0);
}

/// Each change makes a state that an engine could not go on with.
#[test]
fn a_state_with_other_buffers_is_refused() {
    let changes: [fn(&mut ChannelState); 7] = [
        |state| state.posts.clear(),
        |state| state.posts[0].number += 5,
        |state| state.posts[0].connection += 1,
        |state| state.posts[0].bytes = LARGE as u64 - 1,
        |state| state.posts[0].offset = 4 * LARGE as u64,
        |state| state.posts[0].offset = LARGE as u64,
        |state| state.posts[1].memory = 3,
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let mut pair = Pair::new(1);
        pair.post(1, 0, LARGE);
        pair.post(2, LARGE, LARGE);
        pair.send(&pattern(LARGE));
        pair.turn_to_the_middle();
        let restored = pair.world.restore(1, |mut state| {
            change(&mut state.channels[0]);
            state
        });
        assert!(restored.is_err(), "{nth}");
        std::mem::forget(pair.world);
    }
}
