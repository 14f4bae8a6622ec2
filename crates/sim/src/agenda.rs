//! What is to happen, and when. Of what happens at the same time, what was noted first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clearway_base::Time;

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Happening {
    /// An engine has its turn, if that is still its next.
    Turn { host: u32, engine: u32 },
    /// An app runs, if that is still its next time.
    App { app: u32 },
    /// A frame of host `from` has reached the switch.
    AtSwitch { from: u32, frame: Vec<u8> },
    /// A frame reaches the NIC of a host.
    AtNic { to: u32, frame: Vec<u8> },
    /// Something goes wrong, or right again.
    Fault(crate::faults::Fault),
    /// The control plane of a host does something.
    Control { host: u32, task: crate::host::Task },
    /// Everything is looked at.
    Check,
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Reverse<Entry>>,
    noted: u64,
}

/// When someone who can be put forward runs next, and which entries of the agenda see to that. At
/// most two of them count: without the second, each return from a near time to a far one would
/// leave an entry behind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    due: Option<Time>,
    near: Option<Time>,
    far: Option<Time>,
}

impl Alarm {
    /// Runs at `at` or earlier. Returns the time to note in the agenda, if none is noted that does.
    #[must_use]
    pub(crate) fn set(&mut self, at: Time) -> Option<Time> {
        let due = self.due.map_or(at, |due| due.min(at));
        self.due = Some(due);
        let covers = |noted: Option<Time>| noted.is_some_and(|noted| noted <= due);
        if covers(self.near) || covers(self.far) {
            return None;
        }
        self.far = self.far.or(self.near);
        self.near = Some(due);
        Some(due)
    }

    /// A noted time has come. True if it is time to run; then nothing is due any more. If it is
    /// not, the caller sets again what [`Alarm::due`] says.
    #[must_use]
    pub(crate) fn ring(&mut self, now: Time) -> bool {
        for noted in [&mut self.near, &mut self.far] {
            if *noted == Some(now) {
                *noted = None;
            }
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = None;
        }
        is_due
    }

    /// When it is to run.
    pub(crate) const fn due(&self) -> Option<Time> {
        self.due
    }
}

#[derive(Debug)]
struct Entry {
    at: Time,
    number: u64,
    what: Happening,
}

impl Agenda {
    /// Notes something for the time `at`.
    pub(crate) fn note(&mut self, at: Time, what: Happening) {
        self.noted += 1;
        self.entries.push(Reverse(Entry { at, number: self.noted, what }));
    }

    /// The next thing, and its time.
    pub(crate) fn next(&mut self) -> Option<(Time, Happening)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }

    /// Things to come.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
