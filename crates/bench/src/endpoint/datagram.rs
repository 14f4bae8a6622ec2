//! UDP: one datagram per message, one call per datagram, never sleeping.

use super::Endpoint;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::UdpSocket;

/// A connected UDP socket.
pub(crate) struct Datagram {
    socket: UdpSocket,
    incoming: Vec<u8>,
    current_bytes: usize,
}

impl Datagram {
    /// A connected socket for messages of at most `message_bytes_max`.
    pub(crate) fn new(socket: UdpSocket, message_bytes_max: usize) -> Self {
        Self { socket, incoming: vec![0; message_bytes_max.max(1)], current_bytes: 0 }
    }

    fn send_some(&self, message: &[u8]) -> io::Result<bool> {
        match send(&self.socket, message, SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            // ECONNREFUSED tells of an earlier datagram that nobody took; it is lost, as others may
            // be.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::CONNREFUSED) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Endpoint for Datagram {
    const LOSSY: bool = true;

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.send_some(message)
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        match recv(&self.socket, self.incoming.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                self.current_bytes = count;
                Ok(Some(&self.incoming[..count]))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNREFUSED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        self.send_some(&self.incoming[..length.min(self.current_bytes)])
    }
}
