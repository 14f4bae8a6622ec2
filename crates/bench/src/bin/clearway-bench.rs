//! `clearway bench` on its own, until the `clearway` command exists.

use clap::Parser;
use clearway_bench::{Command, DemoCommand, RoleCommand};

#[derive(Parser)]
enum Top {
    /// Measure.
    Bench(Command),
    /// Show.
    Demo(DemoCommand),
    #[command(hide = true)]
    BenchRole(RoleCommand),
}

fn main() -> std::process::ExitCode {
    let result = match Top::parse() {
        Top::BenchRole(role) => role.run(|_| Err("this program has no engines".into())),
        Top::Bench(command) => command.execute(),
        Top::Demo(command) => command.execute(),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
