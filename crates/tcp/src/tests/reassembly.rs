//! The receiving half against a byte array: segments of every place and length, in every order,
//! overlapping, some with other bytes than those that came first.

use proptest::prelude::*;

use super::world::Store;
use clearway_base::SlotId;

use crate::extent::Memory;
use crate::rcv::Receive;
use crate::{Extent, Settings};

const KEY: SlotId = SlotId { slot: 0, generation: 0 };
const SYN: u64 = (1 << 32) + 0xffff_ff00;

fn receive(receive_buffer_bytes: u32, scale: u8) -> Receive {
    let settings =
        Settings { receive_buffer_bytes, receive_buffer_bytes_max: 0, ..Settings::default() };
    Receive::new(SYN, settings.receive_buffer_bytes, &settings, scale)
}

/// What the peer means to send: the byte at a place says which place it is.
fn byte(at: u64) -> u8 {
    (at * 7 + at / 256) as u8
}

fn take_all(rcv: &mut Receive, store: &mut Store, received: &mut Vec<u8>) {
    while let Some(extent) = rcv.take() {
        received.extend(store.take(extent));
    }
}

proptest! {
    #[test]
    fn agrees_with_a_byte_array(
        segments in proptest::collection::vec((0..600u64, 0..120u64, any::<u8>()), 1..120),
        fin in proptest::option::of(200..400u64),
        buffer in 300..600u32,
    ) {
        let (mut rcv, mut store) = (receive(buffer, 0), Store::default());
        let first = SYN + 1;
        let limit = fin.unwrap_or(u64::MAX);
        let mut known = vec![None; 2000];
        let mut received = Vec::new();
        for (start, length, other) in segments {
            // A peer that is honest about where its stream ends, and not about its bytes.
            let end = (start + length).min(limit);
            let length = end.saturating_sub(start);
            let bytes: Vec<u8> = (start..start + length)
                .map(|at| if other < 64 { other } else { byte(at) })
                .collect();
            let has_fin = fin == Some(start + length);
            let edge = rcv.next() + rcv.window() - first;
            for (at, byte) in (start..).zip(&bytes).filter(|(at, _)| *at < edge) {
                known[at as usize].get_or_insert(*byte);
            }
            store.set_payload(&bytes);
            let before = rcv.next();
            let outcome = rcv.handle(KEY, first + start, length as u32, has_fin, &mut store);
            prop_assert_eq!(outcome.advanced, rcv.next() - before);
            take_all(&mut rcv, &mut store, &mut received);
            let expected: Vec<u8> = known.iter().map_while(|byte| *byte).collect();
            prop_assert_eq!(&received, &expected);
            let in_order = expected.len() as u64;
            let ahead = (in_order..edge).filter(|at| known[*at as usize].is_some()).count();
            prop_assert_eq!(rcv.ahead_bytes(), ahead as u64);
            for block in rcv.blocks() {
                prop_assert!(block.start > rcv.next());
                prop_assert!(block.clone().all(|at| known[(at - first) as usize].is_some()));
            }
            if rcv.is_finished() {
                prop_assert_eq!(Some(received.len() as u64), fin);
            }
        }
        rcv.drain(|extent| store.discard(KEY, extent));
        prop_assert!(store.is_empty());
    }
}

/// All 120 orders in which five segments can come.
#[test]
fn every_order_of_five_segments() {
    for number in 0..120 {
        let order = order(number);
        let (mut rcv, mut store) = (receive(1000, 0), Store::default());
        for (count, segment) in order.iter().enumerate() {
            let range = segment * 10..segment * 10 + 10;
            store.set_payload(&range.clone().map(byte).collect::<Vec<u8>>());
            rcv.handle(KEY, SYN + 1 + range.start, 10, *segment == 4, &mut store);
            // What is in order is what begins the stream without a hole.
            let arrived = &order[..=count];
            let in_order = (0..5).take_while(|segment| arrived.contains(segment)).count() as u64;
            let fin = u64::from(in_order == 5);
            assert_eq!(rcv.next(), SYN + 1 + 10 * in_order + fin, "{order:?}");
        }
        assert!(rcv.is_finished(), "{order:?}");
        let mut received = Vec::new();
        take_all(&mut rcv, &mut store, &mut received);
        assert!(received.iter().copied().eq((0..50).map(byte)), "{order:?}");
    }
}

/// The permutation of 0 to 4 with this number.
fn order(mut number: usize) -> Vec<u64> {
    let mut rest: Vec<u64> = (0..5).collect();
    let take = |count: usize| {
        let next = rest.remove(number % count);
        number /= count;
        next
    };
    (1..=5).rev().map(take).collect()
}

/// An attacker's holes: memory is bounded by pieces, not by bytes alone.
#[test]
fn an_out_of_order_flood_of_single_bytes_is_bounded() {
    let buffer = 1 << 20;
    let (mut rcv, mut store) = (receive(buffer, 5), Store::default());
    rcv.offer(1460);
    for at in 0..400_000u64 {
        store.set_payload(&[1]);
        rcv.handle(KEY, SYN + 3 + 2 * at, 1, false, &mut store);
    }
    assert!(store.kept <= 64 + buffer / 512 + 1, "{}", store.kept);
    assert!(rcv.blocks().count() <= 4);
    // What was refused counts as never received: the stream goes on when it comes again.
    store.set_payload(&vec![2; 1000]);
    let outcome = rcv.handle(KEY, SYN + 1, 1000, false, &mut store);
    assert!(outcome.advanced >= 1000);
}

/// How much is out of order is asked with each segment that comes, and does not take longer the
/// more holes an attacker has made.
#[test]
fn what_is_out_of_order_is_not_counted_again() {
    let asked_ns = |holes: u64| {
        let (mut rcv, mut store) = (receive(8 << 20, 8), Store::default());
        rcv.offer(1460);
        for at in 0..holes {
            store.set_payload(&[1]);
            rcv.handle(KEY, SYN + 3 + 2 * at, 1, false, &mut store);
        }
        let run = |_| {
            let begun = std::time::Instant::now();
            assert!((0..1000).all(|_| std::hint::black_box(&rcv).ahead_bytes() == holes));
            begun.elapsed().as_nanos()
        };
        (0..5).map(run).min().expect("five")
    };
    let (few_ns, many_ns) = (asked_ns(10), asked_ns(10_000));
    assert!(many_ns < 50 * few_ns.max(1000), "{many_ns} ns and not {few_ns} ns");
}

/// The owner of the memory may be out of it at any time.
#[test]
fn without_room_nothing_is_acknowledged() {
    struct None_;
    impl Memory for None_ {
        fn keep(&mut self, _: SlotId, _: u64, _: core::ops::Range<u32>) -> Option<Extent> {
            None
        }
        fn discard(&mut self, _: SlotId, _: Extent) {}
    }
    let mut rcv = receive(1000, 0);
    for start in [0, 100] {
        let outcome = rcv.handle(KEY, SYN + 1 + start, 100, false, &mut None_);
        assert_eq!((outcome.advanced, outcome.is_urgent), (0, true));
    }
    assert_eq!((rcv.next(), rcv.blocks().count()), (SYN + 1, 0));
}
