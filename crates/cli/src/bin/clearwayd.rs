//! `clearwayd`: the daemon. It has nothing in it but the library `clearway-daemon`.

fn main() -> std::process::ExitCode {
    clearway_daemon::program::main()
}
