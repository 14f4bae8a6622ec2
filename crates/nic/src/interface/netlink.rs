//! A route netlink socket: one question at a time, or a stream of changes.
//!
//! The messages are those of netlink-packet-route; this file only carries them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recv, send, socket_with, sockopt};

use crate::Error;

/// The kernel never puts more than this into one datagram (`NLMSG_GOODSIZE` is a page or two; a
/// link with many virtual functions takes up to 32 KB).
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// How long the kernel may take for an answer, which it usually has at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket for questions; with `groups` (a mask of `RTMGRP_*`), one that hears of changes.
    pub(super) fn open(groups: u32) -> Result<Netlink, Error> {
        Netlink::connect(groups).map_err(|source| Error::System {
            action: "cannot open a netlink socket".into(),
            remedy: "Allow AF_NETLINK if this process is confined (RestrictAddressFamilies=)"
                .into(),
            source,
        })
    }

    fn connect(groups: u32) -> io::Result<Netlink> {
        let flags = SocketFlags::CLOEXEC;
        // No protocol is protocol 0, which is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Netlink { socket, sequence: 0, buffer: vec![0; DATAGRAM_BYTES_MAX] })
    }

    /// Asks for one thing; the answer, if there is one besides yes.
    pub(super) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        Ok(self.converse(question, NLM_F_ACK | flags)?.pop())
    }

    /// Asks for a whole table.
    pub(super) fn dump(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.converse(question, NLM_F_DUMP)
    }

    /// The next datagram of changes; `None` if none waits. `ENOBUFS` means that some were lost.
    pub(super) fn changes(&mut self) -> io::Result<Option<Vec<RouteNetlinkMessage>>> {
        let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut changes = Vec::new();
        for_each(&self.buffer[..length], |message| {
            if let NetlinkPayload::InnerMessage(inner) = message.payload {
                changes.push(inner);
            }
        });
        Ok(Some(changes))
    }

    fn converse(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        self.collect()
    }

    /// Reads answers until the kernel says that they are complete.
    fn collect(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        loop {
            let (length, _) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            let mut end = None;
            for_each(&self.buffer[..length], |message| {
                if message.header.sequence_number != self.sequence {
                    return;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(_) => end = Some(Ok(())),
                    NetlinkPayload::Error(error) => {
                        end = Some(if error.code.is_none() { Ok(()) } else { Err(error.to_io()) });
                    }
                    _ => {}
                }
            });
            if let Some(outcome) = end {
                return outcome.map(|()| answers);
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Shows the messages of a datagram. One that the library cannot read, because a newer kernel put
/// something unknown in it, is passed over.
fn for_each(mut bytes: &[u8], mut show: impl FnMut(NetlinkMessage<RouteNetlinkMessage>)) {
    while let Some(length) = bytes.first_chunk().map(|word| u32::from_ne_bytes(*word) as usize) {
        let Some(message) = bytes.get(..length).filter(|message| !message.is_empty()) else {
            return;
        };
        if let Ok(message) = NetlinkMessage::deserialize(message) {
            show(message);
        }
        let aligned = length.next_multiple_of(4).min(bytes.len());
        bytes = &bytes[aligned..];
    }
}
