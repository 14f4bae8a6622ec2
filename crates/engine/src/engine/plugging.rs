//! Queues come and go while an engine runs: its NIC was removed and made again, or is configured
//! otherwise. Flows, apps, interfaces and timers stay; a flow sends again what was in the queues.

use clearway_base::Time;
use clearway_nic::Roomy;
use rustix::event::epoll;

use super::bursts::Bursts;
use super::looks::Looks;
use super::{Engine, ip};
use crate::component::Component;
use crate::control::Plug;

impl<X: Component<Owner = ()>> Engine<X> {
    /// Serves other queues from now on, with this network behind them. Returns those so far.
    pub(super) fn plug(&mut self, plug: Plug, network: ip::Config, now: Time) -> Plug {
        let Plug { mut queues, copies } = plug;
        let before = self.queues.first().map_or(0, |queue| queue.capabilities().frame_bytes_max);
        if !queues.is_empty() {
            let first = queues.remove(0);
            queues.insert(0, Roomy::wrap(first, before));
        }
        for fd in self.queues.iter().chain(&self.copies).filter_map(|queue| queue.wait_fd()) {
            // Not there if a link has gone, and its descriptor with it.
            let _ = epoll::delete(&self.sleep, fd);
        }
        let mut unplugged =
            Plug { queues: core::mem::replace(&mut self.queues, queues), copies: None };
        unplugged.copies = core::mem::replace(&mut self.copies, copies);
        for fd in self.queues.iter().chain(&self.copies).filter_map(|queue| queue.wait_fd()) {
            let data = epoll::EventData::new_u64(0);
            if let Err(error) = epoll::add(&self.sleep, fd, data, epoll::EventFlags::IN) {
                tracing::error!(%error, "cannot wait for a queue; its frames may be late");
            }
        }
        (self.looks, self.bursts) = (Looks::of(&self.queues), Bursts::of(&self.queues));
        // Who is at the other end has to hear of this host again.
        self.was_up = false;
        self.core.set_network(now, network);
        unplugged
    }
}
