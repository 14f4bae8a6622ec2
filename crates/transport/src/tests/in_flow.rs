//! Two hosts, and the connections of one flow between them.

use std::collections::{HashMap, VecDeque};

use clearway_base::Time;
use clearway_wire::Ecn;
use clearway_world::Steps;

use super::{FIRST_STREAM, Faults, Network, WINDOW, content, forged};
use crate::{Config, FlowKey, NoStream, Owner, Reason, StreamKey};

/// Streams that a test opens in a connection have owners from here on.
const OPENED: u32 = 2 * FIRST_STREAM;

pub(super) struct Streams {
    pub(super) network: Network,
    /// The flow, where it is a connection of its own, or begun by the host.
    flows: [Option<FlowKey>; 2],
    /// The owner of the first stream that a host opens: the next ones follow.
    first_owner: u32,
    /// How many were opened by each host.
    pub(super) opened: [u32; 2],
    pub(super) names: [HashMap<Owner, StreamKey>; 2],
    /// Messages by stream that host 0, or 1, has got.
    pub(super) got: [HashMap<u32, Vec<Vec<u8>>>; 2],
    /// Streams of the messages that have come, in the order in which they did.
    pub(super) order: Vec<u32>,
}

impl Streams {
    /// In a flow that is a connection, too.
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self::on(seed, faults, OPENED, |network| network.connected().map(Some))
    }

    /// In a flow that host 0 has begun, and that is nobody's.
    pub(super) fn shared(seed: u64, faults: Faults) -> Self {
        Self::on(seed, faults, 1, |network| [Some(network.begin_shared()), None])
    }

    fn on(
        seed: u64,
        faults: Faults,
        first_owner: u32,
        begin: impl FnOnce(&mut Network) -> [Option<FlowKey>; 2],
    ) -> Self {
        let mut network = Network::new(seed, &Config::default(), faults, 64 << 20);
        let flows = begin(&mut network);
        network.hosts.iter_mut().for_each(|host| host.app.transmit_pool = content(0, 1 << 20));
        let (names, got, order) = Default::default();
        Self { network, flows, first_owner, opened: [0; 2], names, got, order }
    }

    /// The flow, as a host calls it.
    pub(super) fn flow(&self, host: usize) -> FlowKey {
        let accepted = || self.network.hosts[host].app.streams.first().expect("accepted").1.flow;
        self.flows[host].unwrap_or_else(accepted)
    }

    /// A stream, as a host calls it.
    pub(super) fn at(&self, host: usize, stream: StreamKey) -> StreamKey {
        StreamKey { flow: self.flow(host), ..stream }
    }

    pub(super) fn try_open(&mut self, host: usize) -> Result<StreamKey, NoStream> {
        let owner = Owner { channel: 1, connection: self.first_owner + self.opened[host] };
        let flow = self.flow(host);
        let (now, endpoint) = (self.network.now, &mut self.network.hosts[host].endpoint);
        let key = endpoint.open_stream(now, flow, owner, WINDOW)?;
        self.opened[host] += 1;
        self.names[host].insert(owner, key);
        Ok(key)
    }

    pub(super) fn open(&mut self, host: usize) -> StreamKey {
        let stream = self.try_open(host);
        stream.unwrap_or_else(|none| panic!("{none:?}: {}", self.network.describe()))
    }

    pub(super) fn send(&mut self, host: usize, to: impl Into<StreamKey>, offset: u32, length: u32) {
        self.network.hosts[host].endpoint.send(self.network.now, to, offset, length);
    }

    pub(super) fn close(&mut self, host: usize, of: impl Into<StreamKey>) {
        let (now, host) = (self.network.now, &mut self.network.hosts[host]);
        host.endpoint.close(now, of, &mut host.app);
    }

    pub(super) fn abort(&mut self, host: usize, of: impl Into<StreamKey>) {
        let host = &mut self.network.hosts[host];
        host.endpoint.abort(of, Reason::Reset, &mut host.app);
    }

    /// Takes what has come to a host, but for messages of this stream.
    pub(super) fn read(&mut self, host: usize, but: u32) {
        let now = self.network.now;
        let own = self.flows[host].map(StreamKey::from);
        let at = &mut self.network.hosts[host];
        self.names[host].extend(at.app.streams.iter().copied());
        let mut kept = VecDeque::new();
        while let Some((owner, buffer)) = at.app.delivered.pop_front() {
            let key = self.names[host].get(&owner).copied().or(own).expect("of a stream");
            if key.stream == but {
                kept.push_back((owner, buffer));
                continue;
            }
            let message = at.app.release(buffer);
            at.endpoint.release(now, key, 1, u64::from(buffer.length));
            self.order.push(key.stream);
            self.got[host].entry(key.stream).or_default().push(message);
        }
        at.app.delivered = kept;
    }

    pub(super) fn count(&self, host: usize, stream: StreamKey) -> usize {
        self.got[host].get(&stream.stream).map_or(0, Vec::len)
    }

    pub(super) fn ends(&self, host: usize) -> Vec<Reason> {
        self.network.hosts[host].app.ended.iter().map(|(_, reason)| *reason).collect()
    }

    /// A data packet that nobody has sent comes to a host, with these frames. True if it was
    /// taken.
    pub(super) fn inject(
        &mut self,
        to: usize,
        number: u64,
        emit: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        let bytes = forged(self.flow(to).id(), number, emit);
        let (now, from) = (self.network.now, self.network.hosts[1 - to].address);
        let host = &mut self.network.hosts[to];
        let before = host.endpoint.counters().dropped_violation;
        host.handle(now, from, Ecn::Capable, &bytes);
        host.endpoint.counters().dropped_violation == before
    }
}

impl Steps for Streams {
    fn now(&self) -> Time {
        self.network.now
    }

    fn step(&mut self) -> bool {
        let goes_on = self.network.step();
        (0..2).for_each(|host| self.read(host, u32::MAX));
        goes_on
    }

    fn describe(&self) -> String {
        self.network.describe()
    }
}
