//! RFC 9293, Transmission Control Protocol.

use super::script::begin::*;
use super::script::{Script, cases};

cases! {
    /// 3.5: "three-way handshake": figure 6.
    handshake_as_a_client: closed() => "
        connect
        > S 0:0(0) win 10000 <mss 1460>
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > . 1:1(0) ack 1
        state ESTAB; segment 1000; peer_window 10000";

    /// 3.5: the same, seen from the other side.
    handshake_as_a_server: listening() => "
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1 win 10000 <mss 1460>
        < . 1:1(0) ack 1 win 10000
        accept; state ESTAB; segment 1000";

    /// 3.5, figure 7: "Simultaneous connection synchronization".
    simultaneous_open: closed() => "
        connect
        > S 0:0(0) win 10000 <mss 1460>
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1 win 10000 <mss 1460>
        state SYN-RECV
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        state ESTAB
        send 10
        > P. 1:11(10) ack 1";

    /// 3.5, figure 7, where the last segment is a plain acknowledgement.
    simultaneous_open_with_a_plain_acknowledgement: syn_received() => "
        < . 1:1(0) ack 1 win 10000
        state ESTAB; segment 1000";

    /// 3.5, figure 8: "Recovery from old duplicate SYN": the reset of what it was not.
    an_old_duplicate_syn_ack_is_reset: syn_sent() => "
        < S. 0:0(0) ack 100 win 10000
        > R 100:100(0)
        state SYN-SENT
        < S. 0:0(0) ack 1 win 10000
        > . 1:1(0) ack 1
        state ESTAB";

    /// 3.10.7.1: "If the ACK bit is off, sequence number zero is used,
    /// <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>".
    closed_answers_a_syn_with_a_reset: closed() => "
        < S 0:0(0) win 10000
        > R. 0:0(0) ack 1";

    /// 3.10.7.1: SEG.LEN counts SYN, FIN and data.
    closed_answers_data_without_ack_with_a_reset: closed() => "
        < F 10:20(10) win 10000
        > R. 0:0(0) ack 21";

    /// 3.10.7.1: "If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>".
    closed_answers_an_ack_with_a_reset: closed() => "
        < . 1:1(0) ack 77 win 10000
        > R 77:77(0)";

    /// 3.10.7.1: "An incoming segment containing a RST is discarded."
    closed_ignores_a_reset: closed() => "
        < R 1:1(0); < R. 1:1(0) ack 1";

    /// 3.10.7.2: "An incoming RST segment could not be valid since it could not have been sent in
    /// response to anything sent by this incarnation of the connection. An incoming RST should be
    /// ignored."
    listen_ignores_a_reset: listening() => "
        < R 0:0(0); < R. 0:0(0) ack 5; < SR 0:0(0)";

    /// 3.10.7.2: "Any acknowledgment is bad if it arrives on a connection still in the LISTEN
    /// state. An acceptable reset segment should be formed for any arriving ACK-bearing segment."
    listen_resets_an_ack: listening() => "
        < . 1:1(0) ack 99
        > R 99:99(0)
        < P. 1:11(10) ack 98; > R 98:98(0)
        < F. 1:1(0) ack 97; > R 97:97(0)
        < S. 1:1(0) ack 96; > R 96:96(0)";

    /// 3.10.7.2: "Any other control or data-bearing segment (not containing SYN) must have an ACK
    /// and thus would have been discarded by the ACK processing in the second step".
    listen_ignores_what_is_neither: listening() => "
        < F 0:0(0); < 0 0:10(10); < P 0:10(10); half_open 0" ;

    /// 3.10.7.3: "If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset (unless the RST bit is set,
    /// if so drop the segment and return) <SEQ=SEG.ACK><CTL=RST>".
    syn_sent_resets_a_wrong_ack: syn_sent() => "
        < . 0:0(0) ack 0; > R 0:0(0)
        < . 0:0(0) ack 2; > R 2:2(0)
        < S. 0:0(0) ack 0; > R 0:0(0)
        < F. 0:0(0) ack 2; > R 2:2(0)
        < R. 0:0(0) ack 2
        < R. 0:0(0) ack 0
        state SYN-SENT";

    /// 3.10.7.3: "If the ACK was acceptable, then signal to the user "error: connection reset",
    /// drop the segment, enter CLOSED state".
    syn_sent_is_refused: syn_sent() => "
        < R. 0:0(0) ack 1
        state CLOSED; end Refused";

    /// 3.10.7.3: "Otherwise (no ACK), drop the segment and return."
    syn_sent_ignores_a_reset_without_ack: syn_sent() => "
        < R 0:0(0); state SYN-SENT";

    /// 3.10.7.3: "Fifth, if neither of the SYN or RST bits is set, then drop the segment and
    /// return."
    syn_sent_ignores_what_has_no_syn: syn_sent() => "
        < . 0:0(0) ack 1; < P. 0:10(10) ack 1; < F. 0:0(0) ack 1; < 0 0:0(0); state SYN-SENT";

    /// 3.10.7.3: "If there are other controls or text in the segment, then continue processing".
    syn_ack_with_data_and_fin: syn_sent() => "
        < SF. 0:10(10) ack 1 win 10000
        > . 1:1(0) ack 12
        state CLOSE-WAIT";

    /// 3.10.7.3: the acknowledgement goes with data that was queued.
    data_given_before_the_handshake_is_sent_after_it: closed() => "
        connect
        > S 0:0(0)
        send 100
        < S. 0:0(0) ack 1 win 10000 <mss 1000>
        > P. 1:101(100) ack 1";

    /// 3.10.4: CLOSE in SYN-SENT: "Delete the TCB".
    close_in_syn_sent: syn_sent() => "
        close; state CLOSED; end Aborted
        < S. 0:0(0) ack 1
        > R 1:1(0)";

    /// 3.8.1: a SYN is sent again when nothing comes, and less and less often.
    a_syn_is_sent_again: syn_sent() => "
        +1 > S 0:0(0)
        +2 > S 0:0(0)
        +4 > S 0:0(0)
        +8 > S 0:0(0)
        +16 > S 0:0(0)
        +32 > S 0:0(0)
        +63
        state SYN-SENT
        +2
        state CLOSED; end TimedOut";

    /// 3.8.1, for a SYN-ACK.
    a_syn_ack_is_sent_again: half_open() => "
        +1 > S. 0:0(0) ack 1
        +2 > S. 0:0(0) ack 1
        +4 > S. 0:0(0) ack 1
        +8 > S. 0:0(0) ack 1
        +16 > S. 0:0(0) ack 1
        +40
        < . 1:1(0) ack 1
        > R 1:1(0)";

    /// 3.10.7.4: the same SYN once more is answered once more.
    a_syn_that_comes_again_is_answered_again: half_open() => "
        < S 0:0(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept; state ESTAB";

    /// 3.10.7.4: in SYN-RECEIVED, "If the connection was initiated with a passive OPEN, then return
    /// this connection to the LISTEN state and return"; then the SYN is a new one.
    another_syn_begins_anew: half_open() => "
        < S 500:500(0) win 10000 <mss 1000>
        > S. 0:0(0) ack 501
        < . 501:501(0) ack 1
        accept; state ESTAB";

    /// 3.10.7.4: "If the segment acknowledgment is not acceptable, form a reset segment
    /// <SEQ=SEG.ACK><CTL=RST> and send it."
    half_open_resets_a_wrong_ack: half_open() => "
        < . 1:1(0) ack 7
        > R 7:7(0)
        < . 1:1(0) ack 0
        > R 0:0(0)
        < . 1:1(0) ack 1
        accept; state ESTAB";

    /// 3.10.7.4: the same after a simultaneous open.
    syn_received_resets_a_wrong_ack: syn_received() => "
        < . 1:1(0) ack 7
        > R 7:7(0)
        state SYN-RECV";

    /// 3.10.7.4: SYN-RECEIVED: "if the RST bit is set": a passive open returns to LISTEN.
    half_open_is_reset: half_open() => "
        < R 1:1(0)
        < . 1:1(0) ack 1
        > R 1:1(0)";

    /// 3.10.7.4: "If this connection was initiated with an active OPEN [...] then the connection
    /// was refused".
    syn_received_is_refused: syn_received() => "
        < R 1:1(0)
        state CLOSED; end Refused";

    /// 3.10.7.4: data may come with the acknowledgement that opens.
    data_with_the_last_segment_of_the_handshake: half_open() => "
        < P. 1:101(100) ack 1
        accept; state ESTAB; recv 100
        +0.04 > . 1:1(0) ack 101";

    /// 3.10.7.4: so may a FIN.
    a_fin_with_the_last_segment_of_the_handshake: half_open() => "
        < F. 1:11(10) ack 1
        > . 1:1(0) ack 12
        accept; state CLOSE-WAIT; recv 10";

    /// 3.10.7.4: a FIN without an ACK is dropped: "if the ACK bit is off, drop the segment and
    /// return".
    established_ignores_what_has_no_ack: established() => "
        < 0 1:11(10); < F 1:1(0); < P 1:11(10); state ESTAB; unread 0";

    /// 3.10.7.4: data in order is taken.
    data_in_order: established() => "
        < . 1:1001(1000) ack 1
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001
        recv 2000";

    /// 3.4: "Segments with higher beginning sequence numbers SHOULD be held for later processing"
    /// (SHLD-31).
    data_out_of_order_is_kept: established() => "
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 1
        < . 1:1001(1000) ack 1
        > . 1:1(0) ack 2001
        recv 2000";

    /// 3.10.7.4: "trimming off any portions that lie outside the window (including SYN and FIN)".
    data_beyond_the_right_edge_is_cut_off: established() => "
        < . 9001:11001(2000) ack 1
        > . 1:1(0) ack 1
        < . 1:9001(9000) ack 1
        > . 1:1(0) ack 10001 win 0
        recv 10000
        > . 1:1(0) ack 10001 win 10000";

    /// 3.10.7.4: "trimming": what has come is not taken again.
    data_before_the_left_edge_is_cut_off: established() => "
        < . 1:1001(1000) ack 1
        < . 501:1501(1000) ack 1
        > . 1:1(0) ack 1501
        recv 1500";

    /// 3.10.7.4: "If an incoming segment is not acceptable, an acknowledgment should be sent in
    /// reply".
    data_all_of_which_is_old_is_acknowledged_again: established() => "
        < . 1:1001(1000) ack 1
        +0.04 > . 1:1(0) ack 1001
        < . 1:1001(1000) ack 1
        > . 1:1(0) ack 1001
        < . 501:1001(500) ack 1
        > . 1:1(0) ack 1001";

    /// 3.10.7.4: the same for data behind the window.
    data_behind_the_window_is_not_taken: established() => "
        < . 10001:11001(1000) ack 1
        > . 1:1(0) ack 1
        unread 0";

    /// 3.8.6.1 and 3.10.7.4: "If the RCV.WND is zero, no segments will be acceptable, but special
    /// allowance should be made to accept valid ACKs, URGs, and RSTs."
    a_zero_window_takes_acknowledgements: established() => "
        send 10
        > P. 1:11(10) ack 1
        < . 1:10001(10000) ack 1
        > . 11:11(0) ack 10001 win 0
        < . 10001:10002(1) ack 11
        > . 11:11(0) ack 10001 win 0
        in_flight 0";

    /// 3.8.6.1: the probe of a peer is answered, "even if the window is zero".
    a_probe_of_a_zero_window_is_answered: established() => "
        < . 1:10001(10000) ack 1
        > . 1:1(0) ack 10001 win 0
        < . 10001:10002(1) ack 1
        > . 1:1(0) ack 10001 win 0
        < . 10001:10002(1) ack 1
        > . 1:1(0) ack 10001 win 0";

    /// 3.10.7.4: "ESTABLISHED [...] If the FIN bit is set, signal the user "connection closing"",
    /// CLOSE-WAIT.
    fin_in_established: established() => "
        < F. 1:1(0) ack 1
        > . 1:1(0) ack 2
        state CLOSE-WAIT
        send 10
        > P. 1:11(10) ack 2";

    /// 3.10.7.4: a FIN counts only when all before it has come.
    fin_out_of_order: established() => "
        < F. 1001:2001(1000) ack 1
        > . 1:1(0) ack 1
        state ESTAB
        < . 1:1001(1000) ack 1
        > . 1:1(0) ack 2002
        state CLOSE-WAIT; recv 2000";

    /// RFC 5681, 4.2: "an immediate ACK when the incoming segment fills in all or part of a gap in
    /// the sequence space", behind which only a FIN may be.
    a_gap_before_a_fin: established_with("quick=0", "mss 1000") => "
        < F. 201:201(0) ack 1
        > . 1:1(0) ack 1
        < . 1:101(100) ack 1
        > . 1:1(0) ack 101
        < . 101:201(100) ack 1
        > . 1:1(0) ack 202
        state CLOSE-WAIT; recv 200";

    /// 3.10.7.4: data behind a FIN is not of the stream.
    data_behind_a_fin_is_ignored: established() => "
        < F. 101:101(0) ack 1
        > . 1:1(0) ack 1
        < . 1:201(200) ack 1
        > . 1:1(0) ack 102
        recv 100; unread 0; state CLOSE-WAIT";

    /// 3.6: "Case 1: Local user initiates the close": figure 12.
    close_first: established() => "
        shutdown
        > F. 1:1(0) ack 1
        state FIN-WAIT-1
        < . 1:1(0) ack 2
        state FIN-WAIT-2
        < F. 1:1(0) ack 2
        > . 2:2(0) ack 2
        state TIME-WAIT";

    /// 3.6: "Case 2: TCP endpoint receives a FIN from the network".
    close_second: established() => "
        < F. 1:1(0) ack 1
        > . 1:1(0) ack 2
        shutdown
        > F. 1:1(0) ack 2
        state LAST-ACK
        < . 2:2(0) ack 2
        state CLOSED; end Orderly";

    /// 3.6: "Case 3: Both users close simultaneously": figure 13.
    close_at_once: fin_wait_1() => "
        < F. 1:1(0) ack 1
        > . 2:2(0) ack 2
        state CLOSING
        < . 2:2(0) ack 2
        state TIME-WAIT; end Orderly";

    /// 3.10.7.4, FIN-WAIT-1: "If our FIN has been ACKed (perhaps in this segment), then enter
    /// TIME-WAIT".
    fin_that_acknowledges_the_own: fin_wait_1() => "
        < F. 1:1(0) ack 2
        > . 2:2(0) ack 2
        state TIME-WAIT";

    /// 3.6: half-close: "the user who CLOSEs may continue to RECEIVE until the TCP receiver is told
    /// that the remote peer has CLOSED also".
    half_close_still_receives: fin_wait_2() => "
        < . 1:1001(1000) ack 2
        < . 1001:2001(1000) ack 2
        > . 2:2(0) ack 2001
        recv 2000
        < F. 2001:2001(0) ack 2
        > . 2:2(0) ack 2002
        state TIME-WAIT";

    /// 3.6: data that was given before the close is sent before the FIN.
    data_before_a_close_is_sent: established() => "
        send 10; > P. 1:11(10) ack 1
        send 500; shutdown
        > FP. 11:511(500) ack 1
        < . 1:1(0) ack 512
        state FIN-WAIT-2
        fails send 1";

    /// 3.8.1: a FIN is sent again.
    a_fin_is_sent_again: fin_wait_1() => "
        +0.2 > F. 1:1(0) ack 1
        +0.4 > F. 1:1(0) ack 1
        < . 1:1(0) ack 2
        state FIN-WAIT-2";

    /// 3.6.1: "If such a host issues a CLOSE call while received data is still pending in the TCP
    /// connection [...] its TCP implementation SHOULD send a RST to show that data was lost"
    /// (SHLD-3).
    close_with_unread_data_resets: established() => "
        < . 1:11(10) ack 1
        close
        > R. 1:1(0) ack 11
        state CLOSED; end Aborted";

    /// 3.6.1: "or if new data is received after CLOSE is called".
    data_after_close_is_reset: established() => "
        close
        > F. 1:1(0) ack 1
        < . 1:11(10) ack 2
        > R 2:2(0)
        state CLOSED";

    /// 3.10.5: ABORT: "<SEQ=SND.NXT><CTL=RST>".
    abort_sends_a_reset: established() => "
        send 10
        > P. 1:11(10) ack 1
        abort
        > R. 11:11(0) ack 1
        state CLOSED; end Aborted";

    /// 3.10.7.4: CLOSE-WAIT and later: "This should not occur since a FIN has been received from
    /// the remote side. Ignore the segment text." Another FIN is acknowledged.
    data_after_the_fin_is_ignored: close_wait() => "
        < . 2:12(10) ack 1
        unread 0; state CLOSE-WAIT
        < F. 2:12(10) ack 1
        > . 1:1(0) ack 2
        unread 0; state CLOSE-WAIT";

    /// 3.10.7.4: the FIN again, "Remain in the CLOSE-WAIT state."
    the_fin_again_in_close_wait: close_wait() => "
        < F. 1:1(0) ack 1
        > . 1:1(0) ack 2
        state CLOSE-WAIT";

    /// 3.10.7.4: "CLOSING STATE: Remain in the CLOSING state."
    the_fin_again_in_closing: closing() => "
        < F. 1:1(0) ack 1
        > . 2:2(0) ack 2
        state CLOSING";

    /// 3.10.7.4: "LAST-ACK STATE: Remain in the LAST-ACK state."
    the_fin_again_in_last_ack: last_ack() => "
        < F. 1:1(0) ack 1
        > . 2:2(0) ack 2
        state LAST-ACK";

    /// 3.10.7.4: TIME-WAIT: "The only thing that can arrive in this state is a retransmission of
    /// the remote FIN. Acknowledge it, and restart the 2 MSL timeout."
    the_fin_again_in_time_wait: time_wait() => "
        +50 < F. 1:1(0) ack 2
        > . 2:2(0) ack 2
        +50; waiting 1
        +61; waiting 0";

    /// 3.4.2: TIME-WAIT ends by itself.
    time_wait_ends: time_wait() => "+59; waiting 1; +2; waiting 0";

    /// 3.6.1 (MAY-2): "it MAY accept a new SYN from the remote TCP endpoint to reopen the
    /// connection directly from TIME-WAIT state", if "its initial sequence number for the new
    /// connection" is "larger than the largest sequence number it used on the previous connection
    /// incarnation".
    a_new_syn_reopens_from_time_wait: listening() => "
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1; accept
        shutdown; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2; > . 2:2(0) ack 2
        waiting 1
        < S 1000:1000(0) win 10000 <mss 1000>
        > S. 3:3(0) ack 1001
        waiting 0";

    /// The same: what is not larger may be an old one.
    an_old_syn_does_not_reopen_from_time_wait: time_wait() => "
        < S 0:0(0) win 10000
        > . 2:2(0) ack 2
        waiting 1";

    /// 3.6: FIN-WAIT-2 of a connection that nobody has any more does not last for ever.
    fin_wait_2_of_a_closed_connection_ends: established() => "
        close
        > F. 1:1(0) ack 1
        < . 1:1(0) ack 2
        state FIN-WAIT-2
        +61
        state CLOSED";

    /// The same: that of a connection that is still read does.
    fin_wait_2_of_a_half_closed_connection_lasts: fin_wait_2() => "
        +3600; state FIN-WAIT-2";

    /// 3.7.1: "If an MSS Option is not received at connection setup, TCP implementations MUST
    /// assume a default send MSS of 536".
    without_an_mss_option: listening() => "
        < S 0:0(0) win 10000
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept; segment 536";

    /// 3.7.1: "The maximum size of a segment that a TCP endpoint really sends [...] MUST be the
    /// smaller of the send MSS [...] and the largest transmission size permitted by the IP layer".
    an_mss_beyond_the_mtu: listening() => "
        < S 0:0(0) win 10000 <mss 9000>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept; segment 1460";

    /// 3.7.1: TCP_MAXSEG clamps both ways.
    an_mss_that_the_app_sets: closed() => "
        set mss=700
        listen
        < S 0:0(0) win 10000 <mss 1460>
        > S. 0:0(0) ack 1 win 10000 <mss 700>
        < . 1:1(0) ack 1
        accept; segment 700";

    /// A peer that wants one byte per segment costs as much as one that wants 64 at most.
    a_tiny_mss_is_not_obeyed: listening() => "
        < S 0:0(0) win 10000 <mss 1>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1
        accept; segment 64";

    /// 3.7.4: Nagle: "If there is unacknowledged data (i.e., SND.NXT > SND.UNA), then the sending
    /// TCP endpoint buffers all user data".
    nagle: established() => "
        send 10
        > P. 1:11(10) ack 1
        send 10; send 10
        < . 1:1(0) ack 11
        > P. 11:31(20) ack 1";

    /// 3.7.4: "or until the TCP endpoint can send a full-sized segment".
    nagle_lets_full_segments_go: established() => "
        send 10
        > P. 1:11(10) ack 1
        send 1500
        > . 11:1011(1000) ack 1
        < . 1:1(0) ack 1011
        > P. 1011:1511(500) ack 1";

    /// The same, as Minshall has it (appendix A.3): what ends a long message is not held back by
    /// its own full segments, but by what was not full either.
    nagle_holds_back_by_what_is_small: established() => "
        send 1500
        > . 1:1001(1000) ack 1
        > P. 1001:1501(500) ack 1
        send 1500
        > . 1501:2501(1000) ack 1
        < . 1:1(0) ack 1001
        < . 1:1(0) ack 1501
        > P. 2501:3001(500) ack 1";

    /// 3.7.4: "A TCP implementation MUST allow an application to disable the Nagle algorithm"
    /// (MUST-17).
    no_delay: established() => "
        set no_delay
        send 10; > P. 1:11(10) ack 1
        send 10; > P. 11:21(10) ack 1
        send 10; > P. 21:31(10) ack 1";

    /// Cork: nothing that is not full, until it is taken away.
    cork: established() => "
        set cork
        send 10; send 10
        send 1000
        > . 1:1001(1000) ack 1
        unset cork
        > P. 1001:1021(20) ack 1";

    /// 3.8.6.3: "an ACK SHOULD be generated for at least every second full-sized segment or 2*RMSS
    /// bytes".
    every_second_segment_is_acknowledged: established() => "
        < . 1:1001(1000) ack 1
        < . 1001:2001(1000) ack 1
        > . 1:1(0) ack 2001
        < . 2001:3001(1000) ack 1
        < . 3001:4001(1000) ack 1
        > . 1:1(0) ack 4001";

    /// 3.8.6.3: "the delay MUST be less than 0.5 seconds".
    an_acknowledgement_is_delayed_and_not_for_long: established() => "
        < . 1:11(10) ack 1
        +0.04 > . 1:1(0) ack 11";

    /// 3.8.6.3: it travels with data.
    an_acknowledgement_goes_with_data: established() => "
        < . 1:11(10) ack 1
        send 10
        > P. 1:11(10) ack 11
        +0.1";

    /// 3.8.6: "a shrinking window": SHLD-14, MUST-34: "A sending TCP peer MUST be robust against
    /// window shrinking".
    a_window_that_shrinks: established() => "
        send 3000
        > . 1:1001(1000) ack 1
        > . 1001:2001(1000) ack 1
        > P. 2001:3001(1000) ack 1
        < . 1:1(0) ack 1001 win 500
        send 1000
        < . 1:1(0) ack 3001 win 1000
        > P. 3001:4001(1000) ack 1";

    /// 3.8.6: nothing is sent beyond the window.
    the_window_is_kept: established() => "
        < . 1:1(0) ack 1 win 1500
        send 3000
        > . 1:1001(1000) ack 1
        < . 1:1(0) ack 1001 win 1500
        > . 1001:2001(1000) ack 1
        < . 1:1(0) ack 2001 win 1500
        > P. 2001:3001(1000) ack 1";

    /// 3.8.6.1: "The transmitting host SHOULD send the first zero-window probe when a zero window
    /// has existed for the retransmission timeout period, and SHOULD increase exponentially the
    /// interval".
    a_zero_window_is_probed: established() => "
        < . 1:1(0) ack 1 win 0
        send 100
        +0.2 > . 1:2(1) ack 1
        +0.4 > . 1:2(1) ack 1
        +0.8 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +1.6 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 1000
        > P. 1:101(100) ack 1";

    /// 3.8.6.1: a probe may be taken.
    a_probe_that_is_acknowledged: established() => "
        < . 1:1(0) ack 1 win 0
        send 100
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 2 win 0
        +0.2 > . 2:3(1) ack 1
        < . 1:1(0) ack 3 win 10000
        > P. 3:101(98) ack 1";

    /// 3.8.6.2.1: "the sender's SWS avoidance algorithm": a small part of a window is not filled at
    /// once.
    silly_windows_are_not_filled: established() => "
        < . 1:1(0) ack 1 win 100
        send 3000
        +0.2 > . 1:101(100) ack 1
        < . 1:1(0) ack 101 win 10000
        > . 101:1101(1000) ack 1
        > . 1101:2101(1000) ack 1
        > P. 2101:3001(900) ack 1";

    /// 3.8.6.2.2: "the receiver's SWS avoidance": the right edge moves by a segment or half of the
    /// buffer.
    silly_windows_are_not_offered: established() => "
        < . 1:5001(5000) ack 1
        > . 1:1(0) ack 5001 win 5000
        < . 5001:10001(5000) ack 1
        > . 1:1(0) ack 10001 win 0
        take 5000
        release 100
        < . 10001:10002(1) ack 1
        > . 1:1(0) ack 10001 win 0
        release 4900
        > . 1:1(0) ack 10001 win 5000";

    /// 3.8.5: urgent data: "A TCP implementation MUST support a sequence of urgent data of any
    /// length"; its bytes stay in the stream (RFC 6093, section 6).
    urgent_data_stays_in_the_stream: established() => "
        < PU. 1:11(10) ack 1 urg 5
        +0.04 > . 1:1(0) ack 11
        recv 10";

    /// 3.8.4: "Keep-alive packets MUST only be sent when no sent data is outstanding, and no data
    /// or acknowledgment packets have been received for the connection within an interval".
    keep_alive: established_with("keep_alive_s=60", "mss 1000") => "
        +60 > . 0:0(0) ack 1
        < . 1:1(0) ack 1
        +60 > . 0:0(0) ack 1
        +10 > . 0:0(0) ack 1
        +10 > . 0:0(0) ack 1
        +10 > R. 1:1(0) ack 1
        state CLOSED; end TimedOut";

    /// 3.8.4: it is off unless it is asked for (MUST-25).
    no_keep_alive: established() => "+86400; state ESTAB";

    /// 3.8.4: that of a peer is answered.
    a_keep_alive_is_answered: established() => "
        < . 0:0(0) ack 1
        > . 1:1(0) ack 1
        < . 0:1(1) ack 1
        > . 1:1(0) ack 1";

    /// 3.8.3: R2: "When the number of transmissions of the same segment reaches a threshold R2
    /// [...] close the connection".
    a_peer_that_is_gone: established() => "
        set retries=3
        send 10
        > P. 1:11(10) ack 1
        +0.2 > P. 1:11(10) ack 1
        +0.4 > P. 1:11(10) ack 1
        +0.8 > P. 1:11(10) ack 1
        +1.7
        state CLOSED; end TimedOut";

    /// 3.8.6.1: "the sending TCP peer MUST allow the connection to stay open" while the peer
    /// answers probes.
    probing_goes_on_without_end: established() => "
        set retries=3
        < . 1:1(0) ack 1 win 0
        send 10
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +0.4 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +0.8 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +1.6 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +3.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 0
        +6.4 > . 1:2(1) ack 1
        state ESTAB";

    /// 3.9.2.2: "A TCP implementation MUST NOT abort the connection" for a soft error.
    an_unreachable_host_is_no_end: established() => "
        send 10; > P. 1:11(10) ack 1
        icmp unreachable seq 1
        state ESTAB
        +0.2 > P. 1:11(10) ack 1";

    /// 3.9.2.2, of hard errors while a connection opens.
    a_refusal_ends_an_attempt: syn_sent() => "
        icmp refused seq 0
        state CLOSED; end Refused";

    /// 3.1: the data offset says where data begins, with options that nobody knows; tolerated here
    /// by a later segment with an MSS (3.2: options may come "in a SYN" only, and are ignored
    /// elsewhere).
    options_out_of_place_are_ignored: established() => "
        < . 1:11(10) ack 1 <mss 100,wscale 3,sackOK>
        +0.04 > . 1:1(0) ack 11
        segment 1000";

    /// 3.10.4: a listener that is closed: connections that nobody has accepted are reset.
    what_nobody_has_accepted_is_reset: listening() => "
        < S 0:0(0) win 10000 <mss 1000>; > S. 0:0(0) ack 1; < . 1:1(0) ack 1
        unlisten
        > R. 1:1(0) ack 1";

    /// RFC 6191, 2: a SYN with a later timestamp than the last reopens, though its number is lower;
    /// one with an older one does not.
    a_later_timestamp_reopens_from_time_wait: listening() => "
        unlisten; set timestamps; listen
        < S 0:0(0) win 10000 <mss 1000,TS val 100 ecr 0>
        > S. 0:0(0) ack 1
        < . 1:1(0) ack 1 <TS val 100 ecr 1000>; accept
        shutdown; > F. 1:1(0) ack 1
        < F. 1:1(0) ack 2 <TS val 110 ecr 1000>; > . 2:2(0) ack 2
        waiting 1
        < S 0:0(0) win 10000 <mss 1000,TS val 90 ecr 0>
        > . 2:2(0) ack 2
        < S 0:0(0) win 10000 <mss 1000,TS val 500 ecr 0>
        > S. 3:3(0) ack 1
        waiting 0";

    /// 3.10.7.2: data that comes with a SYN is not taken before its sender has shown that it is
    /// there; it is not acknowledged and comes again.
    data_with_a_syn_comes_again: listening() => "
        < S 0:10(10) win 10000 <mss 1000>
        > S. 0:0(0) ack 1
        < P. 1:11(10) ack 1
        accept; recv 10
        +0.04 > . 1:1(0) ack 11";

    /// 3.8.6.1: a window may be closed from the beginning.
    a_window_that_is_closed_from_the_beginning: syn_sent() => "
        < S. 0:0(0) ack 1 win 0 <mss 1000>
        > . 1:1(0) ack 1
        send 10
        +0.2 > . 1:2(1) ack 1
        < . 1:1(0) ack 1 win 10000
        > P. 1:11(10) ack 1";

    /// 3.7.4: Nagle holds nothing back that the FIN goes with.
    nagle_ends_with_the_stream: established() => "
        send 10; > P. 1:11(10) ack 1
        send 10
        shutdown
        > FP. 11:21(10) ack 1";

    /// 3.10.7.4: the acknowledgement of the FIN may come with that of the data before it, or alone.
    the_fin_is_acknowledged_after_its_data: established() => "
        send 10; > P. 1:11(10) ack 1
        shutdown; > F. 11:11(0) ack 1
        < . 1:1(0) ack 11
        state FIN-WAIT-1
        < . 1:1(0) ack 12
        state FIN-WAIT-2";

    /// 3.10.7.4: FIN-WAIT-1: data, the acknowledgement of the own FIN and a FIN in one segment.
    all_in_one_in_fin_wait_1: fin_wait_1() => "
        < FP. 1:11(10) ack 2
        > . 2:2(0) ack 12
        state TIME-WAIT; recv 10";

    /// RFC 5961, 7, and RFC 9293, 3.10.7.4: in TIME-WAIT what is old is acknowledged, and not
    /// without end.
    time_wait_answers_rarely: time_wait() => "
        < . 100:200(100) ack 2; > . 2:2(0) ack 2; < . 100:200(100) ack 2; > . 2:2(0) ack 2
        < . 100:200(100) ack 2; > . 2:2(0) ack 2; < . 100:200(100) ack 2; > . 2:2(0) ack 2
        < . 100:200(100) ack 2; > . 2:2(0) ack 2; < . 100:200(100) ack 2; > . 2:2(0) ack 2
        < . 100:200(100) ack 2; > . 2:2(0) ack 2; < . 100:200(100) ack 2; > . 2:2(0) ack 2
        < . 100:200(100) ack 2; > . 2:2(0) ack 2; < . 100:200(100) ack 2; > . 2:2(0) ack 2
        < . 100:200(100) ack 2; < S 0:0(0); < . 9:9(0) ack 2
        < F. 1:1(0) ack 2       // the peer's own is answered
        > . 2:2(0) ack 2
        +5 < . 100:200(100) ack 2
        > . 2:2(0) ack 2";

    /// 3.10.7.4: "Acknowledge it, and restart the 2 MSL timeout": the peer's FIN, and no other one.
    another_fin_does_not_prolong_time_wait: time_wait() => "
        +50 < F. 500:500(0) ack 2
        > . 2:2(0) ack 2
        +11; waiting 0";

    /// RFC 1337, 3, (F1): "Ignore RST segments in TIME-WAIT state."
    time_wait_is_not_ended_by_a_reset: time_wait() => "
        < R 2:2(0); < R. 2:2(0) ack 2; < R 50:50(0); waiting 1";
}

/// Name, beginning, and the numbers that this end and the peer have next.
type BeginState = (&'static str, fn() -> Script, u32, u32);

/// 3.10.7.4: what the states of an open connection have in common, crossed with segments.
fn states() -> [BeginState; 7] {
    [
        ("ESTAB", established, 1, 1),
        ("FIN-WAIT-1", fin_wait_1, 2, 1),
        ("FIN-WAIT-2", fin_wait_2, 2, 1),
        ("CLOSE-WAIT", close_wait, 1, 2),
        ("CLOSING", closing, 2, 2),
        ("LAST-ACK", last_ack, 2, 2),
        ("SYN-RECV", syn_received, 1, 1),
    ]
}

/// Plays `script` in every state, with `S` for this end's next number, `A` for what acknowledges
/// nothing new, `N` for the peer's next number, and arithmetic on it as `{N+3}`.
fn in_every_state(script: &str) {
    states().into_iter().for_each(|(name, ..)| in_state(name, script));
}

/// The same in one.
fn in_state(state: &str, script: &str) {
    for (name, begin, own, peer) in states().into_iter().filter(|known| known.0 == state) {
        let mut text = script.replace("STATE", name);
        for offset in [-20_000i64, -1, 0, 1, 5, 10, 15, 50, 60, 9_999, 9_998, 10_000, 20_000] {
            text =
                text.replace(&format!("{{N{offset:+}}}"), &(i64::from(peer) + offset).to_string());
        }
        let una =
            if name == "FIN-WAIT-1" || name == "CLOSING" || name == "LAST-ACK" { 1 } else { own };
        text = text.replace("{A}", &una.to_string()).replace("{S}", &own.to_string());
        text = text.replace("{N}", &peer.to_string());
        begin().play(&text);
    }
}

/// RFC 5961, 3.2: "If the RST bit is set and the sequence number is outside the current receive
/// window, silently drop the segment."
#[test]
fn reset_outside_of_the_window_in_every_state() {
    in_every_state(
        "< R {N-1}:{N-1}(0); < R {N+20000}:{N+20000}(0); < R. {N+10000}:{N+10000}(0) ack {A}; \
         state STATE",
    );
}

/// RFC 5961, 3.2: "If the RST bit is set and the sequence number exactly matches the next expected
/// sequence number (RCV.NXT), then TCP endpoints MUST reset the connection".
#[test]
fn reset_at_the_left_edge_in_every_state() {
    in_every_state("< R {N+0}:{N+0}(0); state CLOSED");
    in_every_state("< R. {N+0}:{N+0}(0) ack {A}; state CLOSED");
}

/// RFC 5961, 3.2: "If the RST bit is set and the sequence number does not exactly match the next
/// expected sequence value, yet is within the current receive window, TCP endpoints MUST send an
/// acknowledgment (challenge ACK)."
#[test]
fn reset_inside_of_the_window_in_every_state() {
    in_every_state("< R {N+1}:{N+1}(0); > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< R {N+50}:{N+50}(0); > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< R {N+9998}:{N+9998}(0); > . {S}:{S}(0) ack {N}; state STATE");
}

/// RFC 5961, 4.2: "If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK
/// (also referred to as challenge ACK) to the remote peer".
#[test]
fn syn_anywhere_in_every_state() {
    in_every_state("< S {N+0}:{N+0}(0); > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< S {N+50}:{N+50}(0); > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< S {N+20000}:{N+20000}(0); > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< S. {N+50}:{N+50}(0) ack {A}; > . {S}:{S}(0) ack {N}; state STATE");
}

/// RFC 5961, 5.2: an acknowledgement of what has not been sent: "MUST be discarded and an ACK sent
/// back".
#[test]
fn an_acknowledgement_of_the_future_in_every_synchronized_state() {
    for (name, begin, own, peer) in states().into_iter().filter(|state| state.0 != "SYN-RECV") {
        begin().play(&format!(
            "< . {peer}:{peer}(0) ack {}; > . {own}:{own}(0) ack {peer}; state {name}",
            own + 1
        ));
    }
}

/// 3.10.7.4: a segment outside of the window "an acknowledgment should be sent in reply".
#[test]
fn data_outside_of_the_window_in_every_state() {
    in_every_state("< . {N+20000}:1(10) ack {A}; > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< F. {N+20000}:1(0) ack {A}; > . {S}:{S}(0) ack {N}; state STATE");
    in_every_state("< . {N+20000}:1(0) ack {A}; > . {S}:{S}(0) ack {N}; state STATE");
}

/// 3.10.7.4: "if the ACK bit is off, drop the segment and return".
#[test]
fn nothing_without_an_acknowledgement_in_every_state() {
    in_every_state(
        "< 0 {N+0}:1(10); < F {N+0}:1(0); < P {N+50}:1(10); < 0 {N+0}:1(0); state STATE",
    );
}

/// Those of the states in which the peer may still send.
fn in_every_receiving_state(script: &str) {
    for name in ["ESTAB", "FIN-WAIT-1", "FIN-WAIT-2"] {
        in_state(name, script);
    }
}

/// Those in which it has said that it will not.
fn in_every_state_after_its_fin(script: &str) {
    for name in ["CLOSE-WAIT", "CLOSING", "LAST-ACK"] {
        in_state(name, script);
    }
}

/// 3.10.7.4: "Once in the ESTABLISHED state, it is possible to deliver segment data to user RECEIVE
/// buffers", and in FIN-WAIT-1 and FIN-WAIT-2.
#[test]
fn data_at_the_left_edge_in_every_receiving_state() {
    in_every_receiving_state(
        "< . {N+0}:1(10) ack {A}; +0.04 > . {S}:{S}(0) ack {N+10}; recv 10; state STATE",
    );
}

/// 3.10.7.4: what begins before the left edge is trimmed, and what is new of it taken.
#[test]
fn data_across_the_left_edge_in_every_receiving_state() {
    in_every_receiving_state(
        "< . {N+0}:1(10) ack {A}; +0.04 > . {S}:{S}(0) ack {N+10}
         < . {N+5}:1(10) ack {A}; > . {S}:{S}(0) ack {N+15}; recv 15; state STATE",
    );
}

/// 3.4: what comes early is kept, and acknowledged at once (RFC 5681, 4.2).
#[test]
fn data_inside_of_the_window_in_every_receiving_state() {
    in_every_receiving_state(
        "< . {N+50}:1(10) ack {A}; > . {S}:{S}(0) ack {N}; unread 0
         < . {N+0}:1(50) ack {A}; > . {S}:{S}(0) ack {N+60}; recv 60; state STATE",
    );
}

/// 3.10.7.4: the last byte of the window is in it, and the next is not.
#[test]
fn data_at_the_right_edge_in_every_receiving_state() {
    in_every_receiving_state(
        "< . {N+9999}:1(1) ack {A}; > . {S}:{S}(0) ack {N}
         < . {N+10000}:1(1) ack {A}; > . {S}:{S}(0) ack {N}
         < . {N+0}:1(9999) ack {A}; > . {S}:{S}(0) ack {N+10000}; recv 10000
         > . {S}:{S}(0) ack {N+10000}; state STATE",
    );
}

/// 3.10.7.4: a FIN behind a hole is not one yet.
#[test]
fn a_fin_inside_of_the_window_in_every_receiving_state() {
    in_every_receiving_state("< F. {N+50}:1(0) ack {A}; > . {S}:{S}(0) ack {N}; state STATE");
}

/// 3.10.7.4: "This should not occur since a FIN has been received from the remote side. Ignore the
/// segment text."
#[test]
fn data_in_every_state_after_the_fin() {
    in_every_state_after_its_fin("< . {N+0}:1(10) ack {A}; state STATE");
    in_every_state_after_its_fin("< . {N+50}:1(10) ack {A}; state STATE");
}

/// 3.10.7.4: "If the ACK is a duplicate (SEG.ACK =< SND.UNA), it can be ignored."
#[test]
fn an_old_acknowledgement_in_every_synchronized_state() {
    for (name, ..) in states().into_iter().filter(|state| state.0 != "SYN-RECV") {
        in_state(name, "< . {N+0}:1(0) ack 0; < . {N+0}:1(0) ack {A}; state STATE");
    }
}

/// 3.10.7.4: the peer's last segment again is "an acknowledgment [...] sent in reply", in every
/// state.
#[test]
fn what_came_already_in_every_receiving_state() {
    in_every_receiving_state(
        "< . {N+0}:1(10) ack {A}; +0.04 > . {S}:{S}(0) ack {N+10}
         < . {N+0}:1(10) ack {A}; > . {S}:{S}(0) ack {N+10}; recv 10; state STATE",
    );
}

/// 3.10.4 and 3.10.5: an app that gives up in whatever state resets its peer.
#[test]
fn abort_in_every_state() {
    in_every_state("abort; > R. {S}:{S}(0) ack {N}; state CLOSED; end Aborted");
}
