//! `clearway doctor`: what this machine can do for Clearway, and what would help.
//!
//! It looks and never changes anything, with one exception that has to be asked for by naming an
//! interface: to find out which driver is best there, they are tried.

mod interfaces;
mod machine;

use std::path::PathBuf;

use serde::Serialize;

use crate::output::{Failure, lines, print, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also try which driver is best on this interface. Some NICs lose their link for a moment
    interface: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Control socket of the daemon to look for
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was looked at.
    subject: String,
    verdict: Verdict,
    /// What is there.
    finding: String,
    /// What to do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Whether something is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Good as it is.
    Good,
    /// Works, but could be better.
    Limited,
    /// Does not work.
    Missing,
}

impl Finding {
    fn good(subject: impl Into<String>, finding: impl Into<String>) -> Self {
        let (subject, finding) = (subject.into(), finding.into());
        Self { subject, verdict: Verdict::Good, finding, advice: None }
    }

    fn limited(
        subject: impl Into<String>,
        finding: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { verdict: Verdict::Limited, advice, ..Self::good(subject, finding) }
    }

    fn missing(
        subject: impl Into<String>,
        finding: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Missing, ..Self::limited(subject, finding, advice) }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut findings = machine::findings(arguments.socket.as_deref());
    findings.extend(interfaces::findings(arguments.interface.as_deref()));
    if arguments.json {
        let json = serde_json::to_string_pretty(&findings).map_err(Failure::failed)?;
        print(&(json + "\n"))?;
    } else {
        print(&text(&findings))?;
    }
    // Who names an interface wants to use it.
    let named = arguments.interface.iter().map(|name| interfaces::subject(name));
    let missing = |subject: String| {
        findings.iter().find(|f| f.subject == subject && f.verdict == Verdict::Missing)
    };
    match named.filter_map(missing).next() {
        Some(finding) => Err(Failure::failed(&finding.finding)),
        None => Ok(()),
    }
}

fn text(findings: &[Finding]) -> String {
    let mut rows = table(&["", "subject", "finding"]);
    for finding in findings {
        let mark = match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Limited => "--",
            Verdict::Missing => "no",
        };
        rows.add_row([mark, &finding.subject, &finding.finding]);
    }
    let mut text = lines(&rows);
    let advice: Vec<&Finding> =
        findings.iter().filter(|finding| finding.advice.is_some()).collect();
    if !advice.is_empty() {
        text += "\nWHAT WOULD HELP\n";
    }
    for finding in advice {
        text +=
            &format!("  {}: {}\n", finding.subject, finding.advice.as_deref().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_looks_at_everything_without_privilege() {
        let findings = machine::findings(None);
        for subject in [
            "kernel",
            "cores",
            "privileges",
            "confinement",
            "open files",
            "locked memory",
            "daemon",
        ] {
            assert!(findings.iter().any(|finding| finding.subject == subject), "{subject}");
        }
        let drivers = interfaces::findings(None);
        assert!(drivers.iter().any(|finding| finding.subject == "memif"));
    }

    #[test]
    fn whatever_is_not_good_comes_with_advice() {
        let findings = [
            Finding::good("a", "fine"),
            Finding::limited("b", "slow", "buy another"),
            Finding::missing("c", "absent", "install it"),
        ];
        let text = text(&findings);
        assert!(text.contains("WHAT WOULD HELP\n  b: buy another\n  c: install it\n"), "{text}");
        assert!(text.contains("ok  a"), "{text}");
    }

    #[test]
    fn missing_interface_is_an_answer_and_not_a_crash() {
        let findings = interfaces::findings(Some("nonexistent0"));
        let about = findings.iter().find(|finding| finding.subject.contains("nonexistent0"));
        assert_eq!(about.expect("it is mentioned").verdict, Verdict::Missing);
    }
}
