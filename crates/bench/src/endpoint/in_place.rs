//! A connection of Clearway's TCP whose app copies nothing: what it sends stands in the channel's
//! memory already, and what comes is read where the daemon put it. For messages one way: of each
//! only the beginning is looked at, and answers are no longer than that.

use super::clearway::PATIENCE;
use super::{Calls, Endpoint, HEADER_BYTES, closed, header, there_is};
use clearway_client::{Channel, TcpBytes, TcpId};
use std::io;
use std::time::Duration;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
/// What is looked at of a message.
const BEGINNING_BYTES: usize = 8;

/// One end.
pub(crate) struct InPlace {
    channel: Channel,
    connection: TcpId,
    calls: Calls,
    burst: usize,
    /// What has come, and how much of it was read.
    piece: Option<(TcpBytes, usize)>,
    reading: Reading,
    /// The beginning of the message last received.
    current: Vec<u8>,
}

/// How far a message has been read.
#[derive(Default)]
struct Reading {
    /// Its header and its beginning.
    known: Vec<u8>,
    /// Bytes of it that were read, its header included.
    bytes: usize,
}

impl Reading {
    /// Reads on in `bytes`: how many of them are of this message, and whether it is over.
    fn read(&mut self, bytes: &[u8]) -> (usize, bool) {
        let wanted = (HEADER_BYTES + BEGINNING_BYTES).saturating_sub(self.known.len());
        self.known.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
        let Some(head) = self.known.first_chunk::<HEADER_BYTES>() else {
            self.bytes += bytes.len();
            return (bytes.len(), false);
        };
        let all = HEADER_BYTES + u32::from_le_bytes(*head) as usize;
        let taken = bytes.len().min(all - self.bytes);
        self.bytes += taken;
        (taken, self.bytes == all)
    }

    /// A message is over: puts its beginning into `place`, and begins with the next.
    fn end(&mut self, place: &mut Vec<u8>) {
        place.clear();
        let end = self.bytes.min(self.known.len()); // what is behind it is of the next
        place.extend_from_slice(&self.known[HEADER_BYTES..end]);
        self.known.clear();
        self.bytes = 0;
    }
}

impl InPlace {
    /// A connection with `window` messages in flight.
    pub(crate) fn new(channel: Channel, connection: TcpId, calls: Calls, window: usize) -> Self {
        let (reading, current) = (Reading::default(), Vec::new());
        Self { channel, connection, calls, burst: window, piece: None, reading, current }
    }

    /// False if nothing has come.
    fn next_piece(&mut self) -> io::Result<bool> {
        if self.piece.is_some() {
            return Ok(true);
        }
        let timeout = if self.waits() { PATIENCE } else { Duration::ZERO };
        match there_is(self.channel.tcp_recv_buffer(self.connection, Some(timeout)))? {
            None => Ok(false),
            Some(None) => Err(closed()),
            Some(Some(bytes)) => {
                self.piece = Some((bytes, 0));
                Ok(true)
            }
        }
    }

    /// Reads on in the piece. True if a message is over.
    fn read(&mut self) -> bool {
        let Some((bytes, read)) = &mut self.piece else { return false };
        let (taken, is_over) = self.reading.read(&bytes[*read..]);
        *read += taken;
        if *read == bytes.len()
            && let Some((bytes, _)) = self.piece.take()
        {
            self.channel.tcp_release(bytes);
        }
        is_over
    }

    /// Sends a message of so many bytes that begins with `beginning`; the rest of it is what stands
    /// there.
    fn put(&mut self, beginning: &[u8], length: usize) -> io::Result<bool> {
        let room = self.channel.send_buffer(HEADER_BYTES + length, AT_ONCE);
        let Some(mut buffer) = there_is(room)? else { return Ok(false) };
        buffer[..HEADER_BYTES].copy_from_slice(&header(length));
        buffer[HEADER_BYTES..][..beginning.len()].copy_from_slice(beginning);
        let sent = self.channel.tcp_send_buffer(self.connection, buffer, false, AT_ONCE);
        Ok(there_is(sent.map_err(|(_, error)| error))?.is_some())
    }
}

impl Endpoint for InPlace {
    fn waits(&self) -> bool {
        self.calls == Calls::Waiting
    }

    fn burst(&self) -> usize {
        self.burst
    }

    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.put(&message[..message.len().min(BEGINNING_BYTES)], message.len())
    }

    fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        while self.next_piece()? {
            if self.read() {
                self.reading.end(&mut self.current);
                return Ok(Some(&self.current));
            }
        }
        Ok(None)
    }

    fn reply(&mut self, length: usize) -> io::Result<bool> {
        let current = core::mem::take(&mut self.current);
        let sent = self.put(&current[..length], length);
        self.current = current;
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, header};

    /// However the bytes are cut, each message is found, with its beginning.
    #[test]
    fn messages_are_found_in_pieces_of_any_size() {
        let lengths = [0, 3, 8, 9, 100];
        let message = |length: usize| (0..length as u8).collect::<Vec<_>>();
        let all: Vec<u8> =
            lengths.iter().flat_map(|&one| [header(one).to_vec(), message(one)].concat()).collect();
        for size in 1..=all.len() {
            let (mut reading, mut found) = (Reading::default(), Vec::new());
            for mut piece in all.chunks(size) {
                while !piece.is_empty() {
                    let (taken, is_over) = reading.read(piece);
                    piece = &piece[taken..];
                    if is_over {
                        let mut beginning = Vec::new();
                        reading.end(&mut beginning);
                        found.push(beginning);
                    }
                }
            }
            let expected = lengths.map(|length| message(length.min(8)));
            assert_eq!(found, expected, "pieces of {size}");
        }
    }
}
