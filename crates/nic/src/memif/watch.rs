//! What others than its queues see of a link, on any thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::Limit;
use super::shared::Shared;

/// Tells one who watches that the link of a memif has changed. It outlives the queues: then nothing
/// changes any more.
#[derive(Debug)]
pub struct Watch(Arc<Shared>);

impl Watch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Forgets the news so far. Then look at [`Watch::limit`].
    pub fn silence(&self) {
        self.0.watcher().silence();
    }

    /// How large the frames are that the peer is sent. `None` if there is no peer.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.0.peer().ok().map(|peer| peer.limit)
    }
}

impl AsFd for Watch {
    /// Readable when there are news.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.watcher().as_fd()
    }
}
