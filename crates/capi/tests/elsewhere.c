/* Another thread gives back what the channel's thread has received or was to fill, with NULL for
 * the channel, while that thread waits for just this. The arguments are the control socket of the
 * daemon of `tests/c_program.rs`, whose port 7 echoes, how to wait, and any word if that daemon is
 * restarted before. */
#include <clearway.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/check.h"

static const int64_t SECOND = 1000000000;

/* Of the memory for each direction; half of it. */
enum { POOL = 1 << 18, LARGE = 1 << 17 };

static clearway_channel *attach(const char *socket, uint32_t waiting) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.waiting = waiting;
    options.transmit_pool_bytes = options.receive_pool_bytes = POOL;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("elsewhere", &options, &channel) == 0);
    return channel;
}

/* By then whoever waits for it sleeps. */
static void pause_a_while(void) {
    struct timespec while_ = {0, 100000000};
    nanosleep(&while_, NULL);
}

static void *release(void *messages) {
    pause_a_while();
    for (int i = 0; i < 2; i++) clearway_release(NULL, (clearway_message *)messages + i);
    return NULL;
}

static void *discard(void *writables) {
    pause_a_while();
    for (int i = 0; i < 2; i++) clearway_discard((clearway_writable *)writables + i);
    return NULL;
}

static pthread_t begin(void *(*work)(void *), void *held) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, held) == 0);
    return thread;
}

/* Holds so many messages that there is no room for the next one, which is on its way. */
static void fill(clearway_channel *channel, uint64_t connection, clearway_message *messages) {
    static char bytes[LARGE];
    for (int i = 0; i < 3; i++) {
        CHECK(clearway_send(channel, connection, bytes, sizeof bytes, 10 * SECOND) == 0);
        if (i < 2) CHECK(clearway_recv_message(channel, 10 * SECOND, &messages[i]) == 0);
    }
}

static void by_a_call(clearway_channel *channel, uint64_t connection) {
    clearway_message messages[2], next;
    fill(channel, connection, messages);
    pthread_t thread = begin(release, messages);
    CHECK(clearway_recv_message(channel, 10 * SECOND, &next) == 0);
    CHECK(next.length == LARGE);
    clearway_release(channel, &next);
    pthread_join(thread, NULL);
}

static void by_a_call_for_room(clearway_channel *channel) {
    clearway_writable writables[2], next;
    for (int i = 0; i < 2; i++)
        CHECK(clearway_send_buffer(channel, LARGE, 10 * SECOND, &writables[i]) == 0);
    CHECK(clearway_send_buffer(channel, LARGE, 0, &next) == CLEARWAY_WOULD_BLOCK);
    pthread_t thread = begin(discard, writables);
    CHECK(clearway_send_buffer(channel, LARGE, 10 * SECOND, &next) == 0);
    clearway_discard(&next);
    pthread_join(thread, NULL);
}

static void by_descriptor(clearway_channel *channel, uint64_t connection) {
    clearway_message messages[2];
    clearway_event event;
    fill(channel, connection, messages);
    pthread_t thread = begin(release, messages);
    int code, rounds = 0;
    do {
        struct pollfd waiting = {clearway_fd(channel), POLLIN, 0};
        if (clearway_arm(channel)) CHECK(poll(&waiting, 1, 10000) == 1);
        CHECK(clearway_disarm(channel) == 0);
        code = clearway_next_event(channel, 0, &event);
        CHECK(++rounds < 1000); /* the descriptor is quiet again when it has been heard */
    } while (code == CLEARWAY_WOULD_BLOCK || (code == 0 && event.kind == CLEARWAY_EVENT_WRITABLE));
    CHECK(code == 0 && event.kind == CLEARWAY_EVENT_MESSAGE);
    clearway_release(channel, &event.message);
    pthread_join(thread, NULL);
}

/* The next daemon, whose channel has memory of its own: what was to be sent lies in that of the one
 * before, where the peer would find something else. */
static void next_daemon(clearway_channel *channel) {
    clearway_event event;
    clearway_writable writable;
    uint64_t connection;
    int code;
    CHECK(clearway_send_buffer(channel, 100, SECOND, &writable) == 0);
    puts("attached");
    fflush(stdout);
    while ((code = clearway_next_event(channel, 20 * SECOND, &event)) == 0) {}
    CHECK(clearway_what_ended(code) == CLEARWAY_ENDED_CHANNEL);
    CHECK(clearway_reattach(channel, 20 * SECOND, NULL, 0) == 0);
    CHECK(clearway_connect(channel, "10.0.0.2", 7, 10 * SECOND, &connection) == 0);
    memset(writable.data, 'x', writable.length);
    CHECK(clearway_commit(channel, connection, &writable, 100) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "attached again") && writable.length == 100);
    CHECK(clearway_tcp_send_buf(channel, 1, &writable, 100, 0, 0) == CLEARWAY_INVALID);
    clearway_discard(&writable);
    CHECK(clearway_close(channel, connection) == 0);
}

int main(int count, char **words) {
    CHECK(count == 3 || count == 4);
    clearway_channel *channel = attach(words[1], (uint32_t)atoi(words[2]));
    if (count == 4) next_daemon(channel);
    uint64_t connection;
    CHECK(clearway_connect(channel, "10.0.0.2", 7, 10 * SECOND, &connection) == 0);
    by_a_call(channel, connection);
    by_a_call_for_room(channel);
    by_descriptor(channel, connection);
    CHECK(clearway_detach(channel, 10 * SECOND) == 0);
    return 0;
}
