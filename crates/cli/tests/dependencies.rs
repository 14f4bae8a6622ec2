//! What the workspace depends on obeys `deny.toml`: licences, no two versions of one crate, and no
//! source but the registry. cargo-deny checks the same and advisories besides, but takes minutes to
//! build and needs a network.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The packages that are built on this machine, as cargo sees them.
fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn text<'v>(package: &'v Value, key: &str) -> &'v str {
    package[key].as_str().unwrap_or_default()
}

/// What `deny.toml` allows.
struct Rules {
    licences: BTreeSet<String>,
    /// Crate and licence.
    exceptions: BTreeSet<(String, String)>,
    /// Crate and the beginning of its version.
    skipped: Vec<(String, String)>,
}

impl Rules {
    fn read() -> Self {
        let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).expect("deny.toml");
        let document = DeTable::parse(&text).expect("TOML");
        let document = document.get_ref();
        let licences = at(document, "licenses");
        let exceptions = list(licences, "exceptions").iter().flat_map(|exception| {
            let exception = exception.get_ref().as_table().expect("a table");
            let name = string(at_value(exception, "crate"));
            let allowed = strings(exception, "allow");
            allowed.into_iter().map(move |licence| (name.clone(), licence))
        });
        let skipped = list(at(document, "bans"), "skip").iter().map(|skipped| {
            let skipped = string(at_value(skipped.get_ref().as_table().expect("a table"), "crate"));
            let (name, version) = skipped.split_once('@').expect("crate@version");
            (name.to_owned(), format!("{version}."))
        });
        Self {
            licences: strings(licences, "allow").into_iter().collect(),
            exceptions: exceptions.collect(),
            skipped: skipped.collect(),
        }
    }

    fn skips(&self, name: &str, version: &str) -> bool {
        self.skipped.iter().any(|(skipped, begin)| skipped == name && version.starts_with(begin))
    }
}

fn at_value<'t>(table: &'t DeTable<'_>, key: &str) -> &'t DeValue<'t> {
    table.get(key).unwrap_or_else(|| panic!("{key} is missing")).get_ref()
}

fn at<'t>(table: &'t DeTable<'_>, key: &str) -> &'t DeTable<'t> {
    at_value(table, key).as_table().expect("a table")
}

fn list<'t>(table: &'t DeTable<'_>, key: &str) -> &'t toml::de::DeArray<'t> {
    at_value(table, key).as_array().expect("an array")
}

fn string(value: &DeValue<'_>) -> String {
    value.as_str().expect("a string").to_owned()
}

fn strings(table: &DeTable<'_>, key: &str) -> Vec<String> {
    list(table, key).iter().map(|item| string(item.get_ref())).collect()
}

/// Whether a licence expression (SPDX 2.3, annex D) can be satisfied with what is allowed. Before
/// there were expressions, `/` meant `OR`.
fn satisfied(expression: &str, allowed: &impl Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let satisfied = either(&mut words, allowed);
    assert_eq!(words.next(), None, "`{expression}` is no licence expression");
    satisfied
}

type Words<'w> = std::iter::Peekable<std::str::SplitWhitespace<'w>>;

fn either(words: &mut Words<'_>, allowed: &impl Fn(&str) -> bool) -> bool {
    let mut satisfied = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        satisfied |= all(words, allowed);
    }
    satisfied
}

fn all(words: &mut Words<'_>, allowed: &impl Fn(&str) -> bool) -> bool {
    let mut satisfied = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        satisfied &= one(words, allowed);
    }
    satisfied
}

fn one(words: &mut Words<'_>, allowed: &impl Fn(&str) -> bool) -> bool {
    let word = words.next().expect("a licence");
    if word == "(" {
        let satisfied = either(words, allowed);
        assert_eq!(words.next(), Some(")"));
        return satisfied;
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().expect("an exception");
        return allowed(&format!("{word} WITH {exception}"));
    }
    allowed(word)
}

#[test]
fn licences_are_among_the_allowed() {
    let rules = Rules::read();
    for package in packages().iter().filter(|package| !package["source"].is_null()) {
        let (name, licence) = (text(package, "name"), text(package, "license"));
        let allowed = |id: &str| {
            rules.licences.contains(id) || rules.exceptions.contains(&(name.into(), id.into()))
        };
        assert!(!licence.is_empty(), "{name} does not say its licence");
        assert!(satisfied(licence, &allowed), "{name} has the licence {licence}, see deny.toml");
    }
}

#[test]
fn crates_come_once_and_from_the_registry() {
    let rules = Rules::read();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut registries = BTreeSet::new();
    for package in packages() {
        let (name, version) = (text(&package, "name"), text(&package, "version"));
        if let Some(source) = package["source"].as_str() {
            assert!(source.starts_with("registry+"), "{name} comes from {source}");
            registries.insert(source.to_owned());
        }
        if !rules.skips(name, version) {
            versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    assert_eq!(registries.len(), 1, "there is one registry, and not {registries:?}");
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "several versions of {versions:?}; see deny.toml");
}

#[test]
fn expressions_are_understood() {
    let allowed = |id: &str| ["MIT", "Apache-2.0", "Zlib"].contains(&id);
    for good in [
        "MIT",
        "MIT/GPL-2.0",
        "GPL-2.0 OR MIT",
        "(MIT OR GPL-2.0) AND Zlib",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
    ] {
        assert!(satisfied(good, &allowed), "{good}");
    }
    for bad in ["GPL-2.0", "MIT AND GPL-2.0", "Apache-2.0 WITH LLVM-exception"] {
        assert!(!satisfied(bad, &allowed), "{bad}");
    }
}
