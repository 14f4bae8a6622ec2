//! A memif client's way to its server: the broker connects.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_nic::memif::Connect;

use super::packet;

/// A request to connect; that it comes says all.
pub(super) const CONNECT: [u8; 1] = [1];

/// The daemon's end of the socket that stands for one server.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: OwnedFd,
    /// The broker has been asked and has not answered yet.
    asked: AtomicBool,
}

impl Connector {
    /// `socket` is non-blocking.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, asked: AtomicBool::new(false) }
    }

    fn ask(&self) -> io::Result<()> {
        packet::send(&self.socket, &CONNECT, &[])?;
        self.asked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn answer(&self) -> io::Result<OwnedFd> {
        let packet = packet::receive(&self.socket)?;
        self.asked.store(false, Ordering::Relaxed);
        connection(packet)
    }
}

impl Connect for Connector {
    /// Takes the answer to the last question. As long as that is no, it asks again at once, so that
    /// whoever comes back later finds a younger answer.
    fn connect(&self) -> io::Result<OwnedFd> {
        if !self.asked.load(Ordering::Relaxed) {
            self.ask()?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.answer() {
            Ok(connection) => Ok(connection),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) => {
                self.ask()?;
                Err(error)
            }
        }
    }
}

/// What the broker answers: the error's number, or zero and the connection.
pub(super) fn answer_of(
    outcome: &Result<OwnedFd, rustix::io::Errno>,
) -> ([u8; 4], Option<std::os::fd::BorrowedFd<'_>>) {
    match outcome {
        Ok(connection) => ([0; 4], Some(std::os::fd::AsFd::as_fd(connection))),
        Err(errno) => (errno.raw_os_error().to_ne_bytes(), None),
    }
}

fn connection(mut packet: packet::Packet) -> io::Result<OwnedFd> {
    let errno = packet.bytes.first_chunk().map_or(0, |errno| i32::from_ne_bytes(*errno));
    if errno != 0 {
        return Err(io::Error::from_raw_os_error(errno));
    }
    packet.descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into())
}
