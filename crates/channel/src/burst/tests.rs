use proptest::prelude::*;

use super::*;

/// Packs frames of these lengths as an app does.
fn pack(lengths: &[u32]) -> (Vec<u8>, u16) {
    let capacity: u32 = lengths.iter().map(|&length| packed_bytes(length)).sum();
    let mut bytes = vec![0xaa; capacity as usize];
    let mut filling = Filling::default();
    for (index, &length) in lengths.iter().enumerate() {
        filling.append(&mut bytes, length).expect("it fits").fill(index as u8);
    }
    assert_eq!(filling.used_bytes(), capacity);
    (bytes, filling.count())
}

/// Walks a burst at `offset` 64 of a pool as the daemon does.
fn walk(bytes: &[u8], count: u16) -> Result<Vec<SentFrame>, Violation> {
    walk_by(bytes, count, bytes.len())
}

/// The same by copies of up to `bytes_max` bytes.
fn walk_by(bytes: &[u8], count: u16, bytes_max: usize) -> Result<Vec<SentFrame>, Violation> {
    let mut burst = SentBurst::new(64, bytes.len() as u32, count);
    let mut frames = Vec::new();
    loop {
        let (start, before) = (burst.offset(), frames.len());
        let at = start as usize - 64;
        let copy = &bytes[at..][..bytes_max.min(burst.length() as usize)];
        while let Some(frame) = burst.next_copied(copy, start)? {
            let end = frame.offset + frame.length;
            assert!(end - start <= copy.len() as u32, "the copy has all of the frame");
            frames.push(frame);
        }
        if burst.frames_left() == 0 {
            return Ok(frames);
        }
        assert!(frames.len() > before, "a copy that has room for the largest frame brings one");
    }
}

fn lengths() -> impl Strategy<Value = Vec<u32>> {
    let length = prop_oneof![14..100u32, Just(1514), Just(FRAME_BYTES_MAX)];
    let count_max = if cfg!(miri) { 4 } else { usize::from(BURST_FRAMES_MAX) };
    proptest::collection::vec(length, 1..=count_max)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_was_packed_is_found_again(lengths in lengths()) {
        let (bytes, count) = pack(&lengths);
        let walked = walk(&bytes, count).unwrap();
        let part_bytes = packed_bytes(FRAME_BYTES_MAX) as usize;
        prop_assert_eq!(&walk_by(&bytes, count, part_bytes).unwrap(), &walked);
        let read: Vec<_> = ReceivedBurst::new(&bytes, count).collect();
        prop_assert_eq!(walked.len(), lengths.len());
        prop_assert_eq!(read.len(), lengths.len());
        let whole = SentBurst::new(64, bytes.len() as u32, count);
        let mut walking = whole;
        for (index, &frame) in walked.iter().enumerate() {
            prop_assert_eq!(walking.next_copied(&bytes, 64).unwrap(), Some(frame));
            prop_assert_eq!(whole.past(index as u16 + 1, frame), walking);
        }
        let mut reading = ReceivedBurst::new(&bytes, count);
        for left in (0..=lengths.len()).rev() {
            prop_assert_eq!(reading.size_hint(), (0, Some(left)));
            prop_assert_eq!(reading.next().is_some(), left > 0);
        }
        for (index, &length) in lengths.iter().enumerate() {
            let (sent, received) = (walked[index], read[index]);
            prop_assert_eq!((sent.length, received.bytes.len()), (length, length as usize));
            prop_assert_eq!(&bytes[sent.offset as usize - 64..][..length as usize], received.bytes);
            prop_assert!(received.bytes.iter().all(|&byte| byte == index as u8));
        }
    }

    #[test]
    fn any_bytes_give_frames_inside_or_a_violation(
        lengths in lengths(),
        count in 0..40u16,
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in 0..40usize,
    ) {
        let mut bytes = pack(&lengths).0;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at % 64) {
                *byte = value;
            }
        }
        let end = 64 + bytes.len() as u32;
        if let Ok(frames) = walk(&bytes, count) {
            prop_assert_eq!(frames.len(), usize::from(count));
            for frame in frames {
                prop_assert!(is_frame_length(frame.length));
                prop_assert!(frame.offset >= 80 && frame.offset + frame.length <= end);
            }
            prop_assert!(ReceivedBurst::new(&bytes, count).is_whole());
        }
    }
}

#[test]
fn each_lie_about_a_frame_has_its_name() {
    let (bytes, _) = pack(&[60, 64]);
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        walk(&bytes, 2).unwrap_err()
    };
    assert_eq!(changed(0, 13), Violation::FrameLength(13));
    assert_eq!(changed(2, 1), Violation::FrameHeader);
    assert_eq!(changed(4, 1), Violation::FrameHeader);
    assert_eq!(changed(15, 1), Violation::FrameHeader);
    assert_eq!(changed(1, 0xff), Violation::BurstLength, "the first frame ends behind the burst");
    assert_eq!(changed(80, 65), Violation::BurstLength, "the second frame does");
    assert_eq!(changed(80, 56), Violation::BurstLength, "and here before its end");
    let mut only_header = bytes[..16].to_vec();
    assert_eq!(walk(&only_header, 1), Err(Violation::BurstLength), "there are no bytes of it");
    only_header[0] = 13;
    assert_eq!(walk(&only_header, 1), Err(Violation::FrameLength(13)), "the whole header is read");
    assert_eq!(walk(&bytes, 1), Err(Violation::BurstLength));
    assert_eq!(walk(&bytes, 3), Err(Violation::BurstLength));
    assert_eq!(walk(&bytes[..8], 1), Err(Violation::BurstLength));
    assert_eq!(walk(&bytes[..72], 1), Err(Violation::BurstLength));
}

#[test]
fn a_damaged_burst_of_the_daemon_is_noticed() {
    let (bytes, count) = pack(&[60, 64]);
    assert!(ReceivedBurst::new(&bytes, count).is_whole());
    assert!(!ReceivedBurst::new(&bytes, 1).is_whole());
    assert!(!ReceivedBurst::new(&bytes, 3).is_whole());
    assert!(!ReceivedBurst::new(&bytes[..bytes.len() - 1], count).is_whole());
    assert_eq!(ReceivedBurst::new(&bytes[..70], 2).count(), 0);
}

#[test]
fn a_burst_is_full_by_bytes_or_by_frames() {
    let mut bytes = vec![0; 64 * 80];
    let mut filling = Filling::default();
    assert!(filling.append(&mut bytes[..79], 64).is_none());
    for _ in 0..BURST_FRAMES_MAX {
        assert!(!filling.is_full());
        assert!(filling.append(&mut bytes, 64).is_some());
    }
    assert!(filling.is_full());
    assert!(!filling.has_room(14, bytes.len() as u32));
    assert!(filling.append(&mut bytes, 14).is_none());
    assert_eq!((filling.count(), filling.used_bytes()), (BURST_FRAMES_MAX, 32 * 80));
}

#[test]
#[should_panic(expected = "a frame of 13 bytes")]
fn a_frame_without_a_header_is_not_packed() {
    Filling::default().append(&mut [0; 64], 13);
}

#[test]
fn what_a_capture_says_survives_the_header() {
    let plain = FrameInfo::received(7);
    assert_eq!((plain.time_ns, plain.point(), plain.channel()), (7, Point::Wire, None));
    for point in [Point::Wire, Point::Delivered, Point::Refused] {
        for channel in [None, Some(0), Some(5000)] {
            let reason = channel.map(|_| FrameRefusal::ToKernel);
            let info = FrameInfo::captured(9, point == Point::Refused, point, channel, reason);
            let (length, back) = FrameInfo::of_words(info.words(60));
            assert_eq!((length, back), (60, info));
            assert_eq!(back.is_outgoing(), point == Point::Refused);
            assert_eq!((back.point(), back.channel(), back.reason()), (point, channel, reason));
        }
    }
}
