//! Open files run out, too, and then nobody could even ask why: some are kept for administrators.

use std::os::fd::{AsFd, AsRawFd};

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use rustix::process::{Resource, getrlimit};

use super::requests::refusal;

/// Enough for some sessions of administrators, and for what the control plane itself opens.
const RESERVED: u64 = 64;

/// How many open files there may be.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// Whose numbers are below this are for everybody.
    reserved_from: u64,
}

impl Descriptors {
    pub(super) fn of_this_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self { reserved_from: limit.saturating_sub(RESERVED) }
    }

    /// Whether a descriptor that has just been made is one of those that everybody may have. The
    /// kernel gives out the lowest number that is free, so this one tells how many are taken.
    pub(super) fn check(&self, descriptor: impl AsFd) -> Result<(), Refusal> {
        if (descriptor.as_fd().as_raw_fd() as u64) < self.reserved_from {
            return Ok(());
        }
        let text = "the daemon has no open files left for this user; close something first, or \
                    raise its limit (LimitNOFILE=, ulimit -n)";
        Err(refusal(Code::Limit, text))
    }
}

#[cfg(test)]
impl Descriptors {
    /// As if all were taken that are not reserved.
    pub(super) const fn used_up() -> Self {
        Self { reserved_from: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_64_are_reserved() {
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        assert_eq!(Descriptors::of_this_process().reserved_from, limit - 64);
        let file = std::fs::File::open("/dev/null").expect("a file");
        let number = file.as_raw_fd() as u64;
        let check = |reserved_from| Descriptors { reserved_from }.check(&file);
        assert_eq!(check(number + 1), Ok(()));
        assert_eq!(check(number).expect_err("reserved").code, Code::Limit);
    }
}
