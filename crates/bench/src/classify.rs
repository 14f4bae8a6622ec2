//! `clearway bench classify`: the tables of `clearway_classify` over ClassBench rule files.
//!
//! With `--sets DIR`, the paper's evaluation ("Revisiting User-Level Networking", section 4): its
//! Table 1 and Figure 5, and the production table beside DPDK's `librte_acl`. With `--rules` and
//! `--trace`, one rule file and one trace, all tables. With `--exact`, as many connections as
//! wanted. With `--generate`, it makes rule files.
//!
//! ```text
//! rules.rs ── rule file ─┐
//! trace.rs ── headers ───┴─▶ measure.rs ─▶ one outcome per table ─▶ JSON, text, plot.rs
//!                             acl.rs ─────▶ librte_acl's, from the program in bench/classify
//! ```

mod acl;
mod arguments;
mod exact;
mod generate;
mod measure;
mod outcome;
mod rules;
mod sets;
#[cfg(test)]
mod tests;
mod trace;

pub use arguments::{BenchCommand, ClassifyCommand};

use crate::error::Error;
use arguments::Task;
use clearway_classify::Rule;
use measure::Effort;
use std::fmt::Write as _;
use trace::Header;

impl ClassifyCommand {
    /// Runs it and prints what comes out.
    pub fn execute(&self) -> Result<(), Error> {
        match self.task()? {
            Task::Sets { directory, aclbench, plots, only } => {
                let effort = Effort::FULL.only(only);
                sets::run(&directory, aclbench.as_deref(), plots.as_deref(), effort, self.json)
            }
            Task::Generate { shape, count, seed } => {
                print(generate::text(&generate::rules(&shape, count as usize, seed)?))
            }
            Task::One { rules, trace, only } => {
                let (rules, headers) = read(&rules, trace.as_deref())?;
                let outcome = measure::all(&rules, &headers, Effort::FULL.only(only));
                print(if self.json { outcome.json() } else { outcome.text() })?;
                none_is_wrong(outcome.wrong())
            }
            Task::Exact { connections, patterns } => {
                print(exact::run(connections, patterns, self.json, Effort::FULL))
            }
        }
    }
}

/// A rule file, and its trace or one that is made from the rules.
fn read(
    rules: &std::path::Path,
    trace: Option<&std::path::Path>,
) -> Result<(Vec<Rule>, Vec<Header>), Error> {
    let lines = rules::read(rules)?;
    let headers = match trace {
        Some(trace) => trace::read(trace)?,
        None => trace::generate(&lines, trace::PER_RULE, trace::SEED),
    };
    let rules = lines.iter().enumerate().map(|(at, line)| line.rule(at)).collect();
    Ok((rules, headers))
}

pub(crate) fn print(text: String) -> Result<(), Error> {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::System { what: "writing the result", source: error })
        }
        _ => Ok(()),
    }
}

/// Fails if answers were wrong; those who are shown how many may not look.
fn none_is_wrong(wrong: u64) -> Result<(), Error> {
    if wrong == 0 { Ok(()) } else { Err(Error::Wrong(wrong)) }
}

/// A row of a table in text, padded.
fn row(text: &mut String, cells: &[String], widths: &[usize]) {
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ =
            if at == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
    }
    text.push('\n');
}
