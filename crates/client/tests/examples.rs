//! The examples against the daemon of `common`.

mod common;

use std::process::Command;

use common::programs;

/// Cargo builds examples before the tests run, beside the folder of the test programs.
fn example(name: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    Command::new(program.parent().unwrap().join("../examples").join(name))
}

#[test]
fn hello_survives_its_clients() {
    programs::hello_survives_its_clients(example("hello"));
}

#[test]
fn hello_is_greeted() {
    programs::hello_is_greeted(example("hello"));
}

#[test]
fn threads_are_greeted() {
    programs::threads_are_greeted(example("threads"));
}

#[test]
fn workers_answer() {
    programs::workers_answer(example("workers"));
}

#[test]
fn calls_are_answered() {
    programs::calls_are_answered(example("calls"));
}

#[test]
fn epoll_serves_both_kinds() {
    programs::epoll_serves_both_kinds(example("epoll"));
}

#[test]
fn reattach_goes_on() {
    programs::reattach_goes_on(example("reattach"));
}
