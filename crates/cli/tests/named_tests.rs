//! Documents name tests as the proof of what they say: each of these has to be there.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// A name with as many is a test's, or a key of the configuration's.
const UNDERSCORES_MIN: usize = 3;

#[test]
fn tests_that_the_security_document_names_are_there() {
    let root = Path::new(ROOT);
    let text = |file: &str| std::fs::read_to_string(root.join(file)).expect(file);
    let keys = text("clearway.toml");
    let mut functions = BTreeSet::new();
    add_functions(&root.join("crates"), &mut functions);
    let document = text("docs/security.md");
    let named: Vec<&str> = document.split('`').filter(|word| may_be_test(word)).collect();
    assert!(named.len() > 100, "they are found at all: {}", named.len());
    let is_there = |name: &&&str| functions.contains(**name) || keys.contains(&format!("{name} ="));
    let missing: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "no test has one of these names: {missing:?}");
}

fn may_be_test(word: &str) -> bool {
    word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && word.matches('_').count() >= UNDERSCORES_MIN
}

/// The names of all functions in the sources of a folder.
fn add_functions(folder: &Path, functions: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_functions(&path, functions);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('('));
            functions.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}
