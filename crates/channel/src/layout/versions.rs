//! How an app and a daemon of different releases agree on a layout.
//!
//! Each change of the layout is a new version. The app says which versions its library understands,
//! and the daemon takes the highest that it has, too; where there is none it refuses, and says what
//! to update. Which it took, the header of the memory says, by the hash of that layout. A daemon
//! understands the version before its own, so that apps go on while daemons are updated, which
//! comes first.
//!
//! So that one program can serve two versions without a look at which it is, a version may add, and
//! may change nothing that was there: an opcode never means anything else and a command never has
//! another field (what needs one is another opcode); a completion may have another field behind
//! those that it had; and what is new is told only to an app that has asked for something new.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::LAYOUT;

/// The layouts that this build knows, by version. The first was known by its hash alone.
const LAYOUTS: [(u32, u64); 9] = [
    (1, 0x9644_cc96_68d6_5243),
    (2, 0xf0e4_ff18_e5c6_fc86),
    (3, 0x022d_7df8_f472_7615),
    (4, 0x9acc_60d4_0c0c_19b6),
    (5, 0x9fba_2dbb_5fb2_8056),
    (6, 0x7f94_1a4a_496c_6003),
    (7, 0x26c6_344e_c01e_d6da),
    (8, 0xeedb_1d6d_7fc8_ff22),
    (9, LAYOUT),
];

/// A range of versions of the channel, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// The first.
    pub min: u32,
    /// The last.
    pub max: u32,
}

impl Versions {
    /// What this build's app library understands.
    pub const APP: Self = Self { min: 9, max: 9 };
    /// What this build's daemon understands.
    pub const DAEMON: Self = Self { min: 1, max: 9 };

    /// Whether `version` is one of them.
    #[must_use]
    pub const fn contains(self, version: u32) -> bool {
        self.min <= version && version <= self.max
    }

    /// The highest version in both.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u32> {
        let highest = self.max.min(other.max);
        (self.contains(highest) && other.contains(highest)).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { min, max } if min == max => write!(f, "version {min}"),
            Self { min, max } => write!(f, "versions {min} to {max}"),
        }
    }
}

/// What an app says of the layouts that its library understands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Understood {
    /// Versions: from the second on.
    Versions(Versions),
    /// The one layout with this hash, in hexadecimal: the first version, and those before it.
    Hash(String),
}

impl Understood {
    /// The highest version that a daemon with `own` versions has in common with the app.
    pub fn common(&self, own: Versions) -> Result<u32, VersionMismatch> {
        let common = match self {
            Self::Versions(versions) => versions.common(own),
            Self::Hash(hash) => version_of_text(hash).filter(|version| own.contains(*version)),
        };
        common.ok_or_else(|| VersionMismatch { app: self.clone(), daemon: own })
    }
}

/// An app and a daemon have no version of the channel in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the app's library understands {} of the channel, and this daemon {daemon}; {}",
    self.app(),
    self.remedy()
)]
pub struct VersionMismatch {
    app: Understood,
    daemon: Versions,
}

impl VersionMismatch {
    fn app(&self) -> String {
        match &self.app {
            Understood::Versions(versions) => versions.to_string(),
            Understood::Hash(hash) => match version_of_text(hash) {
                Some(version) => Versions { min: version, max: version }.to_string(),
                None => format!("a layout without a version ({hash})"),
            },
        }
    }

    fn remedy(&self) -> &'static str {
        match self.app {
            Understood::Versions(versions) if versions.min > self.daemon.max => {
                "update the daemon to the release of the app's library"
            }
            _ => "build the app with the library of the daemon's release",
        }
    }
}

fn version_of_text(hash: &str) -> Option<u32> {
    let known = LAYOUTS.iter().find(|(_, known)| format!("{known:016x}") == hash);
    known.map(|(version, _)| *version)
}

/// The version with this hash.
pub(crate) fn version_of(hash: u64) -> Option<u32> {
    LAYOUTS.iter().find(|(_, known)| *known == hash).map(|(version, _)| *version)
}

/// The hash of a version. Panics if this build does not know it.
pub(crate) fn layout_of(version: u32) -> u64 {
    let known = LAYOUTS.iter().find(|(known, _)| *known == version);
    known.expect("a version that this build understands").1
}
