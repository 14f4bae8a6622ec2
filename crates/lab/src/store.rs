//! The memory that payload is in: pieces, each named by its number.

use std::collections::HashMap;
use std::ops::Range;

use clearway_base::SlotId;
use clearway_tcp::{Extent, Memory, Owner, Socket};

use crate::notices::Note;

/// All pieces, sent and received, and which sockets something has changed for.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pieces: HashMap<u32, Piece>,
    next: u32,
    /// The payload of the segment at hand.
    payload: Vec<u8>,
    pub(crate) changed: Vec<Socket>,
    /// Of pieces that are not wanted any more.
    pub(crate) notes_done: Vec<Note>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    /// Its writer has said that more will follow at once (MSG_MORE).
    has_more: bool,
    /// What its writer is to be told of it.
    note: Option<Note>,
}

impl Store {
    /// A piece with these bytes.
    pub(crate) fn fill(&mut self, bytes: &[u8], has_more: bool) -> Extent {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.pieces.contains_key(&self.next) {
                break;
            }
        }
        self.pieces.insert(self.next, Piece { bytes: bytes.to_vec(), has_more, note: None });
        Extent { region: self.next, offset: 0, length: bytes.len() as u32 }
    }

    pub(crate) fn read(&self, extent: Extent) -> &[u8] {
        let range = extent.offset as usize..(extent.offset + extent.length) as usize;
        self.pieces.get(&extent.region).and_then(|piece| piece.bytes.get(range)).unwrap_or(&[])
    }

    /// Whether what ends with `extent` is to be given to its reader at once: where a write ends,
    /// unless more was to follow. `None` elsewhere.
    pub(crate) fn push_at(&self, extent: Extent) -> Option<bool> {
        let piece = self.pieces.get(&extent.region)?;
        let is_end = piece.bytes.len() == (extent.offset + extent.length) as usize;
        is_end.then_some(!piece.has_more)
    }

    /// `extent` is not wanted any more. A piece is gone with its last byte: they go in order.
    pub(crate) fn free(&mut self, extent: Extent) {
        let end = (extent.offset + extent.length) as usize;
        if self.pieces.get(&extent.region).is_some_and(|piece| piece.bytes.len() <= end) {
            let piece = self.pieces.remove(&extent.region);
            self.notes_done.extend(piece.and_then(|piece| piece.note));
        }
    }

    /// What is to be told of the piece of `extent`.
    pub(crate) fn set_note(&mut self, extent: Extent, note: Option<Note>) {
        if let Some(piece) = self.pieces.get_mut(&extent.region) {
            piece.note = note;
        }
    }

    /// The same, if the piece ends with `extent`.
    pub(crate) fn note_mut(&mut self, extent: Extent) -> Option<&mut Note> {
        let piece = self.pieces.get_mut(&extent.region)?;
        let is_end = piece.bytes.len() == (extent.offset + extent.length) as usize;
        piece.note.as_mut().filter(|_| is_end)
    }

    pub(crate) fn set_payload(&mut self, payload: &[u8]) {
        self.payload.clear();
        self.payload.extend_from_slice(payload);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }
}

impl Memory for Store {
    fn keep(&mut self, _: SlotId, _: u64, part: Range<u32>) -> Option<Extent> {
        let bytes = self.payload[part.start as usize..part.end as usize].to_vec();
        Some(self.fill(&bytes, false))
    }

    fn discard(&mut self, _: SlotId, extent: Extent) {
        self.free(extent);
    }
}

impl Owner for Store {
    fn sent(&mut self, extent: Extent) {
        self.free(extent);
    }

    fn changed(&mut self, socket: Socket) {
        self.changed.push(socket);
    }
}
