//! Who goes first: while a stream of a flow has something to send that its peer has credit for,
//! none of a higher urgency number is sent (`docs/streams.md`, "Priorities").
//!
//! An engine sends at the end of a turn, when it has taken what there is of commands and packets.
//! So who has something to send behind a turn had it all the time that others were sent. That is
//! not so of a flow's own connection, for which messages may be taken from among operations
//! meanwhile; nor does it wait for others where a packet tells of its limit: it is looked at with
//! more care.

use clearway_engine::FlowBooks;

use crate::Finding;

/// What an engine of a host says of its flows before a turn and behind it. Returns in how many of
/// them somebody had to let others go first.
pub(crate) fn in_order(
    host: u32,
    before: &[FlowBooks],
    after: &[FlowBooks],
) -> Result<u64, Finding> {
    let mut waits = 0;
    for flow in after.chunk_by(|a, b| a.local_id == b.local_id) {
        let urgent = flow.iter().filter(|books| has_waited(books, before));
        let Some(urgent) = urgent.min_by_key(|books| books.priority.urgency) else { continue };
        let others = flow.iter().filter(|it| it.priority.urgency > urgent.priority.urgency);
        waits += u64::from(others.clone().any(|books| books.has_data));
        let mut others = others.filter(|books| books.stream != 0);
        if let Some(wrong) = others.find(|books| is_sent_more(books, before)) {
            let what = format!("{wrong:?} is sent before {urgent:?}");
            return Err(Finding { what, hosts: vec![host] });
        }
    }
    Ok(waits)
}

/// It has something to send, and had it while others were sent.
fn has_waited(books: &FlowBooks, before: &[FlowBooks]) -> bool {
    let had = || of(books, before).is_some_and(|was| was.has_data && was.sent == books.sent);
    books.has_data && (books.stream != 0 || had())
}

fn is_sent_more(books: &FlowBooks, before: &[FlowBooks]) -> bool {
    of(books, before).is_some_and(|was| was.sent < books.sent)
}

/// The same stream before the turn.
fn of<'b>(books: &FlowBooks, before: &'b [FlowBooks]) -> Option<&'b FlowBooks> {
    before.iter().find(|was| (was.local_id, was.stream) == (books.local_id, books.stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::credit::tests::books;

    fn stream(number: u32, urgency: u8, has_data: bool, sent: u64) -> FlowBooks {
        let mut books = FlowBooks { stream: number, has_data, sent, ..books(1, 2) };
        books.priority.urgency = urgency;
        books
    }

    fn look(before: &[FlowBooks], after: &[FlowBooks]) -> Option<u64> {
        in_order(0, before, after).ok()
    }

    #[test]
    fn the_less_urgent_wait_as_long_as_there_is_something_more_urgent() {
        let before = [stream(1, 2, false, 10), stream(3, 5, true, 10), stream(5, 2, true, 10)];
        let after = |data: [bool; 3], sent: [u64; 3]| {
            let urgencies = [2, 5, 2];
            [0, 1, 2].map(|at| stream(2 * at as u32 + 1, urgencies[at], data[at], sent[at]))
        };
        assert_eq!(look(&before, &after([true, true, true], [20, 10, 10])), Some(1));
        assert_eq!(look(&before, &after([true, true, true], [20, 11, 10])), None);
        assert_eq!(look(&before, &after([false, true, true], [20, 11, 20])), None);
        assert_eq!(look(&before, &after([false, true, false], [20, 11, 20])), Some(0));
        // Streams of other flows, and those that were not there before, are none of theirs.
        let other = FlowBooks { local_id: 9, ..stream(3, 5, true, 30) };
        assert_eq!(look(&before, &[after([true, true, true], [20, 10, 10])[0], other]), Some(0));
        let new = stream(7, 7, true, 30);
        assert_eq!(look(&before, &[after([true, true, true], [20, 10, 10])[0], new]), Some(1));
    }

    #[test]
    fn a_flows_own_connection_is_looked_at_with_more_care() {
        let own = |has_data, sent| stream(0, 1, has_data, sent);
        let other = |sent| stream(1, 4, true, sent);
        let before = [own(true, 10), other(10)];
        assert_eq!(look(&before, &[own(true, 10), other(11)]), None);
        assert_eq!(look(&before, &[own(true, 11), other(11)]), Some(0));
        assert_eq!(look(&[own(false, 10), other(10)], &[own(true, 10), other(11)]), Some(0));
        // It may go on where its limit was told.
        let urgent = [stream(0, 5, true, 10), stream(1, 4, true, 10)];
        assert_eq!(look(&urgent, &[stream(0, 5, true, 20), urgent[1]]), Some(1));
    }
}
