/* TCP for C programs, against whatever is at the other end: `crates/cli/tests/tcp.rs` has the Linux
 * kernel there.
 *
 *   tcp SOCKET serve PORT                 echoes, until a connection says "quit"
 *   tcp SOCKET connect HOST PORT CLOSED   talks to an echo at PORT; nobody is at CLOSED */
#include <clearway.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS(n) ((int64_t)(n) * 1000000000)
enum { BULK_BYTES = 3 << 20, PIECE = 40000, CONNECTIONS = 64 };

static clearway_channel *channel;
static const char *socket_path;

static void fail(int line, const char *what) {
    fprintf(stderr, "tcp.c:%d: %s; last error: %s\n", line, what, clearway_last_error());
    exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))

/* ---- the server: one loop of events, in place ---- */

/* What a connection has received and not been able to send yet. */
static struct echo {
    uint64_t connection;
    clearway_writable waiting;
    size_t length;
    int has_closed;
} echoes[CONNECTIONS];
static int is_over;
static uint16_t server_port;

static struct echo *echo_of(uint64_t connection) {
    for (int i = 0; i < CONNECTIONS; i++)
        if (echoes[i].connection == connection) return &echoes[i];
    return NULL;
}

/* True if nothing waits to be sent any more. */
static int send_waiting(struct echo *echo) {
    if (!echo->length) return 1;
    int code = clearway_tcp_send_buf(channel, echo->connection, &echo->waiting, echo->length, 0, 0);
    if (code == CLEARWAY_WOULD_BLOCK) return 0;
    if (code < 0) clearway_discard(&echo->waiting);
    echo->length = 0;
    return 1;
}

static void close_echo(struct echo *echo) {
    if (echo->length) clearway_discard(&echo->waiting);
    CHECK(clearway_tcp_close(channel, echo->connection) == 0);
    memset(echo, 0, sizeof *echo);
}

/* Sends back what comes, as far as the peer takes it. */
static void serve(struct echo *echo) {
    clearway_message bytes;
    int code = 0;
    while (send_waiting(echo)
           && (code = clearway_tcp_recv_buf(channel, echo->connection, 0, &bytes)) == 0
           && bytes.length > 0) {
        is_over |= bytes.length == 4 && !memcmp(bytes.data, "quit", 4);
        CHECK(clearway_send_buffer(channel, bytes.length, SECONDS(20), &echo->waiting) == 0);
        memcpy(echo->waiting.data, bytes.data, bytes.length);
        echo->length = bytes.length;
        clearway_release(channel, &bytes);
    }
    if (echo->length || code == CLEARWAY_WOULD_BLOCK) return;
    close_echo(echo); /* the peer has closed its half, or the connection has ended */
}

/* It listens at all addresses, and the peer has connected to one of them. */
static void check_local(uint64_t connection) {
    clearway_address local;
    CHECK(clearway_tcp_addresses(channel, connection, &local, NULL) == 0);
    CHECK(local.port == server_port && strcmp(local.host, "0.0.0.0"));
}

static void take_event(const clearway_event *event) {
    struct echo *echo;
    switch (event->kind) {
    case CLEARWAY_EVENT_TCP_ACCEPTED:
        CHECK(event->connection != 0 && event->peer.port != 0);
        check_local(event->connection);
        echo = echo_of(0);
        CHECK(echo);
        echo->connection = event->connection;
        CHECK(clearway_tcp_set(channel, event->connection, CLEARWAY_TCP_NO_DELAY, 1) == 0);
        break;
    case CLEARWAY_EVENT_TCP_READY:
        if ((echo = echo_of(event->connection))) serve(echo);
        break;
    case CLEARWAY_EVENT_WRITABLE:
        for (int i = 0; i < CONNECTIONS; i++)
            if (echoes[i].connection) serve(&echoes[i]);
        break;
    default: CHECK(!"an event of TCP");
    }
}

static void run_server(uint16_t port) {
    uint32_t listener;
    server_port = port;
    clearway_address bound;
    CHECK(clearway_tcp_listen(channel, NULL, port, 0, &listener, &bound) == 0);
    CHECK(listener != 0 && bound.port == port);
    printf("listening\n");
    fflush(stdout);
    clearway_event events[3];
    CHECK(clearway_next_events(channel, 0, events, 0) == CLEARWAY_INVALID);
    CHECK(clearway_next_events(channel, 0, NULL, 3) == CLEARWAY_INVALID);
    CHECK(clearway_next_events(channel, 0, events, 3) == CLEARWAY_WOULD_BLOCK);
    while (!is_over) {
        int64_t count = clearway_next_events(channel, SECONDS(30), events, 3);
        CHECK(count >= 1 && count <= 3);
        for (int64_t i = 0; i < count; i++) take_event(&events[i]);
    }
    CHECK(clearway_tcp_unlisten(channel, listener) == 0);
}

/* ---- the client: calls that wait ---- */

static unsigned char byte_at(size_t at) { return (unsigned char)(at * 31 ^ at >> 8); }

static uint64_t connect_to(const char *host, uint16_t port) {
    uint64_t connection = 0;
    CHECK(clearway_tcp_connect(channel, 0, host, port, SECONDS(20), &connection) == 0);
    CHECK(connection != 0);
    return connection;
}

/* All goes there and back; as much is on its way as may be. */
static void exchange(uint64_t connection) {
    static unsigned char piece[PIECE];
    size_t sent = 0, received = 0;
    while (received < BULK_BYTES) {
        if (sent < BULK_BYTES) {
            size_t length = BULK_BYTES - sent < PIECE ? BULK_BYTES - sent : PIECE;
            for (size_t i = 0; i < length; i++) piece[i] = byte_at(sent + i);
            int64_t count = clearway_tcp_send(channel, connection, piece, length, 0);
            CHECK(count > 0 || count == CLEARWAY_WOULD_BLOCK);
            if (count > 0) sent += (size_t)count;
            if (sent == BULK_BYTES) CHECK(clearway_tcp_shutdown(channel, connection) == 0);
        }
        int64_t patience = sent == BULK_BYTES ? SECONDS(20) : 0;
        int64_t count = clearway_tcp_recv(channel, connection, piece, PIECE, patience);
        CHECK(count > 0 || count == CLEARWAY_WOULD_BLOCK);
        for (int64_t i = 0; i < count; i++, received++) CHECK(piece[i] == byte_at(received));
    }
    CHECK(clearway_tcp_recv(channel, connection, piece, PIECE, SECONDS(20)) == 0);
    CHECK(clearway_tcp_send(channel, connection, "x", 1, 0) == CLEARWAY_CLOSED);
    CHECK(clearway_tcp_unacknowledged(channel, connection) == 0);
}

/* A peer that does not read cannot keep more than it may. */
static void send_buffer_is_bounded(uint64_t connection) {
    static const char bytes[1000];
    clearway_writable writable;
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_SEND_BUFFER, 4000) == 0);
    int sends = 0;
    while (clearway_tcp_send(channel, connection, bytes, sizeof bytes, 0) > 0) sends++;
    CHECK(sends >= 4 && clearway_tcp_unacknowledged(channel, connection) >= 4000);
    /* A buffer that finds no room stays the app's. */
    CHECK(clearway_send_buffer(channel, 100, 0, &writable) == 0);
    int code = clearway_tcp_send_buf(channel, connection, &writable, 100, 0, 0);
    CHECK(code == 0 || (code == CLEARWAY_WOULD_BLOCK && writable.data && writable.length == 100));
    if (code == 0) return;
    CHECK(clearway_tcp_send_buf(channel, connection, &writable, 100, 0, SECONDS(20)) == 0);
}

static void events_tell_of_attempts(const char *host, uint16_t port, uint16_t closed) {
    uint64_t good, bad, connection = 0;
    int connected = 0, refused = 0;
    CHECK(clearway_tcp_start_connect(channel, 0, host, port, &good) == 0);
    CHECK(clearway_tcp_start_connect(channel, 0, host, closed, &bad) == 0);
    while (!connected || !refused) {
        clearway_event event;
        CHECK(clearway_next_event(channel, SECONDS(20), &event) == 0);
        if (event.kind == CLEARWAY_EVENT_TCP_CONNECTED && event.token == good) {
            connected = 1;
            connection = event.connection;
        }
        if (event.kind == CLEARWAY_EVENT_TCP_CONNECT_FAILED && event.token == bad) {
            CHECK(event.code == CLEARWAY_REFUSED);
            refused = 1;
        }
    }
    CHECK(clearway_tcp_ready(channel, connection) == CLEARWAY_TCP_WRITABLE);
    CHECK(clearway_tcp_abort(channel, connection) == 0);
    CHECK(clearway_tcp_abort(channel, connection) == CLEARWAY_CLOSED);
    CHECK(clearway_tcp_ready(channel, connection) == CLEARWAY_CLOSED);
    CHECK(clearway_tcp_unacknowledged(channel, connection) == CLEARWAY_CLOSED);
}

/* A buffer that is sent by another channel stays the app's. */
static void a_buffer_is_of_one_channel(uint64_t connection) {
    clearway_options options = {.size = sizeof options, .socket = socket_path};
    clearway_channel *second;
    clearway_writable writable;
    CHECK(clearway_attach("second", &options, &second) == 0);
    CHECK(clearway_send_buffer(channel, 100, 0, &writable) == 0);
    CHECK(clearway_tcp_send_buf(second, connection, &writable, 5, 0, 0) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "of another channel"));
    CHECK(clearway_tcp_send_buf(channel, connection, &writable, 5, 0, SECONDS(20)) == 0);
    CHECK(clearway_tcp_send_buf(channel, connection, &writable, 5, 0, 0) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "was sent"));
    CHECK(clearway_detach(second, 0) == 0);
}

/* Two channels that both want it have one port. */
static void port_is_shared(uint16_t port) {
    uint32_t listener, other;
    clearway_options options = {.size = sizeof options, .socket = socket_path};
    clearway_channel *second;
    CHECK(clearway_attach("second", &options, &second) == 0);
    clearway_tcp_port_options shared = {.size = sizeof shared, .shared = 1};
    CHECK(clearway_tcp_listen_with(channel, NULL, port, 16, &shared, &listener, NULL) == 0);
    CHECK(clearway_tcp_listen_with(second, NULL, port, 16, &shared, &other, NULL) == 0);
    CHECK(clearway_tcp_unlisten(channel, listener) == 0);
    CHECK(clearway_detach(second, SECONDS(20)) == 0);
}

/* A port for some peers connects to none of the others. */
static void peers_are_named(const char *host, uint16_t port) {
    uint32_t listener;
    uint64_t connection;
    const char *others[] = {"10.98.0.0/16", "fd98::/16", NULL}, *host_only[] = {host, NULL};
    const char *bad[] = {"10.98.0.0/33", NULL};
    clearway_tcp_port_options named = {.size = sizeof named, .peers = others};
    CHECK(clearway_tcp_listen_with(channel, NULL, 0, 16, &named, &listener, NULL) == 0);
    CHECK(clearway_tcp_connect(channel, listener, host, port, SECONDS(20), &connection)
          == CLEARWAY_DENIED);
    CHECK(clearway_tcp_close_port(channel, listener) == 0);
    named.peers = host_only;
    CHECK(clearway_tcp_listen_with(channel, NULL, 0, 16, &named, &listener, NULL) == 0);
    CHECK(clearway_tcp_connect(channel, listener, host, port, SECONDS(20), &connection) == 0);
    CHECK(clearway_tcp_abort(channel, connection) == 0);
    CHECK(clearway_tcp_close_port(channel, listener) == 0);
    named.peers = bad;
    CHECK(clearway_tcp_listen_with(channel, NULL, 0, 16, &named, &listener, NULL)
          == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "10.98.0.0/33"));
    named.size = 8;
    CHECK(clearway_tcp_listen_with(channel, NULL, 0, 16, &named, &listener, NULL)
          == CLEARWAY_INVALID);
    CHECK(clearway_tcp_listen_with(channel, NULL, 0, 16, NULL, &listener, NULL) == 0);
    CHECK(clearway_tcp_close_port(channel, listener) == 0);
}

static void run_client(const char *host, uint16_t port, uint16_t closed) {
    clearway_address local, peer;
    uint64_t connection = connect_to(host, port);
    CHECK(clearway_tcp_addresses(channel, connection, &local, &peer) == 0);
    CHECK(!strcmp(peer.host, host) && peer.port == port && local.port != 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_KEEP_ALIVE, 10) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_USER_TIMEOUT, 20000) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_KEEP_ALIVE_INTERVAL, 1) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_KEEP_ALIVE_PROBES, 3) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_TRAFFIC_CLASS, 0xb8) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_HOP_LIMIT, 3) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_QUICK_ACKS, 1) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_MAXIMUM_SEGMENT, 500) == 0);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_MAXIMUM_SEGMENT, 63)
          == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "value is 63, not 64 to 65535"));
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_HOP_LIMIT, 0) == CLEARWAY_INVALID);
    CHECK(clearway_tcp_set(channel, connection, CLEARWAY_TCP_HOP_LIMIT, 256) == CLEARWAY_INVALID);
    CHECK(clearway_tcp_set(channel, connection, 99, 1) == CLEARWAY_INVALID);
    CHECK(clearway_tcp_watch(channel, connection, 8) == CLEARWAY_INVALID);
    CHECK(clearway_tcp_watch(channel, connection, CLEARWAY_TCP_WRITABLE) == 0);
    clearway_event event;
    for (int i = 0; i < 3; i++) {
        CHECK(clearway_next_event(channel, SECONDS(20), &event) == 0);
        CHECK(event.kind == CLEARWAY_EVENT_TCP_READY && event.connection == connection);
        CHECK(event.ready & CLEARWAY_TCP_WRITABLE);
    }
    CHECK(clearway_tcp_watch(channel, connection, 0) == 0);

    char byte;
    clearway_message bytes;
    CHECK(clearway_tcp_recv(channel, connection, &byte, 1, 0) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_tcp_recv(channel, connection, &byte, 1, 1000000) == CLEARWAY_TIMED_OUT);
    CHECK(strstr(clearway_last_error(), "does the peer send"));
    CHECK(clearway_tcp_recv_buf(channel, connection, 0, &bytes) == CLEARWAY_WOULD_BLOCK);
    CHECK(bytes.data == NULL && bytes.length == 0);
    exchange(connection);
    CHECK(clearway_tcp_close(channel, connection) == 0);
    CHECK(clearway_tcp_close(channel, connection) == CLEARWAY_CLOSED);

    CHECK(clearway_tcp_connect(channel, 0, host, closed, SECONDS(20), &connection)
          == CLEARWAY_REFUSED);
    CHECK(strstr(clearway_last_error(), host));
    events_tell_of_attempts(host, port, closed);
    connection = connect_to(host, port);
    CHECK(clearway_tcp_send_more(channel, connection, "not ", 4, SECONDS(20)) == 4);
    CHECK(clearway_tcp_send(channel, connection, "yet", 3, SECONDS(20)) == 3);
    CHECK(clearway_tcp_linger(channel, connection, SECONDS(20)) == 0);
    CHECK(clearway_tcp_close(channel, connection) == CLEARWAY_CLOSED);
    connection = connect_to(host, port);
    a_buffer_is_of_one_channel(connection);
    send_buffer_is_bounded(connection);
    CHECK(clearway_tcp_abort(channel, connection) == 0);

    uint32_t listener, other;
    clearway_address bound;
    CHECK(clearway_tcp_listen(channel, NULL, 0, 16, &listener, &bound) == 0 && bound.port != 0);
    CHECK(clearway_tcp_listen(channel, NULL, bound.port, 16, &other, NULL)
          == CLEARWAY_ADDRESS_IN_USE);
    clearway_tcp_port_options shared = {.size = sizeof shared, .shared = 1};
    CHECK(clearway_tcp_listen_with(channel, NULL, bound.port, 16, &shared, &other, NULL)
          == CLEARWAY_ADDRESS_IN_USE);
    CHECK(clearway_tcp_accept(channel, listener, 0, &connection, NULL) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_tcp_close_port(channel, listener) == 0);
    CHECK(clearway_tcp_accept(channel, listener, 0, &connection, NULL) == CLEARWAY_CLOSED);
    CHECK(clearway_tcp_listen(channel, NULL, bound.port, 16, &other, NULL) == 0);
    CHECK(clearway_tcp_unlisten(channel, other) == 0);
    CHECK(clearway_tcp_close_port(channel, other) < 0);
    port_is_shared(bound.port);
    peers_are_named(host, port);
}

int main(int argc, char **words) {
    CHECK(argc >= 4);
    socket_path = words[1];
    clearway_options options = {.size = sizeof options, .socket = socket_path};
    options.transmit_pool_bytes = options.receive_pool_bytes = 1 << 20;
    CHECK(clearway_attach("tcp", &options, &channel) == 0);
    if (!strcmp(words[2], "serve")) run_server((uint16_t)atoi(words[3]));
    else run_client(words[3], (uint16_t)atoi(words[4]), (uint16_t)atoi(words[5]));
    CHECK(clearway_detach(channel, SECONDS(20)) == 0);
    return 0;
}
