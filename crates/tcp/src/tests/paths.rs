//! What the path takes: RFC 1191, 8201 and 5927 (routers say it), RFC 4821 and 8899 (nobody does).

use core::net::SocketAddr;

use clearway_base::{MILLISECOND, Random, SECOND};
use clearway_world::Faults;

use super::script::begin::*;
use super::script::cases;
use super::transfer::Flow;
use super::world::{World, rate, short_link};
use crate::*;

cases! {
    /// RFC 8899, 4.3: what is long and is lost again and again may be too long.
    a_black_hole: established_with("", "mss 1460") => "
        send 2920; > . 1:1461(1460) ack 1; > P. 1461:2921(1460) ack 1
        +0.2 > . 1:1461(1460) ack 1
        +0.4 > . 1:1461(1460) ack 1
        +0.8 > . 1:1241(1240) ack 1
        segment 1240
        < . 1:1(0) ack 1241
        > . 1241:1461(220) ack 1
        > . 1461:2701(1240) ack 1
        < . 1:1(0) ack 2701
        > P. 2701:2921(220) ack 1
        < . 1:1(0) ack 2921";

    /// The same where not even that arrives: RFC 8899, 5.1.2, MIN_PLPMTU.
    a_narrow_black_hole: established_with("", "mss 1460") => "
        send 1460; > P. 1:1461(1460) ack 1
        +0.2 > P. 1:1461(1460) ack 1
        +0.4 > P. 1:1461(1460) ack 1
        +0.8 > . 1:1241(1240) ack 1
        +1.6 > . 1:1241(1240) ack 1
        +3.2 > . 1:513(512) ack 1
        +6.4 > . 1:513(512) ack 1
        segment 512";

    /// The same of what is not full, and yet too long. Found by simulation.
    a_black_hole_for_a_segment_that_is_not_full: established_with("", "mss 1460") => "
        send 1100; > P. 1:1101(1100) ack 1
        +0.2 > P. 1:1101(1100) ack 1
        +0.4 > P. 1:1101(1100) ack 1
        +0.8 > . 1:513(512) ack 1
        < . 1:1(0) ack 513
        > . 513:1025(512) ack 1
        > P. 1025:1101(76) ack 1
        segment 512";

    /// What is short is lost for another reason.
    no_black_hole: established_with("", "mss 1460") => "
        send 500; > P. 1:501(500) ack 1
        +0.2 > P. 1:501(500) ack 1
        +0.4 > P. 1:501(500) ack 1
        +0.8 > P. 1:501(500) ack 1
        +1.6 > P. 1:501(500) ack 1
        segment 1460";

    /// RFC 1191, 6.3: ten minutes after a router has said less, the path may take more again.
    a_path_that_was_narrow_is_tried_again: established_with("", "mss 1460") => "
        send 1460; > P. 1:1461(1460) ack 1
        icmp too_big 1280 seq 1
        > . 1:1241(1240) ack 1; > P. 1241:1461(220) ack 1
        < . 1:1(0) ack 1461
        +599.95 < . 1:1(0) ack 1461 win 60000
        send 13860
        > . 1461:2701(1240) ack 1
        > . 2701:3941(1240) ack 1
        > . 3941:5181(1240) ack 1
        > . 5181:6421(1240) ack 1
        > . 6421:7661(1240) ack 1
        > . 7661:8901(1240) ack 1
        > . 8901:10141(1240) ack 1
        > . 10141:11381(1240) ack 1
        > . 11381:12621(1240) ack 1
        > . 12621:13861(1240) ack 1
        +0.05 > P. 13861:15321(1460) ack 1      // into a window that is full
        < . 1:1(0) ack 15321 win 60000
        segment 1240
        +1.1
        segment 1460";

    /// RFC 4821, 7.4: a probe that is lost says nothing of congestion, and what was in it is sent
    /// again in small segments.
    a_probe_is_lost: established_with("sack", "mss 1460,sackOK") => "
        send 1460; > P. 1:1461(1460) ack 1
        icmp too_big 1280 seq 1
        > . 1:1241(1240) ack 1; > P. 1241:1461(220) ack 1
        < . 1:1(0) ack 1461
        +599.9995 < . 1:1(0) ack 1461 win 60000
        send 16340
        > . 1461:2701(1240) ack 1
        > . 2701:3941(1240) ack 1
        > . 3941:5181(1240) ack 1
        > . 5181:6421(1240) ack 1
        > . 6421:7661(1240) ack 1
        > . 7661:8901(1240) ack 1
        > . 8901:10141(1240) ack 1
        > . 10141:11381(1240) ack 1
        > . 11381:12621(1240) ack 1
        > . 12621:13861(1240) ack 1
        +0.0005 > . 13861:15321(1460) ack 1
        < . 1:1(0) ack 13861 win 60000
        > . 15321:16561(1240) ack 1
        > P. 16561:17801(1240) ack 1
        window 24800
        < . 1:1(0) ack 13861 win 60000 <sack 15321:17801>
        > . 13861:15101(1240) ack 1
        > . 15101:15321(220) ack 1
        recovery open; segment 1240
        < . 1:1(0) ack 17801 win 60000
        in_flight 0";
}

/// Paths of all widths that drop what is too long and say nothing: transfers go on, with segments
/// that are nearly as long as they can be.
#[test]
fn a_path_that_says_nothing_is_measured() {
    let widths = [(600, false), (1290, false), (1400, false), (1492, false), (1420, true)];
    for (mtu, v6) in widths {
        for sack in [false, true] {
            let faults = Faults { latency_ns: MILLISECOND, rate: rate(100), ..Faults::default() };
            let settings = Settings { sack, timestamps: sack, ..Settings::default() };
            let mut world = World::new(1, Config::default(), faults, v6);
            world.mtu = mtu;
            let (client, server, _) = world.open(settings, settings);
            let mut flows = [Flow::new(client, 3_000_000, 1), Flow::new(server, 0, 2)];
            let mut random = Random::new(1);
            world.run(120 * SECOND, |world| {
                for (host, flow) in world.hosts.iter_mut().zip(&mut flows) {
                    flow.serve(host, &mut random, false);
                }
                flows[1].received.len() == flows[0].content.len()
            });
            assert!(flows[1].received == flows[0].content);
            let found = usize::from(world.hosts[0].stack.info(client).expect("ours").path_mtu);
            assert!((mtu - 20..=mtu).contains(&found), "{found} of {mtu}, {sack}, {v6}");
        }
    }
}

/// The MTU of the interface has changed since they began to listen.
#[test]
fn listeners_offer_what_the_interface_takes_now() {
    let mut world = World::new(1, Config::default(), short_link(), false);
    world.open(Settings::default(), Settings::default());
    let (now, [client, server]) = (world.now, &mut world.hosts);
    server.stack.set_listeners_mtu(9000);
    let from = SocketAddr::new(client.address.ip(), 7000);
    client.stack.connect(now, from, server.address, 1500, Settings::default()).expect("room");
    client.transmit(now).iter().for_each(|packet| server.receive(now, packet));
    let offered = server.stack.poll_transmit(now, 1).expect("an answer").repr.options;
    assert_eq!(offered.maximum_segment_size, Some(9000 - 40));
}
