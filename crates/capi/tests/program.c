/* Uses the whole C API against the daemon of `tests/c_program.rs`, whose control socket is the
 * argument: port 7 echoes, port 9 refuses. */
#include <clearway.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/check.h"

static const int64_t SECOND = 1000000000;

static clearway_channel *attach(const char *socket, uint32_t waiting) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.waiting = waiting;
    options.transmit_pool_bytes = options.receive_pool_bytes = 1 << 18;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("program", &options, &channel) == 0 && channel);
    return channel;
}

/* The daemon is of this user, and another is expected. */
static void wrong_daemon(const char *socket) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.daemon_user_given = 1;
    options.daemon_user = (uint32_t)getuid() + 1;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("program", &options, &channel) == CLEARWAY_NO_DAEMON && !channel);
    CHECK(strstr(clearway_last_error(), "as the app says"));
}

static void by_copy(clearway_channel *channel, uint64_t connection) {
    char buffer[16];
    uint64_t from = 0;
    CHECK(clearway_send(channel, connection, "by copy", 7, SECOND) == 0);
    CHECK(clearway_recv(channel, buffer, 3, 10 * SECOND, &from) == CLEARWAY_TOO_LARGE);
    CHECK(clearway_recv(channel, buffer, sizeof buffer, 0, &from) == 7);
    CHECK(from == connection && !memcmp(buffer, "by copy", 7));
    CHECK(clearway_recv(channel, buffer, sizeof buffer, 0, NULL) == CLEARWAY_WOULD_BLOCK);
    CHECK(!strcmp(clearway_last_error(), clearway_strerror(CLEARWAY_WOULD_BLOCK)));
    CHECK(clearway_recv(channel, buffer, sizeof buffer, 1000, NULL) == CLEARWAY_TIMED_OUT);
    CHECK(strstr(clearway_last_error(), "10.0.0.2 port 7"));
    CHECK(strstr(clearway_last_error(), "timed out after 1"));
    CHECK(clearway_send(channel, connection, NULL, 0, SECOND) == 0);
    CHECK(clearway_recv_from(channel, connection, NULL, 0, 10 * SECOND) == 0);
}

static void in_place(clearway_channel *channel, uint64_t connection) {
    clearway_writable writable;
    CHECK(clearway_send_buffer(channel, 100, SECOND, &writable) == 0 && writable.length == 100);
    memcpy(writable.data, "in place", 8);
    CHECK(clearway_commit(channel, connection, &writable, 101) == CLEARWAY_INVALID);
    CHECK(clearway_commit(channel, connection, &writable, 8) == 0);
    CHECK(clearway_commit(channel, connection, &writable, 1) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "was sent or discarded"));
    clearway_message message;
    CHECK(clearway_recv_message(channel, 10 * SECOND, &message) == 0);
    CHECK(message.connection == connection && message.length == 8);
    CHECK(!memcmp(message.data, "in place", 8));
    clearway_release(channel, &message);
    clearway_release(channel, &message);
    CHECK(message.data == NULL);
    CHECK(clearway_send_buffer(channel, 1 << 18, SECOND, &writable) == 0);
    clearway_discard(&writable);
    clearway_discard(&writable);
    CHECK(clearway_flush(channel) == 0);
}

/* A buffer that was not sent is as long as it was, also for what would have been sent of it. */
static void not_sent(clearway_channel *channel) {
    clearway_writable writable;
    CHECK(clearway_send_buffer(channel, 100, SECOND, &writable) == 0 && writable.length == 100);
    for (size_t length = 8; length <= 100; length += 92) {
        CHECK(clearway_tcp_send_buf(channel, 12345, &writable, length, 0, 0) == CLEARWAY_CLOSED);
        CHECK(writable.data && writable.length == 100);
    }
    memset(writable.data, 'x', writable.length);
    clearway_discard(&writable);
}

static void by_events(clearway_channel *channel) {
    clearway_event event;
    uint64_t token = 0;
    CHECK(clearway_start_connect(channel, "10.0.0.2", 9, &token) == 0);
    CHECK(clearway_next_event(channel, 10 * SECOND, &event) == 0);
    CHECK(event.kind == CLEARWAY_EVENT_CONNECT_FAILED && event.token == token);
    CHECK(event.code == CLEARWAY_REFUSED);
    CHECK(clearway_start_connect(channel, "10.0.0.2", 7, &token) == 0);
    CHECK(clearway_next_event(channel, 10 * SECOND, &event) == 0);
    CHECK(event.kind == CLEARWAY_EVENT_CONNECTED && event.token == token);
    CHECK(!strcmp(event.peer.host, "10.0.0.2") && event.peer.port == 7);
    uint64_t connection = event.connection;
    CHECK(clearway_send(channel, connection, "event", 5, 0) == 0);
    do {
        int armed = clearway_arm(channel);
        struct pollfd waiting = {clearway_fd(channel), POLLIN, 0};
        CHECK(armed >= 0 && waiting.fd >= 0);
        if (armed) CHECK(poll(&waiting, 1, 10000) == 1);
        CHECK(clearway_disarm(channel) == 0);
    } while (clearway_next_event(channel, 0, &event) == CLEARWAY_WOULD_BLOCK);
    CHECK(event.kind == CLEARWAY_EVENT_MESSAGE && event.connection == connection);
    CHECK(event.message.length == 5 && !memcmp(event.message.data, "event", 5));
    clearway_release(NULL, &event.message);
    CHECK(clearway_abort(channel, connection) == 0);
    CHECK(clearway_close(channel, connection) == CLEARWAY_CLOSED);
}

static void listening(clearway_channel *channel) {
    uint32_t listener = 0;
    uint16_t port = 0;
    uint64_t connection;
    clearway_address peer;
    CHECK(clearway_listen(channel, "10.0.0.2", 4000, &listener, &port) == 0 && port == 4000);
    CHECK(clearway_accept(channel, 0, &connection, &peer) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_unlisten(channel, listener) == 0);
    CHECK(clearway_listen(channel, NULL, 9, NULL, NULL) == CLEARWAY_DENIED);
    CHECK(strstr(clearway_last_error(), "policy"));
}

static void scopes(void) {
    const int ends[] = {CLEARWAY_CLOSED, CLEARWAY_RESET, CLEARWAY_LOST};
    for (int i = 0; i < 3; i++)
        CHECK(clearway_what_ended(ends[i]) == CLEARWAY_ENDED_CONNECTION);
    CHECK(clearway_what_ended(CLEARWAY_DAEMON_GONE) == CLEARWAY_ENDED_CHANNEL);
    CHECK(clearway_what_ended(CLEARWAY_TIMED_OUT) == CLEARWAY_ENDED_NOTHING);
    CHECK(clearway_what_ended(1 << 20) == CLEARWAY_ENDED_NOTHING);
}

/* Addresses as people write them. */
static void names(clearway_channel *channel) {
    const char *names[] = {"10.0.0.2:7", "10.0.0.2"};
    for (int i = 0; i < 2; i++) {
        uint64_t connection;
        CHECK(clearway_connect(channel, names[i], i * 7, 10 * SECOND, &connection) == 0);
        CHECK(clearway_set_silence(channel, connection, 3 * SECOND) == 0);
        CHECK(clearway_close(channel, connection) == 0);
    }
}

/* What takes a while in any case is not begun without time, and the error says what is to be. */
static void without_time(clearway_channel *channel, uint64_t connection) {
    uint64_t opened = 0;
    clearway_call_event event = {0};
    CHECK(clearway_connect(channel, "10.0.0.2", 7, 0, &opened) == CLEARWAY_WOULD_BLOCK);
    CHECK(strstr(clearway_last_error(), "start_connect"));
    CHECK(clearway_tcp_connect(channel, 0, "10.0.0.2", 7, 0, &opened) == CLEARWAY_WOULD_BLOCK);
    CHECK(strstr(clearway_last_error(), "tcp_start_connect"));
    CHECK(clearway_open_stream(channel, connection, 0, &opened) == CLEARWAY_WOULD_BLOCK);
    CHECK(strstr(clearway_last_error(), "start_open_stream"));
    CHECK(clearway_call(channel, connection, 1, "x", 1, 0, &event) == CLEARWAY_WOULD_BLOCK);
    CHECK(strstr(clearway_last_error(), "clearway_start_call"));
    CHECK(opened == 0);
}

static void misuse(clearway_channel *channel) {
    clearway_options options = {0};
    options.size = 1;
    clearway_channel *none = NULL;
    CHECK(clearway_attach("x", &options, &none) == CLEARWAY_INVALID && !none);
    CHECK(clearway_attach("x", NULL, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_attach("\xff", NULL, &none) == CLEARWAY_INVALID);
    CHECK(clearway_send(NULL, 1, "x", 1, 0) == CLEARWAY_INVALID);
    CHECK(clearway_send(channel, 1, NULL, 1, 0) == CLEARWAY_INVALID);
    CHECK(clearway_send(channel, 1, "x", 1, 0) == CLEARWAY_CLOSED);
    const size_t negative = (size_t)-1; /* what read() has returned, say */
    char byte;
    CHECK(clearway_send(channel, 1, "x", negative, 0) == CLEARWAY_INVALID);
    CHECK(clearway_tcp_send(channel, 1, "x", negative, 0) == CLEARWAY_INVALID);
    CHECK(clearway_recv(channel, &byte, negative, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_recv(channel, NULL, 1, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_connect(channel, "nowhere.invalid", 1, 0, NULL) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "nowhere.invalid"));
    CHECK(clearway_connect(channel, "10.0.0.2:7", 8, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_set_silence(channel, 12345, SECOND) == CLEARWAY_CLOSED);
    CHECK(clearway_connect(channel, NULL, 1, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_next_event(channel, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_recv_message(NULL, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_send_buffer(channel, 1, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_detach(NULL, 0) == 0);
    clearway_release(NULL, NULL);
    clearway_discard(NULL);
}

/* What is held is the library's: copies name the same thing, nonsense names nothing, and what is
 * released elsewhere comes back. */
static void handles(clearway_channel *channel, uint64_t connection) {
    static char bytes[1 << 16];
    clearway_message message, copy;
    for (int round = 0; round < 40; round++) { /* more than all of the memory */
        CHECK(clearway_send(channel, connection, bytes, sizeof bytes, 10 * SECOND) == 0);
        CHECK(clearway_recv_message(channel, 10 * SECOND, &message) == 0);
        CHECK(message.length == sizeof bytes);
        copy = message;
        clearway_release(round % 2 ? channel : NULL, &message);
        clearway_release(round % 3 ? channel : NULL, &copy);
        CHECK(!message.data && !copy.data);
        clearway_release(channel, &message);
    }
    memset(&copy, 0xff, sizeof copy);
    clearway_release(channel, &copy);
    memset(&copy, 0xff, sizeof copy);
    clearway_release(NULL, &copy);
    clearway_writable writable, twin;
    CHECK(clearway_send_buffer(channel, 4, SECOND, &writable) == 0);
    memcpy(writable.data, "once", 4);
    twin = writable;
    writable.reserved[0]++; /* as if it were of another channel: it stays with the app */
    CHECK(clearway_commit(channel, connection, &writable, 4) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "of another channel") && writable.length == 4);
    writable.reserved[0]--;
    CHECK(clearway_commit(channel, connection, &writable, 4) == 0);
    CHECK(clearway_commit(channel, connection, &twin, 4) == CLEARWAY_INVALID);
    clearway_discard(&twin);
    CHECK(clearway_recv_message(channel, 10 * SECOND, &message) == 0);
    CHECK(message.length == 4 && !memcmp(message.data, "once", 4));
    clearway_release(channel, &message);
    for (int round = 0; round < 40; round++) { /* as above */
        CHECK(clearway_send_buffer(channel, sizeof bytes, SECOND, &writable) == 0);
        twin = writable;
        clearway_discard(&writable);
        clearway_discard(&twin);
    }
}

static void take_signal(int number) { (void)number; }

static pthread_t main_thread;

/* A signal comes, and a while later there is no such daemon any more. */
static void *disturb(void *listener) {
    struct timespec while_ = {0, 100000000};
    nanosleep(&while_, NULL);
    pthread_kill(main_thread, SIGUSR1);
    nanosleep(&while_, NULL);
    close(*(int *)listener);
    return NULL;
}

/* Who waits to be let in by a daemon goes on waiting when a signal comes. */
static void signals(void) {
    struct sockaddr_un address = {0};
    const struct sockaddr *name = (struct sockaddr *)&address;
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/clearway-%d.sock", (int)getpid());
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), first = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(bind(listener, name, sizeof address) == 0 && listen(listener, 0) == 0);
    CHECK(connect(first, name, sizeof address) == 0); /* there is no room for a second one */
    struct sigaction action = {0};
    action.sa_handler = take_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t other;
    main_thread = pthread_self();
    CHECK(pthread_create(&other, NULL, disturb, &listener) == 0);
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = address.sun_path;
    clearway_channel *none = NULL;
    CHECK(clearway_attach("program", &options, &none) == CLEARWAY_NO_DAEMON && !none);
    CHECK(!strstr(clearway_last_error(), "Interrupted"));
    pthread_join(other, NULL);
    close(first);
    unlink(address.sun_path);
}

static void texts(void) {
    for (int code = CLEARWAY_WOULD_BLOCK; code >= CLEARWAY_LOST; code--)
        CHECK(strchr(clearway_strerror(code), ';'));
    CHECK(!strcmp(clearway_strerror(0), "no error"));
    CHECK(strstr(clearway_strerror(1), "not an error code"));
    CHECK(strstr(clearway_strerror(-2147483647 - 1), "not an error code"));
}

/* A child has no channel: the daemon is asked for nothing, and what is let go there stays. */
static void children(clearway_channel *channel) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint32_t number;
        CHECK(clearway_listen(channel, NULL, 4001, &number, NULL) == CLEARWAY_INVALID);
        CHECK(strstr(clearway_last_error(), "fork()"));
        clearway_detach(channel, 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* Just ends, or is killed, with a message that was sent and not delivered. */
static int leave(clearway_channel *channel, int is_killed) {
    uint64_t connection;
    CHECK(clearway_connect(channel, "10.0.0.2", 15, 10 * SECOND, &connection) == 0);
    CHECK(clearway_send(channel, connection, "last words", 10, SECOND) == 0);
    if (fork() == 0) exit(0); /* a child that has nothing to say */
    if (is_killed) {
        children(channel);
        raise(SIGKILL);
    }
    return 0;
}

int main(int count, char **words) {
    CHECK(count == 3);
    CHECK(strlen(clearway_last_error()) > 0);
    clearway_channel *channel = attach(words[1], (uint32_t)atoi(words[2] + strspn(words[2], "xk")));
    if (strchr("xk", *words[2])) return leave(channel, *words[2] == 'k');
    wrong_daemon(words[1]);
    uint64_t connection;
    CHECK(clearway_connect(channel, "10.0.0.2", 7, 10 * SECOND, &connection) == 0);
    for (int round = 0; round < 50; round++) {
        by_copy(channel, connection);
        in_place(channel, connection);
    }
    handles(channel, connection);
    not_sent(channel);
    children(channel);
    by_events(channel);
    listening(channel);
    without_time(channel, connection);
    misuse(channel);
    signals();
    texts();
    scopes();
    names(channel);
    clearway_message kept;
    CHECK(clearway_send(channel, connection, "kept", 4, SECOND) == 0);
    CHECK(clearway_recv_message(channel, 10 * SECOND, &kept) == 0);
    CHECK(clearway_close(channel, connection) == 0);
    CHECK(clearway_detach(channel, 10 * SECOND) == 0);
    CHECK(kept.length == 4 && !memcmp(kept.data, "kept", 4));
    clearway_release(NULL, &kept);
    return 0;
}
