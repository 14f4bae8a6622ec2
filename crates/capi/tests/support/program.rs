//! Compiling C programs against a library that cargo has built, and running them. For the tests of
//! both C libraries.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A compiled program, removed when it is no longer needed.
pub(crate) struct Program(pub(crate) PathBuf);

impl Program {
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Has a compiler make a program of this name; `arguments` are all others. Nothing, with a word, if
/// there is no such compiler.
pub(crate) fn compile<'a>(
    compiler: &str,
    name: &str,
    arguments: impl IntoIterator<Item = &'a std::ffi::OsStr>,
) -> Option<Program> {
    let program = libraries().join(format!("clearway-{name}-{}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-g"]).args(arguments);
    match command.arg("-o").arg(&program).output() {
        Ok(output) => succeed(&output),
        Err(error) => {
            println!("skipped: there is no {compiler} ({error})");
            return None;
        }
    }
    Some(Program(program))
}

/// What links a program with the shared library of this name, and lets it find it.
pub(crate) fn shared(library: &str, soname: &str) -> [std::ffi::OsString; 4] {
    let directory = libraries();
    // The name under which programs look for it, as the installation gives it.
    match std::os::unix::fs::symlink(format!("lib{library}.so"), directory.join(soname)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
    let path = format!("-Wl,-rpath,{}", directory.display());
    ["-L".into(), directory.into(), format!("-l{library}").into(), path.into()]
}

pub(crate) fn succeed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}

/// Where cargo puts the libraries of this crate when it builds its tests: beside the test program.
pub(crate) fn libraries() -> PathBuf {
    let program: PathBuf = std::env::current_exe().unwrap();
    program.parent().map(Path::to_owned).unwrap()
}
