/* Calls: `calls server`, and on another host `calls client ADDRESS WORDS...`, which asks for all
 * words at a time and prints the answers as they come.
 *
 *     cc calls.c $(pkg-config --cflags --libs clearway) -o calls
 */
#include <clearway.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 4000
#define UPPER_CASE 1 /* what the server can do: the app's own numbers */
#define PATIENCE_NS (5 * 1000000000ll)
#define WORDS_MAX 1000

static int fail(void) {
    fprintf(stderr, "calls: %s\n", clearway_last_error());
    return 1;
}

static int answer(clearway_channel *channel, const clearway_call_event *asked) {
    if (asked->method != UPPER_CASE)
        return clearway_refuse_call(channel, asked->connection, asked->number,
                                    CLEARWAY_REFUSAL_NO_METHOD, NULL);
    char *body = malloc(asked->length + 1);
    if (!body)
        return clearway_refuse_call(channel, asked->connection, asked->number,
                                    CLEARWAY_REFUSAL_FAILED, "out of memory");
    const unsigned char *word = asked->data;
    for (size_t i = 0; i < asked->length; i++) body[i] = (char)toupper(word[i]);
    int code = clearway_answer_call(channel, asked->connection, asked->number, body,
                                    asked->length);
    free(body);
    return code;
}

static int serve(clearway_channel *channel) {
    if (clearway_listen(channel, NULL, PORT, NULL, NULL) < 0) return fail();
    printf("listening\n");
    fflush(stdout);
    for (;;) {
        clearway_call_event event;
        int code = clearway_next_call_event(channel, CLEARWAY_FOREVER, &event);
        if (code == 0 && event.kind == CLEARWAY_CALL_ASKED) {
            code = answer(channel, &event);
            clearway_call_release(channel, &event);
        }
        /* That a client has gone is nothing to a server. */
        if (clearway_what_ended(code) == CLEARWAY_ENDED_CHANNEL) return fail();
    }
}

static void print(const char *word, clearway_channel *channel, clearway_call_event *ended) {
    switch (ended->outcome) {
    case CLEARWAY_OUTCOME_ANSWERED:
        printf("%s: %.*s\n", word, (int)ended->length, (const char *)ended->data);
        break;
    case CLEARWAY_OUTCOME_REFUSED:
        printf("%s: refused (reason %u)\n", word, ended->reason);
        break;
    case CLEARWAY_OUTCOME_EXPIRED:
        printf("%s: no answer in time\n", word);
        break;
    default:
        printf("%s: lost (%s)\n", word, clearway_strerror(ended->code));
    }
    clearway_call_release(channel, ended);
}

static int ask(clearway_channel *channel, const char *server, char **words, int count) {
    uint64_t connection, calls[WORDS_MAX];
    if (clearway_connect(channel, server, PORT, CLEARWAY_FOREVER, &connection) < 0) return fail();
    for (int asked = 0, over = 0; over < count;) {
        while (asked < count) {
            int code = clearway_start_call(channel, connection, UPPER_CASE, words[asked],
                                           strlen(words[asked]), PATIENCE_NS, &calls[asked]);
            if (code == CLEARWAY_WOULD_BLOCK) break; /* until there is room */
            if (code < 0) return fail();
            asked++;
        }
        clearway_call_event event;
        if (clearway_next_call_event(channel, CLEARWAY_FOREVER, &event) < 0) return fail();
        if (event.kind != CLEARWAY_CALL_ENDED) {
            clearway_call_release(channel, &event);
            continue;
        }
        for (int i = 0; i < asked; i++)
            if (calls[i] == event.call) print(words[i], channel, &event);
        over++;
    }
    return clearway_close(channel, connection) < 0 ? fail() : 0;
}

int main(int count, char **words) {
    int is_server = count == 2 && strcmp(words[1], "server") == 0;
    int is_client = count >= 3 && count - 3 <= WORDS_MAX && strcmp(words[1], "client") == 0;
    if (!is_server && !is_client) {
        fprintf(stderr, "usage: calls server | calls client ADDRESS WORDS...\n");
        return 2;
    }
    clearway_channel *channel;
    if (clearway_attach("calls", NULL, &channel) < 0) return fail();
    int status = is_server ? serve(channel) : ask(channel, words[2], words + 3, count - 3);
    clearway_detach(channel, CLEARWAY_FOREVER);
    return status;
}
