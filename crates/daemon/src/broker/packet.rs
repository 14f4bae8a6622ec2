//! Packets between daemon and broker, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Room for the groups of a user.
pub(super) const PACKET_BYTES_MAX: usize = 1 << 16;
/// One for each engine of a host, which are at least as many as its NICs, and one for groups.
const DESCRIPTORS_MAX: usize = crate::config::ENGINES_MAX + 1;

/// A packet that has come.
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Sends a packet. Waits or not as the socket does.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next packet. The end of the other side is an error of kind `UnexpectedEof`.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Packet> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = rustix::io::retry_on_intr(|| {
        let mut into = [IoSliceMut::new(&mut bytes)];
        recvmsg(socket.as_fd(), &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?
    .bytes;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(length);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(Packet { bytes, descriptors })
}
