//! A host with two NICs, each with an engine and a stranger at the other end of its wire.

use std::net::{IpAddr, SocketAddr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_engine::ip::{self, Datagram, Interface};
use clearway_engine::{Congestion, Control, Engine, EngineConfig, Event, Idle, Request, Snapshot};
use clearway_nic::{MacAddress, Queue, Transmit, fabric};
use clearway_wire::Ecn;

use super::{UDP_PORT, events};

/// Addresses of the host's NICs, the last of them of the link.
pub const OWN: [[&str; 4]; 2] = [
    ["10.1.0.1", "10.1.0.2", "fd01::1", "fe80::1"],
    ["10.2.0.1", "10.2.0.2", "fd02::1", "fe80::2"],
];

/// The host, and who is at the other end of its wires.
pub struct Wired {
    engines: Vec<(Engine, Control)>,
    pub strangers: Vec<fabric::Queue>,
    fabrics: Vec<fabric::Handle>,
    pub macs: Vec<MacAddress>,
    pub now: Time,
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn network(nic: usize, mac: MacAddress, more: &[&str]) -> ip::Config {
    let prefixed = |text: &&str| (ip(text), if ip(text).is_ipv4() { 24 } else { 64 });
    ip::Config {
        mac,
        addresses: OWN[nic].iter().chain(more).map(prefixed).collect(),
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    }
}

impl Wired {
    /// A host whose addresses the kernel has as well, or not.
    pub fn new(kernel_shares: bool) -> Self {
        let now = Time::from_ns(SECOND);
        let (mut nics, mut strangers) = (Vec::new(), Vec::new());
        let (mut fabrics, mut macs) = (Vec::new(), Vec::new());
        for nic in 0..2 {
            let faults = [fabric::Faults::default(); 2];
            let (own, stranger, handle) = fabric::pair(fabric::Options::new(nic as u64), faults);
            macs.push(own.info().mac);
            let config = EngineConfig {
                name: format!("nic-{nic}"),
                interface: ip::Config { kernel_shares, ..network(nic, own.info().mac, &[]) },
                udp_port: UDP_PORT,
                idle: Idle::Spin,
                congestion: Congestion::Swift,
                silence_ms: clearway_engine::SILENCE_MS_DEFAULT,
            };
            let queues: Vec<Box<dyn Queue>> = vec![Box::new(own)];
            nics.push((config, vec![queues]));
            strangers.push(stranger);
            fabrics.push(handle);
        }
        let engines = Engine::of_host(nics, 1, [1; 16], now).expect("descriptors");
        Self { engines, strangers, fabrics, macs, now }
    }

    pub fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabrics.iter().for_each(|fabric| fabric.set_time(self.now));
        for (engine, _) in &mut self.engines {
            engine.turn(self.now);
        }
    }

    pub fn post(&mut self, engine: usize, request: Request) {
        self.engines[engine].1.post(request).expect("the mailbox is free after a turn");
        self.turn();
    }

    fn snapshot(&mut self, engine: usize) -> Snapshot {
        self.post(engine, Request::Snapshot { id: 0 });
        let control = &mut self.engines[engine].1;
        let mut events: Vec<Event> = std::iter::from_fn(|| control.next_event()).collect();
        events::take_snapshot(&mut events).expect("answered in one turn")
    }

    /// What an engine has counted under this name.
    pub fn counted(&mut self, engine: usize, name: &str) -> u64 {
        let counters = self.snapshot(engine).counters;
        counters.iter().find(|(other, _)| *other == name).expect("counted").1
    }

    /// A frame comes over one of the NICs, and all that follows from it happens.
    pub fn send(&mut self, nic: usize, frame: &[u8]) {
        let sent = self.strangers[nic].transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        assert_eq!(sent, Transmit::Queued);
        self.strangers[nic].flush();
        (0..4).for_each(|_| self.turn());
    }
}

/// An empty datagram to whoever has this Ethernet address.
pub fn datagram(mac: MacAddress, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let sender = Interface::new(&network(0, [2, 0, 0, 0, 9, 9], &[]));
    let path = sender.udp_path_back(&Datagram {
        source: to,
        destination: from,
        payload: &[],
        ecn: Ecn::NotCapable,
        source_mac: mac,
        packet: &[],
    });
    let mut frame = vec![0; 128];
    let length = path.emit_headers(&mut frame, 0, false);
    path.finish(&mut frame[..length]);
    frame.truncate(length);
    frame
}
