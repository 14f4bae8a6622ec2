//! How much each has: streams of a flow that are of one urgency, and have something to send all the
//! time, share what leaves by their weights, in bytes (`docs/streams.md`, "Priorities").
//!
//! What leaves is counted in the packets themselves, over some turns in a row of one engine, and
//! held against what start-time fair queueing promises of any time in which two of them wait
//! (Goyal, Vin and Cheng, SIGCOMM 1996, theorem 1):
//!
//! ```text
//!  │bytes a / weight a - bytes b / weight b│ ≤ packet / weight a + packet / weight b
//! ```
//!
//! Here `packet` is also that before the time that is looked at, by which one stands where it
//! stands in line. So each has to have sent one, whose size is known, before anything is counted.
//!
//! A flow's own connection is not looked at: messages of it may be taken from among operations.

use std::collections::BTreeMap;

use clearway_engine::{FlowBooks, Priority};
use clearway_wire::clearway::{
    FRAGMENT_FRAME_LENGTH, Frame, Header, MESSAGE_FRAME_LENGTH, Packet, SKIP_FRAME_LENGTH,
    STREAM_FRAME_LENGTH,
};
use clearway_wire::digest::Digest;
use clearway_wire::udp;

use crate::Finding;

/// An engine is looked at for so many turns in a row.
const TURNS: u32 = 100;
/// What has been served is counted in such parts of a byte: each packet may be counted as one less.
const PARTS: f64 = 16.0;

/// The largest packet of anybody: how large the last one of a stream may have been that has sent
/// none since it is looked at.
const PACKET_BYTES_MAX: u64 = 9000;

/// Bytes that left in a turn, by the flow's id at the peer and the stream.
type Sent = BTreeMap<(u64, u32), Vec<u64>>;

/// One that has waited since the first of the turns.
#[derive(Clone, Debug)]
struct Share {
    priority: Priority,
    /// Its packets: the turn, and how many bytes.
    sent: Vec<(u32, u64)>,
}

/// Some turns in a row of one engine.
#[derive(Debug, Default)]
struct Span {
    turns: u32,
    /// By the flow's id here and the stream.
    shares: BTreeMap<(u64, u32), Share>,
}

/// Of all engines, by host and number.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    spans: BTreeMap<(u32, u32), Span>,
}

impl Shares {
    /// True if the next turn of an engine is to be looked at.
    pub(crate) fn is_watching(&self, host: u32, engine: u32) -> bool {
        self.spans.contains_key(&(host, engine))
    }

    /// An engine is another one now, which begins anew with all turns.
    pub(crate) fn forget(&mut self, host: u32) {
        self.spans.retain(|(of, _), _| *of != host);
    }

    /// Looks at an engine behind a turn, in which it has sent these frames. Returns how many pairs
    /// were compared, of which one has another weight than the other.
    pub(crate) fn look(
        &mut self,
        (host, engine): (u32, u32),
        books: &[FlowBooks],
        frames: &[Vec<u8>],
    ) -> Result<u64, Finding> {
        let waiting = books.iter().filter(|books| books.has_data && books.stream != 0);
        let waiting = waiting.map(|books| ((books.local_id, books.stream), books));
        let waiting: BTreeMap<(u64, u32), &FlowBooks> = waiting.collect();
        let Some(mut span) = self.spans.remove(&(host, engine)) else {
            self.begin((host, engine), &waiting);
            return Ok(0);
        };
        let sent = sent_in(frames);
        span.turns += 1;
        let turn = span.turns;
        span.shares.retain(|name, share| {
            let still = waiting.get(name).filter(|books| books.priority == share.priority);
            let packets = still.and_then(|books| sent.get(&(books.peer_id, books.stream)));
            share.sent.extend(packets.into_iter().flatten().map(|bytes| (turn, *bytes)));
            still.is_some()
        });
        let compared = span.compare().map_err(|what| Finding { what, hosts: vec![host] })?;
        if span.turns < TURNS && span.has_pair() {
            self.spans.insert((host, engine), span);
        }
        Ok(compared)
    }

    fn begin(&mut self, engine: (u32, u32), waiting: &BTreeMap<(u64, u32), &FlowBooks>) {
        let share = |priority| Share { priority, sent: Vec::new() };
        let shares = waiting.iter().map(|(name, books)| (*name, share(books.priority))).collect();
        let span = Span { turns: 0, shares };
        if span.has_pair() {
            self.spans.insert(engine, span);
        }
    }
}

impl Span {
    fn pairs(&self) -> impl Iterator<Item = [(&(u64, u32), &Share); 2]> {
        let pairs = self.shares.iter().enumerate().flat_map(|(index, one)| {
            self.shares.iter().skip(index + 1).map(move |other| [one, other])
        });
        pairs.filter(|[one, other]| {
            one.0.0 == other.0.0 && one.1.priority.urgency == other.1.priority.urgency
        })
    }

    fn has_pair(&self) -> bool {
        self.pairs().next().is_some()
    }

    fn compare(&self) -> Result<u64, String> {
        let mut compared = 0;
        for [one, other] in self.pairs() {
            let shares = [one.1, other.1];
            let Some(since) = shares.iter().filter_map(|share| share.first()).max() else {
                continue;
            };
            let [first, second] = shares.map(|share| share.served(since));
            let bound: f64 = shares.iter().map(|share| share.packet() / share.weight()).sum();
            let [few, many] = shares.map(|share| share.since(since).count());
            let rounding = few.max(many) as f64 / PARTS;
            if (first - second).abs() > bound + rounding {
                return Err(format!(
                    "shares of a flow, after {} turns: {one:?}, {other:?}",
                    self.turns
                ));
            }
            let tells = one.1.priority.weight != other.1.priority.weight;
            compared += u64::from(tells && few + many > 2);
        }
        Ok(compared)
    }
}

impl Share {
    fn weight(&self) -> f64 {
        f64::from(self.priority.weight)
    }

    /// The turn in which it has sent the first packet.
    fn first(&self) -> Option<u32> {
        self.sent.first().map(|(turn, _)| *turn)
    }

    /// Bytes of packets that it has sent behind a turn.
    fn since(&self, turn: u32) -> impl Iterator<Item = u64> {
        self.sent.iter().filter(move |(at, _)| *at > turn).map(|(_, bytes)| *bytes)
    }

    /// The same for each of its weight.
    fn served(&self, turn: u32) -> f64 {
        self.since(turn).sum::<u64>() as f64 / self.weight()
    }

    /// Its largest packet.
    fn packet(&self) -> f64 {
        self.sent.iter().map(|(_, bytes)| *bytes).max().unwrap_or(PACKET_BYTES_MAX) as f64
    }
}

/// What packets of streams carry of messages, by the flow's id at the peer and the stream.
fn sent_in(frames: &[Vec<u8>]) -> Sent {
    let mut sent = Sent::new();
    for frame in frames {
        if let Some((flow, stream, bytes)) = carried(frame) {
            sent.entry((flow, stream)).or_default().push(bytes);
        }
    }
    sent
}

/// Which flow's packet it is, of which stream, and how many bytes of messages it has.
fn carried(frame: &[u8]) -> Option<(u64, u32, u64)> {
    let digest = Digest::of(frame);
    let payload = frame.get(digest.transport_at() + udp::HEADER_LENGTH..)?;
    let packet = Packet::new(payload).ok()?;
    let header = Header::parse(&packet).ok()?;
    let (mut stream, mut bytes) = (None, 0);
    for frame in packet.frames() {
        bytes += match frame.ok()? {
            Frame::Stream(id) => {
                stream = Some(id);
                0
            }
            Frame::Message(message) => MESSAGE_FRAME_LENGTH + message.bytes.len(),
            Frame::Fragment(part) => FRAGMENT_FRAME_LENGTH + part.bytes.len(),
            Frame::Skip { .. } => SKIP_FRAME_LENGTH,
            _ => 0,
        };
    }
    (bytes > 0).then_some((header.flow, stream?, (STREAM_FRAME_LENGTH + bytes) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::credit::tests::books;
    use clearway_wire::clearway::{emit_fragment, emit_stream, seal};
    use clearway_wire::{ethernet, ipv4};

    const ENGINE: (u32, u32) = (0, 0);
    const PEER: u64 = 2;

    fn stream(number: u32, weight: u16) -> FlowBooks {
        let mut books = FlowBooks { stream: number, has_data: true, ..books(1, PEER) };
        books.priority.weight = weight;
        books
    }

    /// A frame with a part of a message, of so many bytes.
    fn frame(stream: u32, bytes: usize) -> Vec<u8> {
        let start = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH + udp::HEADER_LENGTH;
        let mut frame = vec![0; start];
        frame[12] = 8; // IPv4
        frame[14] = 0x45;
        frame[14 + 9] = 17; // UDP
        let mut payload = vec![0; 24 + STREAM_FRAME_LENGTH + FRAGMENT_FRAME_LENGTH + bytes];
        Header::data(PEER, 1, false).emit(&mut payload);
        let mut at = 24;
        at += emit_stream(&mut payload[at..], stream);
        emit_fragment(&mut payload[at..], 0, bytes as u32, 1 << 20, 0);
        seal(&mut payload);
        frame.extend(payload);
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        let length = length - ipv4::HEADER_LENGTH as u16;
        frame[38..40].copy_from_slice(&length.to_be_bytes());
        frame
    }

    /// Turns in which these two wait and have so many packets each.
    fn share(weights: [u16; 2], packets: [usize; 2]) -> Result<u64, Finding> {
        let (books, mut shares) =
            ([stream(1, weights[0]), stream(3, weights[1])], Shares::default());
        let mut compared = shares.look(ENGINE, &books, &[])?;
        for _ in 0..15 {
            let one = (0..packets[0]).map(|_| frame(1, 1000));
            let frames: Vec<_> = one.chain((0..packets[1]).map(|_| frame(3, 1000))).collect();
            compared += shares.look(ENGINE, &books, &frames)?;
        }
        Ok(compared)
    }

    #[test]
    fn shares_are_those_of_the_weights() {
        assert!(share([100, 20], [5, 1]).is_ok_and(|compared| compared > 0));
        assert!(share([20, 20], [3, 3]).is_ok());
        for packets in [[1, 1], [1, 5], [10, 1], [5, 0]] {
            assert!(share([100, 20], packets).is_err(), "{packets:?}");
        }
    }

    /// The last packet of a stream that is not seen may have been larger than those that are, and
    /// by that it stands behind another.
    #[test]
    fn packets_before_that_time_count() {
        let all = [stream(1, 100), stream(3, 20)];
        let mut shares = Shares::default();
        let mut look = |frames: &[Vec<u8>]| shares.look(ENGINE, &all, frames);
        assert_eq!(look(&[]).ok(), Some(0));
        let frames: Vec<_> = (0..10).map(|_| frame(1, 1000)).collect();
        for _ in 0..5 {
            assert!(look(&frames).is_ok());
        }
        assert!(look(&frames).is_err(), "more than any packet");
    }

    /// Who has nothing to send for a moment, or has another weight, or is more urgent, is none of
    /// those that share.
    #[test]
    fn only_those_are_compared_that_wait_all_the_time() {
        let all = [stream(1, 100), stream(3, 20)];
        let rests = FlowBooks { has_data: false, ..all[1] };
        let (mut urgent, own) = (all[1], FlowBooks { stream: 0, ..all[1] });
        urgent.priority.urgency = 2;
        for other in [rests, urgent, own, stream(3, 21), FlowBooks { local_id: 7, ..all[1] }] {
            let mut shares = Shares::default();
            assert_eq!(shares.look(ENGINE, &all, &[]).ok(), Some(0));
            let frames: Vec<_> = (0..20).map(|_| frame(1, 1000)).collect();
            assert!(shares.look(ENGINE, &[all[0], other], &frames).is_ok(), "{other:?}");
            assert!(!shares.is_watching(0, 0));
        }
    }
}
