//! `clearway bench` on its own, until the `clearway` command exists.

use clap::Parser;
use clearway_bench::{Command, Interrupt, RoleCommand, print, run};

#[derive(Parser)]
enum Top {
    /// Measure.
    Bench(Command),
    #[command(hide = true)]
    BenchRole(RoleCommand),
}

fn main() -> std::process::ExitCode {
    let result = match Top::parse() {
        Top::BenchRole(role) => role.run(),
        Top::Bench(command) => bench(&command),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn bench(command: &Command) -> Result<(), clearway_bench::Error> {
    let plan = command.plan()?;
    let interrupt = Interrupt::catch()?;
    let report = run(&plan, &interrupt, |_, _, _| {})?;
    if command.json {
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
    } else {
        println!("{}", print(&report));
    }
    Ok(())
}
