//! Metrics as OpenMetrics text, which Prometheus reads.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{CounterDescription, Description, EngineDescription, Numbers};

/// What the text is, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Frames that were dropped are one metric, with a label for the reason.
const BY_REASON: &str = "dropped";

/// The text of these numbers.
#[must_use]
pub fn text(description: &Arc<Description>, numbers: &Numbers) -> String {
    let mut registry = Registry::default();
    let host = Host { description: Arc::clone(description), numbers: numbers.clone() };
    registry.register_collector(Box::new(host));
    let mut text = String::new();
    // A String takes everything.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Host {
    description: Arc<Description>,
    numbers: Numbers,
}

/// A value, with the engine and the queue that have it.
struct Sample<'h> {
    engine: &'h EngineDescription,
    queue: Option<usize>,
    value: u64,
}

impl Collector for Host {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Description { version, engine, queue, .. } = &*self.description;
        let mut info =
            encoder.encode_descriptor("clearway", "The daemon.", None, MetricType::Info)?;
        info.encode_info(&[("version", version.as_str())])?;
        let published = self.numbers.published.duration_since(UNIX_EPOCH);
        encoder
            .encode_descriptor(
                "clearway_published_seconds",
                "When these numbers were taken, in seconds since 1970.",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&published.map_or(0.0, |since| since.as_secs_f64()))?;
        for (index, counter) in engine.iter().enumerate().filter(|(_, c)| c.group != BY_REASON) {
            let (name, help, kind) = (metric(counter), help(counter), kind(counter));
            let mut family = encoder.encode_descriptor(&name, &help, None, kind)?;
            for sample in self.samples(index, None) {
                sample.encode(&mut family, counter)?;
            }
        }
        self.encode_drops(&mut encoder)?;
        for (index, counter) in queue.iter().enumerate() {
            let (name, help, kind) = (metric(counter), help(counter), kind(counter));
            let mut family = encoder.encode_descriptor(&name, &help, None, kind)?;
            let queues = self.description.engines.iter().map(|engine| engine.queues).max();
            for queue in 0..queues.unwrap_or(0) {
                for sample in self.samples(index, Some(queue)) {
                    sample.encode(&mut family, counter)?;
                }
            }
        }
        Ok(())
    }
}

impl Host {
    fn encode_drops(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "clearway_dropped_frames",
            "Frames that the engine dropped, by reason.",
            None,
            MetricType::Counter,
        )?;
        let counters = self.description.engine.iter().enumerate();
        for (index, counter) in counters.filter(|(_, counter)| counter.group == BY_REASON) {
            for Sample { engine, value, .. } in self.samples(index, None) {
                let labels = [
                    ("nic", engine.nic.as_str()),
                    ("engine", &engine.name),
                    ("reason", &counter.name),
                ];
                let mut metric = family.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        Ok(())
    }

    /// The values of a counter: the number `index` of those of an engine or of a queue.
    fn samples(&self, index: usize, queue: Option<usize>) -> impl Iterator<Item = Sample<'_>> {
        let Description { engine: own, queue: of_queue, engines, .. } = &*self.description;
        let at = queue.map_or(index, |queue| own.len() + queue * of_queue.len() + index);
        let each = engines.iter().zip(&self.numbers.engines);
        each.filter_map(move |(engine, reading)| {
            let value = *reading.as_ref()?.values.get(at)?;
            Some(Sample { engine, queue, value })
        })
    }
}

impl Sample<'_> {
    fn encode(&self, family: &mut MetricEncoder<'_>, counter: &CounterDescription) -> fmt::Result {
        let queue = self.queue.map(|queue| queue.to_string());
        let mut labels = vec![("nic", self.engine.nic.as_str()), ("engine", &self.engine.name)];
        labels.extend(queue.as_ref().map(|queue| ("queue", queue.as_str())));
        let mut metric = family.encode_family(&labels)?;
        if counter.is_level {
            metric.encode_gauge(&self.value)
        } else {
            metric.encode_counter::<NoLabelSet, _, u64>(&self.value, None)
        }
    }
}

fn metric(counter: &CounterDescription) -> String {
    format!("clearway_{}_{}", counter.group, counter.name)
}

/// The library writes it as it is.
fn help(counter: &CounterDescription) -> String {
    counter.help.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn kind(counter: &CounterDescription) -> MetricType {
    if counter.is_level { MetricType::Gauge } else { MetricType::Counter }
}
