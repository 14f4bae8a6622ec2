//! Of the workspace, a crate depends on nothing but those that its row in `ARCHITECTURE.md` names,
//! and what these may use; and `unsafe` is in three crates only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

type Layers = BTreeMap<String, BTreeSet<String>>;

/// The table: what each crate may use. "all above" are the crates of the rows before.
fn allowed() -> Layers {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md"));
    let text = text.expect("ARCHITECTURE.md at the root");
    let table = text.split("| crate |").nth(1).expect("the table of crates");
    let mut layers = Layers::new();
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, uses) = (cells[1].trim_matches('`'), cells[3]);
        let uses = match uses {
            "-" => BTreeSet::new(),
            "all above" => layers.keys().cloned().collect(),
            list => list.split(',').map(|used| used.trim().to_owned()).collect(),
        };
        layers.insert(name.to_owned(), uses);
    }
    layers
}

/// The crates by their short names, as cargo sees them.
fn packages() -> BTreeMap<String, serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").clone();
    let named = |package: serde_json::Value| Some((short(package["name"].as_str()?)?, package));
    packages.into_iter().filter_map(named).collect()
}

fn short(name: &str) -> Option<String> {
    name.strip_prefix("clearway-").map(str::to_owned)
}

/// What each crate uses, but for tests.
fn actual() -> Layers {
    let uses = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let normal = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
        normal.filter_map(|dependency| short(dependency["name"].as_str()?)).collect()
    };
    packages().into_iter().map(|(name, package)| (name, uses(&package))).collect()
}

/// Everything that can be reached from `name` in `layers`.
fn reachable(layers: &Layers, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<String> = layers[name].iter().cloned().collect();
    while let Some(used) = next.pop() {
        next.extend(layers[&used].difference(&found).cloned());
        found.insert(used);
    }
    found
}

#[test]
fn crates_use_only_what_the_table_allows() {
    let (allowed, actual) = (allowed(), actual());
    let names = |layers: &Layers| layers.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&allowed), names(&actual), "the table and the workspace name the same crates");
    for (name, used) in &actual {
        let may_use = reachable(&allowed, name);
        let forbidden: Vec<_> = used.difference(&may_use).collect();
        assert!(
            forbidden.is_empty(),
            "{name} uses {forbidden:?}, which ARCHITECTURE.md does not allow"
        );
        assert!(!reachable(&allowed, name).contains(name), "{name} uses itself");
    }
}

/// The folders of those that share memory with somebody else, or are called from C.
const UNSAFE: [&str; 3] = ["capi", "channel", "nic"];

/// Each library and program of any other crate forbids `unsafe`, its tests and examples do not
/// allow it, and all crates have the lints of the workspace.
#[test]
fn unsafe_code_is_forbidden_in_all_crates_but_three() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("their folder");
    for (name, package) in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let text = read(manifest);
        assert!(text.contains("[lints]\nworkspace = true\n"), "{name} has lints of its own");
        let folder = manifest.parent().expect("a folder");
        let place = folder.strip_prefix(crates).expect("all crates are in one folder");
        if UNSAFE.iter().any(|part| place.starts_with(part)) {
            continue;
        }
        let files = sources(folder);
        let is_root = |file: &PathBuf| {
            let file = file.strip_prefix(folder).expect("inside");
            file == Path::new("src/lib.rs")
                || file == Path::new("src/main.rs")
                || file.parent() == Some(Path::new("src/bin"))
        };
        assert!(files.iter().any(is_root), "{name} has a root");
        for file in files {
            let text = read(&file);
            let forbids = text.lines().any(|line| line == "#![forbid(unsafe_code)]");
            assert!(forbids || !is_root(&file), "{} does not forbid unsafe", file.display());
            let allowed = format!("{}(unsafe_code", "allow");
            assert!(!text.contains(&allowed), "{} allows unsafe", file.display());
        }
    }
}

/// All Rust files of a crate.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
