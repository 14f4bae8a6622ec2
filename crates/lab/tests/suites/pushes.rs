//! Where PSH stands, as Linux sets it: scripts for Linux compare it. RFC 9293, section 3.9.1.2,
//! has it in "the last buffered segment", and leaves the rest to the sender.

use crate::script::{Script, cases, host, listening};

/// A connection, descriptor 4, over a path of 0.1 s, with `segments` in each burst.
fn connection(segments: u8) -> Script {
    host().play(&format!(
        "set tcp_min_tso_segs {segments}
         socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
         < S 0:0(0) win 65535 <mss 1000>; > S. 0:0(0) ack 1
         +0.1 < . 1:1(0) ack 1 win 65535; accept 3 = 4; nonblock 4 = 0"
    ))
}

cases! {
    /// The end of each burst of several segments has it, and the end of what was written.
    bursts_of_two: connection(2) => "
        write 4 5000 = 5000
        > . 1:1001(1000) ack 1; > P. 1001:2001(1000) ack 1
        > . 2001:3001(1000) ack 1; > P. 3001:4001(1000) ack 1; > P. 4001:5001(1000) ack 1";

    /// A burst of one has none of its own.
    a_burst_of_one: host() => "
        set initial_window 5; set tcp_min_tso_segs 2
        socket = 3; nonblock 3 = 0; bind 3 80 = 0; listen 3 5 = 0
        < S 0:0(0) win 65535 <mss 1000>; > S. 0:0(0) ack 1
        +0.1 < . 1:1(0) ack 1 win 65535; accept 3 = 4; nonblock 4 = 0; write 4 6000 = 6000
        > *; > P. 1001:2001(1000) ack 1; > *; > P. 3001:4001(1000) ack 1
        > . 4001:5001(1000) ack 1";

    /// Half a window is the most that leaves at once.
    bursts_of_half_a_window: connection(10) => "
        write 4 12000 = 12000
        > *; > *; > *; > . 3001:4001(1000) ack 1; > P. 4001:5001(1000) ack 1
        > *; > *; > *; > . 8001:9001(1000) ack 1; > P. 9001:10001(1000) ack 1";

    /// Before a round trip is known only that bounds it.
    bursts_over_no_distance: listening() => "
        set tcp_min_tso_segs 2; socket = 4; nonblock 4 = 0; bind 4 81 = 0; listen 4 5 = 0; local 81
        < S 0:0(0) win 65535 <mss 1000>; > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 win 65535; accept 4 = 5; nonblock 5 = 0
        write 5 6000 = 6000
        > *; > *; > *; > . 3001:4001(1000) ack 1; > P. 4001:5001(1000) ack 1
        > P. 5001:6001(1000) ack 1";

    /// The end of what was written has it when more stands behind it.
    the_end_of_a_write: connection(2) => "
        option 4 nodelay 1 = 0; write 4 10400 = 10400; > *; > *; > *; > *; > *; > *; > *; > *
        > . 8001:9001(1000) ack 1; > P. 9001:10001(1000) ack 1
        send 4 400 eor = 400; write 4 400 = 400
        +0.1 < . 1:1(0) ack 10001 win 65535
        > P. 10001:10801(800) ack 1; > P. 10801:11201(400) ack 1";

    /// Whoever says that more will follow does not push, but silence does.
    more_to_come: connection(2) => "
        option 4 nodelay 1 = 0; send 4 40 more = 40
        +0.3 > P. 1:41(40) ack 1; < . 1:1(0) ack 41 win 65535
        send 4 40 more = 40; option 4 nodelay 1 = 0; > . 41:81(40) ack 1";
}
