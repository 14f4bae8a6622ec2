//! The queue over a socket that a test empties in the kernel's place.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::segments::Offload;
use crate::vnet::Limits;

/// More frames than any socket has room for.
const DESCRIPTORS: usize = 1024;
const FRAME_BYTES: usize = 1514;

/// A queue, and where its frames come out.
fn queue() -> (PacketQueue, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (socket, other_end) = pair.expect("two sockets");
    let device = Device::open("lo").expect("every machine has one");
    let info = Info { driver: "af_packet", mode: String::new(), mac: [2; 6] };
    let is_open = Arc::new(AtomicBool::new(false));
    let sender = Sender::new(DESCRIPTORS, FRAME_BYTES, Limits::NONE);
    let (socket, ring) = (Arc::new(socket), Ring::silent());
    let queue = PacketQueue::new(socket, ring, device, info, is_open, sender, FRAME_BYTES);
    assert!(queue.link_up(), "the loopback interface is up");
    (queue, other_end)
}

/// Nobody tells when the socket has room again, and nobody may have anything to send any more.
#[test]
fn what_the_kernel_has_no_room_for_leaves_later_and_nobody_sleeps_on_it() {
    let (mut queue, other_end) = queue();
    for number in 0..DESCRIPTORS as u64 {
        let outcome = queue.transmit(&mut |buffer| {
            buffer[..8].copy_from_slice(&number.to_ne_bytes());
            FRAME_BYTES
        });
        assert_eq!(outcome, Transmit::Queued);
    }
    queue.flush();
    assert!(!queue.arm(), "there is no room for all of them");
    queue.disarm();
    let mut arrived = 0_u64;
    let mut message = [0; Offload::BYTES + FRAME_BYTES];
    while arrived < DESCRIPTORS as u64 {
        let before = arrived;
        while rustix::io::read(&other_end, &mut message) == Ok(message.len()) {
            assert_eq!(message[Offload::BYTES..][..8], arrived.to_ne_bytes());
            arrived += 1;
        }
        assert!(arrived > before, "a look at what has come is enough");
        queue.receive(1, &mut |_, _| ());
    }
    assert!(queue.arm());
    queue.disarm();
}
