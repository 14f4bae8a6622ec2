//! What must hold for an engine, whatever happens, and what must hold when it rests.

pub(crate) mod credit;
pub(crate) mod shares;
pub(crate) mod turns;

use clearway_base::SECOND;
use clearway_engine::Snapshot;

use crate::Finding;

/// No window is larger, as `transport` promises.
const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// What is in flight was within a window once; as much again for probes.
const IN_FLIGHT_BYTES_MAX: u64 = 2 * WINDOW_BYTES_MAX;
/// Completions that wait for one app: what the windows of its connections allow.
const WAITING_MAX: u64 = 100_000;
/// How long after the last app has heard of its last connection flows may linger: a peer that died
/// is missed after the idle timeout.
pub(crate) const LINGER_NS: u64 = 35 * SECOND;

/// Bounds that always hold.
pub(crate) fn bounds(snapshot: &Snapshot) -> Result<(), Finding> {
    for flow in &snapshot.flows {
        let window = flow.congestion_window_bytes;
        let is_open = flow.path == "wire" && flow.state == "open";
        if is_open && (window == 0 || window > WINDOW_BYTES_MAX) {
            return found(snapshot, format!("a congestion window of {window} bytes"));
        }
        if flow.in_flight_bytes > IN_FLIGHT_BYTES_MAX {
            return found(snapshot, format!("{} bytes in flight", flow.in_flight_bytes));
        }
    }
    for channel in &snapshot.channels {
        if channel.messages_waiting > WAITING_MAX {
            return found(snapshot, format!("{} completions wait", channel.messages_waiting));
        }
    }
    Ok(())
}

/// Nothing is open: then nothing is left.
pub(crate) fn rest(snapshot: &Snapshot) -> Result<(), Finding> {
    if let Some(flow) = snapshot.flows.first() {
        return found(snapshot, format!("a flow is left: {flow:?}"));
    }
    for channel in &snapshot.channels {
        let waiting = (channel.messages_waiting, channel.message_too_large_bytes);
        let left = (channel.connections, channel.receive_pool_bytes_used, waiting);
        if left != (0, 0, (0, 0)) {
            return found(snapshot, format!("a channel at rest has something left: {channel:?}"));
        }
    }
    Ok(())
}

/// What is to happen is bounded by what the NICs and links can hold.
pub(crate) fn agenda(entries: usize, hosts: usize) -> Result<(), Finding> {
    if entries > hosts * 50_000 {
        return Err(Finding::new(format!("{entries} things are to happen to {hosts} hosts")));
    }
    Ok(())
}

fn found(snapshot: &Snapshot, what: String) -> Result<(), Finding> {
    Err(Finding::new(format!("{}: {what}", snapshot.engine)))
}
