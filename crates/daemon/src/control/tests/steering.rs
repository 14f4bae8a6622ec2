//! What is taken from the kernel for virtual interfaces.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use clearway_control::Lost;
use clearway_control::policy::HostPort;
use clearway_nic::MacAddress;
use clearway_nic::interface::{Protocol, SteerPattern, Steering};

use super::*;
use crate::control::NicSlot;
use crate::control::requests::refusal;

type Outcome = Result<(), clearway_nic::Error>;

/// Gives all that it is asked for but one port, and counts the ports that are claimed.
#[derive(Default)]
struct Kernel {
    claimed: Arc<AtomicU32>,
    refused: u16,
}

impl Steering for Kernel {
    fn add_pattern(&mut self, _: &SteerPattern) -> Outcome {
        Ok(())
    }

    fn remove_pattern(&mut self, _: &SteerPattern) -> Outcome {
        Ok(())
    }

    fn add_copies(&mut self, _: &SteerPattern) -> Outcome {
        Ok(())
    }

    fn remove_copies(&mut self, _: &SteerPattern) -> Outcome {
        Ok(())
    }

    fn register_udp_port(&mut self, _: Option<IpAddr>, _: u16) -> Outcome {
        Ok(())
    }

    fn unregister_udp_port(&mut self, _: Option<IpAddr>, _: u16) -> Outcome {
        Ok(())
    }

    fn claim_port(&mut self, _: Protocol, _: IpAddr, port: u16) -> Outcome {
        if port == self.refused {
            return Err(clearway_nic::Error::Invalid("another has it".to_owned()));
        }
        self.claimed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn release_port(&mut self, _: Protocol, _: IpAddr, _: u16) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
    }

    fn add_own_address(&mut self, _: IpAddr) -> Outcome {
        Ok(())
    }

    fn add_shared_address(&mut self, _: IpAddr) -> Outcome {
        Ok(())
    }

    fn remove_address(&mut self, _: IpAddr) -> Outcome {
        Ok(())
    }

    fn add_mac(&mut self, _: MacAddress, _: bool) -> Outcome {
        Ok(())
    }

    fn remove_mac(&mut self, _: MacAddress) -> Outcome {
        Ok(())
    }
}

/// A NIC that this kernel shares.
fn slot(kernel: Kernel) -> NicSlot {
    let address = Network { address: [10, 9, 1, 1].into(), prefix_bits: 24 };
    let nic = Nic::memif("shared", Memif::new("@clearway-none", MemifRole::Server), address);
    let mut slot = NicSlot::not_open(nic);
    slot.steering = Some(Box::new(kernel));
    slot
}

fn udp(port: u16) -> HostPort {
    (Protocol::Udp, [10, 9, 1, 1].into(), port)
}

/// Each port takes an open file: all of them are there, or none is taken.
#[test]
fn ports_take_none_of_the_open_files_that_are_reserved() {
    let kernel = Kernel::default();
    let claimed = Arc::clone(&kernel.claimed);
    let mut slot = slot(kernel);
    let ports: HashSet<HostPort> = (2000..2004).map(udp).collect();
    let left = Cell::new(3);
    let may_be = || match left.get() {
        0 => Err(refusal(Code::Limit, "none is left")),
        count => {
            left.set(count - 1);
            Ok(())
        }
    };
    assert_eq!(slot.claim(&ports, may_be).expect_err("there are three").code, Code::Limit);
    assert_eq!(claimed.load(Ordering::Relaxed), 0);
    assert_eq!(slot.claim(&ports, || Ok(())), Ok(()));
    assert_eq!(claimed.load(Ordering::Relaxed), 4);
}

/// Of what interfaces had, it says what it does not give any more.
#[test]
fn a_nic_that_is_opened_again_says_what_is_lost() {
    let mut slot = slot(Kernel::default());
    assert_eq!(slot.claim(&[udp(2000), udp(2001)].into(), || Ok(())), Ok(()));
    slot.steering = Some(Box::new(Kernel { refused: 2001, ..Kernel::default() }));
    let lost: Vec<Lost> = slot.ask_again().into_iter().map(|(lost, _)| lost).collect();
    assert_eq!(lost, [Lost::Port(udp(2001))]);
}
