use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const POOL_BYTES: u32 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    /// Frees the n-th of those in use.
    Free(usize),
    /// Frees an offset that may not be in use.
    FreeAny(u32),
    /// Makes the pool again from what is in use.
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u32..400).prop_map(Step::Allocate),
        2 => (0u32..20_000).prop_map(Step::Allocate),
        1 => (0u32..400_000).prop_map(Step::Allocate),
        5 => any::<usize>().prop_map(Step::Free),
        1 => any::<u32>().prop_map(Step::FreeAny),
        1 => (0..POOL_BYTES).prop_map(|offset| Step::FreeAny(offset & !63)),
        1 => Just(Step::Restore),
    ]
}

/// The oracle: what is in use, as a map from start to length.
#[derive(Default)]
struct Oracle(BTreeMap<u32, u32>);

impl Oracle {
    fn insert(&mut self, offset: u32, length: u32) {
        assert!(offset + length <= POOL_BYTES);
        if let Some((&start, &other)) = self.0.range(..=offset).next_back() {
            assert!(start + other <= offset, "overlap with {start}+{other} at {offset}");
            assert_ne!(start, offset);
        }
        if let Some((&start, _)) = self.0.range(offset..).next() {
            assert!(offset + length <= start, "overlap with {start} at {offset}+{length}");
        }
        self.0.insert(offset, length);
    }

    fn nth(&self, index: usize) -> Option<u32> {
        (!self.0.is_empty()).then(|| *self.0.keys().nth(index % self.0.len()).unwrap())
    }
}

/// What the pool's books say of themselves: of each size at most one slab is empty, and is the
/// first, so that whoever needs room finds it; every slab with a free cell is in the list of its
/// size, and no other.
fn audit(pool: &Pool) {
    for class in 0..CLASSES {
        let slabs = pool.slabs.iter().filter(|slab| slab.cell_bytes_log2 != 0);
        let of_class = slabs.filter(|slab| class_of(slab.cell_bytes_log2.into()) == class);
        let with_room = of_class.filter(|slab| !slab.is_full()).count();
        let (mut index, mut previous, mut found) = (pool.partial[class], NONE, 0);
        while index != NONE {
            let slab = &pool.slabs[index as usize];
            assert_eq!((slab.previous, class_of(slab.cell_bytes_log2.into())), (previous, class));
            assert!(!slab.is_full(), "a full slab is in the list");
            assert!(slab.cells_used > 0 || previous == NONE, "an empty slab is not the first");
            (previous, index, found) = (index, slab.next, found + 1);
        }
        assert_eq!(found, with_room, "slabs with free cells and slabs in the list");
    }
    let cells: u32 = pool
        .slabs
        .iter()
        .filter(|slab| slab.cell_bytes_log2 != 0)
        .map(|slab| u32::from(slab.cells_used) << slab.cell_bytes_log2)
        .sum();
    let kept: u32 = (0..CLASSES)
        .map(|class| pool.kept[class].count << (class as u32 + CELL_BYTES_LOG2_MIN))
        .sum();
    assert!(cells - kept <= pool.used_bytes() && pool.used_bytes() <= pool.bytes());
}

/// The next of a size costs nothing but a cell: a slab is cut once, not for each message.
#[test]
fn a_size_keeps_one_slab_until_others_need_it() {
    let mut pool = Pool::new(1 << 17);
    assert_eq!(pool.bytes(), 1 << 17);
    let small = pool.allocate(64).unwrap();
    let cut = pool.partial[0];
    pool.free(small).unwrap();
    assert_eq!(pool.partial[0], cut, "kept");
    assert_eq!(pool.allocate(64), Some(small));
    pool.free(small).unwrap();
    assert_eq!(pool.allocate(1 << 17), Some(0), "given back");
    assert_eq!(pool.partial[0], NONE);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn pieces_never_overlap_and_everything_joins_again(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 50 } else { 600 }),
    ) {
        let mut pool = Pool::new(POOL_BYTES);
        let mut oracle = Oracle::default();
        for step in steps {
            match step {
                Step::Allocate(length) => {
                    if let Some(offset) = pool.allocate(length) {
                        oracle.insert(offset, length.max(1));
                    }
                }
                Step::Free(index) => {
                    if let Some(offset) = oracle.nth(index) {
                        oracle.0.remove(&offset);
                        prop_assert_eq!(pool.free(offset), Ok(()));
                        prop_assert_eq!(pool.free(offset), Err(NotAllocated(offset)));
                    }
                }
                Step::FreeAny(offset) => {
                    prop_assert_eq!(pool.free(offset).is_ok(), oracle.0.remove(&offset).is_some());
                }
                Step::Restore => {
                    let pieces = oracle.0.iter().map(|(offset, length)| (*offset, *length));
                    let restored = Pool::restore(POOL_BYTES, pieces).expect("they are in use");
                    prop_assert_eq!(restored.used_bytes(), pool.used_bytes());
                    pool = restored;
                }
            }
            audit(&pool);
        }
        for (offset, _) in oracle.0 {
            prop_assert_eq!(pool.free(offset), Ok(()));
        }
        prop_assert_eq!(pool.used_bytes(), 0);
        prop_assert_eq!(pool.allocate(POOL_BYTES), Some(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 2000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Pieces that no pool gave out are refused, or are such as it could have.
    #[test]
    fn any_pieces_are_refused_or_do_not_overlap(
        pieces in proptest::collection::vec(
            (0..=POOL_BYTES >> 13, prop_oneof![0u32..10_000, 0u32..200_000, any::<u32>()], 0u32..9)
                .prop_map(|(page, length, cell)| (page * 8192 + cell * 32, length)),
            0..8,
        ),
    ) {
        if let Ok(mut pool) = Pool::restore(POOL_BYTES, pieces.iter().copied()) {
            audit(&pool);
            let mut oracle = Oracle::default();
            for (offset, length) in &pieces {
                oracle.insert(*offset, (*length).max(1));
            }
            while let Some(offset) = pool.allocate(1000) {
                oracle.insert(offset, 1000);
            }
            audit(&pool);
            for offset in oracle.0.into_keys() {
                prop_assert_eq!(pool.free(offset), Ok(()));
            }
            prop_assert_eq!(pool.allocate(POOL_BYTES), Some(0));
        }
    }
}

#[test]
fn a_full_pool_says_so_and_recovers() {
    for length in [0, 64, 65, 1000, 8192, 8193, 40_000] {
        let mut pool = Pool::new(POOL_BYTES);
        let mut offsets = Vec::new();
        while let Some(offset) = pool.allocate(length) {
            offsets.push(offset);
        }
        let piece = length.next_power_of_two().max(64);
        let piece = if piece > 8192 { piece.max(16384) } else { piece };
        assert_eq!(offsets.len() as u32, POOL_BYTES / piece);
        assert_eq!(pool.used_bytes(), POOL_BYTES);
        let freed = offsets.swap_remove(offsets.len() / 2);
        pool.free(freed).unwrap();
        assert_eq!(pool.allocate(length), Some(freed));
    }
}

#[test]
fn the_last_freed_is_the_next_used() {
    let mut pool = Pool::new(POOL_BYTES);
    let offsets: Vec<u32> = (0..10).map(|_| pool.allocate(64).unwrap()).collect();
    pool.free(offsets[3]).unwrap();
    pool.free(offsets[7]).unwrap();
    assert_eq!(pool.allocate(10), Some(offsets[7]));
    assert_eq!(pool.allocate(10), Some(offsets[3]));
}

/// What is kept for the next of its size is in nobody's way who needs the room.
#[test]
fn more_is_freed_than_is_kept_and_both_go_back_to_whom_they_were_cut_from() {
    let mut pool = Pool::new(POOL_BYTES);
    for length in [64, 1024, 8192] {
        let offsets: Vec<u32> = (0..100).map(|_| pool.allocate(length).unwrap()).collect();
        offsets.iter().for_each(|offset| pool.free(*offset).unwrap());
        assert_eq!(pool.kept[class_of(cell_bytes_log2(length))].count as usize, KEPT_MAX);
        assert_eq!((pool.used_bytes(), pool.free(offsets[0])), (0, Err(NotAllocated(offsets[0]))));
        assert_eq!(pool.allocate(length), Some(offsets[KEPT_MAX - 1]));
        pool.free(offsets[KEPT_MAX - 1]).unwrap();
        audit(&pool);
    }
    assert_eq!(pool.allocate(POOL_BYTES), Some(0));
}

#[test]
fn impossible_requests_are_refused() {
    let mut pool = Pool::new(1 << 16);
    assert_eq!(pool.allocate(u32::MAX), None);
    assert_eq!(pool.allocate((1 << 16) + 1), None);
    assert_eq!(pool.free(u32::MAX), Err(NotAllocated(u32::MAX)));
    assert_eq!(pool.allocate(1 << 16), Some(0));
    assert_eq!(pool.allocate(0), None);
}

#[test]
fn a_stale_offset_inside_a_recut_slab_is_not_allocated() {
    let mut pool = Pool::new(1 << 16);
    let small = (0..3).map(|_| pool.allocate(64).unwrap()).last().unwrap();
    for offset in [0, 64, 128] {
        pool.free(offset).unwrap();
    }
    assert_eq!(pool.allocate(8192), Some(0));
    assert_eq!(pool.free(small), Err(NotAllocated(small)));
}
