//! A memif control message: nothing panics, and what is understood is the same when it is written
//! and read again.
#![no_main]

use clearway_nic::memif::message::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = parse(bytes) {
        assert_eq!(parse(&message.to_bytes()), Ok(message));
        assert!(format!("{message:?}").is_ascii());
    }
});
