use clearway_base::Random;

use super::*;

/// Engines of two NICs.
const NICS: [Range<usize>; 2] = [0..3, 3..5];
const ENGINES: usize = 5;
const USER: u32 = 1000;

fn owner(engine: usize, channel: u32) -> VifOwner {
    VifOwner { engine, channel, user: USER }
}

/// Sends from a port, and receives there.
fn spec(port: u16) -> VifSpec {
    VifSpec {
        receive: vec![format!("udp dst port {port}").parse().expect("a filter")],
        transmit: vec![format!("udp src port {port}").parse().expect("a filter")],
        ..VifSpec::default()
    }
}

fn everything() -> CaptureSpec {
    CaptureSpec { filter: Vec::new(), app: None, connection: None }
}

fn refusal() -> Refusal {
    Refusal { code: Code::Refused, message: "not here".into() }
}

/// An interface as an engine knows it: whose it is, and what it may send.
type Known = (usize, u32, Option<String>);

/// What an engine knows, and what it is yet to do.
#[derive(Debug, Default)]
struct Engine {
    index: usize,
    known: BTreeMap<u32, Known>,
    inbox: VecDeque<Request>,
    has_ended: bool,
}

enum Event {
    Opened(u32, Result<(), VifRefused>),
    Closed(u32),
}

impl Engine {
    /// Does what it was asked for first, as `clearway_engine::Engine` does.
    fn turn(&mut self, refuses: bool) -> Option<Event> {
        let index = self.index;
        match self.inbox.pop_front()? {
            Request::OpenVif { vif, .. } | Request::OpenCapture { vif, .. } if refuses => {
                Some(Event::Opened(vif, Err(VifRefused::NoChannel)))
            }
            Request::OpenVif { channel, vif, spec } => {
                self.take_in(vif, index, channel, Some(&spec))
            }
            Request::NoteVif { engine, channel, vif, spec } => {
                self.take_in(vif, engine, channel, Some(&spec))
            }
            Request::OpenTcpPort { number, .. } if refuses => {
                Some(Event::Opened(number, Err(VifRefused::NoChannel)))
            }
            Request::OpenTcpPort { channel, number, spec } => {
                self.take_in(number, index, channel, Some(&spec.rights))
            }
            Request::NoteTcpPort { engine, channel, number, spec } => {
                self.take_in(number, engine, channel, Some(&spec.rights))
            }
            Request::OpenCapture { channel, vif, .. } => self.take_in(vif, index, channel, None),
            Request::NoteCapture { engine, channel, vif, .. } => {
                self.take_in(vif, engine, channel, None)
            }
            Request::CloseVif { vif, .. } => {
                self.known.remove(&vif);
                Some(Event::Closed(vif))
            }
            Request::RemoveChannel { channel } => {
                self.known.retain(|_, known| (known.0, known.1) != (index, channel));
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn take_in(
        &mut self,
        vif: u32,
        engine: usize,
        channel: u32,
        spec: Option<&VifSpec>,
    ) -> Option<Event> {
        let sends = spec.map(|spec| spec.transmit[0].to_string());
        let is_same = |known: &Known| known.2 == sends && known.1 != channel;
        assert!(sends.is_none() || !self.known.values().any(is_same), "{sends:?} is somebody's");
        assert_eq!(self.known.insert(vif, (engine, channel, sends)), None);
        Some(Event::Opened(vif, Ok(())))
    }
}

/// Engines that take their turns in any order, and NICs that do at once what they are asked and
/// answer later.
struct Host {
    vifs: Vifs,
    engines: Vec<Engine>,
    claimed: BTreeSet<u32>,
    steered: BTreeSet<u32>,
    answers: VecDeque<VifStep>,
    nic_refuses: bool,
    opened: Vec<u32>,
    refused: Vec<(u32, VifError)>,
    gone: Vec<u32>,
}

impl Host {
    fn new() -> Self {
        let engine = |index| Engine { index, ..Engine::default() };
        Self {
            vifs: Vifs::new(NICS, Limits::default()),
            engines: (0..ENGINES).map(engine).collect(),
            claimed: BTreeSet::new(),
            steered: BTreeSet::new(),
            answers: VecDeque::new(),
            nic_refuses: false,
            opened: Vec::new(),
            refused: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// Does what is to be done, as far as nobody has to be waited for.
    fn work(&mut self) {
        while self.vifs.is_checking() {
            self.vifs.advance(100);
        }
        while let Some(step) = self.vifs.poll_step() {
            self.carry_out(step);
        }
    }

    fn carry_out(&mut self, step: VifStep) {
        match step {
            VifStep::Ask { engine, request } => {
                assert!(!self.engines[engine].has_ended, "{request:?}");
                self.engines[engine].inbox.push_back(request);
            }
            VifStep::Claim(number) => {
                assert!(!self.somebody_has(number));
                if !self.nic_refuses {
                    assert!(self.claimed.insert(number));
                }
                self.answers.push_back(step);
            }
            VifStep::Steer(number) => {
                assert!(self.claimed.contains(&number) && self.all_have(number));
                if !self.nic_refuses {
                    assert!(self.steered.insert(number));
                }
                self.answers.push_back(step);
            }
            VifStep::Unsteer(number) => drop(self.steered.remove(&number)),
            VifStep::Opened(number) => {
                let is_vif = self.claimed.contains(&number);
                assert_eq!(self.steered.contains(&number), is_vif);
                assert!(self.all_have(number));
                self.opened.push(number);
            }
            VifStep::Refused(number, why) => {
                assert!(!self.somebody_has(number), "whoever is refused could try again");
                self.refused.push((number, why));
            }
            VifStep::Gone(number) => {
                assert!(!self.somebody_has(number) && !self.steered.contains(&number));
                self.claimed.remove(&number);
                self.gone.push(number);
            }
        }
    }

    fn somebody_has(&self, number: u32) -> bool {
        self.engines.iter().any(|engine| engine.known.contains_key(&number))
    }

    fn all_have(&self, number: u32) -> bool {
        let nic = self.vifs.nic(number).expect("it is somebody's");
        self.engines[NICS[nic].clone()]
            .iter()
            .all(|it| it.has_ended || it.known.contains_key(&number))
    }

    fn turn(&mut self, engine: usize, refuses: bool) {
        match self.engines[engine].turn(refuses) {
            Some(Event::Opened(vif, result)) => self.vifs.handle_opened(engine, vif, result),
            Some(Event::Closed(vif)) => self.vifs.handle_closed(engine, vif),
            None => {}
        }
        self.work();
    }

    /// The NIC answers what it was asked first.
    fn answer(&mut self) {
        let result =
            |done: &BTreeSet<u32>, number| done.contains(number).then_some(()).ok_or_else(refusal);
        match self.answers.pop_front() {
            Some(VifStep::Claim(number)) => {
                self.vifs.handle_claimed(number, result(&self.claimed, &number));
            }
            Some(VifStep::Steer(number)) => {
                self.vifs.handle_steered(number, result(&self.steered, &number));
            }
            _ => {}
        }
        self.work();
    }

    /// An app has gone: its engine removes its channel.
    fn forget(&mut self, engine: usize, channel: u32) {
        self.vifs.forget(engine, channel);
        self.work();
        if !self.engines[engine].has_ended {
            self.engines[engine].inbox.push_back(Request::RemoveChannel { channel });
        }
    }

    /// An engine is no more.
    fn end(&mut self, engine: usize) {
        self.engines[engine] = Engine { index: engine, has_ended: true, ..Engine::default() };
        self.vifs.handle_ended(engine);
        self.work();
    }

    fn settle(&mut self) {
        self.work();
        loop {
            if let Some(engine) = self.engines.iter().position(|it| !it.inbox.is_empty()) {
                self.turn(engine, false);
            } else if self.answers.is_empty() {
                break;
            } else {
                self.answer();
            }
        }
        assert!(self.vifs.is_settled());
    }

    /// Each engine knows what is open on its NIC, and nothing else.
    fn check(&self) {
        for engine in self.engines.iter().filter(|engine| !engine.has_ended) {
            let nic = NICS.iter().position(|nic| nic.contains(&engine.index));
            let open = self.vifs.owners().filter(|(number, _)| self.vifs.nic(*number) == nic);
            let open: BTreeMap<_, _> =
                open.map(|(number, owner)| (number, (owner.engine, owner.channel))).collect();
            let known = engine.known.iter().map(|(number, known)| (*number, (known.0, known.1)));
            assert_eq!(known.collect::<BTreeMap<_, _>>(), open, "engine {}", engine.index);
        }
        let of_nics: BTreeSet<u32> = self.vifs.owners().map(|(number, _)| number).collect();
        assert!(self.claimed.is_subset(&of_nics) && self.steered == self.claimed);
    }

    fn check_empty(&self) {
        self.check();
        assert_eq!(self.vifs.owners().count(), 0);
        assert!(self.vifs.nics.iter().all(|nic| nic.registered.is_empty()));
    }
}

#[test]
fn an_app_is_answered_when_every_engine_of_its_nic_and_the_nic_know() {
    let mut host = Host::new();
    let number = host.vifs.open(owner(1, 7), spec(53)).expect("free");
    host.work();
    assert!(host.engines.iter().all(|engine| engine.inbox.is_empty()), "its ports come first");
    host.answer();
    for engine in [2, 1, 0] {
        assert!(host.answers.is_empty() && !host.vifs.is_open(number));
        host.turn(engine, false);
    }
    assert!(host.opened.is_empty());
    host.answer();
    assert_eq!(host.opened, [number]);
    assert!(host.engines[3].inbox.is_empty(), "it is another NIC's");
    assert!(host.vifs.close(number, None) && !host.vifs.close(number, None));
    host.settle();
    assert_eq!(host.gone, [number]);
    host.check_empty();
}

#[test]
fn patterns_are_one_apps_at_a_time_on_each_nic() {
    let mut host = Host::new();
    let first = host.vifs.open(owner(0, 1), spec(53)).expect("free");
    host.work();
    let second = host.vifs.open(owner(2, 2), spec(53)).expect("it is checked");
    let elsewhere = host.vifs.open(owner(3, 3), spec(53)).expect("another NIC");
    host.settle();
    assert_eq!(host.opened, [first, elsewhere]);
    let (number, why) = &host.refused[0];
    let is_collision = matches!(why, VifError::Registry(registry::Refusal::Send { .. }));
    assert!(*number == second && is_collision, "{why:?}");
    assert_eq!(host.gone, [second]);
    // Free as soon as the first is being closed.
    host.vifs.close(first, None);
    let third = host.vifs.open(owner(2, 2), spec(53)).expect("it is checked");
    host.settle();
    assert_eq!(host.opened, [first, elsewhere, third]);
    host.check();
}

#[test]
fn what_an_engine_refuses_no_engine_has() {
    let mut host = Host::new();
    let number = host.vifs.open(owner(1, 7), spec(53)).expect("free");
    host.work();
    host.answer();
    for engine in [0, 1, 2] {
        host.turn(engine, true);
    }
    assert!(host.refused.is_empty() && host.gone.is_empty(), "engines have it yet");
    host.settle();
    assert_eq!(host.refused, [(number, VifError::Engine(VifRefused::NoChannel))]);
    assert_eq!((&host.opened[..], &host.gone[..]), (&[][..], &[number][..]));
    host.check_empty();
}

#[test]
fn what_a_nic_refuses_no_engine_has() {
    for refuses_ports in [true, false] {
        let mut host = Host::new();
        let number = host.vifs.open(owner(1, 7), spec(53)).expect("free");
        host.nic_refuses = refuses_ports;
        host.work();
        host.nic_refuses = true;
        host.settle();
        assert_eq!(host.refused, [(number, VifError::Nic(refusal()))]);
        assert_eq!(host.gone, [number]);
        host.check_empty();
    }
}

#[test]
fn what_its_app_does_not_wait_for_is_not_opened() {
    // How often the NIC answers, and engines have turns, before the app goes.
    for turns in 0..6 {
        let mut host = Host::new();
        let number = host.vifs.open(owner(1, 7), spec(53)).expect("free");
        host.work();
        if turns > 0 {
            host.answer();
            (0..turns.min(4) - 1).for_each(|engine| host.turn(engine, false));
        }
        if turns == 5 {
            host.answer();
        }
        host.forget(1, 7);
        host.settle();
        assert_eq!((host.opened.len(), &host.gone[..]), (usize::from(turns == 5), &[number][..]));
        host.check_empty();
    }
}

#[test]
fn an_app_that_goes_while_it_is_checked_leaves_its_patterns() {
    let mut host = Host::new();
    let first = host.vifs.open(owner(1, 7), spec(53)).expect("free");
    host.forget(1, 7);
    let second = host.vifs.open(owner(2, 8), spec(53)).expect("free");
    host.settle();
    assert_eq!((&host.gone[..], &host.opened[..]), (&[first][..], &[second][..]));
    host.check();
}

#[test]
fn an_engine_that_ends_takes_what_its_apps_had_and_owes_no_answer() {
    let mut host = Host::new();
    let lost = host.vifs.open(owner(1, 7), spec(53)).expect("free");
    host.settle();
    let kept = host.vifs.open(owner(0, 8), spec(54)).expect("free");
    host.work();
    host.answer();
    host.turn(0, false);
    host.turn(2, false);
    host.end(1);
    host.settle();
    assert_eq!((&host.gone[..], &host.opened[..]), (&[lost][..], &[lost, kept][..]));
    assert_eq!(host.vifs.open(owner(1, 7), spec(55)), Err(VifError::Engine(VifRefused::NoChannel)));
    host.check();
}

#[test]
fn a_nic_has_room_for_some_captures() {
    let mut host = Host::new();
    let open = |host: &mut Host, engine| host.vifs.open_capture(owner(engine, 1), everything());
    let captures: Vec<_> = (0..CAPTURES_MAX).map(|_| open(&mut host, 0)).collect();
    assert_eq!(open(&mut host, 2), Err(VifError::Captures(CAPTURES_MAX)));
    assert!(open(&mut host, 3).is_ok(), "another NIC");
    host.settle();
    assert_eq!(host.opened.len(), CAPTURES_MAX + 1);
    host.vifs.close(captures[3].clone().expect("one"), Some(Code::Denied));
    host.settle();
    assert!(open(&mut host, 2).is_ok());
    host.settle();
    host.check();
}

/// A port at all addresses.
fn port_spec(port: u16) -> TcpPortSpec {
    let (peers, nics) = (Vec::new(), Vec::new());
    TcpPortSpec { address: None, port, peers, nics, rights: spec(port) }
}

/// Asks for a port on both NICs.
fn open_on_both(host: &mut Host, owner: VifOwner) -> (u32, Vec<u32>) {
    let parts = vec![PortPart { nic: 1, rights: spec(80) }];
    host.vifs.open_tcp_port(owner, port_spec(80), parts, false).expect("it is checked")
}

/// Its app is answered once, when all engines of both NICs know, and told that it is closed when
/// none does.
#[test]
fn a_tcp_port_of_two_nics_is_open_on_both_or_on_none() {
    let mut host = Host::new();
    let (number, parts) = open_on_both(&mut host, owner(1, 7));
    host.work();
    (0..2).for_each(|_| host.answer());
    for engine in 0..ENGINES {
        host.turn(engine, false);
    }
    host.answer();
    assert!(host.opened.is_empty() && !host.vifs.is_open(number), "one NIC has not answered");
    assert!(!host.vifs.close(number, None));
    host.answer();
    assert_eq!(host.opened, [number]);
    host.settle();
    host.check();
    assert_eq!(host.engines[4].known.keys().copied().collect::<Vec<_>>(), parts);
    assert!(host.vifs.close(number, Some(Code::Denied)));
    (0..3).for_each(|engine| host.turn(engine, false));
    assert!(host.gone.is_empty(), "the other NIC's engines have it still");
    host.settle();
    assert_eq!(host.gone, [parts[0], number]);
    host.check_empty();
}

/// Whoever does not let it be: another app, the kernel, an engine or a NIC.
#[test]
fn a_tcp_port_that_is_refused_on_one_nic_is_on_none() {
    // Another app has it on the second NIC.
    let mut host = Host::new();
    host.vifs.open(owner(3, 1), spec(80)).expect("free");
    host.settle();
    let (number, _) = open_on_both(&mut host, owner(0, 2));
    host.settle();
    let refused = host.refused.pop().expect("an answer");
    assert!(refused.0 == number && matches!(refused.1, VifError::Registry(_)), "{refused:?}");
    host.check();
    // The kernel keeps the port on one NIC, or that one does not steer its frames.
    for (is_steered, which) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let mut host = Host::new();
        let (number, parts) = open_on_both(&mut host, owner(0, 2));
        host.work();
        if is_steered {
            (0..2).for_each(|_| host.answer());
            (0..ENGINES).for_each(|engine| host.turn(engine, false));
        }
        let granted = if is_steered { &mut host.steered } else { &mut host.claimed };
        assert!(granted.remove(&[number, parts[0]][which]));
        host.settle();
        assert_eq!(host.refused, [(number, VifError::Nic(refusal()))]);
        assert!(host.opened.is_empty());
        host.check_empty();
    }
    // The engine of the app does not take it.
    let mut host = Host::new();
    let (number, _) = open_on_both(&mut host, owner(0, 2));
    host.work();
    (0..2).for_each(|_| host.answer());
    host.turn(0, true);
    host.settle();
    assert_eq!(host.refused, [(number, VifError::Engine(VifRefused::NoChannel))]);
    host.check_empty();
}

/// Its app goes when it has come as far as it has; one that is open lingers whole.
#[test]
fn a_tcp_port_of_two_nics_goes_with_its_app() {
    for turns in 0..12 {
        let mut host = Host::new();
        let (number, _) = open_on_both(&mut host, owner(0, 2));
        host.work();
        for turn in 0..turns {
            if (2..=6).contains(&turn) { host.turn(turn - 2, false) } else { host.answer() }
        }
        let is_open = host.vifs.is_open(number);
        host.vifs.let_linger(0, 2);
        host.settle();
        assert_eq!(host.vifs.owners().count(), if is_open { 2 } else { 0 });
        host.forget(0, 2);
        host.settle();
        host.check_empty();
        assert_eq!(host.opened.len(), usize::from(is_open));
    }
}

/// The engines of the other NIC end before they are asked: nobody waits for their answers.
#[test]
fn a_tcp_port_is_opened_although_another_nic_has_no_engine_any_more() {
    for answers in 0..=2 {
        let mut host = Host::new();
        let (number, _) = open_on_both(&mut host, owner(0, 2));
        host.work();
        (0..answers).for_each(|_| host.answer());
        (3..ENGINES).for_each(|engine| host.end(engine));
        host.settle();
        assert_eq!(host.opened, [number]);
        host.check();
        host.forget(0, 2);
        host.settle();
        host.check_empty();
    }
}

#[test]
fn an_app_has_a_tcp_port_once() {
    let mut host = Host::new();
    let mut open = |channel, address, port| {
        let spec = TcpPortSpec { address, ..port_spec(port) };
        host.vifs
            .open_tcp_port(owner(0, channel), spec, Vec::new(), false)
            .map(|(number, _)| number)
    };
    let address = Some(std::net::IpAddr::from([10, 0, 0, 1]));
    open(1, None, 80).expect("it is free");
    assert_eq!(open(1, None, 80), Err(VifError::TcpPort(80)));
    for (address, port) in [(None, 81), (address, 80)] {
        open(1, address, port).expect("another place");
    }
    assert_eq!(open(1, address, 80), Err(VifError::TcpPort(80)));
    open(2, None, 80).expect("for the registry to decide");
}

/// What comes of asking for a port, as far as the registry has to do with it.
fn ask_for_port(vifs: &mut Vifs, owner: VifOwner, is_shared: bool) -> Result<u32, VifError> {
    core::iter::from_fn(|| vifs.poll_step()).for_each(drop);
    vifs.open_tcp_port(owner, port_spec(80), Vec::new(), is_shared)?;
    while vifs.is_checking() {
        vifs.advance(1000);
    }
    let steps: Vec<VifStep> = core::iter::from_fn(|| vifs.poll_step()).collect();
    match steps.into_iter().next() {
        Some(VifStep::Claim(number)) => Ok(number),
        Some(VifStep::Refused(_, why)) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Those of one user, if all want it, at whichever engines of the NIC. Others get nothing of it,
/// also when the first one has gone.
#[test]
fn apps_of_a_user_share_a_tcp_port() {
    let vifs = &mut Host::new().vifs;
    let is_taken = |result: Result<u32, VifError>| {
        let Err(VifError::Registry(registry::Refusal::Send { owner, .. })) = result else {
            panic!("{result:?}")
        };
        owner
    };
    let stranger = VifOwner { user: USER + 1, ..owner(0, 3) };
    let first = ask_for_port(vifs, owner(0, 1), true).expect("it is free");
    ask_for_port(vifs, owner(0, 2), true).expect("both want it");
    assert_eq!(ask_for_port(vifs, owner(0, 2), true), Err(VifError::TcpPort(80)));
    ask_for_port(vifs, owner(1, 4), true).expect("another engine");
    ask_for_port(vifs, owner(3, 5), true).expect("another NIC");
    let had_by = is_taken(ask_for_port(vifs, owner(0, 3), false));
    assert_eq!(vifs.number_of(had_by), Some(first), "for people");
    is_taken(ask_for_port(vifs, stranger, true));
    vifs.forget(0, 1);
    is_taken(ask_for_port(vifs, stranger, true));
    is_taken(ask_for_port(vifs, owner(0, 1), false));
    ask_for_port(vifs, owner(0, 1), true).expect("it is shared still");
    vifs.forget(0, 1);
    vifs.forget(0, 2);
    is_taken(ask_for_port(vifs, stranger, true));
    vifs.forget(1, 4);
    ask_for_port(vifs, stranger, true).expect("it is free");
    is_taken(ask_for_port(vifs, owner(1, 4), true));
}

/// Of a port that is shared the others are told what they need to find out whose a segment is; of
/// one that is not, only where its frames go.
#[test]
fn the_other_engines_know_of_a_tcp_port_whether_it_is_shared() {
    let mut host = Host::new();
    for (channel, is_shared) in [(1, true), (2, false)] {
        let vifs = &mut host.vifs;
        let number = ask_for_port(vifs, owner(0, channel), is_shared).expect("it is free");
        vifs.handle_claimed(number, Ok(()));
        let asked = core::iter::from_fn(|| vifs.poll_step()).map(|step| match step {
            VifStep::Ask { engine: 0, request: Request::OpenTcpPort { .. } } => None,
            VifStep::Ask { engine, request: Request::NoteTcpPort { engine: of, .. } } => {
                Some((engine, of, true))
            }
            VifStep::Ask { engine, request: Request::NoteVif { engine: of, .. } } => {
                Some((engine, of, false))
            }
            other => panic!("{other:?}"),
        });
        let asked: Vec<_> = asked.flatten().collect();
        assert_eq!(asked, [(1, 0, is_shared), (2, 0, is_shared)]);
        vifs.forget(0, channel);
    }
}

#[test]
fn no_two_have_the_same_number() {
    let mut host = Host::new();
    let first = host.vifs.open_capture(owner(0, 1), everything()).expect("room");
    host.vifs.number_next = u32::MAX;
    let numbers: Vec<u32> =
        (0..3).map(|_| host.vifs.open_capture(owner(0, 1), everything()).expect("room")).collect();
    assert_eq!(numbers, [u32::MAX, 2, 3]);
    assert_eq!(first, 1);
}

/// Whatever apps ask, in whatever order engines and NICs answer, refuse, and vanish: no engine ever
/// has what overlaps, and in the end all agree, and nothing is left of what is gone.
#[test]
fn engines_agree_in_whatever_order_they_take_their_turns() {
    for seed in 0..200 {
        let (mut random, mut host) = (Random::new(seed), Host::new());
        let (mut given, mut live) = (0, ENGINES as u64);
        for _ in 0..500 {
            let engine = random.below(ENGINES as u64) as usize;
            let channel = (engine + ENGINES * random.below(2) as usize) as u32;
            host.nic_refuses = random.chance(1, 10);
            match random.below(16) {
                0 | 1 => {
                    let spec = spec(50 + random.below(4) as u16);
                    given += usize::from(host.vifs.open(owner(engine, channel), spec).is_ok());
                }
                2 => {
                    let opened = host.vifs.open_capture(owner(engine, channel), everything());
                    given += usize::from(opened.is_ok());
                }
                3 if !host.opened.is_empty() => {
                    let which = random.below(host.opened.len() as u64) as usize;
                    host.vifs
                        .close(host.opened[which], random.chance(1, 2).then_some(Code::Denied));
                }
                4 if random.chance(1, 3) => host.forget(engine, channel),
                5 if live > 3 && random.chance(1, 100) => {
                    live -= u64::from(!host.engines[engine].has_ended);
                    host.end(engine);
                }
                6..9 => host.answer(),
                _ => host.turn(engine, random.chance(1, 10)),
            }
            // Sometimes nobody looks for a while.
            if random.chance(3, 4) {
                host.work();
            }
        }
        host.nic_refuses = false;
        host.settle();
        host.check();
        for engine in 0..ENGINES {
            host.forget(engine, engine as u32);
            host.forget(engine, (engine + ENGINES) as u32);
        }
        host.settle();
        host.check_empty();
        assert_eq!(host.gone.len(), given, "each is gone once");
    }
}
