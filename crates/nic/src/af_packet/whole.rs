//! Super-frames of which a slot of the ring has the beginning only: the whole waits at the socket,
//! and the kernel writes it to where its frames will be.

use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

use super::ring::Slot;
use crate::interface::last_errno;
use crate::segments::{Cut, Offload};
use crate::vnet::Stage;

/// How often a socket may speak of something else when it is asked for a frame.
const TRIES: usize = 4;

/// Frames that are thrown away to find out which is whose again: more than there is room for.
const LOST_MAX: usize = 4096;

/// Has `stage` cut what came in `slot`. False if that is not possible; then it is gone.
pub(super) fn fill(stage: &mut Stage, slot: &Slot<'_>, socket: &OwnedFd) -> bool {
    let cut = stage.cut(&slot.offload, slot.bytes, slot.frame_bytes);
    let is_whole = slot.bytes.len() == slot.frame_bytes;
    let Some(cut) = cut.filter(|_| is_whole || slot.is_copied) else {
        if slot.is_copied {
            skip(socket);
        }
        return false;
    };
    if slot.is_copied {
        return read(stage, cut, slot, socket);
    }
    let payload = &slot.bytes[cut.header_bytes()..];
    stage.copy(cut, payload);
    true
}

/// Has the kernel write payloads to where they belong. False if it was not this frame.
fn read(stage: &mut Stage, cut: Cut, slot: &Slot<'_>, socket: &OwnedFd) -> bool {
    let away_bytes = Offload::BYTES + cut.header_bytes() - slot.tag_bytes;
    let expected = Offload::BYTES + slot.frame_bytes - slot.tag_bytes;
    stage.gather(cut, away_bytes, |pieces| {
        let taken = take(socket, pieces);
        if taken.is_some_and(|bytes| bytes != expected) {
            // What waits is not what the slots are about. Slots whose frame is missing are lost.
            let _ = (0..LOST_MAX).take_while(|_| skip(socket)).count();
        }
        taken == Some(expected)
    })
}

/// Throws the next frame away that waits at the socket. False if there is none.
#[cold]
fn skip(socket: &OwnedFd) -> bool {
    let mut away = [0_u8; Offload::BYTES];
    let iov_base = away.as_mut_ptr().cast();
    take(socket, &mut [libc::iovec { iov_base, iov_len: away.len() }]).is_some()
}

/// Takes the next frame from the socket, and says how long it was with its `Offload`, what there
/// was no room for included.
fn take(socket: &OwnedFd, pieces: &mut [libc::iovec]) -> Option<usize> {
    for _ in 0..TRIES {
        // SAFETY: all-zero is valid: no bytes, no address, no control data.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the message points to pieces, and these to memory of their lengths, that is
        // nobody else's and lives until the call returns.
        let outcome = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if let Ok(bytes) = usize::try_from(outcome) {
            return Some(bytes);
        }
        // A link that went down is told of once, and nothing was taken.
        if !matches!(last_errno(), Errno::NETDOWN | Errno::INTR) {
            return None;
        }
    }
    None
}
