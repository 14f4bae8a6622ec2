/* A client that stays: it greets `hello server` once a second, and goes on when its own daemon, the
 * server or the server's daemon is restarted. `reattach ADDRESS [COUNT]`.
 * Build: cc reattach.c $(pkg-config --cflags --libs clearway) -o reattach */
#define _POSIX_C_SOURCE 200809L
#include <clearway.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PORT = 4000 };
static const int64_t SECOND = 1000000000;

static void rest(void) { nanosleep(&(struct timespec){.tv_sec = 1}, NULL); }

/* One greeting and its answer; a negative code if there was none. */
static int64_t greet(clearway_channel *channel, uint64_t connection) {
    char answer[120];
    int64_t result = clearway_send(channel, connection, "Clearway", 8, SECOND);
    if (result < 0) return result;
    result = clearway_recv_from(channel, connection, answer, sizeof answer, 5 * SECOND);
    if (result >= 0) printf("%.*s\n", (int)result, answer), fflush(stdout);
    return result;
}

/* What failed decides how much begins anew. Returns the connection to go on with; 0: none yet. */
static uint64_t mend(clearway_channel *channel, int64_t code, uint64_t connection) {
    fprintf(stderr, "reattach: %s\n", clearway_last_error());
    switch (clearway_what_ended(code)) {
    case CLEARWAY_ENDED_NOTHING: return connection;
    case CLEARWAY_ENDED_CONNECTION: return 0;
    case CLEARWAY_ENDED_CHANNEL: break;
    }
    clearway_reconnected was;
    int count = clearway_reattach(channel, CLEARWAY_FOREVER, &was, 1);
    if (count < 0) {
        fprintf(stderr, "reattach: %s\n", clearway_last_error());
        exit(1);
    }
    if (count == 0) return 0;
    fprintf(stderr, "reattach: attached again, %u messages may be lost\n",
            (unsigned)was.messages_unacknowledged);
    return was.now;
}

int main(int words_count, char **words) {
    if (words_count != 2 && words_count != 3)
        return fputs("usage: reattach ADDRESS [COUNT]\n", stderr), 2;
    long left = words_count == 3 ? atol(words[2]) : -1;
    clearway_channel *channel;
    uint64_t connection = 0;
    int code = clearway_attach("reattach", NULL, &channel);
    if (code < 0) return fprintf(stderr, "reattach: %s\n", clearway_last_error()), 1;
    while (left != 0) {
        int64_t result = 0;
        if (connection == 0)
            result = clearway_connect(channel, words[1], PORT, CLEARWAY_FOREVER, &connection);
        if (result == 0) result = greet(channel, connection);
        if (result < 0) connection = mend(channel, result, connection);
        if (result >= 0 && left > 0) left--;
        if (left != 0) rest();
    }
    return clearway_detach(channel, SECOND) < 0;
}
