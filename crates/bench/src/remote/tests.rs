use super::ask::{self, Answer, Question};
use super::fan::unanswered;
use super::measure::cases;
use super::path::Path;
use super::report::notes;
use crate::load::Load;
use crate::{Command, Workload};
use clap::{Args as _, FromArgMatches as _};
use serde_json::json;

fn parse(words: &str) -> Result<Command, clap::Error> {
    let parser = Command::augment_args(clap::Command::new("bench").no_binary_name(true));
    Command::from_arg_matches(&parser.try_get_matches_from(words.split_whitespace())?)
}

fn command(words: &str) -> Command {
    parse(words).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn cases_of(words: &str) -> Vec<Load> {
    let command = command(words);
    cases(&command, &command.remote.connections).unwrap_or_else(|error| panic!("{words}: {error}"))
}

#[test]
fn what_a_command_does_not_say_is_chosen() {
    let all = cases_of("--to 10.0.0.2");
    for workload in [Workload::Rtt, Workload::Rate, Workload::Stream] {
        assert!(all.iter().any(|case| case.workload == workload), "{workload:?}");
    }
    assert!(all.iter().any(|case| case.connections > 1), "{all:?}");
    let some = cases_of("rate --to 10.0.0.2 --size 1,2,3 --connections 4,5 --window 7");
    assert_eq!(some.len(), 6);
    assert!(some.iter().all(|case| case.workload == Workload::Rate && case.window == 7));
    let rtt = command("rtt --to 10.0.0.2 --window 2");
    cases(&rtt, &[]).expect_err("one message is in flight");
}

#[test]
fn nothing_is_said_of_hosts_that_the_command_does_not_make() {
    for said in [
        "--wire memif",
        "--layout hosts",
        "--app c",
        "--tcp",
        "--in-place",
        "--kernel-end client",
        "--compare tcp",
        "--mtu 1500",
        "--kernel-plain",
        "--kernel-only",
    ] {
        for remote in ["--to 10.0.0.2", "--serve 5001"] {
            let words = format!("{remote} {said}");
            assert!(parse(&words).is_err(), "{words}");
        }
    }
    for words in ["--serve", "--to 10.0.0.2 --idle block --socket a", "--serve 6000 --idle block"] {
        command(words);
    }
    let refused = command("rtt --socket a").plan().expect_err("a daemon that nobody asks");
    assert!(refused.to_string().contains("--to or --serve"), "{refused}");
}

/// A slow way is not a server of another version.
#[test]
fn who_has_answered_once_is_a_server() {
    let to = || "10.0.0.2:5001".to_owned();
    let never = unanswered(to(), &Question::Answer { bytes: 64 }).to_string();
    assert!(never.contains("is no `clearway bench --serve`"), "{never}");
    let late = unanswered(to(), &Question::Path).to_string();
    assert!(late.contains(&to()) && late.contains("for 10 s not behind it"), "{late}");
}

#[test]
fn questions_are_no_messages_of_a_load_and_these_no_questions() {
    let question = Question::Answer { bytes: 64 };
    assert_eq!(ask::parse(&ask::message(&question)), Some(question));
    assert_eq!(ask::parse::<Answer>(&ask::message(&Question::Path)), None);
    let load: Vec<u8> = (0..100).collect();
    for length in [0, 1, 16, 100] {
        assert_eq!(ask::parse::<Question>(&load[..length]), None);
    }
    let mut cut = ask::message(&Question::Path);
    cut.pop();
    assert_eq!(ask::parse::<Question>(&cut), None);
}

/// The driver of an engine says nothing of packets that do not pass it.
#[test]
fn a_path_is_what_the_daemon_says() {
    let flow = |connection, path, packet_bytes| {
        let detour = path == "wire";
        json!({"channel": 2, "connection": connection, "path": path, "detour": detour,
               "packet_bytes": packet_bytes})
    };
    let mut status = json!({
        "version": "1.2.3",
        "apps": [
            {"app": "other", "engine": 0, "channel": 1},
            {"app": "bench", "engine": 1, "channel": 2},
        ],
        "engines": [
            {"index": 0, "engine": "a/0", "flows": [], "queues": [{"driver": "memif"}]},
            {"index": 1, "engine": "b/0", "queues": [{"driver": "af_xdp", "mode": "copy"}],
             "flows": [flow(3, "lane", 0), flow(4, "wire", 1400)]},
        ],
    });
    let path = Path::find(&status, "bench", 4).expect("it is there");
    assert_eq!((path.driver.as_deref(), path.mode.as_deref()), (Some("af_xdp"), Some("copy")));
    let text = path.text();
    for words in ["b/0", "af_xdp (copy)", "1400 bytes", "detour", "1.2.3"] {
        assert!(text.contains(words), "{words} is missing in {text}");
    }
    let lane = Path::find(&status, "bench", 3).expect("it is there");
    assert_eq!((lane.driver.as_deref(), lane.mode.as_deref()), (None, None));
    assert!(lane.text().contains("no NIC"), "{}", lane.text());
    assert_eq!(Path::find(&status, "bench", 5), None);
    status["engines"][1]["flows"][1]["path"] = json!("other NIC");
    let path = Path::find(&status, "bench", 4).expect("it is there");
    assert_eq!(path.driver, None);
    assert!(path.text().contains("another NIC"), "{}", path.text());
}

#[test]
fn of_several_connections_it_is_said_whose_the_path_is() {
    let notes = |words| notes(&cases_of(words), [&[], &[]]);
    assert!(notes("rtt --to 10.0.0.2 --connections 1").is_empty());
    let of_four = notes("rtt --to 10.0.0.2 --connections 1,4");
    assert!(of_four[0].contains("the path is that of the first"), "{of_four:?}");
}
