//! Frames that go to the kernel, and come from it, with an [`Offload`](crate::segments::Offload) in
//! front (`struct virtio_net_hdr`): what packet sockets and tap devices have in common. *Not* the
//! system calls, which are each driver's own.
//!
//! ```text
//!  engine ─▶ Sender: frames of one flow become one ─▶ Carrier (sendmmsg, or writev) ─▶ kernel
//!        ◀── Stage: what came as one is frames again ◀── the driver's own way ◀─────── kernel
//! ```

mod sender;
mod stage;

pub(crate) use sender::{Carrier, Limits, MESSAGES, Messages, Sender};
pub(crate) use stage::Stage;
