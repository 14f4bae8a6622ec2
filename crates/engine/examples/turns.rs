//! Two engines, joined by a wire in memory, and their apps in one thread, for counting
//! instructions:
//!
//! ```sh
//! cargo build --release -p clearway-engine --example turns
//! valgrind --tool=callgrind target/release/examples/turns message 64 20000
//! valgrind --tool=callgrind target/release/examples/turns frames 64 20000
//! ```
//!
//! `message`: so many messages of so many bytes there and back, one after the other. `frames`: so
//! many bursts of 32 frames of so many bytes from a virtual interface over the wire to another one.
//! What is counted is both engines and both apps; setting up is the same whatever the number is, so
//! the difference of two numbers tells what one costs.

#[path = "../tests/world/mod.rs"]
mod world;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_channel::Command;
use clearway_engine::{Allowance, Control, Engine, Event, Request, VifSpec};
use clearway_nic::{
    BURST_FRAMES, Capabilities, Checksums, Counters, Info, MacAddress, Queue, Sink, Transmit,
};
use world::{App, SIZES, address, config_of};

const FRAME_BYTES_MAX: usize = 1518;
const MACS: [MacAddress; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const PORT: u16 = 7000;
const VIF: u32 = 1;

/// One direction of the wire: frames, and buffers to be used again.
#[derive(Debug, Default)]
struct Lane {
    full: VecDeque<Vec<u8>>,
    empty: Vec<Vec<u8>>,
}

/// One end of the wire. Does as little as an end can.
struct End {
    mac: MacAddress,
    out: Arc<Mutex<Lane>>,
    inward: Arc<Mutex<Lane>>,
    burst: Vec<Vec<u8>>,
}

impl Queue for End {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            frame_bytes_max: FRAME_BYTES_MAX,
            transmit_checksum: false,
            receive_checksum: false,
            kernel_shares: false,
            reaches_kernel: false,
            receive_is_call: false,
            flush_is_call: false,
            receive_together: false,
        }
    }

    fn info(&self) -> Info {
        Info { driver: "wire", mode: "in memory".to_owned(), mac: self.mac }
    }

    fn link_up(&self) -> bool {
        true
    }

    fn receive(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut lane = self.inward.lock().expect("one thread");
        let count = lane.full.len().min(budget).min(BURST_FRAMES);
        self.burst.extend(lane.full.drain(..count));
        drop(lane);
        if count > 0 {
            let mut frames = [&[][..]; BURST_FRAMES];
            for (frame, bytes) in frames.iter_mut().zip(&self.burst) {
                *frame = bytes;
            }
            sink(&frames[..count], Checksums::Unknown);
            self.inward.lock().expect("one thread").empty.append(&mut self.burst);
        }
        count
    }

    fn transmit(&mut self, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> Transmit {
        let mut lane = self.out.lock().expect("one thread");
        let mut frame = lane.empty.pop().unwrap_or_default();
        frame.resize(FRAME_BYTES_MAX, 0);
        match fill(&mut frame) {
            0 => {
                lane.empty.push(frame);
                Transmit::Nothing
            }
            length => {
                frame.truncate(length);
                lane.full.push_back(frame);
                Transmit::Queued
            }
        }
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

struct Hosts {
    engines: Vec<(Engine, Control)>,
    apps: Vec<App>,
    now: Time,
}

impl Hosts {
    fn new() -> Self {
        let now = Time::from_ns(SECOND);
        let lanes = [(); 2].map(|()| Arc::new(Mutex::new(Lane::default())));
        let engine = |host: usize| {
            let (out, inward) = (Arc::clone(&lanes[host]), Arc::clone(&lanes[1 - host]));
            let end = End { mac: MACS[host], out, inward, burst: Vec::new() };
            let config = config_of(host, MACS[host]);
            Engine::new(config, vec![Box::new(end)], host as u64, [1; 16], now)
                .expect("descriptors")
        };
        let engines = vec![engine(0), engine(1)];
        let mut hosts = Self { engines, apps: Vec::new(), now };
        for host in 0..2 {
            let (app, request) = App::attaching(host, 0, 0, SIZES, Allowance::of_connections(16));
            hosts.apps.push(app);
            hosts.post(host, request);
        }
        hosts
    }

    fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        for (engine, _) in &mut self.engines {
            engine.turn(self.now);
        }
    }

    fn post(&mut self, host: usize, request: Request) {
        self.engines[host].1.post(request).expect("the mailbox is free after a turn");
        self.turn();
        while let Some(event) = self.engines[host].1.next_event() {
            match event {
                Event::Listening { result, .. } => result.expect("the port is free"),
                Event::VifOpened { result, .. } => result.expect("the port is free"),
                _ => {}
            }
        }
    }

    fn turn_until(&mut self, mut done: impl FnMut(&mut Vec<App>) -> bool) {
        while !done(&mut self.apps) {
            self.turn();
            self.apps.iter_mut().for_each(App::poll);
        }
    }

    /// The app of `host` sends to the other one, and that takes it.
    fn send(&mut self, host: usize, connection: u64, bytes: &[u8]) {
        assert!(self.apps[host].send(connection, bytes), "room for one");
        self.turn_until(|apps| !apps[1 - host].received.is_empty());
        let received = self.apps[1 - host].received.pop_front().expect("just seen");
        self.apps[1 - host].release(received);
    }

    fn messages(&mut self, bytes: usize, count: usize) {
        self.post(1, Request::Listen { channel: 0, listener: 1, address: None, port: PORT });
        let peer = SocketAddr::new(address(1), PORT);
        self.apps[0].submit(&Command::Connect { token: 1, peer });
        self.turn_until(|apps| !apps[0].connected.is_empty() && !apps[1].accepted.is_empty());
        let near = self.apps[0].connected.pop_front().expect("just seen");
        let far = self.apps[1].accepted.pop_front().expect("just seen");
        let message = vec![7; bytes];
        for _ in 0..count {
            self.send(0, near, &message);
            self.send(1, far, &message);
        }
    }

    fn frames(&mut self, bytes: usize, bursts: usize) {
        for (host, mac) in MACS.into_iter().enumerate() {
            let spec = VifSpec {
                receive: vec![port_filter("dst", host)],
                transmit: vec![port_filter("src", host)],
                mac,
                ..VifSpec::default()
            };
            self.post(host, Request::OpenVif { channel: 0, vif: VIF, spec: Box::new(spec) });
        }
        let frame = frame(bytes);
        let frames = [&frame[..]; BURST_FRAMES];
        for _ in 0..bursts {
            self.apps[0].send_frames(VIF, &frames);
            self.turn_until(|apps| apps[1].frames.len() == BURST_FRAMES);
            self.apps[1].frames.clear();
        }
    }
}

fn port_filter(side: &str, host: usize) -> clearway_classify::Filter {
    let mac = MACS[host].map(|octet| format!("{octet:02x}")).join(":");
    let address = address(host);
    format!("ether {side} {mac} and {side} host {address} and udp {side} port {PORT}")
        .parse()
        .expect("a filter")
}

/// From the virtual interface of the first host to that of the second.
fn frame(bytes: usize) -> Vec<u8> {
    use clearway_wire::{ethernet, ipv4, protocol, udp};
    let (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) =
        (address(0), address(1))
    else {
        panic!("hosts have IPv4 addresses");
    };
    let mut frame = vec![0; bytes.max(42)];
    let link = ethernet::Repr {
        destination: MACS[1],
        source: MACS[0],
        ether_type: ethernet::ether_type::IPV4,
    };
    let payload_length = (frame.len() - 34) as u16;
    let mut at = link.emit(&mut frame);
    let (protocol, hop_limit) = (protocol::UDP, 64);
    let ip = ipv4::Repr { source, destination, protocol, hop_limit, payload_length };
    at += ip.emit(&mut frame[at..]);
    let payload_length = payload_length - udp::HEADER_LENGTH as u16;
    udp::Repr { source_port: PORT, destination_port: PORT, payload_length }.emit(&mut frame[at..]);
    frame
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<usize>().ok());
    match (arguments.first().map(String::as_str), number(1), number(2)) {
        (Some("message"), Some(bytes), Some(count)) => Hosts::new().messages(bytes, count),
        (Some("frames"), Some(bytes), Some(count)) => Hosts::new().frames(bytes, count),
        _ => eprintln!("turns message|frames BYTES COUNT"),
    }
}
