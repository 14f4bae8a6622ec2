//! Received bytes that tasks hold.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::shared::{Shared, Users};

/// Something whose bytes lie in the channel's memory. When it is dropped the daemon has them back
/// at once, whatever the other tasks do. It may be dropped in any thread.
pub struct Lent<T> {
    value: T,
    /// Dropped behind it.
    _back: GiveBack,
}

/// Has the driver look at the channel again, which gives back what was dropped.
struct GiveBack(Arc<dyn Look + Send + Sync>);

trait Look {
    fn look_again(&self);
}

impl<U: Users> Look for Shared<U> {
    fn look_again(&self) {
        drop(self.enter());
    }
}

impl<T> Lent<T> {
    pub(crate) fn new<U: Users>(value: T, shared: &Arc<Shared<U>>) -> Self {
        let shared = Arc::clone(shared);
        Self { value, _back: GiveBack(shared) }
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        self.0.look_again();
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
