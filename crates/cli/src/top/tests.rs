use clearway_daemon::metrics::{CounterDescription, Description, EngineDescription};
use clearway_engine::{Reading, catalogue};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;
use crate::output::fit::columns;

/// A host with two NICs, the first with two engines.
fn description() -> Description {
    let of = |wanted: &[&str]| -> Vec<CounterDescription> {
        let groups = catalogue();
        let groups = groups.iter().filter(|group| wanted.contains(&group.name));
        let counters = groups.flat_map(|group| {
            group.counters.iter().map(|counter| CounterDescription {
                group: group.name.to_owned(),
                name: counter.name.to_owned(),
                is_level: false,
                unit: counter.unit.name().to_owned(),
                help: counter.help().to_owned(),
            })
        });
        counters.collect()
    };
    let engine = |name: &str, nic: &str| EngineDescription {
        name: name.to_owned(),
        nic: nic.to_owned(),
        queues: 1,
    };
    Description {
        version: "1.2.3".to_owned(),
        engine: of(&["engine", "transport", "apps", "frames", "lanes", "dropped"]),
        queue: of(&["queue"]),
        engines: vec![engine("eth0/0", "eth0"), engine("eth0/1", "eth0"), engine("wan", "wan")],
    }
}

/// Every counter of engine `i` is `value(i)`.
fn readings(at_s: u64, value: impl Fn(usize) -> u64) -> Vec<Option<Reading>> {
    let description = description();
    let count = description.engine.len() + description.queue.len();
    let reading =
        |engine| Reading { at_ns: at_s * 1_000_000_000, values: vec![value(engine); count] };
    (0..description.engines.len()).map(|engine| Some(reading(engine))).collect()
}

fn top() -> Top {
    let (sender, _) = channel();
    Top::new("/nowhere/clearway.sock".into(), sender)
}

/// What a terminal of 80 columns shows.
fn shown(top: &Top) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, top)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(80);
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>()).collect()
}

fn key(top: &mut Top, code: KeyCode) -> bool {
    top.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn status(clock_s: u64, sent: u64) -> Box<Value> {
    let peer = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    let name = "a-name-of-64-bytes-".repeat(4)[..64].to_owned();
    Box::new(json!({
        "clock_ns": clock_s * 1_000_000_000, "process": 7, "flows_omitted": 3,
        "apps_omitted": 2,
        "apps": [
            { "app": "echo", "engine": 0, "channel": 1, "user": 1000, "process": 11 },
            { "app": name, "engine": 0, "channel": 2, "user": 4_294_967_294_u32, "process": 12 },
        ],
        "engines": [{
            "index": 0, "engine": "eth0/0",
            "channels": [
                { "channel": 1, "messages_sent": sent, "messages_received": 2 * sent },
                { "channel": 2, "messages_sent": 10 * sent, "receive_pool_bytes_used": 65_536 },
            ],
            "flows": [
                { "channel": 1, "connection": 3, "peer": "10.0.0.2:4000", "state": "open",
                    "rtt_ns": 23_400, "messages_sent": sent },
                { "channel": 2, "connection": 4, "peer": peer, "state": "closing",
                    "rtt_ns": 1_000_000, "packets_lost": sent },
            ],
        }],
    }))
}

#[test]
fn nics_and_engines_have_rates_from_the_file_alone() {
    let mut top = top();
    let description = description();
    top.counted.take(&description, 7, &readings(1, |_| 0));
    top.counted.take(&description, 7, &readings(3, |engine| [2000, 4000, 10][engine]));
    top.counted.health = counted::Health::Alive {
        version: "1.2.3".to_owned(),
        process: 7,
        up: Duration::from_secs(3700),
    };
    let nics = shown(&top);
    assert_eq!(nics[0].trim_end(), "clearway 1.2.3, process 7, up 1 h 1 min");
    let row = |rows: &[String], name: &str| {
        let row = rows.iter().find(|row| row.trim_start().starts_with(name));
        let row = row.unwrap_or_else(|| panic!("no {name} in {rows:#?}"));
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // 1000 and 2000 frames per second, of as many bytes.
    assert_eq!(
        row(&nics, "eth0"),
        ["eth0", "2", "of", "2", "3000", "24.0k", "3000", "3000", "24.0k", "3000"]
    );
    key(&mut top, KeyCode::Char('e'));
    let engines = shown(&top);
    assert_eq!(row(&engines, "wan")[..5], ["wan", "100%", "5.0", "10", "10"]);
    for line in nics.iter().chain(&engines) {
        assert_eq!(columns(line), 80);
    }
}

#[test]
fn rows_are_ordered_by_keys() {
    let mut top = top();
    let description = description();
    top.counted.take(&description, 7, &readings(1, |_| 0));
    top.counted.take(&description, 7, &readings(3, |engine| [2000, 4000, 10][engine]));
    key(&mut top, KeyCode::Char('2'));
    let names = |top: &Top| {
        let table = top.table();
        table.rows.iter().map(|row| row[0].shown()).collect::<Vec<_>>()
    };
    assert_eq!(names(&top), ["eth0/0", "eth0/1", "wan"]);
    key(&mut top, KeyCode::Char('r'));
    assert_eq!(names(&top), ["wan", "eth0/1", "eth0/0"]);
    key(&mut top, KeyCode::Right);
    key(&mut top, KeyCode::Right);
    assert_eq!(names(&top), ["eth0/1", "eth0/0", "wan"], "by turns, the most first");
    key(&mut top, KeyCode::Down);
    assert!(!shown(&top).iter().any(|line| line.contains("eth0/1")), "scrolled away");
    (0..9).for_each(|_| {
        key(&mut top, KeyCode::Down);
    });
    assert!(shown(&top).iter().any(|line| line.contains("wan")), "the last row stays");
    // Each view has its own order.
    key(&mut top, KeyCode::Tab);
    assert_eq!((top.view, top.order()), (View::Apps, Order::default()));
    assert!(key(&mut top, KeyCode::Char('q')) && key(&mut top, KeyCode::Esc));
    assert!(top.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!key(&mut top, KeyCode::Char('c')));
}

#[test]
fn apps_and_flows_are_the_daemons_answer_and_fit() {
    let mut top = top();
    top.asked.take(Ok(status(1, 0)));
    top.asked.take(Ok(status(3, 2000)));
    key(&mut top, KeyCode::Char('a'));
    let apps = shown(&top);
    let echo = apps.iter().find(|line| line.contains("echo")).expect("an app");
    assert_eq!(
        echo.split_whitespace().collect::<Vec<_>>(),
        ["echo", "eth0/0", "1000", "11", "0", "1000", "2000", "0", "0", "B"]
    );
    assert!(apps.iter().any(|line| line.contains("a-name-o") && line.contains('…')), "{apps:#?}");
    key(&mut top, KeyCode::Char('f'));
    let flows = shown(&top);
    assert!(flows.iter().any(|line| line.contains("10.0.0.2:4000")), "{flows:#?}");
    assert!(
        flows.iter().any(|line| line.contains("[2001:db8:") && line.contains('…')),
        "{flows:#?}"
    );
    assert!(apps[2].contains("2 more did not fit"), "{apps:#?}");
    assert!(flows[2].contains("3 more did not fit"), "{flows:#?}");
    // The last columns are there, however long the names.
    assert!(apps[3].trim_end().ends_with("POOL"), "{apps:#?}");
    assert!(flows[3].contains("  PEER"), "{flows:#?}");
}

#[test]
fn trouble_is_shown_where_it_matters() {
    let mut top = top();
    top.look();
    let lines = shown(&top);
    assert!(
        lines[0].contains("cannot read the counters at /nowhere/clearway.counters"),
        "{lines:#?}"
    );
    top.asked.take(Ok(status(1, 0)));
    top.asked.take(Err("the daemon is \u{1b}[2J gone".to_owned()));
    assert!(!shown(&top)[2].contains("gone"), "NICs need no daemon");
    key(&mut top, KeyCode::Char('a'));
    let lines = shown(&top);
    assert!(lines[2].contains("the daemon is \\u001b[2J gone"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("echo")), "what is old is not shown");
}

#[test]
fn a_small_terminal_is_drawn_as_far_as_it_goes() {
    let mut top = top();
    top.asked.take(Ok(status(1, 0)));
    for view in View::ALL {
        top.view = view;
        for (width, height) in [(1, 1), (10, 3), (40, 5), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
            terminal.draw(|frame| view::draw(frame, &top)).expect("drawn");
        }
    }
}
