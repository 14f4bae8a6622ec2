//! NICs that come while the daemon runs.

use std::cell::Cell;

use super::*;
use crate::config::NicChange;
use crate::control::Starter;
use crate::opener::Means;

fn without_threads() -> Starter {
    let no_thread = || Error::resources("start a thread", io::Error::other("a test"));
    Box::new(move |_, _, _| Err(no_thread()))
}

/// Nobody waits for an engine that came with a reload and whose thread could not be started, nor
/// for those that wait for it.
#[test]
fn an_engine_that_cannot_start_holds_up_nobody() {
    let host = Live::start_as(Limits::default(), 1, |host| {
        host.control.open_by(Means::Own(None), without_threads());
        let late = |name: &str, subnet| {
            let link = format!("@clearway-{name}-{}", std::process::id());
            let address = Network { address: [10, 9, subnet, 1].into(), prefix_bits: 24 };
            NicChange::New(Nic::memif(name, Memif::new(link, MemifRole::Server), address))
        };
        assert!(host.control.change_nics(&[late("late", 1), late("later", 2)]).is_empty());
    });
    assert_eq!(host.status()["engines"].as_array().map(Vec::len), Some(1));
    let attach = Attach::new("test", Some("late".into()), SMALL);
    assert_eq!(host.app().refusal(&Request::Attach(attach)).0, Code::Limit);
    host.app().attach();
}

/// What has failed half-way has never been there, and is tried again by the next reload.
#[test]
fn a_nic_that_cannot_be_added_is_added_by_the_next_reload() {
    drop(Live::start_as(Limits::default(), 1, |host| {
        host.control.open_by(Means::Own(None), without_threads());
        let link = Memif::new(format!("@clearway-twice-{}", std::process::id()), MemifRole::Server);
        let address = Network { address: [10, 9, 1, 1].into(), prefix_bits: 24 };
        let mut new = host.control.config.clone();
        new.nics.push(Nic::memif("late", link, address));
        // Nothing can be waited for.
        let nothing = fs::File::open("/dev/null").expect("there").into();
        let epoll = std::mem::replace(&mut host.control.epoll, nothing);
        for _ in 0..2 {
            let change = host.control.take_over(&new);
            assert!(change.taken.is_empty(), "{change:?}");
            assert!(change.needs_restart.iter().any(|what| what.contains("late")), "{change:?}");
            assert_eq!(host.control.mailboxes.len(), 1);
            assert_eq!(host.control.plane.engines().len(), 1);
        }
        host.control.epoll = epoll;
        assert_eq!(host.control.take_over(&new).taken, ["[[nic]] late"]);
        assert_eq!(host.control.mailboxes.len(), 2);
    }));
}

/// A host has 64 engines at most, those of NICs that are no more among them.
#[test]
fn nics_that_come_together_have_no_more_engines_than_there_is_room_for() {
    let host = Live::start_as(Limits::default(), 1, |host| {
        let address = Network { address: [10, 9, 1, 1].into(), prefix_bits: 24 };
        let link = Memif::new("@clearway-never-opened", MemifRole::Server);
        let with = |engines, name| Nic { engines, ..Nic::memif(name, link.clone(), address) };
        let engines = Cell::new(1);
        let refuses = |nic: &Nic| host.control.refuses(nic, &engines);
        assert_eq!(refuses(&with(40, "first")), None);
        let why = refuses(&with(40, "second")).expect("each has room, and both have none");
        assert!(why.contains("81 engines"), "{why}");
        assert_eq!(refuses(&with(23, "third")), None);
        assert!(refuses(&with(1, "fourth")).is_some());
        assert_eq!(refuses(&with(1, "link")), None, "it has its engines");
    });
    assert_eq!(host.status()["engines"].as_array().map(Vec::len), Some(1));
}
