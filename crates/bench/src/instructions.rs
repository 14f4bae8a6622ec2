//! `clearway bench instructions`: how many instructions the common cases take, by part, and how
//! much code that is.
//!
//! Times differ from machine to machine, and from minute to minute; instructions hardly do. So they
//! can have budgets: `bench/instructions.json` is what was accepted last, and CI fails if a case
//! takes 2 % more, or touches 10 % more lines of code in each of its rounds. The latter is what a
//! record of which code runs often is for (`profile/README.md`), and shows when it has aged.
//!
//! ```text
//!  this command ── valgrind --tool=callgrind clearway bench-role ... ──▶ profile, once per case
//!  cases.rs: what that process does    profile.rs: whose an instruction is    budget.rs
//! ```
//! Callgrind counts between entry and return of [`counted`], and nothing else.

mod budget;
mod cases;
mod hosts;
mod profile;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use serde::{Deserialize, Serialize};

use crate::directory::Directory;
use crate::error::{Error, While as _};
use crate::process::own_program;
use crate::role::{Part, Role};
pub(crate) use cases::Case;
pub(crate) use hosts::Ticks;

/// Count the instructions that common cases take, by part, and the code they touch, under valgrind
#[derive(clap::Args, Clone, Debug)]
pub struct InstructionsCommand {
    /// Fail if a case takes 2 % more than this file says, which `--json` has printed before, or
    /// touches 10 % more lines of code.
    #[arg(long, value_name = "FILE")]
    budget: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// What a case takes: instructions per echo, message or frame, by part, in tenths.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The counts of all cases, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) cases: BTreeMap<String, Counts>,
    /// Lines of 64 bytes of code that are touched in each round.
    pub(crate) lines: BTreeMap<String, u64>,
}

impl InstructionsCommand {
    /// Counts, prints, and compares with the budget.
    pub fn execute(&self) -> Result<(), Error> {
        let budget = self.budget.as_deref().map(budget::read).transpose()?;
        let directory = Directory::create().while_("making a directory")?;
        let mut report = Report::default();
        for case in Case::ALL {
            let file = directory.path().join(case.name());
            profile_case(case, &file)?;
            let text = std::fs::read_to_string(&file).while_("reading a profile")?;
            let profile = profile::read(&text);
            report.lines.insert(case.name().to_owned(), profile.lines_run(cases::ROUNDS));
            let mut counts = profile.parts;
            counts.values_mut().for_each(|count| *count = *count * 10 / case.units());
            report.cases.insert(case.name().to_owned(), counts);
        }
        let text = if self.json { json(&report) } else { table(&report) };
        crate::classify::print(text)?;
        budget.map_or(Ok(()), |budget| budget::check(&report, &budget))
    }
}

/// Entered and left by what is counted. Callgrind knows it by its name.
#[inline(never)]
pub(crate) fn counted<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Runs a case under callgrind, which writes its profile to `file`.
fn profile_case(case: Case, file: &std::path::Path) -> Result<(), Error> {
    let start = |source| Error::Start { program: "valgrind".into(), source };
    let output = Process::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*instructions*counted*"])
        .args(["--compress-strings=no", "--compress-pos=no", "--dump-instr=yes"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .args([&own_program(), "bench-role", &Role::new(Part::Instructions(case)).to_argument()])
        .stdin(Stdio::null())
        .output()
        .map_err(start)?;
    // A role that has failed says so, and nothing else.
    let told = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    if !output.status.success() || !output.stdout.is_empty() {
        let message = String::from_utf8_lossy(told).into_owned();
        return Err(Error::Role { who: format!("valgrind with {}", case.name()), message });
    }
    Ok(())
}

fn json(report: &Report) -> String {
    serde_json::to_string_pretty(report).expect("counts are plain data") + "\n"
}

fn table(report: &Report) -> String {
    let parts = profile::PARTS;
    let mut text = format!("{:<16}", "instructions");
    for title in ["all"].iter().chain(parts.iter()) {
        let _ = write!(text, " {title:>10}");
    }
    text.push_str(" code lines\n");
    for (name, counts) in &report.cases {
        let _ = write!(text, "{name:<16} {:>10}", tenths(counts.values().sum()));
        for part in parts {
            let _ = write!(text, " {:>10}", tenths(counts.get(part).copied().unwrap_or(0)));
        }
        let _ = writeln!(text, " {:>10}", report.lines.get(name).copied().unwrap_or(0));
    }
    text
}

fn tenths(count: u64) -> String {
    format!("{}.{}", count / 10, count % 10)
}
