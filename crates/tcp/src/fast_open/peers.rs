//! What is known of the peers that this host connects to: RFC 7413, section 4.1.3. Their cookies,
//! the segment size that they have said, and those where Fast Open is of no use.

use core::net::IpAddr;
use std::collections::BTreeMap;

use clearway_base::{SECOND, Time};
use clearway_wire::tcp::{Cookie, FastOpen};
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::saved::{Invalid, ensure};

/// As many peers at first; of more the one is forgotten that was asked for longest ago.
pub(crate) const PEERS_MAX: u32 = 1024;

/// SYNs with data in a row that were lost where a plain one arrived: something on the way may drop
/// them, as RFC 7413, section 7.1, has found.
const LOSSES_MAX: u8 = 2;
/// How long Fast Open is of no use then: doubled with each loss more, up to an hour.
const AVOIDED_NS: u64 = 60 * SECOND;
const DOUBLINGS_MAX: u8 = 6;
/// What FreeBSD has (`Variants::wary_of_fast_open`).
const AVOIDED_AT_ONCE_NS: u64 = 900 * SECOND;

/// All of them.
#[derive(Debug)]
pub(crate) struct Peers {
    known: BTreeMap<IpAddr, Peer>,
    max: usize,
}

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    /// The option that has brought its cookie, which is in it.
    option: Option<FastOpen>,
    segment_bytes: Option<u16>,
    /// It was last asked for, or heard of.
    used: Time,
    /// SYNs with data that were lost, in a row.
    losses: u8,
    /// Until then it is as if nobody wanted Fast Open.
    avoided_until: Time,
    /// How often it was asked for a cookie for nothing: once with the option, then once with the
    /// experimental one.
    refusals: u8,
}

/// How an attempt to connect begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What the SYN says.
    pub(crate) option: Option<FastOpen>,
    /// It may have data.
    pub(crate) has_data: bool,
    /// What the peer has said before of its segments.
    pub(crate) segment_bytes: Option<u16>,
}

/// What has become of an attempt whose SYN has been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// What the SYN has said, and whether it had data.
    pub(crate) asked: Option<FastOpen>,
    pub(crate) had_data: bool,
    /// All of that is acknowledged; the SYN was sent again, without it.
    pub(crate) is_taken: bool,
    pub(crate) was_resent: bool,
    /// What the answer says.
    pub(crate) answer: Option<FastOpen>,
    pub(crate) segment_bytes: Option<u16>,
}

/// What is saved of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPeer {
    /// Its address.
    pub address: IpAddr,
    /// Its cookie; nothing if there is none.
    pub cookie: Vec<u8>,
    /// The cookie has come with the experimental option.
    pub is_experimental: bool,
    /// The segment size that it has said.
    pub segment_bytes: Option<u16>,
    /// When it was last asked for.
    pub used: Time,
    /// SYNs with data that were lost in a row, and until when there are none therefore.
    pub losses: u8,
    /// See `losses`.
    pub avoided_until: Time,
    /// How often it was asked for a cookie for nothing.
    pub refusals: u8,
}

impl Peers {
    pub(crate) fn new(max: u32) -> Self {
        Self { known: BTreeMap::new(), max: max as usize }
    }

    /// As many are kept from now on.
    pub(crate) fn set_max(&mut self, max: u32) {
        self.max = max as usize;
        while self.known.len() > self.max {
            self.forget_oldest();
        }
    }

    /// Nothing is known of anybody.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// True if a SYN to a peer may have data at once.
    pub(crate) fn may_have_data(&self, now: Time, peer: IpAddr, settings: &Settings) -> bool {
        self.look_up(now, peer, settings).has_data
    }

    /// How an attempt to connect to a peer begins.
    pub(crate) fn plan(&mut self, now: Time, peer: IpAddr, settings: &Settings) -> Plan {
        if let Some(known) = self.known.get_mut(&peer) {
            known.used = now;
        }
        self.look_up(now, peer, settings)
    }

    fn look_up(&self, now: Time, peer: IpAddr, settings: &Settings) -> Plan {
        let known = self.known.get(&peer);
        let segment_bytes = known.and_then(|known| known.segment_bytes);
        let plan = |option, has_data| Plan { option, has_data, segment_bytes };
        match known {
            Some(known) if now < known.avoided_until => plan(None, false),
            _ if settings.fast_open.without_cookies => plan(None, true),
            Some(Peer { option: Some(option), .. }) => plan(Some(*option), true),
            _ => {
                let was_refused = known.is_some_and(|known| known.refusals == 1);
                let is_experimental = was_refused && settings.variants.experimental_fast_open;
                plan(Some(FastOpen { cookie: None, is_experimental }), false)
            }
        }
    }

    /// A peer has answered.
    pub(crate) fn learn(&mut self, now: Time, peer: IpAddr, settings: &Settings, seen: &Outcome) {
        let nothing = Peer {
            option: None,
            segment_bytes: None,
            used: now,
            losses: 0,
            avoided_until: Time::ZERO,
            refusals: 0,
        };
        let mut known = self.known.get(&peer).copied().unwrap_or(nothing);
        known.used = now;
        known.learn(now, settings, seen);
        if !self.known.contains_key(&peer) && self.known.len() >= self.max {
            self.forget_oldest();
        }
        if self.known.len() < self.max || self.known.contains_key(&peer) {
            self.known.insert(peer, known);
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
        if let Some(address) = oldest.map(|(address, _)| *address) {
            self.known.remove(&address);
        }
    }

    pub(crate) fn save(&self) -> Vec<SavedPeer> {
        let save = |(address, known): (&IpAddr, &Peer)| SavedPeer {
            address: *address,
            cookie: known.cookie().map(|cookie| cookie.to_vec()).unwrap_or_default(),
            is_experimental: known.option.is_some_and(|option| option.is_experimental),
            segment_bytes: known.segment_bytes,
            used: known.used,
            losses: known.losses,
            avoided_until: known.avoided_until,
            refusals: known.refusals,
        };
        self.known.iter().map(save).collect()
    }

    /// Those that were saved; no time is later than `now`, or too far away.
    pub(crate) fn restore(now: Time, max: u32, saved: Vec<SavedPeer>) -> Result<Self, Invalid> {
        let mut peers = Self::new(max);
        for peer in saved {
            let is_known = peers.known.contains_key(&peer.address);
            ensure(!is_known, "two cookies of one peer")?;
            let option = match peer.cookie.as_slice() {
                [] => None,
                bytes => Some(FastOpen {
                    cookie: Some(Cookie::new(bytes).ok_or(Invalid("that is no cookie"))?),
                    is_experimental: peer.is_experimental,
                }),
            };
            let latest = now + (AVOIDED_NS << DOUBLINGS_MAX);
            peers.known.insert(
                peer.address,
                Peer {
                    option,
                    segment_bytes: peer.segment_bytes,
                    used: peer.used.min(now),
                    losses: peer.losses,
                    avoided_until: peer.avoided_until.min(latest),
                    refusals: peer.refusals,
                },
            );
        }
        peers.set_max(max);
        Ok(peers)
    }
}

impl Peer {
    fn cookie(&self) -> Option<Cookie> {
        self.option.and_then(|option| option.cookie)
    }

    fn learn(&mut self, now: Time, settings: &Settings, seen: &Outcome) {
        self.segment_bytes = seen.segment_bytes.or(self.segment_bytes);
        // Who was not asked, and gives a cookie all the same, may be anybody.
        let answer = seen.answer.filter(|answer| answer.cookie.is_some() && seen.asked.is_some());
        let wants_cookie = seen.asked.is_some_and(|asked| asked.cookie.is_none());
        match (answer, seen.asked) {
            (Some(answer), _) => self.option = Some(answer),
            // An option that was lost with its SYN has not been refused.
            (None, Some(asked)) if wants_cookie && !seen.was_resent => {
                self.refusals = self.refusals.max(1 + u8::from(asked.is_experimental));
            }
            _ => {}
        }
        // Whoever answers the SYN that was sent again, and says nothing of the first one, has
        // presumably not got that.
        let is_lost = seen.was_resent && seen.had_data && !seen.is_taken && answer.is_none();
        self.losses = if is_lost { self.losses.saturating_add(1) } else { 0 };
        if self.losses >= LOSSES_MAX {
            self.avoided_until = now + (AVOIDED_NS << self.losses.min(DOUBLINGS_MAX));
        }
        let is_of_no_use = wants_cookie || (seen.had_data && !seen.is_taken);
        if settings.variants.wary_of_fast_open && is_of_no_use && answer.is_none() {
            self.option = None;
            self.avoided_until = now + AVOIDED_AT_ONCE_NS;
        }
    }
}

#[cfg(test)]
mod tests;
