//! The C ABI of the lab: `libclearway_lab.so`, `clearway_lab.h`. `docs/lab.md` is for its users.
//!
//! Each function translates its arguments, calls the `lab` crate, and translates the result: no
//! logic of its own. Hosts and descriptors are numbers, which are looked up: one that is wrong is
//! EBADF. Errors are negative error numbers; a panic becomes one, too, and never crosses the
//! boundary. The header is generated from this crate by its test `header`, and committed.
//!
//! Comments of public items are written for readers of the header.

#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // Names are what C programs see.

mod calls;
mod host;
mod hosts;
mod info;
mod options;
mod pointer;
mod wait;

pub use calls::{
    clearway_lab_accept, clearway_lab_bind, clearway_lab_close, clearway_lab_connect,
    clearway_lab_fcntl, clearway_lab_getpeername, clearway_lab_getsockname, clearway_lab_ioctl,
    clearway_lab_listen, clearway_lab_recv, clearway_lab_recvmsg, clearway_lab_send,
    clearway_lab_sendto, clearway_lab_shutdown, clearway_lab_socket,
};
pub use host::{
    clearway_lab_add_address, clearway_lab_advance, clearway_lab_await_waiting,
    clearway_lab_create, clearway_lab_destroy, clearway_lab_get, clearway_lab_next,
    clearway_lab_now, clearway_lab_options, clearway_lab_put_packet, clearway_lab_returned,
    clearway_lab_run, clearway_lab_set, clearway_lab_take_packet, clearway_lab_waiting,
};
pub use info::{clearway_lab_get_info, clearway_lab_info};
pub use options::{clearway_lab_getsockopt, clearway_lab_setsockopt};
pub use wait::{
    clearway_lab_epoll_create, clearway_lab_epoll_ctl, clearway_lab_epoll_wait, clearway_lab_poll,
};
