//! A host without sockets, threads or engines: what is asked of them is looked at.

use clearway_channel::control::{
    Attach, CloseVif, Leave, Listen, MacChoice, OpenTcpPort, OpenVif, VifOpened,
};
use clearway_channel::{DaemonEnd, Sizes};
use clearway_engine::{VifTexts, ip};
use clearway_nic::interface::Protocol;

use super::*;
use crate::filter::Template;
use crate::policy::{Limits, People, PortRule, VifRule};
use crate::steered::Lost;

const SIZES: Sizes = Sizes {
    submission_entries: 16,
    completion_entries: 16,
    transmit_pool_bytes: 1 << 16,
    receive_pool_bytes: 1 << 16,
    shared_bytes: 0,
};
const USER: u32 = 1000;

struct Host {
    plane: Plane,
    /// What sessions were told and nobody has looked at.
    told: BTreeMap<u64, VecDeque<Reply>>,
    expelled: Vec<u64>,
    /// What engines were asked, by their index.
    asked: Vec<(usize, EngineRequest)>,
    claimed: BTreeMap<(u16, u8), usize>,
    steered: usize,
    /// The NIC takes nothing more.
    is_full: bool,
}

fn nic(name: &str, engines: usize, last: u8) -> NicFacts {
    NicFacts {
        name: name.to_owned(),
        engines: (0..engines).map(|engine| format!("{name}/{engine}")).collect(),
        interface: ip::Config {
            mac: [2, 0, 0, 0, 0, last],
            addresses: vec![([10, 0, 0, last].into(), 24)],
            routes: Vec::new(),
            vlan: None,
            mtu: 1500,
            mtu_max: None,
            kernel_shares: true,
            router: None,
            receive_checksum: false,
        },
        has_steering: true,
        only_messages: None,
    }
}

impl Host {
    fn new(engines: usize) -> Self {
        Self::with_limits(engines, Limits { ports_per_user: 4, ..Limits::default() })
    }

    fn with_limits(engines: usize, limits: Limits) -> Self {
        let people = crate::policy::People { anybody: true, ..Default::default() };
        let policy = Policy {
            anybody: true,
            ports: vec![PortRule { people, allow: std::iter::once(1024..=u16::MAX).collect() }],
            limits,
            ..Policy::default()
        };
        let settings =
            Settings { policy, own_user: 7, udp_port: 20707, seed: 1, wake_up_ns: 5_000 };
        Self {
            plane: Plane::new(settings, vec![nic("a", engines, 1), nic("b", 1, 2)]),
            told: BTreeMap::new(),
            expelled: Vec::new(),
            asked: Vec::new(),
            claimed: BTreeMap::new(),
            steered: 0,
            is_full: false,
        }
    }

    fn connect(&mut self, session: u64, user: u32) {
        let peer = Peer { user, process: 1, groups: Vec::new() };
        self.plane.open_session(session, peer).expect("anybody may attach");
    }

    fn ask(&mut self, session: u64, request: Request) -> Option<Reply> {
        assert_eq!(self.plane.handle_request(session, request), None);
        self.carry_out();
        self.told.get_mut(&session).and_then(VecDeque::pop_front)
    }

    fn carry_out(&mut self) {
        self.plane.advance(1 << 20);
        let refuses = self.is_full;
        let answer = || match refuses {
            true => Err(refusal(Code::Refused, "full")),
            false => Ok(()),
        };
        while let Some(step) = self.plane.poll_step() {
            match step {
                Step::Ask { engine, request } => self.asked.push((engine, request)),
                Step::Reply { session, reply } => {
                    self.told.entry(session).or_default().push_back(reply);
                }
                Step::Expel { session, .. } => {
                    self.expelled.push(session);
                    self.plane.end_session(session, None);
                }
                Step::Make { .. }
                | Step::Secure { .. }
                | Step::AwaitMemory { .. }
                | Step::TakeMemory { .. } => panic!("not asked for here: {step:?}"),
                Step::Claim { vif, ports, .. } => {
                    let last = |address: &std::net::IpAddr| match address {
                        std::net::IpAddr::V4(address) => address.octets()[3],
                        std::net::IpAddr::V6(_) => 0,
                    };
                    for (_, address, port) in &ports {
                        *self.claimed.entry((*port, last(address))).or_default() += 1;
                    }
                    self.plane.handle_claimed(vif, Ok(()));
                }
                Step::Steer { vif, .. } => {
                    self.steered += usize::from(!refuses);
                    self.plane.handle_steered(vif, answer());
                }
                Step::Unsteer { .. } => self.steered -= 1,
                Step::Release { .. } => self.claimed.clear(),
            }
        }
    }

    /// The place of a session's channel whose memory is to be made.
    fn begin(&mut self, session: u64, attach: Attach) -> ChannelPlace {
        assert_eq!(self.plane.handle_request(session, Request::Attach(attach)), None);
        match self.plane.poll_step() {
            Some(Step::Make { place, user, .. }) => {
                assert_eq!(self.plane.channel(place).map(|channel| channel.user), Some(user));
                assert!(self.plane.session(session).is_some_and(Session::is_waiting));
                place
            }
            other => panic!("{other:?}"),
        }
    }

    fn attach_to(&mut self, session: u64, engine: Option<&str>) -> ChannelPlace {
        self.attach_as(session, USER, engine)
    }

    fn attach_as(&mut self, session: u64, user: u32, engine: Option<&str>) -> ChannelPlace {
        self.connect(session, user);
        let name = engine.map(str::to_owned);
        let place = self.begin(session, Attach::new("app", name, SIZES));
        let (end, _handover) = DaemonEnd::create(SIZES).expect("memory");
        let (told, _) = self.plane.handle_made(place).expect("it waits");
        assert_eq!(told, session);
        assert_eq!(self.plane.handle_request(session, Request::Mapped(Empty {})), None);
        assert!(matches!(self.plane.poll_step(), Some(Step::Secure { .. })));
        assert!(self.plane.handle_secured(place, Box::new(end)).is_ok());
        self.carry_out();
        assert!(matches!(self.asked.pop(), Some((_, EngineRequest::AddChannel { .. }))));
        let told = self.told.get_mut(&session).and_then(VecDeque::pop_front);
        assert_eq!(told, Some(Reply::Mapped(Empty {})));
        place
    }

    /// Engines answer all that they were asked.
    fn answer(&mut self) {
        while !self.asked.is_empty() {
            for (engine, request) in std::mem::take(&mut self.asked) {
                if let Some(event) = answered(request) {
                    self.plane.handle_event(engine, &event);
                    if let Event::ChannelRemoved { channel, .. } = event {
                        self.plane.handle_given_back(ChannelPlace { engine, channel });
                    }
                }
                self.carry_out();
            }
        }
    }

    fn end(&mut self, session: u64, place: ChannelPlace) {
        self.plane.end_session(session, None);
        self.carry_out();
        self.answer();
        self.plane.handle_given_back(place);
    }
}

fn answered(request: EngineRequest) -> Option<Event> {
    match request {
        EngineRequest::Listen { channel, listener, .. } => {
            Some(Event::Listening { channel, listener, result: Ok(()) })
        }
        EngineRequest::NoteListener { id, .. } => Some(Event::ListenerNoted { id }),
        EngineRequest::OpenVif { channel, vif, .. }
        | EngineRequest::NoteVif { channel, vif, .. } => {
            Some(Event::VifOpened { channel, vif, result: Ok(()) })
        }
        EngineRequest::OpenTcpPort { channel, number: vif, .. }
        | EngineRequest::NoteTcpPort { channel, number: vif, .. } => {
            Some(Event::VifOpened { channel, vif, result: Ok(()) })
        }
        EngineRequest::CloseVif { channel, vif, .. } => Some(Event::VifClosed { channel, vif }),
        _ => None,
    }
}

fn listen(port: u16) -> Request {
    Request::Listen(Listen { address: None, port })
}

fn open(filter: &str) -> Request {
    Request::OpenVif(OpenVif { receive: vec![filter.to_owned()], ..OpenVif::default() })
}

fn code_of(reply: Option<Reply>) -> Option<Code> {
    match reply {
        Some(Reply::Error(refusal)) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn a_channel_whose_app_goes_on_the_way_leaves_nothing() {
    let mut host = Host::new(1);
    // While its memory is made.
    host.connect(1, USER);
    let place = host.begin(1, Attach::new("app", None, SIZES));
    host.plane.end_session(1, None);
    assert_eq!(host.plane.handle_made(place), None, "nobody waits for it");
    host.plane.handle_given_back(place);
    // There is none.
    host.connect(2, USER);
    let place = host.begin(2, Attach::new("app", None, SIZES));
    host.plane.handle_not_made(place, refusal(Code::OutOfMemory, "none"));
    host.carry_out();
    assert_eq!(
        code_of(host.told.get_mut(&2).and_then(VecDeque::pop_front)),
        Some(Code::OutOfMemory)
    );
    assert_eq!(host.plane.channel(place).map(|channel| channel.user), None);
    // It may try again; now it does not seal what it has mapped.
    let place = host.begin(2, Attach::new("app", None, SIZES));
    host.plane.handle_made(place).expect("it waits");
    assert_eq!(host.plane.handle_request(2, Request::Mapped(Empty {})), None);
    assert!(matches!(host.plane.poll_step(), Some(Step::Secure { .. })));
    host.plane.handle_not_secured(place, refusal(Code::Violation, "not sealed"));
    host.carry_out();
    assert_eq!(host.expelled, [2]);
    // Goes while that is made sure of.
    host.connect(3, USER);
    let place = host.begin(3, Attach::new("app", None, SIZES));
    host.plane.handle_made(place).expect("it waits");
    assert_eq!(host.plane.handle_request(3, Request::Mapped(Empty {})), None);
    assert!(matches!(host.plane.poll_step(), Some(Step::Secure { .. })));
    host.plane.end_session(3, None);
    let (end, _handover) = DaemonEnd::create(SIZES).expect("memory");
    assert!(host.plane.handle_secured(place, Box::new(end)).is_err(), "it is given back");
    host.plane.handle_given_back(place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// With memory to share, or what an engine is told of one without.
#[test]
fn who_may_share_and_ask_is_the_policys() {
    let mut host = Host::new(1);
    let nobody_else = Some(crate::policy::People { users: vec![7000], ..Default::default() });
    let limits = Limits { regions_per_channel: 5, ..Limits::default() };
    let (share, ask) = (nobody_else.clone(), nobody_else);
    host.plane.set_policy(Policy { anybody: true, share, ask, limits, ..Policy::default() });
    host.connect(1, USER);
    let sizes = Sizes { shared_bytes: 1 << 12, ..SIZES };
    let told = host.ask(1, Request::Attach(Attach::new("owner", None, sizes)));
    let Some(Reply::Error(refusal)) = told else { panic!("{told:?}") };
    assert_eq!(refusal.code, Code::Denied);
    assert!(refusal.message.contains("user 1000 may not share"), "{}", refusal.message);
    for (session, user, may_ask) in [(2, USER, false), (3, 7000, true), (4, 7, true)] {
        host.connect(session, user);
        let place = host.begin(session, Attach::new("asker", None, SIZES));
        let (end, _handover) = DaemonEnd::create(SIZES).expect("memory");
        host.plane.handle_made(place).expect("it waits");
        assert_eq!(host.plane.handle_request(session, Request::Mapped(Empty {})), None);
        assert!(matches!(host.plane.poll_step(), Some(Step::Secure { .. })));
        assert!(host.plane.handle_secured(place, Box::new(end)).is_ok());
        host.carry_out();
        let Some((_, EngineRequest::AddChannel { allowance, .. })) = host.asked.pop() else {
            panic!("no channel")
        };
        assert_eq!((allowance.may_ask, allowance.regions_max), (may_ask, 5), "{user}");
    }
}

#[test]
fn who_has_left_lingers_and_who_is_expelled_does_not() {
    let mut host = Host::new(1);
    let most = Some(Duration::from_secs(1));
    for (session, leaves, linger_max) in
        [(1, true, most), (2, false, most), (3, true, None), (4, true, Some(Duration::ZERO))]
    {
        let place = host.attach_to(session, None);
        if leaves {
            host.ask(session, Request::Leave(Leave { linger_ms: 5000 }));
        }
        host.plane.end_session(session, linger_max);
        host.carry_out();
        let lingers = match host.asked.pop() {
            Some((0, EngineRequest::LetLinger { linger_ns, .. })) => Some(linger_ns),
            Some((0, EngineRequest::RemoveChannel { .. })) => None,
            other => panic!("{other:?}"),
        };
        let expected = linger_max.filter(|_| leaves).map(|most| most.as_nanos() as u64);
        assert_eq!(lingers, expected, "session {session}");
        assert_eq!(place.channel, 1, "the number is free again");
        host.plane.handle_given_back(place);
    }
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

#[test]
fn who_may_have_no_more_patterns_hears_of_the_setting() {
    let limits = Limits { patterns_per_user: 1, ..Limits::default() };
    let mut host = Host::with_limits(1, limits);
    host.attach_to(1, None);
    match host.ask(1, open("dst host own and udp dst port 5000")) {
        Some(Reply::Error(Refusal { code: Code::Limit, message })) => {
            assert!(message.contains("`patterns_per_user` in [policy.limits]"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // And has them once it says so.
    host.plane.set_policy(Policy { anybody: true, ..Policy::default() });
    assert_eq!(host.ask(1, open("dst host own and udp dst port 5000")), None);
    assert!(!host.asked.is_empty(), "an engine is asked to open it");
}

/// No setting says how many masks there may be.
#[test]
fn who_may_have_no_more_masks_is_not_told_to_raise_the_patterns() {
    let host = Host::new(1);
    let message = |what| {
        let user = registry::UserId(USER);
        let refused = registry::Refusal::TooManyOfUser { what, limit: 128, user };
        host.plane.refused_by_registry(&refused, None).message
    };
    assert!(message(registry::CLAUSES).contains("`patterns_per_user` in [policy.limits]"));
    assert!(!message("different masks").contains("patterns_per_user"));
}

/// Whoever wants a TCP port that another app has hears whose it is, also if that has left.
#[test]
fn who_has_a_tcp_port_is_named() {
    let port = |port| Request::OpenTcpPort(OpenTcpPort { port, ..OpenTcpPort::default() });
    let mut host = Host::new(1);
    host.attach_to(1, None);
    host.attach_to(2, None);
    for number in [8000, 8080] {
        assert_eq!(host.ask(1, port(number)), None);
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        assert!(matches!(told, Some(Reply::TcpPortOpened(_))), "{told:?}");
    }
    let why = |host: &mut Host| match host.ask(2, port(8080)) {
        Some(Reply::Error(refusal)) if refusal.code == Code::AddressInUse => refusal.message,
        other => panic!("{other:?}"),
    };
    let text = why(&mut host);
    assert!(text.starts_with("app app (channel 1) has TCP port 8080;"), "{text}");
    host.ask(1, Request::Leave(Leave { linger_ms: 5000 }));
    host.plane.end_session(1, Some(Duration::from_secs(1)));
    host.carry_out();
    let text = why(&mut host);
    assert!(text.starts_with("app app (channel 1) has ended and keeps TCP port 8080"), "{text}");
}

#[test]
fn listeners_are_the_policys_and_told_when_all_engines_know() {
    let mut host = Host::new(3);
    let place = host.attach_to(1, Some("a/1"));
    assert_eq!(code_of(host.ask(1, listen(80))), Some(Code::Denied));
    assert_eq!(host.ask(1, listen(8000)), None);
    assert!(host.plane.session(1).is_some_and(Session::is_waiting));
    host.answer();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert!(matches!(told, Some(Reply::Listening(_))), "{told:?}");
    let other = host.attach_to(2, Some("b"));
    assert_eq!(code_of(host.ask(2, listen(8000))), Some(Code::AddressInUse));
    host.end(1, place);
    assert_eq!(host.ask(2, listen(8000)), None, "it is free again");
    // An engine that ends owes no answer.
    host.asked.clear();
    for engine in [0, 1, 2] {
        host.plane.handle_event(engine, &Event::Ended);
    }
    host.carry_out();
    host.plane.handle_event(3, &Event::Listening { channel: 2, listener: 1, result: Ok(()) });
    host.carry_out();
    let told = host.told.get_mut(&2).and_then(VecDeque::pop_front);
    assert!(matches!(told, Some(Reply::Listening(_))), "{told:?}");
    host.end(2, other);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

#[test]
fn who_waits_to_listen_at_an_engine_that_ends_is_told() {
    let mut host = Host::new(1);
    let place = host.attach_to(1, Some("a"));
    assert_eq!(host.ask(1, listen(8000)), None);
    host.plane.handle_event(0, &Event::Ended);
    host.carry_out();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert_eq!(code_of(told), Some(Code::DaemonGone));
    host.connect(2, USER);
    let attach = Attach::new("app", Some("a".into()), SIZES);
    let told = host.ask(2, Request::Attach(attach));
    let Some(Reply::Error(Refusal { code: Code::Limit, message })) = told else {
        panic!("{told:?}")
    };
    assert!(message.contains("no engine \"a\" runs"), "it has ended: {message}");
    host.plane.end_session(2, None);
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

#[test]
fn ports_of_interfaces_are_counted_and_given_back_whatever_refuses_them() {
    let mut host = Host::new(2);
    let place = host.attach_to(1, Some("a"));
    let dns = "dst host own and udp dst portrange 2000-2002";
    host.is_full = true;
    assert_eq!(host.ask(1, open(dns)), None);
    host.answer();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert_eq!(code_of(told), Some(Code::Refused), "the NIC is full");
    assert_eq!((host.claimed.len(), host.steered), (0, 0));
    host.is_full = false;
    assert_eq!(host.ask(1, open(dns)), None);
    host.answer();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    let Some(Reply::VifOpened(VifOpened { vif, .. })) = told else { panic!("{told:?}") };
    assert_eq!((host.claimed.len(), host.steered), (3, 1));
    let more = open("dst host own and udp dst portrange 2010-2011");
    assert_eq!(code_of(host.ask(1, more.clone())), Some(Code::Limit), "four ports, and no more");
    let close = Request::CloseVif(CloseVif { vif });
    assert_eq!(host.ask(1, close.clone()), None);
    host.answer();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert_eq!(told, Some(Reply::VifClosed(Empty {})));
    assert_eq!(code_of(host.ask(1, close)), Some(Code::Invalid), "there is none any more");
    assert_eq!(host.ask(1, more), None, "there is room again");
    host.answer();
    host.end(1, place);
    assert_eq!((host.claimed.len(), host.steered), (0, 0));
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// Who only receives, or has an address of its own, goes on; so do TCP ports.
#[test]
fn interfaces_that_send_from_an_ethernet_address_go_with_it() {
    let mut host = Host::new(2);
    let place = host.attach_as(1, 0, Some("a/0"));
    let udp = |port: u16| vec![format!("dst host own and udp dst port {port}")];
    let mut opened = |open: Request| {
        assert_eq!(host.ask(1, open), None);
        host.answer();
        match host.told.get_mut(&1).and_then(VecDeque::pop_front) {
            Some(Reply::VifOpened(VifOpened { vif, .. })) => vif,
            Some(Reply::TcpPortOpened(port)) => port.number,
            other => panic!("{other:?}"),
        }
    };
    let sends = opened(Request::OpenVif(OpenVif { receive: udp(2000), ..OpenVif::default() }));
    let (receive, transmit) = (udp(2001), Some(Vec::new()));
    opened(Request::OpenVif(OpenVif { receive, transmit, ..OpenVif::default() }));
    let (receive, mac) = (vec!["ether proto 0x8801".to_owned()], Some(MacChoice::Own));
    opened(Request::OpenVif(OpenVif { receive, mac, ..OpenVif::default() }));
    opened(Request::OpenTcpPort(OpenTcpPort { port: 8080, ..OpenTcpPort::default() }));
    let opens = Request::OpenVif(OpenVif { receive: udp(2002), ..OpenVif::default() });
    assert_eq!(host.ask(1, opens), None, "an engine has not answered yet");
    host.asked.clear();
    let mut network = host.plane.nics()[0].interface.clone();
    network.addresses.clear();
    host.plane.set_network(0, &network);
    host.carry_out();
    assert!(host.asked.is_empty(), "the same Ethernet address");
    network.mac = [2, 0, 0, 0, 0, 9];
    host.plane.set_network(0, &network);
    host.carry_out();
    let closed: Vec<_> = host
        .asked
        .iter()
        .filter_map(|(engine, request)| match request {
            EngineRequest::CloseVif { vif, told, .. } => Some((*engine, *vif, *told)),
            _ => None,
        })
        .collect();
    let (told, opening) = (Some(Code::AddressUnavailable), sends + 5);
    assert_eq!(closed[..2], [(0, sends, told), (1, sends, told)]);
    assert_eq!(closed[2..], [(0, opening, None), (1, opening, None)], "{closed:?}");
    host.answer();
    let refused = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert_eq!(code_of(refused), Some(Code::AddressUnavailable));
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// Peers go by IP addresses and ports.
#[test]
fn nobody_sends_for_another_from_another_ethernet_address() {
    let mut host = Host::new(1);
    let places = [host.attach_as(1, 0, Some("a")), host.attach_as(2, 7, Some("a"))];
    let address = Some([10, 0, 0, 1].into());
    let port = OpenTcpPort { address, port: 8080, ..OpenTcpPort::default() };
    assert_eq!(host.ask(1, Request::OpenTcpPort(port)), None);
    host.answer();
    let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
    assert!(matches!(told, Some(Reply::TcpPortOpened(_))), "{told:?}");
    let sends = |port: u16, mac| {
        let transmit = Some(vec![format!("src host 10.0.0.1 and tcp src port {port}")]);
        Request::OpenVif(OpenVif { transmit, mac, ..OpenVif::default() })
    };
    let refused = host.ask(2, sends(8080, Some(MacChoice::Own)));
    assert_eq!(code_of(refused), Some(Code::AddressInUse));
    let mut network = host.plane.nics()[0].interface.clone();
    network.mac = [2, 0, 0, 0, 0, 9];
    host.plane.set_network(0, &network);
    assert_eq!(code_of(host.ask(2, sends(8080, None))), Some(Code::AddressInUse));
    assert_eq!(host.ask(2, sends(8081, Some(MacChoice::Own))), None, "that is nobody's");
    host.answer();
    (1..).zip(places).for_each(|(session, place)| host.end(session, place));
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// Another program has taken the port while the NIC was closed.
#[test]
fn an_interface_whose_port_is_lost_is_closed_and_its_app_is_told() {
    let mut host = Host::new(2);
    let place = host.attach_to(1, Some("a"));
    let mut opened = |port: u16| {
        assert_eq!(host.ask(1, open(&format!("dst host own and udp dst port {port}"))), None);
        host.answer();
        match host.told.get_mut(&1).and_then(VecDeque::pop_front) {
            Some(Reply::VifOpened(VifOpened { vif, .. })) => vif,
            other => panic!("{other:?}"),
        }
    };
    let (lost, _) = (opened(2000), opened(2001));
    let port = |last: u8| Lost::Port((Protocol::Udp, [10, 0, 0, last].into(), 2000));
    host.plane.handle_lost(0, port(9), Code::AddressInUse, "a test");
    host.plane.handle_lost(1, port(1), Code::AddressInUse, "a test");
    host.carry_out();
    assert!(host.asked.is_empty(), "nobody has had that");
    host.plane.handle_lost(0, port(1), Code::AddressInUse, "a test");
    host.carry_out();
    let told = |(_, request): &(usize, EngineRequest)| match request {
        EngineRequest::CloseVif { vif, told, .. } => Some((*vif, *told)),
        _ => None,
    };
    let closed: Vec<_> = host.asked.iter().filter_map(told).collect();
    assert_eq!(closed, [(lost, Some(Code::AddressInUse)); 2], "both engines are asked");
    host.answer();
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// The engine of the app is told of the peers; for all others the port is one as any other.
#[test]
fn a_tcp_port_is_for_the_peers_that_its_app_and_the_policy_name() {
    let mut host = Host::new(2);
    let place = host.attach_to(1, Some("a/0"));
    let text = "dst host own and tcp dst port 8080 and src net 10.8.0.0/16";
    let rule = VifRule {
        people: People { users: vec![USER], ..People::default() },
        receive: vec![Template::parse(text).expect("a filter")],
        ..VifRule::default()
    };
    host.plane.set_policy(Policy { anybody: true, vifs: vec![rule], ..Policy::default() });
    let open = |peers: &[&str]| {
        let peers = peers.iter().map(|text| text.parse().expect("a prefix")).collect();
        Request::OpenTcpPort(OpenTcpPort { port: 8080, peers, ..OpenTcpPort::default() })
    };
    for peers in [&[][..], &["10.9.0.0/16"], &["10.8.1.0/24", "10.9.0.1"]] {
        assert_eq!(code_of(host.ask(1, open(peers))), Some(Code::Denied), "{peers:?}");
    }
    assert_eq!(host.ask(1, open(&["10.8.1.0/24", "10.8.2.1"])), None);
    let mut asked = host.asked.iter().filter_map(|(_, request)| match request {
        EngineRequest::OpenTcpPort { spec, .. } => Some(spec),
        _ => None,
    });
    let spec = asked.next().expect("its engine is asked");
    let peers: Vec<String> = spec.peers.iter().map(ToString::to_string).collect();
    assert_eq!((peers, spec.port), (vec!["10.8.1.0/24".into(), "10.8.2.1/32".into()], 8080));
    let whole = Template::parse("dst host own and tcp dst port 8080").expect("a filter");
    assert_eq!(spec.rights.receive, whole.expand(&[[10, 0, 0, 1].into()]));
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// It is counted once. A rule may be about the addresses of one NIC; then it is of that one.
#[test]
fn a_tcp_port_at_all_addresses_is_of_all_nics_where_its_user_may_have_it() {
    let mut host = Host::new(1);
    let place = host.attach_to(1, Some("a"));
    let own = "dst host own and tcp dst port 8080";
    let of_first = "dst host 10.0.0.1 and tcp dst port 8080";
    for (text, nics) in [(own, &[1][..]), (of_first, &[])] {
        let rule = VifRule {
            people: People { users: vec![USER], ..People::default() },
            receive: vec![Template::parse(text).expect("a filter")],
            ..VifRule::default()
        };
        let limits = Limits { vifs_per_user: 1, ..Limits::default() };
        let policy = Policy { anybody: true, vifs: vec![rule], limits, ..Policy::default() };
        host.plane.set_policy(policy);
        let open = OpenTcpPort { port: 8080, ..OpenTcpPort::default() };
        assert_eq!(host.ask(1, Request::OpenTcpPort(open)), None);
        let mut is_noted = false;
        for (engine, request) in &host.asked {
            match request {
                EngineRequest::OpenTcpPort { spec, .. } => assert_eq!(spec.nics, nics),
                EngineRequest::NoteTcpPort { engine: 0, spec, .. } => {
                    is_noted = *engine == 1 && spec.rights.mac == [2, 0, 0, 0, 0, 2];
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(is_noted, !nics.is_empty());
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        let Some(Reply::TcpPortOpened(opened)) = told else { panic!("{told:?}") };
        assert_eq!((host.claimed.len(), host.steered), (1 + nics.len(), 1 + nics.len()));
        assert_eq!(host.ask(1, Request::CloseVif(CloseVif { vif: opened.number })), None);
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        assert_eq!(told, Some(Reply::VifClosed(Empty {})));
        assert_eq!((host.claimed.len(), host.steered), (0, 0));
    }
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// Another NIC may have addresses of one family only. Peers of the other do not reach it.
#[test]
fn a_tcp_port_is_not_refused_for_peers_that_another_nic_has_no_address_for() {
    let mut host = Host::new(1);
    let mut network = host.plane.nics()[0].interface.clone();
    network.addresses.push(("fd00::1".parse().expect("an address"), 64));
    host.plane.set_network(0, &network);
    let place = host.attach_to(1, Some("a"));
    let of_both: &[&str] = &["10.8.0.0/16", "fd00:8::/32"];
    for (peers, nics) in [(of_both, &[1][..]), (&of_both[1..], &[])] {
        let peers = peers.iter().map(|text| text.parse().expect("a prefix")).collect();
        let open = OpenTcpPort { port: 8080, peers, ..OpenTcpPort::default() };
        assert_eq!(host.ask(1, Request::OpenTcpPort(open)), None);
        let spec = host.asked.iter().find_map(|(_, request)| match request {
            EngineRequest::OpenTcpPort { spec, .. } => Some(spec),
            _ => None,
        });
        assert_eq!(spec.map(|spec| &spec.nics[..]), Some(nics));
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        let Some(Reply::TcpPortOpened(opened)) = told else { panic!("{told:?}") };
        assert_eq!(host.ask(1, Request::CloseVif(CloseVif { vif: opened.number })), None);
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        assert_eq!(told, Some(Reply::VifClosed(Empty {})));
    }
    host.end(1, place);
    assert_eq!(host.plane.audit_rest(), Ok(()));
}

/// As those of raw masks can be: the answer would be larger than a packet.
#[test]
fn patterns_that_are_too_long_to_be_told_are_refused() {
    let of = |count| VifTexts { receive: vec!["x".repeat(397); count], ..VifTexts::default() };
    assert_eq!(interfaces::can_be_told(&of(163)), Ok(()));
    let refused = interfaces::can_be_told(&of(164)).expect_err("65,856 bytes");
    assert!(refused.message.contains("fewer alternatives"), "{}", refused.message);
}

#[test]
fn generated_ethernet_addresses_are_of_one_station_and_nobodys() {
    let mut host = Host::new(1);
    host.connect(1, 0);
    let place = host.begin(1, Attach::new("app", None, SIZES));
    host.plane.handle_made(place).expect("it waits");
    assert_eq!(host.plane.handle_request(1, Request::Mapped(Empty {})), None);
    assert!(matches!(host.plane.poll_step(), Some(Step::Secure { .. })));
    let (end, _handover) = DaemonEnd::create(SIZES).expect("memory");
    assert!(host.plane.handle_secured(place, Box::new(end)).is_ok());
    host.carry_out();
    host.told.clear();
    let mut macs = std::collections::BTreeSet::new();
    for number in 0..20 {
        let request = OpenVif {
            receive: vec![format!("ether proto {:#x}", 0x8800 + number)],
            mac: Some(MacChoice::Own),
            ..OpenVif::default()
        };
        host.ask(1, Request::OpenVif(request));
        host.answer();
        let told = host.told.get_mut(&1).and_then(VecDeque::pop_front);
        let Some(Reply::VifOpened(opened)) = told else { panic!("{told:?}") };
        assert_eq!(opened.mac.0[0] & 3, 2, "locally administered, and of one station");
        assert!(macs.insert(opened.mac.0));
    }
}
