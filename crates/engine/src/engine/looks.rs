//! When an engine looks for frames that have come.
//!
//! It does so in each turn, where that is a look at memory. Where it is a system call
//! ([`Capabilities::receive_is_call`]), two looks of each conversation would be in vain, and its
//! app would wait for both: the one before a message leaves, and the one before the app that was
//! just told of a message gets the core.
//!
//! [`Capabilities::receive_is_call`]: clearway_nic::Capabilities::receive_is_call

use super::Queues;

/// What is known of looks at an engine's queues.
#[derive(Debug)]
pub(super) struct Looks {
    are_calls: bool,
    /// The last turn went without one.
    was_left_out: bool,
}

impl Looks {
    pub(super) fn of(queues: &Queues) -> Self {
        let are_calls = queues.iter().any(|queue| queue.capabilities().receive_is_call);
        Self { are_calls, was_left_out: false }
    }

    /// Whether a turn looks in which apps had so many commands. What they send leaves first; but
    /// not for two turns in a row.
    #[inline]
    pub(super) fn are_due(&mut self, commands: usize) -> bool {
        self.was_left_out = self.are_calls && commands > 0 && !self.was_left_out;
        !self.was_left_out
    }

    /// Whether to look again can wait until others had the core, after so many frames had come,
    /// and could have at most.
    #[inline]
    pub(super) fn have_emptied(&self, received: usize, most: usize) -> bool {
        self.are_calls && received < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_memory_is_taken_in_each_turn() {
        let mut looks = Looks { are_calls: false, was_left_out: false };
        assert!(looks.are_due(0) && looks.are_due(1) && looks.are_due(1));
        assert!(!looks.have_emptied(0, 8), "the next look costs nothing");
    }

    #[test]
    fn what_apps_send_leaves_before_a_call_but_not_for_ever() {
        let mut looks = Looks { are_calls: true, was_left_out: false };
        let due: Vec<bool> = [0, 1, 1, 1, 0, 1, 0].map(|commands| looks.are_due(commands)).into();
        assert_eq!(due, [true, false, true, false, true, false, true]);
        assert!(looks.have_emptied(7, 8) && !looks.have_emptied(8, 8));
    }
}
