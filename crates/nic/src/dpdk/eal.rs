//! DPDK's environment: started once per process, never ended before it.

use std::ffi::{CString, c_char};
use std::io;
use std::sync::{Mutex, PoisonError};

use super::sys;
use crate::Error;

/// The arguments that the environment was started with, or tried to be.
static STARTED: Mutex<Option<Attempt>> = Mutex::new(None);

struct Attempt {
    arguments: Vec<String>,
    succeeded: bool,
}

/// Whichever of these the user gives, it is for him to say which files DPDK makes.
const ABOUT_FILES: [&str; 5] =
    ["--in-memory", "--file-prefix", "--no-shconf", "--huge-dir", "--proc-type"];
/// Whichever of these the user gives says on which cores DPDK's own threads run.
const ABOUT_CORES: [&str; 4] = ["-l", "-c", "--lcores", "-s"];

/// Starts the environment, if it is not running already.
pub(super) fn start(arguments: &[String]) -> Result<(), Error> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        None => {
            let outcome = start_first(arguments);
            let succeeded = outcome.is_ok();
            *started = Some(Attempt { arguments: arguments.to_vec(), succeeded });
            outcome
        }
        Some(attempt) if !attempt.succeeded => Err(Error::Invalid(
            "dpdk: DPDK could not be started, and tries only once per process. Mend what it said, \
             and start again"
                .into(),
        )),
        Some(attempt) if attempt.arguments == arguments => Ok(()),
        Some(attempt) => Err(Error::Invalid(format!(
            "dpdk: DPDK starts once per process, and runs already with eal = {:?}. Give all NICs \
             with this driver the same `eal`",
            attempt.arguments
        ))),
    }
}

/// DPDK pins the calling thread to the first of its cores; that is undone.
fn start_first(arguments: &[String]) -> Result<(), Error> {
    let mut words = texts(arguments)?;
    // DPDK keeps pointers to some of them.
    let pointers = words.drain(..).map(CString::into_raw).chain([std::ptr::null_mut()]);
    let pointers: &mut [*mut c_char] = Vec::leak(pointers.collect());
    let count = pointers.len() - 1;
    let cores = rustix::thread::sched_getaffinity(None);
    // SAFETY: the pointers are those of zero-terminated strings that live for ever, with a null
    // pointer behind the last, as `main` would get them. The lock of the caller sees to it that
    // this is called once.
    let outcome = unsafe { sys::rte_eal_init(count as i32, pointers.as_mut_ptr()) };
    if let Ok(cores) = cores {
        // What was allowed before is allowed again.
        let _ = rustix::thread::sched_setaffinity(None, &cores);
    }
    if outcome < 0 { Err(failed(arguments)) } else { Ok(()) }
}

/// The arguments with a program name in front, and what is better than DPDK's defaults for a
/// program that is not made for it: one thread that may run anywhere, and no files.
fn texts(arguments: &[String]) -> Result<Vec<CString>, Error> {
    let gives =
        |options: &[&str]| arguments.iter().any(|a| options.iter().any(|o| a.starts_with(o)));
    let mut words = vec!["clearway".to_owned()];
    if !gives(&ABOUT_CORES) {
        words.push(format!("--lcores=0@({})", own_cores()));
    }
    if !gives(&ABOUT_FILES) {
        // The two exclude each other; without huge pages the shared configuration is all there is.
        let no_files = if gives(&["--no-huge"]) { "--no-shconf" } else { "--in-memory" };
        words.push(no_files.into());
    }
    if !gives(&["--telemetry"]) {
        words.push("--no-telemetry".into());
    }
    words.extend_from_slice(arguments);
    let text = |word: String| {
        CString::new(word)
            .map_err(|_| Error::Invalid("dpdk: there is a zero byte in `eal`; remove it".into()))
    };
    words.into_iter().map(text).collect()
}

/// The cores of this thread, as `0,1,5`.
fn own_cores() -> String {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return "0".into() };
    let cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    cores.map(|core| core.to_string()).collect::<Vec<_>>().join(",")
}

fn failed(arguments: &[String]) -> Error {
    let source = last_error();
    let huge = arguments.iter().any(|argument| argument == "--no-huge");
    let remedy = if huge {
        "DPDK has said why on standard error; see its guide for the arguments in `eal`"
    } else {
        "DPDK has said why on standard error. If it is for want of huge pages, reserve some \
         (sysctl vm.nr_hugepages=512), or do without: eal = [\"--no-huge\", \"-m\", \"256\", ...]"
    };
    Error::System {
        action: format!("dpdk: start DPDK with eal = {arguments:?}"),
        remedy: remedy.into(),
        source,
    }
}

/// DPDK's own error number, which is one of the system's or near it.
pub(super) fn last_error() -> io::Error {
    // SAFETY: reads a variable of the calling thread.
    io::Error::from_raw_os_error(unsafe { sys::clearway_dpdk_errno() })
}
