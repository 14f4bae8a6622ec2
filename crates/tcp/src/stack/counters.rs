//! What a stack counts.

use clearway_base::counters;

counters! {
    /// What a stack counts.
    pub struct Counters {
        /// Segments that came.
        segments_received: Segments, "with each segment", "nothing: this is traffic";
        /// Segments that left.
        segments_sent: Segments, "with each segment", "nothing: this is traffic";
        /// Segments for which there was no connection.
        segments_unknown: Segments,
            "when a peer sends to a port where nobody listens, or to a connection that is gone",
            "nothing, unless an app ought to listen there";
        /// Resets sent to such.
        resets_sent: Segments, "with segments_unknown, within a rate", "see segments_unknown";
        /// Connections opened by this host.
        connections_opened: Connections, "when an app connects", "nothing: this is traffic";
        /// Connections opened by peers.
        connections_accepted: Connections,
            "when a peer connects to a listener", "nothing: this is traffic";
        /// SYNs that were answered with a cookie.
        cookies_sent: Cookies,
            "when a listener has more half-open connections than it keeps",
            "raise the listener's backlog, or see who floods it";
        /// Cookies that came back and were right.
        cookies_right: Cookies, "when a peer answers one", "nothing: it is connected";
        /// Cookies that came back and were wrong.
        cookies_wrong: Cookies,
            "when an answer comes late, or a stranger guesses", "nothing: it is refused";
        /// Connections that peers have opened with a cookie of Fast Open, and that an app had
        /// before their handshake was over.
        fast_opens_accepted: Connections,
            "when a peer connects again to a listener with fast open", "nothing: this is traffic";
        /// Cookies of Fast Open that were wrong.
        fast_open_cookies_wrong: Cookies,
            "when a peer's address or the keys have changed, or a stranger guesses",
            "nothing: it gets another, and is connected as usual";
        /// Connections that were opened as usual, though their cookies were right, because too many
        /// handshakes were not over.
        fast_opens_limited: Connections,
            "when a listener with fast open gets more SYNs than its limit before others end",
            "raise the listener's limit, or see who floods it";
        /// Connections whose SYN had data that the peer took.
        fast_opens_taken: Connections,
            "when an app connects with fast open to a peer that has given a cookie",
            "nothing: this is traffic";
        /// Connections whose SYN had data that the peer did not take: it was sent again.
        fast_opens_refused: Connections,
            "when a peer's keys have changed, or something on the way drops such SYNs",
            "nothing, unless it is most of them: then connect without fast open";
        /// SYNs and connections dropped because a listener's backlog was full.
        backlog_dropped: Connections,
            "when an app does not accept as fast as peers connect",
            "accept faster, or raise the backlog";
        /// Pieces that had come out of order and were given up, for others of their app.
        pieces_given_up: Segments,
            "when an app's receive pool is short and a connection has much of it out of order",
            "raise the app's receive_pool_bytes if it is often; see who loses packets";
        /// Connections in TIME-WAIT forgotten before their time, because there were too many of
        /// their app's.
        time_wait_dropped: Connections,
            "when this host closes more connections in a minute than it remembers",
            "nothing, unless peers report resets: then have the peers close first";
    }
}
