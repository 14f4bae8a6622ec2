//! A frame and what a kernel says of it: nothing panics, what is cut is all there, and what is
//! merged comes out as it was.
#![no_main]

use clearway_nic::segments::{Cut, Merge, Offload, complete};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((offload, frame)) = bytes.split_first_chunk() else { return };
    let offload = Offload::from_bytes(*offload);
    if let Some(cut) = Cut::new(&offload, frame, frame.len()) {
        let frames = frames_of(&cut, frame);
        let payload: Vec<u8> =
            frames.iter().flat_map(|frame| &frame[cut.header_bytes()..]).copied().collect();
        assert_eq!(payload, frame[cut.header_bytes()..]);
    }
    if let Some(mut merge) = Merge::new(frame) {
        let next = next_of(&merge, frame);
        assert!(merge.add(frame, &next, usize::MAX, 2) || frame.len() > 30_000);
        let mut whole = frame.to_vec();
        let offload = merge.put_headers(frame, &mut whole);
        for _ in 1..merge.frames() {
            whole.extend(&frame[merge.header_bytes()..]);
        }
        let cut = Cut::new(&offload, &whole, whole.len()).expect("what was merged can be cut");
        assert_eq!(frames_of(&cut, &whole).len(), merge.frames());
    }
    let mut completed = frame.to_vec();
    let _ = complete(&offload, &mut completed, 0);
});

/// One that follows `frame` and can be merged with it.
fn next_of(merge: &Merge, frame: &[u8]) -> Vec<u8> {
    const SEQUENCE_AT: usize = 4;
    let mut next = frame.to_vec();
    if !merge.is_tcp() {
        return next;
    }
    // Behind up to two VLAN tags, and an IP header without options.
    let transport_at = (14..)
        .step_by(4)
        .find_map(|ip_at| match &frame[ip_at - 2..ip_at] {
            [0x08, 0x00] => Some(ip_at + 20),
            [0x86, 0xdd] => Some(ip_at + 40),
            _ => None,
        })
        .expect("a segment is in an IP packet");
    let field = &mut next[transport_at + SEQUENCE_AT..][..4];
    let sequence = u32::from_be_bytes(field.try_into().expect("4 bytes"));
    let payload_bytes = (frame.len() - merge.header_bytes()) as u32;
    field.copy_from_slice(&sequence.wrapping_add(payload_bytes).to_be_bytes());
    next
}

fn frames_of(cut: &Cut, whole: &[u8]) -> Vec<Vec<u8>> {
    let (headers, payload) = whole.split_at(cut.header_bytes());
    (0..cut.frames())
        .map(|index| {
            let mut frame = [headers, &payload[cut.segment(index)]].concat();
            cut.put_headers(index, &mut frame);
            frame
        })
        .collect()
}
