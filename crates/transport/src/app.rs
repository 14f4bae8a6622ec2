//! What the transport needs of the apps that it serves. The engine implements it over channels.

use std::net::SocketAddr;

use clearway_base::{RangeSet, Time};
use serde::{Deserialize, Serialize};

use crate::endpoint::{FlowKey, StreamKey};
use crate::incoming::{DueMessages, DueOperations};

/// Names a connection for the engine; the transport only passes it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The channel.
    pub channel: u32,
    /// The connection in the channel.
    pub connection: u32,
}

impl Owner {
    /// No connection.
    pub(crate) const NOBODY: Self = Self { channel: u32::MAX, connection: u32::MAX };
}

/// A contiguous piece of an app's receive pool, or of a buffer that the app has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// The engine's name for it.
    pub id: u32,
    /// Where in the pool it begins.
    pub offset: u32,
    /// The length of the message, in bytes.
    pub length: u32,
}

/// Where a message stood among those of its connection when it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// It is the next to be delivered.
    Due,
    /// An earlier one is not complete yet.
    Ahead,
}

/// Where a message may lie that is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// In the app's receive pool: it is an operation, or has to leave the buffers that the app has
    /// posted to others before it, of which nothing has come.
    Pool,
    /// In a buffer that the app has posted, if it is large and there is one that it fits; else in
    /// the pool.
    Posted,
}

/// Whether a message that was delivered takes of its sender's credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It does until the app releases it.
    Held,
    /// It does no more: it lies in a buffer that the app had posted.
    Released,
}

/// Why a connection ended or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Orderly: this side or the peer closed it, and every message arrived.
    Closed,
    /// The peer's app or its daemon aborted it.
    Reset,
    /// The peer stopped answering.
    TimedOut,
    /// Nobody listens there, or the listener's limit is reached.
    Refused,
    /// The peer speaks no protocol version that we do.
    Version,
    /// The peer broke the protocol.
    Protocol,
    /// The network says that the peer cannot be reached, or runs no daemon.
    Unreachable,
}

impl Reason {
    /// The code in close, reset frames and reset packets (`docs/wire.md`).
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Closed => 0,
            Self::Reset => 1,
            Self::TimedOut => 2,
            Self::Refused => 3,
            Self::Version => 4,
            Self::Protocol => 5,
            Self::Unreachable => 6,
        }
    }

    /// The reason that a peer gave; one that we do not know is a plain reset.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Closed,
            2 => Self::TimedOut,
            3 => Self::Refused,
            4 => Self::Version,
            5 => Self::Protocol,
            6 => Self::Unreachable,
            _ => Self::Reset,
        }
    }
}

/// A one-sided operation, request or answer, that is to be sent: what the engine calls it, and how
/// many bytes it has. Not more than [`OPERATION_NAMES`] are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The engine's name for it, below [`OPERATION_NAMES`]: names count up, and begin anew.
    pub name: u32,
    /// Its length, head and payload.
    pub length: u32,
    /// It is an answer. These do not share packets with requests.
    pub is_answer: bool,
}

/// What the engine has to send on a connection besides what it has given to [`crate::Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// An operation.
    Operation(Operation),
    /// A message of the app, which has waited behind operations.
    Message {
        /// Where in the app's transmit pool it is.
        offset: u32,
        /// Its length.
        length: u32,
        /// Until when it may leave.
        deadline: Option<Deadline>,
    },
}

/// Until when a message may leave. One that cannot is dropped, and both apps are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// The last moment.
    pub at: Time,
    /// The engine's name for the message: see [`App::dropped`].
    pub number: u32,
}

/// Names of operations are below that.
pub const OPERATION_NAMES: u32 = 1 << 28;

/// Where an operation is that has come.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<'a> {
    /// In the packet, in one piece.
    Packet(&'a [u8]),
    /// Where it was begun: it came in parts, or before its turn. The buffer is the engine's again,
    /// to keep or to give back.
    Buffer(Buffer),
}

impl Arrived<'_> {
    /// How many bytes it has.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match self {
            Self::Packet(bytes) => bytes.len() as u32,
            Self::Buffer(buffer) => buffer.length,
        }
    }
}

/// What became of an operation that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operated {
    /// It was carried out, or refused by an answer. Its memory is free.
    Over,
    /// The app has what came with it, and releases that as it releases messages.
    Kept,
    /// There is no room for it, or for its answer, now. Only for what is in a packet.
    NoRoom,
    /// The peer may not send such a thing.
    Violation,
}

/// The apps of an engine: their memory, and what they are told.
pub trait App {
    /// Copies bytes of a message that is being sent out of the app's transmit pool.
    fn read(&self, owner: Owner, offset: u32, into: &mut [u8]);

    /// A buffer of the app's receive pool for a message that is delivered at once, or `None` if
    /// there is no room now.
    fn allocate(&mut self, owner: Owner, length: u32) -> Option<Buffer>;

    /// A whole message has come whose turn it is: [`App::allocate`], [`App::write`] and
    /// [`App::deliver`] in one. `None` if there is no room now.
    fn receive(&mut self, owner: Owner, bytes: &[u8]) -> Option<Delivered> {
        let buffer = self.allocate(owner, bytes.len() as u32)?;
        self.write(owner, buffer, 0, bytes);
        Some(self.deliver(owner, buffer))
    }

    /// The same for those that stand next in a packet, one after the other. What is left is given
    /// to [`App::receive`].
    fn receive_due(&mut self, _owner: Owner, _due: &mut DueMessages<'_, '_>) {}

    /// A buffer for a message that is not complete yet, or whose turn has not come. The peer
    /// decides how long that takes, so it is to get no more than its share: see
    /// [`crate::Unfinished`]. [`App::finish`] or [`App::discard`] follows, with the same `order`.
    fn begin(&mut self, owner: Owner, length: u32, order: Order, room: Room) -> Option<Buffer>;

    /// The same for an operation. `first` is its first part, if that is what has come, in its turn:
    /// all before it is carried out, and the engine may take it as it comes.
    fn begin_operation(
        &mut self,
        owner: Owner,
        length: u32,
        order: Order,
        _first: Option<&[u8]>,
    ) -> Option<Buffer> {
        self.begin(owner, length, order, Room::Pool)
    }

    /// The turn has come of an operation that was begun in this buffer, or its first part has come
    /// in its turn: these parts are there. Returns where it is from now on: the engine may take
    /// these parts out, and what else comes as it comes.
    fn turn_of_operation(
        &mut self,
        _owner: Owner,
        buffer: Buffer,
        _order: Order,
        _parts: &RangeSet,
    ) -> Buffer {
        buffer
    }

    /// Copies received bytes to their final place.
    fn write(&mut self, owner: Owner, buffer: Buffer, at: u32, bytes: &[u8]);

    /// The message that was begun in this buffer is complete; it is delivered next.
    fn finish(&mut self, owner: Owner, buffer: Buffer, order: Order);

    /// Takes back a buffer whose message was begun and will never be complete.
    fn discard(&mut self, owner: Owner, buffer: Buffer, order: Order);

    /// A message is complete and due.
    fn deliver(&mut self, owner: Owner, buffer: Buffer) -> Delivered;

    /// The next `messages` messages of this connection have arrived; their bytes are free.
    fn sent(&mut self, owner: Owner, messages: u32);

    /// A message of this connection was dropped, and the peer knows that: the one with this number
    /// in its [`Deadline`]. It is among those that have "arrived".
    fn dropped(&mut self, _owner: Owner, _number: u32) {}

    /// False if the app leaves unread what it is told: a peer that drops message after message is
    /// to wait then, since each costs it nothing.
    fn reads_news(&self, _owner: Owner) -> bool {
        true
    }

    /// The peer has dropped the next `messages` messages of this connection.
    fn skipped(&mut self, _owner: Owner, _messages: u32) {}

    /// An operation has come whose turn it is.
    fn operate(&mut self, _owner: Owner, _operation: Arrived<'_>) -> Operated {
        Operated::Violation
    }

    /// The same for all that stand next in a packet, one after the other.
    fn operate_due(&mut self, owner: Owner, due: &mut DueOperations<'_, '_>) {
        while due.take(|bytes| Some(self.operate(owner, Arrived::Packet(bytes)))) {}
    }

    /// What the engine has to send on this connection by now, in order: answers, requests of the
    /// app, and messages that wait behind requests. Asked whenever operations have come, and when
    /// [`App::operations_sent`] says that there is something.
    fn take_outbound(&mut self, _owner: Owner, _take: impl FnMut(Outbound)) {}

    /// True if [`App::take_outbound`] will have more when operations have arrived.
    fn has_outbound(&self, _owner: Owner) -> bool {
        false
    }

    /// Copies bytes of an operation that is being sent, from `at` on.
    fn read_operation(&self, _owner: Owner, _name: u32, _at: u32, into: &mut [u8]) {
        into.fill(0);
    }

    /// The next `count` operations of this connection have arrived, in the order of
    /// [`App::take_outbound`]; they are not read again. True if there are more to take now.
    fn operations_sent(&mut self, _owner: Owner, _count: u32) -> bool {
        false
    }

    /// A peer wants to connect to this listener, at the own address `local`. The engine names the
    /// new connection, and says how many positions its peer may use, or refuses.
    fn accept(
        &mut self,
        listener: Owner,
        key: StreamKey,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<(Owner, u64)>;

    /// The peer opens a stream of this connection. The engine names the new connection, and says
    /// how many positions its peer may use, or refuses.
    fn accept_stream(&mut self, _owner: Owner, _stream: StreamKey) -> Option<(Owner, u64)> {
        None
    }

    /// A connection that was begun here is established.
    fn connected(&mut self, owner: Owner);

    /// The peer's daemon shares no flows. The one that was begun for this connection, and for
    /// others, is its own now, and [`App::connected`] follows; or it is another's, and this one is
    /// to be begun anew, if that is `None`.
    fn unshared(&mut self, _owner: Owner, _flow: Option<FlowKey>) {}

    /// A connection has ended, or could not be made. Nothing more will come of it.
    fn closed(&mut self, owner: Owner, reason: Reason);

    /// The answer to a ping arrived, after so long, or the news that there will be none.
    fn pong(&mut self, id: u64, result: Result<u64, Undelivered>);
}

/// What somebody on its way says of a packet that has not come to its daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// Its host is there, and nobody on it has the port of daemons.
    Port,
    /// Its host or network cannot be reached.
    Host,
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn reasons_have_the_codes_of_the_wire_format() {
        use Reason::{Closed, Protocol, Refused, Reset, TimedOut, Unreachable, Version};
        let all = [Closed, Reset, TimedOut, Refused, Version, Protocol, Unreachable];
        for (code, reason) in (0..).zip(all) {
            assert_eq!((reason.code(), Reason::from_code(code)), (code, reason));
        }
        assert_eq!(Reason::from_code(7), Reset, "one that nobody knows yet");
    }
}
