//! What is measured: each function is one simulation, and says what came out of it.

use clearway_base::{MICROSECOND, MILLISECOND, SECOND, Time};
use clearway_transport::{Config, Congestion};
use clearway_world::{Faults, Rate};

use super::report::Outcome;
use super::traffic::Load;
use super::world::{Arrival, Bottleneck, Sender, Star, rate_bits_per_s};

/// Of a data packet, this many bytes are header and the head of one fragment.
const OVERHEAD_BYTES: u64 = 24 + 20;
/// Ethernet with preamble and gap, IPv4 and UDP around each Clearway packet.
const HEADERS_BYTES: u64 = 38 + 20 + 8;
const STREAM_BYTES: u32 = 64 * 1024;
const SEED: u64 = 1;
pub(super) const GBIT: u64 = 1_000_000_000;

/// A path: its rate, and the round trip of a small packet without any queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathShape {
    pub(super) bits_per_s: u64,
    pub(super) rtt_ns: u64,
}

impl PathShape {
    /// The bandwidth-delay product.
    const fn product_bytes(self) -> u64 {
        self.bits_per_s / 8 * self.rtt_ns / SECOND
    }

    /// A switch buffer as they are sold: a megabyte, or half of the product where that is more.
    pub(super) fn link(self, faults: Faults) -> Bottleneck {
        let queue_bytes = (self.product_bytes() / 2).max(1 << 20);
        Bottleneck {
            rate: Rate { bits_per_s: self.bits_per_s, queue_bytes, mark_bytes: 0 },
            faults: Faults { latency_ns: self.rtt_ns / 2, ..faults },
            interruptions: (0, 0),
        }
    }

    /// So much may be on its way that it never holds a sender back.
    const fn window(self) -> u64 {
        8 * self.product_bytes() + (8 << 20)
    }

    fn stream(self) -> Load {
        let outstanding = (self.window() / 2 / u64::from(STREAM_BYTES)) as u32;
        Load::Stream { message_bytes: STREAM_BYTES, outstanding }
    }

    /// The largest share of the capacity that can be messages' bytes.
    fn ideal_bits_per_s(self, config: &Config, loss_ppm: u32) -> f64 {
        let packet = u64::from(config.packet_bytes_max);
        let share = (packet - OVERHEAD_BYTES) as f64 / (packet + HEADERS_BYTES) as f64;
        self.bits_per_s as f64 * share * (1.0 - loss_ppm as f64 / 1e6)
    }

    fn text(self) -> String {
        format!("{} Gbit/s, {} ms", self.bits_per_s as f64 / GBIT as f64, self.rtt_ns as f64 / 1e6)
    }
}

fn config(control: Congestion) -> Config {
    Config { congestion: control, ..Config::default() }
}

/// One sender for each load, all at the same distance, all at once.
fn senders(loads: impl IntoIterator<Item = Load>) -> Vec<Sender> {
    let sender = |load| Sender { delay_ns: 0, loads: vec![(1, load)], starts: Time::from_ns(1) };
    loads.into_iter().map(sender).collect()
}

/// One stream over a link with faults: how much of the link it uses, and the queue that it keeps.
pub(super) fn goodput(
    control: Congestion,
    path: PathShape,
    link: Bottleneck,
    case: String,
) -> Outcome {
    let config = config(control);
    let mut world = Star::new(SEED, &config, link, path.window(), senders([path.stream()]));
    let warm = Time::from_ns((60 * path.rtt_ns).max(100 * MILLISECOND));
    let measured_ns = (25 * path.rtt_ns).max(50 * MILLISECOND);
    world.run_until(warm);
    let before = world.delivered_bytes()[0];
    world.waits_ns.clear();
    world.run_until(warm + measured_ns);
    let rate = rate_bits_per_s(world.delivered_bytes()[0] - before, measured_ns);
    let ideal = path.ideal_bits_per_s(&config, link.faults.loss_ppm);
    let [p50, p99] = quantiles(&mut world.waits_ns, [0.5, 0.99]);
    let info = world.flows(0).next();
    Outcome::new("goodput", format!("{}, {case}", path.text()), control)
        .with("Gbit/s", rate / 1e9)
        .with("of capacity", rate / path.bits_per_s as f64)
        .with("of ideal", rate / ideal)
        .with("queue p50 us", p50 as f64 / 1e3)
        .with("queue p99 us", p99 as f64 / 1e3)
        .with("lost", info.map_or(0.0, |info| info.packets_lost as f64))
        .with("overflows", world.overflows() as f64)
        .with("ended", world.closed().count() as f64)
}

/// Random loss of this many packets in a million.
pub(super) fn random_loss(loss_ppm: u32) -> (Faults, String) {
    (Faults { loss_ppm, ..Faults::default() }, format!("{} % loss", f64::from(loss_ppm) / 1e4))
}

/// Messages of 64 bytes each 50 µs, beside streams of other hosts or of the same one.
pub(super) fn beside_streams(
    control: Congestion,
    path: PathShape,
    streams: usize,
    same_host: bool,
    marks: bool,
) -> Outcome {
    const INTERVAL_NS: u64 = 50 * MICROSECOND;
    let small = Load::Ticks { message_bytes: 64, interval_ns: INTERVAL_NS };
    let mut all = senders((0..streams).map(|_| path.stream()));
    if same_host && let Some(first) = all.first_mut() {
        first.loads.push((2, small));
    } else {
        let loads = vec![(2, small)];
        all.push(Sender { delay_ns: 0, loads, starts: Time::from_ns(1) });
    }
    let mut link = path.link(Faults::default());
    if marks {
        link.rate.mark_bytes = path.bits_per_s / 8 * 50 * MICROSECOND / SECOND;
    }
    let mut world = Star::new(SEED, &config(control), link, path.window(), all);
    let (warm, end) = (Time::from_ns(100 * MILLISECOND), Time::from_ns(400 * MILLISECOND));
    world.run_until(warm);
    let before: u64 = world.delivered_bytes().iter().sum();
    world.run_until(end);
    let rate =
        rate_bits_per_s(world.delivered_bytes().iter().sum::<u64>() - before, end.since(warm));
    let of_small = |arrival: &&Arrival| arrival.port == 2 && arrival.at > warm;
    let mut latencies: Vec<u64> =
        world.arrivals.iter().filter(of_small).map(|arrival| arrival.latency_ns).collect();
    let [p50, p99, p999] = quantiles(&mut latencies, [0.5, 0.99, 0.999]);
    let place = if same_host { "of the same host" } else { "of other hosts" };
    let marks = if marks { ", marked from 50 us" } else { "" };
    Outcome::new(
        "small messages",
        format!("{}, {streams} streams {place}{marks}", path.text()),
        control,
    )
    .with("p50 us", p50 as f64 / 1e3)
    .with("p99 us", p99 as f64 / 1e3)
    .with("p99.9 us", p999 as f64 / 1e3)
    .with("messages", latencies.len() as f64)
    .with("of capacity", rate / path.bits_per_s as f64)
}

/// Many senders begin a stream to one receiver in the same moment.
pub(super) fn incast(control: Congestion, path: PathShape, count: usize) -> Outcome {
    let config = config(control);
    let load = Load::Stream { message_bytes: STREAM_BYTES, outstanding: 2 };
    let mut world = Star::new(
        SEED,
        &config,
        path.link(Faults::default()),
        1 << 20,
        senders((0..count).map(|_| load)),
    );
    let (warm, end) = (Time::from_ns(100 * MILLISECOND), Time::from_ns(400 * MILLISECOND));
    world.run_until(warm);
    let before = world.delivered_bytes();
    let first: u64 = before.iter().sum();
    let lost_first = world.overflows();
    world.waits_ns.clear();
    world.run_until(end);
    let shares: Vec<f64> = world
        .delivered_bytes()
        .iter()
        .zip(&before)
        .map(|(after, before)| (after - before) as f64)
        .collect();
    let rate = rate_bits_per_s(shares.iter().sum::<f64>() as u64, end.since(warm));
    let [p50, p99] = quantiles(&mut world.waits_ns, [0.5, 0.99]);
    let latency = world.arrivals.iter().filter(|arrival| arrival.at > warm);
    let mut latencies: Vec<u64> = latency.map(|arrival| arrival.latency_ns).collect();
    let [message_p50, message_p99] = quantiles(&mut latencies, [0.5, 0.99]);
    Outcome::new("incast", format!("{}, {count} to 1", path.text()), control)
        .with("first 0.1 s, of ideal", {
            rate_bits_per_s(first, warm.as_ns()) / path.ideal_bits_per_s(&config, 0)
        })
        .with("then, of ideal", rate / path.ideal_bits_per_s(&config, 0))
        .with("Jain", jain(&shares))
        .with("queue p50 us", p50 as f64 / 1e3)
        .with("queue p99 us", p99 as f64 / 1e3)
        .with("64 KB p50 ms", message_p50 as f64 / 1e6)
        .with("64 KB p99 ms", message_p99 as f64 / 1e6)
        .with("overflows, first", lost_first as f64)
        .with("then", (world.overflows() - lost_first) as f64)
}

/// Nothing passes for a second: how long until goodput is back at 90 % of what it was.
pub(super) fn outage(control: Congestion, path: PathShape) -> Outcome {
    let warm = Time::from_ns((60 * path.rtt_ns).max(300 * MILLISECOND));
    let over = warm + SECOND;
    let mut world = Star::new(
        SEED,
        &config(control),
        path.link(Faults::default()),
        path.window(),
        senders([path.stream()]),
    );
    let bin_ns = path.rtt_ns.max(5 * MILLISECOND);
    world.run_until(warm - 10 * bin_ns);
    let before = world.delivered_bytes()[0];
    world.run_until(warm);
    let usual = (world.delivered_bytes()[0] - before) / 10;
    world.cut(true);
    world.run_until(over);
    world.cut(false);
    let first_byte = world.delivered_bytes()[0];
    let (mut last, mut first_ns, mut back_ns) = (first_byte, None, None);
    while back_ns.is_none() && world.now < over + 10 * SECOND {
        world.run_until(world.now + bin_ns);
        let delivered = world.delivered_bytes()[0];
        let since_ns = world.now.since(over);
        first_ns = first_ns.or((delivered > last).then_some(since_ns));
        back_ns = (delivered - last >= usual * 9 / 10).then_some(since_ns);
        last = delivered;
    }
    let ms = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e6);
    Outcome::new("outage of 1 s", path.text(), control)
        .with("first message ms", ms(first_ns))
        .with("90 % after ms", ms(back_ns))
        .with("ended", world.closed().count() as f64)
}

/// Streams that share a link, the second half of which begins later; their round trips differ.
pub(super) fn sharing(
    control: Congestion,
    bits_per_s: u64,
    rtts_ns: &[u64],
    case: &str,
) -> Outcome {
    let least = rtts_ns.iter().copied().min().unwrap_or(MILLISECOND);
    let most = rtts_ns.iter().copied().max().unwrap_or(MILLISECOND);
    let path = PathShape { bits_per_s, rtt_ns: least };
    let window = PathShape { bits_per_s, rtt_ns: most };
    let late = Time::from_ns((20 * most).max(20 * MILLISECOND));
    let sender = |(at, rtt_ns): (usize, &u64)| Sender {
        delay_ns: (rtt_ns - least) / 2,
        loads: vec![(1, window.stream())],
        starts: if at < rtts_ns.len() / 2 { Time::from_ns(1) } else { late },
    };
    let senders = rtts_ns.iter().enumerate().map(sender).collect();
    let mut world =
        Star::new(SEED, &config(control), path.link(Faults::default()), window.window(), senders);
    let warm = late + (200 * most).max(100 * MILLISECOND);
    world.run_until(warm);
    let before = world.delivered_bytes();
    world.waits_ns.clear();
    let measured_ns = (100 * most).max(200 * MILLISECOND);
    world.run_until(warm + measured_ns);
    let after = world.delivered_bytes();
    let shares: Vec<f64> =
        after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
    let total = shares.iter().sum::<f64>();
    let [p50, p99] = quantiles(&mut world.waits_ns, [0.5, 0.99]);
    let least_share = shares.iter().copied().fold(f64::INFINITY, f64::min) / total;
    Outcome::new("sharing", format!("{} Gbit/s, {case}", bits_per_s / GBIT), control)
        .with("Jain", jain(&shares))
        .with("least share x flows", least_share * shares.len() as f64)
        .with("last share x flows", {
            shares.last().map_or(0.0, |last| last / total) * shares.len() as f64
        })
        .with("of capacity", rate_bits_per_s(total as u64, measured_ns) / bits_per_s as f64)
        .with("queue p50 us", p50 as f64 / 1e3)
        .with("queue p99 us", p99 as f64 / 1e3)
}

/// Jain, Chiu and Hawe's index: 1 if all have the same, 1/n if one has all.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

fn quantiles<const N: usize>(values: &mut [u64], at: [f64; N]) -> [u64; N] {
    values.sort_unstable();
    at.map(|quantile| {
        let index = (values.len() as f64 * quantile) as usize;
        values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
    })
}
