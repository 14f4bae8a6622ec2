//! A table as apps have it: entries with a key each, which point to records. It is what operations
//! read in an app's shared memory, and what calls for the same ask a server for.
//!
//! ```text
//!  0          64                       4096
//!  ├ a word ──┼ 64 entries of 16 B ────┼ 64 records of 64 B, and bytes for long reads ─┤
//!               key | pointer ────────▶ its index, ...
//! ```
//!
//! Behind the records there are handles of regions, if there are many, in the place of those bytes.

use super::operations::REGIONS;
use clearway_client::{Pointer, Shared};
use std::io;

/// A word that many change.
pub(super) const WORD_AT: u64 = 0;
/// The first entry.
pub(super) const ENTRIES_AT: u64 = 64;
/// From one entry to the next: a key and a pointer, a word each.
pub(super) const ENTRY_BYTES: u16 = 16;
const RECORDS_AT: u64 = 4096;
/// Bytes of a record, which begins with its index.
pub(crate) const RECORD_BYTES: u32 = 64;
/// Entries, and as many records.
pub(super) const RECORDS: u64 = 64;

/// Bytes of an app's memory that has the table, and in which `size` bytes can be read from each
/// record on.
pub(crate) fn shared_bytes(size: usize) -> u32 {
    let bytes = handle_at(REGIONS).max(record_at(RECORDS) + size as u64);
    u32::try_from(bytes.next_power_of_two()).expect("a message is not as large")
}

/// Which record the exchange with this number is about.
pub(super) const fn index_of(sequence: u64) -> u64 {
    sequence % RECORDS
}

/// What an index is looked for by.
pub(super) const fn key_of(index: u64) -> u64 {
    index + 1
}

pub(super) const fn record_at(index: u64) -> u64 {
    RECORDS_AT + index * RECORD_BYTES as u64
}

pub(super) const fn pointer_at(index: u64) -> u64 {
    ENTRIES_AT + index * ENTRY_BYTES as u64 + 8
}

/// Where the handle of a region is.
pub(super) const fn handle_at(number: u64) -> u64 {
    record_at(RECORDS) + 8 * number
}

/// Writes a word.
pub(super) fn store(shared: &Shared, at: u64, value: u64) -> io::Result<()> {
    match shared.store(at, value) {
        true => Ok(()),
        false => Err(io::Error::other("the shared memory is too small")),
    }
}

/// Writes the table.
pub(super) fn fill(shared: &Shared) -> io::Result<()> {
    let store = |at, value| store(shared, at, value);
    for index in 0..RECORDS {
        let pointer = Pointer { offset: record_at(index), length: RECORD_BYTES };
        store(pointer_at(index) - 8, key_of(index))?;
        store(pointer_at(index), pointer.to_word().expect("a small table"))?;
        store(record_at(index), index)?;
    }
    Ok(())
}

/// Fails unless `bytes` are so many, and begin with this number.
pub(super) fn check(bytes: &[u8], length: usize, number: u64) -> io::Result<()> {
    if bytes.len() == length && bytes.starts_with(&number.to_ne_bytes()) {
        return Ok(());
    }
    Err(io::Error::other(format!("got {} bytes that are not those of {number}", bytes.len())))
}
