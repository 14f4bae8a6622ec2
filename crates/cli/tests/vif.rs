//! Virtual interfaces end to end: two hosts over memif, apps that send raw frames, and the commands
//! by which people look at them.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clearway_client::{Channel, Code, Error, Frames, Vif, VifOptions};
use serde_json::Value;

use support::{Daemon, Network, PATIENCE, clearway, eventually, signal};

const CLIENT: [u8; 4] = [10, 8, 0, 1];
const SERVER: [u8; 4] = [10, 8, 0, 2];
const PORT: u16 = 4000;

/// An app with an interface for one UDP port of its host.
struct App {
    channel: Channel,
    vif: Vif,
}

impl App {
    fn open(daemon: &Daemon, name: &str, port: u16) -> Self {
        let mut channel = daemon.attach(name);
        let filter = format!("dst host own and udp dst port {port}");
        let vif = channel.open_vif(&VifOptions::receiving(filter)).expect("an interface");
        Self { channel, vif }
    }

    fn send(&mut self, frame: &[u8]) {
        self.channel.send_frame_timeout(self.vif.id, frame, Some(PATIENCE)).expect("room");
        self.channel.flush_frames(self.vif.id, Some(PATIENCE)).expect("room");
    }

    fn receive(&mut self) -> Frames {
        self.channel.recv_frames(Some(PATIENCE)).expect("frames")
    }

    /// A frame of the client's interface to the same port of the server's.
    fn frame_to(&self, other: &Self, source: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let datagram = [
            &PORT.to_be_bytes()[..],
            &PORT.to_be_bytes(),
            &(8 + payload.len() as u16).to_be_bytes(),
            &[0, 0],
            payload,
        ]
        .concat();
        let length = (20 + datagram.len() as u16).to_be_bytes();
        let mut head =
            [0x45, 0, length[0], length[1], 0, 1, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        head[12..16].copy_from_slice(&source);
        head[16..].copy_from_slice(&SERVER);
        let sum: u32 =
            head.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        [&other.vif.mac.0[..], &self.vif.mac.0, &[8, 0], &head, &datagram].concat()
    }
}

fn two_apps(network: &Network) -> (App, App) {
    (App::open(&network.client, "sender", PORT), App::open(&network.server, "receiver", PORT))
}

/// Sends until the first arrives: the wire may not be up yet.
fn wait_for_wire(sender: &mut App, receiver: &mut App) {
    let frame = sender.frame_to(receiver, CLIENT, b"are you there?");
    let deadline = Instant::now() + PATIENCE;
    loop {
        sender.send(&frame);
        match receiver.channel.recv_frames(Some(Duration::from_millis(50))) {
            Ok(_) => break,
            Err(Error::TimedOut { .. }) => assert!(Instant::now() < deadline, "nothing arrives"),
            Err(error) => panic!("{error}"),
        }
    }
    // Those that were still on their way.
    while receiver.channel.recv_frames(Some(Duration::from_millis(50))).is_ok() {}
}

fn listed(daemon: &Daemon) -> Vec<Value> {
    let output = clearway(&["vif", "list", "--json"], daemon);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    list.as_array().expect("a list").clone()
}

fn text_of(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = clearway(arguments, daemon);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A `clearway vif` command that goes on until it has enough or is interrupted.
fn start(daemon: &Daemon, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("vif")
        .args(arguments)
        .arg("--socket")
        .arg(&daemon.socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

/// Waits until a capture is open.
fn wait_for_capture(daemon: &Daemon) {
    eventually("the capture is open", || {
        daemon.status()["engines"][0]["captures"].as_array().is_some_and(|list| !list.is_empty())
    });
}

#[test]
fn frames_arrive_and_spoofed_ones_do_not_leave() {
    let network = Network::start();
    let (mut sender, mut receiver) = two_apps(&network);
    wait_for_wire(&mut sender, &mut receiver);
    let spoofed = sender.frame_to(&receiver, [10, 8, 0, 3], b"spoofed");
    let honest = sender.frame_to(&receiver, CLIENT, b"honest");
    for frame in [&spoofed, &honest] {
        sender.send(frame);
    }
    let frames = receiver.receive();
    let payloads: Vec<&[u8]> = frames.iter().map(|frame| &frame.bytes[42..]).collect();
    assert_eq!(payloads, [b"honest"]);
    eventually("the refusal is told", || {
        let told = sender.channel.frames_sent(sender.vif.id).expect("an open interface");
        told.rejected == 1
    });
    let list = listed(&network.client);
    assert_eq!(list.len(), 1);
    assert_eq!((&list[0]["app"], &list[0]["refused"]["source"]), (&"sender".into(), &1.into()));
    assert_eq!(listed(&network.server)[0]["app"], "receiver");
    let number = sender.vif.id.to_string();
    let shown = text_of(&network.client, &["vif", "show", &number]);
    assert!(shown.contains("app \"sender\"") && shown.contains("refused: source 1"), "{shown}");
    let table = text_of(&network.client, &["vif", "list"]);
    assert!(table.contains("dst host 10.8.0.1") && table.contains("source 1"), "{table}");
    let output = clearway(&["vif", "show", "999"], &network.client);
    assert!(String::from_utf8_lossy(&output.stderr).contains("clearway vif list"));
}

#[test]
fn interfaces_of_an_app_that_ends_are_free() {
    let network = Network::start();
    let app = App::open(&network.client, "first", PORT);
    let mut other = network.client.attach("second");
    let options = VifOptions::receiving(format!("dst host own and udp dst port {PORT}"));
    let refusal = other.open_vif(&options).expect_err("it belongs to the first").to_string();
    assert!(refusal.contains("app first") && refusal.contains("4000"), "{refusal}");
    drop(app);
    eventually("the first one's interface is free", || other.open_vif(&options).is_ok());
}

#[test]
fn open_prints_a_line_per_packet() {
    let network = Network::start();
    let mut sender = App::open(&network.client, "sender", PORT);
    let filter = ["dst", "host", "own", "and", "udp", "dst", "port", "4000"];
    let arguments = [&["open", "--count", "2", "--hex"], &filter[..]].concat();
    let mut command = start(&network.server, &arguments);
    eventually("the interface is open", || listed(&network.server).len() == 1);
    let mac = network.server.status()["engines"][0]["queues"][0]["mac"].clone();
    let mac: Vec<u8> = mac
        .as_str()
        .expect("an address")
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16).expect("an octet"))
        .collect();
    let mut receiver = sender.vif.clone();
    receiver.mac.0.copy_from_slice(&mac);
    let receiver = App { channel: network.client.attach("model"), vif: receiver };
    let frame = sender.frame_to(&receiver, CLIENT, b"hello");
    eventually("two packets are printed", || {
        sender.send(&frame);
        command.try_wait().expect("a child").is_some()
    });
    let output = command.wait_with_output().expect("it has ended");
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let packets = lines.iter().filter(|line| line.contains("Z IP")).count();
    assert_eq!(packets, 2, "{text}");
    assert!(lines[0].ends_with("Z IP 10.8.0.1.4000 > 10.8.0.2.4000: UDP, length 5"), "{text}");
    assert!(text.contains("hello"), "{text}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("receives") && told.contains("may send"), "{told}");
}

#[test]
fn capture_shows_what_became_of_frames_and_what_messages_do() {
    let network = Network::start();
    let (mut sender, mut receiver) = two_apps(&network);
    wait_for_wire(&mut sender, &mut receiver);
    let mut capture = start(&network.client, &["capture"]);
    wait_for_capture(&network.client);
    sender.send(&sender.frame_to(&receiver, [10, 8, 0, 3], b"spoofed"));
    sender.send(&sender.frame_to(&receiver, CLIENT, b"honest"));
    receiver.receive();
    assert!(clearway(&["ping", "--count", "1", "10.8.0.2"], &network.client).status.success());
    let wanted = [
        "IP 10.8.0.3.4000 > 10.8.0.2.4000: UDP, length 7 (from app sender, refused: source address",
        "IP 10.8.0.1.4000 > 10.8.0.2.4000: UDP, length 6 (from app sender)",
        "Clearway ping",
        "Clearway pong",
    ];
    let mut found = [false; 4];
    let lines = BufReader::new(capture.stdout.take().expect("a pipe")).lines();
    for line in lines {
        let line = line.expect("text");
        for (found, wanted) in found.iter_mut().zip(wanted) {
            *found |= line.contains(wanted);
        }
        if found == [true; 4] {
            break;
        }
    }
    assert_eq!(found, [true; 4], "{wanted:?}");
    signal(&capture, "INT");
    assert!(capture.wait().expect("it ends").success());
}

/// With `--count 0`, too, it goes on until then.
#[test]
fn capture_to_a_file_is_whole_after_ctrl_c() {
    let network = Network::start();
    let (mut sender, mut receiver) = two_apps(&network);
    wait_for_wire(&mut sender, &mut receiver);
    let path = std::env::temp_dir().join(format!("clearway-capture-{}.pcapng", std::process::id()));
    let name = path.to_str().expect("a name");
    let filter = ["udp", "port", "4000"];
    let arguments =
        [&["capture", "--app", "receiver", "--count", "0", "-w", name], &filter[..]].concat();
    let capture = start(&network.server, &arguments);
    wait_for_capture(&network.server);
    let frame = sender.frame_to(&receiver, CLIENT, b"captured");
    for _ in 0..3 {
        sender.send(&frame);
        receiver.receive();
    }
    signal(&capture, "INT");
    let output = capture.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("3 frames captured"), "{told}");
    let file = fs::read(&path).expect("the file");
    let text = String::from_utf8_lossy(&file);
    assert_eq!(text.matches("captured").count(), 3);
    assert_eq!(text.matches("to app receiver").count(), 3);
    let read = Command::new("tcpdump").args(["-nr", name]).output();
    fs::remove_file(&path).expect("removed");
    // Where tcpdump is not installed, it has no say.
    if let Ok(read) = read {
        let lines = String::from_utf8_lossy(&read.stdout);
        assert_eq!(lines.matches("10.8.0.1.4000 > 10.8.0.2.4000: UDP, length 8").count(), 3);
    }
}

#[test]
fn capture_of_one_flow_leaves_the_others_out() {
    let network = Network::start();
    let (mut server, mut client) = (network.server.attach("server"), network.client.attach("app"));
    server.listen(4000).expect("listening");
    let mut connect =
        || client.connect(network.server.at(4000), Some(PATIENCE)).expect("connected");
    let (one, other) = (connect(), connect());
    let flow = one.as_u64().to_string();
    let of_flow = ["capture", "--hex", "--app", "app", "--flow", &flow];
    let mut capture = start(&network.client, &of_flow);
    wait_for_capture(&network.client);
    client.send(other, b"of the other flow").expect("sent");
    client.send(one, b"of this flow only").expect("sent");
    let mut seen = String::new();
    let mut lines = BufReader::new(capture.stdout.take().expect("a pipe")).lines();
    while !(seen.contains("out") && seen.contains("to app app") && seen.contains("only")) {
        seen += &lines.next().expect("more").expect("text");
    }
    assert!(seen.contains("from app app") && !seen.contains("other"), "{seen}");
    signal(&capture, "INT");
    assert!(capture.wait().expect("it ends").success());
    let unknown = ["vif", "capture", "--app", "app", "--flow", "999"];
    let told = clearway(&unknown, &network.client).stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("no connection 999"), "{told}");
}

#[test]
fn a_slow_reader_of_a_capture_holds_up_nobody_and_is_told_what_it_missed() {
    let network = Network::start();
    let (mut sender, mut receiver) = two_apps(&network);
    wait_for_wire(&mut sender, &mut receiver);
    // Nobody reads what it writes.
    let mut capture = start(&network.client, &["capture", "-w", "-"]);
    wait_for_capture(&network.client);
    let frame = sender.frame_to(&receiver, CLIENT, &[7; 1400]);
    let captures = || network.client.status()["engines"][0]["captures"][0].clone();
    eventually("the capture has no more room", || {
        for _ in 0..64 {
            for _ in 0..32 {
                let room = Some(PATIENCE);
                sender.channel.send_frame_timeout(sender.vif.id, &frame, room).expect("room");
            }
            // What is in the way is the receiver's to lose.
            while receiver.channel.recv_frames(Some(Duration::ZERO)).is_ok() {}
        }
        captures()["frames_dropped"].as_u64().is_some_and(|dropped| dropped > 0)
    });
    while receiver.channel.recv_frames(Some(Duration::from_millis(50))).is_ok() {}
    sender.send(&sender.frame_to(&receiver, CLIENT, b"after"));
    while !receiver.receive().iter().any(|frame| frame.bytes.ends_with(b"after")) {}
    signal(&capture, "INT");
    let mut file = capture.stdout.take().expect("a pipe");
    let read = std::io::copy(&mut file, &mut std::io::sink()).expect("read");
    let output = capture.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(read > 1 << 20 && told.contains("frames were dropped"), "{told}");
}

#[test]
fn an_administrator_takes_an_interface_away() {
    let network = Network::start();
    let mut app = App::open(&network.client, "victim", PORT);
    let number = app.vif.id.to_string();
    text_of(&network.client, &["vif", "close", &number]);
    match app.channel.recv_frames(Some(PATIENCE)).map(|frames| frames.len()) {
        Err(Error::Vif { vif, code: Code::Denied }) => assert_eq!(vif, app.vif.id),
        other => panic!("{other:?}"),
    }
    assert!(listed(&network.client).is_empty());
    let output = clearway(&["vif", "close", &number], &network.client);
    assert!(String::from_utf8_lossy(&output.stderr).contains("clearway vif list"));
    // What it had is free.
    App::open(&network.client, "heir", PORT);
}

#[test]
fn capture_ends_when_its_reader_has_seen_enough() {
    let network = Network::start();
    let (mut sender, mut receiver) = two_apps(&network);
    wait_for_wire(&mut sender, &mut receiver);
    let mut capture = start(&network.client, &["capture", "-w", "-"]);
    drop(capture.stdout.take());
    wait_for_capture(&network.client);
    let frame = sender.frame_to(&receiver, CLIENT, b"unread");
    eventually("the capture ends", || {
        sender.send(&frame);
        capture.try_wait().expect("a child").is_some()
    });
    assert!(capture.wait().expect("it has ended").success());
}

#[test]
fn what_the_policy_forbids_is_refused_with_the_line_to_write() {
    let network = Network::start();
    let output = clearway(&["vif", "open", "udp", "dst", "prot", "7"], &network.client);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("column 9"), "{told}");
    let output = clearway(&["vif", "open", "udp"], &network.client);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("message service"), "{told}");
    let path = std::env::temp_dir().join(format!("clearway-refused-{}.pcapng", std::process::id()));
    fs::write(&path, "of before").expect("written");
    let name = path.to_str().expect("a path");
    let output = clearway(&["vif", "capture", "--app", "nobody", "-w", name], &network.client);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no app \"nobody\""), "{told}");
    assert_eq!(fs::read(&path).expect("read"), b"of before", "nothing was captured");
    fs::remove_file(&path).expect("its own");
}
