//! The options of [`Command::TcpSet`](crate::Command::TcpSet), by their numbers. 4 is of libraries:
//! how much one connection may send at once the daemon need not know.

/// Small segments are sent even while others are not acknowledged: 0 or 1.
pub const NO_DELAY: u32 = 1;
/// A connection that is idle for so many seconds is probed; 0: none is.
pub const KEEP_ALIVE: u32 = 2;
/// Milliseconds without an acknowledgement until a connection is given up; 0: after all retries.
pub const USER_TIMEOUT: u32 = 3;
/// Seconds between the probes of an idle connection.
pub const KEEP_ALIVE_INTERVAL: u32 = 5;
/// Probes without an answer until an idle connection is given up.
pub const KEEP_ALIVE_PROBES: u32 = 6;
/// Type of service, or traffic class, of packets: the upper six bits count.
pub const TRAFFIC_CLASS: u32 = 7;
/// Time to live, or hop limit, of packets.
pub const HOP_LIMIT: u32 = 8;
/// Bytes of a segment, at most: payload and TCP's options.
pub const MAXIMUM_SEGMENT: u32 = 9;
/// What comes is acknowledged at once for a while, or as late as may be: 1 or 0.
pub const QUICK_ACKS: u32 = 10;
