//! Virtual interfaces through real channels and engines: who receives what, who may send what, and
//! that a hostile app gets nothing out that it may not send.

mod world;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_channel::burst::Point;
use clearway_channel::{Code, Command, FrameRefusal};
use clearway_classify::Filter;
use clearway_engine::{CaptureSpec, Request, VifSpec};
use clearway_nic::MacAddress;
use clearway_nic::fabric::Faults;
use clearway_wire::{arp, ethernet, ipv4, protocol};
use world::{App, SIZES, World};

const OWN_MAC: MacAddress = [2, 9, 9, 9, 9, 9];

/// An address of the network: host 0 is .1, host 1 is .2, and .50 is a VIF of its own.
fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 7, 0, last)
}

/// A UDP datagram in a frame.
#[derive(Clone, Copy)]
struct Datagram {
    macs: [MacAddress; 2],
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
}

impl Datagram {
    fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 42 + payload.len()];
        let [source, destination] = self.macs;
        let ether_type = ethernet::ether_type::IPV4;
        let mut at = ethernet::Repr { destination, source, ether_type }.emit(&mut frame);
        let (source, destination) = (self.from.0, self.to.0);
        let payload_length = (8 + payload.len()) as u16;
        let protocol = protocol::UDP;
        let ip = ipv4::Repr { source, destination, protocol, hop_limit: 64, payload_length };
        at += ip.emit(&mut frame[at..]);
        frame[at + 8..].copy_from_slice(payload);
        frame[at..at + 2].copy_from_slice(&self.from.1.to_be_bytes());
        frame[at + 2..at + 4].copy_from_slice(&self.to.1.to_be_bytes());
        frame[at + 4..at + 6].copy_from_slice(&payload_length.to_be_bytes());
        frame
    }
}

fn filters(texts: &[&str]) -> Vec<Filter> {
    texts
        .iter()
        .map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
        .collect()
}

fn mac_text(mac: MacAddress) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// A VIF with `port` of the host's own address.
fn port_spec(world: &World, host: usize, port: u16) -> VifSpec {
    let (mac, address) = (mac_text(world.hosts[host].mac), ip(host as u8 + 1));
    VifSpec {
        receive: filters(&[&format!(
            "ether dst {mac} and dst host {address} and udp dst port {port}"
        )]),
        copies: Vec::new(),
        transmit: filters(&[&format!(
            "ether src {mac} and src host {address} and udp src port {port}"
        )]),
        priority: 0,
        mac: world.hosts[host].mac,
        ..VifSpec::default()
    }
}

/// A VIF that is a machine of its own on the link.
fn machine_spec() -> VifSpec {
    let (mac, address) = (mac_text(OWN_MAC), ip(50));
    VifSpec {
        receive: filters(&[&format!("ether dst {mac}")]),
        copies: filters(&["ether multicast"]),
        transmit: filters(&[
            &format!("ether src {mac} and arp sender {address}"),
            &format!("ether src {mac} and src host {address}"),
        ]),
        priority: 0,
        mac: OWN_MAC,
        ..VifSpec::default()
    }
}

/// Two hosts, each with an app that has port 5000.
fn two_apps() -> (World, App, App) {
    let mut world = World::new(1, Faults::default());
    let (a, b) = (world.attach(0, SIZES), world.attach(1, SIZES));
    for app in [&a, &b] {
        let spec = port_spec(&world, app.host, 5000);
        world.open_vif(app, 1, spec).expect("the port is free");
    }
    (world, a, b)
}

fn there(world: &World) -> Datagram {
    let macs = [world.hosts[0].mac, world.hosts[1].mac];
    Datagram { macs, from: (ip(1), 5000), to: (ip(2), 5000) }
}

/// Turns until something has come to `app`.
#[track_caller]
fn wait_for_frames(world: &mut World, app: &mut App, count: usize) -> Vec<Vec<u8>> {
    world.turn_until(|_| {
        app.poll();
        app.frames.len() >= count
    });
    app.frames.drain(..).map(|(_, _, frame)| frame).collect()
}

#[track_caller]
fn wait_for_bursts(world: &mut World, app: &mut App, vif: u32, bursts: u32) -> world::Report {
    world.turn_until(|_| {
        app.poll();
        app.reports.get(&vif).is_some_and(|report| report.bursts >= bursts)
    });
    app.reports[&vif]
}

/// An app that makes room in its ring rings no doorbell.
#[test]
fn an_engine_does_not_sleep_for_long_while_a_report_waits() {
    let (mut world, mut a, _b) = two_apps();
    let waits = |world: &World| world.hosts[0].members[0].engine.waits_for_room();
    for _ in 0..SIZES.completion_entries {
        a.submit(&Command::OpenStream { token: 1, connection: 0 });
    }
    (0..10).for_each(|_| world.turn());
    assert!(!waits(&world), "all that was told has room");
    let frame = there(&world).frame(&[1; 64]);
    a.send_frames(1, &[&frame]);
    (0..10).for_each(|_| world.turn());
    assert!(waits(&world));
    a.poll();
    assert_eq!((a.failed.len(), a.reports.len()), (SIZES.completion_entries as usize, 0));
    world.turn();
    assert!(!waits(&world));
    assert_eq!(wait_for_bursts(&mut world, &mut a, 1, 1).sent, 1);
}

#[test]
fn frames_go_from_vif_to_vif_over_the_wire() {
    let (mut world, mut a, mut b) = two_apps();
    let sent: Vec<Vec<u8>> = [0, 1, 18, 64, 1472]
        .iter()
        .map(|&length| there(&world).frame(&vec![length as u8; length]))
        .collect();
    let frames: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    a.send_frames(1, &frames);
    assert_eq!(wait_for_frames(&mut world, &mut b, 5), sent);
    let report = wait_for_bursts(&mut world, &mut a, 1, 1);
    assert_eq!((report.sent, report.rejected), (5, 0));
    // Many bursts, more than the NIC has descriptors: all arrive, in order.
    for burst in 0..40_u8 {
        let frames: Vec<Vec<u8>> =
            (0..16_u8).map(|frame| there(&world).frame(&[burst, frame])).collect();
        a.send_frames(1, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    let received = wait_for_frames(&mut world, &mut b, 640);
    for (index, frame) in received.iter().enumerate() {
        assert_eq!(frame[42..44], [(index / 16) as u8, (index % 16) as u8]);
    }
}

#[test]
fn bursts_that_meet_a_full_queue_go_on_where_they_stopped() {
    let (mut world, mut a, mut b) = two_apps();
    // More than the queue has descriptors for, and sent twice as fast as the other side takes them.
    let sent: Vec<Vec<u8>> =
        (0..640u32).map(|number| there(&world).frame(&number.to_be_bytes())).collect();
    for burst in sent.chunks(32) {
        let frames: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
        a.send_frames(1, &frames);
    }
    assert_eq!(wait_for_frames(&mut world, &mut b, sent.len()), sent);
    assert_eq!(wait_for_bursts(&mut world, &mut a, 1, 20).sent, 640);
}

#[test]
fn what_a_vif_may_not_send_stays_and_is_counted_by_reason() {
    let (mut world, mut a, mut b) = two_apps();
    let good = there(&world);
    let mut other_protocol = good.frame(b"tcp");
    other_protocol[23] = protocol::TCP;
    let mut fragment = good.frame(b"fragment");
    fragment[20..22].copy_from_slice(&[0x20, 0x01]);
    let cases = [
        ("mac-source", Datagram { macs: [[2, 0, 0, 0, 0, 77], good.macs[1]], ..good }.frame(b"")),
        ("source", Datagram { from: (ip(9), 5000), ..good }.frame(b"")),
        ("source-port", Datagram { from: (ip(1), 5001), ..good }.frame(b"")),
        ("protocol", other_protocol),
        ("unclear", fragment),
        ("too-long", good.frame(&[0; 4000])),
        ("network", [&good.macs[1][..], &good.macs[0][..], &[0x88, 0xb5], &[0; 46]].concat()),
    ];
    for (index, (name, frame)) in cases.iter().enumerate() {
        a.send_frames(1, &[frame]);
        let report = wait_for_bursts(&mut world, &mut a, 1, index as u32 + 1);
        assert_eq!((report.sent, report.rejected), (0, index as u64 + 1), "{name}");
        let reason = FrameRefusal::from_u8(report.reason).expect("a reason");
        assert_eq!(reason.word(), *name);
        let refused = world.snapshot(0).vifs[0].refused.clone();
        assert!(refused.contains(&(name, 1)), "{name}: {refused:?}");
    }
    // The good one still goes, and nothing else has come.
    let frame = good.frame(b"good");
    a.send_frames(1, &[&frame]);
    assert_eq!(wait_for_frames(&mut world, &mut b, 1), [frame]);
}

/// Although the queue would take it, and did so before.
#[test]
fn what_the_link_does_not_carry_any_more_is_refused() {
    let (mut world, mut a, mut b) = two_apps();
    let frame = there(&world).frame(&[0; 1200]);
    a.send_frames(1, &[&frame]);
    assert_eq!(wait_for_frames(&mut world, &mut b, 1), std::slice::from_ref(&frame));
    world.set_mtu(0, 1000);
    a.send_frames(1, &[&frame]);
    let report = wait_for_bursts(&mut world, &mut a, 1, 2);
    assert_eq!((report.sent, report.rejected), (1, 1));
    assert_eq!(FrameRefusal::from_u8(report.reason), Some(FrameRefusal::TooLong));
    world.set_mtu(0, 1500);
    a.send_frames(1, &[&frame]);
    assert_eq!(wait_for_bursts(&mut world, &mut a, 1, 3).sent, 2);
}

/// The issue: "the app may rewrite its memory at any moment and must not get a spoofed packet out".
#[test]
fn an_app_that_rewrites_its_frames_meanwhile_gets_nothing_spoofed_out() {
    const FRAMES: usize = 20_000;
    let (mut world, mut a, _b) = two_apps();
    let mut watcher = world.attach(1, SIZES);
    world.open_capture(&watcher, 1, everything()).expect("a capture");
    let good = there(&world).frame(&[0; 64]);
    let extent = a.pack(&[&good]);
    let (offset, length) = (extent.offset(), extent.length());
    let stop = AtomicBool::new(false);
    // The buffer is shared with a thread that flips the last octet of the source address, and the
    // source port, as fast as it can: as a hostile app would, by plain writes to shared memory.
    let mut hostile = a.end.into_buffer(extent);
    let mut sent = 0;
    let has_begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (stop, has_begun) = (&stop, &has_begun);
        scope.spawn(move || {
            let mut value = 0_u8;
            has_begun.wait();
            while !stop.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                let bytes: &mut [u8] = &mut hostile;
                // Behind the burst's header of 16 bytes: the source address, and the source port.
                let frame = std::hint::black_box(&mut bytes[16..]);
                frame[29] = if value & 1 == 0 { 1 } else { value };
                frame[34] = if value & 2 == 0 { 0x13 } else { value };
                std::hint::black_box(frame);
            }
        });
        has_begun.wait();
        while sent < FRAMES {
            if a.end.has_room() {
                a.submit(&Command::SendFrames { vif: 1, offset, length, count: 1 });
                sent += 1;
            }
            world.turn();
            a.poll();
            watcher.poll();
            check_sources(&mut watcher);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let report = wait_for_bursts(&mut world, &mut a, 1, FRAMES as u32);
    assert_eq!(report.sent + report.rejected, FRAMES as u64);
    assert!(report.rejected > 0, "the other thread has not come to do anything: {report:?}");
    watcher.poll();
    check_sources(&mut watcher);
}

/// Whatever has come over the wire to host 1 has the address and port that host 0's VIF may use.
#[track_caller]
fn check_sources(watcher: &mut App) {
    for (_, _, frame) in watcher.frames.drain(..).filter(|(_, _, frame)| frame[12..14] == [8, 0]) {
        assert_eq!(frame[26..30], ip(1).octets(), "a spoofed address came out");
        assert_eq!(frame[34..36], 5000_u16.to_be_bytes(), "a spoofed port came out");
    }
}

#[test]
fn apps_of_one_host_talk_through_the_switch_and_see_nothing_of_others() {
    let mut world = World::new(1, Faults::default());
    let (mut a, mut b, mut c) =
        (world.attach(0, SIZES), world.attach(0, SIZES), world.attach(0, SIZES));
    for (app, port) in [(&a, 5000), (&b, 5001), (&c, 5002)] {
        let spec = port_spec(&world, 0, port);
        world.open_vif(app, 7, spec).expect("the port is free");
    }
    let wire_before = world.snapshot(0).queues[0].counters.tx_frames;
    let mac = world.hosts[0].mac;
    let local = Datagram { macs: [mac, mac], from: (ip(1), 5000), to: (ip(1), 5001) };
    a.send_frames(7, &[&local.frame(b"hello")]);
    assert_eq!(wait_for_frames(&mut world, &mut b, 1), [local.frame(b"hello")]);
    c.poll();
    assert!(c.frames.is_empty());
    assert_eq!(
        world.snapshot(0).queues[0].counters.tx_frames,
        wire_before,
        "the NIC was not touched"
    );
    // The host's own services take nothing that says it comes from the host itself.
    a.send_frames(7, &[&Datagram { to: (ip(1), 9), ..local }.frame(b"")]);
    wait_for_bursts(&mut world, &mut a, 7, 2);
    assert!(world.snapshot(0).counters.contains(&("source_address", 1)));
}

/// The other host takes nothing, and so the NIC has no descriptor free.
#[test]
fn a_full_nic_holds_up_nobody_who_talks_to_this_host() {
    let mut world = World::new(1, Faults::default());
    let [mut a, mut b, mut c] = [5000, 5001, 5002].map(|port| {
        let app = world.attach(0, SIZES);
        let spec = port_spec(&world, 0, port);
        world.open_vif(&app, 1, spec).expect("the port is free");
        app
    });
    let away = Datagram { from: (ip(1), 5002), ..there(&world) }.frame(&[0; 64]);
    for _ in 0..40 {
        c.send_frames(1, &[&away[..]; 16]);
    }
    (0..100).for_each(|_| world.turn_alone(0));
    let mac = world.hosts[0].mac;
    let local = Datagram { macs: [mac, mac], from: (ip(1), 5000), to: (ip(1), 5001) };
    a.send_frames(1, &[&local.frame(b"hello")]);
    (0..100).for_each(|_| world.turn_alone(0));
    b.poll();
    assert_eq!(b.frames.len(), 1);
    c.poll();
    assert!(c.reports.get(&1).is_none_or(|report| report.bursts < 40), "the NIC is not full");
    wait_for_bursts(&mut world, &mut c, 1, 40);
}

#[test]
fn a_machine_of_its_own_answers_arp_and_talks_to_both_hosts() {
    let mut world = World::new(1, Faults::default());
    let mut machine = world.attach(0, SIZES);
    world.open_vif(&machine, 1, machine_spec()).expect("nobody has its address");
    // It asks for host 0, which is on the same switch, and for host 1, across the wire.
    for (host, target) in [(0, ip(1)), (1, ip(2))] {
        let question = arp_frame(OWN_MAC, ip(50), ethernet::BROADCAST, [0; 6], target, true);
        machine.send_frames(1, &[&question]);
        let mac = world.hosts[host].mac;
        wait_for(
            &mut world,
            &mut machine,
            &arp_frame(mac, target, OWN_MAC, OWN_MAC, ip(50), false),
        );
    }
    // Somebody who pretends to be another is not heard.
    let lie = arp_frame(OWN_MAC, ip(1), ethernet::BROADCAST, [0; 6], ip(2), true);
    machine.send_frames(1, &[&lie]);
    let report = wait_for_bursts(&mut world, &mut machine, 1, 3);
    assert_eq!((report.sent, report.rejected), (2, 1));
    assert_eq!(FrameRefusal::from_u8(report.reason), Some(FrameRefusal::Source));
    // An app of host 1 reaches it.
    let mut far = world.attach(1, SIZES);
    let spec = port_spec(&world, 1, 5000);
    world.open_vif(&far, 1, spec).expect("the port is free");
    let macs = [world.hosts[1].mac, OWN_MAC];
    let datagram = Datagram { macs, from: (ip(2), 5000), to: (ip(50), 80) };
    far.send_frames(1, &[&datagram.frame(b"hello")]);
    wait_for(&mut world, &mut machine, &datagram.frame(b"hello"));
}

/// Turns until `frame` has come, among what the hosts tell everybody.
#[track_caller]
fn wait_for(world: &mut World, machine: &mut App, frame: &[u8]) {
    world.turn_until(|_| {
        machine.poll();
        machine.frames.drain(..).any(|(_, _, received)| received == frame)
    });
}

fn arp_frame(
    source_mac: MacAddress,
    source: Ipv4Addr,
    to: MacAddress,
    target_mac: MacAddress,
    target: Ipv4Addr,
    is_request: bool,
) -> Vec<u8> {
    let mut frame = vec![0; 42];
    let ether_type = ethernet::ether_type::ARP;
    let at = ethernet::Repr { destination: to, source: source_mac, ether_type }.emit(&mut frame);
    let operation = if is_request { arp::Operation::Request } else { arp::Operation::Reply };
    arp::Repr { operation, source_mac, source, target_mac, target }.emit(&mut frame[at..]);
    frame
}

#[test]
fn a_dead_app_loses_its_vifs_at_once() {
    let (mut world, a, mut b) = two_apps();
    let channel = a.channel;
    world.post(0, Request::RemoveChannel { channel });
    assert!(world.snapshot(0).vifs.is_empty());
    let mut heir = world.attach(0, SIZES);
    let spec = port_spec(&world, 0, 5000);
    world.open_vif(&heir, 1, spec).expect("the port is free again");
    let back = there(&world);
    let back = Datagram { macs: [back.macs[1], back.macs[0]], from: back.to, to: back.from };
    b.send_frames(1, &[&back.frame(b"for the heir")]);
    assert_eq!(wait_for_frames(&mut world, &mut heir, 1), [back.frame(b"for the heir")]);
    world.post(0, Request::CloseVif { channel: heir.channel, vif: 1, told: None });
    assert!(world.snapshot(0).vifs.is_empty());
}

#[test]
fn an_app_that_does_not_read_loses_frames_and_keeps_its_connections() {
    let (mut world, mut a, mut b) = two_apps();
    world.listen(&b, 7000).expect("free");
    let (near, _) = world.connect(&mut a, &mut b, 7000);
    let frames: Vec<Vec<u8>> = (0..16).map(|_| there(&world).frame(&[0; 1400])).collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    // Twice what its pool holds, and it reads nothing of it.
    let bursts = 2 * SIZES.receive_pool_bytes / (16 * 1442);
    for burst in 0..bursts {
        a.send_frames(1, &frames);
        wait_for_bursts(&mut world, &mut a, 1, burst + 1);
    }
    let dropped = world.snapshot(1).vifs[0].counters.clone();
    let dropped = dropped.iter().find(|(name, _)| *name == "dropped_no_room").expect("counted").1;
    assert!(dropped > 0);
    assert!(a.send(near, b"a message still arrives"));
    world.turn_until(|_| {
        b.poll();
        !b.received.is_empty()
    });
    let message = b.received.pop_front().expect("just seen");
    assert_eq!(b.bytes(&message), b"a message still arrives");
}

#[test]
fn a_malformed_burst_ends_the_session() {
    let (mut world, mut a, _b) = two_apps();
    let frame = there(&world).frame(b"x");
    let extent = a.pack(&[&frame]);
    a.end.transmit_bytes(&extent)[..2].copy_from_slice(&5_u16.to_ne_bytes());
    a.submit_burst(1, &extent, 1);
    world.turn();
    world.turn();
    let is_violation = |event: &clearway_engine::Event| match event {
        clearway_engine::Event::Violation { channel, .. } => *channel == a.channel,
        _ => false,
    };
    assert!(
        world.hosts[0].members[0].events.iter().any(is_violation),
        "{:?}",
        world.hosts[0].members[0].events
    );
}

#[test]
fn a_rate_is_kept() {
    let mut world = World::new(1, Faults::default());
    let mut a = world.attach(0, SIZES);
    let spec = VifSpec { rate_frames_per_s: Some(100), ..port_spec(&world, 0, 5000) };
    world.open_vif(&a, 1, spec).expect("the port is free");
    let frame = there(&world).frame(b"x");
    a.send_frames(1, &[frame.as_slice(); 32]);
    let report = wait_for_bursts(&mut world, &mut a, 1, 1);
    assert_eq!((report.sent, report.rejected), (10, 22));
    assert_eq!(FrameRefusal::from_u8(report.reason), Some(FrameRefusal::Rate));
}

/// A capture of all that passes.
fn everything() -> CaptureSpec {
    CaptureSpec { filter: Vec::new(), app: None, connection: None }
}

/// What a capture has seen: whether outgoing, and where.
fn sightings(watcher: &mut App) -> Vec<(bool, Point)> {
    watcher.poll();
    watcher.frames.drain(..).map(|(_, info, _)| (info.is_outgoing(), info.point())).collect()
}

#[test]
fn captures_see_each_frame_once_on_the_wire_or_on_its_way_within_the_host() {
    let (mut world, mut a, mut b) = two_apps();
    let mut neighbour = world.attach(0, SIZES);
    let spec = port_spec(&world, 0, 5001);
    world.open_vif(&neighbour, 1, spec).expect("the port is free");
    let mut watcher = world.attach(0, SIZES);
    let filter = filters(&["udp"]);
    world.open_capture(&watcher, 9, CaptureSpec { filter, ..everything() }).expect("a capture");
    a.send_frames(1, &[&there(&world).frame(b"away")]);
    wait_for_frames(&mut world, &mut b, 1);
    assert_eq!(sightings(&mut watcher), [(true, Point::Wire)]);
    let mac = world.hosts[0].mac;
    let local = Datagram { macs: [mac, mac], from: (ip(1), 5000), to: (ip(1), 5001) };
    a.send_frames(1, &[&local.frame(b"here")]);
    wait_for_frames(&mut world, &mut neighbour, 1);
    assert_eq!(sightings(&mut watcher), [(true, Point::Delivered)]);
    let mut watcher_of_neighbour = world.attach(0, SIZES);
    let of_neighbour = CaptureSpec { app: Some(neighbour.channel), ..everything() };
    world.open_capture(&watcher_of_neighbour, 9, of_neighbour).expect("a capture");
    a.send_frames(1, &[&local.frame(b"here")]);
    wait_for_frames(&mut world, &mut neighbour, 1);
    assert_eq!(sightings(&mut watcher), [(true, Point::Delivered)]);
    assert_eq!(sightings(&mut watcher_of_neighbour), [(false, Point::Delivered)]);
}

#[test]
fn captures_see_what_passes_and_what_became_of_it() {
    let (mut world, mut a, mut b) = two_apps();
    let mut watcher = world.attach(0, SIZES);
    world
        .open_capture(&watcher, 9, CaptureSpec { app: Some(a.channel), ..everything() })
        .expect("a capture");
    let (good, spoofed) = (there(&world), Datagram { from: (ip(9), 5000), ..there(&world) });
    a.send_frames(1, &[&good.frame(b"good"), &spoofed.frame(b"bad")]);
    wait_for_frames(&mut world, &mut b, 1);
    let back = Datagram { macs: [good.macs[1], good.macs[0]], from: good.to, to: good.from };
    b.send_frames(1, &[&back.frame(b"back")]);
    wait_for_frames(&mut world, &mut a, 1);
    watcher.poll();
    let seen: Vec<_> = (watcher.frames.drain(..))
        .map(|(vif, info, frame)| {
            assert_eq!((vif, info.channel()), (9, Some(a.channel)));
            (info.is_outgoing(), info.point(), info.reason(), frame[42..].to_vec())
        })
        .collect();
    let expected = [
        (true, Point::Wire, None, b"good".to_vec()),
        (true, Point::Refused, Some(FrameRefusal::Source), b"bad".to_vec()),
        (false, Point::Delivered, None, b"back".to_vec()),
    ];
    assert_eq!(seen, expected);
    // Messages are seen, too, with their app.
    world.listen(&b, 7000).expect("free");
    let (near, _) = world.connect(&mut a, &mut b, 7000);
    assert!(a.send(near, b"a message"));
    world.turn_until(|_| {
        b.poll();
        !b.received.is_empty()
    });
    watcher.poll();
    assert!(watcher.frames.iter().any(|(_, info, frame)| {
        info.is_outgoing() && frame.windows(9).any(|bytes| bytes == b"a message")
    }));
}

#[test]
fn a_capture_of_one_connection_sees_that_one_only() {
    let (mut world, mut a, mut b) = two_apps();
    world.listen(&b, 7000).expect("free");
    let (one, _) = world.connect(&mut a, &mut b, 7000);
    let (other, _) = world.connect(&mut a, &mut b, 7000);
    let mut watcher = world.attach(0, SIZES);
    let of = |connection| CaptureSpec {
        app: Some(a.channel),
        connection: Some(connection),
        ..everything()
    };
    let (of_one, of_none) = (of(one), of(one + 77));
    world.open_capture(&watcher, 9, of_one).expect("there is such a connection");
    let refused = world.open_capture(&watcher, 10, of_none).unwrap_err();
    assert!(refused.to_string().contains("clearway status"), "{refused}");
    assert!(a.send(one, b"of this one") && a.send(other, b"of another"));
    world.turn_until(|_| {
        b.poll();
        b.received.len() == 2
    });
    let mut seen = Vec::new();
    world.turn_until(|_| {
        watcher.poll();
        seen.extend(watcher.frames.drain(..));
        // The acknowledgement that comes back is the connection's, too.
        seen.iter().any(|(_, info, _)| !info.is_outgoing() && info.point() == Point::Delivered)
    });
    let count = |bytes: &[u8]| {
        let has = |frame: &[u8]| frame.windows(bytes.len()).any(|part| part == bytes);
        seen.iter().filter(|(_, info, frame)| info.is_outgoing() && has(frame)).count()
    };
    assert_eq!((count(b"of this one"), count(b"of another")), (1, 0));
}

#[test]
fn an_interface_that_is_taken_away_is_told_of_and_sends_no_more() {
    let (mut world, mut a, mut b) = two_apps();
    let frame = there(&world).frame(b"x");
    a.send_frames(1, &[&frame]);
    wait_for_frames(&mut world, &mut b, 1);
    let (channel, told) = (a.channel, Some(Code::Denied));
    world.post(0, Request::CloseVif { channel, vif: 1, told });
    a.send_frames(1, &[&frame]);
    world.turn_until(|_| {
        a.poll();
        !a.vifs_closed.is_empty()
    });
    assert_eq!(a.vifs_closed, [(1, Code::Denied)]);
    assert!(world.snapshot(0).vifs.is_empty());
    // Its patterns are free.
    let heir = world.attach(0, SIZES);
    let spec = port_spec(&world, 0, 5000);
    world.open_vif(&heir, 1, spec).expect("the port is free again");
    b.poll();
    assert!(b.frames.is_empty());
}
