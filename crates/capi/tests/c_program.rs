//! A C program that is compiled with the committed header, linked with the library, and run against
//! the daemon in a thread of the client's tests. Skipped, with a word, where there is no compiler.

#[path = "../../client/tests/common/mod.rs"]
mod common;

#[path = "support/program.rs"]
mod program;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Daemon, Order, programs};
use program::{Program, libraries, succeed};

#[test]
fn a_c_program_can_use_everything() {
    let Some(program) = build("program.c", &source("crates/capi/tests/program.c"), &[]) else {
        return;
    };
    for waiting in ["0", "1", "2", "3"] {
        let daemon = Daemon::start();
        succeed(&program.command().arg(&daemon.path).arg(waiting).output().unwrap());
    }
}

/// What it has sent is the daemon's to deliver: it has said goodbye by just ending.
#[test]
fn a_c_program_that_just_ends_has_left_in_good_order() {
    let Some(program) = build("leave.c", &source("crates/capi/tests/program.c"), &[]) else {
        return;
    };
    let daemon = Daemon::start();
    succeed(&program.command().arg(&daemon.path).arg("x0").output().unwrap());
    assert_eq!(daemon.heard(), b"last words");
}

/// Its child has let the channel go, which says nothing for the parent.
#[test]
fn a_c_program_that_is_killed_has_not_left_in_good_order() {
    let Some(program) = build("killed.c", &source("crates/capi/tests/program.c"), &[]) else {
        return;
    };
    let daemon = Daemon::start();
    let output = program.command().arg(&daemon.path).arg("k0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{text}");
    assert_eq!(daemon.heard(), b"");
}

#[test]
fn a_c_program_can_bring_its_own_protocol() {
    let Some(program) = build("vif.c", &source("crates/capi/tests/vif.c"), &[]) else { return };
    for waiting in ["0", "1", "2", "3"] {
        let daemon = Daemon::start();
        succeed(&program.command().arg(&daemon.path).arg(waiting).output().unwrap());
    }
}

/// What a daemon carries out, `crates/cli/tests/c_library.rs` tries.
#[test]
fn a_c_program_is_told_what_is_wrong_with_its_operations() {
    let code = source("crates/capi/tests/operations.c");
    let Some(program) = build("operations.c", &code, &[]) else { return };
    let daemon = Daemon::start();
    succeed(&program.command().arg(&daemon.path).output().unwrap());
}

#[test]
fn a_c_program_has_its_own_memory_again() {
    let code = source("crates/capi/tests/operations.c");
    let Some(program) = build("again.c", &code, &[]) else { return };
    programs::memory_is_there_again(program.command());
}

/// In whatever way the channel's thread waits.
#[test]
fn a_c_program_is_woken_by_what_another_thread_releases() {
    let code = source("crates/capi/tests/elsewhere.c");
    let Some(program) = build("elsewhere.c", &code, &[]) else { return };
    for waiting in ["0", "1", "2", "3"] {
        let daemon = Daemon::start();
        succeed(&program.command().arg(&daemon.path).arg(waiting).output().unwrap());
    }
    programs::goes_on_at_the_next_daemon(program.command(), &["3", "again"]);
}

/// They come more often than the daemon has time to answer.
#[test]
fn signals_give_a_c_program_no_more_time_to_wait() {
    let Some(program) = build("signals.c", &source("crates/capi/tests/signals.c"), &[]) else {
        return;
    };
    let daemon = Daemon::start();
    let mut command = program.command();
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = piped.arg(&daemon.path).spawn().unwrap();
    // It has attached.
    process.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    daemon.order(Order::Ignore);
    daemon.counters();
    succeed(&process.wait_with_output().unwrap());
}

#[test]
fn the_static_library_works_as_well() {
    let library = libraries().join("libclearway.a");
    let system = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
    let mut arguments = vec![library.to_str().unwrap()];
    arguments.extend(system);
    let Some(program) = build("static.c", &source("crates/capi/tests/program.c"), &arguments)
    else {
        return;
    };
    let daemon = Daemon::start();
    succeed(&program.command().arg(&daemon.path).arg("0").output().unwrap());
}

#[test]
fn the_example_compiles_as_c_and_says_what_it_wants() {
    let Some(program) = build("hello.c", &source("examples/hello.c"), &[]) else { return };
    let output = program.command().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = program
        .command()
        .args(["client", "10.0.0.2"])
        .env("CLEARWAY_SOCKET", "/nowhere/clearway.sock")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("/nowhere/clearway.sock") && text.contains("clearway daemon"), "{text}");
}

/// Threads need no library of their own: they are in the C library.
#[test]
fn the_examples_do_what_they_are_examples_of() {
    type Scenario = fn(Command);
    let scenarios: [(&str, Scenario); 7] = [
        ("hello", programs::hello_survives_its_clients),
        ("hello", programs::hello_is_greeted),
        ("threads", programs::threads_are_greeted),
        ("workers", programs::workers_answer),
        ("calls", programs::calls_are_answered),
        ("epoll", programs::epoll_serves_both_kinds),
        ("reattach", programs::reattach_goes_on),
    ];
    for (name, scenario) in scenarios {
        let code = source(&format!("examples/{name}.c"));
        let Some(program) = build(&format!("run-{name}.c"), &code, &[]) else { return };
        scenario(program.command());
    }
}

#[test]
fn the_header_is_good_cplusplus_too() {
    let main = libraries().join(format!("clearway-header-{}.cc", std::process::id()));
    std::fs::write(&main, "#include <clearway.h>\nint main() { return clearway_detach(0, 0); }\n")
        .unwrap();
    let built = compile("c++", &["-std=c++11"], &main, "header-cc", &[]);
    std::fs::remove_file(&main).unwrap();
    if let Some(program) = built {
        succeed(&program.command().output().unwrap());
    }
}

/// A program asks for the version of the interface that it was linked against.
#[test]
fn the_shared_library_is_known_by_its_version() {
    let Some(program) = build("soname.c", &source("examples/hello.c"), &[]) else { return };
    let name = format!("[{SONAME}]");
    let library = libraries().join("libclearway.so");
    for (file, tag) in [(library.as_path(), "(SONAME)"), (program.0.as_path(), "(NEEDED)")] {
        let Ok(output) = Command::new("readelf").arg("-d").arg(file).output() else {
            println!("skipped: there is no readelf");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.lines().any(|line| line.contains(tag) && line.contains(&name));
        assert!(found, "{tag} {name} is missing in {text}");
    }
}

/// What `build.rs` calls the shared library.
const SONAME: &str = concat!("libclearway.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// Compiles a C program against header and library. `link` replaces the shared library.
fn build(name: &str, source: &Path, link: &[&str]) -> Option<Program> {
    let flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic"];
    compile("cc", &flags, source, name, link)
}

fn compile(
    compiler: &str,
    flags: &[&str],
    source: &Path,
    name: &str,
    link: &[&str],
) -> Option<Program> {
    let include = self::source("crates/capi/include");
    let link: Vec<OsString> = match link {
        [] => program::shared("clearway", SONAME).into(),
        link => link.iter().map(OsString::from).collect(),
    };
    let arguments = flags.iter().map(OsStr::new);
    let arguments = arguments.chain([OsStr::new("-I"), include.as_os_str(), source.as_os_str()]);
    let arguments = arguments.chain(link.iter().map(OsString::as_os_str));
    program::compile(compiler, &format!("test-{name}"), arguments)
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
