//! Blocks of pages whose sizes are powers of two; two free halves of a block join at once.

/// Log2 of the bytes of a page: the smallest block.
pub(super) const PAGE_BYTES_LOG2: u32 = 14;
/// Blocks are of orders 0 (one page) to 17 (2 GiB).
const ORDERS: usize = 18;
const NONE: u32 = u32::MAX;

/// What is known about the block that starts at a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No block starts here.
    Inside,
    Free(u8),
    Used(u8),
}

pub(super) struct Buddies {
    /// Per order, the first free block.
    first: [u32; ORDERS],
    /// Bit n: there is a free block of order n.
    free_orders: u32,
    pages: Box<[Page]>,
}

#[derive(Clone, Copy)]
struct Page {
    /// Neighbours in the list of free blocks of the same order.
    previous: u32,
    next: u32,
    state: State,
}

/// The order of the smallest block of at least `length` bytes.
pub(super) fn order_of(length: u32) -> Option<u8> {
    let bits = length.checked_next_power_of_two()?.trailing_zeros();
    Some(bits.saturating_sub(PAGE_BYTES_LOG2) as u8)
}

impl Buddies {
    /// One free block of `bytes`, a power of two.
    pub(super) fn new(bytes: u32) -> Self {
        let page = Page { previous: NONE, next: NONE, state: State::Inside };
        let mut buddies = Self {
            first: [NONE; ORDERS],
            free_orders: 0,
            pages: vec![page; (bytes >> PAGE_BYTES_LOG2) as usize].into(),
        };
        buddies.insert(0, (bytes.trailing_zeros() - PAGE_BYTES_LOG2) as u8);
        buddies
    }

    /// The offset of a block, cut from the smallest that is large enough.
    pub(super) fn allocate(&mut self, order: u8) -> Option<u32> {
        let large_enough = self.free_orders & u32::MAX.checked_shl(order.into())?;
        if large_enough == 0 {
            return None;
        }
        let mut found = large_enough.trailing_zeros() as u8;
        let page = self.first[usize::from(found)];
        self.remove(page, found);
        while found > order {
            found -= 1;
            self.insert(page + (1 << found), found);
        }
        self.pages[page as usize].state = State::Used(order);
        Some(page << PAGE_BYTES_LOG2)
    }

    /// Takes a block back and returns its order; `None` if none in use starts at `offset`.
    pub(super) fn free(&mut self, offset: u32) -> Option<u8> {
        let mut page = offset >> PAGE_BYTES_LOG2;
        let State::Used(order) = self.pages[page as usize].state else { return None };
        if page << PAGE_BYTES_LOG2 != offset {
            return None;
        }
        let mut joined = order;
        loop {
            self.pages[page as usize].state = State::Inside;
            let buddy = page ^ (1 << joined);
            match self.pages.get(buddy as usize) {
                Some(other) if other.state == State::Free(joined) => {}
                _ => break,
            }
            self.remove(buddy, joined);
            page &= buddy;
            joined += 1;
        }
        self.insert(page, joined);
        Some(order)
    }

    /// Takes the block of this order at `offset`, cut from the one that it is in. False if it is
    /// not free, or no block.
    pub(super) fn claim(&mut self, offset: u32, order: u8) -> bool {
        let page = offset >> PAGE_BYTES_LOG2;
        let is_block = page << PAGE_BYTES_LOG2 == offset
            && usize::from(order) < ORDERS
            && page.is_multiple_of(1 << order);
        let start = |found: u8| page & !((1 << found) - 1);
        let is_free = |found: &u8| {
            let page = self.pages.get(start(*found) as usize);
            page.is_some_and(|page| page.state == State::Free(*found))
        };
        let Some(mut found) = (order..ORDERS as u8).find(is_free).filter(|_| is_block) else {
            return false;
        };
        self.remove(start(found), found);
        while found > order {
            found -= 1;
            self.insert(start(found) ^ (1 << found), found);
        }
        self.pages[page as usize].state = State::Used(order);
        true
    }

    fn insert(&mut self, page: u32, order: u8) {
        let next = core::mem::replace(&mut self.first[usize::from(order)], page);
        self.pages[page as usize] = Page { previous: NONE, next, state: State::Free(order) };
        if next != NONE {
            self.pages[next as usize].previous = page;
        }
        self.free_orders |= 1 << order;
    }

    fn remove(&mut self, page: u32, order: u8) {
        let Page { previous, next, .. } = self.pages[page as usize];
        match previous {
            NONE => self.first[usize::from(order)] = next,
            _ => self.pages[previous as usize].next = next,
        }
        if next != NONE {
            self.pages[next as usize].previous = previous;
        }
        if self.first[usize::from(order)] == NONE {
            self.free_orders &= !(1 << order);
        }
        self.pages[page as usize].state = State::Inside;
    }
}
