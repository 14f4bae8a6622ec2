//! Ending a control plane from another thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use clearway_nic::Bell;

/// Ends [`super::ControlPlane::run`]; may be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Bell,
    crashed: OnceLock<String>,
}

/// Tells the control plane if the thread that holds it panics.
#[derive(Debug)]
pub(crate) struct Alarm {
    stopper: Stopper,
    engine: String,
}

impl Stopper {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { shared: Arc::new(Shared { bell: Bell::new()?, crashed: OnceLock::new() }) })
    }

    /// Asks the control plane to shut the host down. Returns at once.
    pub fn stop(&self) {
        self.shared.bell.ring();
    }

    /// To be held by the thread that runs an engine.
    pub(crate) fn alarm(&self, engine: &str) -> Alarm {
        Alarm { stopper: self.clone(), engine: engine.to_owned() }
    }

    /// The engine that crashed, if one did.
    pub(super) fn crashed(&self) -> Option<String> {
        self.shared.crashed.get().cloned()
    }

    pub(super) fn acknowledge(&self) {
        self.shared.bell.silence();
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.stopper.shared.crashed.set(self.engine.clone());
            self.stopper.stop();
        }
    }
}
