//! The simulations in small, and what the default has to reach in them.

use clearway_base::{MICROSECOND, MILLISECOND};
use clearway_transport::Congestion;
use clearway_world::Faults;

use super::scenarios::{self, GBIT, PathShape};
use super::world::Bottleneck;

const LOCAL: PathShape = PathShape { bits_per_s: 10 * GBIT, rtt_ns: 50 * MICROSECOND };

#[test]
fn the_default_fills_a_lossy_link_and_keeps_its_queue_short() {
    for loss_ppm in [0, 10_000, 50_000] {
        let (faults, case) = scenarios::random_loss(loss_ppm);
        let outcome = scenarios::goodput(Congestion::Swift, LOCAL, LOCAL.link(faults), case);
        assert!(outcome.figure("of ideal") > 0.95, "{outcome:?}");
        assert!(outcome.figure("queue p99 us") < 150.0, "{outcome:?}");
    }
}

#[test]
fn both_fill_a_link_without_faults() {
    for control in Congestion::ALL {
        let case = String::new();
        let outcome = scenarios::goodput(control, LOCAL, LOCAL.link(Faults::default()), case);
        assert!(outcome.figure("of ideal") > 0.95, "{outcome:?}");
        assert_eq!(outcome.figure("ended"), 0.0, "{outcome:?}");
    }
}

/// Where a full packet takes longer than the handshake's by more than the queue that is accepted.
#[test]
fn the_default_fills_a_slow_and_long_link() {
    let path = PathShape { bits_per_s: GBIT / 10, rtt_ns: 20 * MILLISECOND };
    let link = path.link(Faults::default());
    let outcome = scenarios::goodput(Congestion::Swift, path, link, String::new());
    assert!(outcome.figure("of ideal") > 0.9, "{outcome:?}");
}

#[test]
fn a_hundred_senders_share_a_link_without_loss() {
    let path = PathShape { bits_per_s: 10 * GBIT, rtt_ns: 20 * MICROSECOND };
    let outcome = scenarios::incast(Congestion::Swift, path, 100);
    assert!(outcome.figure("then, of ideal") > 0.95, "{outcome:?}");
    assert!(outcome.figure("Jain") > 0.95, "{outcome:?}");
    assert_eq!(outcome.figure("then"), 0.0, "overflows: {outcome:?}");
}

#[test]
fn who_comes_later_gets_as_much() {
    let rtts_ns = [50 * MICROSECOND; 2];
    let outcome = scenarios::sharing(Congestion::Swift, 10 * GBIT, &rtts_ns, "2");
    assert!(outcome.figure("Jain") > 0.9, "{outcome:?}");
}

#[test]
fn an_outage_is_over_soon_after_it_ends() {
    for control in Congestion::ALL {
        let path = PathShape { bits_per_s: GBIT, rtt_ns: MILLISECOND };
        let outcome = scenarios::outage(control, path);
        assert!(outcome.figure("90 % after ms") < 250.0, "{outcome:?}");
        assert_eq!(outcome.figure("ended"), 0.0, "{outcome:?}");
    }
}

/// Bursts are of time: a flow that is silent meanwhile loses nothing by them.
#[test]
fn the_default_gets_through_bursts_of_loss() {
    let link =
        Bottleneck { interruptions: (500, 24 * MICROSECOND), ..LOCAL.link(Faults::default()) };
    let outcome = scenarios::goodput(Congestion::Swift, LOCAL, link, String::new());
    assert!(outcome.figure("of ideal") > 0.9, "{outcome:?}");
}
