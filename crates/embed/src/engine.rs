//! The engine that takes its turns when the app calls, and the little that is left of a control
//! plane.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clearway_channel::control::{
    DYNAMIC_PORTS, Empty, Listen, Listening, Reply, Request, Unlisten,
};
use clearway_client::{Code, Embedded, Error};
use clearway_engine::{Control, Event, Group, Request as EngineRequest};

/// The number of the only channel.
pub(crate) const CHANNEL: u32 = 1;
/// Turns within which an engine has said goodbye to everybody, or will not.
const LAST_TURNS: usize = 1000;

/// An engine and its control.
pub(crate) struct EmbeddedEngine {
    group: Group,
    control: Control,
    listener_next: u32,
    /// Why the engine serves the channel no more.
    ended: Option<(Code, String)>,
}

impl EmbeddedEngine {
    pub(crate) fn new(group: Group, control: Control) -> Self {
        Self { group, control, listener_next: 1, ended: None }
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
        let ports = if listen.port == 0 { DYNAMIC_PORTS } else { listen.port..=listen.port };
        let mut code = Code::AddressInUse;
        for port in ports {
            let listener = self.listener_next;
            self.listener_next = listener.wrapping_add(1).max(1);
            match self.listen_at(listener, listen.address, port)? {
                Ok(()) => {
                    let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                    let address = SocketAddr::new(address, port);
                    return Ok(Reply::Listening(Listening { listener, address }));
                }
                Err(reason) => code = reason,
            }
            if code != Code::AddressInUse {
                break;
            }
        }
        Err(Error::Refused { code, message: format!("cannot listen: {code}") })
    }

    /// The engine's answer; an error if there will be none.
    fn listen_at(
        &mut self,
        listener: u32,
        address: Option<IpAddr>,
        port: u16,
    ) -> Result<Result<(), Code>, Error> {
        self.post(EngineRequest::Listen { channel: CHANNEL, listener, address, port });
        loop {
            self.group.turn();
            if let Some(result) = self.next_answer(listener) {
                return Ok(result);
            }
            self.check()?;
        }
    }

    /// What the engine says of this listener, if it has said something.
    fn next_answer(&mut self, wanted: u32) -> Option<Result<(), Code>> {
        while let Some(event) = self.control.next_event() {
            match event {
                Event::Listening { listener, result, .. } if listener == wanted => {
                    return Some(result);
                }
                other => self.note(&other),
            }
        }
        None
    }

    /// Takes note of what ends the channel; nothing else that an engine tells concerns an app.
    fn note(&mut self, event: &Event) {
        if let Event::Violation { violation, .. } = event {
            self.ended = Some((Code::Violation, violation.to_string()));
        }
    }
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
            Request::Unlisten(Unlisten { listener }) => {
                self.post(EngineRequest::Unlisten { channel: CHANNEL, listener: *listener });
                self.group.turn();
                Ok(Reply::Unlistened(Empty {}))
            }
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
