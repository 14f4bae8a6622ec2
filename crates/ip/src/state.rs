//! The IP layer of a NIC as plain data, and back: what it has learnt, and what it is about to say.
//!
//! What follows from the configuration (addresses, routes, MTU) is not in it: who restores has that
//! as it is now, and nothing of it is found out by listening.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use serde::{Deserialize, Serialize};

use super::Interface;
use super::conflicts::{Conflicts, ConflictsState};
use super::drops::Drops;
use super::neighbours::NeighboursState;
use super::outbox::Outbox;
use super::reassembly::{Making, Reassembly};

/// What is saved of an [`Interface`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceState {
    neighbours: NeighboursState,
    /// Frames that wait, the oldest first.
    pub(super) outbox: Vec<Vec<u8>>,
    /// How many answers are left, and since when: to echo requests, and to neighbours.
    echo_answers: (u64, Time),
    /// See `echo_answers`.
    neighbour_answers: (u64, Time),
    /// How many ICMP errors may be looked at, and since when.
    undelivered: (u64, Time),
    /// What was dropped, by reason.
    drops: Vec<(String, u64)>,
    conflicts: ConflictsState,
    /// Packets in the making, the oldest first.
    reassembly: Vec<Making>,
}

impl Interface {
    /// All that another interface needs to go on.
    #[must_use]
    pub fn save(&self) -> InterfaceState {
        InterfaceState {
            neighbours: self.neighbours.save(),
            outbox: self.outbox.frames().map(<[u8]>::to_vec).collect(),
            echo_answers: self.echo_answers.save(),
            neighbour_answers: self.neighbour_answers.save(),
            undelivered: self.undelivered.save(),
            drops: self.drops.iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            conflicts: self.conflicts.save(),
            reassembly: self.reassembly.save(),
        }
    }

    /// This interface, which is new, going on at `now` where another one was saved. Nothing of
    /// `saved` is trusted. What has changed of addresses and routes since it was saved, it has to
    /// be told after that ([`Interface::reconfigure`]): then new addresses are announced.
    pub fn restore(mut self, saved: InterfaceState, now: Time) -> Result<Self, Invalid> {
        self.neighbours = self.neighbours.restore(saved.neighbours, now)?;
        self.outbox = Outbox::restore(&saved.outbox)?;
        self.echo_answers.go_on(saved.echo_answers, now);
        self.neighbour_answers.go_on(saved.neighbour_answers, now);
        self.undelivered.go_on(saved.undelivered, now);
        self.drops = Drops::restore(&saved.drops);
        self.conflicts = Conflicts::restore(saved.conflicts, now)?;
        self.reassembly = Reassembly::restore(saved.reassembly, now)?;
        Ok(self)
    }
}

impl Outbox {
    fn restore(frames: &[Vec<u8>]) -> Result<Self, Invalid> {
        let mut outbox = Self::new();
        for frame in frames {
            let fits =
                !frame.is_empty() && outbox.push(frame.len(), |to| to.copy_from_slice(frame));
            ensure(fits, "frames that wait and do not fit")?;
        }
        Ok(outbox)
    }
}
