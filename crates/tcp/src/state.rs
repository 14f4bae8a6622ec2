//! The states of a connection.

/// RFC 9293, section 3.3.2. A connection that came to a listener and is not open yet is no
/// [`State`] of a connection: it is kept elsewhere, in far less room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// A SYN has been sent.
    SynSent,
    /// SYNs have been sent and received, and this end's is not acknowledged.
    SynReceived,
    /// Open both ways.
    Established,
    /// This end has closed its half, and that is not acknowledged.
    FinWait1,
    /// This end's half is closed.
    FinWait2,
    /// The peer's half is closed.
    CloseWait,
    /// Both ends have closed at the same time, and this end's is not acknowledged.
    Closing,
    /// The peer's half was closed first, then this end's, which is not acknowledged.
    LastAck,
    /// Both halves are closed; what is left of the connection guards its ports.
    TimeWait,
    /// There is no connection any more.
    Closed,
}

impl State {
    /// The name as `ss` writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECV",
            Self::Established => "ESTAB",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    /// True if both ends know each other's sequence numbers.
    pub(crate) const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// True if nothing comes any more that is for the connection itself.
    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::TimeWait | Self::Closed)
    }

    /// True if the peer may still send data.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// True if data, or data and a FIN, of this end may have to be sent, or sent again.
    pub(crate) const fn sends(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }
}
