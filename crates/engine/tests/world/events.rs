//! What engines have answered, taken out of what they have said.

use clearway_channel::Code;
use clearway_engine::{Event, Snapshot, VifRefused};

/// Whether a port is listened on now.
pub fn take_listening(events: &mut Vec<Event>) -> Result<(), Code> {
    match take(events, |event| matches!(event, Event::Listening { .. })) {
        Some(Event::Listening { result, .. }) => result,
        other => panic!("not answered in one turn: {other:?}"),
    }
}

/// Whether a virtual interface or a capture is open now.
pub fn take_vif_opened(events: &mut Vec<Event>) -> Result<(), VifRefused> {
    match take(events, |event| matches!(event, Event::VifOpened { .. })) {
        Some(Event::VifOpened { result, .. }) => result,
        other => panic!("not answered in one turn: {other:?}"),
    }
}

/// What an engine has said about itself, if it has.
pub fn take_snapshot(events: &mut Vec<Event>) -> Option<Snapshot> {
    match take(events, |event| matches!(event, Event::Snapshot { .. }))? {
        Event::Snapshot { snapshot, .. } => Some(*snapshot),
        other => panic!("{other:?}"),
    }
}

fn take(events: &mut Vec<Event>, is_wanted: impl Fn(&Event) -> bool) -> Option<Event> {
    let index = events.iter().position(is_wanted)?;
    Some(events.remove(index))
}
