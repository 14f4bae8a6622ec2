//! The engine that takes its turns when the app calls, and the little that is left of a control
//! plane.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clearway_channel::control::{Empty, Listen, Listening, Reply, Request, Unlisten};
use clearway_client::{Code, Embedded, Error};
use clearway_control::{ListenerName, Listeners, Opened};
use clearway_engine::{Control, Event, Group, Request as EngineRequest};

/// The number of the only channel.
pub(crate) const CHANNEL: u32 = 1;
/// Turns within which an engine has said goodbye to everybody, or will not.
const LAST_TURNS: usize = 1000;

/// An engine and its control.
pub(crate) struct EmbeddedEngine {
    group: Group,
    control: Control,
    listeners: Listeners,
    listener_next: u32,
    /// What came of the last attempt to listen, until it is taken.
    opened: Option<Opened>,
    /// Why the engine serves the channel no more.
    ended: Option<(Code, String)>,
}

impl EmbeddedEngine {
    pub(crate) fn new(group: Group, control: Control) -> Self {
        let listeners = Listeners::new(1);
        Self { group, control, listeners, listener_next: 1, opened: None, ended: None }
    }

    /// Hands a request to the engine, which takes it in its next turn.
    pub(crate) fn post(&mut self, request: EngineRequest) {
        let mut next = Some(request);
        while let Some(request) = next.take() {
            if let Err(request) = self.control.post(request) {
                self.group.turn();
                next = Some(request);
            }
        }
    }

    fn listen(&mut self, listen: &Listen) -> Result<Reply, Error> {
        let name = listener(self.listener_next);
        self.listener_next = self.listener_next.wrapping_add(1).max(1);
        let port = self.listeners.open(name, listen.address, listen.port).map_err(cannot_listen)?;
        self.ask_engine();
        self.opened_at_last()?.map_err(cannot_listen)?;
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let address = SocketAddr::new(address, port);
        Ok(Reply::Listening(Listening { listener: name.number, address }))
    }

    /// What has come of the attempt to listen; an error if that will never be known.
    fn opened_at_last(&mut self) -> Result<Result<(), Code>, Error> {
        loop {
            if let Some(opened) = self.opened.take() {
                return Ok(opened.result);
            }
            self.group.turn();
            self.check()?;
        }
    }

    fn unlisten(&mut self, number: u32) -> Reply {
        self.listeners.close(listener(number));
        self.ask_engine();
        self.group.turn();
        Reply::Unlistened(Empty {})
    }

    fn ask_engine(&mut self) {
        while let Some((_, request)) = self.listeners.poll_request() {
            self.post(request);
        }
    }

    /// Takes note of what the engine says of listeners, and of what ends the channel; nothing else
    /// that it tells concerns an app.
    fn note(&mut self, event: &Event) {
        match event {
            Event::Listening { listener: number, result, .. } => {
                self.opened = self.listeners.handle_listening(listener(*number), *result);
                self.ask_engine();
            }
            Event::Violation { violation, .. } => {
                self.ended = Some((Code::Violation, violation.to_string()));
            }
            _ => {}
        }
    }
}

/// The listener of this number.
const fn listener(number: u32) -> ListenerName {
    ListenerName { engine: 0, channel: CHANNEL, number }
}

fn cannot_listen(code: Code) -> Error {
    Error::Refused { code, message: format!("cannot listen: {code}") }
}

impl Embedded for EmbeddedEngine {
    #[inline]
    fn turn(&mut self) -> bool {
        self.group.turn().told_apps
    }

    #[inline]
    fn send(&mut self) {
        self.group.send();
    }

    fn sleep(&mut self, at_most: Option<Duration>) {
        self.group.sleep(at_most);
    }

    fn request(&mut self, request: &Request) -> Result<Reply, Error> {
        match request {
            Request::Listen(listen) => self.listen(listen),
            Request::Unlisten(Unlisten { listener }) => Ok(self.unlisten(*listener)),
            _ => Err(Error::Refused {
                code: Code::Invalid,
                message: "an embedded engine has messages only; virtual interfaces and captures \
                          are a daemon's"
                    .into(),
            }),
        }
    }

    fn check(&mut self) -> Result<(), Error> {
        self.control.acknowledge();
        while let Some(event) = self.control.next_event() {
            self.note(&event);
        }
        match &self.ended {
            None => Ok(()),
            Some((code, message)) => {
                Err(Error::DaemonGone { code: *code, message: message.clone() })
            }
        }
    }
}

impl Drop for EmbeddedEngine {
    /// Tells the peers, who would otherwise wait until their keep-alives run out.
    fn drop(&mut self) {
        self.post(EngineRequest::Shutdown);
        for _ in 0..LAST_TURNS {
            self.group.turn();
            while self.control.next_event().is_some() {}
            if self.group.has_ended() {
                break;
            }
        }
    }
}
