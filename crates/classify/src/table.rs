//! Tables: all give the same answers, at different costs.

mod adaptive;
mod linear;
mod production;
#[cfg(test)]
mod tests;
mod tuple;

pub use adaptive::Adaptive;
pub use linear::Linear;
pub use production::Production;
pub use tuple::Tuple;

use crate::{Rule, RuleId};
use clearway_wire::digest::Digest;

/// As many digests as a table is asked about at once. A burst of the engine is no larger.
pub const BATCH_MAX: usize = 32;

/// Finds, for each digest, the matching rule of the least rank. Rules come and go one by one.
pub trait Table {
    /// Takes a rule in. Its id and its rank are those of no other rule in the table.
    fn insert(&mut self, rule: Rule);

    /// Takes a rule out; false if there is none of that id.
    fn remove(&mut self, id: RuleId) -> bool;

    /// Writes the first match of `digests[i]` to `found[i]`.
    ///
    /// # Panics
    /// If there are more digests than [`BATCH_MAX`], or than places in `found`.
    fn classify(&mut self, digests: &[Digest], found: &mut [Option<RuleId>]);

    /// How many rules there are.
    fn rules(&self) -> usize;

    /// Bytes that the table holds for its rules and for finding them.
    fn memory_bytes(&self) -> usize;
}
