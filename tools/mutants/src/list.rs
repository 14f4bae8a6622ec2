//! The tree that bugs are planted in, and cargo-mutants' list of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Part;
pub use crate::plant::Mutant;

/// What a command prints; it has to succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("a command that is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Copies what git knows of; a file that is the same stays, so that it is not built again.
pub fn copy_tree(tree: &Path) {
    for file in output(Command::new("git").arg("ls-files")).lines() {
        if let Ok(content) = std::fs::read(file) {
            write(&tree.join(file), &content);
        }
    }
}

pub fn write(path: &PathBuf, content: &[u8]) {
    if std::fs::read(path).is_ok_and(|old| old == content) {
        return;
    }
    std::fs::create_dir_all(path.parent().expect("in a tree")).expect("a writable tree");
    std::fs::write(path, content).expect("a writable tree");
}

/// Where the package of a part is.
pub fn directory(part: &Part) -> PathBuf {
    Path::new("crates").join(part.package.trim_start_matches("clearway-"))
}

pub fn mutants(part: &Part) -> Vec<Mutant> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "-p", part.package]);
    command.args(["--exclude", "**/tests.rs", "--exclude", "**/tests/**"]);
    for file in part.files {
        let path = directory(part).join("src").join(file);
        command.arg("--file").arg(path);
    }
    let list: Vec<Value> = serde_json::from_str(&output(&mut command)).expect("a list");
    list.iter().enumerate().map(|(id, mutant)| read(id, mutant)).collect()
}

fn read(id: usize, mutant: &Value) -> Mutant {
    let text = |key: &str| mutant[key].as_str().expect("a text").to_string();
    let source = std::fs::read_to_string(text("file")).expect("a source file");
    let at = |end: &str| {
        let number = |key| mutant["span"][end][key].as_u64().expect("a number") as usize - 1;
        let before: usize = source.split_inclusive('\n').take(number("line")).map(str::len).sum();
        let columns = source[before..].chars().take(number("column"));
        before + columns.map(char::len_utf8).sum::<usize>()
    };
    Mutant {
        id,
        name: text("name"),
        file: text("file"),
        function: mutant["function"].to_string(),
        range: at("start")..at("end"),
        replacement: text("replacement"),
    }
}
