//! The Wireshark dissector reads what `clearway vif capture` writes of two hosts that talk.

mod support;

use std::collections::HashSet;
use std::process::Command;

use support::{Capture, Network, PATIENCE, SMALL, clearway};

const DISSECTOR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wireshark/clearway.lua");
/// Longer than a packet.
const LARGE: usize = 40_000;

/// One of each: ping, connection, message, message in fragments, the same in a stream, close.
fn talk(network: &Network) {
    let mut server = network.server.attach("server");
    let mut client = network.client.attach("client");
    server.take_streams(true).expect("room");
    server.listen(4000).expect("listening");
    assert!(clearway(&["ping", "--count", "1", "10.8.0.2"], &network.client).status.success());
    let connection = client.connect(network.server.at(4000), Some(PATIENCE)).expect("a connection");
    let stream = client.open_stream(connection, Some(PATIENCE)).expect("a stream");
    let mut buffer = vec![0; SMALL.receive_pool_bytes as usize];
    for (to, length, content) in [(connection, 5, 7), (connection, LARGE, 7), (stream, LARGE, 8)] {
        client.send(to, &vec![content; length]).expect("sent");
        let (from, received) = server.recv(&mut buffer, Some(PATIENCE)).expect("a message");
        server.send(from, &buffer[..received]).expect("sent");
        client.recv(&mut buffer, Some(PATIENCE)).expect("an answer");
    }
    client.close(connection).expect("closed");
    server.recv(&mut buffer, Some(PATIENCE)).expect_err("the other side has closed");
}

/// Captures while the two talk, and returns what tshark shows of these fields of each frame.
fn dissected(fields: &[&str]) -> Vec<Vec<String>> {
    let network = Network::start();
    let name = format!("clearway-dissected-{}.pcapng", std::process::id());
    let path = std::env::temp_dir().join(name);
    let capture = Capture::begin(&network.client, &path);
    talk(&network);
    capture.end();
    let read = Command::new("tshark")
        .args(["-n", "-X", &format!("lua_script:{DISSECTOR}"), "-Y", "clearway", "-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .arg("-r")
        .arg(&path)
        .output()
        .expect("tshark starts; `tools/setup.sh test` installs it");
    std::fs::remove_file(&path).expect("removed");
    let told = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success() && !told.contains("Lua"), "{told}");
    let text = String::from_utf8(read.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn two_hosts_that_talk() {
    let fields = [
        "_ws.col.Info",
        "clearway.malformed",
        "clearway.crc32c.status",
        "clearway.message",
        "clearway.flow",
        "clearway.number",
    ];
    let packets = dissected(&fields);
    let told: Vec<&str> = packets.iter().map(|packet| &packet[0][..]).collect();
    for packet in &packets {
        assert_eq!((&packet[1][..], &packet[2][..]), ("", "right"), "{packet:?}");
    }
    let wanted = [
        "ping: ",
        "pong: ",
        "syn: to port 4000",
        "with cookie",
        "challenge: ",
        "syn-ack: version 3",
        "ack ",
        "message 0 (5 bytes)",
        "bytes 0-",
        "stream 1, open, limit ",
        "stream 1, message 0, bytes 0-",
        "close after 1 messages: closed in order",
        "close after 2 messages: closed in order",
    ];
    for words in wanted {
        assert!(told.iter().any(|line| line.contains(words)), "no {words:?} in {told:#?}");
    }
    let mut seen = HashSet::new();
    for packet in packets.iter().filter(|packet| !packet[5].is_empty()) {
        assert!(seen.insert(&packet[4..]), "shown twice: {packet:?}");
    }
    // There and back.
    for content in ["07", "08"] {
        let hex_of_large = content.repeat(LARGE);
        let whole = packets.iter().filter(|packet| packet[3].contains(&hex_of_large)).count();
        assert_eq!(whole, 2, "messages of {LARGE} bytes of {content}");
    }
}
