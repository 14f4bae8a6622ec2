//! A report for people.

use crate::arguments::KernelEnd;
use crate::contender::Contender;
use crate::error::{Error, While};
use crate::report::{Figures, Found, Report};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

/// The report as a titled table, with the notes below it.
#[must_use]
pub fn report_text(report: &Report) -> String {
    let mut text = title(report);
    text.push('\n');
    text += &report.summary.text(|found| format!("{}\n{}", figures_table(found), losses(found)));
    if report.runs > 1 {
        let _ = writeln!(text, "medians of {} runs; spread: least to most of p50", report.runs);
    }
    if !report.summary.found.ratio.is_empty() {
        let _ = writeln!(
            text,
            "ratio: Clearway's figure divided by this one's (time under 1, rate over 1 is better)"
        );
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn title(report: &Report) -> String {
    let kernel_end = match report.kernel_end {
        Some(KernelEnd::Client) => " from a client of the kernel's",
        Some(KernelEnd::Server) => " to a server of the kernel's",
        None => "",
    };
    format!(
        "{} of {} B, window {}, connections {}, {:.2} s each; Clearway over {:?} (MTU {}){}, \
         apps in {:?}, layout {:?}, idle {:?}; TCP and UDP over {} (MTU {})",
        report.workload,
        report.size,
        report.window,
        report.connections,
        report.seconds,
        report.wire,
        report.mtu,
        kernel_end,
        report.app,
        report.layout,
        report.idle,
        report.tcp_wire,
        report.tcp_mtu
    )
}

fn figures_table(found: &Found) -> Table {
    let mut table = plain_table(
        1,
        [
            "",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "messages/s",
            "Gbit/s",
            "CPU s",
            "CPU s/Gbit",
            "spread µs",
            "p50 ratio",
            "p99.9 ratio",
            "rate ratio",
        ],
    );
    for (contender, figures) in &found.contenders {
        table.add_row(row(found, *contender, figures));
    }
    table
}

/// Who has lost messages, which are in no other figure.
fn losses(found: &Found) -> String {
    let mut text = String::new();
    for (contender, figures) in found.contenders.iter().filter(|(_, figures)| figures.lost > 0) {
        let (name, lost) = (contender.name(), thousands(figures.lost as f64));
        let _ = writeln!(text, "note: {name} lost {lost} messages, whose times are not counted");
    }
    text
}

/// An empty table whose columns from `names` on hold figures.
pub(crate) fn plain_table<const COLUMNS: usize>(names: usize, header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(found: &Found, contender: Contender, figures: &Figures) -> Vec<String> {
    let ratio = found.ratio.iter().find(|(name, _)| *name == contender).map(|(_, ratio)| ratio);
    let show =
        |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.2}"));
    let [least, most] = figures.spread.p50_ns;
    vec![
        contender.name().to_owned(),
        microseconds(figures.p50_ns),
        microseconds(figures.p99_ns),
        microseconds(figures.p999_ns),
        thousands(figures.rate_per_s),
        format!("{:.3}", figures.gbit_per_s),
        format!("{:.2}", figures.cpu_s),
        format!("{:.3}", figures.cpu_s_per_gbit),
        format!("{}..{}", microseconds(least), microseconds(most)),
        show(ratio.and_then(|ratio| ratio.p50)),
        show(ratio.and_then(|ratio| ratio.p999)),
        show(ratio.and_then(|ratio| ratio.rate)),
    ]
}

/// Prints a result: as JSON for programs, or as text for people.
pub(crate) fn print_report(
    is_json: bool,
    report: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Error> {
    print(&if is_json {
        serde_json::to_string_pretty(report).expect("a report is plain data")
    } else {
        text()
    })
}

/// Writes a result to standard output. A reader that has seen enough is no failure.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut output = std::io::stdout().lock();
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).while_("writing to standard output")
        }
        _ => Ok(()),
    }
}

pub(crate) fn microseconds(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1000.0)
}

/// A whole number with a comma before every three digits.
pub(crate) fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }
}
