//! For tests of components without engine or NIC: what each is lent, and apps at the other end of
//! the channels.

use std::net::{IpAddr, Ipv4Addr};

use clearway_base::Time;
use clearway_channel::{AppEnd, Completion, DaemonEnd, Sizes};
use clearway_classify::Filter;
use clearway_nic::MacAddress;

use crate::captures::Captures;
use crate::channels::{Channel, Channels};
use crate::common::{Common, EngineCounters};
use crate::control::Allowance;
use crate::host::Host;
use crate::ip::{self, Interface};
use crate::lanes::between;
use crate::loopback::Loopback;
use crate::services::entries;
use crate::switch::Switch;

pub(crate) const NOW: Time = Time::ZERO;
/// The NIC's.
pub(crate) const MAC: MacAddress = [2, 0, 0, 0, 0, 1];
pub(crate) const OTHER_MAC: MacAddress = [2, 0, 0, 0, 0, 2];
/// The UDP port of messages.
pub(crate) const MESSAGES: u16 = 20707;
/// As many apps, of the channels from 0 on.
const APPS: u32 = 2;

/// What a component is lent, and the apps.
pub(crate) struct World {
    /// Of the first of two engines.
    pub(crate) common: Common,
    apps: Vec<AppEnd>,
}

impl World {
    pub(crate) fn new() -> Self {
        let sizes = Sizes {
            submission_entries: 64,
            completion_entries: 64,
            transmit_pool_bytes: 1 << 16,
            receive_pool_bytes: 1 << 20,
            shared_bytes: 0,
        };
        let mut channels = Channels::default();
        let apps = (0..APPS).map(|id| {
            let (daemon, handover) = DaemonEnd::create(sizes).expect("memory");
            channels.insert(
                id,
                Channel::new("app".into(), 7, Box::new(daemon), Allowance::of_connections(16)),
            );
            AppEnd::open(handover, sizes).expect("what was just made")
        });
        let apps = apps.collect();
        let common = Common {
            channels,
            host: Host::new(Interface::new(&config(&[v4(1)])), Vec::new()),
            lanes: between(&[2]).expect("descriptors").swap_remove(0),
            loopback: Loopback::default(),
            switch: switch(&[v4(1)]),
            captures: Captures::default(),
            counters: EngineCounters::default(),
        };
        Self { common, apps }
    }

    pub(crate) fn app(&mut self, channel: u32) -> &mut AppEnd {
        &mut self.apps[channel as usize]
    }

    /// The daemon's end of a channel.
    pub(crate) fn end(&mut self, channel: u32) -> &mut DaemonEnd {
        &mut self.common.channels.channel(channel).expect("it is there").end
    }

    /// Ends a turn, as far as channels are concerned.
    pub(crate) fn flush(&mut self) {
        for id in 0..APPS {
            self.end(id).flush();
        }
    }

    /// What an app has not read yet.
    pub(crate) fn told(&mut self, channel: u32) -> Vec<Completion> {
        let app = self.app(channel);
        let told = std::iter::from_fn(|| app.next_told().expect("sound"));
        told.map(|told| told.completion()).collect()
    }
}

/// The NIC with these addresses.
pub(crate) fn config(addresses: &[IpAddr]) -> ip::Config {
    ip::Config {
        mac: MAC,
        addresses: addresses.iter().map(|address| (*address, 24)).collect(),
        routes: Vec::new(),
        vlan: None,
        mtu: 1500,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: false,
    }
}

/// Its switch, which has the host's services and no VIF.
pub(crate) fn switch(addresses: &[IpAddr]) -> Switch {
    Switch::new(MAC, entries(&config(addresses), MESSAGES))
}

pub(crate) fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

pub(crate) fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
