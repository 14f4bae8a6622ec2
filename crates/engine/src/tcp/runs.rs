//! Segments of one connection that follow each other in a burst and say the same: taken as one,
//! whose payload has one buffer of the app's pool, one completion and one acknowledgement.

use arrayvec::ArrayVec;
use clearway_tcp::Arrival;
use clearway_wire::tcp::Flags;

/// Of 1448 bytes they are 31,856 of a piece of 32,768.
const SEGMENTS_MAX: usize = 22;

/// What segments that are taken as one say in their flags.
const PLAIN: Flags = Flags::from_bits(Flags::ACK.bits() | Flags::PSH.bits());

/// One segment, or several as one; none at first.
#[derive(Default)]
pub(super) struct Run<'a> {
    /// All of them: of the first, what is not the same for all.
    arrival: Option<Arrival>,
    /// That of the first.
    frame: &'a [u8],
    payloads: ArrayVec<&'a [u8], SEGMENTS_MAX>,
}

impl<'a> Run<'a> {
    /// Forgets what it was, and begins with this segment.
    #[inline]
    pub(super) fn begin(&mut self, frame: &'a [u8], arrival: &Arrival, payload: &'a [u8]) {
        self.arrival = Some(*arrival);
        self.frame = frame;
        self.payloads.clear();
        self.payloads.push(payload);
    }

    pub(super) fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Its segment, if it is one.
    #[inline]
    pub(super) fn as_one(&self) -> Option<(&Arrival, &[&'a [u8]])> {
        let arrival = self.arrival.as_ref().filter(|_| self.payloads.len() == 1)?;
        Some((arrival, &self.payloads))
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
        if !is_next || !says_the_same || self.payloads.is_full() {
            return false;
        }
        all.repr.flags |= repr.flags;
        self.add(payload);
        true
    }

    /// Takes the payload of a segment that is known to have what comes next, and to say the same.
    /// The run has begun, and is not full.
    #[inline]
    pub(super) fn add(&mut self, payload: &'a [u8]) {
        if let Some(all) = &mut self.arrival {
            all.payload_length += payload.len() as u32; // of a packet
            self.payloads.push(payload);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.payloads.is_full()
    }

    /// Goes on behind what it has, with nothing yet.
    pub(super) fn go_on(&mut self) {
        if let Some(all) = &mut self.arrival {
            all.repr.sequence = all.repr.sequence.wrapping_add(all.payload_length);
            all.payload_length = 0;
        }
        self.payloads.clear();
    }

    /// Its segments in as few parts as take no more of a pool than they would one by one, for its
    /// pieces have powers of two.
    #[inline]
    pub(super) fn parts(&self) -> impl Iterator<Item = (Arrival, &[&'a [u8]])> {
        parts(self.arrival, &self.payloads, most_that_saves)
    }
}

/// The segments of a part of a run, one by one.
pub(super) fn one_by_one<'p, 'a>(
    part: Arrival,
    payloads: &'p [&'a [u8]],
) -> impl Iterator<Item = (Arrival, &'p [&'a [u8]])> {
    parts(Some(part), payloads, |_| 1)
}

/// What begins with `all` and has these payloads, in parts of as many as `count` says.
#[inline]
fn parts<'p, 'a>(
    all: Option<Arrival>,
    mut payloads: &'p [&'a [u8]],
    count: impl Fn(&[&[u8]]) -> usize,
) -> impl Iterator<Item = (Arrival, &'p [&'a [u8]])> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let mut part = all.filter(|_| !payloads.is_empty())?;
        let (payload, rest) = payloads.split_at(count(payloads));
        payloads = rest;
        part.repr.sequence = part.repr.sequence.wrapping_add(at);
        part.payload_length = payload.iter().map(|bytes| bytes.len() as u32).sum(); // of packets
        at += part.payload_length;
        Some((part, payload))
    })
}

/// How many of the first can be one piece.
#[inline]
fn most_that_saves(payloads: &[&[u8]]) -> usize {
    let (mut together, mut apart, mut most) = (0, 0, 1);
    for (count, payload) in (1..).zip(payloads) {
        together += payload.len();
        apart += payload.len().next_power_of_two();
        if together.next_power_of_two() <= apart {
            most = count;
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{Run, SEGMENTS_MAX, one_by_one};
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
        assert!(none.parts().next().is_none());
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
        assert_eq!((1 + more, run.is_full()), (SEGMENTS_MAX, true));
        let all = run.parts().collect::<Vec<_>>();
        let [(all, payloads)] = all[..] else { panic!("{all:?}") };
        assert_eq!((all.payload_length, payloads.len()), (22 * 1448, SEGMENTS_MAX));
        let parts = one_by_one(all, payloads).map(|(part, payload)| {
            assert_eq!((part.payload_length, payload), (1448, &[&BYTES[..]][..]));
            part.repr.sequence
        });
        assert!(parts.eq((0..22).map(|at| 10 + at * 1448)));
    }

    #[test]
    fn goes_on_behind_what_it_had() {
        let mut run = run(u32::MAX - 1447, 1448);
        run.add(&BYTES[..52]);
        run.go_on();
        assert!(run.parts().next().is_none());
        run.add(&BYTES[..7]);
        let parts = run
            .parts()
            .map(|(part, payloads)| (part.repr.sequence, part.payload_length, payloads.len()));
        assert_eq!(parts.collect::<Vec<_>>(), [(52, 7, 1)]);
    }

    #[test]
    fn parts_take_no_more_memory_than_segments() {
        let parts_of = |count| {
            let mut run = run(0, 1448);
            assert!((1..count).all(|at| run.takes(&arrival(at * 1448, 1448), &BYTES)));
            run.parts()
                .map(|(part, payloads)| (part.repr.sequence / 1448, payloads.len()))
                .collect()
        };
        let expected: [&[(u32, usize)]; 12] = [
            &[(0, 1)],
            &[(0, 2)],
            &[(0, 2), (2, 1)],
            &[(0, 4)],
            &[(0, 5)],
            &[(0, 5), (5, 1)],
            &[(0, 5), (5, 2)],
            &[(0, 8)],
            &[(0, 9)],
            &[(0, 10)],
            &[(0, 11)],
            &[(0, 11), (11, 1)],
        ];
        for (count, expected) in (1..).zip(expected) {
            let parts: Vec<(u32, usize)> = parts_of(count);
            assert_eq!(parts, expected, "of {count}");
        }
    }
}
