//! Received bytes that tasks hold.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::shared::{Shared, Users};

/// Something whose bytes lie in the channel's memory. When it is dropped the daemon has them back
/// at once, whatever the other tasks do. It may be dropped in any thread.
pub struct Lent<T> {
    /// There until it is dropped.
    value: Option<T>,
    shared: Arc<dyn Look + Send + Sync>,
}

/// Has the driver look at the channel again, which gives back what was dropped meanwhile.
trait Look {
    fn look_again(&self, drop_value: &mut dyn FnMut());
}

impl<U: Users> Look for Shared<U> {
    /// The value is dropped behind the driver's sleep: else it would ring the channel's descriptor
    /// to end that.
    fn look_again(&self, drop_value: &mut dyn FnMut()) {
        let _awake = self.enter();
        drop_value();
    }
}

impl<T> Lent<T> {
    pub(crate) fn new<U: Users>(value: T, shared: &Arc<Shared<U>>) -> Self {
        let shared = Arc::clone(shared);
        Self { value: Some(value), shared }
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let Self { value, shared } = self;
        shared.look_again(&mut || drop(value.take()));
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is not dropped yet")
    }
}

impl<T: fmt::Debug> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
