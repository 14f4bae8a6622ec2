//! A packet on the control socket, as the daemon and as an app get it: nothing panics, and what is
//! understood is the same when it is written and read again.
#![no_main]

use clearway_channel::control::{Reply, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        let again = serde_json::to_vec(&request).expect("plain data");
        assert_eq!(Request::parse(&again).expect("it was understood before"), request);
    }
    if let Ok(reply) = Reply::parse(bytes) {
        let again = serde_json::to_vec(&reply).expect("plain data");
        assert_eq!(Reply::parse(&again).expect("it was understood before"), reply);
    }
});
