//! What a simulation has come to.

use std::fmt;

use serde::Serialize;

/// A simulation that found nothing wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its seed.
    pub seed: u64,
    /// Hosts of the network.
    pub hosts: usize,
    /// Time that its hosts saw, in ns.
    pub simulated_ns: u64,
    /// Things that happened: turns, frames, apps that ran.
    pub steps: u64,
    /// What the apps saw.
    pub apps: Vec<(&'static str, u64)>,
    /// What happened to frames.
    pub network: Vec<(&'static str, u64)>,
    /// Faults, by kind.
    pub faults: Vec<(&'static str, u64)>,
    /// The same for every run of this seed.
    pub trace: u64,
}

impl Summary {
    /// A figure by its name, 0 if there is none.
    #[must_use]
    pub fn figure(&self, name: &str) -> u64 {
        let figures = self.apps.iter().chain(&self.network).chain(&self.faults);
        figures.filter(|(found, _)| *found == name).map(|(_, value)| *value).sum()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.simulated_ns as f64 / 1e9;
        writeln!(
            f,
            "seed {}: {} hosts, {seconds:.1} s, {} steps, nothing wrong; trace {:016x}",
            self.seed, self.hosts, self.steps, self.trace
        )?;
        for (title, figures) in
            [("apps", &self.apps), ("network", &self.network), ("faults", &self.faults)]
        {
            let figures: Vec<String> = figures
                .iter()
                .filter(|(_, value)| *value > 0)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            writeln!(f, "  {title}: {}", figures.join(", "))?;
        }
        Ok(())
    }
}

/// Something went wrong.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("seed {seed}, step {step}, at {at_ns} ns: {what}\nto see it again: {replay}")]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The step in which it was seen.
    pub step: u64,
    /// When, by the world's clock.
    pub at_ns: u64,
    /// What.
    pub what: String,
    /// The command that shows it again.
    pub replay: String,
}
