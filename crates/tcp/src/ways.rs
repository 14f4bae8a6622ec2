//! What the ways to the peers of connections have room for.

use clearway_base::SlotId;

/// Whoever takes the segments of connections: how much one may have, and what there is room for
/// where it goes.
///
/// On a wire nobody knows: what finds no room is lost, and sent again. Where the peer is as near as
/// its memory, its sender waits instead: nothing that has bytes leaves until
/// [`Stack::ask_again`](crate::Stack::ask_again), and no timer runs for what has not left.
pub trait Ways {
    /// How many bytes the next segment of a connection may have. What is more than one segment is
    /// given only if this is more than that, for whoever can cut it.
    fn most(&mut self, connection: SlotId) -> u32;

    /// For how many of the next `bytes` there is room, of the connection that [`Ways::most`] was
    /// asked about last: all; or `segment_bytes` if that is less; or still less, which is better
    /// than to wait for ever; or 0. What is granted leaves.
    #[inline]
    fn room(&mut self, bytes: u32, segment_bytes: u32) -> u32 {
        let _ = segment_bytes;
        bytes
    }
}

/// Room for all, and so many bytes at most in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire(pub(crate) u32);

impl Ways for Wire {
    #[inline]
    fn most(&mut self, _: SlotId) -> u32 {
        self.0
    }
}
