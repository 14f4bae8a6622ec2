//! The daemon's books of the receive pool: who has which buffer. Never in shared memory.

use clearway_base::state::Invalid;

use super::BufferState;
use crate::pool::{self, Pool};

/// A piece of the receive pool. The id of a buffer is its offset in units of 64 bytes, so that
/// every id the app can name is an index into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Names it in `Received` and `Release`.
    pub id: u32,
    /// Where it starts in the receive pool.
    pub offset: u32,
    /// Bytes asked for.
    pub length: u32,
}

/// A buffer that the app gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// As told to `allocate`.
    pub owner: u32,
    /// As told to `allocate`.
    pub length: u32,
}

impl Buffer {
    /// Where its byte `at` is in the receive pool.
    #[inline]
    pub(super) const fn at(&self, at: u32) -> usize {
        (self.offset + at) as usize
    }

    /// Panics if `length` bytes at `at` do not fit.
    #[inline]
    pub(super) fn check(&self, at: u32, length: usize) {
        assert!(
            u64::from(at) + length as u64 <= u64::from(self.length),
            "{length} bytes at {at} do not fit in a buffer of {}",
            self.length
        );
    }
}

const UNIT_BYTES_LOG2: u32 = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// The engine is filling it.
    Held,
    /// The app reads it.
    Granted,
}

#[derive(Clone, Copy)]
struct Book {
    owner: u32,
    length: u32,
    state: State,
}

pub(super) struct Buffers {
    pool: Pool,
    books: Box<[Book]>,
}

impl Buffers {
    pub(super) fn new(pool_bytes: u32) -> Self {
        Self::of(Pool::new(pool_bytes), pool_bytes)
    }

    fn of(pool: Pool, pool_bytes: u32) -> Self {
        let book = Book { owner: 0, length: 0, state: State::Free };
        Self { pool, books: vec![book; (pool_bytes >> UNIT_BYTES_LOG2) as usize].into() }
    }

    pub(super) fn save(&self) -> Vec<BufferState> {
        let in_use = self.in_use().map(|(id, book)| BufferState {
            offset: id << UNIT_BYTES_LOG2,
            length: book.length,
            owner: book.owner,
            is_granted: book.state == State::Granted,
        });
        in_use.collect()
    }

    pub(super) fn restore(pool_bytes: u32, saved: &[BufferState]) -> Result<Self, Invalid> {
        let pieces = saved.iter().map(|buffer| (buffer.offset, buffer.length));
        let mut buffers = Self::of(Pool::restore(pool_bytes, pieces)?, pool_bytes);
        for &BufferState { offset, length, owner, is_granted } in saved {
            let state = if is_granted { State::Granted } else { State::Held };
            buffers.books[(offset >> UNIT_BYTES_LOG2) as usize] = Book { owner, length, state };
        }
        Ok(buffers)
    }

    /// The buffers that the app has not been granted.
    pub(super) fn held(&self) -> impl Iterator<Item = Buffer> + '_ {
        let held = self.in_use().filter(|(_, book)| book.state == State::Held);
        held.map(|(id, book)| Buffer { id, offset: id << UNIT_BYTES_LOG2, length: book.length })
    }

    /// Low offsets are given out first: the books of the rest of the pool are not looked at when
    /// all that is in use has been found.
    fn in_use(&self) -> impl Iterator<Item = (u32, &Book)> {
        let mut unseen_bytes = self.pool.used_bytes();
        let looked_at = (0..).zip(&self.books).take_while(move |(_, book)| {
            let goes_on = unseen_bytes > 0;
            if goes_on && book.state != State::Free {
                unseen_bytes -= pool::piece_bytes(book.length);
            }
            goes_on
        });
        looked_at.filter(|(_, book)| book.state != State::Free)
    }

    #[inline]
    pub(super) fn allocate(&mut self, length: u32, owner: u32) -> Option<Buffer> {
        let offset = self.pool.allocate(length)?;
        let id = offset >> UNIT_BYTES_LOG2;
        self.books[id as usize] = Book { owner, length, state: State::Held };
        Some(Buffer { id, offset, length })
    }

    pub(super) fn has_room(&mut self, length: u32) -> bool {
        let found = self.pool.allocate(length);
        found.is_some_and(|offset| self.pool.free(offset).is_ok())
    }

    #[inline]
    pub(super) fn grant(&mut self, id: u32) {
        let book = &mut self.books[id as usize];
        assert!(book.state == State::Held, "buffer {id} is not the engine's to grant");
        book.state = State::Granted;
    }

    #[inline]
    pub(super) fn release(&mut self, id: u32) -> Option<Released> {
        let book = self.books.get_mut(id as usize)?;
        if book.state != State::Granted {
            return None;
        }
        book.state = State::Free;
        let Book { owner, length, .. } = *book;
        self.free(id);
        Some(Released { owner, length })
    }

    pub(super) fn discard(&mut self, id: u32) {
        let state = &mut self.books[id as usize].state;
        assert!(*state == State::Held, "buffer {id} is not the engine's to discard");
        *state = State::Free;
        self.free(id);
    }

    pub(super) fn used_bytes(&self) -> u32 {
        self.pool.used_bytes()
    }

    /// Gives memory back of which the book says so already.
    #[inline]
    fn free(&mut self, id: u32) {
        self.pool.free(id << UNIT_BYTES_LOG2).expect("the books and the pool agree");
    }
}
