//! Every counter of a flow that wraps, or of which only the low half travels or is kept, begins
//! just before that: message numbers, packet numbers, counts of marks.

use clearway_base::Random;
use clearway_world::{Faults, Steps};

use super::{Network, bad, mixed_lengths, transfer};
use crate::{Config, Reason};

#[test]
fn a_flow_goes_on_over_every_wrap_and_is_closed_in_order() {
    for seed in 0..10 {
        let mut network = Network::new(seed, &Config::default(), Faults::default(), 4 << 20);
        let keys = network.connected();
        // Until marks are believed, and nothing is in flight.
        transfer(&mut network, keys, &[2000; 20], 4);
        network.run_until(|network| {
            network
                .hosts
                .iter()
                .flat_map(|host| host.endpoint.flows())
                .all(|flow| flow.in_flight_bytes == 0)
        });
        for (host, key) in network.hosts.iter_mut().zip(keys) {
            host.endpoint.flow_of(key).begin_before_wraps();
        }
        let bad = bad(50, 50, 100, 0);
        network.change_link(|faults| *faults = Faults { latency_ns: faults.latency_ns, ..bad });
        network.is_congested = seed % 2 == 0;
        let lengths = mixed_lengths(&mut Random::new(seed), 300);
        transfer(&mut network, keys, &lengths, 16);
        let now = network.now;
        let host = &mut network.hosts[0];
        host.endpoint.close(now, keys[0], &mut host.app);
        network.run_until(|network| network.hosts.iter().all(|host| !host.app.closed.is_empty()));
        for host in &network.hosts {
            assert_eq!(host.app.closed, [Reason::Closed], "seed {seed}");
            assert_eq!(host.endpoint.counters().dropped_violation, 0, "seed {seed}");
        }
        assert_eq!(network.hosts[0].app.sent, 320, "seed {seed}");
    }
}
