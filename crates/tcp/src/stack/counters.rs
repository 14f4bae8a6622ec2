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
