//! What comes from the wire and says that it comes from an address that nobody there can have: the
//! host's own, of whichever NIC, loopback, groups, none at all. It is dropped and counted on the
//! NIC that it came to.

mod world;

use std::net::{IpAddr, SocketAddr};

use clearway_base::{MICROSECOND, SECOND, Time};
use clearway_engine::ip::{self, Datagram, Interface};
use clearway_engine::{Congestion, Control, Engine, EngineConfig, Event, Idle, Request, Snapshot};
use clearway_nic::{MacAddress, Queue, Transmit, fabric};
use clearway_wire::Ecn;
use world::{UDP_PORT, events};

/// Addresses of the host's NICs, the last of them of the link.
const OWN: [[&str; 4]; 2] = [
    ["10.1.0.1", "10.1.0.2", "fd01::1", "fe80::1"],
    ["10.2.0.1", "10.2.0.2", "fd02::1", "fe80::2"],
];
/// What the second NIC gets later.
const LATER: &str = "10.2.0.3";
/// Addresses that are nobody's on any link.
const NOBODYS: [&str; 9] = [
    "0.0.0.0",
    "0.1.2.3",
    "127.0.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "10.1.0.255",
    "::",
    "::1",
    "::ffff:10.1.0.9",
];

/// A host with two NICs, and who is at the other end of their wires.
struct Wired {
    engines: Vec<(Engine, Control)>,
    strangers: Vec<fabric::Queue>,
    fabrics: Vec<fabric::Handle>,
    macs: Vec<MacAddress>,
    now: Time,
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn network(nic: usize, mac: MacAddress, more: &[&str]) -> ip::Config {
    let prefixed = |text: &&str| (ip(text), if ip(text).is_ipv4() { 24 } else { 64 });
    ip::Config {
        mac,
        addresses: OWN[nic].iter().chain(more).map(prefixed).collect(),
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    }
}

impl Wired {
    fn new() -> Self {
        let now = Time::from_ns(SECOND);
        let (mut nics, mut strangers) = (Vec::new(), Vec::new());
        let (mut fabrics, mut macs) = (Vec::new(), Vec::new());
        for nic in 0..2 {
            let faults = [fabric::Faults::default(); 2];
            let (own, stranger, handle) = fabric::pair(fabric::Options::new(nic as u64), faults);
            macs.push(own.info().mac);
            let config = EngineConfig {
                name: format!("nic-{nic}"),
                interface: network(nic, own.info().mac, &[]),
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

    fn turn(&mut self) {
        self.now = self.now + MICROSECOND;
        self.fabrics.iter().for_each(|fabric| fabric.set_time(self.now));
        for (engine, _) in &mut self.engines {
            engine.turn(self.now);
        }
    }

    fn post(&mut self, engine: usize, request: Request) {
        self.engines[engine].1.post(request).expect("the mailbox is free after a turn");
        self.turn();
    }

    fn snapshot(&mut self, engine: usize) -> Snapshot {
        self.post(engine, Request::Snapshot { id: 0 });
        let control = &mut self.engines[engine].1;
        let mut events: Vec<Event> = std::iter::from_fn(|| control.next_event()).collect();
        events::take_snapshot(&mut events).expect("answered in one turn")
    }

    fn dropped(&mut self, nic: usize) -> u64 {
        let counters = self.snapshot(nic).counters;
        counters.iter().find(|(name, _)| *name == "source_address").expect("counted").1
    }

    /// Sends from `source` to the host, over one of its NICs. True if it was dropped for its
    /// source.
    fn is_dropped(&mut self, nic: usize, source: &str, port: u16) -> bool {
        let own = OWN[nic].map(ip);
        let source = ip(source);
        let to = own.iter().find(|own| own.is_ipv4() == source.is_ipv4()).expect("of each family");
        let frame = datagram(self.macs[nic], source, SocketAddr::new(*to, port));
        let before = self.dropped(nic);
        let sent = self.strangers[nic].transmit(&mut |buffer| {
            buffer[..frame.len()].copy_from_slice(&frame);
            frame.len()
        });
        assert_eq!(sent, Transmit::Queued);
        self.strangers[nic].flush();
        (0..4).for_each(|_| self.turn());
        self.dropped(nic) - before == 1
    }
}

/// An empty datagram to the host.
fn datagram(mac: MacAddress, source: IpAddr, to: SocketAddr) -> Vec<u8> {
    let sender = Interface::new(&network(0, [2, 0, 0, 0, 9, 9], &[]));
    let path = sender.udp_path_back(&Datagram {
        source: to,
        destination: SocketAddr::new(source, 50_000),
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

#[test]
fn nobody_on_the_wire_sends_from_an_address_of_the_host() {
    let mut world = Wired::new();
    for (nic, port) in [(0, UDP_PORT), (1, UDP_PORT), (0, 9), (1, 9)] {
        for source in NOBODYS.iter().chain(&OWN[nic]).chain(&OWN[1 - nic][..3]) {
            // The broadcast address of a network is one only there.
            let is_of_the_other = nic == 1 && *source == "10.1.0.255";
            let dropped = world.is_dropped(nic, source, port);
            assert_eq!(dropped, !is_of_the_other, "{source} to port {port} over NIC {nic}");
        }
        for source in ["10.1.0.9", "10.2.0.9", "192.0.2.1", "fd01::9", "fd02::9", "fe80::9"] {
            assert!(!world.is_dropped(nic, source, port), "{source} to port {port} over NIC {nic}");
        }
        // Each link may have such an address.
        assert!(!world.is_dropped(nic, OWN[1 - nic][3], port));
    }
}

#[test]
fn addresses_that_the_host_gets_or_loses_later_count_on_all_nics() {
    let mut world = Wired::new();
    assert!(!world.is_dropped(0, LATER, UDP_PORT) && !world.is_dropped(1, LATER, UDP_PORT));
    for (more, is_own) in [(&[LATER][..], true), (&[], false)] {
        let network = Box::new(network(1, world.macs[1], more));
        world.post(0, Request::NetworkElsewhere { nic: 1, network: network.clone() });
        world.post(1, Request::Network(network));
        for nic in 0..2 {
            assert_eq!(world.is_dropped(nic, LATER, UDP_PORT), is_own, "over NIC {nic}");
            assert!(world.is_dropped(nic, OWN[0][0], UDP_PORT), "that has not changed");
        }
    }
}
