//! How large packets may be on a path: Datagram Packetization Layer Path MTU Discovery (RFC 8899)
//! for one flow.
//!
//! A flow begins with the packets that both hosts' links take, since most paths take them too. If
//! those vanish while others arrive, or nothing is answered at all, it falls back to a size that
//! every path of the Internet takes, and searches upwards by probes. So it does, beginning with the
//! largest, when the own link takes larger ones than before: its other end has said so. Sizes are
//! those of UDP payloads.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{SECOND, Time};

/// RFC 8899, 5.1.2: "BASE_PLPMTU: [...] a value of 1200 bytes is RECOMMENDED" for UDP.
const BASE_BYTES: u16 = 1200;
/// An IPv4 datagram of 576 bytes, which every host takes: `docs/wire.md`.
pub(crate) const MIN_BYTES: u16 = 548;
/// RFC 8899, 5.1.2: "MAX_PROBES [...] The default value of MAX_PROBES is 3."
const PROBES_MAX: u8 = 3;
/// A search that is as near as this has ended.
const STEP_BYTES: u16 = 16;
/// RFC 8899, 5.1.1: "PMTU_RAISE_TIMER: [...] the period [...] is 600 seconds."
const RAISE_NS: u64 = 600 * SECOND;
/// Large packets lost in a row, none acknowledged between, that are a black hole if that goes on
/// for some probe timeouts: a link that loses many packets at once is none.
const LOSSES_MAX: u32 = 4;
/// Probe timeouts in a row after which it is worth trying smaller packets.
const PROBE_TIMEOUTS: u32 = 2;
/// The same of probes that the peer has called for, which may come faster than answers do.
const CALLED_PROBES: u32 = 8;

/// The size of a flow's packets.
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    /// Packets are at most so large.
    bytes: u16,
    /// What both hosts take.
    bytes_max: u16,
    /// What the own link takes now.
    link_bytes: u16,
    search: Search,
    /// Losses of packets larger than the base since the last one that arrived, and when the first
    /// was found.
    losses: u32,
    losses_since: Time,
}

#[derive(Clone, Copy, Debug)]
enum Search {
    /// There is nothing larger, or nothing larger passes until then.
    Done { raise_at: Time },
    /// Sizes up to `below` may pass. `probe` is the next one to try, unless it is under way.
    Open { below: u16, probe: u16, failures: u8, is_under_way: bool },
}

impl PathMtu {
    pub(crate) fn new(bytes_max: u16, link_bytes: u16) -> Self {
        Self {
            bytes: bytes_max.min(link_bytes),
            bytes_max,
            link_bytes,
            search: Search::Done { raise_at: Time::MAX },
            losses: 0,
            losses_since: Time::ZERO,
        }
    }

    /// How large packets may be, and what both hosts take.
    pub(crate) const fn save(&self) -> (u16, u16) {
        (self.bytes, self.bytes_max)
    }

    /// One that packets of `bytes` pass, on a link that takes `link_bytes`. If there may be larger
    /// ones that pass, the search for them begins anew.
    pub(crate) fn restore(
        (bytes, bytes_max): (u16, u16),
        link_bytes: u16,
    ) -> Result<Self, Invalid> {
        let is_one = MIN_BYTES.min(link_bytes) <= bytes && bytes <= bytes_max;
        ensure(is_one, "packets of a size that there is not")?;
        let mut mtu = Self { bytes: bytes.min(link_bytes), ..Self::new(bytes_max, link_bytes) };
        mtu.search_to_limit();
        Ok(mtu)
    }

    /// How large packets may be.
    pub(crate) const fn bytes(&self) -> u16 {
        self.bytes
    }

    /// The size of the probe that is to be sent.
    pub(crate) const fn probe_bytes(&self) -> Option<u16> {
        match self.search {
            Search::Open { probe, is_under_way: false, .. } => Some(probe),
            _ => None,
        }
    }

    pub(crate) const fn on_probe_sent(&mut self) {
        if let Search::Open { is_under_way, .. } = &mut self.search {
            *is_under_way = true;
        }
    }

    /// A packet of this size has arrived. True if that is news about the path.
    pub(crate) fn on_acked(&mut self, now: Time, bytes: u32) -> bool {
        if self.losses > 0 && bytes > u32::from(self.floor()) {
            self.losses = 0;
        }
        match self.search {
            Search::Done { raise_at } if raise_at <= now => self.search_below(self.limit()),
            Search::Open { below, probe, .. } if bytes >= u32::from(probe) => {
                self.bytes = probe;
                self.go_on(now, below);
                return true;
            }
            _ => {}
        }
        false
    }

    /// The probe was lost.
    pub(crate) fn on_probe_lost(&mut self, now: Time) {
        let Search::Open { below, probe, failures, .. } = self.search else { return };
        if failures + 1 >= PROBES_MAX {
            return self.go_on(now, probe - 1);
        }
        self.search = Search::Open { below, probe, failures: failures + 1, is_under_way: false };
    }

    /// A packet of this size was lost. True if large packets do not get through any more, and have
    /// not for as long as `patience_ns`.
    pub(crate) fn on_lost(&mut self, now: Time, bytes: u32, patience_ns: u64) -> bool {
        if bytes <= u32::from(self.floor()) {
            return false;
        }
        if self.losses == 0 {
            self.losses_since = now;
        }
        self.losses += 1;
        self.losses >= LOSSES_MAX && now.since(self.losses_since) >= patience_ns && self.fall()
    }

    /// Nothing has been heard for `count` probe timeouts. True if packets are to be smaller.
    pub(crate) fn on_probe_timeouts(&mut self, count: u32) -> bool {
        count >= PROBE_TIMEOUTS && count.is_multiple_of(PROBE_TIMEOUTS) && self.fall()
    }

    /// The peer, which is alive and has room, has called for `count` probes, and nothing has been
    /// acknowledged. True if packets are to be smaller.
    pub(crate) fn on_called_probes(&mut self, count: u32) -> bool {
        count > 0 && count.is_multiple_of(CALLED_PROBES) && self.fall()
    }

    /// The network says that packets of more than `bytes` do not pass, or 0 if only that there is
    /// a limit. True if that is news.
    pub(crate) fn on_too_big(&mut self, now: Time, bytes: u16) -> bool {
        if bytes == 0 {
            return self.fall();
        }
        let bytes = bytes.max(MIN_BYTES);
        if bytes >= self.bytes {
            self.narrow(now, bytes);
            return false;
        }
        self.bytes = bytes;
        self.losses = 0;
        self.search = Search::Done { raise_at: now + RAISE_NS };
        true
    }

    /// The own link takes packets of up to `bytes` from now on. True if packets are to be smaller.
    pub(crate) fn set_link(&mut self, now: Time, bytes: u16) -> bool {
        let before = self.limit();
        self.link_bytes = bytes;
        if self.limit() > before {
            self.search_to_limit();
            return false;
        }
        self.on_too_big(now, bytes)
    }

    /// What both hosts and the own link take.
    fn limit(&self) -> u16 {
        self.bytes_max.min(self.link_bytes)
    }

    /// The size to fall back to.
    fn floor(&self) -> u16 {
        if self.bytes > BASE_BYTES { BASE_BYTES } else { MIN_BYTES.min(self.bytes) }
    }

    fn fall(&mut self) -> bool {
        let floor = self.floor();
        if self.bytes == floor {
            return false;
        }
        self.bytes = floor;
        self.losses = 0;
        self.search_below(self.limit());
        true
    }

    fn search_to_limit(&mut self) {
        if self.bytes < self.limit() {
            self.search_below(self.limit());
        }
    }

    /// Begins with the largest: it may have been something else that kept packets from arriving.
    fn search_below(&mut self, below: u16) {
        self.search = Search::Open { below, probe: below, failures: 0, is_under_way: false };
    }

    /// A probe was too large. What the network says instead is the next size to try (RFC 8899,
    /// 4.6.2).
    fn narrow(&mut self, now: Time, bytes: u16) {
        match self.search {
            Search::Open { below, .. } if self.bytes < bytes && bytes < below => {
                self.search_below(bytes);
            }
            Search::Open { .. } if bytes == self.bytes => self.go_on(now, bytes),
            _ => {}
        }
    }

    fn go_on(&mut self, now: Time, below: u16) {
        self.search = if below < self.bytes + STEP_BYTES {
            let is_best = self.bytes == self.limit();
            Search::Done { raise_at: if is_best { Time::MAX } else { now + RAISE_NS } }
        } else {
            let probe = self.bytes + (below - self.bytes).div_ceil(2);
            Search::Open { below, probe, failures: 0, is_under_way: false }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{PathMtu, RAISE_NS};
    use clearway_base::Time;

    /// Sends probes over a path that takes packets of `bytes`; returns how many were lost.
    fn search(mtu: &mut PathMtu, now: Time, bytes: u16) -> u32 {
        let mut lost = 0;
        while let Some(probe) = mtu.probe_bytes() {
            mtu.on_probe_sent();
            assert_eq!(mtu.probe_bytes(), None, "one at a time");
            if probe <= bytes {
                assert!(mtu.on_acked(now, u32::from(probe)));
            } else {
                lost += 1;
                mtu.on_probe_lost(now);
            }
        }
        lost
    }

    #[test]
    fn finds_what_the_path_takes_after_a_black_hole() {
        for (most, path) in [(8972, 1472), (8972, 8950), (8972, 1200), (1472, 1392), (1472, 1472)] {
            let mut mtu = PathMtu::new(most, most);
            assert_eq!((mtu.bytes(), mtu.probe_bytes()), (most, None));
            assert!((0..20).all(|_| !mtu.on_lost(Time::ZERO, u32::from(most), 9)), "one burst");
            assert!(mtu.on_lost(Time::from_ns(9), u32::from(most), 9));
            assert_eq!(mtu.bytes(), 1200);
            let lost = search(&mut mtu, Time::ZERO, path);
            assert!(mtu.bytes() <= path && mtu.bytes() + 16 > path, "{path}: {}", mtu.bytes());
            assert!(lost <= 30, "{path}: {lost} probes lost");
        }
    }

    #[test]
    fn silence_leads_down_to_what_every_host_takes() {
        let mut mtu = PathMtu::new(1472, 1472);
        assert!(!mtu.on_probe_timeouts(1));
        assert!(mtu.on_probe_timeouts(2));
        assert!(!mtu.on_probe_timeouts(3));
        assert!(mtu.on_probe_timeouts(4));
        assert_eq!(mtu.bytes(), 548);
        assert!(!mtu.on_probe_timeouts(6), "there is nothing smaller");
        search(&mut mtu, Time::ZERO, 600);
        assert!((585..=600).contains(&mtu.bytes()), "{}", mtu.bytes());
    }

    #[test]
    fn what_the_network_says_holds_for_ten_minutes() {
        let mut mtu = PathMtu::new(1472, 1472);
        assert!(!mtu.on_too_big(Time::ZERO, 1472), "no news");
        assert!(mtu.on_too_big(Time::ZERO, 1392));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1392, None));
        mtu.on_acked(Time::from_ns(RAISE_NS - 1), 1392);
        assert_eq!(mtu.probe_bytes(), None);
        mtu.on_acked(Time::from_ns(RAISE_NS), 1392);
        assert_eq!(mtu.probe_bytes(), Some(1472));
        assert!(mtu.on_too_big(Time::ZERO, 0));
        assert_eq!(mtu.bytes(), 1200, "a router that does not say what passes");
        assert!(mtu.on_too_big(Time::ZERO, 1));
        assert_eq!(mtu.bytes(), 548, "never less");
    }

    #[test]
    fn what_the_network_says_of_a_probe_is_tried_next() {
        let mut mtu = PathMtu::new(1472, 1472);
        assert!(mtu.on_probe_timeouts(2));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1200, Some(1472)));
        mtu.on_probe_sent();
        assert!(!mtu.on_too_big(Time::ZERO, 1272), "packets are smaller than that already");
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1200, Some(1272)));
        assert!(!mtu.on_too_big(Time::ZERO, 1400), "no larger than what was said before");
        assert_eq!(mtu.probe_bytes(), Some(1272));
        assert!(mtu.on_acked(Time::ZERO, 1272));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1272, None));
    }

    #[test]
    fn now_and_then_a_loss_is_no_black_hole() {
        let mut mtu = PathMtu::new(1472, 1472);
        for _ in 0..100 {
            assert!((0..3).all(|_| !mtu.on_lost(Time::ZERO, 1472, 0)));
            mtu.on_acked(Time::ZERO, 1472);
        }
        assert!((0..100).all(|_| !mtu.on_lost(Time::ZERO, 1200, 0)), "small ones say nothing");
    }

    /// However often the peer calls for probes: the second probe timeout may never come then.
    #[test]
    fn probes_that_a_peer_calls_for_in_vain_are_a_black_hole() {
        let mut mtu = PathMtu::new(1472, 1472);
        let falls: Vec<u32> = (0..40).filter(|count| mtu.on_called_probes(*count)).collect();
        assert_eq!((falls, mtu.bytes()), (vec![8, 16], 548));
    }

    /// What has come down to 1200 bytes, and looks for more.
    fn searching() -> PathMtu {
        let mut mtu = PathMtu::new(1472, 1472);
        assert!(mtu.on_probe_timeouts(2));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1200, Some(1472)));
        mtu
    }

    fn lose_probe(mtu: &mut PathMtu, now: Time) {
        mtu.on_probe_sent();
        mtu.on_probe_lost(now);
    }

    #[test]
    fn small_packets_that_arrive_hide_no_black_hole() {
        let mut mtu = PathMtu::new(1472, 1472);
        for at in 0..4 {
            assert!(!mtu.on_lost(Time::from_ns(at), 1472, 9));
            mtu.on_acked(Time::from_ns(at), 1200);
        }
        assert!(mtu.on_lost(Time::from_ns(9), 1472, 9));
    }

    /// RFC 8899, 5.1.2: MAX_PROBES.
    #[test]
    fn a_size_is_tried_three_times() {
        let mut mtu = searching();
        for expected in [1472, 1472, 1472, 1336] {
            assert_eq!(mtu.probe_bytes(), Some(expected));
            lose_probe(&mut mtu, Time::ZERO);
        }
    }

    #[test]
    fn a_search_ends_within_sixteen_bytes_and_begins_again_ten_minutes_later() {
        let now = Time::from_ns(2 * RAISE_NS);
        for (said, next) in [(1232, None), (1233, Some(1224))] {
            let mut mtu = searching();
            mtu.on_too_big(now, said);
            (0..3).for_each(|_| lose_probe(&mut mtu, now));
            assert_eq!(mtu.probe_bytes(), Some(1216));
            assert!(mtu.on_acked(now, 1216));
            assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1216, next));
            if next.is_none() {
                mtu.on_acked(now + (RAISE_NS - 1), 1216);
                assert_eq!(mtu.probe_bytes(), None);
                mtu.on_acked(now + RAISE_NS, 1216);
                assert_eq!(mtu.probe_bytes(), Some(1472));
            }
        }
    }

    #[test]
    fn what_the_own_link_takes_is_tried_at_once() {
        let mut mtu = PathMtu::new(32_972, 1472);
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1472, None));
        assert!(!mtu.set_link(Time::ZERO, 1472), "no news");
        assert_eq!(mtu.probe_bytes(), None);
        // The other end of the link has said that it takes more, and then less than both hosts do.
        assert!(!mtu.set_link(Time::ZERO, 40_000));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (1472, Some(32_972)));
        assert_eq!(search(&mut mtu, Time::ZERO, 40_000), 0);
        assert_eq!(mtu.bytes(), 32_972);
        assert!(!mtu.set_link(Time::ZERO, 50_000));
        assert_eq!(mtu.probe_bytes(), None, "the peer takes no more");
        assert!(mtu.set_link(Time::ZERO, 8972));
        assert_eq!((mtu.bytes(), mtu.probe_bytes()), (8972, None));
        // A black hole is searched up to what the link takes, and no further.
        assert!(mtu.on_probe_timeouts(2));
        assert_eq!(mtu.probe_bytes(), Some(8972));
        // Behind the link is a router of a narrower one.
        assert!(!mtu.set_link(Time::ZERO, 32_972));
        search(&mut mtu, Time::ZERO, 1472);
        assert!((1457..=1472).contains(&mtu.bytes()), "{}", mtu.bytes());
    }

    #[test]
    fn what_is_restored_searches_up_to_what_both_hosts_and_the_link_take() {
        let restored = |saved, link| {
            let mtu = PathMtu::restore(saved, link).expect("a size that there is");
            (mtu.bytes(), mtu.probe_bytes(), mtu.save().1)
        };
        assert_eq!(restored((32_972, 32_972), 1472), (1472, None, 32_972), "it may grow again");
        assert_eq!(restored((1472, 32_972), 8972), (1472, Some(8972), 32_972));
        assert_eq!(restored((1472, 1472), 8972), (1472, None, 1472));
    }

    #[test]
    fn a_search_heeds_what_is_said_between_its_ends() {
        let mut mtu = searching();
        mtu.on_probe_sent();
        mtu.on_too_big(Time::ZERO, 1472);
        assert_eq!(mtu.probe_bytes(), None, "that is under way");
        mtu.on_too_big(Time::ZERO, 1200);
        assert_eq!(mtu.probe_bytes(), None, "nothing larger passes");
        mtu.on_acked(Time::from_ns(RAISE_NS), 1200);
        assert_eq!(mtu.probe_bytes(), Some(1472));
    }
}
