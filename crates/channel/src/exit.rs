//! A last word to the daemon when the process ends by `exit`, or by the return of `main`: no
//! destructor of a channel runs then that still stands somewhere. Who is killed says nothing.

#![allow(unsafe_code)] // registering with the C library

use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Once, PoisonError};

use crate::control::{self, Leave, Request};

/// Control connections of this process to which something is to be said at its end.
static LIVING: Mutex<Vec<Living>> = Mutex::new(Vec::new());

struct Living {
    socket: Arc<OwnedFd>,
    leave: Leave,
    /// The process that has the channel: a child has not.
    process: u32,
}

unsafe extern "C" {
    /// C11, 7.22.4.2.
    fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Has the daemon at the other end of `socket` told at the end of this process that the app leaves
/// in good order.
pub fn leave_at_exit(socket: &Arc<OwnedFd>, leave: Leave) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: a function that may be called at any time. If there is no room for it, apps that
        // just exit are taken for dead ones, which is what they were without it.
        let _ = unsafe { atexit(say_goodbye) };
    });
    let living = Living { socket: Arc::clone(socket), leave, process: std::process::id() };
    LIVING.lock().unwrap_or_else(PoisonError::into_inner).push(living);
}

/// Nothing more is to be said there at the end of the process.
pub fn forget(socket: &Arc<OwnedFd>) {
    let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
    living.retain(|other| !Arc::ptr_eq(&other.socket, socket));
}

/// Runs while the process ends, maybe beside other threads, which may hold the lock for ever.
extern "C" fn say_goodbye() {
    let Ok(living) = LIVING.try_lock() else { return };
    let process = std::process::id();
    for own in living.iter().filter(|living| living.process == process) {
        // Not blocking; a daemon that does not read takes the app for dead.
        let _ = control::send(&own.socket, &Request::Leave(own.leave), &[]);
    }
}
