//! Virtual interfaces over the control socket.

use clearway_channel::control::{
    CloseVif, InterfaceAddress, MacChoice, OpenCapture, OpenVif, VifOpened,
};

use clearway_channel::Completion;

use super::*;

fn receiving(filter: &str) -> OpenVif {
    OpenVif { receive: vec![filter.to_owned()], ..OpenVif::default() }
}

impl App {
    fn open(&self, open: &OpenVif) -> VifOpened {
        match self.ask(&Request::OpenVif(open.clone())) {
            Reply::VifOpened(opened) => opened,
            other => panic!("{open:?} was answered with {other:?}"),
        }
    }

    fn refused(&self, open: &OpenVif) -> (Code, String) {
        self.refusal(&Request::OpenVif(open.clone()))
    }
}

fn vifs(status: &serde_json::Value) -> usize {
    status["engines"][0]["vifs"].as_array().map_or(0, Vec::len)
}

#[test]
fn interface_opens_as_it_was_granted_and_closes() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let dns = receiving("dst host own and udp dst port 53");
    assert!(app.refused(&dns).1.contains("attach"));
    let _end = app.attach();
    let opened = app.open(&dns);
    assert_eq!(opened.receive.len(), 1);
    assert!(opened.receive[0].contains("dst host 10.9.0.1"), "{opened:?}");
    assert!(opened.transmit[0].contains(&format!("ether src {}", opened.mac)), "{opened:?}");
    assert_eq!((opened.mtu, vifs(&host.status())), (1500, 1)); // nobody is there yet
    let close = Request::CloseVif(CloseVif { vif: opened.vif });
    assert_eq!(app.ask(&close), Reply::VifClosed(Empty {}));
    assert_eq!(app.refusal(&close).0, Code::Invalid);
    assert_eq!(vifs(&host.status()), 0);
    assert_ne!(app.open(&dns).vif, opened.vif);
}

#[test]
fn collision_names_the_pattern_and_its_owner_until_that_is_gone() {
    let host = Live::start(Limits::default());
    let (first, second) = (host.app(), host.app());
    let _ends = (first.attach(), second.attach());
    let dns = receiving("dst host own and udp dst port 53");
    first.open(&dns);
    let (code, message) = second.refused(&receiving("dst host own and udp dst portrange 50-60"));
    assert_eq!(code, Code::AddressInUse);
    assert!(message.contains("udp") && message.contains("port 53"), "{message}");
    assert!(message.contains("test"), "the owner is missing: {message}");
    drop(first);
    host.wait_for("the end of the first app", |status| vifs(status) == 0);
    second.open(&dns);
}

/// Sending is exclusive whatever the priority; receiving is not.
#[test]
fn priorities_let_patterns_overlap_that_are_received() {
    let host = Live::start(Limits::default());
    let (first, second) = (host.app(), host.app());
    let _ends = (first.attach(), second.attach());
    let dns = receiving("dst host own and udp dst port 53");
    first.open(&dns);
    let higher = OpenVif { priority: 5, ..dns.clone() };
    let (code, message) = second.refused(&higher);
    assert!(code == Code::AddressInUse && message.contains("may send"), "{message}");
    let silent = OpenVif { transmit: Some(vec![]), ..higher };
    second.open(&silent);
    assert_eq!(vifs(&host.status()), 2, "what was refused nobody has");
    let highest = OpenVif { priority: 60_001, ..silent };
    assert!(second.refused(&highest).1.contains("60000"));
}

/// A user's apps share its limits, and what is closed or refused is given back.
#[test]
fn patterns_are_counted_by_user_and_given_back() {
    let host = Live::start(Limits { patterns_per_user: 4, ..Limits::default() });
    let (first, second) = (host.app(), host.app());
    let _ends = (first.attach(), second.attach());
    let port = |port: u16| receiving(&format!("dst host own and udp dst port {port}"));
    let vif = first.open(&port(1)).vif;
    second.open(&port(2));
    for app in [&first, &second] {
        let (code, message) = app.refused(&port(3));
        assert!(code == Code::Limit && message.contains("more than 4 alternatives"), "{message}");
    }
    assert_eq!(first.ask(&Request::CloseVif(CloseVif { vif })), Reply::VifClosed(Empty {}));
    second.open(&port(3));
    drop(second);
    host.wait_for("the end of the app", |status| channels(status) == 1);
    first.open(&port(4));
    first.open(&port(5));
}

/// An app that ends while its request is being checked leaves nothing, and its request is not
/// opened.
#[test]
fn apps_that_end_while_their_interfaces_are_checked_leave_nothing() {
    let host = Live::start(Limits { vifs_per_user: 5, ..Limits::default() });
    for _ in 0..50 {
        let app = host.app();
        let channel = app.attach();
        control::send(&app.socket, &Request::OpenVif(receiving("udp dst port 53")), &[])
            .expect("sent");
        drop((app, channel));
    }
    host.wait_for("the end of all apps", |status| channels(status) == 0 && vifs(status) == 0);
    let app = host.app();
    let _end = app.attach();
    for port in 50..55 {
        app.open(&receiving(&format!("udp dst port {port}")));
    }
    assert_eq!(app.refused(&receiving("udp dst port 55")).0, Code::Limit);
}

/// Filters are text once, when the interface is opened; so many that they do not fit are counted.
#[test]
fn status_of_many_interfaces_says_how_many_it_leaves_out() {
    let host = Live::start(Limits { ports_per_user: 1 << 20, ..Limits::default() });
    let app = host.app();
    let _end = app.attach();
    let count = 2000;
    for port in 0..count {
        let ends = (0..3).map(|host| format!("src host 10.9.{host}.1"));
        let ends = ends.collect::<Vec<_>>().join(" or ");
        app.open(&receiving(&format!(
            "dst host own and udp dst port {} and ({ends})",
            1000 + port
        )));
    }
    let status = host.status();
    let (shown, omitted) = (vifs(&status), status["vifs_omitted"].as_u64().expect("a count"));
    assert_eq!(shown as u64 + omitted, count);
    assert!(omitted > 0 && shown > 100, "{shown} shown");
    let first = &status["engines"][0]["vifs"][0];
    assert!(first["receive"][0].as_str().expect("text").contains("dst port 1000"), "{first}");
}

#[test]
fn nobody_takes_what_the_host_has() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let _end = app.attach();
    let messages =
        OpenVif { transmit: Some(vec![]), ..receiving("dst host own and udp dst port 20707") };
    let (code, message) = app.refused(&messages);
    assert_eq!(code, Code::Denied);
    assert!(message.contains("received by the host's own message service"), "{message}");
    let (code, message) = app.refused(&receiving("udp dst port 20707"));
    assert_eq!(code, Code::Denied);
    assert!(message.contains("message service"), "{message}");
}

#[test]
fn machines_have_addresses_that_nobody_else_has() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let _end = app.attach();
    let address: InterfaceAddress = "10.9.0.50/24".parse().expect("an address");
    let machine =
        OpenVif { mac: Some(MacChoice::Own), address: Some(address), ..OpenVif::default() };
    let opened = app.open(&machine);
    assert_eq!(opened.mac.0[0] & 3, 2, "of one station, locally administered");
    assert_eq!(opened.receive, [format!("ether dst {}", opened.mac)]);
    assert!(app.refused(&machine).1.contains("app \"test\""));
    let same = OpenVif { mac: Some(MacChoice::Fixed(opened.mac)), address: None, ..machine };
    let same = OpenVif { receive: vec!["arp".into()], ..same };
    assert!(app.refused(&same).1.contains("app \"test\""));
}

#[test]
fn an_administrator_takes_an_interface_away_and_its_app_is_told() {
    let host = Live::start(Limits::default());
    let (app, administrator) = (host.app(), host.app());
    let (_, mut end) = app.attach();
    let dns = receiving("dst host own and udp dst port 53");
    let vif = app.open(&dns).vif;
    let revoke = Request::RevokeVif(CloseVif { vif });
    assert_eq!(administrator.ask(&revoke), Reply::VifClosed(Empty {}));
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        match end.next_told().expect("an honest daemon") {
            Some(told) => break told.completion(),
            None => assert!(Instant::now() < deadline, "the app is told nothing"),
        }
        std::thread::yield_now();
    };
    assert_eq!(told, Completion::VifClosed { vif, code: Code::Denied });
    assert_eq!(vifs(&host.status()), 0);
    let (code, message) = administrator.refusal(&revoke);
    assert!(code == Code::Invalid && message.contains("clearway vif list"), "{message}");
    app.open(&dns);
}

/// Whichever comes first: the end of the app, the answers of the engines, or both at once.
#[test]
fn who_takes_an_interface_away_from_an_app_that_ends_is_answered() {
    let host = Live::start_with(Limits::default(), 4);
    let administrator = host.app();
    for _ in 0..50 {
        let app = host.app();
        let channel = app.attach();
        let revoke =
            Request::RevokeVif(CloseVif { vif: app.open(&receiving("udp dst port 53")).vif });
        control::send(&administrator.socket, &revoke, &[]).expect("sent");
        drop((app, channel));
        match administrator.reply().expect("an answer in time") {
            Some(Reply::VifClosed(_)) => {}
            Some(Reply::Error(refusal)) => assert!(refusal.message.contains("there is no")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn interfaces_are_counted_and_given_back() {
    let host = Live::start(Limits { vifs_per_user: 2, ..Limits::default() });
    let app = host.app();
    let _end = app.attach();
    let port = |port: u16| receiving(&format!("dst host own and udp dst port {port}"));
    app.open(&port(1));
    let second = app.open(&port(2));
    assert_eq!(app.refused(&port(3)).0, Code::Limit);
    app.ask(&Request::CloseVif(CloseVif { vif: second.vif }));
    app.open(&port(3));
    drop(app);
    host.wait_for("the end of the app", |status| channels(status) == 0);
    let app = host.app();
    let _end = app.attach();
    app.open(&port(1));
    app.open(&port(2));
}

/// Also where no kernel has them: nobody takes all ports of an address, be it for sending only.
#[test]
fn one_user_leaves_ports_to_others() {
    let host = Live::start(Limits { ports_per_vif: 4, ports_per_user: 6, ..Limits::default() });
    let app = host.app();
    let _end = app.attach();
    let sending = |ports: &str| OpenVif {
        transmit: Some(vec![format!("src host own and udp src portrange {ports}")]),
        ..OpenVif::default()
    };
    for ports in ["21000-40000", "5000-5004"] {
        let (code, message) = app.refused(&sending(ports));
        assert!(code == Code::Limit && message.contains("ports_per_vif"), "{message}");
    }
    let four = app.open(&sending("5000-5003"));
    let (code, message) = app.refused(&sending("6000-6002"));
    assert!(code == Code::Limit && message.contains("ports_per_user"), "{message}");
    // The same ports count once, and what is refused leaves nothing.
    app.open(&receiving("dst host own and udp dst portrange 5000-5003 and src host 10.9.0.7"));
    app.open(&sending("6000-6001"));
    app.ask(&Request::CloseVif(CloseVif { vif: four.vif }));
    assert_eq!(app.refused(&sending("7000-7000")).0, Code::Limit, "the other has them still");
}

#[test]
fn captures_are_of_everything_or_of_an_app() {
    let host = Live::start(Limits::default());
    let app = host.app();
    let _end = app.attach();
    let capture = |open: &OpenCapture| app.ask(&Request::OpenCapture(open.clone()));
    let all = OpenCapture::default();
    let Reply::VifOpened(opened) = capture(&all) else { panic!("no capture") };
    assert!(opened.receive.is_empty() && opened.transmit.is_empty());
    let closed = app.ask(&Request::CloseVif(CloseVif { vif: opened.vif }));
    assert_eq!(closed, Reply::VifClosed(Empty {}));
    let of_app = OpenCapture { app: Some("test".into()), ..all.clone() };
    assert!(matches!(capture(&of_app), Reply::VifOpened(_)));
    let refused = |open| app.refusal(&Request::OpenCapture(open)).1;
    let nobody = OpenCapture { app: Some("nobody".into()), ..all.clone() };
    assert!(refused(nobody).contains("no app \"nobody\""));
    let nonsense = OpenCapture { filter: vec!["udp and and".into()], ..all };
    assert!(refused(nonsense).contains("column"));
}
