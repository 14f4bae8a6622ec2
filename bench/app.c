/* The apps of `clearway bench` as a user writes them: C programs with the C library, one process
 * each. What they do, and how their messages are timed, is what `crates/bench/src/load.rs` says;
 * what they print are the events of `crates/bench/src/process.rs`, one JSON line each.
 *
 *   app server SOCKET WAITING SIZE WINDOW ANSWER ADDRESS PORT
 *   app client SOCKET WAITING SIZE WINDOW ANSWER ADDRESS PORT WARM-UP-NS MEASURE-NS
 *
 * WAITING is a number of `enum clearway_waiting`, ANSWER the bytes of the answer to a message. */
#include <clearway.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll
/* Up to this size, copying a message out is cheaper than holding on to it. */
enum { COPY_BYTES_MAX = 1024 };
/* No call waits longer, so that a stall is noticed. */
static const int64_t PATIENCE_NS = SECOND / 10;
/* After this long without an answer something has failed. */
static const int64_t SILENCE_NS_MAX = 5 * SECOND;
/* How long hosts may take to find each other. */
static const int64_t MEETING_NS_MAX = 10 * SECOND;

struct app {
    clearway_channel *channel;
    uint64_t connection;
    size_t size, answer;
    uint64_t window;
    /* The message received last: in this buffer, or where the daemon put it. */
    char *copy;
    clearway_message in_place;
    int holds;
    /* The other side has left. */
    int is_over;
};

static void fail(const char *format, ...) {
    char text[400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = '\'';
    printf("{\"failed\":\"%s\"}\n", text);
    exit(1);
}

static int64_t check(int64_t result) {
    if (result < 0) fail("%s", clearway_last_error());
    return result;
}

static int is_nothing(int64_t code) {
    return code == CLEARWAY_WOULD_BLOCK || code == CLEARWAY_TIMED_OUT;
}

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

/* A power of two with room for two windows, and no less than what every app gets. */
static uint32_t pool_bytes(const struct app *app) {
    uint32_t bytes = 16u << 20;
    while (bytes < 1u << 30 && bytes < 2 * app->size * app->window) bytes *= 2;
    return bytes;
}

/* The daemon's socket is there before the daemon serves it. */
static void attach(struct app *app, const char *name, const char *socket, const char *waiting) {
    clearway_options options = {.size = sizeof options, .socket = socket};
    options.waiting = (uint32_t)strtoul(waiting, NULL, 10);
    options.transmit_pool_bytes = options.receive_pool_bytes = pool_bytes(app);
    int64_t end_ns = clock_ns() + MEETING_NS_MAX;
    while (clearway_attach(name, &options, &app->channel) < 0) {
        if (clock_ns() >= end_ns) fail("%s", clearway_last_error());
        rest();
    }
    if (app->size <= COPY_BYTES_MAX) app->copy = calloc(1, app->size + 1);
}

/* Whether a call has done its work. If not, nothing has come yet, or nothing will. */
static int is_done(struct app *app, int64_t code) {
    if (is_nothing(code)) return 0;
    app->is_over = clearway_what_ended(code) == CLEARWAY_ENDED_CONNECTION;
    return !app->is_over && check(code) >= 0;
}

/* The next message, if one has come, and its length; else NULL. */
static const char *receive(struct app *app, int64_t timeout_ns, size_t *length) {
    if (app->copy) {
        int64_t code = clearway_recv(app->channel, app->copy, app->size, timeout_ns, NULL);
        if (!is_done(app, code)) return NULL;
        *length = (size_t)code;
        return app->copy;
    }
    if (app->holds) clearway_release(app->channel, &app->in_place);
    app->holds = is_done(app, clearway_recv_message(app->channel, timeout_ns, &app->in_place));
    *length = app->in_place.length;
    return app->holds ? app->in_place.data : NULL;
}

/* Whether there was room. */
static int try_send(struct app *app, const char *data, size_t length) {
    return is_done(app, clearway_send(app->channel, app->connection, data, length, 0));
}

/* Answers until the client leaves; returns how many messages there were. */
static uint64_t answer_all(struct app *app) {
    uint64_t answered = 0;
    while (!app->is_over) {
        size_t length;
        const char *message = receive(app, PATIENCE_NS, &length);
        if (!message) continue;
        if (length < app->answer) fail("a message of %zu bytes has come", length);
        int code = clearway_send(app->channel, app->connection, message, app->answer,
                                 CLEARWAY_FOREVER);
        if (is_done(app, code)) answered++;
    }
    return answered;
}

static void serve(struct app *app, const char *address, uint16_t port) {
    check(clearway_listen(app->channel, address, port, NULL, NULL));
    printf("{\"ready\":\"%s:%u\"}\n", address, port);
    do { /* an attempt that its client gave up may have come first */
        check(clearway_accept(app->channel, CLEARWAY_FOREVER, &app->connection, NULL));
        while (!clearway_accept(app->channel, 0, &app->connection, NULL)) {}
        app->is_over = 0;
    } while (!answer_all(app));
}

/* Times by how often they were seen, each to 1 of 1024. */
enum { FINE_BITS = 10, TIMES = (1 << FINE_BITS) * 32 };
static uint64_t times[TIMES];

static size_t place_of(uint64_t ns) {
    int shift = ns >> FINE_BITS ? 63 - FINE_BITS - __builtin_clzll(ns) : 0;
    size_t place = ((size_t)shift << FINE_BITS) + (size_t)(ns >> shift);
    return place < TIMES ? place : TIMES - 1;
}

/* The most that counts as this place. */
static uint64_t time_at(size_t place) {
    size_t shift = place >> (FINE_BITS + 1) ? (place >> FINE_BITS) - 1 : 0;
    return ((place - (shift << FINE_BITS) + 1) << shift) - 1;
}

static uint64_t quantile(uint64_t count, double share) {
    uint64_t seen = 0, wanted = (uint64_t)((double)count * share) + 1;
    for (size_t place = 0; place < TIMES; place++)
        if ((seen += times[place]) >= wanted) return time_at(place);
    return 0;
}

struct client {
    char *message;
    /* When each message in flight was sent, by its sequence number. */
    int64_t *sent_ns;
    uint64_t next, oldest, answered;
    int64_t now_ns, heard_ns;
};

static void take_answers(struct app *app, struct client *client) {
    const char *answer;
    size_t length;
    uint64_t first = client->oldest, sequence;
    int64_t timeout_ns = PATIENCE_NS;
    for (uint64_t count = 0; count < app->window; count++, timeout_ns = 0) {
        if (!(answer = receive(app, timeout_ns, &length))) break;
        sequence = client->oldest;
        memcpy(&sequence, answer, length < sizeof sequence ? length : sizeof sequence);
        if (sequence != client->oldest || sequence >= client->next || length != app->answer)
            fail("got the answer to message %" PRIu64 " (%zu bytes) while %" PRIu64 "..%" PRIu64
                 " were in flight", sequence, length, client->oldest, client->next);
        client->oldest++;
    }
    client->now_ns = clock_ns();
    if (app->is_over) fail("the server has left");
    if (first == client->oldest) {
        if (client->now_ns - client->heard_ns > SILENCE_NS_MAX) fail("no answer for 5 s");
        return;
    }
    client->heard_ns = client->now_ns;
    client->answered += client->oldest - first;
    for (; first < client->oldest; first++)
        times[place_of((uint64_t)(client->now_ns - client->sent_ns[first % app->window]))]++;
}

static void fill_window(struct app *app, struct client *client) {
    while (client->next - client->oldest < app->window) {
        size_t prefix = app->size < sizeof client->next ? app->size : sizeof client->next;
        memcpy(client->message, &client->next, prefix);
        if (!try_send(app, client->message, app->size)) return;
        client->sent_ns[client->next++ % app->window] = client->now_ns;
    }
}

static void go_on(struct app *app, struct client *client, int64_t duration_ns) {
    int64_t end_ns = client->now_ns + duration_ns;
    while (client->now_ns < end_ns) {
        take_answers(app, client);
        fill_window(app, client);
    }
}

static void measure(struct app *app, int64_t warm_up_ns, int64_t duration_ns) {
    struct client client = {.message = calloc(1, app->size + 1),
                            .sent_ns = calloc(app->window, sizeof(int64_t))};
    client.now_ns = client.heard_ns = clock_ns();
    fill_window(app, &client);
    go_on(app, &client, warm_up_ns);
    memset(times, 0, sizeof times);
    client.answered = 0;
    puts("\"measuring\"");
    int64_t began_ns = client.now_ns = clock_ns();
    go_on(app, &client, duration_ns);
    double rate = (double)client.answered * 1e9 / (double)(clock_ns() - began_ns);
    printf("{\"finished\":{\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 ",\"p999_ns\":%" PRIu64
           ",\"rate_per_s\":%f,\"gbit_per_s\":%f,\"lost\":0}}\n",
           quantile(client.answered, 0.5), quantile(client.answered, 0.99),
           quantile(client.answered, 0.999), rate, rate * (double)app->size * 8 / 1e9);
}

/* Until the benchmark closes our input. */
static void await_end(void) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
}

static void ask(struct app *app, const char *address, uint16_t port, char **times_ns) {
    int64_t end_ns = clock_ns() + MEETING_NS_MAX;
    while (clearway_connect(app->channel, address, port, MEETING_NS_MAX, &app->connection) < 0) {
        if (clock_ns() >= end_ns) fail("%s", clearway_last_error());
        rest();
    }
    measure(app, strtoll(times_ns[0], NULL, 10), strtoll(times_ns[1], NULL, 10));
    await_end();
}

int main(int count, char **words) {
    int is_client = count == 11 && !strcmp(words[1], "client");
    if (!is_client && (count != 9 || strcmp(words[1], "server")))
        return fputs("clearway-bench-app is for `clearway bench` to start\n", stderr), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct app app = {.size = strtoul(words[4], NULL, 10),
                      .window = strtoul(words[5], NULL, 10),
                      .answer = strtoul(words[6], NULL, 10)};
    uint16_t port = (uint16_t)strtoul(words[8], NULL, 10);
    attach(&app, is_client ? "bench-client" : "bench-server", words[2], words[3]);
    is_client ? ask(&app, words[7], port, words + 9) : serve(&app, words[7], port);
    return 0;
}
