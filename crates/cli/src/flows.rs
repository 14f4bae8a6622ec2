//! `clearway flows`: connections, one after the other, with all that is known of those of TCP.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::client::{Client, PATIENCE};
use crate::output::{Failure, print};
use crate::owned::{list, omitted};
use crate::units::nanoseconds;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let status = Client::connect(arguments.socket.as_deref())?.status(PATIENCE)?;
    print(&page(&status))
}

fn page(status: &Value) -> String {
    let text = text(status) + &omitted(status, "flows");
    if text.is_empty() { "no connections\n".to_owned() } else { text }
}

fn text(status: &Value) -> String {
    let mut text = String::new();
    for engine in list(status, "engines") {
        for flow in list(engine, "flows") {
            let word = |key: &str| flow[key].as_str().unwrap_or("?");
            let tcp = &flow["tcp"];
            let local = tcp["local"].as_str().unwrap_or("-");
            let (path, state, peer) = (word("path"), word("state"), word("peer"));
            let name = engine["engine"].as_str().unwrap_or("?");
            let (channel, id) = (&flow["channel"], &flow["connection"]);
            let state = tcp["state"].as_str().unwrap_or(state);
            let of = match &flow["parent"] {
                Value::Null => String::new(),
                parent => format!(", stream of {parent}"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{path:<9} {state:<12} {local} {peer}  engine {name}, channel {channel}, \
                 connection {id}{of}"
            );
            let details = match tcp.is_object() {
                true => of_tcp(tcp),
                false => of_messages(flow),
            };
            let _ = writeln!(text, "          {}", details.join(" "));
        }
    }
    text
}

/// In the words of `ss -ti` where it has one.
fn of_tcp(tcp: &Value) -> Vec<String> {
    let number = |key: &str| tcp[key].as_u64().unwrap_or(0);
    let time = |key: &str| nanoseconds(number(key));
    let mut words = Vec::new();
    for flag in ["timestamps", "sack", "ecn"] {
        if tcp[flag] == true {
            words.push(if flag == "timestamps" { "ts" } else { flag }.to_owned());
        }
    }
    let scales = &tcp["window_scales"];
    words.extend([
        format!("wscale:{},{}", scales[0], scales[1]),
        format!("rto:{}", time("rto_ns")),
        format!("backoff:{}", number("rto_doublings")),
        format!("rtt:{}/{}", time("rtt_ns"), time("rtt_variation_ns")),
        format!("minrtt:{}", time("min_rtt_ns")),
        format!("mss:{}", number("segment_bytes")),
        format!("pmtu:{}", number("path_mtu")),
        format!("cwnd_bytes:{}", number("window_bytes")),
    ]);
    if let Some(threshold) = tcp["slow_start_threshold_bytes"].as_u64() {
        words.push(format!("ssthresh_bytes:{threshold}"));
    }
    words.push(tcp["recovery"].as_str().unwrap_or("?").to_owned());
    let counts = [
        ("segs_out", "segments_sent"),
        ("segs_in", "segments_received"),
        ("retrans", "segments_retransmitted"),
        ("bytes_acked", "acknowledged_bytes"),
        ("bytes_received", "received_bytes"),
        ("in_flight", "in_flight_bytes"),
        ("sacked", "sacked_bytes"),
        ("lost", "lost_bytes"),
        ("send_q", "queued_bytes"),
        ("notsent", "unsent_bytes"),
        ("recv_q", "unread_bytes"),
        ("ooo", "out_of_order_bytes"),
        ("snd_wnd", "send_window_bytes"),
        ("rcv_wnd", "receive_window_bytes"),
        ("rcv_space", "receive_buffer_bytes"),
        ("retries", "retries"),
    ];
    words.extend(counts.map(|(word, key)| format!("{word}:{}", number(key))));
    if tcp["reordering"] == true {
        words.push("reordering".to_owned());
    }
    words
}

fn of_messages(flow: &Value) -> Vec<String> {
    let number = |key: &str| flow[key].as_u64().unwrap_or(0);
    let mut words = vec![
        format!("rtt:{}", nanoseconds(number("rtt_ns"))),
        format!("window_bytes:{}", number("congestion_window_bytes")),
        format!("in_flight:{}", number("in_flight_bytes")),
        format!("packet_bytes:{}", number("packet_bytes")),
        format!("messages_out:{}", number("messages_sent")),
        format!("messages_in:{}", number("messages_received")),
        format!("outstanding:{}", number("messages_outstanding")),
        format!("lost:{}", number("packets_lost")),
    ];
    if flow["held_by_peer"] == true {
        words.push("held_by_peer".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tcp_is_shown_with_all_that_is_known() {
        let tcp = json!({
            "state": "Established", "local": "10.0.0.1:80", "segment_bytes": 1448, "sack": true,
            "window_scales": [7, 8], "recovery": "open", "segments_sent": 17,
        });
        let flow = json!({
            "path": "tcp", "state": "open", "peer": "10.0.0.2:4000", "channel": 1,
            "connection": 3, "tcp": tcp,
        });
        let text = text(&json!({ "engines": [{ "engine": "eth0", "flows": [flow] }] }));
        for words in [
            "tcp       Established  10.0.0.1:80 10.0.0.2:4000  \
             engine eth0, channel 1, connection 3",
            "sack wscale:7,8",
            "mss:1448",
            "segs_out:17",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn what_did_not_fit_in_the_answer_is_told_of() {
        assert_eq!(page(&json!({})), "no connections\n");
        let flow = json!({ "path": "wire", "state": "open", "peer": "10.0.0.2:4000" });
        let engines = json!([{ "engine": "eth0", "flows": [flow] }]);
        let page = page(&json!({ "engines": engines, "flows_omitted": 7 }));
        assert!(page.ends_with("\nand 7 more that did not fit in the answer\n"), "{page}");
    }

    #[test]
    fn who_waits_for_the_peers_app_is_told() {
        let flow = |is_held: bool| {
            json!({
                "path": "wire", "state": "open", "peer": "10.0.0.2:4000", "channel": 1,
                "connection": 4, "messages_outstanding": 5, "held_by_peer": is_held,
            })
        };
        let text =
            |flow: Value| text(&json!({ "engines": [{ "engine": "eth0", "flows": [flow] }] }));
        assert!(text(flow(true)).ends_with(" outstanding:5 lost:0 held_by_peer\n"));
        assert!(text(flow(false)).ends_with(" outstanding:5 lost:0\n"));
    }

    #[test]
    fn streams_have_a_connection() {
        let flow = json!({
            "path": "wire", "state": "open", "peer": "10.0.0.2:4000", "channel": 1,
            "connection": 4, "parent": 3,
        });
        let text = text(&json!({ "engines": [{ "engine": "eth0", "flows": [flow] }] }));
        assert!(text.contains("channel 1, connection 4, stream of 3\n"), "{text}");
    }
}
