//! Whether the link is up, asked rarely.

use super::Device;

/// The link is looked at once in so many turns: a system call that is not in every turn, and still
/// often enough on an engine that spins.
const TURNS_PER_CHECK: u32 = 1 << 16;

/// The same while it is down and there is little else to do.
const TURNS_PER_CHECK_WHEN_DOWN: u32 = 1 << 10;

/// The link of an interface as its queue last saw it.
#[derive(Debug)]
pub(crate) struct Link {
    device: Device,
    up: bool,
    turns_until_check: u32,
}

impl Link {
    pub(crate) fn new(device: Device) -> Link {
        let mut link = Link { device, up: false, turns_until_check: 0 };
        link.check();
        link
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Once in every turn.
    pub(crate) fn turn(&mut self) {
        self.turns_until_check -= 1;
        if self.turns_until_check == 0 {
            self.check();
        }
    }

    /// Asks the kernel now: before a sleep, or after an error that hints at it. An interface that
    /// cannot be asked any more has been removed.
    pub(crate) fn check(&mut self) {
        self.up = self.device.running().unwrap_or(false);
        self.turns_until_check = if self.up { TURNS_PER_CHECK } else { TURNS_PER_CHECK_WHEN_DOWN };
    }
}
