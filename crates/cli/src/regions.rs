//! `clearway regions`: what apps share by one-sided operations, with whom, and how much it is used.

use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Client, PATIENCE};
use crate::output::{Failure, eprint, lines, print, table};
use crate::owned::{list, omitted, owned, show};
use crate::units::{bytes, count};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON, with everything that is known
    #[arg(long)]
    json: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    if arguments.json {
        eprint(&omitted(&status, "regions"));
        return print(&format!("{:#}\n", Value::Array(owned(&status, "regions"))));
    }
    print(&page(&status))
}

fn page(status: &Value) -> String {
    let text = text(&owned(status, "regions")) + &omitted(status, "regions");
    if text.is_empty() { "no memory is shared\n".to_owned() } else { text }
}

fn text(regions: &[Value]) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let titles =
        ["app", "#user", "engine", "name", "#region", "#memory", "#size", "rights", "#operations"];
    let mut rows = table(&titles);
    for region in regions {
        let number = |key: &str| region[key].as_u64().unwrap_or(0);
        rows.add_row([
            show(&region["app"]),
            show(&region["user"]),
            show(&region["engine"]),
            show(&region["name"]),
            format!("{:x}", number("region")),
            number("memory").to_string(),
            bytes(number("region_bytes")),
            rights(region),
            count(number("operations_served")),
        ]);
    }
    lines(&rows)
}

/// Who may do what.
fn rights(region: &Value) -> String {
    match list(region, "grants") {
        [] => "nobody".to_owned(),
        grants => grants.iter().map(show).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status() -> Value {
        let region = |channel: u32, name: &str, grants: &[&str]| {
            json!({
                "channel": channel, "region": 0x1_0000_0002_u64, "name": name, "memory": 31,
                "start": 0,
                "region_bytes": 8192, "grants": grants, "operations_served": 1_234_567,
            })
        };
        json!({
            "apps": [{ "app": "kv", "user": 7, "process": 8, "engine": 0, "channel": 5 }],
            "engines": [{ "index": 0, "engine": "eth0", "regions": [
                region(5, "table", &["anybody: read", "10.0.0.0/8: read, write"]),
                region(6, "", &[]),
            ]}],
        })
    }

    #[test]
    fn each_region_has_a_line() {
        let text = text(&owned(&status(), "regions"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let parts =
            ["kv", "7", "eth0", "table", "100000002", " 31 ", "anybody: read; 10.0.0.0/8: read"];
        for part in parts {
            assert!(lines[1].contains(part), "{part} is missing in\n{text}");
        }
        assert!(lines[2].contains("nobody"), "{text}");
        assert_eq!(omitted(&status(), "regions"), "");
        assert!(omitted(&json!({ "regions_omitted": 7 }), "regions").contains("7 more"));
    }

    #[test]
    fn nothing_and_nonsense_are_shown_as_far_as_they_go() {
        assert_eq!(page(&json!({})), "no memory is shared\n");
        let none_fits = page(&json!({ "regions_omitted": 7 }));
        assert_eq!(none_fits, "and 7 more that did not fit in the answer\n");
        let odd = json!({ "engines": [{ "regions": [3, {}] }, 4], "apps": 5 });
        assert_eq!(text(&owned(&odd, "regions")).lines().count(), 2, "another version's status");
    }
}
