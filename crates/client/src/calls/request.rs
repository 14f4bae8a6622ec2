//! What a peer asks for.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use super::HEADER_BYTES;
use crate::{Channel, ConnectionId, Message};

/// Names a request that a peer has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The connection that it came by.
    pub connection: ConnectionId,
    /// What its peer calls it.
    pub number: u64,
}

/// A request, to be read where the daemon put it: as a slice it is the body. It is answered by its
/// [`id`](Request::id), before or after it is dropped. It may be read and dropped in any thread.
#[must_use = "somebody waits for an answer"]
pub struct Request {
    number: u64,
    method: u16,
    deadline: Option<Instant>,
    message: Message,
}

impl Request {
    /// The message of a request, header included.
    #[inline]
    pub(super) fn new(number: u64, method: u16, time_left_us: u32, message: Message) -> Self {
        let time_left = Duration::from_micros(time_left_us.into());
        let deadline = (time_left_us > 0).then(|| Instant::now() + time_left);
        Self { number, method, deadline, message }
    }

    /// What it is answered by.
    #[must_use]
    #[inline]
    pub fn id(&self) -> RequestId {
        RequestId { connection: self.message.connection(), number: self.number }
    }

    /// Gives its memory back; the same as dropping it, but faster.
    #[inline]
    pub fn release(self, channel: &mut Channel) {
        channel.release(self.message);
    }

    /// What is asked for: the app's own number.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.method
    }

    /// Until when the caller waits, if it has said so: by this host's clock, and later than by the
    /// caller's by as long as the request was on its way.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// True if the caller waits no more.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

impl Deref for Request {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message[HEADER_BYTES..]
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, method) = (self.id(), self.method);
        write!(f, "Request({} of {}, method {method})", id.number, id.connection)
    }
}
