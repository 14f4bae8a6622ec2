//! The books of engines in the midst of a test; and at the end of every one, where what there is a
//! limited number of has been given back.

use clearway_base::MILLISECOND;
use clearway_engine::Engine;

/// Time between two turns while engines come to rest.
pub const STEP_NS: u64 = 20 * MILLISECOND;
/// Turns until then: longer than a silent peer, or one that does not acknowledge a close, is waited
/// for.
const TURNS_MAX: usize = 10_000;

/// Between any two turns, what is taken and what is free make up what there is.
#[track_caller]
pub fn now<'a>(engines: impl IntoIterator<Item = &'a Engine>) {
    for engine in engines {
        engine.audit().unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Has the engines turn until nothing is left, and their books agree after each turn.
#[track_caller]
pub fn until_rest<W>(world: &mut W, turn: fn(&mut W), engines: fn(&W) -> Vec<&Engine>) {
    let mut left = Ok(());
    for _ in 0..TURNS_MAX {
        turn(world);
        let engines = engines(world);
        now(engines.iter().copied());
        left = engines.iter().try_for_each(|engine| engine.audit_rest());
        if left.is_ok() {
            return;
        }
    }
    panic!("{left:?}");
}
