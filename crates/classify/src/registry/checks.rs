//! Checks in the works: which VIF is compared with what is there, and how far that has come.
//!
//! Each user's checks are made one after the other, and users take turns. What is registered while
//! a check is on its way is compared with it in the end; what is removed meanwhile is not there any
//! more when its turn comes.

use super::overlaps::{Cursor, Overlaps, Search};
use super::{Refusal, Registry, UserId, Vif, VifId, limits};
use crate::{Clause, Filter};
use std::collections::{BTreeMap, VecDeque};

/// Names a check that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckId(u64);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Checks {
    queues: BTreeMap<UserId, VecDeque<Check>>,
    /// Users with checks, the next one first.
    turns: VecDeque<UserId>,
    next: u64,
}

/// A VIF that is to be compared with those that are there.
#[derive(Debug)]
struct Check {
    id: CheckId,
    vif: Vif,
    stage: Stage,
    /// The clause of the stage's filter that is being compared.
    clause: usize,
    cursor: Cursor,
    /// What has been registered since it began.
    since: VecDeque<VifId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Send,
    Receive,
    Since,
}

/// How a slice ended.
enum Outcome {
    Unfinished,
    Decided(Result<(), Refusal>),
}

impl Registry {
    /// Begins to check whether a VIF can be registered. [`Registry::advance`] goes on with that,
    /// and says what has come out.
    pub fn begin(&mut self, vif: Vif) -> Result<CheckId, Refusal> {
        self.admit(&vif)?;
        self.check_reserved(&vif)?;
        Ok(self.checks.push(vif))
    }

    /// Forgets a check; nothing if it has been decided.
    pub fn cancel(&mut self, id: CheckId) {
        self.checks.cancel(id);
    }

    /// True if there is something to advance.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        !self.checks.turns.is_empty()
    }

    /// Works on one user's first check, for about as many comparisons as are `left`. Returns it if
    /// it is decided; then its VIF is registered, or refused.
    pub fn advance(&mut self, left: &mut usize) -> Option<(CheckId, Result<VifId, Refusal>)> {
        let user = self.checks.turns.pop_front()?;
        let queue = self.checks.queues.get_mut(&user).expect("who has a turn has a check");
        let mut check = queue.pop_front().expect("queues are not empty");
        let result = match self.step(&mut check, left) {
            Outcome::Unfinished => {
                self.checks.resume(user, check);
                return None;
            }
            Outcome::Decided(result) => result,
        };
        self.checks.finish(user);
        *left = left.saturating_sub(limits::clauses(&check.vif) * (1 + self.reserved.len()));
        let result = result.and_then(|()| self.admit(&check.vif));
        let result = result.and_then(|()| self.check_reserved(&check.vif));
        let result = result.map(|()| self.insert(check.vif));
        if let Ok(vif) = result {
            self.checks.note(vif);
        }
        Some((check.id, result))
    }

    fn step(&self, check: &mut Check, left: &mut usize) -> Outcome {
        loop {
            let outcome = match check.stage {
                Stage::Waiting => Ok(true),
                Stage::Send => self.step_send(check, left),
                Stage::Receive => self.step_receive(check, left),
                Stage::Since => self.step_since(check, left),
            };
            match outcome {
                Err(refusal) => return Outcome::Decided(Err(refusal)),
                Ok(false) => return Outcome::Unfinished,
                Ok(true) if check.stage == Stage::Since => return Outcome::Decided(Ok(())),
                Ok(true) => check.go_on(),
            }
        }
    }

    /// True once all of the send filter has been compared.
    fn step_send(&self, check: &mut Check, left: &mut usize) -> Result<bool, Refusal> {
        let Check { vif, clause, cursor, .. } = check;
        let wanted = clauses(&vif.send);
        let collides = |other| self.collide_by_sending(vif, other);
        match look(&self.send, wanted, clause, cursor, left, collides) {
            Search::Unfinished => Ok(false),
            Search::Nothing => Ok(true),
            Search::Found(other, theirs) => {
                Err(self.refusal_by_sending(wanted[*clause], theirs, other))
            }
        }
    }

    /// True once all of the receive filter has been compared.
    fn step_receive(&self, check: &mut Check, left: &mut usize) -> Result<bool, Refusal> {
        let Check { vif, clause, cursor, .. } = check;
        let wanted = clauses(&vif.receive);
        let collides = |other| self.collide_by_receiving(vif, other);
        match look(&self.receive, wanted, clause, cursor, left, collides) {
            Search::Unfinished => Ok(false),
            Search::Nothing => Ok(true),
            Search::Found(other, theirs) => {
                Err(self.refusal_by_receiving(wanted[*clause], theirs, other))
            }
        }
    }

    /// True once what came meanwhile has been compared.
    fn step_since(&self, check: &mut Check, left: &mut usize) -> Result<bool, Refusal> {
        while let Some(other) = check.since.pop_front() {
            let Some(theirs) = self.vif(other) else { continue };
            let vif = &check.vif;
            *left = left.saturating_sub(pairs(vif, theirs));
            if self.collide_by_sending(vif, other)
                && let Some((wanted, theirs)) = overlap(&vif.send, &theirs.send)
            {
                return Err(self.refusal_by_sending(wanted, theirs, other));
            }
            if self.collide_by_receiving(vif, other)
                && let Some((wanted, theirs)) = overlap(&vif.receive, &theirs.receive)
            {
                return Err(self.refusal_by_receiving(wanted, theirs, other));
            }
            if *left == 0 && !check.since.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn collide_by_sending(&self, vif: &Vif, other: VifId) -> bool {
        self.vif(other).is_some_and(|other| other.owner != vif.owner)
    }

    fn collide_by_receiving(&self, vif: &Vif, other: VifId) -> bool {
        self.vif(other)
            .is_some_and(|other| other.owner != vif.owner && other.priority == vif.priority)
    }

    fn refusal_by_sending(&self, wanted: Clause, theirs: Clause, other: VifId) -> Refusal {
        let owner = self.vifs.find(other.0).expect("it was found").vif.owner;
        Refusal::Send { wanted: wanted.into(), existing: theirs.into(), owner }
    }

    fn refusal_by_receiving(&self, wanted: Clause, theirs: Clause, other: VifId) -> Refusal {
        let Vif { owner, priority, .. } = self.vifs.find(other.0).expect("it was found").vif;
        Refusal::Receive { wanted: wanted.into(), existing: theirs.into(), owner, priority }
    }
}

impl Check {
    /// The next stage.
    fn go_on(&mut self) {
        (self.clause, self.cursor) = (0, Cursor::default());
        self.stage = match self.stage {
            Stage::Waiting => Stage::Send,
            Stage::Send => Stage::Receive,
            Stage::Receive | Stage::Since => Stage::Since,
        };
    }
}

impl Checks {
    fn push(&mut self, vif: Vif) -> CheckId {
        self.next += 1;
        let (id, user) = (CheckId(self.next), vif.user);
        let queue = self.queues.entry(user).or_default();
        if queue.is_empty() {
            self.turns.push_back(user);
        }
        queue.push_back(Check {
            id,
            vif,
            stage: Stage::Waiting,
            clause: 0,
            cursor: Cursor::default(),
            since: VecDeque::new(),
        });
        id
    }

    fn cancel(&mut self, id: CheckId) {
        self.queues.retain(|_, queue| {
            queue.retain(|check| check.id != id);
            !queue.is_empty()
        });
        self.turns.retain(|user| self.queues.contains_key(user));
    }

    /// A check that is not decided goes on when its user has the next turn.
    fn resume(&mut self, user: UserId, check: Check) {
        self.queues.entry(user).or_default().push_front(check);
        self.turns.push_back(user);
    }

    /// The first check of a user, which has been taken out, is decided.
    fn finish(&mut self, user: UserId) {
        if self.queues.get(&user).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&user);
        } else {
            self.turns.push_back(user);
        }
    }

    /// Those that have begun do not know this VIF.
    fn note(&mut self, vif: VifId) {
        let begun = self.queues.values_mut().filter_map(VecDeque::front_mut);
        for check in begun.filter(|check| check.stage != Stage::Waiting) {
            check.since.push_back(vif);
        }
    }
}

fn clauses(filter: &Option<Filter>) -> &[Clause] {
    filter.as_ref().map_or(&[], Filter::clauses)
}

/// Looks for what collides with one of `clauses`, from the one of this number on.
fn look(
    there: &Overlaps,
    clauses: &[Clause],
    clause: &mut usize,
    cursor: &mut Cursor,
    left: &mut usize,
    collides: impl Fn(VifId) -> bool,
) -> Search {
    while let Some(wanted) = clauses.get(*clause) {
        match there.find(wanted, cursor, left, &collides) {
            Search::Nothing => (*clause, *cursor) = (*clause + 1, Cursor::default()),
            found_or_unfinished => return found_or_unfinished,
        }
    }
    Search::Nothing
}

/// Clauses of two filters that overlap.
fn overlap(one: &Option<Filter>, other: &Option<Filter>) -> Option<(Clause, Clause)> {
    let theirs = other.as_ref()?.clauses();
    one.as_ref()?
        .clauses()
        .iter()
        .find_map(|wanted| Some((*wanted, *theirs.iter().find(|theirs| theirs.overlaps(wanted))?)))
}

/// How many pairs of clauses there are to compare.
fn pairs(one: &Vif, other: &Vif) -> usize {
    1 + clauses(&one.send).len() * clauses(&other.send).len()
        + clauses(&one.receive).len() * clauses(&other.receive).len()
}
