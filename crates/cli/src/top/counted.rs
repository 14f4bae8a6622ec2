//! What comes from the file of counters: NICs and engines, without the daemon's help.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clearway_daemon::metrics::{CountersFile, Description, counters_path_of};
use clearway_daemon::text::escaped;
use clearway_engine::Reading;

use super::rates::Rates;
use super::table::{Cell, Table};

const NICS: &[&str] =
    &["nic", "links up", "#rx/s", "#rx bit/s", "#drop/s", "#tx/s", "#tx bit/s", "#lost/s"];
const ENGINES: &[&str] =
    &["engine", "#busy", "#turns/s", "#apps", "#flows", "#in/s", "#out/s", "#drop/s", "#lane/s"];

/// What there is of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// A daemon writes them: its version, its process, and since when.
    Alive { version: String, process: u64, up: Duration },
    /// It is dead: since it last wrote them.
    Dead { process: u64, since: Duration },
    /// There are none, and why.
    None(String),
}

/// The numbers of one engine.
#[derive(Debug)]
struct Engine {
    name: String,
    nic: String,
    own: Numbers,
    queues: Vec<Numbers>,
}

/// Values and rates, by the counter's group and name.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<String, (u64, f64)>);

impl Numbers {
    fn value(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |(value, _)| *value)
    }

    fn rate(&self, name: &str) -> f64 {
        self.0.get(name).map_or(0.0, |(_, rate)| *rate)
    }

    /// Of all whose names begin so.
    fn rate_of(&self, prefix: &str) -> f64 {
        let all = self.0.iter().filter(|(name, _)| name.starts_with(prefix));
        all.map(|(_, (_, rate))| *rate).sum()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Counted {
    path: PathBuf,
    file: Option<CountersFile>,
    /// By process and engine: a daemon that was started again counts anew.
    rates: Rates<(u64, usize)>,
    pub(super) health: Health,
    engines: Vec<Engine>,
}

impl Counted {
    pub(super) fn new(socket: &Path) -> Self {
        let path = counters_path_of(socket);
        let health = Health::None("not looked at yet".to_owned());
        Self { path, file: None, rates: Rates::default(), health, engines: Vec::new() }
    }

    /// Reads them, of the daemon that there is now.
    pub(super) fn look(&mut self) {
        if !self.file.as_ref().is_some_and(|file| file.is_alive() && file.is_current()) {
            match CountersFile::open(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) if self.file.is_none() => return self.nothing(&error.to_string()),
                // The last numbers of one that has ended.
                Err(_) => {}
            }
        }
        let Some(file) = &self.file else { return };
        match file.read() {
            Ok(numbers) => {
                let age = |time: SystemTime| time.elapsed().unwrap_or_default();
                let process = file.process();
                self.health = if file.is_alive() {
                    let version = escaped(&file.description().version).into_owned();
                    Health::Alive { version, process, up: age(file.started()) }
                } else {
                    Health::Dead { process, since: age(numbers.published) }
                };
                let description = file.description().clone();
                self.take(&description, process, &numbers.engines);
            }
            Err(error) => self.nothing(&error.to_string()),
        }
    }

    fn nothing(&mut self, why: &str) {
        self.health = Health::None(escaped(why).into_owned());
        self.file = None;
        self.engines.clear();
    }

    pub(super) fn take(
        &mut self,
        description: &Description,
        process: u64,
        readings: &[Option<Reading>],
    ) {
        self.engines.clear();
        for (index, (engine, reading)) in description.engines.iter().zip(readings).enumerate() {
            let Some(Reading { at_ns, values }) = reading else { continue };
            let rates = self.rates.update((process, index), *at_ns, values.clone());
            let mut each = values.iter().copied().zip(rates);
            let mut numbers = |counters: &[clearway_daemon::metrics::CounterDescription]| {
                let names = counters.iter().map(|c| format!("{}.{}", c.group, c.name));
                Numbers(names.zip(each.by_ref()).collect())
            };
            let own = numbers(&description.engine);
            let queues = (0..engine.queues).map(|_| numbers(&description.queue)).collect();
            let name = |text: &str| escaped(text).into_owned();
            let (name, nic) = (name(&engine.name), name(&engine.nic));
            self.engines.push(Engine { name, nic, own, queues });
        }
        self.rates.end_round();
    }

    pub(super) fn nics(&self) -> Table {
        let mut nics: BTreeMap<&str, Vec<&Numbers>> = BTreeMap::new();
        for engine in &self.engines {
            nics.entry(&engine.nic).or_default().extend(&engine.queues);
        }
        let rows = nics.into_iter().map(|(nic, queues)| {
            let rate = |name: &str| queues.iter().map(|queue| queue.rate(name)).sum();
            let up = queues.iter().filter(|queue| queue.value("queue.link_up") > 0).count();
            vec![
                Cell::Text(nic.to_owned()),
                Cell::Text(format!("{up} of {}", queues.len())),
                Cell::Rate(rate("queue.rx_frames")),
                Cell::BitRate(rate("queue.rx_bytes")),
                Cell::Rate(rate("queue.rx_frames_dropped")),
                Cell::Rate(rate("queue.tx_frames")),
                Cell::BitRate(rate("queue.tx_bytes")),
                Cell::Rate(rate("queue.tx_frames_dropped")),
            ]
        });
        Table { columns: NICS, rows: rows.collect() }
    }

    pub(super) fn engines(&self) -> Table {
        let rows = self.engines.iter().map(|Engine { name, own, .. }| {
            let turns = own.rate("engine.turns");
            let busy = if turns > 0.0 { own.rate("engine.turns_busy") / turns } else { 0.0 };
            vec![
                Cell::Text(name.clone()),
                Cell::Share(busy),
                Cell::Rate(turns),
                Cell::Count(own.value("engine.channels_open")),
                Cell::Count(own.value("engine.flows_open")),
                Cell::Rate(own.rate("apps.messages_delivered")),
                Cell::Rate(own.rate("apps.messages_submitted")),
                Cell::Rate(own.rate_of("dropped.") + own.rate_of("transport.dropped_")),
                Cell::Rate(own.rate("lanes.lane_frames_sent")),
            ]
        });
        Table { columns: ENGINES, rows: rows.collect() }
    }
}
