/* A thread each: every thread attaches a channel of its own, and greets `hello server` by it. That
 * is also what is fastest: threads share nothing. `threads ADDRESS COUNT`.
 * Build: cc threads.c $(pkg-config --cflags --libs clearway) -pthread -o threads */
#include <clearway.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 4000, ROUNDS = 100, THREADS_MAX = 256 };

static const char *server;

/* NULL if all went well. Error texts are per thread. */
static void *greet(void *name) {
    clearway_channel *channel = NULL;
    uint64_t connection;
    char answer[120];
    int64_t result = clearway_attach(name, NULL, &channel);
    if (result == 0) {
        result = clearway_connect(channel, server, PORT, CLEARWAY_FOREVER, &connection);
    }
    for (int round = 0; round < ROUNDS && result >= 0; round++) {
        result = clearway_send(channel, connection, name, strlen(name), CLEARWAY_FOREVER);
        if (result == 0)
            result = clearway_recv(channel, answer, sizeof answer, CLEARWAY_FOREVER, NULL);
    }
    if (result < 0) fprintf(stderr, "%s: %s\n", (char *)name, clearway_last_error());
    clearway_detach(channel, CLEARWAY_FOREVER);
    return result < 0 ? name : NULL;
}

int main(int words_count, char **words) {
    int count = words_count == 3 ? atoi(words[2]) : 0;
    if (count < 1 || count > THREADS_MAX)
        return fputs("usage: threads ADDRESS COUNT (1 to 256)\n", stderr), 2;
    static pthread_t threads[THREADS_MAX];
    static char names[THREADS_MAX][24];
    int failed = 0;
    server = words[1];
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "thread-%d", i);
        if (pthread_create(&threads[i], NULL, greet, names[i])) return perror("threads"), 1;
    }
    for (int i = 0; i < count; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    printf("%d threads, %d greetings each, %d failed\n", count, ROUNDS, failed);
    return failed > 0;
}
