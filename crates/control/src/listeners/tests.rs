use std::collections::BTreeMap;

use clearway_base::Random;

use super::*;

const ENGINES: usize = 4;

fn name(engine: usize, channel: u32, number: u32) -> ListenerName {
    ListenerName { engine, channel, number }
}

/// What an engine knows, and what it is yet to do.
#[derive(Debug, Default)]
struct Engine {
    listening: BTreeMap<u16, (u32, u32)>,
    elsewhere: BTreeMap<u16, usize>,
    inbox: VecDeque<Request>,
}

enum Event {
    Listening(u32, u32, Result<(), Code>),
    Noted(u64),
}

impl Engine {
    /// Does what it was asked for first, as `clearway_engine::Engine` does.
    fn turn(&mut self, refuses: bool) -> Option<Event> {
        match self.inbox.pop_front()? {
            Request::Listen { channel, listener, port, .. } => {
                let is_free =
                    !self.listening.contains_key(&port) && !self.elsewhere.contains_key(&port);
                assert!(is_free, "{port} is somebody's");
                if refuses {
                    return Some(Event::Listening(
                        channel,
                        listener,
                        Err(Code::AddressUnavailable),
                    ));
                }
                self.listening.insert(port, (channel, listener));
                Some(Event::Listening(channel, listener, Ok(())))
            }
            Request::Unlisten { channel, listener } => {
                self.listening.retain(|_, whose| *whose != (channel, listener));
                None
            }
            Request::RemoveChannel { channel } => {
                self.listening.retain(|_, whose| whose.0 != channel);
                None
            }
            Request::NoteListener { id, port, engine } => {
                assert!(engine.is_none() || !self.listening.contains_key(&port), "{port} is mine");
                match engine {
                    Some(engine) => self.elsewhere.insert(port, engine),
                    None => self.elsewhere.remove(&port),
                };
                Some(Event::Noted(id))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Engines that take their turns in any order.
struct Host {
    listeners: Listeners,
    engines: [Engine; ENGINES],
    ended: BTreeSet<usize>,
    opened: Vec<Opened>,
}

impl Host {
    fn new() -> Self {
        let engines = std::array::from_fn(|_| Engine::default());
        let (ended, opened) = (BTreeSet::new(), Vec::new());
        Self { listeners: Listeners::new(ENGINES), engines, ended, opened }
    }

    fn ask(&mut self) {
        while let Some((engine, request)) = self.listeners.poll_request() {
            assert!(!self.ended.contains(&engine), "engine {engine} has ended: {request:?}");
            self.engines[engine].inbox.push_back(request);
        }
    }

    fn turn(&mut self, engine: usize, refuses: bool) {
        let opened = match self.engines[engine].turn(refuses) {
            Some(Event::Listening(channel, number, result)) => {
                self.listeners.handle_listening(name(engine, channel, number), result)
            }
            Some(Event::Noted(id)) => self.listeners.handle_noted(engine, id),
            None => None,
        };
        self.opened.extend(opened);
        self.ask();
    }

    /// An engine takes no turn any more.
    fn end(&mut self, engine: usize) {
        self.engines[engine] = Engine::default();
        self.ended.insert(engine);
        self.opened.extend(self.listeners.handle_ended(engine));
        self.ask();
    }

    fn settle(&mut self) {
        while let Some(engine) = self.engines.iter().position(|it| !it.inbox.is_empty()) {
            self.turn(engine, false);
        }
        assert!(self.listeners.is_settled());
    }

    /// Each engine knows what has been given away, and nothing else.
    fn check(&self) {
        let engines = self.engines.iter().enumerate();
        for (index, engine) in engines.filter(|(index, _)| !self.ended.contains(index)) {
            let (own, others): (Vec<_>, Vec<_>) =
                self.listeners.ports().partition(|(_, name)| name.engine == index);
            let own = own.into_iter().map(|(port, name)| (port, (name.channel, name.number)));
            assert_eq!(engine.listening, own.collect());
            let others = others.into_iter().map(|(port, name)| (port, name.engine));
            assert_eq!(engine.elsewhere, others.collect());
        }
    }
}

#[test]
fn a_port_is_one_listeners_at_a_time() {
    let mut listeners = Listeners::new(ENGINES);
    let (first, in_use) = (*DYNAMIC_PORTS.start(), Err(Code::AddressInUse));
    assert_eq!(listeners.open(name(0, 1, 1), None, 7000), Ok(7000));
    assert_eq!(listeners.open(name(1, 2, 1), None, 7000), in_use);
    assert_eq!(listeners.open(name(1, 2, 1), None, 0), Ok(first));
    assert_eq!(listeners.open(name(1, 2, 2), None, 0), Ok(first + 1));
    listeners.close(name(0, 1, 2)); // there is none
    assert_eq!(listeners.open(name(1, 2, 3), None, 7000), in_use);
    listeners.close(name(0, 1, 1));
    assert_eq!(listeners.open(name(1, 2, 3), None, 7000), Ok(7000));
    listeners.forget(1, 2);
    assert_eq!(listeners.ports().count(), 0);
    assert_eq!(listeners.open(name(2, 3, 1), None, 0), Ok(first));
}

#[test]
fn an_app_is_answered_when_every_engine_knows() {
    let mut host = Host::new();
    host.listeners.open(name(2, 7, 1), None, 7000).expect("free");
    host.ask();
    for engine in [3, 2, 0] {
        host.turn(engine, false);
        assert_eq!(host.opened, []);
    }
    host.turn(1, false);
    assert_eq!(host.opened, [Opened { name: name(2, 7, 1), result: Ok(()) }]);
    host.check();
}

#[test]
fn a_port_is_free_again_if_its_engine_refuses() {
    let mut host = Host::new();
    host.listeners.open(name(2, 7, 1), None, 7000).expect("free");
    host.ask();
    (0..ENGINES).for_each(|engine| host.turn(engine, true));
    let result = Err(Code::AddressUnavailable);
    assert_eq!(host.opened, [Opened { name: name(2, 7, 1), result }]);
    assert_eq!(host.listeners.ports().count(), 0);
    host.settle();
    host.check();
}

/// Its ports are free, what others want is not held up, and it is asked for nothing any more.
#[test]
fn an_engine_that_has_ended_is_waited_for_no_more() {
    let mut host = Host::new();
    host.listeners.open(name(2, 7, 1), None, 7000).expect("free");
    host.listeners.open(name(1, 8, 1), None, 7001).expect("free");
    host.ask();
    [0, 1, 3, 0, 1, 3].into_iter().for_each(|engine| host.turn(engine, false));
    assert_eq!(host.opened, [], "the third has not answered");
    host.end(2);
    let lost = Opened { name: name(2, 7, 1), result: Err(Code::DaemonGone) };
    assert_eq!(host.opened, [lost, Opened { name: name(1, 8, 1), result: Ok(()) }]);
    assert_eq!(host.listeners.open(name(2, 7, 2), None, 7002), Err(Code::DaemonGone));
    host.listeners.open(name(0, 9, 1), None, 7000).expect("free again");
    host.ask();
    host.settle();
    host.check();
}

/// Whatever apps ask and however late each engine is, no two engines listen on one port, none hears
/// of another's while it listens itself, and in the end all agree.
#[test]
fn engines_agree_in_whatever_order_they_take_their_turns() {
    for seed in 0..200 {
        let (mut random, mut host) = (Random::new(seed), Host::new());
        let mut number = 0;
        let mut names: Vec<ListenerName> = Vec::new();
        for step in 0..500 {
            let engine = random.below(ENGINES as u64) as usize;
            if step == 400 && seed % 2 == 0 {
                host.end(engine);
            }
            if host.ended.contains(&engine) {
                continue;
            }
            let channel = engine as u32 + 4 * random.below(2) as u32;
            match random.below(12) {
                0 | 1 => {
                    number += 1;
                    let (new, port) =
                        (name(engine, channel, number), 7000 + random.below(3) as u16);
                    names.extend(host.listeners.open(new, None, port).map(|_| new));
                }
                2 if !names.is_empty() => {
                    let at = random.below(names.len() as u64) as usize;
                    host.listeners.close(names.swap_remove(at));
                }
                3 if random.chance(1, 4) => {
                    host.listeners.forget(engine, channel);
                    let remove = Request::RemoveChannel { channel };
                    host.ask();
                    host.engines[engine].inbox.push_back(remove);
                }
                _ => host.turn(engine, random.chance(1, 10)),
            }
            host.ask();
        }
        host.settle();
        host.check();
    }
}
