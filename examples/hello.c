/* Hello through Clearway: `hello server`, and on another host `hello client ADDRESS`.
 * Build: cc hello.c $(pkg-config --cflags --libs clearway) -o hello */
#include <clearway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 4000 };

static int64_t check(int64_t result) {
    if (result >= 0) return result;
    fprintf(stderr, "hello: %s\n", clearway_last_error());
    exit(1);
}

static void serve(clearway_channel *channel) {
    check(clearway_listen(channel, NULL, PORT, NULL, NULL));
    puts("listening");
    fflush(stdout);
    for (;;) {
        char answer[120];
        clearway_message name;
        int code = clearway_recv_message(channel, CLEARWAY_FOREVER, &name);
        if (clearway_what_ended(code) == CLEARWAY_ENDED_CONNECTION) continue; /* one client less */
        check(code);
        int length = name.length < 100 ? (int)name.length : 100;
        int size = snprintf(answer, sizeof answer, "hello, %.*s", length, (const char *)name.data);
        int sent = clearway_send(channel, name.connection, answer, size, CLEARWAY_FOREVER);
        clearway_release(channel, &name);
        if (clearway_what_ended(sent) != CLEARWAY_ENDED_CONNECTION) check(sent);
    }
}

static void ask(clearway_channel *channel, const char *server) {
    uint64_t connection;
    char answer[120];
    check(clearway_connect(channel, server, PORT, CLEARWAY_FOREVER, &connection));
    check(clearway_send(channel, connection, "Clearway", 8, CLEARWAY_FOREVER));
    int64_t length = clearway_recv(channel, answer, sizeof answer, CLEARWAY_FOREVER, NULL);
    printf("%.*s\n", (int)check(length), answer);
    check(clearway_close(channel, connection));
}

int main(int count, char **words) {
    int is_client = count == 3 && !strcmp(words[1], "client");
    if (!is_client && (count != 2 || strcmp(words[1], "server")))
        return fputs("usage: hello server | hello client ADDRESS\n", stderr), 2;
    clearway_channel *channel;
    check(clearway_attach("hello", NULL, &channel));
    is_client ? ask(channel, words[2]) : serve(channel);
    return check(clearway_detach(channel, CLEARWAY_FOREVER));
}
