//! Which engine apps are put on.

use super::*;

fn wanting(engine: &str) -> Attach {
    Attach::new("test", Some(engine.into()), SMALL)
}

fn exclusive() -> Attach {
    Attach { exclusive: true, ..Attach::new("alone", None, SMALL) }
}

#[test]
fn apps_are_spread_evenly_unless_they_choose() {
    let host = Live::start_with(Limits::default(), 3);
    let apps: Vec<App> = (0..6).map(|_| host.app()).collect();
    let attached = |app: &App| app.attach().0.engine;
    let engines: Vec<u32> = apps.iter().map(attached).collect();
    assert_eq!(engines, [0, 1, 2, 0, 1, 2]);
    for (name, number) in [("link/2", 2), ("1", 1), ("link", 0)] {
        let (attached, _end) = host.app().attach_as(wanting(name));
        assert_eq!(attached.engine, number, "{name}");
        assert_eq!(attached.engine_name, format!("link/{number}"));
    }
    let (code, text) = host.app().refusal(&Request::Attach(wanting("eth7")));
    assert_eq!(code, Code::Invalid);
    assert!(text.contains("\"eth7\"") && text.contains("link/0, link/1, link/2"), "{text}");
}

#[test]
fn an_exclusive_engine_is_nobody_elses_until_its_app_goes() {
    let host = Live::start_with(Limits::default(), 2);
    let (alone, others) = (host.app(), host.app());
    assert_eq!(alone.attach_as(exclusive()).0.engine, 0);
    for app in [&others, &host.app()] {
        assert_eq!(app.attach().0.engine, 1, "the other is taken");
    }
    let (code, text) = host.app().refusal(&Request::Attach(wanting("link/0")));
    assert_eq!(code, Code::Limit);
    assert!(text.contains("exclusively"), "{text}");
    let (code, text) = host.app().refusal(&Request::Attach(exclusive()));
    assert_eq!(code, Code::Limit);
    assert!(text.contains("Raise `engines`"), "{text}");
    let status = host.status();
    assert_eq!(status["apps"][0]["exclusive"], true);
    assert_eq!(status["apps"][1]["exclusive"], false);
    drop(alone);
    host.wait_for("the end of the app", |status| channels(status) == 0);
    assert_eq!(host.app().attach_as(wanting("link/0")).0.engine, 0);
}
