//! What was measured, as JSON and as text.

use super::row;
use serde::Serialize;
use std::collections::BTreeMap;

/// One table over one rule file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// In batches of 32.
    pub(super) ns_per_packet: f64,
    /// One by one.
    pub(super) ns_per_packet_single: f64,
    /// All rules inserted, one after the other.
    pub(super) build_ms: f64,
    pub(super) memory_bytes: usize,
    /// One rule in or out, at full size, between batches of packets.
    pub(super) update_us_p50: f64,
    pub(super) update_us_p99: f64,
    pub(super) update_us_max: f64,
    /// Answers that were not those of the linear scan, of all that were checked.
    pub(super) wrong: u64,
}

/// All tables over one rule file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) tables: BTreeMap<&'static str, Figures>,
    /// Different bitmasks, and bitmask-value patterns, that the rules make: "before hashing".
    pub(super) masks: usize,
    pub(super) values: usize,
    /// With the intersections that keep the order: "after hashing". 0 if the table that has them,
    /// `tuple`, was not made.
    pub(super) masks_hashed: usize,
    pub(super) values_hashed: usize,
}

/// The order in which tables are shown.
pub(super) const TABLES: [&str; 4] = ["linear", "adaptive", "tuple", "production"];
const WIDTHS: [usize; 9] = [24, 12, 12, 10, 12, 12, 12, 10, 8];

impl Outcome {
    /// Wrong answers of all tables.
    pub(super) fn wrong(&self) -> u64 {
        self.tables.values().map(|figures| figures.wrong).sum()
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names are JSON") + "\n"
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("bitmasks {}, values {}", self.masks, self.values);
        if self.tables.contains_key("tuple") {
            let (masks, values) = (self.masks_hashed, self.values_hashed);
            text += &format!("; after hashing: bitmasks {masks}, values {values}");
        }
        text.push('\n');
        let head = [
            "table",
            "ns/packet",
            "one by one",
            "build ms",
            "KiB",
            "update p50",
            "p99 us",
            "max us",
            "wrong",
        ];
        row(&mut text, &head.map(String::from), &WIDTHS);
        for (name, figures) in &self.tables {
            let cells = [
                (*name).to_owned(),
                format!("{:.1}", figures.ns_per_packet),
                format!("{:.1}", figures.ns_per_packet_single),
                format!("{:.1}", figures.build_ms),
                (figures.memory_bytes / 1024).to_string(),
                format!("{:.2}", figures.update_us_p50),
                format!("{:.2}", figures.update_us_p99),
                format!("{:.1}", figures.update_us_max),
                figures.wrong.to_string(),
            ];
            row(&mut text, &cells, &WIDTHS);
        }
        text
    }
}
