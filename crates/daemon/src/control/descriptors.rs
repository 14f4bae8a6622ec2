//! Open files run out, too, and then nobody could even ask why: some are kept for administrators.

use std::os::fd::{AsFd, AsRawFd};

use clearway_channel::Code;
use clearway_channel::control::Refusal;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use super::requests::refusal;
use crate::config::Limits;

/// Enough for some sessions of administrators, and for what the control plane itself opens.
const RESERVED: u64 = 64;

/// How many open files there may be.
#[derive(Debug)]
pub(super) struct Descriptors {
    /// Whose numbers are below this are for everybody.
    reserved_from: u64,
}

impl Descriptors {
    /// Warns if apps may take more than there are.
    pub(super) fn of_this_process(limits: &Limits) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let wanted = wanted(limits);
        if limit < wanted {
            tracing::warn!(
                limit,
                wanted,
                "there are fewer open files than [policy.limits] lets apps take: raise their \
                 limit (LimitNOFILE=, ulimit -n), or lower sessions_total and channels_total"
            );
        }
        Self { reserved_from: limit.saturating_sub(RESERVED) }
    }

    /// Whether a descriptor that has just been made is one of those that everybody may have. The
    /// kernel gives out the lowest number that is free, so this one tells how many are taken.
    pub(super) fn check(&self, descriptor: impl AsFd) -> Result<(), Refusal> {
        if (descriptor.as_fd().as_raw_fd() as u64) < self.reserved_from {
            return Ok(());
        }
        Err(used_up())
    }

    /// The same of the descriptor that is made next, by somebody who keeps it. `any` is one that
    /// there is.
    pub(super) fn check_next(&self, any: impl AsFd) -> Result<(), Refusal> {
        self.check(fcntl_dupfd_cloexec(any, 0).map_err(|_| used_up())?)
    }
}

fn used_up() -> Refusal {
    let text = "the daemon has no open files left for this user; close something first, or raise \
                its limit (LimitNOFILE=, ulimit -n)";
    refusal(Code::Limit, text)
}

/// If apps take all that they may: one for each session, and three more for each channel, which
/// are its memory and a doorbell each way.
fn wanted(limits: &Limits) -> u64 {
    RESERVED + limits.sessions_total as u64 + 3 * limits.channels_total as u64
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

    /// On the largest machine, and with what the unit gives (packaging/clearway.service).
    #[test]
    fn the_unit_has_enough_for_all_that_apps_may_take() {
        let unit = include_str!("../../../../packaging/clearway.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE="));
        let limit: u64 = limit.expect("a limit").parse().expect("a number");
        let per_user = 2048;
        let limits = Limits {
            sessions_total: 8 * per_user,
            channels_total: 4 * per_user,
            channels_per_user: per_user,
            ..Limits::default()
        };
        assert_eq!(wanted(&limits), 64 + 16_384 + 3 * 8192);
        assert!(wanted(&limits) + limits.vifs_total as u64 <= limit);
    }

    #[test]
    fn the_last_64_are_reserved() {
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        let limits = Limits::default();
        assert_eq!(Descriptors::of_this_process(&limits).reserved_from, limit - 64);
        let file = std::fs::File::open("/dev/null").expect("a file");
        let number = file.as_raw_fd() as u64;
        let check = |reserved_from| Descriptors { reserved_from }.check(&file);
        assert_eq!(check(number + 1), Ok(()));
        assert_eq!(check(number).expect_err("reserved").code, Code::Limit);
        let next = |reserved_from| Descriptors { reserved_from }.check_next(&file);
        assert_eq!(next(limit), Ok(()));
        assert_eq!(next(0).expect_err("reserved").code, Code::Limit);
    }
}
