//! Several sockets of one interface that share what comes (PACKET_FANOUT): each frame goes to one
//! of them, by a hash of its flow that nobody outside the kernel knows, as the RSS of a NIC.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::interface::{last_errno, set_option};

// Of linux/if_packet.h.
const PACKET_FANOUT: i32 = 18;
const BY_HASH: u32 = 0;
/// The kernel gives the group a number that no other has.
const UNIQUE_ID: u32 = 0x2000;
/// As PACKET_IGNORE_OUTGOING, which a group does not take from its sockets.
const IGNORE_OUTGOING: u32 = 0x4000;

/// Makes a group of bound sockets, unless it is one alone.
pub(super) fn join(sockets: &[Arc<OwnedFd>]) -> Result<(), Errno> {
    let [first, others @ ..] = sockets else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let kind = BY_HASH | IGNORE_OUTGOING;
    set_option(&**first, libc::SOL_PACKET, PACKET_FANOUT, &((kind | UNIQUE_ID) << 16))?;
    let arguments = kind << 16 | group_of(first)?;
    let mut others = others.iter();
    others.try_for_each(|it| set_option(&**it, libc::SOL_PACKET, PACKET_FANOUT, &arguments))
}

/// The number of the group that a socket is in.
fn group_of(socket: &OwnedFd) -> Result<u32, Errno> {
    let mut group = 0_u32;
    let mut length = size_of_val(&group) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into an integer of that size.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_FANOUT,
            (&raw mut group).cast(),
            &raw mut length,
        )
    };
    if outcome == 0 { Ok(group & 0xffff) } else { Err(last_errno()) }
}
