//! Packets with descriptors over a Unix socket. Blocking or not as the socket is.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::Serialize;

use super::PACKET_BYTES_MAX;

/// No message carries more descriptors.
const DESCRIPTORS_MAX: usize = 3;

/// A packet that arrived. Descriptors that nobody takes are closed with it.
#[derive(Debug)]
pub struct Packet {
    /// The JSON.
    pub bytes: Vec<u8>,
    /// What came with it, at most three.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends one message. An error of kind `WouldBlock` means that the other side does not read; one of
/// kind `InvalidInput` that the message is over the limit.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > PACKET_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
        let length = bytes.len();
        let text =
            format!("a control message of {length} bytes; it has {PACKET_BYTES_MAX} bytes at most");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let slices = [IoSlice::new(&bytes)];
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket.as_fd(), &slices, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives one packet of somebody who is not trusted and has no descriptors to send; `None` when
/// the other side is gone. A packet over the limit is an error of kind `InvalidData`. One with
/// descriptors is an error of kind `Unsupported`, and stays in the socket: closing them could take
/// long, and so could closing the socket.
pub fn receive_bare(socket: impl AsFd) -> io::Result<Option<Vec<u8>>> {
    // Without room for descriptors the kernel says that there are some. Those of a packet that is
    // only looked at stay open, and are not closed here.
    if receive_into(&socket, &mut [0], RecvFlags::PEEK)?.1.contains(ReturnFlags::CTRUNC) {
        let text = "no request carries descriptors, and this one does";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let (length, flags) = receive_into(&socket, &mut bytes, RecvFlags::empty())?;
    if flags.contains(ReturnFlags::TRUNC) {
        let text = "a control packet is over the limit";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    bytes.truncate(length);
    Ok((length > 0).then_some(bytes))
}

fn receive_into(
    socket: &impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, ReturnFlags)> {
    rustix::io::retry_on_intr(|| {
        let mut none = RecvAncillaryBuffer::default();
        let mut slices = [IoSliceMut::new(bytes)];
        let received = rustix::net::recvmsg(socket.as_fd(), &mut slices, &mut none, flags)?;
        Ok((received.bytes, received.flags))
    })
}

/// Receives one packet; `None` when the other side is gone. A packet or a number of descriptors
/// over the limit is an error of kind `InvalidData`. The descriptors are closed here, or by who
/// takes them: not for packets of somebody who is not trusted.
pub fn receive(socket: impl AsFd) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket.as_fd(), &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        let text = "a control packet or its descriptors are over the limit";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some(Packet { bytes, descriptors }))
}
