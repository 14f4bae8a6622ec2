//! All hosts of the process, by number, and how results become numbers.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lab::{Errno, Host};

#[derive(Default)]
struct Hosts {
    by_number: BTreeMap<c_int, Arc<Host>>,
    /// No number is given twice, so that an old one is never another host's.
    last: c_int,
}

static HOSTS: Mutex<Hosts> = Mutex::new(Hosts { by_number: BTreeMap::new(), last: 0 });

fn hosts() -> MutexGuard<'static, Hosts> {
    HOSTS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add(host: Host) -> Result<c_int, Errno> {
    let mut hosts = hosts();
    hosts.last = hosts.last.checked_add(1).ok_or(Errno::ENFILE)?;
    let number = hosts.last;
    hosts.by_number.insert(number, Arc::new(host));
    Ok(number)
}

pub(crate) fn remove(number: c_int) -> Result<Arc<Host>, Errno> {
    hosts().by_number.remove(&number).ok_or(Errno::EBADF)
}

/// Runs the body of a call: its result, or a negative error number.
pub(crate) fn call(body: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    // Unwind safety: after a panic a host is in some state that Rust considers valid; calls may
    // fail, but memory stays sound.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => -i64::from(errno.0),
        Err(_) => -i64::from(libc::ENOTRECOVERABLE),
    }
}

/// The same for calls of a host that return an `int`.
pub(crate) fn call_of(number: c_int, body: impl FnOnce(&Host) -> Result<c_int, Errno>) -> c_int {
    long_call_of(number, |host| body(host).map(i64::from)) as c_int
}

/// The same for calls of a host that return more than that.
pub(crate) fn long_call_of(number: c_int, body: impl FnOnce(&Host) -> Result<i64, Errno>) -> i64 {
    call(|| {
        let host = hosts().by_number.get(&number).cloned().ok_or(Errno::EBADF)?;
        body(&host)
    })
}
