//! Calls when their channel is attached again.

use std::time::Duration;

use super::{CallEvent, Calls};
use crate::{Channel, Code, ConnectionId, Error, Event, Reattached, Token};

impl Calls {
    /// Attaches again by [`Channel::reattach`], whose numbers of connections mean others than
    /// before: all calls and requests of before are over, and the calls told of as lost
    /// ([`Code::DaemonGone`]). A connection that had ended before, and is not among those of which
    /// [`Reattached`] tells, is told of no more.
    pub fn reattach(
        &mut self,
        channel: &mut Channel,
        timeout: Option<Duration>,
    ) -> Result<Reattached, Error> {
        let untold = self.kept.iter().filter_map(connected).map(|(_, connection)| connection);
        let reattached = channel.reattach_without(&untold.collect::<Vec<_>>(), timeout)?;
        self.end_all(Code::DaemonGone);
        for event in &mut self.kept {
            if let Some((token, _)) = connected(event) {
                *event = CallEvent::Channel(Event::ConnectFailed { token, code: Code::DaemonGone });
            }
        }
        self.kept.retain(names_no_connection);
        Ok(reattached)
    }
}

/// An attempt that has succeeded, and its connection.
fn connected(event: &CallEvent) -> Option<(Token, ConnectionId)> {
    match event {
        CallEvent::Channel(Event::Connected { token, connection, .. }) => {
            Some((*token, *connection))
        }
        _ => None,
    }
}

/// What still means something when the channel was attached again.
fn names_no_connection(event: &CallEvent) -> bool {
    match event {
        CallEvent::Ended { .. } => true,
        CallEvent::Channel(event) => {
            matches!(event, Event::PostEnded(_) | Event::ConnectFailed { .. })
        }
        _ => false,
    }
}
