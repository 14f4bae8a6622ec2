//! What an app asks of its control plane, one thing after the other, as its library would.

use std::collections::VecDeque;

use clearway_channel::Code;
use clearway_channel::control::{
    Attach, CloseVif, Listen, Mac, MacChoice, OpenCapture, OpenTcpPort, OpenVif, Request, Unlisten,
};

use super::{App, Character, Radio, Role};
use crate::host::UDP_PORT;
use crate::network::vif_mac_of;

/// Something that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To listen on its port.
    Listen,
    /// To listen no more.
    Unlisten,
    /// For its TCP port.
    OpenTcpPort,
    /// For its interface or capture.
    OpenVif,
    /// To be rid of that.
    CloseVif,
    /// For what it may not have.
    Forbidden(Forbidden),
}

/// What nobody may have but an administrator, or nobody at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// A port of the system's.
    SystemPort,
    /// To take somebody's interface away.
    OthersVif,
    /// The packets of the host's own message service.
    OwnService,
    /// All that the host's other programs receive.
    AllPackets,
    /// Another channel on the same connection.
    SecondChannel,
    /// To close what it does not have.
    UnknownListener,
}

impl Forbidden {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::SystemPort,
        Self::OthersVif,
        Self::OwnService,
        Self::AllPackets,
        Self::SecondChannel,
        Self::UnknownListener,
    ];

    /// The refusal that it has to get.
    pub(crate) const fn code(self) -> Code {
        match self {
            Self::SystemPort | Self::OthersVif | Self::OwnService | Self::AllPackets => {
                Code::Denied
            }
            Self::SecondChannel | Self::UnknownListener => Code::Invalid,
        }
    }

    fn request(self, character: &Character) -> Request {
        let receiving = |filter: String| {
            Request::OpenVif(OpenVif { receive: vec![filter], ..OpenVif::default() })
        };
        match self {
            Self::SystemPort => Request::Listen(Listen { address: None, port: 80 }),
            Self::OthersVif => Request::RevokeVif(CloseVif { vif: 1 }),
            Self::OwnService => receiving(format!("dst host own and udp dst port {UDP_PORT}")),
            Self::AllPackets => receiving("ip or ip6".to_owned()),
            Self::SecondChannel => Request::Attach(Attach::new("second", None, character.sizes())),
            Self::UnknownListener => Request::Unlisten(Unlisten { listener: 77 }),
        }
    }
}

/// What an app wants, and what it has been given.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    next: VecDeque<Wish>,
    /// What was asked last, until it is answered.
    asked: Option<Wish>,
    /// The number of its listener, while it listens.
    pub(super) listener: Option<u32>,
}

impl App {
    /// It wants something, after what it has wanted before.
    pub(crate) fn wish(&mut self, wish: Wish) {
        self.wishes.next.push_back(wish);
    }

    /// What was asked for, to which an answer has come.
    pub(crate) fn answered(&mut self) -> Option<Wish> {
        self.wishes.asked.take()
    }

    /// It listens, or not any more.
    pub(crate) fn set_listener(&mut self, listener: Option<u32>) {
        self.wishes.listener = listener;
    }

    /// What it asks for next. A wish that makes no sense any more is passed over.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        while let Some(wish) = self.wishes.next.pop_front() {
            if let Some(request) = self.request(wish) {
                self.wishes.asked = Some(wish);
                return Some(request);
            }
        }
        None
    }

    fn wants_port(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| !streams.has_port())
    }

    fn request(&self, wish: Wish) -> Option<Request> {
        match (wish, &self.character.role) {
            (Wish::Listen, Role::Server { port }) if self.wishes.listener.is_none() => {
                Some(Request::Listen(Listen { address: None, port: *port }))
            }
            (Wish::Unlisten, _) => {
                self.wishes.listener.map(|listener| Request::Unlisten(Unlisten { listener }))
            }
            (Wish::OpenVif, Role::Frames) if self.vif.is_none() => {
                Some(Request::OpenVif(OpenVif {
                    receive: Radio::filters(Radio::receives()),
                    transmit: Some(Radio::filters(Radio::sends())),
                    mac: Some(MacChoice::Fixed(Mac(vif_mac_of(self.character.host as usize)))),
                    ..OpenVif::default()
                }))
            }
            (Wish::OpenTcpPort, Role::StreamServer { port }) if self.wants_port() => {
                let open = OpenTcpPort { port: *port, shared: true, ..OpenTcpPort::default() };
                Some(Request::OpenTcpPort(open))
            }
            (Wish::OpenTcpPort, Role::StreamClient { .. }) if self.wants_port() => {
                let port = 10_000 + (self.id % 50_000) as u16;
                Some(Request::OpenTcpPort(OpenTcpPort { port, ..OpenTcpPort::default() }))
            }
            (Wish::OpenVif, Role::Capture) if self.vif.is_none() => {
                Some(Request::OpenCapture(OpenCapture::default()))
            }
            (Wish::CloseVif, _) => self.vif.map(|vif| Request::CloseVif(CloseVif { vif })),
            (Wish::Forbidden(what), _) => Some(what.request(&self.character)),
            (Wish::Listen | Wish::OpenVif | Wish::OpenTcpPort, _) => None,
        }
    }
}
