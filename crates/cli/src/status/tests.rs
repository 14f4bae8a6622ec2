use super::*;
use crate::output::fit::columns;

fn page(status: &Value, is_wide: bool) -> String {
    Page { status, is_wide }.text()
}

fn small() -> Value {
    json!({
        "version": "1.2.3", "process": 7, "uptime_seconds": 3700, "sessions": 2,
        "socket": "/run/x", "udp_port": 20707, "flows_omitted": 9,
        "apps_omitted": 7, "listeners_omitted": 8,
        "confinement": { "user": "on, user 7", "system_calls": "on", "files": "off: because" },
        "apps": [{ "app": "echo", "user": 1, "process": 8, "engine": 0, "channel": 5 }],
        "engines": [{
            "index": 0, "engine": "eth0", "addresses": ["10.0.0.1/24"], "idle": "adaptive",
            "core": 1, "turns": 300, "turns_busy": 100,
            "queues": [{ "driver": "af_xdp", "mode": "copy: because", "link_up": true,
                "rx_frames": 1_234_567, "rx_bytes": 2_000 }],
            "channels": [{ "channel": 5, "core": 1, "messages_sent": 77,
                "message_too_large_bytes": 300_000 }],
            "listeners": [{ "channel": 5, "port": 9000 }, { "channel": 6, "port": 9001 }],
            "flows": [{ "channel": 5, "peer": "10.0.0.2:9000", "state": "open",
                "rtt_ns": 23_400, "connection": 17, "held_by_peer": true }],
            "counters": { "dropped_checksum": 3, "flows_accepted": 0 },
        }],
    })
}

/// All names as long as they may be, all numbers as large, and the longest addresses.
fn large() -> Value {
    let address = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    let name = "a-name-of-64-bytes-".repeat(4)[..64].to_owned();
    let max = u64::MAX;
    json!({
        "version": "10.20.30", "process": 4_194_304, "uptime_seconds": max, "sessions": 100_000,
        "socket": format!("/run/{}", "directory/".repeat(10)), "udp_port": 65535,
        "confinement": {
            "user": format!("on, user {name}"),
            "system_calls": "on, but refused calls are not logged (because of some other program)",
            "files": "off: this kernel has no Landlock; Linux 5.13 or newer has",
        },
        "needs_restart": ["control.socket", "nic.eth0.queues", "nic.eth1.queues", "udp_port"],
        "apps": [{ "app": name, "user": 4_294_967_294_u32, "process": 4_194_304, "engine": 0,
            "channel": 16_384, "memory_bytes": max, "listeners": 64 }],
        "engines": [{
            "index": 0, "engine": format!("{name}/63"), "idle": "adaptive", "congestion": "swift",
            "addresses": [format!("{}/128", &address[1..39]), format!("{}/64", &address[1..39])],
            "turns": max, "turns_busy": max,
            "queues": [{ "driver": "af_packet", "mac": "02:00:00:00:00:01", "link_up": false,
                "mode": "AF_PACKET, because AF_XDP could not be opened on this interface: no \
                    privilege (bind: EPERM); start the daemon as root",
                "rx_frames": max, "rx_bytes": max, "rx_frames_dropped": max,
                "tx_frames": max, "tx_bytes": max, "tx_frames_dropped": max }],
            "core": 1023,
            "channels": [{ "channel": 16_384, "core": 1023, "connections": max,
                "messages_sent": max, "messages_received": max, "receive_pool_bytes_used": max,
                "messages_waiting": max, "message_too_large_bytes": 8 << 20 }],
            "listeners": [{ "channel": 16_384, "port": 65535 }],
            "flows": [{ "channel": 16_384, "connection": 1_000_000, "peer": address,
                "state": "connecting", "path": "other NIC", "rtt_ns": 999_000_000_000_u64,
                "messages_sent": max, "messages_received": max, "packets_lost": max,
                "messages_outstanding": max, "held_by_peer": true }],
            "counters": { "data_packets_received": max, "dropped_unknown_flow": max },
        }],
    })
}

#[test]
fn whole_status_is_shown() {
    let text = page(&small(), false);
    for part in [
        "clearway 1.2.3, process 7, up 1 h 1 min, 2 sessions",
        "confined: user on, user 7; system calls on; files off: because",
        "ENGINE 0 \"eth0\": 10.0.0.1/24; idle adaptive, on core 1",
        "33% of\n  turns busy",
        "  echo shares core 1 with its engine",
        "  a message of 300000 bytes for echo is larger than its receive pool",
        "af_xdp : copy: because",
        "1.23M   2.00 kB",
        "77",
        "9000  echo       eth0",
        "9001  channel 6  eth0",
        "10.0.0.2:9000  open   23.4 µs",
        "\n  echo waits on connection 17: the app at 10.0.0.2:9000 does not release what",
        "dropped_checksum      3  Packets whose CRC did not match.",
        "\n  and 7 more apps that did not fit in the answer\n",
        "8 more listeners",
        "9 more flows",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("flows_accepted"));
}

/// A server that nobody reads has as many as it has clients.
#[test]
fn of_many_that_wait_for_their_peers_some_are_told() {
    let mut status = small();
    let flows = (0..20).map(|number| json!({ "connection": number, "held_by_peer": number > 0 }));
    status["engines"][0]["flows"] = flows.collect();
    let text = page(&status, false);
    assert_eq!(text.matches(" waits on connection ").count(), HELD_BY_PEERS_TOLD, "{text}");
    assert!(text.contains("\n  and 11 more connections wait for their peers' apps\n"), "{text}");
    status["engines"][0]["flows"] = json!([{ "held_by_peer": false }, {}]);
    assert!(!page(&status, false).contains(" waits on connection "), "{text}");
}

#[test]
fn no_line_is_longer_than_a_terminal_and_what_is_cut_says_so() {
    for status in [small(), large()] {
        let text = page(&status, false);
        for line in text.lines() {
            assert!(columns(line) <= TERMINAL_COLUMNS, "{} in\n{text}", columns(line));
        }
    }
    let text = page(&large(), false);
    let section = |title: &str| {
        let all = text.split(&format!("\n{title}\n")).nth(1).expect("a section");
        all.lines().nth(1).expect("a row").to_owned()
    };
    for title in ["APPS", "LISTENERS", "FLOWS", "COUNTERS"] {
        assert!(section(title).contains('…'), "{title} in\n{text}");
    }
    assert!(text.contains("\n   peer [2001:db8:1234:5678:9abc:def0:1234:5678]:65535\n"), "{text}");
    // Paragraphs go on in the next line instead.
    let all: String = text.split_whitespace().collect();
    for whole in ["/run/directory/directory", "startthedaemonasroot", "nic.eth1.queues,udp_port"] {
        assert!(all.contains(whole), "{whole} is missing in\n{text}");
    }
}

#[test]
fn wide_shows_everything_as_it_is() {
    let text = page(&large(), true);
    let name = "a-name-of-64-bytes-".repeat(4)[..64].to_owned();
    let max = u64::MAX.to_string();
    let address = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    assert!(!text.contains('…'), "{text}");
    for part in [name.as_str(), &max, address, "02:00:00:00:00:01", "other NIC"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn status_of_another_version_is_shown_as_far_as_it_goes() {
    assert!(page(&json!({}), false).contains("no apps"));
    let none_fits = page(&json!({ "apps_omitted": 7 }), false);
    assert!(none_fits.contains("and 7 more apps") && !none_fits.contains("no apps"), "{none_fits}");
    let odd = json!({ "engines": 3, "apps": [{ "engine": 4 }, 1] });
    assert!(page(&odd, false).contains("APPS"));
    let odd =
        json!({ "engines": [5, { "queues": [6, {}], "flows": [7], "counters": [["a", 1]] }] });
    assert!(page(&odd, true).contains("ENGINE"));
}
