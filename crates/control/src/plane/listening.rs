//! Who listens on which port of the host: what apps ask for, and what they are told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clearway_channel::Code;
use clearway_channel::control::{Empty, Listen, Listening, Refusal, Reply, Unlisten};

use super::Plane;
use crate::engines::ChannelPlace;
use crate::refusal::{not_attached, refusal};
use crate::session::{Session, Waiting};
use crate::{ListenerName, Opened};

impl Plane {
    pub(super) fn listen(&mut self, session: u64, listen: &Listen) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get_mut(&session) else { return Ok(()) };
        let Session { peer, waiting, .. } = &*asks;
        debug_assert_eq!(*waiting, Waiting::Nothing, "one request at a time");
        self.accounts.may_listen(peer, listen.port)?;
        let attached = asks.attached_mut().ok_or_else(not_attached)?;
        if attached.listeners.len() >= self.accounts.listeners_per_channel() {
            let text = "the channel has as many listeners as it may; close one first, or raise \
                        `listeners_per_channel` in [policy.limits] of the daemon's configuration";
            return Err(refusal(Code::Limit, text));
        }
        let (number, ChannelPlace { engine, channel }) = (attached.listener_next, attached.place);
        let name = ListenerName { engine, channel, number };
        let port = self.listeners.open(name, listen.address, listen.port);
        let port = port.map_err(|code| refusal(code, code.text()))?;
        attached.listener_next = number.wrapping_add(1).max(1);
        attached.listeners.push(number);
        let address = listen.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        asks.waiting = Waiting::Listening(SocketAddr::new(address, port));
        self.gather();
        Ok(())
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
        opened.into_iter().for_each(|opened| self.opened(opened));
    }

    /// One more engine knows of a listener.
    pub(super) fn listener_noted(&mut self, engine: usize, id: u64) {
        let opened = self.listeners.handle_noted(engine, id);
        opened.into_iter().for_each(|opened| self.opened(opened));
    }

    /// Tells the app what came of its attempt to listen.
    pub(super) fn opened(&mut self, opened: Opened) {
        let Opened { name: ListenerName { engine, channel, number }, result } = opened;
        let Some(record) = self.channel(ChannelPlace { engine, channel }) else { return };
        let session = record.session;
        let Some(waits) = self.sessions.get_mut(&session) else { return };
        let Waiting::Listening(address) = waits.waiting else { return };
        let reply = match result {
            Ok(()) => Reply::Listening(Listening { listener: number, address }),
            Err(code) => {
                if let Some(attached) = waits.attached_mut() {
                    attached.listeners.retain(|other| *other != number);
                }
                Reply::error(code)
            }
        };
        self.reply(session, reply);
    }

    pub(super) fn unlisten(&mut self, session: u64, unlisten: Unlisten) -> Result<(), Refusal> {
        let Some(asks) = self.sessions.get_mut(&session) else { return Ok(()) };
        let attached = asks.attached_mut().ok_or_else(not_attached)?;
        let number = unlisten.listener;
        let Some(index) = attached.listeners.iter().position(|other| *other == number) else {
            let text = format!(
                "this channel has no listener {number}; use the number that it was given when it \
                 began to listen"
            );
            return Err(refusal(Code::Invalid, text));
        };
        attached.listeners.remove(index);
        let ChannelPlace { engine, channel } = attached.place;
        self.listeners.close(ListenerName { engine, channel, number });
        self.gather();
        self.reply(session, Reply::Unlistened(Empty {}));
        Ok(())
    }
}
