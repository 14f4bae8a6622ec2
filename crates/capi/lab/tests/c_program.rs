//! Programs in C, compiled with the committed header, linked with the library, and run. Skipped,
//! with a word, where there is no compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    let built = compile("c++", "-std=c++11", &[&main], "header.cc");
    std::fs::remove_file(&main).unwrap();
    if let Some(program) = built {
        succeed(&program.command().output().unwrap());
    }
}

/// A compiled program, removed when it is no longer needed.
struct Program(PathBuf);

impl Program {
    fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What `build.rs` calls the shared library.
const SONAME: &str = concat!("libclearway_lab.so.", env!("CARGO_PKG_VERSION_MAJOR"));

fn build(name: &str, sources: &[&str]) -> Option<Program> {
    let sources: Vec<PathBuf> = sources.iter().map(|path| source(path)).collect();
    let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    compile("cc", "-std=c11", &sources, name)
}

fn compile(compiler: &str, standard: &str, sources: &[&Path], name: &str) -> Option<Program> {
    let libraries = libraries();
    match std::os::unix::fs::symlink("libclearway_lab.so", libraries.join(SONAME)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
    let program = libraries.join(format!("clearway-lab-{name}-{}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]);
    command.arg("-I").arg(source("include")).arg("-I").arg(source("tests")).args(sources);
    command.arg("-L").arg(&libraries).arg("-lclearway_lab");
    command.arg(format!("-Wl,-rpath,{}", libraries.display()));
    match command.arg("-o").arg(&program).output() {
        Ok(output) => succeed(&output),
        Err(error) => {
            eprintln!("skipped: there is no {compiler} ({error})");
            return None;
        }
    }
    Some(Program(program))
}

fn succeed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}

/// Where cargo puts the libraries of this crate when it builds its tests: beside the test program.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
