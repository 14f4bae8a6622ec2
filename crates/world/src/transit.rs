//! Frames on their way to one receiver, in the order in which they arrive.

use clearway_base::Time;

use crate::Agenda;

/// Frames under way to one receive queue. `F` is a frame, however its bytes are kept.
#[derive(Debug)]
pub struct Transit<F> {
    arriving: Agenda<F>,
    held: Vec<Held<F>>,
}

/// A frame that others shall overtake.
#[derive(Debug)]
struct Held<F> {
    frame: F,
    arrival: Time,
    frames_left: u16,
    empty_polls_left: u16,
}

impl<F> Default for Transit<F> {
    fn default() -> Self {
        Self { arriving: Agenda::default(), held: Vec::new() }
    }
}

impl<F> Transit<F> {
    /// Puts a frame on its way. It is held back until so many later ones have come, or
    /// [`Transit::polled_in_vain`] was called so many times.
    pub fn push(&mut self, frame: F, arrival: Time, overtaken_by: u16) {
        if overtaken_by > 0 {
            let (frames_left, empty_polls_left) = (overtaken_by, overtaken_by);
            self.held.push(Held { frame, arrival, frames_left, empty_polls_left });
        } else {
            self.arriving.note(arrival, frame);
            self.age_held(|held| &mut held.frames_left);
        }
    }

    /// The next frame that has arrived by `now`.
    pub fn pop(&mut self, now: Time) -> Option<F> {
        self.arriving.take_due(now)
    }

    /// The receiver has looked and found nothing.
    pub fn polled_in_vain(&mut self) {
        self.age_held(|held| &mut held.empty_polls_left);
    }

    /// How many frames are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arriving.len() + self.held.len()
    }

    /// True if nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the receiver should not sleep: a frame has arrived by `now`, or is held back until
    /// it is polled for.
    #[must_use]
    pub fn wants_polling(&self, now: Time) -> bool {
        !self.held.is_empty() || self.has_arrived(now)
    }

    /// True if a frame has arrived by `now`.
    #[must_use]
    pub fn has_arrived(&self, now: Time) -> bool {
        self.arriving.next_at().is_some_and(|arrival| arrival <= now)
    }

    /// When the next frame arrives, those held back included; `None` if nothing is under way.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Time> {
        let held = self.held.iter().map(|held| held.arrival);
        held.chain(self.arriving.next_at()).min()
    }

    /// Counts `counter` of all held frames down; those at zero come forward.
    fn age_held(&mut self, counter: impl Fn(&mut Held<F>) -> &mut u16) {
        if self.held.is_empty() {
            return;
        }
        for held in &mut self.held {
            *counter(held) -= 1;
        }
        let due = self.held.extract_if(.., |held| *counter(held) == 0).collect::<Vec<_>>();
        for held in due {
            self.arriving.note(held.arrival, held.frame);
        }
    }
}
