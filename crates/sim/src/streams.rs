//! The books of all TCP connections: what each end was given to send, what has come, and how they
//! end. They are the oracle: each stream arrives byte for byte, to its end if it has one, and
//! nothing ends without a reason.

use std::collections::BTreeMap;

use clearway_base::{Random, Time};
use clearway_channel::Code;

use crate::Finding;
use crate::ledger::{AFTERMATH_NS, End, Ledger, Trouble};

/// The first bytes of what a client sends: the number of the connection.
pub(crate) const NUMBER_BYTES: usize = 8;

/// Which byte stands at `position` of what `side` of connection `number` sends: 0 is the client.
fn byte(number: u64, side: usize, position: u64) -> u8 {
    if side == 0 && position < NUMBER_BYTES as u64 {
        return number.to_be_bytes()[position as usize];
    }
    let word = Random::new(number ^ (side as u64) << 63 ^ (position / 8) << 20).next_u64();
    word.to_le_bytes()[(position % 8) as usize]
}

/// Writes what stands at `position` and behind it.
pub(crate) fn fill(number: u64, side: usize, position: u64, bytes: &mut [u8]) {
    for (place, position) in bytes.iter_mut().zip(position..) {
        *place = byte(number, side, position);
    }
}

/// True if these are the bytes at `position` and behind it.
fn is_content(number: u64, side: usize, position: u64, bytes: &[u8]) -> bool {
    bytes.iter().zip(position..).all(|(found, position)| *found == byte(number, side, position))
}

/// What is said on a connection. Both ends derive it from the number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Bytes that each side sends.
    pub(crate) bytes: [u64; 2],
    /// At a time, at most.
    pub(crate) chunk_bytes: u32,
    /// The client gives up when it has sent so many.
    pub(crate) aborts_at: Option<u64>,
    /// The server begins when it has heard all.
    pub(crate) is_answer: bool,
}

impl Plan {
    pub(crate) fn of(number: u64) -> Self {
        let mut random = Random::new(number);
        let mut bytes = || {
            let bound = [100, 3_000, 30_000, 300_000][random.below(4) as usize];
            random.below(bound)
        };
        let bytes = [NUMBER_BYTES as u64 + bytes(), bytes()];
        let chunk_bytes = 1 << (6 + random.below(9));
        let aborts_at = random.chance(1, 12).then(|| random.below(bytes[0]));
        Self { bytes, chunk_bytes, aborts_at, is_answer: random.chance(1, 2) }
    }
}

#[derive(Debug)]
struct Pair {
    ends: [Option<End>; 2],
    /// The server's host.
    server: u32,
    /// Bytes that each side was given to send, and that have come from there.
    sent: [u64; 2],
    received: [u64; 2],
    has_ended: [bool; 2],
    /// One of its apps has given it up, or is no more; it may end in any way.
    is_broken: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StreamBooks {
    pairs: BTreeMap<u64, Pair>,
    next: u64,
    pub(crate) counts: Counts,
}

clearway_base::tally! {
    /// What the apps have seen of TCP.
    pub(crate) struct Counts {
        /// Connections that clients wanted.
        streams_attempted,
        /// Of these, those that were opened.
        streams_opened,
        /// Ends that have sent and heard all, and closed.
        streams_whole,
        /// Bytes received, and found right.
        stream_bytes_received,
        /// Ends that were reset, or given up.
        streams_broken,
        /// Attempts that failed.
        streams_refused,
    }
}

impl StreamBooks {
    /// A client wants to connect to host `server`; the connection's number.
    pub(crate) fn attempt(&mut self, client: End, server: u32) -> u64 {
        self.next += 1;
        self.counts.streams_attempted += 1;
        let pair = Pair {
            ends: [Some(client), None],
            server,
            sent: [0; 2],
            received: [0; 2],
            has_ended: [false; 2],
            is_broken: false,
        };
        self.pairs.insert(self.next, pair);
        self.next
    }

    pub(crate) const fn opened(&mut self) {
        self.counts.streams_opened += 1;
    }

    /// An attempt has failed.
    pub(crate) fn failed(
        &mut self,
        now: Time,
        number: u64,
        code: Code,
        ledger: &Ledger,
    ) -> Result<(), Finding> {
        self.counts.streams_refused += 1;
        let Some(pair) = self.pairs.remove(&number) else { return Ok(()) };
        let hosts = pair.hosts();
        let excuses: &[Trouble] = match code {
            // The last connection between the two ports may not be over here.
            Code::AddressInUse => return Ok(()),
            Code::Refused | Code::Reset => &[Trouble::Deaf, Trouble::Death],
            Code::Unreachable => &[Trouble::Silence, Trouble::Rough, Trouble::Death],
            _ => &[],
        };
        if ledger.lately(excuses, &hosts, now, AFTERMATH_NS) || pair.is_broken {
            return Ok(());
        }
        let what = format!("stream {number} {:?} is not opened: {}", pair.ends, code.name());
        Err(Finding { what, hosts })
    }

    /// `side` was given so many bytes more to send; where they stand.
    pub(crate) fn send(&mut self, number: u64, side: usize, bytes: u64) -> u64 {
        let Some(pair) = self.pairs.get_mut(&number) else { return 0 };
        pair.sent[side] += bytes;
        pair.sent[side] - bytes
    }

    /// `side` of a connection has received bytes, which are to be those at `position`.
    pub(crate) fn receive(
        &mut self,
        number: u64,
        side: usize,
        end: End,
        position: u64,
        bytes: &[u8],
    ) -> Result<(), Finding> {
        self.counts.stream_bytes_received += bytes.len() as u64;
        let found = |what: &str| {
            let text = format!("stream {number}, side {side} at {position}: {what}");
            Err(Finding { what: text, hosts: vec![end.host] })
        };
        if !is_content(number, 1 - side, position, bytes) {
            return found("other bytes than were sent");
        }
        let Some(pair) = self.pairs.get_mut(&number) else { return Ok(()) };
        pair.ends[side].get_or_insert(end);
        pair.received[side] = position + bytes.len() as u64;
        if pair.received[side] > pair.sent[1 - side] {
            return found("more bytes than were sent");
        }
        Ok(())
    }

    /// `side` hears that there is no more to come.
    pub(crate) fn finished(&self, number: u64, side: usize) -> Result<(), Finding> {
        let Some(pair) = self.pairs.get(&number) else { return Ok(()) };
        let (received, sent) = (pair.received[side], pair.sent[1 - side]);
        if received == sent {
            return Ok(());
        }
        let what = format!("stream {number}: side {side} hears the end at {received} of {sent}");
        Err(Finding { what, hosts: pair.hosts() })
    }

    /// `side` gives up, or is no more, or closes while there is something to come.
    pub(crate) fn abandon(&mut self, number: u64, side: usize, is_over: bool) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.is_broken = true;
        pair.has_ended[side] |= is_over;
        self.forget_ended(number);
    }

    /// `side` is told that the connection is over. It had closed, having heard and said all, or
    /// not.
    pub(crate) fn ended(
        &mut self,
        now: Time,
        number: u64,
        side: usize,
        (code, has_closed): (Code, bool),
        ledger: &Ledger,
    ) -> Result<(), Finding> {
        let Some(pair) = self.pairs.get_mut(&number) else { return Ok(()) };
        pair.has_ended[side] = true;
        let (hosts, was_broken, ends) = (pair.hosts(), pair.is_broken, pair.ends);
        // The last acknowledgement may be lost, and the next connection between the same ports
        // may come before this end has sent its FIN again: it is reset, but all has come.
        let is_late = code == Code::Reset && pair.has_ended[1 - side];
        let is_orderly = has_closed && (code == Code::Closed || is_late);
        pair.is_broken |= !is_orderly;
        self.forget_ended(number);
        if is_orderly {
            self.counts.streams_whole += 1;
            return Ok(());
        }
        self.counts.streams_broken += 1;
        if was_broken || ledger.lately(&[Trouble::Death], &hosts, now, AFTERMATH_NS) {
            return Ok(());
        }
        let what = format!("stream {number} {ends:?} ends at side {side}: {}", code.name());
        Err(Finding { what, hosts })
    }

    fn forget_ended(&mut self, number: u64) {
        let is_over =
            |pair: &Pair| pair.has_ended[0] && (pair.has_ended[1] || pair.ends[1].is_none());
        if self.pairs.get(&number).is_some_and(is_over) {
            self.pairs.remove(&number);
        }
    }
}

impl Pair {
    fn hosts(&self) -> Vec<u32> {
        let ends = self.ends.iter().flatten().map(|end| end.host);
        ends.chain([self.server]).collect()
    }
}
