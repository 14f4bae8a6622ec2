//! What a workload needs from a transport, and the transports behind it.

mod batch;
mod calling;
mod clearway;
mod credit;
mod datagram;
mod in_place;
mod operations;
mod per_message;
mod posted;
mod stream;
mod streams;
mod table;

pub(crate) use batch::Batch;
pub(crate) use calling::{Answerer, Caller, Question};
pub(crate) use clearway::{Calls, Clearway, there_is};
pub(crate) use credit::{CONNECTIONS as CREDIT_CONNECTIONS, Credit, InTurn};
pub(crate) use datagram::Datagram;
pub(crate) use in_place::InPlace;
pub(crate) use operations::{Asker, BATCH, Deed, Owner};
pub(crate) use per_message::PerMessage;
pub(crate) use posted::{MESSAGE_BYTES as POSTED_BYTES, Posted, Receiver};
pub(crate) use stream::{ClearwayTcp, Stream};
pub(crate) use streams::{Company, POOL_BYTES as STREAMS_POOL_BYTES, Streams};
pub(crate) use table::{RECORD_BYTES, shared_bytes};

use std::io;

/// One end of a connection that carries messages.
///
/// The order of calls in a turn: `receive` (each perhaps followed by `reply`) at most `burst`
/// times, `send` until nothing more is to be sent or has room, then `flush`. Who has nothing to do
/// begins the next turn at once, without a `pause`: hypervisors take a tight loop of them for a
/// spinning lock, and step in.
pub(crate) trait Endpoint {
    /// Messages may be lost, and then nobody says so.
    const LOSSY: bool = false;
    /// Whether `receive` waits until something comes.
    fn waits(&self) -> bool {
        false
    }

    /// How many messages are to be handled before the other direction has its turn: one where each
    /// costs a call, all that wait where they share one.
    fn burst(&self) -> usize {
        1
    }

    /// Sends a message; false if there is no room now, and then nothing was sent.
    fn send(&mut self, message: &[u8]) -> io::Result<bool>;

    /// The next message, if one has come.
    fn receive(&mut self) -> io::Result<Option<&[u8]>>;

    /// Sends the first `length` bytes of the message last received back; false if there is no room
    /// now, and then the message stays the last received.
    fn reply(&mut self, length: usize) -> io::Result<bool>;

    /// Ends a turn: what was sent has to leave now.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of the length in front of each message on a byte stream.
const HEADER_BYTES: usize = 4;

/// The length in front of a message.
fn header(length: usize) -> [u8; HEADER_BYTES] {
    u32::try_from(length).expect("messages are far smaller than 4 GB").to_le_bytes()
}

/// The other side closed the connection.
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the other side closed the connection")
}

#[cfg(test)]
mod tests;
