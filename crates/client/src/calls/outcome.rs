//! What comes of a call.

use std::fmt;
use std::ops::Deref;
use std::time::Instant;

use super::HEADER_BYTES;
use crate::{Awaited, Channel, Code, ConnectionId, Error, Message};

/// Why a request was not carried out. Numbers from 256 on are the app's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal(pub u32);

impl Refusal {
    /// As many requests of the connection are under way as the server takes. It has not begun with
    /// this one: try again when others have been answered.
    pub const BUSY: Self = Self(1);
    /// The server knows no such method.
    pub const NO_METHOD: Self = Self(2);
    /// The server has tried, and failed; or the answer is larger than it can send.
    pub const FAILED: Self = Self(3);
    /// The first of the app's own.
    pub const APP: Self = Self(256);
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BUSY => f.write_str("busy"),
            Self::NO_METHOD => f.write_str("no such method"),
            Self::FAILED => f.write_str("failed"),
            Self(reason) => write!(f, "reason {reason}"),
        }
    }
}

/// An answer, to be read where the daemon put it: a slice of its bytes. It may be read and dropped
/// in any thread.
pub struct Answer(Message);

impl Answer {
    /// The message of an answer, header included.
    pub(super) fn new(message: Message) -> Self {
        Self(message)
    }

    /// Gives its memory back; the same as dropping it, but faster.
    #[inline]
    pub fn release(self, channel: &mut Channel) {
        channel.release(self.0);
    }
}

impl Deref for Answer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0[HEADER_BYTES..]
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({} bytes by connection {})", self.len(), self.0.connection())
    }
}

/// What came of a call.
#[derive(Debug)]
pub enum Outcome {
    /// It was answered.
    Answered(Answer),
    /// The peer has refused it.
    Refused {
        /// Why.
        reason: Refusal,
        /// The same for a person, or nothing.
        text: Answer,
    },
    /// Its time was up first. The peer may have carried it out, or may do so yet.
    Expired,
    /// The connection has ended first, for this reason. Whether the request was carried out is not
    /// known.
    Lost(Code),
}

impl Outcome {
    /// The answer, or the error that stands for it in a call by this connection that waited since
    /// `begun`: as [`Calls::call`](crate::Calls::call) has it.
    pub fn into_answer(
        self,
        channel: &mut Channel,
        connection: ConnectionId,
        begun: Instant,
    ) -> Result<Answer, Error> {
        match self {
            Self::Answered(answer) => Ok(answer),
            Self::Refused { reason, text } => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Err(Error::CallRefused { reason, text })
            }
            Self::Expired => {
                let awaited = Awaited::AnswerOf { connection, peer: channel.peer(connection) };
                Err(Error::TimedOut { awaited, waited: begun.elapsed() })
            }
            Self::Lost(code) => Err(Error::Connection { connection, code }),
        }
    }
}
