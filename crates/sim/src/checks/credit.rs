//! Credit is neither lost nor made: what each side of a flow says of its positions (`docs/wire.md`)
//! against what the other side says, and against what the app has in its hands.
//!
//! ```text
//!  sender                                         receiver
//!    acknowledged ≤ sent ≤ limit                    released ≤ received ≤ announced
//!         │          │        └──── never beyond ──────────────────────────┘
//!         │          └───────────── never less than ──────────┘
//!         └──────────────────────── never beyond ─────────────┘
//! ```
//! These hold at any moment, but for the last message sent if it was dropped, whatever is lost
//! under way. That all which the app has released counts as released holds once nothing has moved
//! for a while.

use std::collections::BTreeMap;

use clearway_engine::FlowBooks;

use super::{IN_FLIGHT_BYTES_MAX, WINDOW_BYTES_MAX};
use crate::Finding;

/// The largest message, with its overhead: a sender that may begin one may also end it.
const MESSAGE_POSITIONS_MAX: u64 = (8 << 20) + 64;

/// A message that was dropped needs credit for its overhead only. A sender that has none for more
/// waits until it hears that the receiver has given back what it took: the receiver's own check is
/// the strict one.
const SKIPPED_POSITIONS_MAX: u64 = 8 << 20;

/// What an app knows of a connection whose books are looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppSide {
    /// Positions of the messages that it has got and not released.
    pub(crate) held: u64,
    /// It runs, and nothing has been wrong for a while: whatever it could do it has done by the
    /// next look.
    pub(crate) is_at_ease: bool,
}

/// The books of one flow, and where they were found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) host: u32,
    pub(crate) books: FlowBooks,
    /// `None` if the app is a liar, dying, or done with the connection.
    pub(crate) app: Option<AppSide>,
}

/// Looks at all flows, time and again.
#[derive(Debug, Default)]
pub(crate) struct Auditor {
    /// What each connection had received and released at the last look, by its flow's id and its
    /// stream.
    last: BTreeMap<(u64, u32), (u64, u64)>,
}

impl Auditor {
    /// Looks at all flows of all hosts at the same moment.
    pub(crate) fn audit(&mut self, entries: &[Entry]) -> Result<(), Finding> {
        let name = |books: &FlowBooks| (books.local_id, books.stream);
        let by_id: BTreeMap<(u64, u32), &Entry> =
            entries.iter().map(|entry| (name(&entry.books), entry)).collect();
        for entry in entries.iter().filter(|entry| entry.books.is_open) {
            let peer = by_id
                .get(&(entry.books.peer_id, entry.books.stream))
                .filter(|peer| peer.books.is_open && peer.books.peer_id == entry.books.local_id);
            if let Some(peer) = peer {
                between(entry, peer)?;
            }
            self.with_app(entry)?;
        }
        let moved =
            |entry: &Entry| (name(&entry.books), (entry.books.received, entry.books.released));
        self.last = entries.iter().map(moved).collect();
        Ok(())
    }

    fn with_app(&self, entry: &Entry) -> Result<(), Finding> {
        let Some(app) = entry.app else { return Ok(()) };
        let FlowBooks { local_id, stream, received, released, unfinished, .. } = entry.books;
        let outstanding = received - released - unfinished;
        if app.held > outstanding {
            let text = format!("the app has {} positions, of {outstanding} given to it", app.held);
            return found(entry, &text);
        }
        let has_moved = self.last.get(&(local_id, stream)) != Some(&(received, released));
        if app.is_at_ease && !has_moved && app.held < outstanding {
            let text =
                format!("the app has {} positions; {outstanding} are not released", app.held);
            return found(entry, &text);
        }
        Ok(())
    }
}

/// What one side says by itself.
pub(crate) fn alone(host: u32, books: &FlowBooks) -> Result<(), Finding> {
    let entry = Entry { host, books: *books, app: None };
    let in_use = books.received.saturating_sub(books.released);
    let broken = [
        ("acknowledged > sent", books.acknowledged > books.sent),
        ("sent > submitted", books.sent > books.submitted),
        ("sent > limit", books.sent > books.limit + SKIPPED_POSITIONS_MAX),
        ("released > received", books.released > books.received),
        ("received > announced", books.received > books.announced),
        ("unfinished > received - released", books.unfinished > in_use),
        (
            "more is announced than the window and one message",
            books.announced > books.released + books.window + MESSAGE_POSITIONS_MAX,
        ),
        ("too much in flight", books.in_flight_bytes > IN_FLIGHT_BYTES_MAX),
        (
            "no such congestion window",
            books.congestion_window_bytes == 0 || books.congestion_window_bytes > WINDOW_BYTES_MAX,
        ),
    ];
    match broken.into_iter().find(|(_, is_broken)| *is_broken) {
        Some((text, _)) if books.is_open => found(&entry, text),
        _ => Ok(()),
    }
}

/// What a sender says against what its receiver says.
fn between(sender: &Entry, receiver: &Entry) -> Result<(), Finding> {
    let broken = [
        ("limit > announced", sender.books.limit > receiver.books.announced),
        ("received > sent", receiver.books.received > sender.books.sent),
        ("acknowledged > received", sender.books.acknowledged > receiver.books.received),
    ];
    match broken.into_iter().find(|(_, is_broken)| *is_broken) {
        Some((text, _)) => found(sender, &format!("{text} at its peer: {receiver:?}")),
        None => Ok(()),
    }
}

fn found(entry: &Entry, text: &str) -> Result<(), Finding> {
    Err(Finding { what: format!("credit: {text}: {entry:?}"), hosts: vec![entry.host] })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn books(local_id: u64, peer_id: u64) -> FlowBooks {
        FlowBooks {
            owner: clearway_engine::Owner { channel: 0, connection: 0 },
            local_id,
            stream: 0,
            peer_id,
            is_open: true,
            congestion_window_bytes: 10_000,
            in_flight_bytes: 0,
            priority: Default::default(),
            has_data: true,
            submitted: 1000,
            sent: 800,
            acknowledged: 600,
            limit: 900,
            received: 700,
            unfinished: 100,
            released: 300,
            announced: 1000,
            window: 900,
        }
    }

    fn entry(local_id: u64, peer_id: u64) -> Entry {
        let app = Some(AppSide { held: 300, is_at_ease: true });
        Entry { host: 1, books: books(local_id, peer_id), app }
    }

    #[test]
    fn sound_books_pass_and_each_broken_one_is_found() {
        assert!(alone(0, &books(1, 2)).is_ok());
        assert!(Auditor::default().audit(&[entry(1, 2), entry(2, 1)]).is_ok());
        let breaks: [fn(&mut FlowBooks); 8] = [
            |books| books.acknowledged = 801,
            |books| (books.sent, books.submitted) = (901 + SKIPPED_POSITIONS_MAX, u64::MAX),
            |books| books.released = 701,
            |books| books.received = 1001,
            |books| books.unfinished = 401,
            |books| books.announced = 20 << 20,
            |books| books.congestion_window_bytes = 0,
            |books| books.in_flight_bytes = u64::MAX,
        ];
        for (number, break_it) in breaks.iter().enumerate() {
            let mut broken = books(1, 2);
            break_it(&mut broken);
            assert!(alone(0, &broken).is_err(), "{number}: {broken:?}");
        }
    }

    #[test]
    fn a_sender_with_more_credit_than_its_receiver_gave_is_found() {
        let (mut one, other) = (entry(1, 2), entry(2, 1));
        one.books.limit = 1001;
        assert!(Auditor::default().audit(&[one, other]).is_err());
        one.books.peer_id = 3; // another flow: nobody to compare with
        assert!(Auditor::default().audit(&[one, other]).is_ok());
    }

    #[test]
    fn what_the_app_released_must_count_once_all_is_quiet() {
        let mut auditor = Auditor::default();
        let mut leaking = entry(1, 0);
        leaking.app = Some(AppSide { held: 200, is_at_ease: true });
        assert!(auditor.audit(&[leaking]).is_ok(), "a completion may be under way");
        assert!(auditor.audit(&[leaking]).is_err());
        leaking.app = Some(AppSide { held: 301, is_at_ease: false });
        assert!(auditor.audit(&[leaking]).is_err(), "more than was given");
    }
}
