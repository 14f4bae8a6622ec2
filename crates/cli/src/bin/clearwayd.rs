//! `clearwayd`: the daemon. It has nothing in it but the library `clearway-daemon`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    clearway_daemon::program::main()
}
