//! Lines have at most 100 columns: in code, comments, scripts and documents. rustfmt breaks neither
//! comments nor strings, and knows Rust only.

use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 100;
/// What is looked at, by how its name ends.
const EXTENSIONS: [&str; 7] = ["c", "h", "lua", "md", "py", "rs", "sh"];

#[test]
fn lines_have_at_most_100_columns() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut long = Vec::new();
    for file in files(root) {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let place = file.strip_prefix(root).expect("inside").display();
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && can_be_broken(line) {
                long.push(format!("{place}:{}: {columns} columns", index + 1));
            }
        }
    }
    assert!(long.is_empty(), "break these lines, or say less:\n{}", long.join("\n"));
}

/// False of a row of a table, of a drawing, and of a single word, such as a link; in Markdown or
/// in a comment.
fn can_be_broken(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '*', '#', '-']).trim();
    let is_drawing = text.contains(|letter| ('\u{2500}'..='\u{257f}').contains(&letter));
    !text.starts_with('|') && !is_drawing && text.contains(' ')
}

/// The files of this repository, without what is built and what is hidden.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path));
            }
        } else if path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known)) {
            found.push(path);
        }
    }
    found
}

#[test]
fn what_has_no_place_to_be_broken_at_may_be_longer() {
    let long = |start: &str| format!("{start}{}", "x".repeat(COLUMNS_MAX));
    for start in ["| table ", "    /// | table ", " *  a ─▶ b ", "// https://", "- https://"] {
        assert!(!can_be_broken(&long(start)), "{start}");
    }
    for start in ["words ", "    /// words ", "    let either = one | ", "see https://"] {
        assert!(can_be_broken(&long(start)), "{start}");
    }
}
