//! The cache as plain data, and back. What is due when, and who is without an answer, follows from
//! the entries.

use clearway_base::Time;
use clearway_base::state::{Invalid, ensure};
use core::net::IpAddr;
use serde::{Deserialize, Serialize};

use super::{
    ENTRIES_MAX, Entry, FAILED_DOUBLINGS_MAX, FAILED_NS, Neighbours, QUESTIONS_MAX, Question,
    REACHABLE_NS, RETRY_NS, State, UNANSWERED_MAX,
};

/// All neighbours, and what is to be asked and told of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NeighboursState {
    pub(super) entries: Vec<(IpAddr, Entry)>,
    pub(super) questions: Vec<Question>,
    pub(super) settled: Vec<(IpAddr, bool)>,
}

impl Neighbours {
    pub(crate) fn save(&self) -> NeighboursState {
        NeighboursState {
            entries: self.entries.iter().map(|(who, entry)| (*who, *entry)).collect(),
            questions: self.questions.iter().copied().collect(),
            settled: self.settled.iter().copied().collect(),
        }
    }

    /// These neighbours, of which nothing is known, as they were saved and can be at `now`.
    pub(crate) fn restore(mut self, saved: NeighboursState, now: Time) -> Result<Self, Invalid> {
        let NeighboursState { entries, questions, settled } = saved;
        let counts = [entries.len(), questions.len(), settled.len()];
        let most = [ENTRIES_MAX, QUESTIONS_MAX, ENTRIES_MAX];
        ensure(counts.iter().zip(most).all(|(count, most)| *count <= most), "too many neighbours")?;
        for (who, entry) in entries {
            self.enter(who, entry.at(now))?;
        }
        ensure(self.unanswered.len() <= UNANSWERED_MAX, "too many neighbours are asked for")?;
        self.questions = questions.into();
        self.settled = settled.into();
        Ok(self)
    }

    fn enter(&mut self, who: IpAddr, entry: Entry) -> Result<(), Invalid> {
        let is_known = entry.state.mac().is_some();
        ensure(is_known == entry.unanswered.is_none(), "a neighbour that is known and is not")?;
        self.deadlines.extend(entry.state.deadline().map(|deadline| (deadline, who)));
        self.unanswered.extend(entry.unanswered.map(|since| (since, who)));
        ensure(self.entries.insert(who, entry).is_none(), "a neighbour that is there twice")
    }
}

impl Entry {
    /// The entry, with times that there can be at `now`.
    fn at(mut self, now: Time) -> Self {
        for past in [&mut self.used, &mut self.doubted, &mut self.unanswered] {
            *past = past.map(|past| past.min(now));
        }
        match &mut self.state {
            State::Incomplete { deadline, .. } | State::Probing { deadline, .. } => {
                *deadline = (*deadline).min(now + RETRY_NS);
            }
            State::Reachable { until, .. } => *until = (*until).min(now + REACHABLE_NS),
            State::Failed { until } => {
                *until = (*until).min(now + (FAILED_NS << FAILED_DOUBLINGS_MAX));
            }
        }
        self
    }
}
