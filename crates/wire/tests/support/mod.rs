//! The test vectors of `docs/wire.md`, as the document has them.

use std::collections::BTreeMap;

pub(crate) const DOCUMENT: &str = include_str!("../../../../docs/wire.md");

/// What follows "```vector KIND " up to the next "```": names and bytes.
pub(crate) fn vectors(kind: &str) -> BTreeMap<&'static str, Vec<u8>> {
    let mut vectors = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("```vector ") else { continue };
        let (this_kind, name) = rest.split_once(' ').expect("a vector has a kind and a name");
        let body = lines.by_ref().take_while(|line| *line != "```");
        let digits: String = body.map(|line| line.split('#').next().unwrap()).collect();
        if this_kind == kind {
            assert!(vectors.insert(name, bytes(&digits)).is_none(), "{name} stands there twice");
        }
    }
    vectors
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}
