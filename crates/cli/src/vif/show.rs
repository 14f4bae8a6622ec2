//! `clearway vif show`.

use std::path::PathBuf;

use clearway_classify::Filter;
use serde_json::Value;

use super::list::{interfaces, refused};
use crate::client::{Client, PATIENCE};
use crate::output::{Failure, print};
use crate::owned::{list, show};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Its number, as `clearway vif list` shows it
    number: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    let interfaces = interfaces(&status);
    let number = arguments.number;
    let Some(vif) = interfaces.iter().find(|vif| vif["vif"].as_u64() == Some(number)) else {
        return Err(Failure::Failed(absence(number, &status)));
    };
    if arguments.json {
        return print(&format!("{vif:#}\n"));
    }
    print(&text(vif, &interfaces, &status))
}

/// Why an interface is not in the daemon's answer.
fn absence(number: u64, status: &Value) -> String {
    match status["vifs_omitted"].as_u64().unwrap_or(0) {
        0 => format!(
            "there is no virtual interface {number}; `clearway vif list` shows those that are open"
        ),
        omitted => format!(
            "virtual interface {number} is not among those that the daemon tells of, and {omitted} \
             more did not fit in its answer; ask as the user of its app, who is told of its own \
             only"
        ),
    }
}

fn text(vif: &Value, all: &[Value], status: &Value) -> String {
    let counter = |name: &str| show(&vif["counters"][name]);
    let mut text = format!(
        "VIF {} of app \"{}\" (user {}, process {}, channel {}) on engine \"{}\", priority {}\n",
        show(&vif["vif"]),
        show(&vif["app"]),
        show(&vif["user"]),
        show(&vif["process"]),
        show(&vif["channel"]),
        show(&vif["engine"]),
        show(&vif["priority"]),
    );
    text += &format!(
        "received {} frames, {} bytes; {} dropped for want of room\n",
        counter("received_frames"),
        counter("received_bytes"),
        counter("dropped_no_room"),
    );
    text += &format!(
        "sent {} frames, {} bytes; refused: {}\n",
        counter("sent_frames"),
        counter("sent_bytes"),
        refused(&vif["refused"]),
    );
    for (key, title) in
        [("receive", "RECEIVES"), ("copies", "GETS COPIES OF"), ("transmit", "MAY SEND")]
    {
        text += &filters_text(vif, key, title);
    }
    text + &order_text(vif, all, status)
}

fn filters_text(vif: &Value, key: &str, title: &str) -> String {
    let mut text = format!("\n{title}\n");
    if list(vif, key).is_empty() {
        text += "  nothing\n";
    }
    for filter in list(vif, key) {
        let filter = show(filter);
        text += &format!("  {filter}\n");
        if let Ok(filter) = filter.parse::<Filter>() {
            filter.explain().lines().for_each(|line| text += &format!("      {line}\n"));
        }
    }
    text
}

/// Who is asked before, and takes frames that match.
fn order_text(vif: &Value, all: &[Value], status: &Value) -> String {
    let mut text = format!(
        "\nORDER\n  before it: the host's own services (messages on UDP port {}, ARP, neighbour \
         discovery, ICMP)\n",
        show(&status["udp_port"])
    );
    let wanted = filters(vif);
    let before = all.iter().filter(|other| is_before(other, vif));
    for other in before {
        let taken: Vec<&Filter> = wanted
            .iter()
            .filter(|wanted| filters(other).iter().any(|other| other.overlaps(wanted)))
            .collect();
        if taken.is_empty() {
            continue;
        }
        text += &format!(
            "  before it: vif {} of app \"{}\", priority {}, which takes\n",
            show(&other["vif"]),
            show(&other["app"]),
            show(&other["priority"]),
        );
        for wanted in taken {
            let whole = if is_covered(wanted, &filters(other)) { "all" } else { "some" };
            text += &format!("      {whole} of `{wanted}`\n");
        }
    }
    text
}

fn filters(vif: &Value) -> Vec<Filter> {
    list(vif, "receive").iter().filter_map(|filter| show(filter).parse().ok()).collect()
}

/// On the same engine, the higher priority comes first, then the one that was opened first. Only an
/// app's own overlap with the same priority.
fn is_before(other: &Value, vif: &Value) -> bool {
    let rank = |vif: &Value| (std::cmp::Reverse(vif["priority"].as_u64()), vif["vif"].as_u64());
    other["engine_index"] == vif["engine_index"] && rank(other) < rank(vif)
}

fn is_covered(wanted: &Filter, others: &[Filter]) -> bool {
    wanted
        .clauses()
        .iter()
        .all(|wanted| others.iter().flat_map(Filter::clauses).any(|other| other.contains(wanted)))
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::status;
    use super::*;
    use serde_json::json;

    #[test]
    fn an_interface_that_did_not_fit_in_the_answer_is_not_said_to_be_absent() {
        assert!(absence(9, &status()).starts_with("there is no virtual interface 9; "));
        let text = absence(9, &json!({ "vifs_omitted": 7 }));
        assert!(!text.contains("there is no") && text.contains("7 more did not fit"), "{text}");
    }

    #[test]
    fn interface_is_shown_with_what_its_filters_mean_and_who_comes_before() {
        let status = status();
        let all = interfaces(&status);
        let shown = text(&all[0], &all, &status);
        for part in [
            "VIF 2 of app \"dns\" (user 7, process 8, channel 5)",
            "received 11 frames",
            "4 dropped",
            "source 3",
            "RECEIVES\n  dst host 10.0.0.2 and udp dst port 53\n      ",
            "GETS COPIES OF\n  nothing",
            "MAY SEND\n  udp src port 53",
            "UDP port 20707",
            "vif 3 of app \"sniff\", priority 9",
            "all of `dst host 10.0.0.2",
        ] {
            assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
        }
        assert!(!shown.contains("of `udp dst port 54`"), "nobody takes that:\n{shown}");
        let first = text(&all[1], &all, &status);
        assert!(!first.contains("vif 2"), "nobody comes before:\n{first}");
    }
}
