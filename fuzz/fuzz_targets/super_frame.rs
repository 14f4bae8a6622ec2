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
        assert!(merge.add(frame, frame, usize::MAX, 2) || frame.len() > 30_000);
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
