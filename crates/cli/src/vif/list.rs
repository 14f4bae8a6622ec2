//! `clearway vif list`, and what the daemon's status says of virtual interfaces.

use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Client, PATIENCE};
use crate::output::{Failure, eprint, lines, print, table};
use crate::owned::{list, omitted, owned, show};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print JSON, with everything that is known
    #[arg(long)]
    json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    if arguments.json {
        eprint(&omitted(&status, "vifs"));
        return print(&format!("{:#}\n", Value::Array(interfaces(&status))));
    }
    print(&page(&status))
}

fn page(status: &Value) -> String {
    let text = text(&interfaces(status)) + &omitted(status, "vifs");
    if text.is_empty() { "no virtual interfaces are open\n".to_owned() } else { text }
}

/// In the order of their numbers.
pub(super) fn interfaces(status: &Value) -> Vec<Value> {
    let mut interfaces = owned(status, "vifs");
    interfaces.sort_by_key(|vif| vif["vif"].as_u64());
    interfaces
}

fn text(interfaces: &[Value]) -> String {
    if interfaces.is_empty() {
        return String::new();
    }
    let mut rows = table(&[
        "#vif",
        "app",
        "#user",
        "engine",
        "receive",
        "transmit",
        "#priority",
        "#rx frames",
        "#rx bytes",
        "#tx frames",
        "#tx bytes",
        "refused",
        "#no room",
    ]);
    for vif in interfaces {
        let counter = |name: &str| show(&vif["counters"][name]);
        rows.add_row([
            show(&vif["vif"]),
            show(&vif["app"]),
            show(&vif["user"]),
            show(&vif["engine"]),
            filters(vif, "receive"),
            filters(vif, "transmit"),
            show(&vif["priority"]),
            counter("received_frames"),
            counter("received_bytes"),
            counter("sent_frames"),
            counter("sent_bytes"),
            refused(&vif["refused"]),
            counter("dropped_no_room"),
        ]);
    }
    lines(&rows)
}

/// The first filter, and how many more there are.
fn filters(vif: &Value, key: &str) -> String {
    match list(vif, key) {
        [] => "nothing".to_owned(),
        [only] => show(only),
        [first, rest @ ..] => format!("{} (+{})", show(first), rest.len()),
    }
}

/// Each reason with its count.
pub(super) fn refused(refused: &Value) -> String {
    let reasons = refused.as_object().into_iter().flatten();
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{reason} {}", show(count))).collect();
    if reasons.is_empty() { "0".to_owned() } else { reasons.join(", ") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::vif) fn status() -> Value {
        let vif = |vif: u32, channel: u32, priority: u16, receive: &[&str]| {
            json!({
                "vif": vif, "channel": channel, "priority": priority, "receive": receive,
                "copies": [], "transmit": ["udp src port 53"],
                "counters": { "received_frames": 11, "dropped_no_room": 4, "sent_frames": 22 },
                "refused": { "source": 3 },
            })
        };
        json!({
            "udp_port": 20707,
            "apps": [
                { "app": "dns", "user": 7, "process": 8, "engine": 0, "channel": 5 },
                { "app": "sniff", "user": 0, "process": 9, "engine": 0, "channel": 6 },
            ],
            "engines": [{
                "index": 0, "engine": "eth0", "addresses": ["10.0.0.2/24"],
                "vifs": [
                    vif(3, 6, 9, &["udp dst port 53"]),
                    vif(2, 5, 0, &["dst host 10.0.0.2 and udp dst port 53", "udp dst port 54"]),
                ],
            }],
        })
    }

    #[test]
    fn list_has_a_line_per_interface() {
        let text = text(&interfaces(&status()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for part in ["dns", "eth0", "dst port 53 (+1)", "udp src port 53", "11", "22", "source 3"] {
            assert!(lines[1].contains(part), "{part} is missing in\n{text}");
        }
        assert!(lines[2].contains("sniff"));
        assert_eq!(omitted(&status(), "vifs"), "");
        assert!(omitted(&json!({ "vifs_omitted": 7 }), "vifs").contains("7 more"));
    }

    #[test]
    fn nothing_and_nonsense_are_shown_as_far_as_they_go() {
        assert_eq!(page(&json!({})), "no virtual interfaces are open\n");
        let none_fits = page(&json!({ "vifs_omitted": 7 }));
        assert_eq!(none_fits, "and 7 more that did not fit in the answer\n");
        let odd = json!({ "engines": [{ "vifs": [3, {}] }, 4], "apps": 5 });
        assert_eq!(interfaces(&odd).len(), 1, "another version's status");
    }
}
