//! A pair of apps, one on each host, that exchange messages all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clearway_client::{Channel, Error};

use super::{Network, PATIENCE, eventually};

/// Exchanges between two looks that count as "goes on".
const PROGRESS: u64 = 200;
/// How long a step may take before the app looks whether it should end.
const STEP: Duration = Duration::from_millis(100);

/// The pair. Dropping it ends it.
pub(crate) struct Traffic {
    exchanges: Arc<AtomicU64>,
    /// Each with what ends it: the one that asks before the one that answers.
    threads: Vec<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Traffic {
    /// Begins on this port of the server's host.
    pub(crate) fn start(network: &Network, port: u16) -> Self {
        let exchanges = Arc::new(AtomicU64::new(0));
        let end_asking = Arc::new(AtomicBool::new(false));
        let end_answering = Arc::new(AtomicBool::new(false));
        let mut server = network.server.attach("traffic-server");
        server.listen(port).expect("listening");
        let mut client = network.client.attach("traffic-client");
        let peer = network.server.at(port);
        let (ends, counts) = (Arc::clone(&end_answering), Arc::clone(&exchanges));
        let answering = std::thread::spawn(move || answer(&mut server, &ends));
        let ends = Arc::clone(&end_asking);
        let asking = std::thread::spawn(move || {
            let connection = client.connect(peer, Some(PATIENCE)).expect("connected");
            let mut buffer = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                let number = counts.load(Ordering::Relaxed);
                let length = 8 + (number * 97 % 4000) as usize;
                let mut message = vec![number as u8; length];
                message[..8].copy_from_slice(&number.to_ne_bytes());
                client.send(connection, &message).expect("sent");
                let (_, received) = client.recv(&mut buffer, Some(PATIENCE)).expect("answered");
                assert_eq!(buffer[..received], message, "an answer is damaged");
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { exchanges, threads: vec![(end_asking, asking), (end_answering, answering)] }
    }

    /// Waits until messages have gone to and fro since now.
    pub(crate) fn goes_on(&self) {
        let before = self.exchanges.load(Ordering::Relaxed);
        eventually("other apps go on", || {
            assert!(
                self.threads.iter().all(|(_, thread)| !thread.is_finished()),
                "an app has ended"
            );
            self.exchanges.load(Ordering::Relaxed) >= before + PROGRESS
        });
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for (end, thread) in self.threads.drain(..) {
            end.store(true, Ordering::Relaxed);
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "an app of the traffic failed");
        }
    }
}

fn answer(channel: &mut Channel, end: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !end.load(Ordering::Relaxed) {
        match channel.recv(&mut buffer, Some(STEP)) {
            Ok((connection, length)) => {
                channel.send(connection, &buffer[..length]).expect("sent");
            }
            Err(Error::TimedOut { .. } | Error::Connection { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
