//! How many flows other hosts may have opened that have no connections: shared ones, which take
//! none of an app's when they are opened.

use std::net::IpAddr;

use crate::flow::Flow;
use crate::shares::Shares;

/// This part of all flows may be such, at most.
const PART: u32 = 8;

/// Who has opened how many.
#[derive(Debug)]
pub(super) struct Unused {
    shares: Shares,
    count: u32,
    places: u32,
}

impl Unused {
    pub(super) fn new(flows_max: u32) -> Self {
        Self { shares: Shares::default(), count: 0, places: (flows_max / PART).max(1) }
    }

    /// True if `peer` may open one more.
    pub(super) fn allows(&self, peer: IpAddr) -> bool {
        self.shares.allows(peer, self.places.saturating_sub(self.count), self.places)
    }

    /// A flow, if the peer has opened it, has lost its last connection, or has one now, or has
    /// ended.
    pub(super) fn note(&mut self, flow: &Flow, is_unused: bool) {
        let peer = flow.remote().ip();
        match is_unused {
            _ if !flow.was_accepted() => {}
            true => {
                self.count += 1;
                self.shares.take(peer);
            }
            false => {
                self.count -= 1;
                self.shares.give_back(peer);
            }
        }
    }

    /// `count` was found.
    pub(super) fn audit(&self, count: usize) -> Result<(), String> {
        let (counted, held) = (self.count, self.shares.taken());
        if counted == held && held as usize == count {
            return Ok(());
        }
        Err(format!("{count} flows have no connections: {counted} counted, hosts hold {held}"))
    }
}
