//! When somebody runs next who can be put forward.

use clearway_base::Time;

/// When someone who can be put forward runs next, and which entries of the agenda see to that. At
/// most two of them count: without the second, each return from a near time to a far one would
/// leave an entry behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    due: Option<Time>,
    near: Option<Time>,
    far: Option<Time>,
}

impl Alarm {
    /// Runs at `at` or earlier. Returns the time to note in the agenda, if none is noted that does.
    #[must_use]
    pub fn set(&mut self, at: Time) -> Option<Time> {
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
    pub fn ring(&mut self, now: Time) -> bool {
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
    #[must_use]
    pub const fn due(&self) -> Option<Time> {
        self.due
    }
}
