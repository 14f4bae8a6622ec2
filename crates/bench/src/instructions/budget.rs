//! What cases may take: what they took when that was last accepted.

use std::fmt::Write as _;
use std::path::Path;

use super::{Counts, Report, tenths};
use crate::error::Error;

/// How much more a case may take, in percent: another compiler's choices are not a change of ours.
const TOLERANCE_PERCENT: u64 = 2;
/// The same of lines of code: a record that holds for nothing any more costs a fifth more of them.
const LINES_TOLERANCE_PERCENT: u64 = 10;

/// Reads a budget.
pub(super) fn read(path: &Path) -> Result<Report, Error> {
    let refused = |cause: String| {
        Error::Options(format!(
            "{} is no budget: {cause}; `clearway bench instructions --json` prints one",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refused(error.to_string()))
}

/// Fails if a case takes more than its budget, with the parts that grew, or touches more code.
pub(super) fn check(report: &Report, budget: &Report) -> Result<(), Error> {
    let mut told = String::new();
    for (name, counts) in &report.cases {
        match budget.cases.get(name) {
            None => _ = writeln!(told, "{name} has no budget"),
            Some(allowed) => check_case(&mut told, name, counts, allowed),
        }
    }
    for (name, &is) in &report.lines {
        let may = budget.lines.get(name).copied().unwrap_or(0);
        if is * 100 > may * (100 + LINES_TOLERANCE_PERCENT) {
            let _ = writeln!(
                told,
                "{name} touches {is} lines of code, its budget is {may}: `make profile` has the \
                 compiler know again what runs often"
            );
        }
    }
    if told.is_empty() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "{told}What grew is to shrink again; if it is worth it, accept it with `clearway bench \
         instructions --json > bench/instructions.json`, and say why in the commit"
    )))
}

fn check_case(told: &mut String, name: &str, counts: &Counts, allowed: &Counts) {
    let (is, may) = (counts.values().sum::<u64>(), allowed.values().sum::<u64>());
    if is * 100 <= may * (100 + TOLERANCE_PERCENT) {
        return;
    }
    let _ =
        writeln!(told, "{name} takes {} instructions, its budget is {}:", tenths(is), tenths(may));
    for (part, &count) in counts {
        let before = allowed.get(part).copied().unwrap_or(0);
        if count > before {
            let _ = writeln!(told, "    {part}: {} instead of {}", tenths(count), tenths(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn report(engine: u64, wire: u64) -> Report {
        let counts = [("engine".to_owned(), engine), ("wire".to_owned(), wire)].into();
        Report { cases: [("echo".to_owned(), counts)].into(), lines: BTreeMap::new() }
    }

    #[test]
    fn a_tenth_more_code_is_tolerated() {
        let touching = |lines: u64| {
            let lines = [("echo".to_owned(), lines)].into();
            Report { lines, ..report(600, 400) }
        };
        assert!(check(&touching(110), &touching(100)).is_ok());
        let told = check(&touching(111), &touching(100)).unwrap_err().to_string();
        assert!(told.contains("echo touches 111 lines of code, its budget is 100"), "{told}");
        assert!(check(&touching(1), &report(600, 400)).is_err(), "a new case needs a budget");
    }

    #[test]
    fn two_percent_are_tolerated_and_no_more() {
        let budget = report(600, 400);
        assert!(check(&report(620, 400), &budget).is_ok());
        let told = check(&report(621, 400), &budget).unwrap_err().to_string();
        assert!(told.contains("echo takes 102.1 instructions, its budget is 100.0"), "{told}");
        assert!(told.contains("engine: 62.1 instead of 60.0") && !told.contains("wire:"), "{told}");
        assert!(check(&budget, &Report::default()).is_err(), "a new case needs a budget");
    }
}
