//! The C ABI of the Clearway app library: `libclearway.so`, `libclearway.a`, `clearway.h`.
//!
//! Each function translates its arguments, calls the `client` crate, and translates the result: no
//! logic of its own. Errors are negative numbers (`Code`); a panic becomes `CLEARWAY_INTERNAL` and
//! never crosses the boundary. The header is generated from this crate by its test `header`, and
//! committed.
//!
//! Comments of public items are written for readers of the header.

#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // Names are what C programs see.

mod attach;
mod calls;
mod connect;
mod event;
mod failure;
mod held;
mod message;
mod operation;
mod pointer;
mod posts;
mod region;
mod streams;
mod tcp;
mod vif;

pub use attach::{
    clearway_attach, clearway_channel, clearway_detach, clearway_options, clearway_reattach,
    clearway_reconnected, clearway_waiting,
};
pub use calls::{
    clearway_answer_call, clearway_call, clearway_call_event, clearway_call_event_kind,
    clearway_call_outcome, clearway_call_release, clearway_calls_deadline, clearway_cancel_call,
    clearway_next_call_event, clearway_refusal, clearway_refuse_call, clearway_start_call,
};
pub use connect::{
    clearway_abort, clearway_accept, clearway_address, clearway_close, clearway_connect,
    clearway_listen, clearway_set_silence, clearway_start_connect, clearway_unlisten,
};
pub use event::{
    clearway_arm, clearway_disarm, clearway_event, clearway_event_kind, clearway_fd,
    clearway_next_event, clearway_next_events,
};
pub use failure::{clearway_ended, clearway_last_error, clearway_strerror, clearway_what_ended};
pub use message::{
    clearway_commit, clearway_commit_within, clearway_discard, clearway_flush, clearway_message,
    clearway_recv, clearway_recv_from, clearway_recv_message, clearway_release, clearway_send,
    clearway_send_buffer, clearway_send_within, clearway_tell_skipped, clearway_writable,
};
pub use operation::{
    clearway_batch_list, clearway_batch_read, clearway_next_notified, clearway_next_operated,
    clearway_notified, clearway_operate, clearway_operated, clearway_operated_release,
    clearway_operation, clearway_operation_kind, clearway_start_operation, clearway_start_vector,
    clearway_status_text, clearway_vector_entry,
};
pub use posts::{
    clearway_next_posted, clearway_post, clearway_posted, clearway_unpost, clearway_unposted_text,
};
pub use region::{
    clearway_add_memory, clearway_grant, clearway_grantee, clearway_member, clearway_memory_again,
    clearway_region_options, clearway_remove_memory, clearway_right, clearway_set_group,
    clearway_share, clearway_shared_memory, clearway_unshare,
};
pub use streams::{
    clearway_accept_stream, clearway_open_stream, clearway_set_priority, clearway_set_unordered,
    clearway_share_flows, clearway_start_open_stream, clearway_take_streams,
};
pub use tcp::{
    clearway_tcp_abort, clearway_tcp_accept, clearway_tcp_addresses, clearway_tcp_close,
    clearway_tcp_close_port, clearway_tcp_connect, clearway_tcp_linger, clearway_tcp_listen,
    clearway_tcp_listen_with, clearway_tcp_option, clearway_tcp_port_options, clearway_tcp_ready,
    clearway_tcp_ready_bits, clearway_tcp_recv, clearway_tcp_recv_buf, clearway_tcp_send,
    clearway_tcp_send_buf, clearway_tcp_send_more, clearway_tcp_set, clearway_tcp_shutdown,
    clearway_tcp_start_connect, clearway_tcp_unacknowledged, clearway_tcp_unlisten,
    clearway_tcp_watch,
};
pub use vif::{
    clearway_frame, clearway_frames, clearway_frames_sent, clearway_refused_text, clearway_vif,
    clearway_vif_buffer, clearway_vif_close, clearway_vif_flush, clearway_vif_list,
    clearway_vif_open, clearway_vif_options, clearway_vif_recv, clearway_vif_release,
    clearway_vif_send, clearway_vif_sent,
};
