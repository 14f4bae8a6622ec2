//! Engines that are saved, dropped and made again, at random moments of every run. That is no
//! fault: it excuses nothing, and no app and no peer may notice.

use clearway_base::{MILLISECOND, Random, Time};
use clearway_engine::{Engine, State};

use super::World;
use crate::Finding;
use crate::agenda::Happening;
use crate::control::Agreed;
use crate::faults::Fault;

/// The longest time between two restores in a network.
const PAUSE_NS_MAX: u64 = 200 * MILLISECOND;

/// Which engines are made again, and when. It draws from numbers of its own: whether engines are
/// made again changes nothing else of a run.
#[derive(Debug)]
pub(super) struct Restores {
    random: Random,
    pub(super) count: u64,
}

impl Restores {
    pub(super) const fn new(seed: u64) -> Self {
        Self { random: Random::new(!seed), count: 0 }
    }
}

impl World {
    /// The next restore, after a while.
    pub(super) fn plan_restore(&mut self) {
        let at = self.now + self.restores.random.below(PAUSE_NS_MAX);
        self.agenda.note(at, Happening::Fault(Fault::Restore));
    }

    /// Makes some engine again, unless its host is down.
    pub(super) fn restore_one(&mut self) -> Result<(), Finding> {
        let host = self.restores.random.below(self.hosts.len() as u64) as u32;
        let place = &mut self.hosts[host as usize];
        let engines = place.runners.len() as u64;
        if engines > 0 {
            let engine = self.restores.random.below(engines) as u32;
            let agreed = place.agreed();
            let restored = place
                .replace(engine, self.now, |engine, now| restore(engine, now, agreed.as_ref()));
            restored.map_err(Finding::new)?;
            self.restores.count += 1;
            self.shares.forget(host);
            self.wake(host, engine, self.now);
        }
        self.plan_restore();
        Ok(())
    }
}

/// Saves an engine as bytes, drops it, and makes it again. An error says what is not as it was, or
/// not as all engines have agreed.
fn restore(engine: Engine, now: Time, agreed: Option<&Agreed>) -> Result<Engine, String> {
    engine.audit()?;
    let bytes = engine.save().to_bytes();
    let remains = engine.into_remains();
    let state = State::from_bytes(&bytes).map_err(|error| error.to_string())?;
    agreed.map_or(Ok(()), |agreed| agreed.compare(&state))?;
    let restored = Engine::restore(state, remains, now).map_err(|error| error.to_string())?;
    let again = restored.save();
    if again.to_bytes() == bytes {
        return Ok(restored);
    }
    let before = State::from_bytes(&bytes).map_err(|error| error.to_string())?;
    Err(difference(&format!("{before:?}"), &format!("{again:?}")))
}

/// Where two texts begin to differ, and what stands there.
fn difference(before: &str, after: &str) -> String {
    let pairs = before.bytes().zip(after.bytes());
    let same = pairs.take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let shown = text.bytes().skip(same.saturating_sub(100)).take(200);
        shown.map(char::from).collect::<String>()
    };
    format!("it is not as it was: before ...{}..., after ...{}...", around(before), around(after))
}
