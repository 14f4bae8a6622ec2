/* A small HTTP/1.1 server on Clearway's TCP: `http PORT` answers GET / with a greeting and GET /N
 * with N bytes, to any client on the network. Connections are kept, and requests may come one
 * behind the other without waiting for answers. One thread and one epoll loop, which could serve
 * ordinary descriptors, too: here it has a timer that closes connections without requests.
 * Build: cc http.c $(pkg-config --cflags --libs clearway) -o http */
#include <clearway.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { BUCKETS = 1024, HEAD_MAX = 8192, BODY_MAX = 1 << 20, IDLE_S_MAX = 60 };

/* A connection: the part of a request that has come, and the answer that waits for room. */
struct client {
    struct client *next;
    uint64_t connection;
    size_t head_length;      /* bytes in `head` */
    size_t skip;             /* bytes of a request's body that are still to come */
    clearway_writable answer;
    size_t answer_length;    /* 0: none waits */
    int wants_room;          /* there was none for an answer */
    int is_last;             /* close after the answer */
    int has_finished;        /* the client sends no more */
    int idle_s;
    char head[HEAD_MAX];
};

/* What a request asks for. */
struct request {
    int status;
    size_t body_bytes;
    int has_body;            /* not if it is a HEAD */
    int is_last;
    size_t content_length;
};

static clearway_channel *channel;
static struct client *clients[BUCKETS];

static int must(int result, const char *what) {
    if (result >= 0) return result;
    perror(what);
    exit(1);
}

static int check(int result) {
    if (result >= 0) return result;
    fprintf(stderr, "http: %s\n", clearway_last_error());
    exit(1);
}

static struct client **place_of(uint64_t connection) {
    struct client **place = &clients[(connection ^ connection >> 32) % BUCKETS];
    while (*place && (*place)->connection != connection) place = &(*place)->next;
    return place;
}

static void accept_client(uint64_t connection) {
    struct client *client = calloc(1, sizeof *client);
    if (!client) {
        clearway_tcp_abort(channel, connection);
        return;
    }
    client->connection = connection;
    *place_of(connection) = client;
    /* Answers are whole when they are sent: nothing is gained by waiting for more. */
    clearway_tcp_set(channel, connection, CLEARWAY_TCP_NO_DELAY, 1);
}

static void drop_client(struct client *client) {
    struct client **place = place_of(client->connection);
    *place = client->next;
    if (client->answer_length) clearway_discard(&client->answer);
    clearway_tcp_close(channel, client->connection); /* it may have ended */
    free(client);
}

/* The value of a header, or NULL. `head` ends with an empty line, and then with NUL. */
static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r';
         line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, length) && line[2 + length] == ':') {
            const char *value = line + 3 + length;
            return value + strspn(value, " \t");
        }
    return NULL;
}

static int says(const char *value, const char *word) {
    return value && !strncasecmp(value, word, strlen(word));
}

static struct request parse(const char *head) {
    struct request request = {.status = 400, .is_last = 1};
    char method[8], path[256];
    int minor;
    if (sscanf(head, "%7s %255s HTTP/1.%1d", method, path, &minor) != 3) return request;
    const char *length = header(head, "Content-Length");
    if (length) request.content_length = strtoul(length, NULL, 10);
    const char *wish = header(head, "Connection");
    request.is_last = says(wish, "close") || (minor == 0 && !says(wish, "keep-alive"));
    request.has_body = strcmp(method, "HEAD") != 0;
    if (request.content_length > BODY_MAX || header(head, "Transfer-Encoding")) {
        request.status = 501;
        request.is_last = 1;
        request.content_length = 0;
    } else if (request.has_body && strcmp(method, "GET")) {
        request.status = 405;
    } else {
        char *end = path;
        request.body_bytes = strtoul(path + 1, &end, 10);
        request.status = path[0] == '/' && !*end && request.body_bytes <= BODY_MAX ? 200 : 404;
        if (!path[1]) request.body_bytes = SIZE_MAX; /* the greeting */
    }
    return request;
}

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 501: return "Not Implemented";
    default: return "Bad Request";
    }
}

/* Writes the answer where the daemon reads it. False if there is no room now. */
static int write_answer(struct client *client, const struct request *request) {
    static const char greeting[] = "hello from Clearway\n";
    char head[256];
    int is_greeting = request->body_bytes == SIZE_MAX;
    size_t bytes = is_greeting ? sizeof greeting - 1 : request->body_bytes;
    if (request->status != 200) bytes = 0;
    int length = snprintf(head, sizeof head,
                          "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\n"
                          "Content-Length: %zu\r\n%s\r\n",
                          request->status, reason(request->status), bytes,
                          request->is_last ? "Connection: close\r\n" : "");
    size_t body = request->has_body ? bytes : 0, all = (size_t)length + body;
    int code = clearway_send_buffer(channel, all, 0, &client->answer);
    client->wants_room = code == CLEARWAY_WOULD_BLOCK;
    if (client->wants_room) return 0;
    check(code);
    memcpy(client->answer.data, head, (size_t)length);
    char *place = (char *)client->answer.data + length;
    if (is_greeting) memcpy(place, greeting, body);
    else memset(place, 'x', body);
    client->answer_length = all;
    client->is_last = request->is_last;
    return 1;
}

/* True if no answer waits any more. */
static int send_answer(struct client *client) {
    if (!client->answer_length) return 1;
    int code = clearway_tcp_send_buf(channel, client->connection, &client->answer,
                                     client->answer_length, 0, 0);
    if (code == CLEARWAY_WOULD_BLOCK) return 0;
    if (code < 0) {
        clearway_discard(&client->answer); /* the connection has ended */
        client->is_last = 1;
    }
    client->answer_length = 0;
    return 1;
}

/* Answers the requests that have come, while there is room. True if it wants more bytes. */
static int answer_requests(struct client *client) {
    for (;;) {
        if (!send_answer(client)) return 0;
        if (client->is_last) return 0;
        size_t skipped = client->skip < client->head_length ? client->skip : client->head_length;
        client->skip -= skipped;
        client->head_length -= skipped;
        memmove(client->head, client->head + skipped, client->head_length);
        client->head[client->head_length] = 0;
        char *end = strstr(client->head, "\r\n\r\n");
        int is_too_long = !end && client->head_length == HEAD_MAX - 1;
        if (client->skip || (!end && !is_too_long)) return 1;
        struct request request = {.status = 400, .is_last = 1, .has_body = 1};
        if (end) {
            char after = end[4];
            end[4] = 0;
            request = parse(client->head);
            end[4] = after;
        }
        if (!write_answer(client, &request)) return 0;
        size_t used = end ? (size_t)(end + 4 - client->head) : client->head_length;
        client->skip = used + request.content_length;
        client->idle_s = 0;
    }
}

/* Does all that can be done for a client; closes it when that is the end of it. */
static void serve(struct client *client) {
    while (answer_requests(client) && !client->has_finished) {
        char *place = client->head + client->head_length;
        int64_t count = clearway_tcp_recv(channel, client->connection, place,
                                          HEAD_MAX - 1 - client->head_length, 0);
        if (count == CLEARWAY_WOULD_BLOCK) return;
        if (count < 0) {
            drop_client(client);
            return;
        }
        client->has_finished = count == 0;
        client->head_length += (size_t)count;
    }
    int is_busy = client->answer_length > 0 || client->wants_room;
    if (!is_busy && (client->is_last || client->has_finished)) drop_client(client);
}

static void for_all(void (*visit)(struct client *)) {
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        for (struct client *client = clients[bucket], *next; client; client = next) {
            next = client->next;
            visit(client);
        }
}

static void grow_older(struct client *client) {
    if (++client->idle_s > IDLE_S_MAX) drop_client(client);
}

static void take_event(const clearway_event *event) {
    struct client *client;
    switch (event->kind) {
    case CLEARWAY_EVENT_TCP_ACCEPTED: accept_client(event->connection); break;
    case CLEARWAY_EVENT_TCP_READY:
        if ((client = *place_of(event->connection))) serve(client);
        break;
    case CLEARWAY_EVENT_WRITABLE: for_all(serve); break;
    case CLEARWAY_EVENT_TCP_PORT_CLOSED:
        fprintf(stderr, "http: the port was taken away: %s\n", clearway_strerror(event->code));
        exit(1);
    }
}

/* Takes all that has happened on the channel. */
static void take_events(void) {
    clearway_event event;
    int code;
    while ((code = clearway_next_event(channel, 0, &event)) == 0) take_event(&event);
    if (code != CLEARWAY_WOULD_BLOCK) check(code);
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
}

int main(int argc, char **words) {
    if (argc != 2) return fputs("usage: http PORT\n", stderr), 2;
    clearway_address bound;
    check(clearway_attach("http", NULL, &channel));
    check(clearway_tcp_listen(channel, NULL, (uint16_t)atoi(words[1]), 0, NULL, &bound));
    printf("listening on port %d\n", bound.port);
    fflush(stdout);
    struct itimerspec second = {{1, 0}, {1, 0}};
    int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd_create");
    must(timerfd_settime(timer, 0, &second, NULL), "timerfd_settime");
    watch(epoll, timer);
    watch(epoll, check(clearway_fd(channel)));
    for (;;) {
        struct epoll_event events[2];
        /* Armed, the channel makes its descriptor readable; if there is something, do not wait. */
        int patience = check(clearway_arm(channel)) ? -1 : 0;
        int count = epoll_wait(epoll, events, 2, patience);
        check(clearway_disarm(channel));
        if (count < 0 && errno != EINTR) must(count, "epoll_wait");
        uint64_t seconds;
        if (read(timer, &seconds, sizeof seconds) == sizeof seconds) for_all(grow_older);
        take_events();
    }
}
