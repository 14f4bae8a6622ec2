//! What the apps of a simulated host say: streams that never end, and small messages at intervals.
//! No bytes are moved: what is measured is when messages arrive, not what they say.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clearway_base::Time;
use clearway_transport::{
    App, Buffer, Delivered, FlowKey, Order, Owner, Reason, Room, StreamKey, Undelivered,
};

/// What one flow is given to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// So many messages of this size are always on their way.
    Stream { message_bytes: u32, outstanding: u32 },
    /// A message at each interval, as long as it lasts.
    Ticks { message_bytes: u32, interval_ns: u64 },
    /// Nothing; the other side sends.
    Silent,
}

/// One end of a flow.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) key: FlowKey,
    pub(super) load: Load,
    /// The other end: its host, and the service port of the flow.
    pub(super) peer: SocketAddr,
    pub(super) port: u16,
    pub(super) is_open: bool,
    pub(super) open_messages: u32,
    pub(super) next_tick: Time,
    /// When the messages were sent that have not been delivered. Kept at the sender.
    pub(super) sent_at: VecDeque<Time>,
    /// Messages delivered here that the world has not looked at: their lengths.
    pub(super) delivered: VecDeque<u32>,
    pub(super) delivered_bytes: u64,
}

/// The apps of a host.
#[derive(Debug, Default)]
pub(super) struct Apps {
    pub(super) sides: Vec<Side>,
    /// What a peer may send ahead.
    pub(super) window: u64,
    pub(super) closed: Vec<Reason>,
    /// Connections with something in `delivered`.
    pub(super) fresh: Vec<u32>,
}

impl Apps {
    pub(super) fn add(&mut self, key: FlowKey, peer: SocketAddr, port: u16, load: Load) -> Owner {
        let connection = self.sides.len() as u32;
        self.sides.push(Side {
            key,
            load,
            peer,
            port,
            is_open: false,
            open_messages: 0,
            next_tick: Time::ZERO,
            sent_at: VecDeque::new(),
            delivered: VecDeque::new(),
            delivered_bytes: 0,
        });
        Owner { channel: 0, connection }
    }

    fn side(&mut self, owner: Owner) -> &mut Side {
        &mut self.sides[owner.connection as usize]
    }
}

impl App for Apps {
    fn read(&self, _: Owner, _: u32, _: &mut [u8]) {}

    fn allocate(&mut self, _: Owner, length: u32) -> Option<Buffer> {
        Some(Buffer { id: 0, offset: 0, length })
    }

    fn begin(&mut self, owner: Owner, length: u32, _: Order, _: Room) -> Option<Buffer> {
        self.allocate(owner, length)
    }

    fn write(&mut self, _: Owner, _: Buffer, _: u32, _: &[u8]) {}

    fn finish(&mut self, _: Owner, _: Buffer, _: Order) {}

    fn discard(&mut self, _: Owner, _: Buffer, _: Order) {}

    fn deliver(&mut self, owner: Owner, buffer: Buffer) -> Delivered {
        let side = self.side(owner);
        side.delivered_bytes += u64::from(buffer.length);
        side.delivered.push_back(buffer.length);
        if side.delivered.len() == 1 {
            self.fresh.push(owner.connection);
        }
        Delivered::Held
    }

    fn sent(&mut self, owner: Owner, messages: u32) {
        self.side(owner).open_messages -= messages;
    }

    fn accept(
        &mut self,
        listener: Owner,
        key: StreamKey,
        _: SocketAddr,
        peer: SocketAddr,
    ) -> Option<(Owner, u64)> {
        // The listener's connection is its service port.
        let owner = self.add(key.flow, peer, listener.connection as u16, Load::Silent);
        self.side(owner).is_open = true;
        Some((owner, self.window))
    }

    fn connected(&mut self, owner: Owner) {
        self.side(owner).is_open = true;
    }

    fn closed(&mut self, _: Owner, reason: Reason) {
        self.closed.push(reason);
    }

    fn pong(&mut self, _: u64, _: Result<u64, Undelivered>) {}
}
