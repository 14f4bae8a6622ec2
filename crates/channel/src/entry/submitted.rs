//! What apps send most often, which is looked for before any other command.

use super::Command;
use crate::ring::Entry;

/// A message that an app sends on the first stream: what most commands are, see [`Command::Send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The connection.
    pub connection: u64,
    /// Where the message starts in the transmit pool.
    pub offset: u32,
    /// Bytes of the message.
    pub length: u32,
}

/// Bytes that an app sends on a connection of TCP, see [`Command::TcpSend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmittedBytes {
    /// The connection.
    pub connection: u64,
    /// Where the bytes start in the transmit pool.
    pub offset: u32,
    /// How many.
    pub length: u32,
    /// More will follow soon.
    pub has_more: bool,
}

/// What stands next in the submission ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A message.
    Message(Submitted),
    /// Bytes for TCP.
    Bytes(SubmittedBytes),
    /// Nothing yet.
    Nothing,
    /// A command of another kind, or a violation.
    Other,
}

impl Command {
    /// Reads an entry that an app wrote if it is a valid `Send` on the first stream, or a valid
    /// `TcpSend`; also where what is sent starts. Whatever else it is, [`Command::decode`] finds
    /// out.
    #[inline]
    pub(crate) fn decode_send(
        upper: u32,
        entry: &Entry,
        transmit_pool_bytes: u32,
    ) -> Option<(Next, u32)> {
        let command = match upper as u8 {
            Self::SEND => Self::decode_as::<{ Self::SEND }>(upper, entry, transmit_pool_bytes),
            Self::TCP_SEND => {
                Self::decode_as::<{ Self::TCP_SEND }>(upper, entry, transmit_pool_bytes)
            }
            _ => return None,
        };
        match command.ok()? {
            Self::Send { connection, stream: 0, offset, length } => {
                Some((Next::Message(Submitted { connection, offset, length }), offset))
            }
            Self::TcpSend { connection, offset, length, has_more } => {
                let bytes = SubmittedBytes { connection, offset, length, has_more };
                Some((Next::Bytes(bytes), offset))
            }
            _ => None,
        }
    }
}
