//! Programs in C, linked with the shared library, between daemons that are real processes.

mod support;

#[path = "../../capi/tests/support/program.rs"]
mod program;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use program::{Program, succeed};
use support::Network;

/// What `crates/capi/build.rs` calls the shared library.
const SONAME: &str = concat!("libclearway.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// A program from this file of the repository. Nothing, with a word, where there is no compiler.
fn build(name: &str, source: &str) -> Option<Program> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (include, source) = (root.join("crates/capi/include"), root.join(source));
    let flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", "-I"].map(OsStr::new);
    let link = program::shared("clearway", SONAME);
    let arguments = flags.into_iter().chain([include.as_os_str(), source.as_os_str()]);
    program::compile("cc", name, arguments.chain(link.iter().map(|word| word.as_os_str())))
}

fn run(command: &mut Command) {
    succeed(&command.output().expect("it starts"));
}

/// By an app of another host, and by one of the same engine.
#[test]
fn every_operation_can_be_had_in_c() {
    let Some(program) = build("operations", "crates/capi/tests/operations.c") else { return };
    let network = Network::start();
    let owners = &network.server;
    for askers in [&network.client, owners] {
        let sockets = [&owners.socket, &askers.socket];
        run(program.command().args(sockets).arg(owners.address.to_string()));
    }
}
