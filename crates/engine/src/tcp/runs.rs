//! Segments of one connection that follow each other in a burst and say the same: taken as one,
//! whose payload has one buffer of the app's pool, one completion and one acknowledgement.

use clearway_tcp::Arrival;
use clearway_wire::tcp::Flags;

/// Eleven of 1448 bytes are 15,928 of a piece of 16,384.
const SEGMENTS_MAX: usize = 11;

/// What segments that are taken as one say in their flags.
const PLAIN: Flags = Flags::from_bits(Flags::ACK.bits() | Flags::PSH.bits());

/// One segment, or several as one; none at first.
#[derive(Default)]
pub(super) struct Run<'a> {
    /// All of them: of the first, what is not the same for all.
    arrival: Option<Arrival>,
    /// That of the first.
    frame: &'a [u8],
    payloads: [&'a [u8]; SEGMENTS_MAX],
    count: usize,
    /// What their payloads would take of a pool one by one.
    pool_bytes: usize,
}

impl<'a> Run<'a> {
    /// Forgets what it was, and begins with this segment.
    #[inline]
    pub(super) fn begin(&mut self, frame: &'a [u8], arrival: &Arrival, payload: &'a [u8]) {
        self.arrival = Some(*arrival);
        self.frame = frame;
        self.payloads[0] = payload;
        self.count = 1;
        self.pool_bytes = payload.len().next_power_of_two();
    }

    #[inline]
    pub(super) fn arrival(&self) -> Option<&Arrival> {
        self.arrival.as_ref()
    }

    pub(super) fn frame(&self) -> &'a [u8] {
        self.frame
    }

    pub(super) fn payloads(&self) -> &[&'a [u8]] {
        &self.payloads[..self.count]
    }

    /// Takes a segment that has what comes next, and nothing else that is new. False if it is
    /// another.
    #[inline]
    pub(super) fn takes(&mut self, arrival: &Arrival, payload: &'a [u8]) -> bool {
        let Some(all) = &mut self.arrival else { return false };
        let repr = &arrival.repr;
        let is_next = repr.sequence == all.repr.sequence.wrapping_add(all.payload_length)
            && all.payload_length > 0
            && !payload.is_empty()
            && (arrival.from, arrival.to, arrival.ecn) == (all.from, all.to, all.ecn);
        let says_the_same = repr.acknowledgement == all.repr.acknowledgement
            && repr.window == all.repr.window
            && repr.options == all.repr.options
            && repr.flags.without(PLAIN) == Flags::NONE
            && all.repr.flags.without(PLAIN) == Flags::NONE;
        if !is_next || !says_the_same || self.count == SEGMENTS_MAX {
            return false;
        }
        all.repr.flags |= repr.flags;
        all.payload_length += arrival.payload_length;
        self.payloads[self.count] = payload;
        self.count += 1;
        self.pool_bytes += payload.len().next_power_of_two();
        true
    }

    /// True if their payloads take no more of a pool together than one by one: its pieces have
    /// powers of two.
    pub(super) fn saves_memory(&self) -> bool {
        let bytes = self.arrival.map_or(0, |all| all.payload_length as usize);
        bytes.next_power_of_two() <= self.pool_bytes
    }

    /// The segments one by one.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Arrival, &[&'a [u8]])> {
        let (mut payloads, mut at) = (self.payloads().chunks(1), 0);
        core::iter::from_fn(move || {
            let (mut part, payload) = (self.arrival?, payloads.next()?);
            part.repr.sequence = part.repr.sequence.wrapping_add(at);
            part.payload_length = payload[0].len() as u32; // of a packet
            at += part.payload_length;
            Some((part, payload))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Run, SEGMENTS_MAX};
    use clearway_tcp::Arrival;
    use clearway_wire::Ecn;
    use clearway_wire::tcp::{Flags, Repr, Timestamps};
    use std::net::{IpAddr, SocketAddr};

    const BYTES: [u8; 1448] = [0; 1448];
    const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80);

    fn arrival(sequence: u32, length: usize) -> Arrival {
        let repr = Repr { sequence, flags: Flags::ACK, window: 7, ..Repr::default() };
        let payload_length = length as u32;
        Arrival { from: PEER, to: PEER, repr, payload_length, ecn: Ecn::NotCapable }
    }

    fn run(sequence: u32, length: usize) -> Run<'static> {
        let mut run = Run::default();
        run.begin(&[], &arrival(sequence, length), &BYTES[..length]);
        run
    }

    #[test]
    fn is_none_until_it_begins() {
        let mut none = Run::default();
        assert!(!none.takes(&arrival(1, 1), &BYTES[..1]));
        assert!(none.arrival().is_none() && none.parts().next().is_none());
    }

    #[test]
    fn takes_what_comes_next_and_says_the_same() {
        let first = u32::MAX - 1000;
        let next = first.wrapping_add(1448);
        let takes = |change: fn(&mut Arrival)| {
            let (mut run, mut second) = (run(first, 1448), arrival(next, 100));
            change(&mut second);
            let length = second.payload_length as usize;
            run.takes(&second, &BYTES[..length])
        };
        assert!(takes(|_| ()));
        assert!(takes(|it| it.repr.flags |= Flags::PSH));
        assert!(!takes(|it| it.repr.sequence += 1));
        assert!(!takes(|it| it.repr.flags |= Flags::FIN));
        assert!(!takes(|it| it.repr.acknowledgement += 1));
        assert!(!takes(|it| it.repr.window += 1));
        assert!(!takes(|it| it.repr.options.timestamps = Some(Timestamps { value: 1, echo: 1 })));
        assert!(!takes(|it| it.from.set_port(81)));
        assert!(!takes(|it| it.ecn = Ecn::Marked));
        assert!(!takes(|it| it.payload_length = 0));
    }

    #[test]
    fn has_so_many_at_most_and_gives_them_one_by_one() {
        let mut run = run(10, 1448);
        let more = (1..).take_while(|at| run.takes(&arrival(10 + at * 1448, 1448), &BYTES)).count();
        assert_eq!((1 + more, run.payloads().len()), (SEGMENTS_MAX, SEGMENTS_MAX));
        assert_eq!(run.arrival().unwrap().payload_length, 11 * 1448);
        let parts = run.parts().map(|(part, payload)| {
            assert_eq!((part.payload_length, payload), (1448, &[&BYTES[..]][..]));
            part.repr.sequence
        });
        assert!(parts.eq((0..11).map(|at| 10 + at * 1448)));
    }

    #[test]
    fn is_one_piece_where_that_takes_no_more_memory() {
        let mut run = run(0, 1448);
        let saves = (1..9).map(|at| {
            let before = run.saves_memory();
            assert!(run.takes(&arrival(at * 1448, 1448), &BYTES));
            before
        });
        let expected = [true, true, false, true, true, false, false, true];
        assert_eq!(saves.collect::<Vec<_>>(), expected);
    }
}
