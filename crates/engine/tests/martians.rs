//! What comes from the wire and says that it comes from an address that nobody there can have: the
//! host's own, of whichever NIC, loopback, groups, none at all. It is dropped and counted on the
//! NIC that it came to.

mod world;

use std::net::SocketAddr;

use clearway_engine::Request;
use world::UDP_PORT;
use world::wired::{OWN, Wired, datagram, ip, network};

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

fn dropped(world: &mut Wired, nic: usize) -> u64 {
    world.counted(nic, "source_address")
}

/// Sends from `source` to the host, over one of its NICs. True if it was dropped for its source.
fn is_dropped(world: &mut Wired, nic: usize, source: &str, port: u16) -> bool {
    let own = OWN[nic].map(ip);
    let source = ip(source);
    let to = own.iter().find(|own| own.is_ipv4() == source.is_ipv4()).expect("of each family");
    let from = SocketAddr::new(source, 50_000);
    let frame = datagram(world.macs[nic], from, SocketAddr::new(*to, port));
    let before = dropped(world, nic);
    world.send(nic, &frame);
    dropped(world, nic) - before == 1
}

#[test]
fn nobody_on_the_wire_sends_from_an_address_of_the_host() {
    let mut world = Wired::new(false);
    for (nic, port) in [(0, UDP_PORT), (1, UDP_PORT), (0, 9), (1, 9)] {
        for source in NOBODYS.iter().chain(&OWN[nic]).chain(&OWN[1 - nic][..3]) {
            // The broadcast address of a network is one only there.
            let is_of_the_other = nic == 1 && *source == "10.1.0.255";
            let dropped = is_dropped(&mut world, nic, source, port);
            assert_eq!(dropped, !is_of_the_other, "{source} to port {port} over NIC {nic}");
        }
        for source in ["10.1.0.9", "10.2.0.9", "192.0.2.1", "fd01::9", "fd02::9", "fe80::9"] {
            assert!(
                !is_dropped(&mut world, nic, source, port),
                "{source} to port {port} over NIC {nic}"
            );
        }
        // Each link may have such an address.
        assert!(!is_dropped(&mut world, nic, OWN[1 - nic][3], port));
    }
}

#[test]
fn addresses_that_the_host_gets_or_loses_later_count_on_all_nics() {
    let mut world = Wired::new(false);
    assert!(
        !is_dropped(&mut world, 0, LATER, UDP_PORT) && !is_dropped(&mut world, 1, LATER, UDP_PORT)
    );
    for (more, is_own) in [(&[LATER][..], true), (&[], false)] {
        let network = Box::new(network(1, world.macs[1], more));
        world.post(0, Request::NetworkElsewhere { nic: 1, network: network.clone() });
        world.post(1, Request::Network(network));
        for nic in 0..2 {
            assert_eq!(is_dropped(&mut world, nic, LATER, UDP_PORT), is_own, "over NIC {nic}");
            assert!(is_dropped(&mut world, nic, OWN[0][0], UDP_PORT), "that has not changed");
        }
    }
}
