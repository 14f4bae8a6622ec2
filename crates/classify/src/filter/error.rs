//! Why a text is no filter.

/// What is wrong with the text of a filter, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {problem}; {remedy}")]
pub struct FilterError {
    /// Where in the text, in characters from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl FilterError {
    pub(super) fn new(
        column: usize,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { column, problem: problem.into(), remedy: remedy.into() }
    }
}
