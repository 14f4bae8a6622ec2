/* Streams through the C API, with real daemons: the sockets of two, or of one twice, and the
 * address of the first, where the server is. */
#include <clearway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/check.h"

#define SHARED_BYTES (1 << 20)

static const int64_t SECOND = 1000000000;

static clearway_channel *attach(const char *socket) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.shared_bytes = SHARED_BYTES;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("streams", &options, &channel) == 0);
    return channel;
}

static void next(clearway_channel *channel, uint32_t kind, clearway_event *event) {
    CHECK(clearway_next_event(channel, 10 * SECOND, event) == 0);
    CHECK(event->kind == kind);
}

static void say(clearway_channel *from, uint64_t connection, const char *words,
                clearway_channel *to, uint64_t at) {
    clearway_event event;
    CHECK(clearway_send(from, connection, words, strlen(words), SECOND) == 0);
    next(to, CLEARWAY_EVENT_MESSAGE, &event);
    CHECK(event.connection == at && event.message.length == strlen(words));
    CHECK(!memcmp(event.message.data, words, strlen(words)));
    clearway_release(to, &event.message);
}

/* Sends words that are worth nothing after some time, copied or filled in place. */
static int send_within(clearway_channel *from, uint64_t connection, const char *words, int in_place,
                       uint64_t within_ns, uint32_t *number) {
    size_t length = strlen(words);
    if (!in_place)
        return clearway_send_within(from, connection, words, length, within_ns, number);
    clearway_writable writable;
    CHECK(clearway_send_buffer(from, length + 3, SECOND, &writable) == 0);
    memcpy(writable.data, words, length);
    int code = clearway_commit_within(from, connection, &writable, length, within_ns, number);
    CHECK(writable.data == NULL);
    return code;
}

/* Messages that wait longer than they may, since the server does not read, are dropped, and both
 * sides hear it; what was sent before and behind them arrives. */
static void deadlines(clearway_channel *client, uint64_t near, clearway_channel *server,
                      uint64_t far, int in_place) {
    enum { LARGE = 256 * 1024, BEFORE = 16, LATE = 3 };
    static char bytes[LARGE];
    uint32_t first = 0, number = 0;
    clearway_event event;
    CHECK(clearway_tell_skipped(NULL, 1) == CLEARWAY_INVALID);
    CHECK(clearway_tell_skipped(server, 1) == 0);
    CHECK(send_within(client, near + 77, "", in_place, SECOND, NULL) == CLEARWAY_CLOSED);
    CHECK(send_within(client, near, "in time", in_place, 10 * SECOND, &first) == 0);
    next(server, CLEARWAY_EVENT_MESSAGE, &event);
    CHECK(event.connection == far && event.message.length == 7);
    clearway_release(server, &event.message);
    for (int sent = 0; sent < BEFORE; sent++)
        CHECK(clearway_send(client, near, bytes, LARGE, 10 * SECOND) == 0);
    for (uint32_t late = 0; late < LATE; late++) {
        CHECK(send_within(client, near, "late", in_place, SECOND / 1000, &number) == 0);
        CHECK(number == first + 1 + BEFORE + late);
    }
    CHECK(clearway_send(client, near, "last", 4, SECOND) == 0);
    struct timespec their_time = {0, 20000000};
    nanosleep(&their_time, NULL);
    uint64_t skipped = 0, came = 0;
    while (came < BEFORE + 1) {
        CHECK(clearway_next_event(server, 10 * SECOND, &event) == 0);
        if (event.kind == CLEARWAY_EVENT_SKIPPED) {
            CHECK(event.connection == far && came == BEFORE);
            skipped += event.token;
            continue;
        }
        CHECK(event.kind == CLEARWAY_EVENT_MESSAGE && event.connection == far);
        CHECK(event.message.length == (came < BEFORE ? LARGE : 4));
        came++;
        clearway_release(server, &event.message);
    }
    CHECK(skipped == LATE);
    for (uint32_t late = 0; late < LATE; late++) {
        next(client, CLEARWAY_EVENT_DROPPED, &event);
        CHECK(event.connection == near && event.token == first + 1 + BEFORE + late);
    }
}

/* Large messages go into buffers that the server has posted, of which each has one end; others are
 * received as ever. */
static void posted(clearway_channel *client, uint64_t near, clearway_channel *server,
                   uint64_t far) {
    enum { LARGE = 200000, BYTES = 300000 };
    static char bytes[LARGE];
    clearway_event event;
    clearway_posted end;
    void *memory = NULL;
    size_t length = 0;
    CHECK(clearway_shared_memory(server, &memory, &length) == 0 && length == SHARED_BYTES);
    memset(bytes, 7, sizeof bytes);
    for (uint64_t tag = 1; tag <= 3; tag++)
        CHECK(clearway_post(server, far, 0, (tag - 1) * BYTES, BYTES, tag) == 0);
    CHECK(clearway_next_posted(server, 0, &end) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_unpost(server, far, 2) == 0);
    CHECK(clearway_next_posted(server, 10 * SECOND, &end) == 0);
    CHECK(end.connection == far && end.tag == 2 && end.unposted == CLEARWAY_UNPOSTED_CANCELLED);
    CHECK(clearway_send(client, near, bytes, LARGE, SECOND) == 0);
    CHECK(clearway_send(client, near, "small", 5, SECOND) == 0);
    CHECK(clearway_send(client, near, bytes, LARGE, SECOND) == 0);
    next(server, CLEARWAY_EVENT_POSTED, &event);
    CHECK(event.connection == far && event.token == 1);
    next(server, CLEARWAY_EVENT_MESSAGE, &event);
    CHECK(event.message.length == 5);
    clearway_release(server, &event.message);
    for (uint64_t tag = 1; tag <= 3; tag += 2) {
        CHECK(clearway_next_posted(server, 10 * SECOND, &end) == 0);
        CHECK(end.connection == far && end.tag == tag && end.unposted == 0);
        CHECK(end.length == LARGE);
        CHECK(!memcmp((char *)memory + (tag - 1) * BYTES, bytes, LARGE));
    }
    CHECK(clearway_send(client, near, bytes, LARGE, SECOND) == 0);
    next(server, CLEARWAY_EVENT_MESSAGE, &event);
    CHECK(event.message.length == LARGE);
    clearway_release(server, &event.message);

    CHECK(clearway_post(NULL, far, 0, 0, BYTES, 1) == CLEARWAY_INVALID);
    CHECK(clearway_post(server, far + 77, 0, 0, BYTES, 1) == CLEARWAY_CLOSED);
    CHECK(clearway_post(server, far, 5, 0, BYTES, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "add it first") != NULL);
    CHECK(clearway_post(server, far, 0, 0, 8192, 1) == CLEARWAY_INVALID);
    CHECK(clearway_post(server, far, 0, SHARED_BYTES, BYTES, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "where it starts") != NULL);
    CHECK(clearway_post(server, far, 0, UINT64_MAX - 5, BYTES, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "where it starts") != NULL);
    CHECK(clearway_next_posted(server, 0, NULL) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_next_posted(NULL, 0, &end) == CLEARWAY_INVALID);
    CHECK(clearway_unpost(NULL, far, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_unposted_text(CLEARWAY_UNPOSTED_OVERLAPS), "another") != NULL);
    CHECK(strstr(clearway_unposted_text(77), "header") != NULL);

    /* It ends with the connection, and overlaps no other. */
    CHECK(clearway_post(server, far, 0, 0, BYTES, 4) == 0);
    CHECK(clearway_post(server, far, 0, BYTES - 1, BYTES, 5) == 0);
    CHECK(clearway_next_posted(server, 10 * SECOND, &end) == 0);
    CHECK(end.tag == 5 && end.unposted == CLEARWAY_UNPOSTED_OVERLAPS && end.length == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    clearway_channel *server = attach(arguments[1]), *client = attach(arguments[2]);
    uint64_t near = 0, far = 0, stream = 0, accepted = 0, parent = 0, token = 0;
    clearway_event event;
    CHECK(clearway_take_streams(server, 1) == 0);
    CHECK(clearway_take_streams(NULL, 1) == CLEARWAY_INVALID);
    CHECK(clearway_listen(server, NULL, 4000, NULL, NULL) == 0);
    CHECK(clearway_connect(client, arguments[3], 4000, 10 * SECOND, &near) == 0);
    CHECK(clearway_accept(server, 10 * SECOND, &far, NULL) == 0);
    CHECK(clearway_accept_stream(server, 0, &accepted, &parent) == CLEARWAY_WOULD_BLOCK);

    /* Connections that share a flow. */
    CHECK(clearway_share_flows(NULL, 1) == CLEARWAY_INVALID);
    CHECK(clearway_share_flows(client, 1) == 0);
    for (int round = 0; round < 2; round++) {
        uint64_t other = 0, others = 0;
        CHECK(clearway_connect(client, arguments[3], 4000, 10 * SECOND, &other) == 0);
        CHECK(clearway_accept(server, 10 * SECOND, &others, NULL) == 0);
        say(client, other, "shared", server, others);
        CHECK(clearway_close(client, other) == 0);
        next(server, CLEARWAY_EVENT_CLOSED, &event);
        CHECK(event.connection == others);
    }
    CHECK(clearway_share_flows(client, 0) == 0);

    /* One that is waited for, and one by events. */
    CHECK(clearway_open_stream(client, near, 10 * SECOND, &stream) == 0 && stream != near);
    CHECK(clearway_accept_stream(server, 10 * SECOND, &accepted, &parent) == 0);
    CHECK(parent == far && accepted != far);
    say(client, stream, "there", server, accepted);
    say(server, accepted, "and back", client, stream);
    CHECK(clearway_start_open_stream(client, near, &token) == 0);
    next(client, CLEARWAY_EVENT_CONNECTED, &event);
    CHECK(event.token == token && event.connection != stream);
    uint64_t second = event.connection;
    next(server, CLEARWAY_EVENT_STREAM_ACCEPTED, &event);
    CHECK(event.parent == far && event.connection != accepted);
    say(client, second, "by the second", server, event.connection);
    say(client, near, "by the connection", server, far);

    /* Priorities, and messages in whatever order. */
    CHECK(clearway_set_priority(client, stream, 0, 256) == 0);
    CHECK(clearway_set_priority(client, near, 7, 1) == 0);
    CHECK(clearway_set_unordered(server, accepted) == 0);
    say(client, stream, "first", server, accepted);
    say(client, near, "last", server, far);
    CHECK(clearway_set_priority(client, near, 8, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "0 to 7") != NULL);
    CHECK(clearway_set_priority(client, near, 0, 0) == CLEARWAY_INVALID);
    CHECK(clearway_set_priority(client, near, 0, 257) == CLEARWAY_INVALID);
    CHECK(clearway_set_priority(client, near + 77, 0, 1) == CLEARWAY_CLOSED);
    CHECK(clearway_set_unordered(client, near + 77) == CLEARWAY_CLOSED);
    CHECK(clearway_set_unordered(NULL, near) == CLEARWAY_INVALID);

    CHECK(clearway_commit_within(client, near, NULL, 0, SECOND, NULL) == CLEARWAY_INVALID);
    for (int in_place = 0; in_place < 2; in_place++)
        deadlines(client, near, server, far, in_place);
    posted(client, near, server, far);

    /* What cannot be. */
    CHECK(clearway_open_stream(client, stream, SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "it is a stream itself"));
    CHECK(clearway_open_stream(client, near + 77, SECOND, NULL) == CLEARWAY_CLOSED);
    CHECK(clearway_start_open_stream(client, near + 77, NULL) == CLEARWAY_CLOSED);
    clearway_operation operation = {.kind = CLEARWAY_OPERATION_READ, .length = 8};
    clearway_operated operated;
    CHECK(clearway_operate(client, stream, &operation, 10 * SECOND, &operated) < 0);
    CHECK(operated.status == CLEARWAY_STATUS_UNSUPPORTED);

    /* The client takes none: what the server opens is refused at once, or closed. */
    int code = clearway_open_stream(server, far, 10 * SECOND, &accepted);
    if (code == 0) {
        next(server, CLEARWAY_EVENT_CLOSED, &event);
        CHECK(event.connection == accepted);
        code = event.code;
    }
    CHECK(code == CLEARWAY_REFUSED);

    /* A stream ends alone, and the connection with what it has left. */
    CHECK(clearway_close(client, second) == 0);
    next(server, CLEARWAY_EVENT_CLOSED, &event);
    CHECK(event.code == CLEARWAY_CLOSED);
    CHECK(clearway_close(client, near) == 0);
    next(client, CLEARWAY_EVENT_CLOSED, &event);
    CHECK(event.connection == stream && event.code == CLEARWAY_CLOSED);
    next(server, CLEARWAY_EVENT_CLOSED, &event);
    next(server, CLEARWAY_EVENT_POSTED, &event);
    clearway_posted end;
    CHECK(clearway_next_posted(server, 0, &end) == 0);
    CHECK(end.connection == far && end.tag == 4 && end.unposted == CLEARWAY_UNPOSTED_ENDED);
    next(server, CLEARWAY_EVENT_CLOSED, &event);
    CHECK(event.connection == far && event.code == CLEARWAY_CLOSED);
    CHECK(clearway_detach(client, 10 * SECOND) == 0);
    CHECK(clearway_detach(server, 10 * SECOND) == 0);
    return 0;
}
