//! How much a flow sends, on a link where nothing but what a test asks for happens: the numbers are
//! those of RFC 9002, 9406, 9438 and 8511, and of `docs/transport.md` for Swift. The controls by
//! themselves are tested in `clearway_congestion`.

use clearway_base::{MICROSECOND, MILLISECOND, Time};
use clearway_congestion::Congestion;
use clearway_world::Steps;

use super::{Departure, Faults, Network};
use crate::{Config, FlowInfo, FlowKey};

/// Less than what a syn waits for its answer, so that none is repeated; it is smoothed in whole
/// eighths.
const RTT_NS: u64 = 1600 * MICROSECOND;
const PACKET_BYTES: u64 = 1472;
const MESSAGE_BYTES: u32 = 64 << 10;

/// A flow from host 0 to host 1 that has something to send.
struct Stream {
    network: Network,
    keys: [FlowKey; 2],
    submitted: u32,
    /// So many messages wait or are in flight: more than any window, if not a test says otherwise.
    messages: u32,
}

impl Stream {
    fn new(congestion: Congestion) -> Self {
        let config = Config { congestion, ..Config::default() };
        let mut network = Network::new(1, &config, Faults::default(), 64 << 20);
        network.set_delay(RTT_NS / 2);
        network.hosts[1].app.window = 16 << 20;
        let keys = network.connected();
        network.departures = Some(Vec::new());
        network.hosts[0].app.transmit_pool = vec![0; MESSAGE_BYTES as usize];
        Self { network, keys, submitted: 0, messages: 64 }
    }

    fn flow(&self) -> FlowInfo {
        self.network.hosts[0].endpoint.flows().next().expect("open")
    }

    fn window(&self) -> u64 {
        self.flow().congestion_window_bytes
    }

    fn departures(&self) -> &[Departure] {
        self.network.departures.as_deref().expect("recorded")
    }

    fn step(&mut self) {
        let host = &mut self.network.hosts[0];
        while self.submitted - host.app.sent < self.messages {
            host.endpoint.send(self.network.now, self.keys[0], 0, MESSAGE_BYTES);
            self.submitted += 1;
        }
        self.network.go_on();
        self.network.read_all(1, self.keys[1]);
    }

    /// Goes on until `done`, which has to be in half a minute. Returns when the window decreased,
    /// and to what part of what it was.
    #[track_caller]
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Vec<(Time, f64)> {
        let end = self.network.now + 30_000 * MILLISECOND;
        let mut decreases = Vec::new();
        while !done(self) {
            assert!(self.network.now < end, "{:?}", self.flow());
            let before = self.window();
            self.step();
            if self.window() < before {
                decreases.push((self.network.now, self.window() as f64 / before as f64));
            }
        }
        decreases
    }

    #[track_caller]
    fn run_for(&mut self, round_trips: u64) -> Vec<(Time, f64)> {
        let end = self.network.now + round_trips * RTT_NS;
        self.run_until(|stream| stream.network.now >= end)
    }

    #[track_caller]
    fn run_to(&mut self, window_packets: u64) {
        self.run_until(|stream| stream.window() >= window_packets * PACKET_BYTES);
    }
}

/// RFC 9002, 7.3.1: "While a sender is in slow start, the congestion window increases by the number
/// of bytes acknowledged when each acknowledgment is processed." 7.2: "Endpoints SHOULD use an
/// initial congestion window of ten times the maximum datagram size".
#[test]
fn slow_start_begins_with_ten_packets_and_grows_by_what_is_acknowledged() {
    for congestion in Congestion::ALL {
        let mut stream = Stream::new(congestion);
        stream.step();
        let first: Vec<_> = stream.departures().iter().map(|packet| packet.bytes).collect();
        assert_eq!(first, [PACKET_BYTES; 10], "at once, and no more");
        let begin = stream.network.now;
        stream.run_until(|stream| {
            let sent: u64 = stream.departures().iter().map(|packet| packet.bytes).sum();
            let acknowledged = sent - stream.flow().in_flight_bytes;
            let grown = stream.window() - 10 * PACKET_BYTES;
            assert!(
                grown <= acknowledged && grown + 1 >= acknowledged,
                "but for rounding: {grown}"
            );
            acknowledged > 1000 * PACKET_BYTES
        });
        // 10 + 20 + ... + 640 are more than 1000, and the first round trip brings nothing.
        assert!(stream.network.now.since(begin) < 8 * RTT_NS, "{}", congestion.name());
    }
}

/// RFC 9002, 7: "An endpoint MUST NOT send a packet if it would cause bytes_in_flight [...] to be
/// larger than the congestion window".
#[test]
fn no_more_than_the_window_is_in_flight() {
    for congestion in Congestion::ALL {
        let mut stream = Stream::new(congestion);
        stream.network.accidents.lose_each = 50;
        stream.run_for(40);
        assert!(stream.flow().packets_lost > 5);
        for packet in stream.departures() {
            assert!(packet.in_flight_bytes <= packet.window_bytes, "{packet:?}");
        }
    }
}

/// RFC 9002, 7.7: "rate = N * congestion_window / smoothed_rtt", with an N of 1.25; bursts are of
/// 50 us of that or four packets here (`docs/transport.md`), and one that begins before all is used
/// up.
#[test]
fn packets_leave_at_five_quarters_of_the_window_per_round_trip() {
    for congestion in Congestion::ALL {
        let mut stream = Stream::new(congestion);
        stream.run_to(160);
        // Those of the last round trip, of which the first may still be of the burst before.
        let since = stream.network.now;
        stream.run_for(1);
        let packets: Vec<_> =
            stream.departures().iter().filter(|packet| packet.at >= since).collect();
        assert!(packets.len() > 160, "{}", packets.len());
        for (index, first) in packets.iter().enumerate() {
            let mut bytes = 0;
            for last in &packets[index..] {
                bytes += last.bytes;
                let passed = last.at.since(first.at) as f64 / RTT_NS as f64;
                let earned = 1.25 * last.window_bytes as f64 * passed;
                let burst = (50e3 / RTT_NS as f64 * 1.25 * last.window_bytes as f64)
                    .max(4.0 * PACKET_BYTES as f64);
                let most = earned + burst + PACKET_BYTES as f64;
                assert!(bytes as f64 <= most, "{bytes} of {most} since {first:?}, {last:?}");
            }
        }
    }
}

/// RFC 9438, 4.6: "ssthresh = flight_size * beta_cubic", which is 0.7; RFC 9002, 7.3.2: a flow that
/// is "in a recovery period stays in it": what was sent before the loss was found decreases
/// nothing.
#[test]
fn a_loss_leaves_seven_tenths_of_cubics_window_once_per_round_trip() {
    let mut stream = Stream::new(Congestion::Cubic);
    stream.run_to(200);
    for _ in 0..3 {
        let lost = stream.flow().packets_lost;
        // Three of the same round trip, each found by itself.
        stream.network.accidents =
            super::Accidents { lose: 1, lose_each: 20, ..super::Accidents::default() };
        stream.run_until(|stream| stream.network.accidents.count >= 40);
        stream.network.accidents.lose_each = 0;
        let decreases = stream.run_until(|stream| stream.flow().packets_lost >= lost + 3);
        let [(_, factor)] = decreases[..] else { panic!("{decreases:?}") };
        // Others may have been acknowledged with the one that told of the loss.
        assert!((0.69..0.72).contains(&factor), "{factor}");
        stream.run_for(2);
    }
}

/// `docs/transport.md`: loss of less than a tenth is no congestion; of more, the window shrinks by
/// the part that was lost, once per round trip.
#[test]
fn swift_bears_loss_up_to_a_tenth_and_then_shrinks_by_what_was_lost() {
    let mut stream = Stream::new(Congestion::Swift);
    // So much that a step has no more gaps than an acknowledgement can tell of.
    stream.messages = 2;
    stream.run_to(90);
    stream.network.accidents.lose_each = 20;
    assert_eq!(stream.run_for(30), [], "one in twenty");
    assert!(stream.flow().packets_lost > 50);
    stream.network.accidents.lose_each = 5;
    let decreases = stream.run_for(60);
    assert!(decreases.len() >= 3, "{decreases:?}");
    for (_, factor) in &decreases[1..] {
        assert!((0.77..=0.83).contains(factor), "{decreases:?}");
    }
    for pair in decreases.windows(2) {
        assert!(pair[1].0.since(pair[0].0) >= RTT_NS, "{decreases:?}");
    }
}

/// RFC 9438, 4.9.1: "an implementation MAY restore the congestion window"; RFC 9002, 6.1.1: on
/// "increasing the reordering threshold" of those that detect spurious retransmissions.
#[test]
fn a_loss_that_was_none_is_given_back_and_not_believed_a_second_time() {
    let mut stream = Stream::new(Congestion::Cubic);
    stream.run_to(200);
    stream.network.accidents.late_ns = RTT_NS / 4;
    let before = stream.window();
    let decreases = stream.run_until(|stream| stream.flow().packets_lost == 1);
    assert_eq!(decreases.len(), 1);
    assert!(stream.window() < 3 * before / 2);
    let reduced = stream.window();
    stream.run_for(1);
    assert!(stream.window() as f64 >= reduced as f64 / 0.7, "{reduced}, {}", stream.window());
    // Again, and still overtaken by more than three: the flow waits for it now.
    stream.network.accidents.late_ns = RTT_NS / 32;
    assert_eq!(stream.run_for(3), []);
    assert_eq!(stream.flow().packets_lost, 1);
}

/// RFC 9002, 7.8: "When bytes in flight is smaller than the congestion window and sending is not
/// pacing limited, [...] the congestion window SHOULD NOT be increased".
#[test]
fn a_flow_that_has_little_to_send_does_not_grow_its_window_unless_it_is_paced() {
    for congestion in Congestion::ALL {
        // Four packets are a burst; ten would be the window.
        for (bytes, grows) in [(5_000, false), (12_000, true)] {
            let mut stream = Stream::new(congestion);
            for _ in 0..100 {
                let (now, key) = (stream.network.now, stream.keys[0]);
                stream.network.hosts[0].endpoint.send(now, key, 0, bytes);
                stream.network.run_until(|network| network.now >= now + RTT_NS);
                stream.network.read_all(1, stream.keys[1]);
            }
            let has_grown = stream.window() > 10 * PACKET_BYTES;
            assert_eq!(has_grown, grows, "{}, {bytes}: {}", congestion.name(), stream.window());
        }
    }
}

/// RFC 8511, 3.1, has 0.85 for CUBIC, and Swift 0.8; RFC 9002, 7.1: a mark is a congestion event,
/// as a loss is, of which there is one per round trip.
#[test]
fn marks_decrease_the_window_once_per_round_trip_and_lose_nothing() {
    for (congestion, expected) in [(Congestion::Swift, 0.8), (Congestion::Cubic, 0.85)] {
        let mut stream = Stream::new(congestion);
        stream.run_to(100);
        stream.network.is_congested = true;
        let decreases = stream.run_for(6);
        assert!((4..=6).contains(&decreases.len()), "{}: {decreases:?}", congestion.name());
        for (_, factor) in &decreases {
            assert!((factor - expected).abs() < 0.02, "{}: {decreases:?}", congestion.name());
        }
        for pair in decreases.windows(2) {
            assert!(pair[1].0.since(pair[0].0) >= RTT_NS, "{decreases:?}");
        }
        assert_eq!(stream.flow().packets_lost, 0);
    }
}

/// RFC 9002, 7.6.1, with the default ack delay and granularity, and round trips that do not vary.
const PROBE_TIMEOUT_NS: u64 = RTT_NS + 200_000 + 50_000;

/// RFC 9002, 7.6.2: "the congestion window MUST be reduced to the minimum congestion window", two
/// packets, when losses span more than three probe timeouts, and not before.
#[test]
fn persistent_congestion_is_three_probe_timeouts_of_nothing_but_loss() {
    for congestion in Congestion::ALL {
        // Probes leave one and three probe timeouts after the last packet.
        for (outage_ns, is_persistent) in
            [(2 * PROBE_TIMEOUT_NS, false), (7 * PROBE_TIMEOUT_NS / 2, true)]
        {
            let mut stream = Stream::new(congestion);
            stream.run_to(100);
            stream.run_for(8);
            let lost = stream.flow().packets_lost;
            stream.network.cut(true);
            let end = stream.network.now + outage_ns;
            stream.run_until(|stream| stream.network.now >= end);
            stream.network.cut(false);
            stream.run_until(|stream| stream.flow().packets_lost > lost);
            let packets = stream.window() / u64::from(stream.flow().packet_bytes);
            assert_eq!(
                packets == 2,
                is_persistent,
                "{}, {outage_ns}: {packets}",
                congestion.name()
            );
        }
    }
}

/// RFC 9002, 7.6.2: "The persistent congestion period SHOULD NOT start until there is at least one
/// RTT sample." Who is connected to has none before its first data are acknowledged.
#[test]
fn what_was_lost_before_the_first_round_trip_time_was_known_is_no_persistent_congestion() {
    for congestion in Congestion::ALL {
        let config = Config { congestion, ..Config::default() };
        let mut network = Network::new(2, &config, Faults::default(), 1 << 20);
        network.set_delay(RTT_NS / 2);
        network.connect();
        network.run_until(|network| !network.hosts[1].app.accepted.is_empty());
        network.transmit(); // the syn-ack
        network.cut(true);
        let (now, key) = (network.now, network.hosts[1].app.accepted[0]);
        network.hosts[1].app.transmit_pool = vec![0; 50_000];
        network.hosts[1].endpoint.send(now, key, 0, 50_000);
        network.run_until(|network| network.now.since(now) > 50 * RTT_NS);
        network.cut(false);
        let flow = |network: &Network| network.hosts[1].endpoint.flows().next().expect("open");
        network.run_until(|network| flow(network).packets_lost > 0);
        let window = flow(&network).congestion_window_bytes;
        assert!(window >= 7 * u64::from(flow(&network).packet_bytes), "{window}");
    }
}
