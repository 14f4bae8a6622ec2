//! What came out, for programs and for people.

use std::fmt::Write as _;

use clearway_transport::Congestion;
use serde::Serialize;

/// The outcome of one simulation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    scenario: &'static str,
    case: String,
    control: &'static str,
    figures: Vec<(&'static str, f64)>,
}

impl Outcome {
    pub(super) fn new(scenario: &'static str, case: String, control: Congestion) -> Self {
        Self { scenario, case, control: control.name(), figures: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, figure: f64) -> Self {
        self.figures.push((name, figure));
        self
    }

    /// The figure of this name.
    #[cfg(test)]
    pub(super) fn figure(&self, name: &str) -> f64 {
        let found = self.figures.iter().find(|(other, _)| *other == name);
        found.unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }
}

/// A table per scenario, in the form that documents use.
pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (at, outcome) in outcomes.iter().enumerate() {
        let is_first = at == 0 || outcomes[at - 1].scenario != outcome.scenario;
        if is_first {
            head(&mut text, outcome);
        }
        let figures = outcome.figures.iter().map(|(_, figure)| show(*figure));
        let figures = figures.collect::<Vec<_>>().join(" | ");
        let _ = writeln!(text, "| {} | {} | {figures} |", outcome.case, outcome.control);
    }
    text
}

fn head(text: &mut String, outcome: &Outcome) {
    let names = outcome.figures.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | ");
    let rule = "---|".repeat(outcome.figures.len() + 2);
    let _ = write!(text, "\n{}\n\n| case | control | {names} |\n|{rule}\n", outcome.scenario);
}

fn show(figure: f64) -> String {
    match figure {
        figure if figure == figure.trunc() && figure.abs() < 1e15 => format!("{figure:.0}"),
        figure if figure.abs() < 10.0 => format!("{figure:.3}"),
        figure => format!("{figure:.1}"),
    }
}
