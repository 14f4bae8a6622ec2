//! Who listens on which port of the host: what apps ask for, and what they are told. The ports are
//! given away, and the engines agree about them, in `clearway_control::Listeners`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_channel::Code;
use clearway_channel::control::{Empty, Listen, Listening, Refusal, Reply, Unlisten};
use clearway_control::{ListenerName, Opened};

use super::ControlPlane;
use super::requests::{not_attached, refusal};
use super::session::Waiting;

impl ControlPlane {
    pub(super) fn listen(&mut self, token: u64, listen: &Listen) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let attached = session.attached.as_mut().ok_or_else(not_attached)?;
        self.accounts.may_listen(&session.peer, listen.port)?;
        if attached.listeners.len() >= self.accounts.listeners_per_channel() {
            let text = "the channel has as many listeners as it may; close one first, or raise \
                        `listeners_per_channel` in [policy.limits] of the daemon's configuration";
            return Err(refusal(Code::Limit, text));
        }
        let number = attached.listener_next;
        let name = ListenerName { engine: attached.engine, channel: attached.channel, number };
        let port = self.listeners.open(name, listen.address, listen.port);
        let port = port.map_err(|code| refusal(code, code.text()))?;
        attached.listener_next = number.wrapping_add(1).max(1);
        attached.listeners.push(number);
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        session.waiting = Waiting::Listening(SocketAddr::new(address, port));
        self.ask_engines();
        Ok(())
    }

    /// Asks engines what they are to be asked about listeners.
    fn ask_engines(&mut self) {
        while let Some((engine, request)) = self.listeners.poll_request() {
            self.engines[engine].post(request);
        }
    }

    /// The engine that is to listen does, or says why not.
    pub(super) fn listening(
        &mut self,
        engine: usize,
        channel: u32,
        number: u32,
        result: Result<(), Code>,
    ) {
        let name = ListenerName { engine, channel, number };
        let opened = self.listeners.handle_listening(name, result);
        self.opened(opened);
    }

    /// One more engine knows of a listener.
    pub(super) fn listener_noted(&mut self, id: u64) {
        let opened = self.listeners.handle_noted(id);
        self.opened(opened);
    }

    /// Tells the app what came of its attempt to listen, once that is known.
    fn opened(&mut self, opened: Option<Opened>) {
        self.ask_engines();
        let Some(Opened { name, result }) = opened else { return };
        let Some(record) = self.engines[name.engine].channel(name.channel) else { return };
        let token = record.session;
        let Some(session) = self.sessions.get_mut(&token) else { return };
        let Waiting::Listening(address) = session.waiting else { return };
        let listener = name.number;
        let reply = match result {
            Ok(()) => {
                tracing::debug!(%address, listener, "listening");
                Reply::Listening(Listening { listener, address })
            }
            Err(code) => {
                if let Some(attached) = &mut session.attached {
                    attached.listeners.retain(|number| *number != listener);
                }
                Reply::error(code)
            }
        };
        self.reply(token, &reply);
    }

    pub(super) fn unlisten(&mut self, token: u64, unlisten: &Unlisten) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let attached = session.attached.as_mut().ok_or_else(not_attached)?;
        let number = unlisten.listener;
        let Some(place) = attached.listeners.iter().position(|other| *other == number) else {
            let text = format!("there is no listener {number}; use the number from `listening`");
            return Err(refusal(Code::Invalid, text));
        };
        attached.listeners.remove(place);
        let name = ListenerName { engine: attached.engine, channel: attached.channel, number };
        self.listeners.close(name);
        self.ask_engines();
        self.reply(token, &Reply::Unlistened(Empty {}));
        Ok(())
    }

    /// A channel is going: its ports are free.
    pub(super) fn forget_listeners(&mut self, engine: usize, channel: u32) {
        self.listeners.forget(engine, channel);
        self.ask_engines();
    }
}
