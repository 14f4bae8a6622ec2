//! `clearway explain`: what a counter counts, when it rises, and what to do about it. It asks no
//! daemon.

use clearway_base::{Counter, Kind};
use clearway_engine::{CounterGroup, catalogue};

use crate::output::fit::{TERMINAL_COLUMNS, wrapped};
use crate::output::{Failure, print};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Names as in status and metrics; without any, all are listed
    #[arg(value_name = "COUNTER")]
    counters: Vec<String>,
    /// Print the page docs/counters.md
    #[arg(long, hide = true, conflicts_with = "counters")]
    markdown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let groups = catalogue();
    if arguments.markdown {
        return print(&markdown(&groups));
    }
    if arguments.counters.is_empty() {
        return print(&index(&groups));
    }
    let mut texts = Vec::new();
    for name in &arguments.counters {
        let found = found(&groups, name);
        if found.is_empty() {
            return Err(unknown(&groups, name));
        }
        texts.extend(found.into_iter().map(|(group, counter)| explained(group, counter)));
    }
    print(&texts.join("\n"))
}

/// What a counter of an engine counts; nothing if this version does not know it.
pub(crate) fn help_of_engine_counter(name: &str) -> &'static str {
    let groups = catalogue();
    let mut of_engine = groups.iter().filter(|group| group.owner.starts_with("an engine"));
    let counter = of_engine.find_map(|group| group.counters.iter().find(|c| c.name == name));
    counter.map_or("", Counter::help)
}

/// The counters of a name, of which different things may have one each; also by the name of a
/// metric.
fn found<'g>(groups: &'g [CounterGroup], name: &str) -> Vec<(&'g CounterGroup, &'g Counter)> {
    let metric = |group: &CounterGroup, counter: &Counter| {
        let known = match group.name {
            // One metric, with a label for the reason.
            "dropped" => "dropped_frames".to_owned(),
            group => format!("{group}_{}", counter.name),
        };
        name.strip_prefix("clearway_").is_some_and(|name| name.trim_end_matches("_total") == known)
    };
    let all = groups.iter().flat_map(|group| group.counters.iter().map(move |c| (group, c)));
    all.filter(|(group, counter)| counter.name == name || metric(group, counter)).collect()
}

fn unknown(groups: &[CounterGroup], name: &str) -> Failure {
    let known = groups.iter().flat_map(|group| group.counters.iter().map(|counter| counter.name));
    let close = known.map(|known| (strsim::jaro_winkler(known, name), known));
    let close = close.filter(|(likeness, _)| *likeness > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    let remedy = match close {
        Some((_, known)) => format!("do you mean {known}?"),
        None => "`clearway explain` lists all".to_owned(),
    };
    Failure::Usage(format!("there is no counter {name}; {remedy}"))
}

fn explained(group: &CounterGroup, counter: &Counter) -> String {
    let lines = [
        format!(
            "{}: {}, a {} of {}",
            counter.name,
            counter.unit.name(),
            counter.kind.name(),
            group.owner
        ),
        format!("  {}", counter.help()),
        format!("  It rises {}.", counter.rises),
        format!("  What to do: {}.", counter.remedy),
    ];
    lines.iter().map(|line| wrapped(line, TERMINAL_COLUMNS, 4)).collect()
}

fn index(groups: &[CounterGroup]) -> String {
    let sections = groups.iter().map(|group| {
        let line = |counter: &Counter| {
            let text = format!("  {}: {}", counter.name, counter.help());
            wrapped(&text, TERMINAL_COLUMNS, 4)
        };
        format!("Of {}:\n{}", group.owner, group.counters.iter().map(line).collect::<String>())
    });
    sections.collect::<Vec<_>>().join("\n")
}

/// `docs/counters.md`.
fn markdown(groups: &[CounterGroup]) -> String {
    let mut text = INTRODUCTION.to_owned();
    for group in groups {
        text += &format!("\n## `{}`: of {}\n\n", group.name, group.owner);
        text +=
            "| counter | unit | what it counts | it rises | what to do |\n|---|---|---|---|---|\n";
        for counter in &group.counters {
            let Counter { name, rises, remedy, .. } = counter;
            let unit = match counter.kind {
                Kind::Total => counter.unit.name().to_owned(),
                Kind::Level => format!("{}, now", counter.unit.name()),
            };
            text += &format!("| `{name}` | {unit} | {} | {rises} | {remedy} |\n", counter.help());
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Counters

All that `clearway status` counts, as `clearway explain COUNTER` says it. Each is declared once,
where it is counted; status, `clearway explain`, metrics and this page come from that. Counters rise
from when their owner began and are not reset; levels say how much there is now.

Written by `CLEARWAY_WRITE_DOCS=1 cargo test -p clearway-cli --test explain`; do not edit.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fit::columns;

    #[test]
    fn a_counter_is_found_by_its_names() {
        let groups = catalogue();
        let owners = |name: &str| {
            found(&groups, name).iter().map(|(group, _)| group.name).collect::<Vec<_>>()
        };
        assert_eq!(owners("dropped_checksum"), ["transport"]);
        assert_eq!(owners("clearway_transport_dropped_checksum_total"), ["transport"]);
        let dropped = owners("clearway_dropped_frames_total");
        assert!(dropped.len() > 1 && dropped.iter().all(|group| *group == "dropped"));
        assert_eq!(owners("messages_sent"), ["app", "flow"]);
        assert_eq!(owners("nothing-allowed"), ["refused"]);
        assert!(owners("dropped").is_empty());
        let Failure::Usage(text) = unknown(&groups, "droped_checksum") else { panic!("usage") };
        assert!(text.contains("do you mean dropped_checksum?"), "{text}");
        let Failure::Usage(text) = unknown(&groups, "x") else { panic!("usage") };
        assert!(text.contains("lists all"), "{text}");
    }

    #[test]
    fn everything_fits_on_a_terminal() {
        let groups = catalogue();
        let all = groups.iter().flat_map(|group| group.counters.iter().map(move |c| (group, c)));
        for text in all.map(|(group, c)| explained(group, c)).chain([index(&groups)]) {
            assert!(text.lines().all(|line| columns(line) <= TERMINAL_COLUMNS), "{text}");
        }
    }
}
