//! ICMP errors to addresses that the kernel shares, which has them as well: engines hear them, of
//! so many in a time, and make nothing of those that are about packets of its programs.

mod world;

use std::net::SocketAddr;

use clearway_base::SECOND;
use clearway_engine::ip::{self, Interface};
use clearway_nic::Queue;
use world::UDP_PORT;
use world::wired::{OWN, Wired, datagram, ip, network};

/// What a second's tenth has of them (`ip`, `UNDELIVERED_PER_SECOND`).
const AT_ONCE: u64 = 1000;
/// Another host on the first NIC's wire.
const PEER: &str = "10.1.0.9";

/// What the peer says of an empty datagram from the host to this port, which nobody has.
fn refusal(world: &Wired, port: u16) -> Vec<u8> {
    let (host, peer) = (ip(OWN[0][0]), ip(PEER));
    let mac = world.strangers[0].info().mac;
    let config = ip::Config { addresses: vec![(peer, 24)], ..network(0, mac, &[]) };
    let mut interface = Interface::silent(&config);
    let (from, to) = (SocketAddr::new(host, 50_000), SocketAddr::new(peer, port));
    let mut asked = datagram(mac, from, to);
    // Its sender is the host.
    asked[6..12].copy_from_slice(&world.macs[0]);
    interface.refuse_datagram(world.now, &asked).expect("nobody has it");
    let mut frame = vec![0; 256];
    let length = interface.poll_transmit(&mut frame);
    frame.truncate(length);
    frame
}

#[test]
fn a_flood_costs_each_engine_so_much() {
    let mut world = Wired::new(true);
    let refusal = refusal(&world, UDP_PORT);
    let begun = world.now;
    for _ in 0..3 * AT_ONCE {
        world.send(0, &refusal);
    }
    // What came back in the meantime, besides.
    let passed_ns = world.now.since(begun);
    assert!(passed_ns < SECOND / 10);
    let heard_max = AT_ONCE + AT_ONCE * 10 * passed_ns / SECOND + 1;
    let refused = world.counted(0, "rate_limit");
    let heard = 3 * AT_ONCE - refused;
    assert!((AT_ONCE..=heard_max).contains(&heard), "{heard} of {heard_max}");
    // The other NIC's engine hears of it what the first has let through, and neither believes it.
    assert_eq!(world.counted(1, "lane_frames_received"), heard);
    for engine in [0, 1] {
        assert_eq!(world.counted(engine, "dropped_unsolicited"), heard);
    }
}

#[test]
fn what_the_kernel_has_alone_is_nobodys() {
    let mut world = Wired::new(true);
    let (error, programs) = (refusal(&world, UDP_PORT), refusal(&world, 53));
    let mut count = |name: &str, frame: &[u8]| {
        let before = world.counted(0, name);
        world.send(0, frame);
        world.counted(0, name) - before
    };
    assert_eq!(count("frames_unclaimed", &error), 0);
    // To another host.
    let mut other = error.clone();
    other[33] = 77;
    assert_eq!(count("frames_unclaimed", &other), 1);
    // An echo request.
    let mut echo = error.clone();
    echo[34] = 8;
    assert_eq!(count("frames_unclaimed", &echo), 1);
    // About a packet that one of them has sent: it was no message.
    assert_eq!(count("frames_unclaimed", &programs), 0);
    assert_eq!(count("dropped_unsolicited", &programs), 0);
    assert_eq!(count("unsolicited", &programs), 0);
    assert_eq!(count("dropped_unsolicited", &error), 1);
}
