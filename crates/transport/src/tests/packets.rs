//! What stands in single packets, and what becomes of them.

use std::net::SocketAddr;

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};
use clearway_wire::Ecn;
use clearway_wire::clearway::{
    Frame, HEADER_LENGTH, Header, MESSAGE_FRAME_LENGTH, Packet, PacketType, Syn, SynAck, VERSION,
    VERSION_OPERATIONS, VERSION_SHARED, VERSION_STREAMS, Versions, emit_ping, seal,
};
use clearway_world::Steps;

use super::{Faults, Network, PORT, transfer};
use crate::{Config, Deadline, Endpoint, FlowInfo, FlowKey, NoStream, Owner, Reason};

/// Two hosts of which neither has anything to say.
fn settled(config: &Config) -> (Network, [FlowKey; 2]) {
    let mut network = Network::new(61, config, Faults::default(), 8 << 20);
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = vec![0; 300_000];
    let end = network.now + 10 * MILLISECOND;
    network.run_until(|network| network.now > end);
    (network, keys)
}

fn flow(network: &Network) -> FlowInfo {
    network.hosts[0].endpoint.flows().next().expect("open")
}

/// What host 0 sends now, in order.
fn packets(network: &mut Network) -> Vec<Vec<u8>> {
    network.transmit();
    let mut packets = Vec::new();
    while let Some((_, (to, packet))) = network.link.take() {
        assert_eq!(to, 1);
        packets.push(packet.bytes);
    }
    packets
}

fn is_urgent(packet: &[u8]) -> bool {
    Header::parse(&Packet::new(packet).expect("a packet")).expect("ours").ack_requested
}

/// `docs/transport.md`: an acknowledgement without delay is asked for by what leaves the sender
/// unable to go on, and with each quarter of the window.
#[test]
fn what_leaves_a_sender_unable_to_go_on_asks_to_be_acknowledged_at_once() {
    let send = |lengths: &[u32]| {
        let (mut network, keys) = settled(&Config::default());
        for length in lengths {
            network.hosts[0].endpoint.send(network.now, keys[0], 0, *length);
        }
        packets(&mut network).iter().map(|packet| is_urgent(packet)).collect::<Vec<_>>()
    };
    assert_eq!(send(&[1000]), [false]);
    // Three full packets are more than a quarter of ten, and four are a burst.
    assert_eq!(send(&[5500])[..3], [false, false, true]);
    // A close, with what goes before it.
    let (mut network, keys) = settled(&Config::default());
    let (now, host) = (network.now, &mut network.hosts[0]);
    host.endpoint.send(now, keys[0], 0, 1000);
    host.endpoint.close(now, keys[0], &mut host.app);
    let sent = packets(&mut network);
    assert_eq!((sent.len(), is_urgent(&sent[0])), (1, true));
    // The receiver's limit: a message that fits, and one that waits.
    let mut network = Network::new(61, &Config::default(), Faults::default(), 1 << 20);
    network.hosts[1].app.window = 1000;
    let keys = network.connected();
    network.hosts[0].app.transmit_pool = vec![0; 1000];
    let end = network.now + 10 * MILLISECOND;
    network.run_until(|network| network.now > end);
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 900);
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 900);
    let sent = packets(&mut network);
    assert_eq!((sent.len(), is_urgent(&sent[0])), (1, true));
}

/// `docs/wire.md`: a message that is cut anyway fills up a packet that has others in it, and one
/// that a packet of its own could carry is not cut.
#[test]
fn packets_are_filled_up_with_messages_that_are_cut_anyway() {
    let lengths = |sizes: &[u32]| {
        let (mut network, keys) = settled(&Config::default());
        for size in sizes {
            network.hosts[0].endpoint.send(network.now, keys[0], 0, *size);
        }
        packets(&mut network).iter().map(Vec::len).collect::<Vec<_>>()
    };
    let one = lengths(&[2000]);
    let (full, rest) = (one[0], one[1]);
    assert!(one.len() == 2 && rest < full, "{one:?}");
    // The rest of the first, and what fits of the second; of that the rest.
    let two = lengths(&[2000, 2000]);
    assert_eq!(two[..2], [full, full]);
    assert!(two.len() == 3 && two[2] < full, "{two:?}");
    // One that fits into a packet goes with the rest of the first if there is room for all of it,
    // and else by itself.
    let few = u32::try_from(full - rest - MESSAGE_FRAME_LENGTH).expect("small");
    assert_eq!(lengths(&[2000, few]), [full, full]);
    let more = lengths(&[2000, few + 1]);
    assert_eq!(more[..2], [full, rest]);
    assert_eq!(more.len(), 3, "{more:?}");
    // Room for less than is worth a frame stays empty.
    let nearly = u32::try_from(full - HEADER_LENGTH - MESSAGE_FRAME_LENGTH - 100).expect("small");
    let with_large = lengths(&[nearly, 2000]);
    assert_eq!(with_large[..2], [full - 100, full]);
}

/// RFC 9002, 7: "An endpoint MUST NOT send a packet if it would cause bytes_in_flight [...] to be
/// larger than the congestion window", and 7.7 on bursts: an acknowledgement leaves alone.
#[test]
fn an_acknowledgement_takes_no_data_along_that_are_held_back() {
    let (mut network, keys) = settled(&Config::default());
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 200_000);
    assert!(packets(&mut network).len() >= 4, "a burst");
    let mut ping = vec![0; HEADER_LENGTH + 1];
    Header::data(keys[0].id(), 1000, true).emit(&mut ping);
    emit_ping(&mut ping[HEADER_LENGTH..]);
    seal(&mut ping);
    let (now, source) = (network.now, network.hosts[1].address);
    network.hosts[0].handle(now, source, Ecn::Capable, &ping);
    let [acknowledgement] = &packets(&mut network)[..] else { panic!("one packet") };
    assert!(acknowledgement.len() < 100, "{} bytes", acknowledgement.len());
}

/// RFC 9002, 6.2.4: a probe asks for its acknowledgement at once.
#[test]
fn a_probe_is_urgent() {
    let (mut network, keys) = settled(&Config::default());
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 10);
    let [packet] = &packets(&mut network)[..] else { panic!("one packet") };
    assert!(!is_urgent(packet));
    network.now = network.hosts[0].endpoint.next_timeout().expect("a probe");
    let (now, host) = (network.now, &mut network.hosts[0]);
    host.endpoint.handle_timeouts(now, &mut host.app);
    let [probe] = &packets(&mut network)[..] else { panic!("one packet") };
    assert!(is_urgent(probe));
}

/// RFC 9000, 13.2.5: "the delay [...] between when that packet is received and when the
/// acknowledgment is sent"; what was waited for a host that did not look is known to it.
#[test]
fn an_acknowledgement_says_for_how_long_this_host_has_held_it_up() {
    const GAP_NS: u64 = 70 * MICROSECOND;
    const LATER_NS: u64 = 30 * MICROSECOND;
    let (mut network, keys) = settled(&Config::default());
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 10);
    let [packet] = &packets(&mut network)[..] else { panic!("one packet") };
    let (source, now) = (network.hosts[0].address, network.now);
    let host = &mut network.hosts[1];
    host.endpoint.begin_turn(now, false);
    let now = now + GAP_NS;
    host.endpoint.begin_turn(now, false);
    host.handle(now, source, Ecn::Capable, packet);
    host.app.transmit_pool = vec![0];
    host.endpoint.send(now, keys[1], 0, 1);
    let now = now + LATER_NS;
    let (destination, mut bytes) = (host.endpoint.next_transmit(now).expect("both"), [0; 1500]);
    let length = host.endpoint.poll_transmit(now, destination, &mut bytes, &host.app);
    let packet = Packet::new(&bytes[..length]).expect("a packet");
    let Some(Ok(Frame::Ack(ack))) = packet.frames().next() else { panic!("no acknowledgement") };
    assert_eq!(u64::from(ack.delay_ns), GAP_NS + LATER_NS);
}

/// The interface of host 0 takes less from now on.
#[test]
fn flows_follow_their_own_interface() {
    let (mut network, keys) = settled(&Config::default());
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 20_000);
    assert!(packets(&mut network).iter().all(|packet| packet.len() == 1472), "all are lost");
    let now = network.now;
    network.hosts[0].endpoint.set_packet_bytes_max(now, 1000);
    assert_eq!((flow(&network).packet_bytes, flow(&network).in_flight_bytes), (1000, 0));
    assert!(network.hosts[0].endpoint.has_waiting(), "what was in larger ones is sent again");
    network.packet_bytes_max = 1000;
    network.run_until(|network| network.hosts[0].app.sent == 1);
    assert!(network.now.since(now) < MILLISECOND);
    assert_eq!(flow(&network).packets_lost, 0);
    // No news, and no larger ones again by themselves.
    network.hosts[0].endpoint.set_packet_bytes_max(now, 1000);
    assert_eq!(flow(&network).packet_bytes, 1000);
    let end = network.now + 10 * MILLISECOND;
    network.run_until(|network| network.now > end);
    assert!(!network.hosts[0].endpoint.has_waiting());
}

/// The other end of a link says only later what it takes: at one of the hosts before they have
/// shaken hands, at the other afterwards. What each takes they have told each other nevertheless.
#[test]
fn flows_grow_with_their_own_interface() {
    let config = Config { packet_bytes_taken: 8972, ..Config::default() };
    let mut network = Network::new(61, &config, Faults::default(), 8 << 20);
    let now = network.now;
    network.hosts[1].endpoint.set_packet_bytes_max(now, 8972);
    let keys = network.connected();
    let size = |network: &Network, host: usize| {
        network.hosts[host].endpoint.flows().next().expect("open").packet_bytes
    };
    assert_eq!((size(&network, 0), size(&network, 1)), (1472, 8972));
    let now = network.now;
    network.hosts[0].endpoint.set_packet_bytes_max(now, 40_000);
    network.run_until(|network| size(network, 0) == 8972);
    assert!(network.now.since(now) < MILLISECOND, "the first probe has passed");
    network.hosts[0].app.transmit_pool = vec![0; 30_000];
    network.hosts[0].endpoint.send(network.now, keys[0], 0, 30_000);
    assert!(packets(&mut network).iter().all(|packet| packet.len() == 8972));
    assert_eq!(flow(&network).packets_lost, 0);
}

/// RFC 8899, 4.6.1, and RFC 8200, section 5, for the least that a link of IPv6 takes.
#[test]
fn the_network_may_say_that_a_packet_in_flight_was_too_large() {
    let cases: [(bool, u32, Option<u16>); 7] = [
        (false, 1472 + 28, None),
        (false, 1471 + 28, Some(1471)),
        (false, 600 + 28, Some(600)),
        (false, 300, Some(548)),
        (true, 1472 + 48, None),
        (true, 1471 + 48, Some(1471)),
        (true, 600, Some(1280 - 48)),
    ];
    for (is_v6, mtu, expected) in cases {
        let mut network = Network::new(62, &Config::default(), Faults::default(), 1 << 20);
        if is_v6 {
            for (host, address) in
                network.hosts.iter_mut().zip(["[fd00::1]:20707", "[fd00::2]:20707"])
            {
                host.address = address.parse().expect("an address");
            }
        }
        let keys = network.connected();
        network.hosts[0].app.transmit_pool = vec![0; 5000];
        network.hosts[0].endpoint.send(network.now, keys[0], 0, 5000);
        let sent = packets(&mut network);
        let large = sent.iter().find(|packet| packet.len() == 1472).expect("a full one");
        let (now, peer) = (network.now, network.hosts[1].address);
        let endpoint = &mut network.hosts[0].endpoint;
        let before = endpoint.counters().dropped_unsolicited;
        endpoint.handle_packet_too_big(now, peer, &large[..HEADER_LENGTH], mtu);
        let ignored = endpoint.counters().dropped_unsolicited - before;
        assert_eq!(ignored, u64::from(expected.is_none()), "{mtu}");
        assert_eq!(flow(&network).packet_bytes, expected.unwrap_or(1472), "{mtu}");
        // A second word about it is none: it is not in flight any more.
        let endpoint = &mut network.hosts[0].endpoint;
        endpoint.handle_packet_too_big(now, peer, &large[..HEADER_LENGTH], 1400);
        let is_taken = flow(&network).packet_bytes != expected.unwrap_or(1472);
        assert_eq!(is_taken, expected.is_none(), "{mtu}");
    }
}

/// RFC 9000, 10.2: what is left of a flow that its peer has closed "SHOULD persist for at least
/// three times the current PTO"; here also for as long as the longest of them.
#[test]
fn a_flow_that_was_closed_stays_for_three_probe_timeouts() {
    for (rtt_ns, stays_ns) in [
        (1600 * MICROSECOND, 100 * MILLISECOND),
        (60 * MILLISECOND, 3 * (60 * MILLISECOND + 250 * MICROSECOND)),
    ] {
        let mut network = Network::new(63, &Config::default(), Faults::default(), 1 << 20);
        network.set_delay(rtt_ns / 2);
        let keys = network.connected();
        transfer(&mut network, keys, &[100; 80], 1);
        let (now, host) = (network.now, &mut network.hosts[1]);
        host.endpoint.close(now, keys[1], &mut host.app);
        network.run_until(|network| !network.hosts[0].app.closed.is_empty());
        assert_eq!(network.hosts[0].app.closed, [Reason::Closed]);
        let begin = network.now;
        // The peer, which has forgotten it, would say so.
        network.cut(true);
        network.link.clear();
        network.run_until(|network| network.hosts[0].endpoint.flows().count() == 0);
        let took_ns = network.now.since(begin);
        assert!((stays_ns..stays_ns + stays_ns / 100 + 20_000).contains(&took_ns), "{took_ns}");
    }
}

/// Host 0 sends what `send` says, and closes. The peer has got all of that; its acknowledgements
/// are lost for as long as it waits, and then it says that the flow was closed.
fn closed_without_acknowledgements(send: impl FnOnce(Time, &mut Endpoint, FlowKey)) -> Network {
    let (mut network, keys) = settled(&Config::default());
    let (now, host) = (network.now, &mut network.hosts[0]);
    send(now, &mut host.endpoint, keys[0]);
    host.endpoint.close(now, keys[0], &mut host.app);
    let packets = packets(&mut network);
    let (source, host) = (network.hosts[0].address, &mut network.hosts[1]);
    for packet in &packets {
        host.handle(now, source, Ecn::Capable, packet);
    }
    assert_eq!(host.app.closed, [Reason::Closed]);
    network.cut(true);
    network.run_until(|network| network.hosts[1].endpoint.flows().count() == 0);
    network.cut(false);
    assert_eq!(flow(&network).messages_sent, 0);
    network.run_until(|network| !network.hosts[0].app.closed.is_empty());
    assert_eq!(network.hosts[0].app.closed, [Reason::Closed]);
    assert_eq!(network.hosts[0].endpoint.counters().flows_reset_by_peer, 0);
    network
}

/// A close of which the peer remembers that it got it: all that was sent before has arrived.
#[test]
fn messages_count_as_sent_if_the_peer_says_that_it_has_closed() {
    let network = closed_without_acknowledgements(|now, endpoint, key| {
        (0..3).for_each(|_| endpoint.send(now, key, 0, 10));
    });
    assert_eq!(network.hosts[0].app.sent, 3);
    closed_without_acknowledgements(|_, _, _| ()); // and none is no news
}

/// The same of what was dropped: both apps hear of it.
#[test]
fn messages_count_as_dropped_if_the_peer_says_that_it_has_closed() {
    let network = closed_without_acknowledgements(|now, endpoint, key| {
        endpoint.send(now, key, 0, 10);
        endpoint.send_until(now, key, 0, 10, Deadline { at: now - 1, number: 7 });
    });
    let [client, server] = &network.hosts;
    let owner = Owner { channel: 1, connection: 1 };
    assert_eq!((client.app.sent, &client.app.dropped[..]), (2, &[(owner, 7)][..]));
    let told: Vec<_> = server.app.told.iter().map(|(_, what)| *what).collect();
    assert_eq!(told, ["message", "skipped"]);
}

/// A syn that is repeated, since its answer was lost, finds the flow that it has opened.
#[test]
fn a_flow_opens_though_nobody_listens_any_more() {
    let mut network = Network::new(70, &Config::default(), Faults::default(), 1 << 20);
    network.connect();
    network.run_until(|network| !network.hosts[1].app.accepted.is_empty());
    network.hosts[1].endpoint.unlisten(PORT);
    network.cut(true);
    network.transmit();
    network.cut(false);
    assert_eq!(network.link.len(), 0, "the answer is lost");
    network.run_until(|network| network.hosts[0].app.connected == 1);
    assert_eq!(network.hosts[1].app.accepted.len(), 1);
    assert_eq!(network.hosts[1].endpoint.counters().dropped_refused, 0);
}

#[test]
fn syns_that_get_no_answer_are_counted_as_retries() {
    let mut network = Network::new(64, &Config::default(), Faults::default(), 1 << 20);
    network.cut(true);
    let begin = network.now;
    network.connect();
    network.run_until(|network| network.now > begin + 25 * MILLISECOND);
    // Of 1, 2, 4 and 8 packets, 2, 4 and 8 ms after one another.
    assert_eq!((flow(&network).setup_packets, flow(&network).setup_retries), (15, 3));
    assert_eq!(flow(&network).state, "connecting");
}

/// RFC 9000, 6.1: a version packet answers what may be the begin of a flow, and nothing else.
#[test]
fn who_speaks_other_versions_is_told_which_there_are() {
    let mut network = Network::new(65, &Config::default(), Faults::default(), 1 << 20);
    network.connect();
    let [mut syn] = packets(&mut network).try_into().expect("a syn");
    let (token, flow) = (Packet::new(&syn).expect("a packet").number(), syn[24..32].to_vec());
    syn[0] = VERSION + 1;
    let mut other = syn.clone();
    other[1] = PacketType::Ping as u8;
    let mut short = syn.clone();
    short.truncate(HEADER_LENGTH + 7);
    for (mut packet, answers) in [(syn, 1), (other, 0), (short, 0)] {
        seal(&mut packet);
        let source = network.hosts[0].address;
        network.hosts[1].handle(network.now, source, Ecn::NotCapable, &packet);
        network.transmit();
        assert_eq!(network.link.len(), answers);
        while let Some((_, (_, answer))) = network.link.take() {
            let answer = Packet::new(&answer.bytes).expect("a packet");
            let header = Header::parse(&answer).expect("sound");
            assert_eq!((header.packet_type, header.number), (PacketType::Version, token));
            assert_eq!(header.flow.to_be_bytes(), flow[..]);
            let versions = Versions::parse(&answer).expect("sound").versions;
            assert_eq!(versions, [VERSION_SHARED, VERSION_STREAMS, VERSION_OPERATIONS, VERSION]);
        }
    }
    assert_eq!(network.hosts[1].endpoint.counters().dropped_version, 3);
}

/// A host of the next release offers what it speaks, best first; older ones do not know streams, or
/// operations.
#[test]
fn the_best_version_that_both_hosts_speak_is_taken() {
    let newer = [VERSION_SHARED + 1, VERSION_STREAMS, VERSION_OPERATIONS, VERSION];
    connect_offering(&newer, VERSION_STREAMS);
    connect_offering(&[VERSION, VERSION_OPERATIONS], VERSION_OPERATIONS);
    connect_offering(&[VERSION], VERSION);
}

fn connect_offering(offered: &[u8], taken: u8) {
    let mut network = Network::new(66, &Config::default(), Faults::default(), 1 << 20);
    let key = network.connect();
    for expected in [PacketType::Challenge, PacketType::SynAck] {
        let (source, syn) = only_packet(&mut network, 1);
        hand_over(&mut network, 1, source, &offering(&syn, offered));
        let (source, answer) = only_packet(&mut network, 0);
        let packet = Packet::new(&answer).expect("a packet");
        assert_eq!(Header::parse(&packet).expect("sound").packet_type, expected);
        if expected == PacketType::SynAck {
            assert_eq!(SynAck::parse(&packet).expect("sound").version, taken);
        }
        hand_over(&mut network, 0, source, &answer);
    }
    assert_eq!(flow(&network).state, "open");
    assert_eq!(network.hosts[1].endpoint.counters().flows_accepted, 1);
    let expected = if taken < VERSION_STREAMS { Some(NoStream::Unknown) } else { None };
    let owner = Owner { channel: 1, connection: 2 };
    for (host, key) in [key, network.hosts[1].app.accepted[0]].into_iter().enumerate() {
        let endpoint = &mut network.hosts[host].endpoint;
        assert_eq!(endpoint.open_stream(network.now, key, owner, 1000).err(), expected);
    }
}

/// A server of the last release shares no flows: what was begun for many connections is that of the
/// first, if it still waits, and the others are told to go their own ways.
#[test]
fn a_flow_is_the_first_connections_own_if_the_peer_shares_none() {
    for given_up in 0..3 {
        let mut network = Network::new(67, &Config::default(), Faults::default(), 1 << 20);
        let key = network.begin_shared();
        let owners = [1, 2, 3].map(|connection| Owner { channel: 1, connection });
        let streams = owners.map(|owner| network.open(key, owner));
        let (now, client) = (network.now, &mut network.hosts[0]);
        for stream in &streams[..given_up] {
            client.endpoint.close(now, *stream, &mut client.app);
        }
        let offered = [VERSION_STREAMS, VERSION_OPERATIONS, VERSION];
        for _ in 0..2 {
            let (source, syn) = only_packet(&mut network, 1);
            assert_eq!(
                Syn::parse(&Packet::new(&syn).expect("one")).expect("a syn").versions[1..],
                offered
            );
            hand_over(&mut network, 1, source, &offering(&syn, &offered));
            let (source, answer) = only_packet(&mut network, 0);
            hand_over(&mut network, 0, source, &answer);
        }
        let [client, server] = &network.hosts;
        assert_eq!(client.app.ended.len(), given_up);
        let told = (given_up..3).map(|at| (owners[at], (at == given_up).then_some(key)));
        assert_eq!(client.app.unshared, told.collect::<Vec<_>>());
        assert_eq!((client.app.connected, server.app.accepted.len()), (1, 1));
        assert_eq!(client.endpoint.owner(key), Some(owners[given_up]));
        assert!(!client.endpoint.is_shared(key) && flow(&network).has_app);
        let theirs = server.app.accepted[0];
        transfer(&mut network, [key, theirs], &[64, 0, 5000], 2);
    }
}

/// Nobody is left that waits for a flow: it is not opened.
#[test]
fn a_flow_for_nobody_is_given_up() {
    let mut network = Network::new(68, &Config::default(), Faults::default(), 1 << 20);
    for abort in [false, true] {
        let key = network.begin_shared();
        let stream = network.open(key, Owner { channel: 1, connection: 1 });
        let (now, client) = (network.now, &mut network.hosts[0]);
        if abort {
            client.endpoint.abort(stream, Reason::Reset, &mut client.app);
        } else {
            client.endpoint.close(now, stream, &mut client.app);
        }
        assert_eq!(client.endpoint.flows_open(), 0);
        network.hosts[1].endpoint.unlisten(PORT);
    }
    assert_eq!(network.hosts[0].app.ended.len(), 1, "who has closed hears of it");
}

/// A syn that offers other versions.
fn offering(syn: &[u8], versions: &[u8]) -> Vec<u8> {
    let packet = Packet::new(syn).expect("a packet");
    let header = Header::parse(&packet).expect("sound");
    let syn = Syn { versions, ..Syn::parse(&packet).expect("a syn") };
    let mut bytes = vec![0; HEADER_LENGTH + syn.length()];
    let at = header.emit(&mut bytes);
    syn.emit(&mut bytes[at..]);
    seal(&mut bytes);
    bytes
}

/// The one packet that a host is sent now, and where it comes from.
fn only_packet(network: &mut Network, to: usize) -> (SocketAddr, Vec<u8>) {
    network.transmit();
    let Some((_, (host, packet))) = network.link.take() else { panic!("nothing") };
    assert!(host == to && network.link.is_empty());
    (packet.from, packet.bytes)
}

/// Gives a host a packet.
fn hand_over(network: &mut Network, to: usize, source: SocketAddr, packet: &[u8]) {
    network.hosts[to].handle(network.now, source, Ecn::NotCapable, packet);
}

/// What a restored flow asks, and how often: a third of its own silence, not of others'.
#[test]
fn a_restored_flow_asks_as_often_as_before() {
    let (mut network, keys) = settled(&Config::default());
    network.hosts[0].endpoint.set_silence(network.now, keys[0], 3_000);
    let saved = network.hosts[0].endpoint.save();
    let now = network.now;
    network.hosts[0].endpoint =
        Endpoint::restore(saved, Config::default(), now).expect("just saved");
    network.departures = Some(Vec::new());
    network.run_until(|network| network.now > now + 20 * SECOND);
    let asked = network.departures.take().expect("recorded").len();
    assert!((18..=21).contains(&asked), "{asked} times");
}

/// Where to look for what apps and engines ask of syns and packets that they do not take.
#[test]
fn a_syn_names_its_port_and_a_packet_its_engine() {
    let mut network = Network::new(66, &Config::default(), Faults::default(), 1 << 20);
    let key = network.connect();
    let [syn] = packets(&mut network).try_into().expect("a syn");
    assert_eq!(Endpoint::port_of_syn(&syn), Some((PORT, false)));
    assert_eq!(Endpoint::engine_of(&syn), None);
    let [from, to]: [SocketAddr; 2] = [network.hosts[0].address, network.hosts[1].address];
    network.hosts[0].endpoint.ping(network.now, 1, from, to, 64);
    let [ping] = packets(&mut network).try_into().expect("a ping");
    assert_eq!((Endpoint::port_of_syn(&ping), Endpoint::engine_of(&ping)), (None, None));
    let mut pong = ping.clone();
    pong[1] = PacketType::Pong as u8;
    assert_eq!(Endpoint::engine_of(&pong), Some(0), "that of its token");
    let mut data = vec![0; 32];
    Header::data(key.id() | 5 << 18, 0, false).emit(&mut data);
    assert_eq!(Endpoint::engine_of(&data), Some(5));
}
