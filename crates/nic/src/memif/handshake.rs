//! The control protocol of both roles as state machines that read messages and say what to do. No
//! sockets here; descriptors only pass through.
//!
//! ```text
//! server                                client
//!   hello ------------------------------->
//!   <------------------------------- init
//!   ack --------------------------------->
//!   <---------- add region (descriptor), each acknowledged
//!   <---------- add ring (descriptor), each acknowledged
//!   <---------------------------- connect
//!   connected --------------------------->
//!            either side: disconnect
//! ```
//!
//! The client sends its next message when the last has been acknowledged, as all implementations
//! do, so no socket buffer can fill up.
//!
//! The client makes its memory once the server has taken its `init`, and the server secures that
//! before it says `connected`, as the client does afterwards. Neither is done here: the handshake
//! asks for it ([`Step::Work`]), and goes on when it is done ([`Handshake::done`]).

use super::Config;
use super::limit::{self, Limit};
use super::link::{Announced, Ends, Offer, Offered, Parcel};
use super::message::{
    AddRing, Hello, Init, MODE_ETHERNET, Message, NAME_BYTES, SECRET_BYTES, Text, VERSION,
};
use super::ring::SIZE_LOG2_MAX;
use super::work::{Done, Work};
use crate::strangers::File;

/// Highest region index that we accept.
const REGION_INDEX_MAX: u16 = 15;

/// What to do after a message.
#[derive(Debug)]
pub(super) enum Step {
    /// Send this.
    Reply(Parcel),
    /// Have this done, and say what has become of it.
    Work(Work),
    /// Send the message, if any, then use the link.
    Established(Option<Message>, Established),
    /// The peer leaves, and this is why.
    Left(String),
}

/// A link that is ready for frames.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) ends: Vec<Ends>,
    pub(super) peer: Peer,
}

/// Who is at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its name for the interface, and its program.
    pub(super) name: String,
    /// What it is sent.
    pub(super) limit: Limit,
}

impl Peer {
    fn new(config: &Config, program: &Text<NAME_BYTES>, interface: &Text<NAME_BYTES>) -> Self {
        let name = format!("{interface} of {}", limit::program(program));
        Self { name, limit: Limit::of(config, program) }
    }
}

/// A peer that does not keep to the protocol, or that we cannot serve. The text goes to the peer as
/// the reason of a disconnect, and to the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// A handshake in either role.
#[derive(Debug)]
pub(super) enum Handshake {
    Server(ServerHandshake),
    Client(ClientHandshake),
}

impl Handshake {
    /// Takes a message. `taken`: another peer has the link (server only).
    pub(super) fn handle(
        &mut self,
        config: &Config,
        message: Message,
        descriptor: Option<File>,
        taken: bool,
    ) -> Result<Step, Refusal> {
        if let Message::Disconnect { reason, .. } = message {
            return Ok(Step::Left(reason.to_string()));
        }
        match self {
            Self::Server(server) => server.handle(config, message, descriptor, taken),
            Self::Client(client) => client.handle(config, message),
        }
    }

    /// Takes what has become of the work that was asked for last.
    pub(super) fn done(&mut self, config: &Config, done: Done) -> Step {
        match (self, done) {
            (Self::Server(server), Done::Secured(ends)) => server.secured(config, ends),
            (Self::Client(client), Done::Offered(offer)) => client.announce(config, offer),
            (Self::Client(client), Done::Secured(ends)) => client.secured(config, ends),
            (Self::Server(_), Done::Offered(_)) => unreachable!("servers ask for no memory"),
        }
    }
}

/// The side that listens.
#[derive(Debug, Default)]
pub(super) struct ServerHandshake {
    state: ServerState,
    announced: Announced,
    /// The peer's program, and then its name for the interface as well.
    program: Text<NAME_BYTES>,
    interface: Text<NAME_BYTES>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ServerState {
    #[default]
    AwaitInit,
    AwaitConnect,
    /// Nothing more is to come, but what is asked for as work.
    Done,
}

impl ServerHandshake {
    /// The message that opens every conversation.
    pub(super) fn hello(config: &Config) -> Message {
        Message::Hello(Hello {
            name: limit::own_name(config),
            version_min: VERSION,
            version_max: VERSION,
            region_max: REGION_INDEX_MAX,
            m2s_ring_max: config.queue_pairs - 1,
            s2m_ring_max: config.queue_pairs - 1,
            ring_size_log2_max: SIZE_LOG2_MAX,
        })
    }

    fn handle(
        &mut self,
        config: &Config,
        message: Message,
        descriptor: Option<File>,
        taken: bool,
    ) -> Result<Step, Refusal> {
        match (self.state, message) {
            (ServerState::AwaitInit, Message::Init(init)) => self.init(config, &init, taken)?,
            (ServerState::AwaitConnect, Message::AddRegion { index, bytes }) => {
                self.add_region(index, bytes, descriptor)?;
            }
            (ServerState::AwaitConnect, Message::AddRing(ring)) => {
                self.add_ring(config, ring, descriptor)?;
            }
            (ServerState::AwaitConnect, Message::Connect { interface }) => {
                return self.connect(config, interface, taken);
            }
            _ => return Err("unexpected message".into()),
        }
        Ok(Step::Reply((Message::Ack, None)))
    }

    fn init(&mut self, config: &Config, init: &Init, taken: bool) -> Result<(), Refusal> {
        if init.version != VERSION {
            return Err("incompatible version, this side speaks 2.0".into());
        }
        if init.id != config.id {
            return Err(Refusal(format!("no interface with id {} here", init.id)));
        }
        if init.mode != MODE_ETHERNET {
            return Err("only Ethernet mode is supported".into());
        }
        if !secret_is_right(config, &init.secret) {
            return Err("wrong secret".into());
        }
        if taken {
            return Err("already connected".into());
        }
        self.program = init.name;
        self.state = ServerState::AwaitConnect;
        Ok(())
    }

    fn add_region(
        &mut self,
        index: u16,
        bytes: u64,
        descriptor: Option<File>,
    ) -> Result<(), Refusal> {
        if usize::from(index) != self.announced.regions.len() || index > REGION_INDEX_MAX {
            return Err("invalid region index".into());
        }
        self.announced.regions.push((bytes, descriptor.ok_or("region without a descriptor")?));
        Ok(())
    }

    fn add_ring(
        &mut self,
        config: &Config,
        ring: AddRing,
        descriptor: Option<File>,
    ) -> Result<(), Refusal> {
        // Bounds what a client can make us hold; `adopt` finds rings announced twice.
        if self.announced.rings.len() >= 2 * usize::from(config.queue_pairs) {
            return Err("too many rings".into());
        }
        self.announced.rings.push((ring, descriptor.ok_or("ring without a descriptor")?));
        Ok(())
    }

    fn connect(
        &mut self,
        config: &Config,
        interface: Text<NAME_BYTES>,
        taken: bool,
    ) -> Result<Step, Refusal> {
        if taken {
            return Err("already connected".into());
        }
        self.state = ServerState::Done;
        self.interface = interface;
        let limit = Limit::of(config, &self.program);
        Ok(Step::Work(Work::Adopt(std::mem::take(&mut self.announced), limit)))
    }

    fn secured(&mut self, config: &Config, ends: Vec<Ends>) -> Step {
        let answer = Message::Connected { interface: Text::new(&config.name) };
        let peer = Peer::new(config, &self.program, &self.interface);
        Step::Established(Some(answer), Established { ends, peer })
    }
}

/// The side that connects and owns the memory.
#[derive(Debug, Default)]
pub(super) struct ClientHandshake {
    state: ClientState,
    /// The peer's program, and then its name for the interface as well.
    program: Text<NAME_BYTES>,
    interface: Text<NAME_BYTES>,
}

#[derive(Debug, Default)]
enum ClientState {
    #[default]
    AwaitHello,
    /// The server has yet to take our `init`.
    AwaitWelcome(Hello),
    /// Announcements still to be sent, one for each acknowledgement.
    AwaitAck(Offer),
    AwaitConnected(Offered),
    /// Nothing more is to come, but what is asked for as work.
    Done,
}

impl ClientHandshake {
    fn handle(&mut self, config: &Config, message: Message) -> Result<Step, Refusal> {
        match (std::mem::replace(&mut self.state, ClientState::Done), message) {
            (ClientState::AwaitHello, Message::Hello(hello)) => self.hello(config, hello),
            (ClientState::AwaitWelcome(hello), Message::Ack) => Ok(Step::Work(Work::Offer(hello))),
            (ClientState::AwaitAck(offer), Message::Ack) => Ok(self.announce(config, offer)),
            (ClientState::AwaitConnected(offered), Message::Connected { interface }) => {
                self.interface = interface;
                Ok(Step::Work(Work::Secure(offered)))
            }
            _ => Err("unexpected message".into()),
        }
    }

    fn hello(&mut self, config: &Config, hello: Hello) -> Result<Step, Refusal> {
        if !(hello.version_min..=hello.version_max).contains(&VERSION) {
            return Err("incompatible version, this side speaks 2.0".into());
        }
        self.program = hello.name;
        self.state = ClientState::AwaitWelcome(hello);
        let init = Init {
            version: VERSION,
            id: config.id,
            mode: MODE_ETHERNET,
            secret: Text::new(config.secret.as_deref().unwrap_or_default()),
            name: limit::own_name(config),
        };
        Ok(Step::Reply((Message::Init(init), None)))
    }

    /// Announces the next part of the offer, or that this is all.
    fn announce(&mut self, config: &Config, mut offer: Offer) -> Step {
        if let Some(parcel) = offer.announcements.pop_front() {
            self.state = ClientState::AwaitAck(offer);
            return Step::Reply(parcel);
        }
        self.state = ClientState::AwaitConnected(offer.offered);
        Step::Reply((Message::Connect { interface: Text::new(&config.name) }, None))
    }

    fn secured(&mut self, config: &Config, ends: Vec<Ends>) -> Step {
        let peer = Peer::new(config, &self.program, &self.interface);
        Step::Established(None, Established { ends, peer })
    }
}

/// Compares all bytes whatever they are, so that the time taken tells nothing about them.
fn secret_is_right(config: &Config, given: &Text<SECRET_BYTES>) -> bool {
    let Some(wanted) = &config.secret else { return true };
    let given = given.as_bytes();
    let same_length = given.len() == wanted.len();
    let difference = (0..SECRET_BYTES).fold(0, |difference, index| {
        let wanted = wanted.as_bytes().get(index).unwrap_or(&0);
        difference | (wanted ^ given.get(index).unwrap_or(&0))
    });
    same_length && difference == 0
}

#[cfg(test)]
mod tests;
