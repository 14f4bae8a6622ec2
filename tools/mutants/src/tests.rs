//! Building the tests, finding out what they reach, and running them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Part;
use crate::list::{self, Mutant};
use crate::plant::{self, begins, ends};

/// No bug has this number: tests run as they do with one, up to the hook for panics.
const NO_BUG: &str = "999999";

/// A program of tests, and where it runs.
pub struct Program {
    path: PathBuf,
    directory: PathBuf,
}

pub struct Test<'a> {
    program: &'a Program,
    name: String,
    took: Duration,
    pub reached: BTreeSet<usize>,
}

#[derive(Default)]
pub struct LeftOut {
    pub invalid: BTreeSet<usize>,
    pub constant: BTreeSet<usize>,
}

impl LeftOut {
    pub fn has(&self, id: usize) -> bool {
        self.invalid.contains(&id) || self.constant.contains(&id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// A test has failed.
    Found,
    /// A test did not end: it hangs, or the machine has too much to do.
    Hung,
    Missed,
}

/// Builds the tests with all bugs in them, but for those that the compiler refuses.
pub fn build_all(part: &Part, tree: &Path, mutants: &[Mutant]) -> LeftOut {
    let root = list::directory(part).join("src/lib.rs").to_string_lossy().into_owned();
    let mut left_out = LeftOut::default();
    // One type for what is there and another for the bug, both hidden: there is no choice of them.
    let hidden = mutants.iter().filter(|mutant| mutant.name.contains("-> impl "));
    left_out.constant.extend(hidden.map(|mutant| mutant.id));
    loop {
        let mut texts = BTreeMap::from([(root.clone(), Vec::new())]);
        for mutant in mutants {
            let of_file = texts.entry(mutant.file.clone()).or_default();
            if !left_out.has(mutant.id) {
                of_file.push(mutant);
            }
        }
        let mut planted = BTreeMap::new();
        for (file, mutants) in texts {
            let text = std::fs::read_to_string(&file).expect("a source file");
            let (mut text, constant) = plant::all(&text, &mutants);
            left_out.constant.extend(constant);
            if file == root {
                let text_before = text.replace("#![forbid(unsafe_code)]", "");
                text = format!("#![allow(warnings, unsafe_code)]{text_before}");
                text += include_str!("chooser.rs");
            }
            list::write(&tree.join(&file), text.as_bytes());
            planted.insert(file, text);
        }
        let Err(errors) = programs(part, tree) else { return left_out };
        let before = left_out.invalid.len() + left_out.constant.len();
        for error in &errors {
            blame(error, &planted, mutants, &mut left_out);
        }
        assert!(
            left_out.invalid.len() + left_out.constant.len() > before,
            "errors that no bug has made: {}",
            errors.iter().map(|error| error["rendered"].to_string()).collect::<String>()
        );
        eprintln!("{} errors", errors.len());
    }
}

/// Finds the bug that an error of the compiler is about.
fn blame(
    error: &Value,
    planted: &BTreeMap<String, String>,
    mutants: &[Mutant],
    left_out: &mut LeftOut,
) {
    let mut spans = Vec::new();
    spans_of(error, &mut spans);
    for (file, offset) in &spans {
        let Some(text) = planted.get(file) else { continue };
        let inside = mutants.iter().filter(|mutant| mutant.file == *file).find(|mutant| {
            text.find(&begins(mutant.id)).is_some_and(|begin| {
                let end = text.find(&ends(mutant.id)).expect("what begins");
                (begin..end).contains(offset)
            })
        });
        if let Some(mutant) = inside {
            left_out.invalid.insert(mutant.id);
            return;
        }
    }
    // Computed by the compiler: nothing in that function can be chosen.
    for (file, offset) in &spans {
        let Some(text) = planted.get(file) else { continue };
        let Some(ids) = text[*offset..].strip_prefix("crate::mutant::none(&[") else { continue };
        let id: usize = ids[..ids.find([',', ']']).expect("a list")].parse().expect("a number");
        let function = &mutants[id].function;
        let same = mutants.iter().filter(|other| other.function == *function);
        left_out
            .constant
            .extend(same.map(|other| other.id).filter(|id| !left_out.invalid.contains(id)));
        return;
    }
}

fn spans_of(message: &Value, spans: &mut Vec<(String, usize)>) {
    for span in message["spans"].as_array().into_iter().flatten() {
        let file = span["file_name"].as_str().expect("a name").to_string();
        spans.push((file, span["byte_start"].as_u64().expect("a number") as usize));
    }
    for child in message["children"].as_array().into_iter().flatten() {
        spans_of(child, spans);
    }
}

/// Builds the tests of a part as they are in its tree: programs, or errors.
pub fn programs(part: &Part, tree: &Path) -> Result<Vec<Program>, Vec<Value>> {
    let mut command = Command::new("cargo");
    command.args(["test", "--no-run", "--message-format=json", "-p", part.package]);
    command.args(part.tests).current_dir(tree);
    command.env("CARGO_TARGET_DIR", std::path::absolute("target/mutants/target").expect("a path"));
    let output = command.stderr(Stdio::null()).output().expect("cargo");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let messages = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for mut message in messages.collect::<Vec<Value>>() {
        if message["message"]["level"] == "error" {
            errors.push(message["message"].take());
        } else if let (Some(path), true) =
            (message["executable"].as_str(), message["profile"]["test"] == true)
        {
            let manifest = Path::new(message["manifest_path"].as_str().expect("a path"));
            let directory = manifest.parent().expect("in a directory").to_path_buf();
            programs.push(Program { path: path.into(), directory });
        }
    }
    if output.status.success() { Ok(programs) } else { Err(errors) }
}

/// Runs each test by itself, to see what it reaches and how long it takes.
pub fn find(programs: &[Program]) -> Vec<Test<'_>> {
    let mut tests = Vec::new();
    let trace = std::env::temp_dir().join(format!("clearway-reached-{}", std::process::id()));
    for program in programs {
        let output = Command::new(&program.path).arg("--list").output().expect("a program");
        let list = String::from_utf8(output.stdout).expect("UTF-8");
        for name in list.lines().filter_map(|line| line.strip_suffix(": test")) {
            let begin = Instant::now();
            let mut command = program.command(&[name]);
            command.env("CLEARWAY_REACHED", &trace).env("CLEARWAY_MUTANT", NO_BUG);
            let status = command.status().expect("a program");
            let took = begin.elapsed();
            if !status.success() {
                eprintln!("fails without a bug, and is left out: {name}");
                continue;
            }
            let reached = std::fs::read_to_string(&trace).unwrap_or_default();
            let reached = reached.lines().map(|line| line.parse().expect("a number")).collect();
            tests.push(Test { program, name: name.to_string(), took, reached });
            let _ = std::fs::remove_file(&trace);
        }
    }
    tests.sort_by_key(|test| test.took);
    tests
}

impl Program {
    fn command(&self, tests: &[&str]) -> Command {
        // What takes memory without end is to fail, not the machine.
        let mut command = Command::new("prlimit");
        command.arg("--as=17179869184").arg(&self.path).args(["--test-threads=1", "--exact"]);
        command.args(tests).current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Runs the tests, the quick ones first, with a bug.
pub fn verdict(id: usize, tests: &[&Test]) -> Verdict {
    let mut rest = tests;
    while let [first, ..] = rest {
        // Many quick ones share a program; a slow one is run alone.
        let quick = Duration::from_millis(300);
        let same =
            |other: &&&Test| other.took < quick && std::ptr::eq(other.program, first.program);
        let count = rest.iter().take_while(same).count().max(1);
        let names: Vec<&str> = rest[..count].iter().map(|test| test.name.as_str()).collect();
        let took: Duration = rest[..count].iter().map(|test| test.took).sum();
        let mut command = first.program.command(&names);
        let child = command.env("CLEARWAY_MUTANT", id.to_string()).spawn().expect("a program");
        match passes(child, Duration::from_secs(5) + 8 * took) {
            Some(true) => {}
            Some(false) => return Verdict::Found,
            None => return Verdict::Hung,
        }
        rest = &rest[count..];
    }
    Verdict::Missed
}

/// Whether the tests pass; `None` if they do not end. The time is counted in looks: it stands still
/// while this program is stopped.
fn passes(mut child: Child, limit: Duration) -> Option<bool> {
    const LOOK: Duration = Duration::from_millis(5);
    for _ in 0..limit.as_millis() / LOOK.as_millis() {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status.success());
        }
        std::thread::sleep(LOOK);
    }
    child.kill().and_then(|()| child.wait()).expect("a child");
    None
}

/// Builds and tests one by one what the compiler computes: how many compile, and what was missed.
pub fn try_constants(part: &Part, tree: &Path, mutants: &[&Mutant]) -> (usize, Vec<String>) {
    let (mut viable, mut missed) = (0, Vec::new());
    for mutant in mutants {
        list::copy_tree(tree);
        let text = std::fs::read_to_string(&mutant.file).expect("a source file");
        list::write(&tree.join(&mutant.file), plant::alone(&text, mutant).as_bytes());
        let Ok(programs) = programs(part, tree) else { continue };
        viable += 1;
        let fails = |program: &Program| {
            let child = program.command(&[]).spawn().expect("a program");
            passes(child, Duration::from_secs(300)) != Some(true)
        };
        if !programs.iter().any(fails) {
            missed.push(mutant.name.clone());
        }
    }
    (viable, missed)
}
