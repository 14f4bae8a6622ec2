use clearway_channel::Sizes;

use super::*;

const BYTES: u32 = 1 << 20;
/// The smallest buffer that is one.
const LEAST: u64 = SMALL_MESSAGE_BYTES_MAX as u64 + 1;

fn end() -> DaemonEnd {
    let sizes = Sizes { shared_bytes: BYTES, ..Sizes::default() };
    DaemonEnd::create(sizes).expect("memory").0
}

fn at(offset: u64) -> Spot {
    Spot { memory: 0, offset }
}

/// Which buffer a message gets, by its tag.
fn begin(posts: &mut Posts, connection: u32, length: u32) -> Option<(u32, u64)> {
    match Site::of(posts.begin(connection, length)?) {
        Site::Posted(number) => Some((number, posts.all[&number].tag)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_takes_the_first_that_it_fits() {
    let (end, mut posts) = (end(), Posts::default());
    let large = 100_000;
    for (tag, bytes, offset) in [(1, LEAST, 0), (2, large, 100_000), (3, large, 300_000)] {
        assert_eq!(posts.post(&end, 7, tag, (at(offset), bytes)), Ok(()));
    }
    assert_eq!(begin(&mut posts, 7, SMALL_MESSAGE_BYTES_MAX), None, "that is small");
    assert_eq!(begin(&mut posts, 8, large as u32), None, "of another connection");
    let (second, tag) = begin(&mut posts, 7, large as u32).expect("two are posted");
    assert_eq!((tag, posts.place(second)), (2, Some(at(100_000))));
    assert_eq!(begin(&mut posts, 7, LEAST as u32).map(|(_, tag)| tag), Some(1));
    assert_eq!(begin(&mut posts, 7, large as u32).map(|(_, tag)| tag), Some(3));
    assert_eq!(begin(&mut posts, 7, large as u32), None, "all are taken");
    assert_eq!(posts.end(second).map(|post| post.tag), Some(2));
    assert_eq!((posts.end(second), posts.place(second)), (None, None), "each has one end");
    assert_eq!(posts.audit(), Ok(()));
}

#[test]
fn those_that_wait_are_taken_back_the_first_first() {
    let (end, mut posts) = (end(), Posts::default());
    let bytes = LEAST.next_multiple_of(2);
    for (place, tag) in [5, 5, 6].into_iter().enumerate() {
        assert_eq!(posts.post(&end, 7, tag, (at(place as u64 * bytes), bytes)), Ok(()));
    }
    let taken = begin(&mut posts, 7, LEAST as u32).expect("posted").0;
    let start = |post: Option<Post>| post.map(|post| post.start.offset);
    assert_eq!(start(posts.cancel(7, 5)), Some(bytes), "the other one is taken");
    assert_eq!((posts.cancel(7, 5), posts.cancel(8, 6)), (None, None));
    assert_eq!(start(posts.end_waiting(7)), Some(2 * bytes));
    assert_eq!((posts.end_waiting(7), posts.use_memory(0)), (None, true));
    assert_eq!(posts.end(taken).map(|post| post.tag), Some(5));
    assert!(!posts.use_memory(0) && posts.connections().next().is_none());
    assert_eq!(posts.audit(), Ok(()));
}

#[test]
fn only_memory_that_is_there_and_free_is_posted() {
    let (end, mut posts) = (end(), Posts::default());
    let all = u64::from(BYTES);
    let mut post =
        |memory, offset, bytes| posts.post(&end, 7, 0, (Spot { memory, offset }, bytes)).err();
    assert_eq!(post(1, 0, LEAST), Some(Unposted::NoMemory));
    for bytes in [0, LEAST - 1, u64::from(MESSAGE_BYTES_MAX) + 1, 1 << 32 | LEAST, u64::MAX] {
        assert_eq!(post(0, 0, bytes), Some(Unposted::Size), "{bytes}");
    }
    for offset in [all - LEAST + 1, all, u64::MAX - LEAST, u64::MAX] {
        assert_eq!(post(0, offset, LEAST), Some(Unposted::OutOfBounds), "{offset}");
    }
    assert_eq!(post(0, 100_000, LEAST), None);
    for (offset, bytes) in [
        (100_000, LEAST),
        (100_000 - LEAST + 1, LEAST),
        (100_000 + LEAST - 1, LEAST),
        (50_000, 100_000),
    ] {
        assert_eq!(post(0, offset, bytes), Some(Unposted::Overlaps), "{bytes} at {offset}");
    }
    assert_eq!(post(0, 100_000 - LEAST, LEAST), None);
    assert_eq!(post(0, 100_000 + LEAST, LEAST), None);
    posts.forget(7);
    assert_eq!(posts.audit(), Ok(()));
    assert!(!posts.use_memory(0));
}

#[test]
fn no_more_are_posted_than_may_be() {
    let sizes = Sizes { shared_bytes: 256 << 20, ..Sizes::default() };
    let (end, _handover) = DaemonEnd::create(sizes).expect("memory");
    let mut posts = Posts::default();
    let post = |posts: &mut Posts, place: u32, connection| {
        posts.post(&end, connection, 0, (at(u64::from(place) * LEAST), LEAST))
    };
    for place in 0..POSTS_MAX {
        let connection = place / POSTS_PER_CONNECTION_MAX;
        assert_eq!(post(&mut posts, place, connection), Ok(()));
        if (place + 1).is_multiple_of(POSTS_PER_CONNECTION_MAX) {
            assert_eq!(post(&mut posts, place + 1, connection), Err(Unposted::TooMany));
        }
    }
    assert_eq!(post(&mut posts, POSTS_MAX, POSTS_MAX), Err(Unposted::TooMany));
    assert!(posts.end_waiting(0).is_some());
    assert_eq!(post(&mut posts, POSTS_MAX, 0), Ok(()));
    assert_eq!(posts.audit(), Ok(()));
}

#[test]
fn numbers_are_used_again_when_they_are_free() {
    let (end, mut posts) = (end(), Posts::default());
    posts.next = NUMBERS - 1;
    let two = [(0, at(0)), (1, at(50_000))];
    for (tag, start) in two {
        assert_eq!(posts.post(&end, 7, tag, (start, LEAST)), Ok(()));
    }
    posts.next = NUMBERS - 1;
    assert_eq!(posts.post(&end, 7, 2, (at(100_000), LEAST)), Ok(()));
    assert!(posts.all.keys().eq(&[0, 1, NUMBERS - 1]));
    let tags = [(); 3].map(|()| begin(&mut posts, 7, LEAST as u32).map(|(_, tag)| tag));
    assert_eq!(tags, [Some(0), Some(1), Some(2)], "in the order in which they were posted");
}

#[test]
fn what_was_saved_is_checked() {
    let (end, mut posts) = (end(), Posts::default());
    for (tag, offset) in [(1, 0), (2, 50_000)] {
        assert_eq!(posts.post(&end, 7, tag, (at(offset), LEAST)), Ok(()));
    }
    let (taken, _) = begin(&mut posts, 7, LEAST as u32).expect("posted");
    let saved = posts.save();
    let again = |saved: &[PostState]| Posts::restore(saved, &end);
    let mut restored = again(&saved).expect("just saved");
    assert_eq!(restored.save(), saved);
    for (number, connection, length) in
        [(taken + 1, 7, LEAST + 1), (taken, 8, LEAST), (taken + 2, 7, LEAST)]
    {
        assert!(restored.claim(number, connection, length as u32).is_err());
    }
    assert!(restored.claim(taken, 7, LEAST as u32).is_ok());
    assert!(restored.claim(taken, 7, LEAST as u32).is_err(), "twice");
    assert_eq!(begin(&mut restored, 7, LEAST as u32).map(|(_, tag)| tag), Some(2));
    assert_eq!(restored.post(&end, 7, 3, (at(100_000), LEAST)), Ok(()), "a number of its own");
    let wrong: [fn(&mut PostState); 5] = [
        |post| post.number = NUMBERS,
        |post| post.number += 1,
        |post| post.offset = 50_000,
        |post| post.memory = 3,
        |post| post.bytes = LEAST - 1,
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        let mut changed = saved.clone();
        change(&mut changed[0]);
        assert!(again(&changed).is_err(), "{index}");
    }
    let many = |count: u32| -> Vec<PostState> {
        let at = |number: u32| PostState { number, offset: u64::from(number) * LEAST, ..saved[0] };
        (0..count).map(at).collect()
    };
    assert!(again(&many(POSTS_PER_CONNECTION_MAX)).is_ok());
    assert!(again(&many(POSTS_PER_CONNECTION_MAX + 1)).is_err());
}
