/* Clearway: reliable messages between apps on different hosts (or on one), through the daemon of
 * each host, over shared memory. Names follow sockets: attach, listen, connect, accept, send, recv,
 * close.
 *
 * Results    Functions that can fail return a negative error code (CLEARWAY_...);
 *            clearway_strerror and clearway_last_error say what it means and what to do.
 * Times      Timeouts are in nanoseconds. 0 does not wait (CLEARWAY_WOULD_BLOCK); a negative one,
 *            CLEARWAY_FOREVER, waits as long as it takes. What the daemon itself is asked for (a
 *            channel, ports, interfaces, memory) it gives in a moment; if it does not answer, the
 *            call ends after ten seconds (CLEARWAY_TIMED_OUT), also one without a timeout.
 * Sizes      In bytes. A message has 0 to 8 MiB, arrives once, complete, and in order.
 * Streams    A connection may have streams (clearway_open_stream): connections that share its way
 *            to the peer and nothing else, so that none waits for another's messages.
 * TCP        Connections to any peer, by a stack that is the daemon's: clearway_tcp_listen and
 *            clearway_tcp_connect, bytes instead of messages.
 * Frames     A program that brings its own protocol opens a virtual interface (clearway_vif_open)
 *            and sends and receives raw Ethernet frames. They may be lost, as on any wire.
 * Operations An app shares memory (clearway_share), and others read and change it by one-sided
 *            operations (clearway_operate), for which none of its threads runs.
 * Calls      Requests and answers on top of messages (clearway_call, clearway_next_call_event): a
 *            channel that makes calls makes nothing else.
 * Threads    A channel is for one thread at a time; threads that all want to talk attach a channel
 *            each. Messages, bytes, frames and what operations have read may be read and released
 *            in any thread, and buffers filled and discarded: with NULL for the channel if another
 *            thread has that. If it waits in a call, or on clearway_fd, it is woken, and gives them
 *            back; else its next call does. Error texts are per thread. Signals do not disturb:
 *            calls go on waiting.
 * Fork       A channel does not survive fork() in the child; attach there.
 *
 * Generated from crates/capi by its test `header`. Do not edit.
 */

#ifndef CLEARWAY_H
#define CLEARWAY_H

#include <stddef.h>
#include <stdint.h>

/* A timeout that never comes. */
#define CLEARWAY_FOREVER (-1)

/* The most frames that are received at a time. */
#define CLEARWAY_FRAMES_MAX 32

/* An entry of a table: where in a region (40 bits), and how many bytes (24 bits). */
#define CLEARWAY_ENTRY(offset, length) \
  ((uint64_t)(offset) | (uint64_t)(length) << 40)

/* Why a call failed. */
enum clearway_code {
  /* Nothing can be done right now (no message has arrived, or there is no room for more); call
   * again later, or wait with a timeout. */
  CLEARWAY_WOULD_BLOCK = -1,
  /* The timeout of the call passed first, and nothing has ended; check that the peer runs and
   * answers, or allow more time. */
  CLEARWAY_TIMED_OUT = -2,
  /* The connection was closed by the other side, or was never open; connect again. */
  CLEARWAY_CLOSED = -3,
  /* The connection was aborted by the other side or its app died; connect again. */
  CLEARWAY_RESET = -4,
  /* Nobody listens on that port of the peer; start the server, or check the port. */
  CLEARWAY_REFUSED = -5,
  /* The peer's host does not answer; check its address, the wire and the route with `clearway
   * ping`, or with `ping` if it is for TCP. */
  CLEARWAY_UNREACHABLE = -6,
  /* The message is larger than 8 MiB or than the buffer given; split it, or give a larger
   * buffer. */
  CLEARWAY_TOO_LARGE = -7,
  /* An argument is wrong; see the documentation of the call. */
  CLEARWAY_INVALID = -8,
  /* The daemon's policy does not allow this; ask its administrator, or see the policy section of
   * clearway.toml. */
  CLEARWAY_DENIED = -9,
  /* Another app listens on that address and port; choose another port, or stop that app. */
  CLEARWAY_ADDRESS_IN_USE = -10,
  /* That address is not one of this host; see `clearway status` for its addresses. */
  CLEARWAY_ADDRESS_UNAVAILABLE = -11,
  /* A limit of the daemon or of the channel is reached; close something first, or raise it in
   * clearway.toml. */
  CLEARWAY_LIMIT = -12,
  /* No daemon answers at the control socket; start one with `clearway daemon`, or set
   * CLEARWAY_SOCKET. */
  CLEARWAY_NO_DAEMON = -13,
  /* The daemon has gone away or ended this session; attach again. */
  CLEARWAY_DAEMON_GONE = -14,
  /* App library and daemon are of different versions; update the older of both. */
  CLEARWAY_MISMATCH = -15,
  /* The peer's daemon speaks no version of the protocol that this one speaks; update the older
   * one. */
  CLEARWAY_VERSION_UNKNOWN = -16,
  /* The peer's daemon broke the protocol, or its app makes no calls where this one does, so the
   * connection was ended; see the daemon's log. */
  CLEARWAY_PROTOCOL_ERROR = -17,
  /* The app wrote something forbidden into its channel, so its session was ended; see the
   * daemon's log. */
  CLEARWAY_VIOLATION = -18,
  /* There is not enough memory; use a smaller channel, or free some. */
  CLEARWAY_OUT_OF_MEMORY = -19,
  /* This build or this machine cannot do that; see `clearway doctor`. */
  CLEARWAY_UNSUPPORTED = -20,
  /* A bug in Clearway; please report it with the daemon's log. */
  CLEARWAY_INTERNAL = -21,
  /* The other side's host has not answered for so long that the connection was given up; check
   * it with `clearway ping`, or with `ping` if it was of TCP, and connect again. */
  CLEARWAY_LOST = -22,
  /* The peer has not carried out what a call asked for; its reason says why. */
  CLEARWAY_CALL_REFUSED = -23,
};

/* Why a frame was not sent. */
enum clearway_refused {
  /* The interface may send nothing. */
  CLEARWAY_REFUSED_NOTHING = 1,
  /* Ethernet source of another. */
  CLEARWAY_REFUSED_MAC_SOURCE = 2,
  /* VLAN that it may not send on. */
  CLEARWAY_REFUSED_VLAN = 3,
  /* Ether type that it may not send. */
  CLEARWAY_REFUSED_NETWORK = 4,
  /* Protocol that it may not send. */
  CLEARWAY_REFUSED_PROTOCOL = 5,
  /* Ports that cannot be seen, or a later fragment. */
  CLEARWAY_REFUSED_UNCLEAR = 6,
  /* Source address of another. */
  CLEARWAY_REFUSED_SOURCE = 7,
  /* Source port of another. */
  CLEARWAY_REFUSED_SOURCE_PORT = 8,
  /* Destination that it may not send to. */
  CLEARWAY_REFUSED_DESTINATION = 9,
  /* Something else that its filter does not allow. */
  CLEARWAY_REFUSED_OTHER = 10,
  /* Longer than the NIC takes. */
  CLEARWAY_REFUSED_TOO_LONG = 11,
  /* More frames per second than the policy allows. */
  CLEARWAY_REFUSED_RATE = 12,
  /* For the host's own kernel, which it does not reach, or for nobody here. */
  CLEARWAY_REFUSED_TO_KERNEL = 13,
};

/* What came of a one-sided operation. */
enum clearway_status {
  /* Done. */
  CLEARWAY_STATUS_DONE = 0,
  /* There is no such region, or it is revoked; ask its owner for another. */
  CLEARWAY_STATUS_NO_REGION = 1,
  /* The region's owner does not allow it; have it grant the right to this host. */
  CLEARWAY_STATUS_NOT_ALLOWED = 2,
  /* It reaches beyond the region; check offset, length and what entries say. */
  CLEARWAY_STATUS_OUT_OF_BOUNDS = 3,
  /* A word, an entry or a region is not at a multiple of 8 bytes; align it. */
  CLEARWAY_STATUS_MISALIGNED = 4,
  /* No entry has that key, or no region that name. */
  CLEARWAY_STATUS_NOT_FOUND = 5,
  /* More bytes than were asked for, or than one operation takes; ask for less at once. */
  CLEARWAY_STATUS_TOO_LARGE = 6,
  /* The region's owner does not take its events; try again later. */
  CLEARWAY_STATUS_BUSY = 7,
  /* The other daemon does not know this operation; update it, or check the arguments. */
  CLEARWAY_STATUS_INVALID = 8,
  /* The connection has ended before the answer: it may have been done, or not; connect again,
   * and look. */
  CLEARWAY_STATUS_UNKNOWN = 32,
  /* The connection has ended, and nothing was changed; connect and try again. */
  CLEARWAY_STATUS_FAILED = 33,
  /* The other host's daemon is of a release without operations; update it. */
  CLEARWAY_STATUS_UNSUPPORTED = 34,
  /* There is no such open connection; connect first. */
  CLEARWAY_STATUS_NO_CONNECTION = 35,
  /* It asks for more than the receive pool holds; ask for less, or attach with a larger pool. */
  CLEARWAY_STATUS_NO_ROOM = 36,
  /* The channel shares a region of that name already; take another. */
  CLEARWAY_STATUS_NAME_TAKEN = 37,
  /* The channel shares as many regions as the policy lets it; ask the administrator. */
  CLEARWAY_STATUS_TOO_MANY = 38,
  /* The daemon's policy does not let this user ask for operations; have its administrator add
   * the user to [policy.ask]. */
  CLEARWAY_STATUS_DENIED = 39,
  /* The channel has no memory of that number; add it first. */
  CLEARWAY_STATUS_NO_MEMORY = 40,
  /* The channel has as many groups of peers as it may; leave one that is not used without
   * members. */
  CLEARWAY_STATUS_TOO_MANY_GROUPS = 41,
};

/* Why no message lies in a posted buffer. */
enum clearway_unposted {
  /* The app has taken it back; nothing was written into it. */
  CLEARWAY_UNPOSTED_CANCELLED = 1,
  /* The connection has ended; a part of a message may lie in it; connect again, and post anew. */
  CLEARWAY_UNPOSTED_ENDED = 2,
  /* There is no such open connection; connect first. */
  CLEARWAY_UNPOSTED_NO_CONNECTION = 3,
  /* The channel has no memory of that number; add it first. */
  CLEARWAY_UNPOSTED_NO_MEMORY = 4,
  /* It reaches beyond the memory; check where it starts, and its length. */
  CLEARWAY_UNPOSTED_OUT_OF_BOUNDS = 5,
  /* No message goes into a buffer of that size; post more than 8 KiB, and up to 8 MiB. */
  CLEARWAY_UNPOSTED_SIZE = 6,
  /* Another posted buffer lies there; wait for the end of that, or post another. */
  CLEARWAY_UNPOSTED_OVERLAPS = 7,
  /* 64 buffers of the connection, or 16384 of the channel, are posted; wait for the end of one. */
  CLEARWAY_UNPOSTED_TOO_MANY = 8,
};


/**
 * What is over after a failure.
 */
typedef enum clearway_ended {
  /**
   * Nothing: try again, wait longer, or do something else.
   */
  CLEARWAY_ENDED_NOTHING = 0,
  /**
   * The connection that the call was about; others go on. `CLEARWAY_CLOSED` (the peer closed
   * it), `CLEARWAY_RESET` (the peer aborted it, or its app died), `CLEARWAY_LOST` (the peer's
   * host is silent), `CLEARWAY_PROTOCOL_ERROR`. Two more end one, and are not told from a failed
   * attempt to connect by their code alone: `CLEARWAY_UNREACHABLE` of what sends or receives on
   * a TCP connection, and `CLEARWAY_REFUSED` of what does on a TCP connection or a stream.
   */
  CLEARWAY_ENDED_CONNECTION = 1,
  /**
   * The channel with all its connections: detach, or clearway_reattach.
   */
  CLEARWAY_ENDED_CHANNEL = 2,
} clearway_ended;

/**
 * How calls wait.
 */
typedef enum clearway_waiting {
  /**
   * Stays awake while that has paid lately, for 0.1 to 2 milliseconds at most (the longer it
   * takes on this machine to wake up, the longer), then sleeps. If others want its core again
   * and again while the engine runs on another one, the calling thread moves there by
   * `sched_setaffinity`, and at once allows itself again what it was allowed before.
   */
  CLEARWAY_WAIT_ADAPTIVE = 0,
  /**
   * Looks again and again: the fastest, and takes a core.
   */
  CLEARWAY_WAIT_SPIN = 1,
  /**
   * Looks, and lets others run in between.
   */
  CLEARWAY_WAIT_YIELD = 2,
  /**
   * Sleeps at once.
   */
  CLEARWAY_WAIT_BLOCK = 3,
} clearway_waiting;

/**
 * What an event is about.
 */
typedef enum clearway_event_kind {
  /**
   * A peer has connected: `connection`, `listener`, `peer`.
   */
  CLEARWAY_EVENT_ACCEPTED = 1,
  /**
   * clearway_start_connect or clearway_start_open_stream has succeeded: `connection`, `token`,
   * `peer`.
   */
  CLEARWAY_EVENT_CONNECTED = 2,
  /**
   * clearway_start_connect or clearway_start_open_stream has failed: `token`, `code`.
   */
  CLEARWAY_EVENT_CONNECT_FAILED = 3,
  /**
   * A message has come: `connection`, `message`, which must be released.
   */
  CLEARWAY_EVENT_MESSAGE = 4,
  /**
   * A connection has ended: `connection`, `code`.
   */
  CLEARWAY_EVENT_CLOSED = 5,
  /**
   * There is room to send again, after a send had answered `CLEARWAY_WOULD_BLOCK` or
   * `CLEARWAY_TIMED_OUT`.
   */
  CLEARWAY_EVENT_WRITABLE = 6,
  /**
   * Frames have come: `frames`, which clearway_vif_list shows and which must be released.
   */
  CLEARWAY_EVENT_FRAMES = 7,
  /**
   * The daemon has taken a virtual interface away: `vif`, `code`.
   */
  CLEARWAY_EVENT_VIF_CLOSED = 8,
  /**
   * A one-sided operation is over: `token`. clearway_next_operated gives it, at once.
   */
  CLEARWAY_EVENT_OPERATED = 9,
  /**
   * A peer has written into a region, and says so: `connection`. clearway_next_notified gives
   * it, at once.
   */
  CLEARWAY_EVENT_NOTIFIED = 10,
  /**
   * A peer has opened a TCP connection: `connection`, `listener` (the TCP port), `peer`.
   */
  CLEARWAY_EVENT_TCP_ACCEPTED = 11,
  /**
   * clearway_tcp_start_connect has succeeded: `connection`, `token`.
   */
  CLEARWAY_EVENT_TCP_CONNECTED = 12,
  /**
   * clearway_tcp_start_connect has failed: `token`, `code`.
   */
  CLEARWAY_EVENT_TCP_CONNECT_FAILED = 13,
  /**
   * Something has happened to a TCP connection since it was last named: `connection`, `ready`
   * (0: nothing can be done now, but something was acknowledged, or was received already). Do
   * all that can be done, until CLEARWAY_WOULD_BLOCK, or remember it: it is not told again.
   */
  CLEARWAY_EVENT_TCP_READY = 14,
  /**
   * The daemon has taken a TCP port away, and nobody can connect there any more: `listener`,
   * `code`.
   */
  CLEARWAY_EVENT_TCP_PORT_CLOSED = 15,
  /**
   * A peer has opened a stream: `connection`, `parent`.
   */
  CLEARWAY_EVENT_STREAM_ACCEPTED = 16,
  /**
   * A message of clearway_send_within or clearway_commit_within could not leave in time, and was
   * dropped; the peer knows: `connection`, `token`. Calls that only receive messages pass over
   * it.
   */
  CLEARWAY_EVENT_DROPPED = 17,
  /**
   * The peer has dropped messages that would have come next (clearway_tell_skipped):
   * `connection`, and in `token` how many.
   */
  CLEARWAY_EVENT_SKIPPED = 18,
  /**
   * A posted buffer is the app's again: `connection`, and in `token` its tag.
   * clearway_next_posted gives its end, at once.
   */
  CLEARWAY_EVENT_POSTED = 19,
} clearway_event_kind;

/**
 * What can be done with a TCP connection; bits.
 */
typedef enum clearway_tcp_ready_bits {
  /**
   * There are bytes to receive, or there will be no more.
   */
  CLEARWAY_TCP_READABLE = 1,
  /**
   * It takes bytes to be sent, if the channel has room (CLEARWAY_EVENT_WRITABLE).
   */
  CLEARWAY_TCP_WRITABLE = 2,
  /**
   * It has ended: close it. What has come before can still be received.
   */
  CLEARWAY_TCP_OVER = 4,
} clearway_tcp_ready_bits;

/**
 * What can be set for a TCP connection.
 */
typedef enum clearway_tcp_option {
  /**
   * Not 0: small segments are sent even while others are not acknowledged (TCP_NODELAY). 0 at
   * first.
   */
  CLEARWAY_TCP_NO_DELAY = 1,
  /**
   * A connection that has been idle for so many seconds is probed (SO_KEEPALIVE); 0, as at
   * first: never.
   */
  CLEARWAY_TCP_KEEP_ALIVE = 2,
  /**
   * After so many milliseconds without an acknowledgement it is given up (TCP_USER_TIMEOUT); 0,
   * as at first: after the retries of RFC 9293, which take many minutes.
   */
  CLEARWAY_TCP_USER_TIMEOUT = 3,
  /**
   * Sending waits while so many bytes are not acknowledged (SO_SNDBUF). At first a quarter of
   * the channel's transmit pool. A buffer of clearway_send_buffer counts whole, however much of
   * it is sent.
   */
  CLEARWAY_TCP_SEND_BUFFER = 4,
  /**
   * So many seconds pass between the probes of CLEARWAY_TCP_KEEP_ALIVE (TCP_KEEPINTVL), 1 or
   * more. That option sets 75, or as many as the connection has to be idle if that is less: set
   * this after it. Without it a connection is probed after two hours from then on.
   */
  CLEARWAY_TCP_KEEP_ALIVE_INTERVAL = 5,
  /**
   * After so many probes in a row without an answer it is given up (TCP_KEEPCNT), 1 to 255. At
   * first 9. Without CLEARWAY_TCP_KEEP_ALIVE it is probed after two hours from then on.
   */
  CLEARWAY_TCP_KEEP_ALIVE_PROBES = 6,
  /**
   * What its packets say of their kind (IP_TOS, IPV6_TCLASS), 0 to 255: the upper six bits are a
   * DSCP (RFC 2474), the lower two are of ECN and stay as they are. 0 at first.
   */
  CLEARWAY_TCP_TRAFFIC_CLASS = 7,
  /**
   * Routers that its packets may pass (IP_TTL, IPV6_UNICAST_HOPS), 1 to 255. 64 at first.
   */
  CLEARWAY_TCP_HOP_LIMIT = 8,
  /**
   * What is sent from now on is in segments of so many bytes at most, payload and TCP's options
   * (TCP_MAXSEG), 64 to 65535. It is for good: a later one can only be less.
   */
  CLEARWAY_TCP_MAXIMUM_SEGMENT = 9,
  /**
   * Not 0: what comes is acknowledged at once for a while. 0: as late as may be (TCP_QUICKACK).
   * As there, what comes later may change it again.
   */
  CLEARWAY_TCP_QUICK_ACKS = 10,
} clearway_tcp_option;

/**
 * What an operation does. Beside each: the fields of struct clearway_operation that it uses, and
 * what its struct clearway_operated has.
 */
typedef enum clearway_operation_kind {
  /**
   * Looks a region up by its name (`data`, 1 to 64 bytes): `value` is the region, and
   * `region_length` its length.
   */
  CLEARWAY_OPERATION_FIND = 1,
  /**
   * Reads `length` bytes at `offset` of `region`, up to 8 MiB less 24 bytes: `data`.
   */
  CLEARWAY_OPERATION_READ = 2,
  /**
   * Writes `data` at `offset` of `region`, up to 8 MiB less 48 bytes.
   */
  CLEARWAY_OPERATION_WRITE = 3,
  /**
   * The same, and tells the region's owner (clearway_next_notified) of it, with `value`.
   */
  CLEARWAY_OPERATION_WRITE_NOTIFY = 4,
  /**
   * Puts `value` into the word at `offset` of `region` if it is `expected`: `value` is what it
   * was.
   */
  CLEARWAY_OPERATION_COMPARE_SWAP = 5,
  /**
   * Adds `value` to the word at `offset` of `region`, wrapping: `value` is what it was.
   */
  CLEARWAY_OPERATION_FETCH_ADD = 6,
  /**
   * Reads what the entry at `offset` of `region` points to in `target`, at most `length` bytes:
   * `value` is the entry, and `data`.
   */
  CLEARWAY_OPERATION_INDIRECT_READ = 7,
  /**
   * The same for 1 to 64 entries; `data` are their offsets, each a uint64_t. `value` is how many
   * were read, and clearway_batch_list gives each. 64 KiB in all.
   */
  CLEARWAY_OPERATION_BATCH_READ = 8,
  /**
   * Looks for the key `value` among `count` entries, `stride` bytes apart, from `offset` of
   * `region` on, and reads what the first that has it points to in `target`, at most `length`
   * bytes: `value` is its index, and `data`. Up to 4096 entries and 64 KiB of them.
   */
  CLEARWAY_OPERATION_SCAN_READ = 9,
} clearway_operation_kind;

/**
 * What may be done with a region: bits that are added up.
 */
typedef enum clearway_right {
  /**
   * Read it, at once or by entries.
   */
  CLEARWAY_RIGHT_READ = 1,
  /**
   * Write it.
   */
  CLEARWAY_RIGHT_WRITE = 2,
  /**
   * Tell its owner of what was written.
   */
  CLEARWAY_RIGHT_NOTIFY = 4,
  /**
   * Compare-and-swap, and fetch-and-add.
   */
  CLEARWAY_RIGHT_ATOMIC = 8,
  /**
   * All of these.
   */
  CLEARWAY_RIGHT_ALL = 15,
} clearway_right;

/**
 * Who gets rights.
 */
typedef enum clearway_grantee {
  /**
   * Whoever can connect.
   */
  CLEARWAY_TO_ANYBODY = 0,
  /**
   * Apps of the user `user` on the same host.
   */
  CLEARWAY_TO_USER = 1,
  /**
   * Hosts with an address of `prefix`.
   */
  CLEARWAY_TO_PREFIX = 2,
  /**
   * Whoever is in `group`: see clearway_set_group.
   */
  CLEARWAY_TO_GROUP = 3,
} clearway_grantee;

/**
 * What an event of a channel that makes calls is about.
 */
typedef enum clearway_call_event_kind {
  /**
   * A call is over, once: `call`, `outcome`.
   */
  CLEARWAY_CALL_ENDED = 1,
  /**
   * A peer asks: `connection`, `number`, `method`, `time_left_ns`, `data`, `length`. To be
   * answered by clearway_answer_call or clearway_refuse_call.
   */
  CLEARWAY_CALL_ASKED = 2,
  /**
   * A peer waits no more for the answer to a request that was told of: `connection`, `number`.
   */
  CLEARWAY_CALL_CANCELLED = 3,
  /**
   * Anything else: `other`, which is never a message.
   */
  CLEARWAY_CALL_OTHER = 4,
} clearway_call_event_kind;

/**
 * What came of a call.
 */
typedef enum clearway_call_outcome {
  /**
   * It was answered: `data`, `length`.
   */
  CLEARWAY_OUTCOME_ANSWERED = 1,
  /**
   * The peer has refused it: `reason`, and in `data`, `length` the same for a person (UTF-8,
   * without NUL), or nothing.
   */
  CLEARWAY_OUTCOME_REFUSED = 2,
  /**
   * Its time was up. The peer may have carried it out, or may do so yet.
   */
  CLEARWAY_OUTCOME_EXPIRED = 3,
  /**
   * Its connection has ended: `code` says why. Whether it was carried out is not known.
   */
  CLEARWAY_OUTCOME_LOST = 4,
} clearway_call_outcome;

/**
 * Why a request was not carried out. Numbers from CLEARWAY_REFUSAL_APP on are the app's own.
 */
typedef enum clearway_refusal {
  /**
   * As many requests of the connection are under way as the server takes: try again later.
   */
  CLEARWAY_REFUSAL_BUSY = 1,
  /**
   * The server knows no such method.
   */
  CLEARWAY_REFUSAL_NO_METHOD = 2,
  /**
   * The server has tried and failed.
   */
  CLEARWAY_REFUSAL_FAILED = 3,
  /**
   * The first of the app's own.
   */
  CLEARWAY_REFUSAL_APP = 256,
} clearway_refusal;

/**
 * A channel to the daemon. For one thread at a time: it may be used by different threads one
 * after another, but never by two at once. Threads that all want to talk attach one each.
 */
typedef struct clearway_channel clearway_channel;

/**
 * What may be chosen when attaching. All zeros means the defaults; new fields are added at the
 * end, so set `size` to `sizeof(struct clearway_options)`.
 */
typedef struct clearway_options {
  /**
   * `sizeof(struct clearway_options)`.
   */
  size_t size;
  /**
   * Path of the daemon's control socket; NULL: CLEARWAY_SOCKET, else the usual places.
   */
  const char *socket;
  /**
   * The engine to use: its name or number in `clearway status`, or a NIC's name for any of its
   * engines; NULL: the daemon chooses.
   */
  const char *engine;
  /**
   * Not 0: share the engine with no other app, or fail.
   */
  uint32_t exclusive;
  /**
   * One of `enum clearway_waiting`.
   */
  uint32_t waiting;
  /**
   * Entries of the rings, powers of two from 16 to 65536; 0: 1024.
   */
  uint32_t submission_entries;
  /**
   * As above, from daemon to app.
   */
  uint32_t completion_entries;
  /**
   * Bytes for messages to be sent, a power of two from 64 KiB to 1 GiB; 0: 16 MiB.
   */
  uint32_t transmit_pool_bytes;
  /**
   * As above, for received messages.
   */
  uint32_t receive_pool_bytes;
  /**
   * For how long the daemon goes on to deliver what was sent after the channel is detached or
   * the program has ended (not: was killed), in nanoseconds; 0: ten seconds. The daemon has a
   * limit, too (linger_s_max).
   */
  uint64_t linger_ns;
  /**
   * Not 0: the daemon has to be of the user `daemon_user`. 0: of root, of the app's own user, or
   * of the user to whom the socket's directory belongs, if nobody else can replace that.
   */
  uint32_t daemon_user_given;
  /**
   * See above.
   */
  uint32_t daemon_user;
  /**
   * Bytes that can be shared by clearway_share, a power of two from 4 KiB to 1 GiB; 0: none.
   * If not 0, attaching is refused (CLEARWAY_DENIED) where the daemon's policy is against
   * sharing.
   */
  uint32_t shared_bytes;
  /**
   * Of no meaning.
   */
  uint32_t reserved;
} clearway_options;

/**
 * What has become of a connection when its channel was attached again.
 */
typedef struct clearway_reconnected {
  /**
   * Its number of before, which means nothing any more.
   */
  uint64_t was;
  /**
   * Its number of now; 0 if there is none.
   */
  uint64_t now;
  /**
   * Why there is none; 0 if there is one. CLEARWAY_DAEMON_GONE: the peer had opened it, and may
   * do so again. CLEARWAY_CLOSED and the like: it had ended before the daemon has.
   */
  int code;
  /**
   * Messages that were sent and not acknowledged: each of them may have arrived or not.
   */
  uint32_t messages_unacknowledged;
} clearway_reconnected;

/**
 * The other end of a connection.
 */
typedef struct clearway_address {
  /**
   * IPv4 or IPv6 address in its usual notation.
   */
  char host[64];
  /**
   * The port of the service, which is no UDP port; or TCP port.
   */
  uint16_t port;
} clearway_address;

/**
 * A received message in place, or bytes of a TCP connection. Valid until it, or a copy of it, is
 * given to clearway_release.
 */
typedef struct clearway_message {
  /**
   * The bytes; read only.
   */
  const void *data;
  /**
   * How many.
   */
  size_t length;
  /**
   * The connection they came by.
   */
  uint64_t connection;
  /**
   * The library's own.
   */
  uint64_t reserved[5];
} clearway_message;

/**
 * A buffer for a message to be sent. Valid until it, or a copy of it, is given to clearway_commit,
 * clearway_commit_within or clearway_discard.
 */
typedef struct clearway_writable {
  /**
   * Where to write.
   */
  void *data;
  /**
   * How many bytes there are.
   */
  size_t length;
  /**
   * The library's own.
   */
  uint64_t reserved[5];
} clearway_writable;

/**
 * The end of a posted buffer: it is the app's again.
 */
typedef struct clearway_posted {
  /**
   * The connection behind which it was posted.
   */
  uint64_t connection;
  /**
   * The app's name for it.
   */
  uint64_t tag;
  /**
   * Bytes of the message that lies in it, from its start; 0 if none does.
   */
  uint64_t length;
  /**
   * 0 if a message lies in it; else one of enum clearway_unposted: why none does.
   */
  uint32_t unposted;
} clearway_posted;

/**
 * How a TCP port is taken. All zeros is as clearway_tcp_listen has it; new fields are added at the
 * end, so set `size` to `sizeof(struct clearway_tcp_port_options)`.
 */
typedef struct clearway_tcp_port_options {
  /**
   * `sizeof(struct clearway_tcp_port_options)`.
   */
  size_t size;
  /**
   * Not 0: other channels of this user may have the port besides, if they say so, too
   * (SO_REUSEPORT), at any engines of the NIC (clearway_options.engine). Each connection that
   * comes is for one of those that listen: at the engine to whose queue it comes, if there is
   * one, and of several by a hash of its addresses and ports. CLEARWAY_ADDRESS_IN_USE says that
   * others have the port and do not share it, and, of connecting from such a port, that channels
   * at other engines have it.
   */
  uint32_t shared;
  /**
   * Where the port's peers are: "10.1.0.0/16", "fd00::/8", "10.1.0.7", at most 32 of them, and
   * NULL at the end; anywhere if this is NULL. To all others it is as if nobody listened there,
   * and connecting to one of them is CLEARWAY_DENIED. Nobody else has the port for them.
   */
  const char *const *peers;
} clearway_tcp_port_options;

/**
 * What a virtual interface shall receive and send. All zeros means none of it; new fields are
 * added at the end, so set `size` to `sizeof(struct clearway_vif_options)`. Lists are arrays of
 * strings that end with NULL, each string a filter as for tcpdump ("dst host 10.0.0.2 and udp dst
 * port 5353").
 */
typedef struct clearway_vif_options {
  /**
   * `sizeof(struct clearway_vif_options)`.
   */
  size_t size;
  /**
   * What it receives: what any of these filters matches.
   */
  const char *const *receive;
  /**
   * What it may send; NULL: the mirror image of `receive`, with source and destination
   * exchanged. An empty list: nothing.
   */
  const char *const *transmit;
  /**
   * What it gets a copy of, while its owner gets it too.
   */
  const char *const *copies;
  /**
   * An Ethernet address of its own, "own" to let the daemon choose one; NULL: the NIC's.
   */
  const char *mac;
  /**
   * An IP address of its own with its prefix, "10.0.0.9/24"; needs an Ethernet address of its
   * own.
   */
  const char *address;
  /**
   * Above 0, it comes before interfaces of lower priority. What the host's own services receive
   * (messages, ARP, ...) is theirs before all.
   */
  uint16_t priority;
} clearway_vif_options;

/**
 * An open virtual interface.
 */
typedef struct clearway_vif {
  /**
   * Names it in calls and events.
   */
  uint32_t id;
  /**
   * The most bytes of a packet in a frame, without the Ethernet header.
   */
  uint32_t mtu;
  /**
   * Its Ethernet address: its own, or the NIC's.
   */
  uint8_t mac[6];
} clearway_vif;

/**
 * What has become of the frames that an interface sent.
 */
typedef struct clearway_frames_sent {
  /**
   * Frames that left, by the NIC or to another app.
   */
  uint64_t sent;
  /**
   * Frames that were refused.
   */
  uint64_t rejected;
  /**
   * Why the last of these was refused, an enum clearway_refused; 0 if none was.
   */
  uint32_t reason;
} clearway_frames_sent;

/**
 * Received frames that are given back together. Valid until it, or a copy of it, is given to
 * clearway_vif_release.
 */
typedef struct clearway_frames {
  /**
   * How many.
   */
  uint32_t count;
  /**
   * The interface they came to.
   */
  uint32_t vif;
  /**
   * The library's own.
   */
  uint64_t reserved[5];
} clearway_frames;

/**
 * A received frame in place.
 */
typedef struct clearway_frame {
  /**
   * The bytes, from the Ethernet header on; read only.
   */
  const void *data;
  /**
   * How many.
   */
  size_t length;
  /**
   * When it was seen, by the host's monotonic clock.
   */
  uint64_t time_ns;
} clearway_frame;

/**
 * Who may do what with a region. What any grant that fits allows is allowed.
 */
typedef struct clearway_grant {
  /**
   * One of enum clearway_grantee.
   */
  uint32_t to;
  /**
   * Of enum clearway_right, added up.
   */
  uint32_t rights;
  /**
   * A user's number, for CLEARWAY_TO_USER.
   */
  uint32_t user;
  /**
   * "10.1.0.0/16", "fd00::/8", "10.1.0.7", for CLEARWAY_TO_PREFIX.
   */
  const char *prefix;
  /**
   * A group's name of 1 to 16 bytes, for CLEARWAY_TO_GROUP.
   */
  const char *group;
} clearway_grant;

/**
 * What is to be shared, with whom. All zeros means nothing with nobody; new fields are added at
 * the end, so set `size` to `sizeof(struct clearway_region_options)`.
 */
typedef struct clearway_region_options {
  /**
   * `sizeof(struct clearway_region_options)`.
   */
  size_t size;
  /**
   * Where it begins in its memory: a multiple of 8.
   */
  uint64_t start;
  /**
   * How many bytes: a multiple of 8.
   */
  uint64_t length;
  /**
   * By which others find it, up to 64 bytes; NULL: they do not.
   */
  const char *name;
  /**
   * Who may do what.
   */
  const struct clearway_grant *grants;
  /**
   * How many grants there are, up to 16.
   */
  size_t grant_count;
  /**
   * The memory: by clearway_add_memory, or 0 for the part of the channel's own that
   * clearway_shared_memory tells of.
   */
  uint64_t memory;
} clearway_region_options;

/**
 * Who is in a group of peers.
 */
typedef struct clearway_member {
  /**
   * CLEARWAY_TO_USER or CLEARWAY_TO_PREFIX.
   */
  uint32_t is;
  /**
   * A user's number, for CLEARWAY_TO_USER.
   */
  uint32_t user;
  /**
   * As of a grant, for CLEARWAY_TO_PREFIX.
   */
  const char *prefix;
} clearway_member;

/**
 * What is to be done with memory that the app at the other end of a connection shares. Fields
 * that its kind does not use are 0.
 *
 * A word has 8 bytes, lies at a multiple of 8, and is in the byte order of the owner's machine.
 * An entry is a word that CLEARWAY_ENTRY makes; in a scan a key, which is a word, stands before
 * it.
 */
typedef struct clearway_operation {
  /**
   * One of enum clearway_operation_kind.
   */
  uint32_t kind;
  /**
   * Bytes to be read, at most.
   */
  uint32_t length;
  /**
   * The region: by CLEARWAY_OPERATION_FIND, or told by its owner.
   */
  uint64_t region;
  /**
   * Where in it.
   */
  uint64_t offset;
  /**
   * Bytes that go along. They are copied: they may be changed when the call returns.
   */
  const void *data;
  /**
   * How many bytes these are.
   */
  size_t data_length;
  /**
   * The region that entries point to. May be `region`.
   */
  uint64_t target;
  /**
   * See enum clearway_operation_kind.
   */
  uint64_t value;
  /**
   * See enum clearway_operation_kind.
   */
  uint64_t expected;
  /**
   * Entries of a scan.
   */
  uint32_t count;
  /**
   * Bytes from one entry of a scan to the next: a multiple of 8, at least 16.
   */
  uint16_t stride;
} clearway_operation;

/**
 * An operation of a vector.
 */
typedef struct clearway_vector_entry {
  /**
   * The connection that it is asked for on.
   */
  uint64_t connection;
  /**
   * What is to be done.
   */
  struct clearway_operation operation;
  /**
   * Where its token is stored, when it was begun.
   */
  uint64_t token;
} clearway_vector_entry;

/**
 * An operation that is over. Valid until it, or a copy of it, is given to
 * clearway_operated_release, which is needed only if it has read anything.
 */
typedef struct clearway_operated {
  /**
   * The operation: from clearway_start_operation.
   */
  uint64_t token;
  /**
   * What came of it: one of enum clearway_status.
   */
  uint32_t status;
  /**
   * See enum clearway_operation_kind.
   */
  uint64_t value;
  /**
   * Of a region that was found: its length in bytes.
   */
  uint64_t region_length;
  /**
   * What was read; read only.
   */
  const void *data;
  /**
   * How many bytes these are.
   */
  size_t length;
  /**
   * The library's own.
   */
  uint64_t reserved[5];
} clearway_operated;

/**
 * One of the reads of a batch.
 */
typedef struct clearway_batch_read {
  /**
   * What was read; read only.
   */
  const void *data;
  /**
   * How many bytes these are.
   */
  size_t length;
  /**
   * What came of it: one of enum clearway_status.
   */
  uint32_t status;
} clearway_batch_read;

/**
 * What a peer has written into a region of this app.
 */
typedef struct clearway_notified {
  /**
   * The connection that it came by.
   */
  uint64_t connection;
  /**
   * The region.
   */
  uint64_t region;
  /**
   * Where in it.
   */
  uint64_t offset;
  /**
   * How many bytes were written.
   */
  uint64_t length;
  /**
   * What the peer says: `value` of its operation.
   */
  uint64_t value;
} clearway_notified;

/**
 * Something that happened. Fields that its kind does not name are zero.
 */
typedef struct clearway_event {
  /**
   * One of `enum clearway_event_kind`. Skip kinds you do not know: newer libraries may have
   * more.
   */
  uint32_t kind;
  /**
   * An error code: why.
   */
  int code;
  /**
   * The connection.
   */
  uint64_t connection;
  /**
   * From clearway_start_connect, clearway_start_open_stream, clearway_start_operation or
   * clearway_send_within; or how many messages were dropped; or the tag of clearway_post.
   */
  uint64_t token;
  /**
   * From clearway_listen, or the TCP port from clearway_tcp_listen.
   */
  uint32_t listener;
  /**
   * The other end.
   */
  struct clearway_address peer;
  /**
   * The message.
   */
  struct clearway_message message;
  /**
   * The virtual interface.
   */
  uint32_t vif;
  /**
   * The frames.
   */
  struct clearway_frames frames;
  /**
   * Bits of `enum clearway_tcp_ready_bits`.
   */
  uint32_t ready;
  /**
   * The connection of which it is a stream.
   */
  uint64_t parent;
} clearway_event;

/**
 * Something that happened on a channel that makes calls. Fields that its kind does not name are
 * zero. Valid until it, or a copy of it, is given to clearway_call_release, which is needed only
 * if `data` is not NULL.
 */
typedef struct clearway_call_event {
  /**
   * One of enum clearway_call_event_kind. Skip kinds you do not know: newer libraries may have
   * more.
   */
  uint32_t kind;
  /**
   * One of enum clearway_call_outcome.
   */
  uint32_t outcome;
  /**
   * One of enum clearway_refusal, or the app's own.
   */
  uint32_t reason;
  /**
   * An error code.
   */
  int code;
  /**
   * From clearway_start_call.
   */
  uint64_t call;
  /**
   * The connection that a request came by.
   */
  uint64_t connection;
  /**
   * What its peer calls the request.
   */
  uint64_t number;
  /**
   * What is asked for: 0 to 65535, the app's own.
   */
  uint32_t method;
  /**
   * Of no meaning.
   */
  uint32_t reserved_word;
  /**
   * How long its peer still waits, in nanoseconds; negative if it does not say.
   */
  int64_t time_left_ns;
  /**
   * The body of the request or of the answer; read only.
   */
  const void *data;
  /**
   * How many bytes these are.
   */
  size_t length;
  /**
   * The library's own.
   */
  uint64_t reserved[5];
  /**
   * What else has happened.
   */
  struct clearway_event other;
} clearway_call_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a channel to the daemon. `app` is the name under which it appears in `clearway status`, 1
 * to 64 bytes of UTF-8 without control characters (NULL: "unnamed"); `options` may be NULL.
 * Returns 0 and stores the channel, or a negative error code.
 */
int clearway_attach(const char *app,
                    const struct clearway_options *options,
                    struct clearway_channel **channel);

/**
 * Attaches a channel again whose daemon has gone (CLEARWAY_ENDED_CHANNEL): waits up to
 * `timeout_ns` for a daemon (one that is there has a tenth of a second to take the app in any
 * case), listens again on all ports, and connects again to all peers to whom the app had
 * connected. Stores in `list`, which has room for `capacity`, what has become of the connections,
 * oldest first. Descriptor and options stay the same; virtual interfaces, all of TCP, and messages
 * that were not received are lost. Attempts to connect whose outcome was not told have failed, of
 * which events tell (CLEARWAY_DAEMON_GONE). Buffers of clearway_send_buffer cannot be sent any
 * more (CLEARWAY_INVALID), only discarded. Returns how many connections there were, or a negative
 * error code; then the channel is as before.
 */
int clearway_reattach(struct clearway_channel *channel,
                      int64_t timeout_ns,
                      struct clearway_reconnected *list,
                      size_t capacity);

/**
 * Closes a channel and all its connections, and waits up to `timeout_ns` until what was sent has
 * been delivered. The channel is gone also if this returns an error, which says that not all is
 * known to be delivered: the daemon goes on with that for `linger_ns` of the options, also after
 * the program has ended. NULL is allowed and does nothing. Messages that were received in
 * place stay readable until they are released.
 */
int clearway_detach(struct clearway_channel *channel, int64_t timeout_ns);

/**
 * Accepts connections to `port` of `address` (NULL: of all addresses of the host) from now on.
 * An address is written as for clearway_connect.
 * Stores the listener's number, and the port, which the daemon has chosen if `port` is 0; both
 * places may be NULL. Returns 0 or a negative error code.
 */
int clearway_listen(struct clearway_channel *channel,
                    const char *address,
                    uint16_t port,
                    uint32_t *listener,
                    uint16_t *bound_port);

/**
 * Stops accepting. Connections that exist go on. Returns 0 or a negative error code.
 */
int clearway_unlisten(struct clearway_channel *channel, uint32_t listener);

/**
 * Connects to an app that listens on `port` of the host at `address`, and stores the connection,
 * which is never 0. Addresses are written as usual: "10.0.0.2", "fe80::1%eth0", or a host's name,
 * which is looked up (getaddrinfo) and whose addresses are tried in turn; with port 0 also
 * "10.0.0.2:4000", "[fe80::1%eth0]:4000", "host.example:4000". With a `timeout_ns` of 0 nothing is
 * begun (CLEARWAY_WOULD_BLOCK): who does not wait begins by clearway_start_connect. Returns 0 or a
 * negative error code.
 */
int clearway_connect(struct clearway_channel *channel,
                     const char *address,
                     uint16_t port,
                     int64_t timeout_ns,
                     uint64_t *connection);

/**
 * Begins to connect and returns at once; clearway_next_event tells the outcome, with the token
 * that is stored here. Of a name, which is looked up first, the first address counts. Returns 0 or
 * a negative error code.
 */
int clearway_start_connect(struct clearway_channel *channel,
                           const char *address,
                           uint16_t port,
                           uint64_t *token);

/**
 * Waits for the next connection that a peer opened. Stores it, and the peer's address unless
 * `peer` is NULL. Returns 0 or a negative error code.
 */
int clearway_accept(struct clearway_channel *channel,
                    int64_t timeout_ns,
                    uint64_t *connection,
                    struct clearway_address *peer);

/**
 * Gives a connection up (CLEARWAY_LOST) after another silence of its peer's host than the daemon's
 * others (silence_s in clearway.toml): `silence_ns` from one second to two days; what lies outside
 * is taken for the nearer of these. Returns 0 or a negative error code.
 */
int clearway_set_silence(struct clearway_channel *channel,
                         uint64_t connection,
                         uint64_t silence_ns);

/**
 * Closes a connection after everything that was sent has been delivered. Returns 0 or a negative
 * error code.
 */
int clearway_close(struct clearway_channel *channel, uint64_t connection);

/**
 * Closes a connection at once; what is on its way is lost. Returns 0 or a negative error code.
 */
int clearway_abort(struct clearway_channel *channel, uint64_t connection);

/**
 * Opens a stream of a connection: another connection to the same app, with messages, order, credit
 * and an end of its own, for all calls that take a connection but one-sided operations. Up to 1024
 * of a connection; they end with it at the latest. The peer has to take streams
 * (clearway_take_streams), or this one is closed with CLEARWAY_REFUSED. A stream has none itself
 * (CLEARWAY_INVALID), and a peer of an older release takes none (CLEARWAY_VERSION_UNKNOWN). Waits
 * up to `timeout_ns` for the daemon, not for the peer; if that is 0, nothing is begun
 * (CLEARWAY_WOULD_BLOCK): who does not wait begins by clearway_start_open_stream. Returns 0 and
 * stores the stream, or a negative error code.
 */
int clearway_open_stream(struct clearway_channel *channel,
                         uint64_t connection,
                         int64_t timeout_ns,
                         uint64_t *stream);

/**
 * Begins to open a stream and returns at once; clearway_next_event tells the outcome, with the
 * token that is stored here. Returns 0 or a negative error code.
 */
int clearway_start_open_stream(struct clearway_channel *channel,
                               uint64_t connection,
                               uint64_t *token);

/**
 * Lets peers open streams of this channel's connections (1), or not (0, as at first): call it
 * before clearway_listen and clearway_connect. Returns 0 or a negative error code.
 */
int clearway_take_streams(struct clearway_channel *channel, int are_taken);

/**
 * Says what a connection may send beside its streams, and each stream beside the others: of those
 * that have something to send, the ones of the lowest `urgency` (0 to 7, at first 3) share what
 * the network takes, each by its `weight` (1 to 256, at first 16); others wait. Holds for this
 * side only, and for the network: between apps of one host nobody waits for another. Returns 0 or
 * a negative error code, CLEARWAY_INVALID if one of them is out of its range.
 */
int clearway_set_priority(struct clearway_channel *channel,
                          uint64_t connection,
                          uint8_t urgency,
                          uint16_t weight);

/**
 * Whether connections that are opened from now on share their way through the network (1), or
 * have one each (0, as at first). All of this user's to one port of a host share one, as streams
 * of a connection do, and each has messages, order, credit and an end of its own: many cost less
 * so. They share what is lost, and how much may be sent at a time. A peer of an older release
 * shares none: they then have one each. Such a connection has no streams and no one-sided
 * operations, and clearway_set_silence means nothing to it. Returns 0 or a negative error code.
 */
int clearway_share_flows(struct clearway_channel *channel, int are_shared);

/**
 * From now on messages that come by a connection are delivered as they become whole: one that is
 * lost on its way, or large, holds up none behind it. What was sent in order may then come in any.
 * For the rest of the connection, and for this direction only. Returns 0 or a negative error code.
 */
int clearway_set_unordered(struct clearway_channel *channel, uint64_t connection);

/**
 * Waits for the next stream that a peer opened. Stores it, and the connection of which it is
 * unless `parent` is NULL. Returns 0 or a negative error code.
 */
int clearway_accept_stream(struct clearway_channel *channel,
                           int64_t timeout_ns,
                           uint64_t *stream,
                           uint64_t *parent);

/**
 * Sends `length` bytes (at most 8 MiB). Waits up to `timeout_ns` nanoseconds while there is no
 * room (0: not at all; negative: as long as it takes). The bytes are copied: they may be changed
 * when this returns. Returns 0 or a negative error code.
 */
int clearway_send(struct clearway_channel *channel,
                  uint64_t connection,
                  const void *data,
                  size_t length,
                  int64_t timeout_ns);

/**
 * Sends a message that is worth nothing after `within_ns` nanoseconds (counted in microseconds, at
 * most 71 minutes): if nothing of it has left for the peer by then, because the network, the peer
 * or what was sent before holds it up, it may be dropped. CLEARWAY_EVENT_DROPPED then tells of it
 * here, and CLEARWAY_EVENT_SKIPPED at the peer if that has asked for it; else it arrives as any
 * other. Stores its number among the messages that were sent on the connection, from 0 on,
 * wrapping, unless `number` is NULL. Waits for room no longer than that, and is not sent if there
 * is none. A peer of an older release gets it, however late, and so does one if it waits behind
 * one-sided operations. Returns 0 or a negative error code.
 */
int clearway_send_within(struct clearway_channel *channel,
                         uint64_t connection,
                         const void *data,
                         size_t length,
                         uint64_t within_ns,
                         uint32_t *number);

/**
 * Whether clearway_next_event tells, by CLEARWAY_EVENT_SKIPPED, of messages that peers have
 * dropped (1), or not (0, as at first). Calls that only receive pass over them. Returns 0 or a
 * negative error code.
 */
int clearway_tell_skipped(struct clearway_channel *channel, int is_told);

/**
 * Receives the next message of any connection into `buffer`, and stores the connection unless
 * `connection` is NULL. Returns the length of the message, or a negative error code.
 * A code with `CLEARWAY_ENDED_CONNECTION` (see clearway_what_ended), or `CLEARWAY_REFUSED` of a
 * stream, tells, once, that the connection stored has ended. A message that is larger than
 * `capacity` stays the next one, and the answer is `CLEARWAY_TOO_LARGE`.
 */
int64_t clearway_recv(struct clearway_channel *channel,
                      void *buffer,
                      size_t capacity,
                      int64_t timeout_ns,
                      uint64_t *connection);

/**
 * The same for the next message of one connection. What comes by others meanwhile is kept.
 */
int64_t clearway_recv_from(struct clearway_channel *channel,
                           uint64_t connection,
                           void *buffer,
                           size_t capacity,
                           int64_t timeout_ns);

/**
 * Receives the next message of any connection in place, without a copy. Release it soon: peers are
 * slowed down while many are held. Returns 0 or a negative error code (as clearway_recv; for the
 * end of a connection, `message->connection` tells which).
 */
int clearway_recv_message(struct clearway_channel *channel,
                          int64_t timeout_ns,
                          struct clearway_message *message);

/**
 * Gives a message's memory back. It may have come from another channel, or from one that was
 * detached meanwhile; `channel` may be NULL, and is if another thread has it (see Threads), but
 * with the right one it is faster. Releasing twice, by a copy or not, does nothing.
 */
void clearway_release(struct clearway_channel *channel, struct clearway_message *message);

/**
 * Gets a buffer for a message of up to `length` bytes, to be filled in place. Waits up to
 * `timeout_ns` for room. Returns 0 or a negative error code.
 */
int clearway_send_buffer(struct clearway_channel *channel,
                         size_t length,
                         int64_t timeout_ns,
                         struct clearway_writable *writable);

/**
 * Sends the first `length` bytes of a buffer, without a copy. The buffer is gone also if this
 * returns an error, but for `CLEARWAY_INVALID`. Returns 0 or a negative error code.
 */
int clearway_commit(struct clearway_channel *channel,
                    uint64_t connection,
                    struct clearway_writable *writable,
                    size_t length);

/**
 * The same for a message that is worth nothing after `within_ns` nanoseconds, counted from this
 * call; what that means, and what `number` is, says clearway_send_within.
 */
int clearway_commit_within(struct clearway_channel *channel,
                           uint64_t connection,
                           struct clearway_writable *writable,
                           size_t length,
                           uint64_t within_ns,
                           uint32_t *number);

/**
 * Gives a buffer back that shall not be sent after all, in any thread. Twice does nothing.
 */
void clearway_discard(struct clearway_writable *writable);

/**
 * Makes sure that the daemon hears of every message that was released. Only needed before doing
 * something else for long; sending needs no flush.
 */
int clearway_flush(struct clearway_channel *channel);

/**
 * Posts a buffer behind a connection or stream: `length` bytes at `offset` of a memory of the
 * channel, 0 for its own (clearway_shared_memory) or one of clearway_add_memory. A message of more
 * than 8 KiB that comes there goes into the first posted buffer that it fits, whatever the state
 * of the receive pool; smaller ones, and those that fit none, are received as ever. A buffer has
 * more than 8 KiB and up to 8 MiB, and overlaps no other that is posted; up to 64 of a connection
 * are at a time, and 16384 of a channel. It is not touched until its end, of which
 * clearway_next_posted tells with this `tag`, which need not be the only one of its kind. Waits
 * for room for the command, and for nothing else. Returns 0 or a negative error code:
 * CLEARWAY_CLOSED if the connection is not open, CLEARWAY_INVALID if the buffer is of another
 * size, or not in such a memory. What only the daemon finds wrong, the buffer's end tells.
 */
int clearway_post(struct clearway_channel *channel,
                  uint64_t connection,
                  uint64_t memory,
                  uint64_t offset,
                  uint64_t length,
                  uint64_t tag);

/**
 * Takes the first buffer of this tag back that is posted behind the connection and has no message
 * coming into it: its end tells that it is the app's again (CLEARWAY_UNPOSTED_CANCELLED). If there
 * is none nothing happens: it has had its end, or will have it when the message is there. Returns
 * 0 or a negative error code.
 */
int clearway_unpost(struct clearway_channel *channel, uint64_t connection, uint64_t tag);

/**
 * Waits up to `timeout_ns` for the next end of a posted buffer, of any connection, and stores it.
 * Each has one, also if the app has closed the connection, and after clearway_reattach. Ends have
 * their place among messages in clearway_next_event (CLEARWAY_EVENT_POSTED), and calls that only
 * receive messages leave them for this one. Returns 0 or a negative error code.
 */
int clearway_next_posted(struct clearway_channel *channel,
                         int64_t timeout_ns,
                         struct clearway_posted *posted);

/**
 * Why no message lies in a buffer, in words, with what to do about it. Never NULL; valid for ever.
 * For numbers that are none of enum clearway_unposted it says so.
 */
const char *clearway_unposted_text(uint32_t unposted);

/**
 * Takes TCP port `port` of `address` (NULL: of all addresses of the host), which nobody else on
 * this host has then, neither an app nor the kernel's programs, and accepts connections there;
 * `backlog` of them may wait for the engine (0: 1024, the most is 4096). An address is written as
 * for clearway_connect. Stores the port's number, which is never 0, and the address and port,
 * which is one that is free if `port` is 0; both places may be NULL. Returns 0 or a negative error
 * code: CLEARWAY_ADDRESS_IN_USE (another app has it), CLEARWAY_REFUSED (a program of the kernel's
 * has it), CLEARWAY_DENIED, CLEARWAY_ADDRESS_UNAVAILABLE.
 */
int clearway_tcp_listen(struct clearway_channel *channel,
                        const char *address,
                        uint16_t port,
                        uint32_t backlog,
                        uint32_t *tcp_port,
                        struct clearway_address *bound);

/**
 * The same as clearway_tcp_listen with options, which may be NULL. CLEARWAY_DENIED is also told if
 * the daemon's policy gives the port for other peers only; the message says for which.
 */
int clearway_tcp_listen_with(struct clearway_channel *channel,
                             const char *address,
                             uint16_t port,
                             uint32_t backlog,
                             const struct clearway_tcp_port_options *options,
                             uint32_t *tcp_port,
                             struct clearway_address *bound);

/**
 * Stops accepting at a TCP port, and gives it back. Connections that nobody has accepted are
 * reset; others go on, and then the port stays the app's for them: until clearway_tcp_listen takes
 * it again, with the same address and options, until clearway_tcp_close_port, or until the call of
 * the channel that learns that the last of them has ended. Returns 0 or a negative error code.
 */
int clearway_tcp_unlisten(struct clearway_channel *channel, uint32_t tcp_port);

/**
 * Gives a TCP port back. Connections that are left there are reset; calls for them are
 * CLEARWAY_CLOSED from then on, those that receive included. Returns 0 or a negative error code.
 */
int clearway_tcp_close_port(struct clearway_channel *channel, uint32_t tcp_port);

/**
 * Waits for the next connection that a peer has opened to a TCP port. Stores it, which is never
 * 0, and the peer's address unless `peer` is NULL. What comes while the channel has as many
 * connections as it may (`connections_per_channel` of the daemon's policy) is reset; see
 * connections_refused in `clearway status`. Returns 0 or a negative error code.
 */
int clearway_tcp_accept(struct clearway_channel *channel,
                        uint32_t tcp_port,
                        int64_t timeout_ns,
                        uint64_t *connection,
                        struct clearway_address *peer);

/**
 * Opens a TCP connection to a host that need not know of Clearway, and stores it, which is never
 * 0. From the port with the number `tcp_port` of clearway_tcp_listen, or, if that is 0, from one
 * that is free, for which the daemon may have to be asked within the same time. The address is
 * written as for clearway_connect. Returns 0 or a negative error code: CLEARWAY_REFUSED (nobody
 * listens there), CLEARWAY_UNREACHABLE, CLEARWAY_LOST (no answer to any retry),
 * CLEARWAY_ADDRESS_IN_USE (there is such a connection already), CLEARWAY_TIMED_OUT;
 * CLEARWAY_WOULD_BLOCK with a `timeout_ns` of 0, and nothing was begun (who does not wait begins
 * by clearway_tcp_start_connect).
 */
int clearway_tcp_connect(struct clearway_channel *channel,
                         uint32_t tcp_port,
                         const char *address,
                         uint16_t port,
                         int64_t timeout_ns,
                         uint64_t *connection);

/**
 * Begins to open a TCP connection, and does not wait for the peer; clearway_next_event tells the
 * outcome, with the token that is stored here. Of a name, which is looked up first, the first
 * address counts. If `tcp_port` is 0, and no port is free of those that the channel has taken for
 * that before, the daemon is asked for another one (see Times). Returns 0 or a negative error
 * code.
 */
int clearway_tcp_start_connect(struct clearway_channel *channel,
                               uint32_t tcp_port,
                               const char *address,
                               uint16_t port,
                               uint64_t *token);

/**
 * Sends some of `length` bytes, at least one unless that is 0; waits up to `timeout_ns` for room.
 * The bytes are copied: they may be changed when this returns. Returns how many were taken, which
 * may be fewer than `length`, or a negative error code. After CLEARWAY_WOULD_BLOCK,
 * CLEARWAY_EVENT_TCP_READY with CLEARWAY_TCP_WRITABLE follows, or CLEARWAY_EVENT_WRITABLE.
 */
int64_t clearway_tcp_send(struct clearway_channel *channel,
                          uint64_t connection,
                          const void *data,
                          size_t length,
                          int64_t timeout_ns);

/**
 * The same, and more will follow: what does not fill a segment waits for that (MSG_MORE).
 */
int64_t clearway_tcp_send_more(struct clearway_channel *channel,
                               uint64_t connection,
                               const void *data,
                               size_t length,
                               int64_t timeout_ns);

/**
 * Closes a connection, as clearway_tcp_close does, when the peer has acknowledged all that was
 * sent (SO_LINGER with a time). Returns 0; CLEARWAY_TIMED_OUT if that takes longer than
 * `timeout_ns`, and the daemon goes on with it; or another negative error code if the connection
 * has ended, and not all may have arrived. It is closed in any case.
 */
int clearway_tcp_linger(struct clearway_channel *channel, uint64_t connection, int64_t timeout_ns);

/**
 * Sends the first `length` bytes of a buffer of clearway_send_buffer, without a copy: it is the
 * daemon's until the peer has acknowledged it. `has_more` not 0: what does not fill a segment
 * waits for the next call (MSG_MORE). Waits up to `timeout_ns` for room. Returns 0 or a negative
 * error code; then the buffer is the app's as before, and may be sent again or given to
 * clearway_discard.
 */
int clearway_tcp_send_buf(struct clearway_channel *channel,
                          uint64_t connection,
                          struct clearway_writable *writable,
                          size_t length,
                          uint32_t has_more,
                          int64_t timeout_ns);

/**
 * Receives up to `capacity` bytes; waits up to `timeout_ns` until there are some. Returns how
 * many; 0 if the peer has closed its half, and there will be no more; or a negative error code:
 * CLEARWAY_RESET (the peer gave the connection up), CLEARWAY_LOST (it is silent),
 * CLEARWAY_UNREACHABLE.
 */
int64_t clearway_tcp_recv(struct clearway_channel *channel,
                          uint64_t connection,
                          void *buffer,
                          size_t capacity,
                          int64_t timeout_ns);

/**
 * Receives bytes where the daemon put them, without a copy: at least one, and as many as
 * `bytes->length` says, which may be those of many segments. To be given to clearway_release,
 * after which the peer may send as many more. With length 0 there will be no more bytes, and there
 * is nothing to release. Returns 0 or a negative error code, as clearway_tcp_recv.
 */
int clearway_tcp_recv_buf(struct clearway_channel *channel,
                          uint64_t connection,
                          int64_t timeout_ns,
                          struct clearway_message *bytes);

/**
 * Closes the app's half of a TCP connection: the peer reads to the end of what was sent. What it
 * sends is still received. Returns 0 or a negative error code.
 */
int clearway_tcp_shutdown(struct clearway_channel *channel, uint64_t connection);

/**
 * Lets go of a TCP connection, which has ended or not. What was sent still arrives; but if
 * something has come that was not received, the peer gets a reset (RFC 9293, section 3.6.1). Bytes
 * that are held in place stay readable. Returns 0 or a negative error code.
 */
int clearway_tcp_close(struct clearway_channel *channel, uint64_t connection);

/**
 * Gives a TCP connection up: the peer gets a reset, and what was sent may be lost. Returns 0 or a
 * negative error code.
 */
int clearway_tcp_abort(struct clearway_channel *channel, uint64_t connection);

/**
 * Sets an option of a TCP connection: one of `enum clearway_tcp_option`, which says the unit of
 * `value`. Returns 0 or a negative error code.
 */
int clearway_tcp_set(struct clearway_channel *channel,
                     uint64_t connection,
                     uint32_t option,
                     uint32_t value);

/**
 * From now on clearway_next_event and clearway_next_events tell of a TCP connection again
 * (CLEARWAY_EVENT_TCP_READY) while something of `watched`, bits of `enum
 * clearway_tcp_ready_bits`, can be done with it, and there is nothing new to tell: by level, as
 * epoll and poll do. With 0, as at first, they tell of it once each time that something happens
 * to it: by edge, as EPOLLET. That it takes bytes is not told again while the channel has no room
 * for them. Returns 0 or a negative error code: CLEARWAY_INVALID if `watched` has other bits.
 */
int clearway_tcp_watch(struct clearway_channel *channel, uint64_t connection, uint32_t watched);

/**
 * Stores this end of a TCP connection and the peer; both places may be NULL. This end's host is
 * the address that the peer has connected to, also where the app listens at all addresses. Returns
 * 0 or a negative error code.
 */
int clearway_tcp_addresses(struct clearway_channel *channel,
                           uint64_t connection,
                           struct clearway_address *local,
                           struct clearway_address *peer);

/**
 * What can be done with a TCP connection, as far as the calls of the channel so far have learnt:
 * bits of `enum clearway_tcp_ready_bits`, or a
 * negative error code.
 */
int clearway_tcp_ready(struct clearway_channel *channel, uint64_t connection);

/**
 * How many bytes of a TCP connection the peer has not acknowledged, of those that were sent, as
 * far as the calls of the channel so far have learnt: those of a send count until all of them are.
 * 0 of one that has ended. Or a negative error code: CLEARWAY_CLOSED if it is not open on this
 * channel.
 */
int64_t clearway_tcp_unacknowledged(struct clearway_channel *channel, uint64_t connection);

/**
 * Opens a virtual interface, and stores what it became. From now on the app gets the frames that
 * its filters match. Returns 0 or a negative error code; clearway_last_error says which filter,
 * which owner or which rule of the policy was in the way.
 */
int clearway_vif_open(struct clearway_channel *channel,
                      const struct clearway_vif_options *options,
                      struct clearway_vif *vif);

/**
 * Closes a virtual interface, after what was sent has left. Frames that have come and were not
 * taken are lost. Returns 0 or a negative error code.
 */
int clearway_vif_close(struct clearway_channel *channel, uint32_t vif);

/**
 * Sends a frame of `length` bytes (14 to 65535), from its Ethernet header on, without frame check
 * sequence. Waits up to `timeout_ns` while there is no room. Frames leave together: when
 * CLEARWAY_FRAMES_MAX have been gathered or 8 KiB are full, at clearway_vif_flush, or when a call
 * waits. Frames that the interface may not send are dropped and counted: see clearway_vif_sent.
 * Returns 0 or a negative error code.
 */
int clearway_vif_send(struct clearway_channel *channel,
                      uint32_t vif,
                      const void *data,
                      size_t length,
                      int64_t timeout_ns);

/**
 * Stores where a frame of `length` bytes is to be written, without a copy: at once, before the
 * next call of the channel. It is sent as it is then, as by clearway_vif_send. Returns 0 or a
 * negative error code.
 */
int clearway_vif_buffer(struct clearway_channel *channel,
                        uint32_t vif,
                        size_t length,
                        int64_t timeout_ns,
                        void **data);

/**
 * Sends the frames that were gathered. Waits up to `timeout_ns` while there is no room. Returns 0
 * or a negative error code.
 */
int clearway_vif_flush(struct clearway_channel *channel, uint32_t vif, int64_t timeout_ns);

/**
 * Stores what has become of the frames that the interface sent. Returns 0 or a negative error
 * code.
 */
int clearway_vif_sent(struct clearway_channel *channel,
                      uint32_t vif,
                      struct clearway_frames_sent *sent);

/**
 * What is wrong with a frame that was refused for `reason`, in words. Never NULL; valid for ever.
 * For 0 and for numbers that are no reason it says so.
 */
const char *clearway_refused_text(uint32_t reason);

/**
 * Receives the next frames of any virtual interface in place, without a copy: fills `list`, which
 * must have room for CLEARWAY_FRAMES_MAX, and stores in `frames` what clearway_vif_release gives
 * back. Release them soon: while many are held, further frames are lost. Returns how many frames
 * there are, or a negative error code. If the daemon has taken an interface away, that is an
 * error, once, and `frames->vif` tells which.
 */
int clearway_vif_recv(struct clearway_channel *channel,
                      int64_t timeout_ns,
                      struct clearway_frames *frames,
                      struct clearway_frame *list,
                      size_t capacity);

/**
 * Fills `list` with the frames of an event, as clearway_vif_recv does. Returns how many there are,
 * 0 if they were released, or a negative error code.
 */
int clearway_vif_list(const struct clearway_frames *frames,
                      struct clearway_frame *list,
                      size_t capacity);

/**
 * Gives frames back. They may have come from another channel, or from one that was detached
 * meanwhile; `channel` may be NULL, but with the right one it is faster. Releasing twice, by a
 * copy or not, does nothing.
 */
void clearway_vif_release(struct clearway_channel *channel, struct clearway_frames *frames);

/**
 * Stores where the memory is that the channel can share (`shared_bytes` of its options), and how
 * many bytes it has; both places may be NULL. It is all zeros at first, and stays until the
 * channel is detached or attached again. Any thread may use it. Others read and write what is
 * shared at any time: use atomic operations (stdatomic.h) of 8 bytes for words that both sides
 * change. Returns 0 or a negative error code.
 */
int clearway_shared_memory(struct clearway_channel *channel, void **data, size_t *length);

/**
 * Adds memory of the app's own, all of a memfd, of which pieces can be shared then, and stores its
 * number (which is never 0), where it is, and how many bytes it has; the last two places may be
 * NULL. What it holds stays. It stays mapped there until it is removed, or the channel is detached
 * or attached again; the descriptor may be closed.
 *
 * The memfd is one that takes seals (MFD_ALLOW_SEALING) and has a size in whole pages. From now on
 * its size and its pages are fixed: it is written by mappings that there are already, this one
 * among them, and in no other way. So it is for one channel, once; when that is attached again,
 * clearway_memory_again tells of a copy. Returns 0 or a negative error code: CLEARWAY_INVALID if
 * it is no such memfd, CLEARWAY_LIMIT or CLEARWAY_DENIED if the daemon's policy is against it,
 * CLEARWAY_OUT_OF_MEMORY.
 */
int clearway_add_memory(struct clearway_channel *channel,
                        int memfd,
                        uint64_t *memory,
                        void **data,
                        size_t *length);

/**
 * Tells of memory that the channel had before it was attached again by clearway_reattach, under
 * the number `was`: stores what it is called now, where it is, and how many bytes it has; all
 * three places may be NULL. It is a copy of what was there, in a memfd that the library has made,
 * and nothing of it is shared yet. Returns 0 or a negative error code: CLEARWAY_INVALID if there
 * was no such memory, or why there is no copy.
 */
int clearway_memory_again(struct clearway_channel *channel,
                          uint64_t was,
                          uint64_t *memory,
                          void **data,
                          size_t *length);

/**
 * Takes memory of the app's own back, and unmaps it where clearway_add_memory has told. Its
 * regions are unshared before. Returns 0 or a negative error code: CLEARWAY_INVALID if a region is
 * still shared in it, or a buffer posted (clearway_unpost), or there is no such memory.
 */
int clearway_remove_memory(struct clearway_channel *channel, uint64_t memory);

/**
 * Shares a piece of the channel's memory with those whom `options` names, by the connections of
 * this channel, and stores the region, which is never 0 and may be sent to others as a number.
 * Waits up to `timeout_ns` for the daemon; if that is 0, nothing is shared (CLEARWAY_WOULD_BLOCK).
 * What the daemon shares after CLEARWAY_TIMED_OUT, a later call of the channel takes back. Returns
 * 0 or a negative error code: CLEARWAY_ADDRESS_IN_USE if the channel shares a region of that name
 * already, or CLEARWAY_LIMIT if it shares as many as it may.
 */
int clearway_share(struct clearway_channel *channel,
                   const struct clearway_region_options *options,
                   int64_t timeout_ns,
                   uint64_t *region);

/**
 * Says who is in a group of peers, to which regions of this channel may be granted: these up to
 * 256, and nobody else. Waits up to `timeout_ns` for the daemon; if that is 0, nothing is said
 * (CLEARWAY_WOULD_BLOCK). When this has returned 0, whoever was in the group and is no longer can
 * do nothing more by it. A group of which nothing was said has no members; up to 64 may have some.
 * Returns 0 or a negative error code: CLEARWAY_LIMIT if these are too many groups,
 * CLEARWAY_TOO_LARGE if the members are too many.
 */
int clearway_set_group(struct clearway_channel *channel,
                       const char *name,
                       const struct clearway_member *members,
                       size_t count,
                       int64_t timeout_ns);

/**
 * Shares a region no longer, and waits up to `timeout_ns` for the daemon; if that is 0, it stays
 * shared (CLEARWAY_WOULD_BLOCK). When this has returned 0, nobody reads or changes it any more.
 * Returns 0 or a negative error code.
 */
int clearway_unshare(struct clearway_channel *channel, uint64_t region, int64_t timeout_ns);

/**
 * Begins an operation on memory that the app at the other end of `connection` shares, and stores
 * its token, which may be NULL. Up to 16384 of a channel go on at once. Waits up to `timeout_ns`
 * while there is no room; after CLEARWAY_WOULD_BLOCK and CLEARWAY_TIMED_OUT, nothing was begun,
 * and CLEARWAY_EVENT_WRITABLE tells when there is room. Operations of a connection are carried
 * out, and are over, in the order in which they were begun. clearway_next_operated or an event
 * tells when one is over. Returns 0 or a negative error code.
 */
int clearway_start_operation(struct clearway_channel *channel,
                             uint64_t connection,
                             const struct clearway_operation *operation,
                             int64_t timeout_ns,
                             uint64_t *token);

/**
 * Begins `count` operations, of any kinds and on any connections, in one go: all of them or none.
 * They are submitted in their order, and the daemon is woken once. Each has an end of its own, as
 * if clearway_start_operation had begun it, and `token` of its entry names it; one that is refused
 * stops none of the others. Waits up to `timeout_ns` while there is no room for all. There may be
 * as many as the submission ring has entries, 16384 at most, and the transmit pool has to hold
 * what they take along. Returns 0 or a negative error code. Then nothing was begun, and `wrong`,
 * which may be NULL, is the index of the first operation that is wrong (one too many, if
 * CLEARWAY_TOO_LARGE says so), or `count` if none is (CLEARWAY_WOULD_BLOCK, say).
 */
int clearway_start_vector(struct clearway_channel *channel,
                          struct clearway_vector_entry *entries,
                          size_t count,
                          int64_t timeout_ns,
                          size_t *wrong);

/**
 * Does an operation, and stores what came of it: waits up to `timeout_ns` until there is room for
 * it, and as long for its end. Returns 0 if it was done, or a negative error code; then
 * `operated->status` says more if it is not 0, and it is over. After CLEARWAY_TIMED_OUT or
 * CLEARWAY_WOULD_BLOCK it goes on if `operated->token` is not 0 and `operated->status` is 0;
 * clearway_next_operated will tell of its end.
 */
int clearway_operate(struct clearway_channel *channel,
                     uint64_t connection,
                     const struct clearway_operation *operation,
                     int64_t timeout_ns,
                     struct clearway_operated *operated);

/**
 * Waits up to `timeout_ns` for the next operation that is over, of those that were begun by
 * clearway_start_operation, and stores it. Release it soon if it has read anything: while the
 * channel's memory is full, nothing more is read. Returns 0, whatever came of the operation, or a
 * negative error code.
 */
int clearway_next_operated(struct clearway_channel *channel,
                           int64_t timeout_ns,
                           struct clearway_operated *operated);

/**
 * Fills `list` with the `count` reads of a batch of as many entries. They are valid until
 * `operated` is released. Returns 0 or a negative error code.
 */
int clearway_batch_list(struct clearway_channel *channel,
                        const struct clearway_operated *operated,
                        struct clearway_batch_read *list,
                        size_t count);

/**
 * Gives back the memory of what an operation has read. It may have come from another channel, or
 * from one that was detached meanwhile; `channel` may be NULL, but with the right one it is
 * faster. Releasing twice, by a copy or not, or what has read nothing, does nothing.
 */
void clearway_operated_release(struct clearway_channel *channel,
                               struct clearway_operated *operated);

/**
 * Waits up to `timeout_ns` for the next CLEARWAY_OPERATION_WRITE_NOTIFY of a peer, and stores what
 * it has written and says. The bytes are there. An owner that does not take these is told of no
 * more (CLEARWAY_STATUS_BUSY at the peer). Returns 0 or a negative error code.
 */
int clearway_next_notified(struct clearway_channel *channel,
                           int64_t timeout_ns,
                           struct clearway_notified *notified);

/**
 * Cause and remedy of an operation's status, in words. Never NULL; valid for ever. For numbers
 * that are no status it says so.
 */
const char *clearway_status_text(uint32_t status);

/**
 * Waits for whatever happens next on the channel, and stores it. Returns 0 or a negative error
 * code.
 */
int clearway_next_event(struct clearway_channel *channel,
                        int64_t timeout_ns,
                        struct clearway_event *event);

/**
 * Waits until something happens on the channel, as clearway_next_event does, and stores all that
 * has happened by then, `count` events at most: for loops that serve many. Each TCP connection of
 * clearway_tcp_watch is told of again once at most. Returns how many are stored, 1 or more, or a
 * negative error code; CLEARWAY_INVALID if `count` is 0.
 */
int64_t clearway_next_events(struct clearway_channel *channel,
                             int64_t timeout_ns,
                             struct clearway_event *events,
                             size_t count);

/**
 * A descriptor for poll, select or epoll: readable when there is something for
 * clearway_next_event, or another thread has released something, but only between clearway_arm
 * and clearway_disarm. Do not read, write or close it. Returns it, or a negative error code.
 */
int clearway_fd(struct clearway_channel *channel);

/**
 * Before waiting on clearway_fd. Returns 1: wait. 0: something is there already; do not wait. Or a
 * negative error code. In every case clearway_disarm has to follow before the next call.
 */
int clearway_arm(struct clearway_channel *channel);

/**
 * After waiting on clearway_fd. Returns 0 or a negative error code.
 */
int clearway_disarm(struct clearway_channel *channel);

/**
 * Asks the app at the other end of `connection`, and waits up to `timeout_ns` for the answer,
 * which is stored as an event of kind CLEARWAY_CALL_ENDED. What else happens meanwhile stays for
 * clearway_next_call_event. Returns 0, or a negative error code: CLEARWAY_CALL_REFUSED with
 * `event->reason`; CLEARWAY_TIMED_OUT, after which the peer is told that nobody waits;
 * CLEARWAY_CLOSED, CLEARWAY_RESET, CLEARWAY_LOST: whether it was carried out is not known;
 * CLEARWAY_WOULD_BLOCK with a `timeout_ns` of 0: nothing was asked (clearway_start_call does not
 * wait).
 */
int clearway_call(struct clearway_channel *channel,
                  uint64_t connection,
                  uint16_t method,
                  const void *data,
                  size_t length,
                  int64_t timeout_ns,
                  struct clearway_call_event *event);

/**
 * Asks, and does not wait: clearway_next_call_event tells of the outcome, once and always; after
 * `timeout_ns` that is CLEARWAY_OUTCOME_EXPIRED. Stores the call, which may be NULL. Returns 0 or
 * a negative error code: after CLEARWAY_WOULD_BLOCK nothing was asked, and CLEARWAY_EVENT_WRITABLE
 * tells when there is room.
 */
int clearway_start_call(struct clearway_channel *channel,
                        uint64_t connection,
                        uint16_t method,
                        const void *data,
                        size_t length,
                        int64_t timeout_ns,
                        uint64_t *call);

/**
 * Waits no more for a call, and tells the peer; no outcome is told. Returns 1, or 0 if it is over
 * already (then its outcome was told, or will be), or a negative error code.
 */
int clearway_cancel_call(struct clearway_channel *channel, uint64_t id);

/**
 * Waits for whatever happens next on a channel that makes calls, and stores it. Takes the place of
 * clearway_recv, clearway_next_event and the like there. Returns 0 or a negative error code; when
 * the channel has ended, its calls are told of before.
 */
int clearway_next_call_event(struct clearway_channel *channel,
                             int64_t timeout_ns,
                             struct clearway_call_event *event);

/**
 * Answers a request (CLEARWAY_CALL_ASKED), before or after it is released. Never waits: an answer
 * that finds no room is copied, and sent while clearway_next_call_event or clearway_call waits.
 * Returns 1, or 0 if nobody waits for it any more, or a negative error code.
 */
int clearway_answer_call(struct clearway_channel *channel,
                         uint64_t connection,
                         uint64_t number,
                         const void *data,
                         size_t length);

/**
 * The same for a request that is not carried out, with a text for a person, which may be NULL.
 */
int clearway_refuse_call(struct clearway_channel *channel,
                         uint64_t connection,
                         uint64_t number,
                         uint32_t reason,
                         const char *text);

/**
 * In how many nanoseconds the first of the outstanding calls expires at the earliest, negative if
 * none does: an event loop that waits on clearway_fd wakes for it, too, and calls
 * clearway_next_call_event.
 */
int64_t clearway_calls_deadline(struct clearway_channel *channel);

/**
 * Gives back what an event holds. It may be of another channel, or of one that was detached;
 * `channel` may be NULL, but with the right one it is faster. Releasing twice does nothing.
 */
void clearway_call_release(struct clearway_channel *channel, struct clearway_call_event *event);

/**
 * Cause and remedy of an error code, as a sentence. Never NULL; valid for ever. For 0 and for
 * numbers that are no code it says so.
 */
const char *clearway_strerror(int code);

/**
 * What is over after a call that returned `code`: one of enum clearway_ended. A server goes on for
 * all but CLEARWAY_ENDED_CHANNEL. CLEARWAY_UNREACHABLE and CLEARWAY_REFUSED count as those of an
 * attempt to connect: CLEARWAY_ENDED_NOTHING. Of a connection that was open they are its end.
 */
enum clearway_ended clearway_what_ended(int64_t code);

/**
 * What went wrong in the last call of this thread that failed, with more detail than
 * `clearway_strerror` (which peer, which socket, which limit, how long it waited, the daemon's own
 * words). Never NULL or empty; valid until the next call of this thread that fails.
 */
const char *clearway_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CLEARWAY_H */
