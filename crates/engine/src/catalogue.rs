//! What a daemon counts, as it is declared beside whoever counts: for status, metrics,
//! `clearway explain` and `docs/counters.md`.

use clearway_base::Counter;
use clearway_channel::FrameRefusal;
use clearway_nic::Counters as QueueCounters;

use crate::board::Label;
use crate::channels::AppCounters;
use crate::common::EngineCounters;
use crate::frames::VifCounters;
use crate::ip::DropReason;
use crate::lanes::LaneCounters;
use crate::operations::OperationCounters;
use crate::snapshot::{
    CaptureSnapshot, ChannelSnapshot, FlowSnapshot, QueueSnapshot, RegionSnapshot, Snapshot,
};

/// Counters that one thing has.
#[derive(Clone, Debug)]
pub struct CounterGroup {
    /// Its name in metrics and docs.
    pub name: &'static str,
    /// Whose counters they are.
    pub owner: &'static str,
    /// In the order of declaration.
    pub counters: Vec<Counter>,
}

/// All that `clearway status` shows.
#[must_use]
pub fn catalogue() -> Vec<CounterGroup> {
    let engine = ("engine", "an engine", Snapshot::COUNTED);
    let apps = [
        ("app", "an app's channel", ChannelSnapshot::COUNTED),
        ("region", "a shared region", RegionSnapshot::COUNTED),
        ("flow", "a connection", FlowSnapshot::COUNTED),
        ("vif", "a virtual interface", VifCounters::ALL),
        ("refused", "a virtual interface, of frames that were not sent", FrameRefusal::COUNTERS),
        ("capture", "a capture", CaptureSnapshot::COUNTED),
    ];
    let hosts = [of_queue(), CounterGroup::of(engine)].into_iter().chain(of_engine());
    hosts.chain(apps.map(CounterGroup::of)).collect()
}

/// What a [`crate::Board`] of an engine with so many queues has, in its order.
pub(crate) fn labels(queues: usize) -> Vec<Label> {
    let own = Snapshot::COUNTED.iter().map(|counter| ("engine", *counter));
    let rest = of_engine();
    let rest = rest.iter().flat_map(|group| group.counters.iter().map(|c| (group.name, *c)));
    let of_engine = own.chain(rest).map(|(group, counter)| Label { group, counter, queue: None });
    let of_queue = of_queue();
    let of_queues = (0..queues).flat_map(|queue| {
        let label = move |counter: &Counter| Label {
            group: "queue",
            counter: *counter,
            queue: Some(queue),
        };
        of_queue.counters.iter().map(label)
    });
    of_engine.chain(of_queues).collect()
}

/// The level of the link, then the counters.
fn of_queue() -> CounterGroup {
    let counters = QueueSnapshot::COUNTED.iter().chain(QueueCounters::ALL);
    CounterGroup { name: "queue", owner: "a queue of a NIC", counters: counters.copied().collect() }
}

/// The counters in [`Snapshot::counters`], in their order.
fn of_engine() -> Vec<CounterGroup> {
    let groups = [
        ("transport", "an engine, of its peers", clearway_transport::Counters::ALL),
        ("tcp", "an engine, of TCP", clearway_tcp::Counters::ALL),
        ("apps", "an engine, of all its apps", AppCounters::ALL),
        ("operations", "an engine, of one-sided operations", OperationCounters::ALL),
        ("frames", "an engine, of frames", EngineCounters::ALL),
        ("lanes", "an engine, of its lanes to other engines", LaneCounters::ALL),
    ];
    let drops = CounterGroup {
        name: "dropped",
        owner: "an engine, of frames that it dropped, by reason",
        counters: DropReason::counters().collect(),
    };
    groups.map(CounterGroup::of).into_iter().chain([drops]).collect()
}

impl CounterGroup {
    fn of((name, owner, counters): (&'static str, &'static str, &[Counter])) -> Self {
        Self { name, owner, counters: counters.to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_says_when_it_rises_and_what_to_do() {
        for group in catalogue() {
            let mut names = HashSet::new();
            for counter in &group.counters {
                let Counter { name, rises, remedy, .. } = *counter;
                assert!(names.insert(name), "{name} twice in {}", group.name);
                assert!(counter.help().ends_with('.'), "{name}: {}", counter.help());
                assert!(!rises.is_empty() && !rises.ends_with('.'), "{name}: {rises}");
                assert!(!remedy.is_empty() && !remedy.ends_with('.'), "{name}: {remedy}");
                for text in [counter.help(), rises, remedy] {
                    assert!(!text.contains("  ") && !text.contains('\n'), "{name}: {text}");
                }
            }
        }
    }

    /// Status has them in one object, by name.
    #[test]
    fn no_two_counters_of_an_engine_have_one_name() {
        let mut names = HashSet::new();
        let all = of_engine();
        let mut counters = all.iter().flat_map(|group| &group.counters);
        assert!(counters.all(|counter| names.insert(counter.name)));
    }
}
