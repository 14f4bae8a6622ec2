//! What can be told of a connection.

use std::ffi::c_int;

use lab::state_number;

use crate::hosts::call_of;
use crate::pointer::store;

/// A connection, as `ss -ti` shows it. Sizes are in bytes of the stream, times in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct clearway_lab_info {
    /// The state: TCP_ESTABLISHED and so on, as <netinet/tcp.h> has them; TCP_TIME_WAIT, too.
    pub state: u32,
    /// What is done about loss: 0 nothing, 1 fast recovery, 2 a timeout.
    pub recovery: u32,
    /// By how much windows are shifted: those of the peer, and of this host.
    pub send_window_scale: u32,
    /// See `send_window_scale`.
    pub receive_window_scale: u32,
    /// 1 if agreed on: timestamps, selective acknowledgements, congestion notification.
    pub timestamps: u32,
    /// See `timestamps`.
    pub sack: u32,
    /// See `timestamps`.
    pub ecn: u32,
    /// 1 if packets have been seen to overtake each other.
    pub reordering: u32,
    /// Payload of a full segment; the path's MTU.
    pub segment_bytes: u32,
    /// See `segment_bytes`.
    pub path_mtu: u32,
    /// How often the retransmission timeout has been doubled; how often what is outstanding was
    /// sent again for nothing.
    pub rto_doublings: u32,
    /// See `rto_doublings`.
    pub retries: u32,
    /// The retransmission timeout.
    pub rto_ns: u64,
    /// The smoothed round-trip time, its variation, the lowest; 0 if nothing was measured.
    pub rtt_ns: u64,
    /// See `rtt_ns`.
    pub rtt_variation_ns: u64,
    /// See `rtt_ns`.
    pub min_rtt_ns: u64,
    /// The congestion window, and how much of it is in flight.
    pub window_bytes: u64,
    /// See `window_bytes`.
    pub in_flight_bytes: u64,
    /// The window at which slow start ends; UINT64_MAX if there is none.
    pub slow_start_threshold_bytes: u64,
    /// What the peer has room for, and this host; the latter's buffer.
    pub send_window_bytes: u64,
    /// See `send_window_bytes`.
    pub receive_window_bytes: u64,
    /// See `send_window_bytes`.
    pub receive_buffer_bytes: u64,
    /// Of what is outstanding: what has arrived, what is lost.
    pub sacked_bytes: u64,
    /// See `sacked_bytes`.
    pub lost_bytes: u64,
    /// What is acknowledged; what is not; what of that was never sent.
    pub acknowledged_bytes: u64,
    /// See `acknowledged_bytes`.
    pub queued_bytes: u64,
    /// See `acknowledged_bytes`.
    pub unsent_bytes: u64,
    /// What has come in order; what of that was not read; what has come out of order.
    pub received_bytes: u64,
    /// See `received_bytes`.
    pub unread_bytes: u64,
    /// See `received_bytes`.
    pub out_of_order_bytes: u64,
    /// Segments sent, of those sent again, and come.
    pub segments_sent: u64,
    /// See `segments_sent`.
    pub segments_retransmitted: u64,
    /// See `segments_sent`.
    pub segments_received: u64,
}

/// What can be told of a connection. -ENOTCONN if the descriptor has none.
///
/// # Safety
/// `info` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clearway_lab_get_info(
    host: c_int,
    fd: c_int,
    info: *mut clearway_lab_info,
) -> c_int {
    call_of(host, |host| {
        let found = clearway_lab_info::from(&host.info(fd)?);
        // SAFETY: the caller's promise.
        unsafe { store(info, found) };
        Ok(0)
    })
}

impl From<&lab::Info> for clearway_lab_info {
    fn from(info: &lab::Info) -> Self {
        Self {
            state: state_number(info.state).into(),
            recovery: match info.recovery {
                "recovery" => 1,
                "loss" => 2,
                _ => 0,
            },
            send_window_scale: info.window_scales.0.into(),
            receive_window_scale: info.window_scales.1.into(),
            timestamps: info.timestamps.into(),
            sack: info.sack.into(),
            ecn: info.ecn.into(),
            reordering: info.reordering.into(),
            segment_bytes: info.segment_bytes,
            path_mtu: info.path_mtu.into(),
            rto_doublings: info.rto_doublings.into(),
            retries: info.retries.into(),
            rto_ns: info.rto_ns,
            rtt_ns: info.rtt_ns,
            rtt_variation_ns: info.rtt_variation_ns,
            min_rtt_ns: info.min_rtt_ns,
            window_bytes: info.window_bytes,
            in_flight_bytes: info.in_flight_bytes,
            slow_start_threshold_bytes: info.slow_start_threshold_bytes.unwrap_or(u64::MAX),
            send_window_bytes: info.send_window_bytes,
            receive_window_bytes: info.receive_window_bytes,
            receive_buffer_bytes: info.receive_buffer_bytes.into(),
            sacked_bytes: info.sacked_bytes,
            lost_bytes: info.lost_bytes,
            acknowledged_bytes: info.acknowledged_bytes,
            queued_bytes: info.queued_bytes,
            unsent_bytes: info.unsent_bytes,
            received_bytes: info.received_bytes,
            unread_bytes: info.unread_bytes,
            out_of_order_bytes: info.out_of_order_bytes,
            segments_sent: info.segments_sent,
            segments_retransmitted: info.segments_retransmitted,
            segments_received: info.segments_received,
        }
    }
}
