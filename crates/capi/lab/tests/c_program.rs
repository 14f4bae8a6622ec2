//! Programs in C, compiled with the committed header, linked with the library, and run. Skipped,
//! with a word, where there is no compiler.

#[path = "../../tests/support/program.rs"]
mod program;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use program::{Program, libraries, succeed};

/// The lines that an adapter to packetdrill may take.
const ADAPTER_LINES: usize = 250;

#[test]
fn a_c_program_can_test_the_stack() {
    let Some(program) = build("lab.c", &["tests/lab.c"]) else { return };
    succeed(&program.command().output().unwrap());
}

/// packetdrill's own part is played by a small driver.
#[test]
fn packetdrill_can_drive_the_stack() {
    let adapter = std::fs::read_to_string(source("examples/packetdrill.c")).unwrap();
    assert!(adapter.lines().count() <= ADAPTER_LINES, "an adapter has to be short");
    let sources = ["examples/packetdrill.c", "tests/driver.c"];
    let Some(program) = build("packetdrill.c", &sources) else { return };
    succeed(&program.command().output().unwrap());
}

#[test]
fn the_header_is_good_cplusplus_too() {
    let main = libraries().join(format!("clearway-lab-header-{}.cc", std::process::id()));
    let text = "#include <clearway_lab.h>\nint main() { return clearway_lab_create(0) < 0; }\n";
    std::fs::write(&main, text).unwrap();
    let built = compile("c++", "-std=c++11", std::slice::from_ref(&main), "header.cc");
    std::fs::remove_file(&main).unwrap();
    if let Some(program) = built {
        succeed(&program.command().output().unwrap());
    }
}

/// What `build.rs` calls the shared library.
const SONAME: &str = concat!("libclearway_lab.so.", env!("CARGO_PKG_VERSION_MAJOR"));

fn build(name: &str, sources: &[&str]) -> Option<Program> {
    let sources: Vec<PathBuf> = sources.iter().map(|path| source(path)).collect();
    compile("cc", "-std=c11", &sources, name)
}

fn compile(compiler: &str, standard: &str, sources: &[PathBuf], name: &str) -> Option<Program> {
    let folders = [source("include"), source("tests")].map(PathBuf::into_os_string);
    let [include, tests] = &folders;
    let flags = [standard, "-pthread", "-I"].map(OsStr::new);
    let link = program::shared("clearway_lab", SONAME);
    let arguments = flags.into_iter().chain([include, OsStr::new("-I"), tests]);
    let arguments = arguments.chain(sources.iter().map(|source| source.as_os_str()));
    program::compile(compiler, &format!("lab-{name}"), arguments.chain(link.iter().map(|l| &**l)))
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
