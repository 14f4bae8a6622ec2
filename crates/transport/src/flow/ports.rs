//! The UDP port that a flow sends from, and the search for one whose packets come straight to the
//! peer's engine: at the beginning, and whenever the peer's NIC spreads packets in another way.
//! The other direction is the peer's business; what it is told about it is in `arrivals`.

use clearway_base::state::{Invalid, ensure};
use clearway_base::{MILLISECOND, Random, SECOND, Time};
use clearway_wire::clearway::ENGINES_MAX;

use super::spray::{Known, SOURCE_PORT_MIN, Spray, WAVES_MAX, random_port};
use crate::config::Config;
use crate::state::PortsState;

/// The round of syn-acks. Probes have later ones.
const SET_UP: u16 = 0;
/// Between the beginnings of two searches that succeed: a peer, or a NIC, whose mapping changes all
/// the time makes no flood of probes.
const REST_NS: u64 = 10 * MILLISECOND;
/// After a search that did not; doubles with each further one.
const REST_FRUITLESS_NS_MIN: u64 = SECOND;
const REST_FRUITLESS_NS_MAX: u64 = 64 * SECOND;

/// Where this side's packets are sent from.
#[derive(Debug)]
#[repr(C)] // each packet asks for the first two only
pub(super) struct Ports {
    spray: Option<Box<Spray>>,
    /// What all packets are sent from but those of a search.
    current: u16,
    /// Packets from there come straight to the peer's engine, as far as is known.
    is_direct: bool,
    peer_engines: u8,
    /// Which search this is, or was the last.
    round: u16,
    /// The peer has named a path that was found in it.
    is_answered: bool,
    /// The peer has asked for it. If not, there may be nothing to find, and one wave is enough.
    is_wanted: bool,
    random: Random,
    /// When the last search began.
    searched: Time,
    /// No new search before that.
    rest_until: Time,
    rest_fruitless_ns: u64,
}

impl Ports {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            current: random_port(&mut random),
            random,
            is_direct: false,
            peer_engines: 1,
            round: SET_UP,
            is_answered: false,
            is_wanted: true,
            spray: None,
            searched: Time::ZERO,
            rest_until: Time::ZERO,
            rest_fruitless_ns: REST_FRUITLESS_NS_MIN,
        }
    }

    pub(super) fn save(&self) -> PortsState {
        PortsState {
            current: self.current,
            is_direct: self.is_direct,
            peer_engines: self.peer_engines,
            round: self.round,
            is_answered: self.is_answered,
            is_wanted: self.is_wanted,
            random: self.random.state(),
            searched: self.searched,
            rest_until: self.rest_until,
            rest_fruitless_ns: self.rest_fruitless_ns,
            spray: self.spray.as_ref().map(|spray| spray.save()),
        }
    }

    pub(super) fn restore(state: &PortsState) -> Result<Self, Invalid> {
        let is_known = (1..=ENGINES_MAX).contains(&state.peer_engines);
        ensure(is_known, "a peer of no engines, or too many")?;
        ensure(state.current >= SOURCE_PORT_MIN, "a port that no flow sends from")?;
        Ok(Self {
            spray: state.spray.as_ref().map(Spray::restore).transpose()?.map(Box::new),
            current: state.current,
            is_direct: state.is_direct,
            peer_engines: state.peer_engines,
            round: state.round,
            is_answered: state.is_answered,
            is_wanted: state.is_wanted,
            random: Random::new(state.random),
            searched: state.searched,
            rest_until: state.rest_until,
            rest_fruitless_ns: state.rest_fruitless_ns.min(REST_FRUITLESS_NS_MAX),
        })
    }

    /// What the next packet is sent from.
    pub(super) fn next(&self) -> u16 {
        self.spray.as_ref().filter(|spray| spray.is_due()).map_or(self.current, |s| s.port())
    }

    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    // ---- searching ----

    /// Begins to look for the engine that listens, for syns. `guess`: how many engines the peer
    /// has.
    pub(super) fn look_for_listener(
        &mut self,
        now: Time,
        config: &Config,
        known: Option<Known>,
        guess: u8,
    ) {
        let random = self.fresh_random();
        self.spray = Some(Box::new(match known {
            Some(known) => Spray::to_known(now, config, random, known),
            None => Spray::to_unknown(now, config, random, guess),
        }));
    }

    /// The listener's engine has been found from `port`: the next syn goes there. Returns what is
    /// known of the peer now, given what was before. `None` if no flow may send from `port`.
    pub(super) fn pin(
        &mut self,
        now: Time,
        config: &Config,
        before: Option<Known>,
        engines: u8,
        port: u16,
    ) -> Option<Known> {
        let spray = self.spray.as_ref().filter(|_| port >= SOURCE_PORT_MIN)?;
        let sample_ns = spray.round_trip_ns(now);
        let rtt_ns = match before.map(|before| before.rtt_ns) {
            Some(before_ns) if spray.is_first_wave() => before_ns - before_ns / 8 + sample_ns / 8,
            Some(before_ns) => before_ns,
            None => sample_ns,
        };
        let known = Known { engines, rtt_ns };
        let is_desperate = spray.is_desperate();
        let pinned = Spray::pinned(now, config, self.fresh_random(), known, port);
        self.spray = Some(Box::new(if is_desperate { pinned.desperate() } else { pinned }));
        Some(known)
    }

    /// Begins to look for the client's engine, for syn-acks.
    pub(super) fn look_for_client(&mut self, now: Time, config: &Config, known: Known) {
        self.peer_engines = known.engines;
        self.is_direct = known.engines == 1;
        self.search(now, config, known.rtt_ns);
    }

    /// The client has repeated its syn. If the search is over, one more wave may reach it.
    pub(super) fn repeat(&mut self, now: Time, config: &Config, rtt_ns: u64) {
        let is_over = self.spray.is_none() && now.since(self.searched) >= REST_NS;
        if self.round == SET_UP && !self.is_answered && (is_over || self.peer_engines == 1) {
            self.is_wanted = false;
            self.search(now, config, rtt_ns);
        }
    }

    fn search(&mut self, now: Time, config: &Config, rtt_ns: u64) {
        let known = Known { engines: self.peer_engines, rtt_ns };
        let waves_max = if self.is_wanted && known.engines > 1 { WAVES_MAX } else { 1 };
        let spray = Spray::to_known(now, config, self.fresh_random(), known);
        self.spray = Some(Box::new(spray.bounded(waves_max)));
        (self.is_answered, self.searched) = (false, now);
        self.rest_until = self.rest_until.max(now + REST_NS);
    }

    fn search_again(&mut self, now: Time, config: &Config, rtt_ns: u64, is_wanted: bool) {
        self.round = self.round.checked_add(1).unwrap_or(SET_UP + 1);
        self.is_wanted = is_wanted;
        self.search(now, config, rtt_ns);
    }

    fn fresh_random(&mut self) -> Random {
        Random::new(self.random.next_u64())
    }

    // ---- the packets of a search ----

    pub(super) fn is_spraying(&self) -> bool {
        self.spray.as_ref().is_some_and(|spray| spray.is_due())
    }

    /// A wrong engine is better than none.
    pub(super) fn is_desperate(&self) -> bool {
        self.spray.as_ref().is_some_and(|spray| spray.is_desperate())
    }

    /// What is sent now has been sent before, and got no answer in time.
    pub(super) fn has_repeated(&self) -> bool {
        self.spray.as_ref().is_some_and(|spray| !spray.is_first_wave())
    }

    /// The round of the packets to be sent; `None` if they are those of the set-up.
    pub(super) const fn probe_round(&self) -> Option<u16> {
        if self.round == SET_UP { None } else { Some(self.round) }
    }

    /// One of them has been sent. True if it was the first of one more batch.
    pub(super) fn on_sprayed(&mut self, now: Time) -> bool {
        let Some(spray) = &mut self.spray else { return false };
        let begins_retry = spray.begins_retry();
        spray.on_sent(now);
        begins_retry
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.spray.as_ref().map_or(Time::MAX, |spray| spray.next_timeout())
    }

    /// Goes on with a search if it is time.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let Some(spray) = &mut self.spray else { return };
        if spray.handle_timeout(now) {
            return;
        }
        self.spray = None;
        if self.is_wanted && self.peer_engines > 1 {
            self.rest_until = now + self.rest_fruitless_ns;
            self.rest_fruitless_ns = (2 * self.rest_fruitless_ns).min(REST_FRUITLESS_NS_MAX);
        }
    }

    /// Ends the search, whatever has come of it.
    pub(super) fn stop(&mut self) {
        self.spray = None;
    }

    // ---- from the peer ----

    /// The server's syn-ack names the port that its syn came from: no more syns.
    pub(super) fn on_accepted(&mut self, engines: u8, port: u16) {
        self.peer_engines = engines;
        self.spray = None;
        self.on_path(port, SET_UP);
    }

    /// Packets from `port`, such as were sent in `round`, come straight to the peer's engine.
    pub(super) fn on_path(&mut self, port: u16, round: u16) {
        if round != self.round || self.is_answered || port < SOURCE_PORT_MIN {
            return;
        }
        self.current = port;
        (self.is_direct, self.is_answered) = (true, true);
        self.spray = None;
        self.rest_fruitless_ns = REST_FRUITLESS_NS_MIN;
    }

    /// Packets from `port` take a detour.
    pub(super) fn on_stray(&mut self, now: Time, config: &Config, port: u16, rtt_ns: u64) {
        if port == self.current && self.peer_engines > 1 {
            self.is_direct = false;
            if self.spray.is_none() && self.rest_until <= now {
                self.search_again(now, config, rtt_ns, true);
            }
        }
    }

    /// The peer does not answer a probe for a lost packet, and will be asked again, later and
    /// later. It may be that nobody passes on what comes to a wrong engine of it: one wave each
    /// time.
    pub(super) fn on_silence(&mut self, now: Time, config: &Config, rtt_ns: u64) {
        if self.peer_engines > 1 && self.spray.is_none() {
            self.search_again(now, config, rtt_ns, false);
        }
    }
}

#[cfg(test)]
mod tests;
