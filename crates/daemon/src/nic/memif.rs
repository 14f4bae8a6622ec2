//! A NIC of driver memif: everything comes from the configuration.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clearway_engine::ip;
use clearway_nic::memif::{self, Role, Socket, Watch, Witness};
use clearway_nic::{Error, HEADER_BYTES_MAX, MacAddress, Queue};

use super::{Follower, KernelSide, MTU_BYTES_DEFAULT, OpenNic, default_mac};
use crate::config::{Memif, MemifRole, Nic};
use crate::opener::Means;

/// The largest IP packet that is taken where the configuration does not say: a message of 32 KB is
/// in one. As large packets are sent to a peer that says that it takes them. A peer that says
/// nothing may be a switch or a router of usual packets, and is sent those ([`MTU_BYTES_DEFAULT`]).
const MTU_BYTES_MAX: u16 = 33_000;

pub(super) fn open(nic: &Nic, link: &Memif, means: &Means) -> Result<OpenNic, Error> {
    let mtu_max = nic.mtu_bytes.unwrap_or(MTU_BYTES_MAX);
    let mtu = nic.mtu_bytes.unwrap_or(MTU_BYTES_DEFAULT);
    let mac = link.mac.unwrap_or_else(|| default_mac(nic));
    let role = match link.role {
        MemifRole::Server => Role::Server,
        MemifRole::Client => Role::Client,
    };
    let config = memif::Config {
        id: link.id,
        secret: (!link.secret.is_empty()).then(|| link.secret.clone()),
        queue_pairs: link.queue_pairs,
        name: nic.name.clone(),
        connector: match role {
            Role::Client => means.connector(&nic.name)?,
            Role::Server => None,
        },
        listening: match role {
            Role::Server => means.listening(&nic.name)?,
            Role::Client => None,
        },
        witness: Some(Arc::new(Refusals { nic: nic.name.clone(), last: Mutex::default() })),
        ..memif::Config::new(Socket::from(link.socket.as_str()), role, mac)
    };
    let mut config = config.with_frames(usize::from(mtu_max) + HEADER_BYTES_MAX);
    config.buffer_bytes = link.buffer_bytes.unwrap_or(config.buffer_bytes);
    config.frame_bytes_unsaid = Some(usize::from(mtu) + HEADER_BYTES_MAX);
    let queues = memif::open(config)?;
    let watch = queues.first().map(memif::Queue::watch);
    let queues: Vec<Box<dyn Queue>> =
        queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect();
    let mut opened = without_kernel(nic, queues, mac, mtu);
    opened.interface.mtu_max = Some(mtu_max);
    opened.kernel.follower =
        watch.map(|watch| Follower::of_memif(watch, nic, opened.interface.clone()));
    Ok(opened)
}

/// What packets a link carries; `None` while there is none.
pub(super) fn mtu_of(watch: &Watch) -> Option<u16> {
    let bytes = watch.limit()?.frame_bytes.saturating_sub(HEADER_BYTES_MAX);
    Some(u16::try_from(bytes).unwrap_or(u16::MAX))
}

/// Says in the log why peers are refused. Who is refused mostly tries again at once, for the same
/// reason.
#[derive(Debug)]
struct Refusals {
    nic: String,
    /// What was written last, and when.
    last: Mutex<Option<(String, Instant)>>,
}

/// Time between two lines, and between two that say the same.
const LINE_PAUSE: Duration = Duration::from_secs(1);
const SAME_LINE_PAUSE: Duration = Duration::from_secs(60);

impl Refusals {
    /// True if a line may be written about this.
    fn take(&self, reason: &str, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last.as_ref().is_none_or(|(text, written)| {
            let pause = if text == reason { SAME_LINE_PAUSE } else { LINE_PAUSE };
            now.duration_since(*written) >= pause
        });
        if may {
            *last = Some((reason.to_owned(), now));
        }
        may
    }
}

impl Witness for Refusals {
    fn refused(&self, reason: &str) {
        if self.take(reason, Instant::now()) {
            tracing::warn!(nic = self.nic, "a peer of the memif was refused: {reason}");
        }
    }
}

/// A NIC that is the daemon's alone.
pub(super) fn without_kernel(
    nic: &Nic,
    queues: Vec<Box<dyn Queue>>,
    mac: MacAddress,
    mtu: u16,
) -> OpenNic {
    let interface = ip::Config {
        mac,
        addresses: nic.addresses.iter().map(|n| (n.address, n.prefix_bits)).collect(),
        routes: nic.routes.clone(),
        vlan: nic.vlan,
        mtu,
        mtu_max: None,
        kernel_shares: false,
        router: None,
        receive_checksum: queues.first().is_some_and(|q| q.capabilities().receive_checksum),
    };
    OpenNic { queues, copies: None, interface, kernel: KernelSide::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_do_not_fill_the_log() {
        let refusals = Refusals { nic: "memif0".into(), last: Mutex::default() };
        let start = Instant::now();
        let lines = |reasons: &[&str]| {
            // One every 100 ms, for two minutes.
            let times = (0..1200).map(|number| start + number * Duration::from_millis(100));
            times
                .zip(reasons.iter().cycle())
                .filter(|(now, text)| refusals.take(text, *now))
                .count()
        };
        assert_eq!(lines(&["huge pages"]), 2);
        *refusals.last.lock().unwrap() = None;
        let alternating = lines(&["huge pages", "wrong secret"]);
        assert!((100..=120).contains(&alternating), "{alternating}");
    }
}
