//! What can be done with a socket, as `poll` says it.

use super::{SocketOptions, Status, is_opening, is_over};
use crate::state::State;

/// What can be done with a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Reading, or accepting, does not wait: POLLIN.
    pub is_readable: bool,
    /// Writing does not wait: POLLOUT.
    pub is_writable: bool,
    /// The peer sends no more: POLLRDHUP.
    pub is_finished: bool,
    /// Nothing goes either way: POLLHUP.
    pub is_over: bool,
    /// An error waits to be told: POLLERR.
    pub has_error: bool,
}

impl Ready {
    /// As Linux has it: writing would not wait, it would fail.
    pub(super) fn of_idle(has_failed: bool) -> Self {
        Self {
            is_writable: true,
            is_over: true,
            is_readable: has_failed,
            is_finished: has_failed,
            has_error: false,
        }
    }

    pub(super) fn of_listener(acceptable: usize) -> Self {
        Self { is_readable: acceptable > 0, ..Self::default() }
    }

    pub(super) fn of_connection(status: &Status, options: &SocketOptions, is_deaf: bool) -> Self {
        if is_opening(status) {
            return Self::default();
        }
        let is_over = is_over(status);
        let is_finished = status.is_finished || is_deaf || is_over;
        let enough = options.receive_bytes_min.max(1).min(options.settings.receive_buffer_bytes);
        Self {
            is_readable: is_finished || status.unread_bytes >= u64::from(enough),
            is_writable: status.is_shut || is_over || options.is_roomy(status),
            is_finished,
            is_over: status.state == State::Closed || (is_finished && status.is_shut) || is_over,
            has_error: false,
        }
    }
}
