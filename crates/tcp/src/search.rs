//! The search for the largest packet that a path takes, without any router's help: RFC 8899, with
//! data for probes (RFC 4821, section 7).
//!
//! A path is taken to carry what its first link does, until a router says less (`mtu`), or until
//! what is long is lost again and again and nobody says why: a black hole. Then packets are small,
//! and one that is longer than the others is sent now and then, to see whether it arrives.
//!
//! ```text
//!   all of it ──a router──────▶ less ──RAISE_NS──▶ searched for: the most at first, then by halves
//!      ▲      ──a black hole──▶ least ───────────▶ by halves                              │
//!      └──────────────────────── found: looked for again after RAISE_NS ◀─────────────────┘
//! ```
//!
//! Sizes here are MTUs: of packets with all their headers. When a probe is due, and what it is made
//! of, is in `connection/path`.

use core::ops::Range;

use clearway_base::SECOND;

/// RFC 8899, section 5.1.1: "The PMTU_RAISE_TIMER is configured to the period a sender will
/// continue to use the current PLPMTU, after which it reenters the Search Phase. This timer has a
/// period of 600 seconds".
pub(crate) const RAISE_NS: u64 = 600 * SECOND;
/// Between a probe and the next.
pub(crate) const PROBE_NS: u64 = SECOND;
/// Until it is tried again, when there was nothing to make a probe of.
pub(crate) const IDLE_NS: u64 = 60 * SECOND;

/// RFC 8899, section 5.1.2: "The default value of MAX_PROBES is 3".
const PROBES_MAX: u8 = 3;
/// What is nearer than this is near enough: RFC 4821, section 7.3.
const NEAR: u16 = 16;

/// Where the search stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// The largest that is not known to be too large; 0 if nothing is searched for.
    high: u16,
    /// It may be what the path takes, so it is tried first.
    high_first: bool,
    /// How often packets of the size at hand were lost: PROBE_COUNT.
    failures: u8,
    outstanding: Option<Outstanding>,
}

/// A probe on its way: its size, and the part of the stream in it.
#[derive(Clone, Debug)]
struct Outstanding {
    mtu: u16,
    data: Range<u64>,
}

impl Search {
    /// Packets of `mtu` bytes vanish.
    pub(crate) fn on_black_hole(&mut self, mtu: u16) {
        *self = Self { high: mtu - 1, ..Self::default() };
    }

    /// The path may have changed: up to `mtu_max` is possible.
    pub(crate) fn restart(&mut self, mtu_max: u16) {
        *self = Self { high: mtu_max, high_first: true, ..Self::default() };
    }

    /// What is to be tried next, if packets of `mtu` bytes arrive.
    pub(crate) fn candidate(&self, mtu: u16) -> Option<u16> {
        let rest = self.high.saturating_sub(mtu);
        match self.high_first {
            true if rest > 0 => Some(self.high),
            false if rest >= NEAR => Some(mtu + rest.div_ceil(2)),
            _ => None,
        }
    }

    /// A probe of `mtu` bytes has left, with `data` in it.
    pub(crate) fn on_sent(&mut self, mtu: u16, data: Range<u64>) {
        self.outstanding = Some(Outstanding { mtu, data });
    }

    /// The part of the stream whose fate decides.
    pub(crate) fn outstanding(&self) -> Option<Range<u64>> {
        self.outstanding.as_ref().map(|probe| probe.data.clone())
    }

    /// All before `una` has arrived. The size that is known to arrive now, if that is news.
    pub(crate) fn on_arrived(&mut self, una: u64) -> Option<u16> {
        let probe = self.outstanding.take_if(|probe| una >= probe.data.end)?;
        self.failures = 0;
        Some(probe.mtu)
    }

    /// The probe was lost, for its size or otherwise: RFC 8899, section 5.1.2: more than
    /// one "can provide robustness to isolated packet loss".
    pub(crate) fn on_lost(&mut self) {
        let Some(probe) = self.outstanding.take() else {
            return;
        };
        self.failures += 1;
        if self.failures >= PROBES_MAX {
            *self = Self { high: probe.mtu - 1, ..Self::default() };
        }
    }

    /// A router says that the probe was too large, and that `mtu` is not. True if it may be so.
    pub(crate) fn on_too_big(&mut self, mtu: u16) -> bool {
        let is_possible = self.outstanding.as_ref().is_some_and(|probe| mtu < probe.mtu);
        if is_possible {
            *self = Self { high: mtu, high_first: true, ..Self::default() };
        }
        is_possible
    }
}

#[cfg(test)]
mod tests {
    use super::Search;

    /// Searches from `mtu` on a path that takes `path`: the sizes that are tried, and what is
    /// found.
    fn search(mut search: Search, mut mtu: u16, path: u16) -> (Vec<u16>, u16) {
        let mut tried = Vec::new();
        while let Some(candidate) = search.candidate(mtu) {
            tried.push(candidate);
            search.on_sent(candidate, 0..1);
            match candidate <= path {
                true => mtu = search.on_arrived(1).expect("it has"),
                false => search.on_lost(),
            }
        }
        (tried, mtu)
    }

    #[test]
    fn a_black_hole_is_searched_by_halves() {
        let mut from = Search::default();
        assert_eq!(from.candidate(1280), None);
        from.on_black_hole(1500);
        let (tried, found) = search(from, 1280, 1420);
        assert_eq!(tried, [1390, 1445, 1445, 1445, 1417, 1431, 1431, 1431]);
        assert_eq!(found, 1417);
    }

    #[test]
    fn what_a_path_took_before_is_tried_first() {
        let mut from = Search::default();
        from.restart(1500);
        assert_eq!(search(from.clone(), 1280, 1500), (vec![1500], 1500));
        let (tried, found) = search(from, 1280, 1300);
        assert_eq!(tried[..4], [1500, 1500, 1500, 1390]);
        assert!((1285..=1300).contains(&found), "{found}");
    }

    #[test]
    fn a_router_ends_the_search() {
        let mut from = Search::default();
        from.on_black_hole(1500);
        assert!(!from.on_too_big(1400), "nothing was sent that could be too large");
        from.on_sent(1440, 0..1);
        assert!(!from.on_too_big(1440) && from.on_too_big(1400));
        assert_eq!(search(from, 1280, 1400), (vec![1400], 1400));
    }
}
