//! All rule files of a directory: the paper's Table 1 and Figure 5, and `librte_acl` beside.

use super::acl::{self, AclFigures};
use super::measure::Effort;
use super::outcome::{Figures, Outcome, TABLES};
use super::{measure, none_is_wrong, print, read, row, rules, trace};
use crate::error::Error;
use crate::plot::{Bars, Series};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One rule file.
#[derive(Debug)]
struct Set {
    name: String,
    rules: usize,
    packets: usize,
    outcome: Outcome,
    without_cache: Figures,
    acl: Option<AclFigures>,
}

#[derive(Serialize)]
struct Json<'a> {
    set: &'a str,
    rules: usize,
    packets: usize,
    #[serde(flatten)]
    outcome: &'a Outcome,
    production_without_cache: &'a Figures,
    librte_acl_ns_per_packet: Option<f64>,
    librte_acl_ns_per_packet_single: Option<f64>,
    librte_acl_memory_bytes: Option<usize>,
    librte_acl_build_ms: Option<f64>,
}

pub(super) fn run(
    directory: &Path,
    aclbench: Option<&Path>,
    plots: Option<&Path>,
    effort: Effort,
    json: bool,
) -> Result<(), Error> {
    let mut sets = Vec::new();
    for path in files(directory)? {
        eprintln!("{} ...", path.display());
        sets.push(set(&path, aclbench, effort)?);
    }
    sets.sort_by_key(|set| set.rules);
    if let Some(plots) = plots {
        write_plots(&sets, plots)?;
    }
    let text = if json { json_of(&sets) } else { paper_text(&sets) + &production_text(&sets) };
    print(text)?;
    none_is_wrong(sets.iter().map(|set| set.outcome.wrong()).sum())
}

/// Files whose first line begins as a rule does; there may be others.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let refuse = |problem: String| {
        Error::Options(format!("{}: {problem}; it should hold rule files", directory.display()))
    };
    let entries = std::fs::read_dir(directory).map_err(|error| refuse(error.to_string()))?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut files: Vec<_> = paths.filter(|path| begins_as_rules(path)).collect();
    files.sort();
    if files.is_empty() { Err(refuse("no rule files".into())) } else { Ok(files) }
}

fn begins_as_rules(path: &Path) -> bool {
    use std::io::Read as _;
    let mut first = [0];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first));
    path.is_file() && read.is_ok() && first == *b"@"
}

fn set(path: &Path, aclbench: Option<&Path>, effort: Effort) -> Result<Set, Error> {
    let (rules, headers) = read(path, None)?;
    // Before, between and after: what the machine does meanwhile is no one's alone.
    let first = aclbench.map(|program| acl_of(program, path)).transpose()?;
    let mut outcome = measure::all(&rules, &headers, effort);
    let second = aclbench.map(|program| acl_of(program, path)).transpose()?;
    let (again, without_cache) = measure::production(&rules, &headers, effort);
    let production = outcome.tables.get_mut("production").expect("it has been measured");
    production.ns_per_packet = production.ns_per_packet.midpoint(again.ns_per_packet);
    production.ns_per_packet_single =
        production.ns_per_packet_single.midpoint(again.ns_per_packet_single);
    production.wrong += again.wrong + without_cache.wrong;
    let acl = first.zip(second).map(|(first, second)| AclFigures {
        ns_per_packet: first.ns_per_packet.midpoint(second.ns_per_packet),
        ns_per_packet_single: first.ns_per_packet_single.midpoint(second.ns_per_packet_single),
        ..first
    });
    let name = path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    Ok(Set { name, rules: rules.len(), packets: headers.len(), outcome, without_cache, acl })
}

fn acl_of(program: &Path, path: &Path) -> Result<AclFigures, Error> {
    let file = format!("clearway-classify-{}.trace", std::process::id());
    let trace = std::env::temp_dir().join(file);
    let figures = acl::generate(program, path, &trace)
        .and_then(|()| same_trace(path, &trace))
        .and_then(|()| acl::measure(program, path, &trace));
    let _ = std::fs::remove_file(&trace);
    figures
}

/// Both measure the same headers.
fn same_trace(rules: &Path, trace: &Path) -> Result<(), Error> {
    let ours = trace::generate(&rules::read(rules)?, trace::PER_RULE, trace::SEED);
    if ours == trace::read(trace)? {
        return Ok(());
    }
    Err(Error::Options(
        "aclbench makes other headers than we do; build it from bench/classify".into(),
    ))
}

fn json_of(sets: &[Set]) -> String {
    let lines = sets.iter().map(|set| {
        let json = Json {
            set: &set.name,
            rules: set.rules,
            packets: set.packets,
            outcome: &set.outcome,
            production_without_cache: &set.without_cache,
            librte_acl_ns_per_packet: set.acl.map(|acl| acl.ns_per_packet),
            librte_acl_ns_per_packet_single: set.acl.map(|acl| acl.ns_per_packet_single),
            librte_acl_memory_bytes: set.acl.map(|acl| acl.memory_bytes),
            librte_acl_build_ms: set.acl.map(|acl| acl.build_ms),
        };
        serde_json::to_string(&json).expect("numbers and names are JSON") + "\n"
    });
    lines.collect()
}

/// The paper's table and figure, if all tables have been measured.
fn paper_text(sets: &[Set]) -> String {
    if sets.iter().any(|set| set.outcome.tables.len() < TABLES.len()) {
        return String::new();
    }
    let mut text = String::from("Table 1: rule sets\n");
    let widths = [10, 8, 9, 9, 9, 9, 9];
    let head = ["set", "rules", "bitmasks", "values", "hashed:", "values", "packets"];
    row(&mut text, &head.map(String::from), &widths);
    for set in sets {
        let of = &set.outcome;
        let numbers =
            [set.rules, of.masks, of.values, of.masks_hashed, of.values_hashed, set.packets];
        let cells: Vec<_> =
            std::iter::once(set.name.clone()).chain(numbers.map(|n| n.to_string())).collect();
        row(&mut text, &cells, &widths);
    }
    text += "\nFigure 5: ns per packet, batches of 32\n";
    let widths = [10, 10, 10, 10, 10];
    let head: Vec<_> = std::iter::once("set").chain(TABLES).map(String::from).collect();
    row(&mut text, &head, &widths);
    for set in sets {
        let times = TABLES.map(|table| format!("{:.1}", set.outcome.tables[table].ns_per_packet));
        let cells: Vec<_> = std::iter::once(set.name.clone()).chain(times).collect();
        row(&mut text, &cells, &widths);
    }
    text
}

fn production_text(sets: &[Set]) -> String {
    let mut text =
        String::from("\nThe production table beside librte_acl (ns per packet; KiB; us)\n");
    let widths = [10, 10, 9, 6, 8, 10, 8, 9, 9, 10, 10, 8, 6];
    let head = [
        "set",
        "production",
        "acl",
        "ratio",
        "no cache",
        "one by one",
        "acl",
        "KiB",
        "acl",
        "update p50",
        "p99",
        "max",
        "wrong",
    ];
    row(&mut text, &head.map(String::from), &widths);
    for set in sets {
        let ours = &set.outcome.tables["production"];
        let acl = |figure: fn(&AclFigures) -> f64, digits: usize| {
            set.acl.as_ref().map_or("-".into(), |acl| format!("{:.digits$}", figure(acl)))
        };
        let ratio = set.acl.map(|acl| ours.ns_per_packet / acl.ns_per_packet);
        let cells = [
            set.name.clone(),
            format!("{:.1}", ours.ns_per_packet),
            acl(|acl| acl.ns_per_packet, 1),
            ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            format!("{:.1}", set.without_cache.ns_per_packet),
            format!("{:.1}", ours.ns_per_packet_single),
            acl(|acl| acl.ns_per_packet_single, 1),
            (ours.memory_bytes / 1024).to_string(),
            acl(|acl| acl.memory_bytes as f64 / 1024.0, 0),
            format!("{:.2}", ours.update_us_p50),
            format!("{:.2}", ours.update_us_p99),
            format!("{:.1}", ours.update_us_max),
            ours.wrong.to_string(),
        ];
        row(&mut text, &cells, &widths);
    }
    text
}

fn write_plots(sets: &[Set], directory: &Path) -> Result<(), Error> {
    let of = |table: &str| sets.iter().map(|set| set.outcome.tables[table].ns_per_packet).collect();
    let series = |name, values| Series { name, values };
    let groups: Vec<_> = sets.iter().map(|set| set.name.clone()).collect();
    let figure_5 = Bars {
        title: "Mean time per packet (the paper's Figure 5)",
        unit: "ns",
        groups: &groups,
        series: TABLES.map(|table| series(table, of(table))).into(),
    };
    write(directory, "figure-5.svg", &figure_5)?;
    let mut beside = vec![
        series("production", of("production")),
        series("without cache", sets.iter().map(|set| set.without_cache.ns_per_packet).collect()),
    ];
    let acl: Option<Vec<_>> = sets.iter().map(|set| Some(set.acl?.ns_per_packet)).collect();
    beside.extend(acl.map(|values| series("librte_acl", values)));
    let beside = Bars {
        title: "The production table beside librte_acl",
        unit: "ns",
        groups: &groups,
        series: beside,
    };
    write(directory, "librte-acl.svg", &beside)
}

fn write(directory: &Path, name: &str, plot: &Bars<'_>) -> Result<(), Error> {
    let path = directory.join(name);
    std::fs::write(&path, plot.svg()).map_err(|error| {
        Error::Options(format!("cannot write {}: {error}; is the directory there?", path.display()))
    })
}
