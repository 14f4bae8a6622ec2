//! What an app can do wrong in its channel. Each ends that app's session and nothing else.

/// The app broke the contract. The daemon ends its session, and logs this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An entry of the submission ring was written out of turn: garbage, or a full ring overrun.
    #[error(
        "submission entry has turn {found} where {expected} was due: the app wrote garbage or \
         overran the ring"
    )]
    Turn {
        /// What the entry said.
        found: u32,
        /// What the next entry must say.
        expected: u32,
    },
    /// The app claims to have taken completions that were never written, or to have put some back.
    #[error("completion head {found} is not between {taken} and {written}")]
    Head {
        /// What the app published.
        found: u32,
        /// What it had published before.
        taken: u32,
        /// How many completions were written.
        written: u32,
    },
    /// No such command.
    #[error("unknown opcode {0}")]
    Opcode(u8),
    /// A send names bytes outside the transmit pool.
    #[error("extent at {offset} of {length} bytes is outside the transmit pool")]
    Extent {
        /// Where it starts.
        offset: u32,
        /// How long it is.
        length: u32,
    },
    /// A send is larger than the largest message.
    #[error("message of {0} bytes is larger than the limit")]
    MessageTooLarge(u32),
    /// A send names a stream that its connection does not have; the engine finds that out.
    #[error("send on stream {0}: connections have no stream but 0 yet")]
    Stream(u16),
    /// More sends are unfinished than a channel may have.
    #[error("more than {} sends are outstanding", crate::OUTSTANDING_SENDS_MAX)]
    TooManySends,
    /// A region, or a group of peers, is described in more bytes than a description has, or in
    /// words that make no sense.
    #[error("a description of {0} bytes, of a region or a group, makes no sense")]
    Description(u32),
    /// An operation that there is not, or whose payload does not fit it; the engine finds that out.
    #[error("operation {0} of that payload is none")]
    Operation(u8),
    /// More operations are outstanding than a channel may have.
    #[error("more than {} operations are outstanding", crate::OUTSTANDING_OPERATIONS_MAX)]
    TooManyOperations,
    /// An address is neither IPv4 nor IPv6.
    #[error("address family {0} is neither 4 nor 6")]
    AddressFamily(u16),
    /// A release command names more buffers than fit in it.
    #[error("release of {0} buffers in one entry")]
    ReleaseCount(u8),
    /// A release of a buffer that the app does not hold: never granted, or released before.
    #[error("release of receive buffer {0}, which the app does not hold")]
    NotGranted(u32),
    /// A burst of no frames, or of more than fit in one.
    #[error("a burst of {0} frames; 1 to {max} are allowed", max = crate::BURST_FRAMES_MAX)]
    BurstCount(u16),
    /// A burst does not start at a multiple of 8 bytes.
    #[error("a burst of frames starts at {0}, which is no multiple of 8")]
    BurstMisaligned(u32),
    /// The frames of a burst do not fill it exactly.
    #[error("the frames of a burst do not end where it ends")]
    BurstLength,
    /// A frame of a burst is too short or too long.
    #[error(
        "a frame of {0} bytes; {min} to {max} are allowed",
        min = crate::FRAME_BYTES_MIN,
        max = crate::FRAME_BYTES_MAX
    )]
    FrameLength(u16),
    /// Fields of a frame's header that only the daemon fills are not zero.
    #[error("fields of a frame's header that must be zero are not")]
    FrameHeader,
}
