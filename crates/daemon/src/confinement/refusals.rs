//! Answering refused system calls: with an error, and a line in the log that names the call.

use std::collections::HashSet;

use clearway_nic::seccomp::Refusals;
use rustix::io::Errno;
use syscalls::Sysno;

/// Starts the thread that answers, for as long as the process lives.
pub(super) fn answer(refusals: Refusals) -> Result<(), String> {
    std::thread::Builder::new()
        .name("confinement".to_owned())
        .spawn(move || answer_all(&refusals))
        .map(drop)
        .map_err(|error| format!("no thread to answer for refused calls: {error}; see `ulimit -u`"))
}

fn answer_all(refusals: &Refusals) {
    let mut seen = HashSet::new();
    // An error means that no thread with the filter is left.
    while let Ok(refusal) = refusals.next() {
        let call = usize::try_from(refusal.number).ok().and_then(Sysno::new);
        // A library that tries a call newer than this program does without it if it is "not there".
        let errno = if call.is_some() { Errno::PERM } else { Errno::NOSYS };
        refusals.refuse(refusal, errno.raw_os_error());
        // Once for each call, or it would be a way to fill the log.
        if seen.insert(refusal.number) {
            tracing::warn!(
                number = refusal.number,
                thread = refusal.thread,
                "refused the system call {}, which a confined daemon has no use for; if something \
                 does not work for that, please report it, and set `confine = false` until then",
                call.map_or("of that number", |call| call.name()),
            );
        }
    }
}
