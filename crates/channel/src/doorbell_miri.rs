//! Doorbells for Miri, which has neither eventfd nor socket pairs: they do nothing. The tests that
//! run under Miri never sleep.

use std::io;
use std::os::fd::BorrowedFd;

pub(crate) struct DaemonBells;
pub(crate) struct AppBells;
pub(crate) struct OwnerBell;

pub(crate) fn create() -> io::Result<(DaemonBells, AppBells)> {
    Ok((DaemonBells, AppBells))
}

impl DaemonBells {
    pub(crate) fn ring(&self) {}

    pub(crate) fn clear(&self) {}

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        unreachable!("no descriptors under Miri")
    }
}

impl AppBells {
    pub(crate) fn ring(&self) {}

    pub(crate) fn clear(&mut self, _was_rung: bool) {}

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        unreachable!("no descriptors under Miri")
    }
}

impl OwnerBell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn ring(&self) {}

    pub(crate) fn clear(&self) {}

    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        unreachable!("no descriptors under Miri")
    }
}
