/* A table that its server fills and others read and change while it sleeps, by one-sided
 * operations: `kv server KEY=VALUE...`, and on other hosts `kv get ADDRESS KEY` and
 * `kv set ADDRESS KEY VALUE`. Keys have up to 8 bytes, values up to 47.
 * Build: cc kv.c $(pkg-config --cflags --libs clearway) -o kv
 *
 *   region "table":    key, entry │ key, entry │ ...      what a scan looks through
 *   region "records":  begin, value (48 bytes), end │ ...  what the entries point to
 *
 * A record is a seqlock. `begin` and `end` are the number of its last change, which is even; while
 * it is changed, `begin` is odd. Who changes it takes it by a compare-and-swap of `begin`, writes
 * `end`, then the value, then `begin`. Who reads gets the words in ascending order, `end` last: if
 * it is `begin`, nothing of the value is of a later change. */
#include <clearway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 4000, PLACES = 256, VALUE_BYTES = 48, TRIES = 1000 };

typedef struct {
    uint64_t key, entry;
} place;

typedef struct {
    uint64_t begin;
    char value[VALUE_BYTES];
    uint64_t end;
} record;

static const uint32_t TABLE_BYTES = PLACES * sizeof(place);
static const uint32_t RECORDS_BYTES = PLACES * sizeof(record);
static const uint64_t END_AT = VALUE_BYTES + sizeof(uint64_t);

static int64_t check(int64_t result) {
    if (result >= 0) return result;
    fprintf(stderr, "kv: %s\n", clearway_last_error());
    exit(1);
}

static uint64_t key_of(const char *text, size_t length) {
    uint64_t key = 0;
    if (length == 0 || length > sizeof key) {
        fprintf(stderr, "kv: \"%.*s\" is no key; one has 1 to 8 bytes\n", (int)length, text);
        exit(2);
    }
    memcpy(&key, text, length);
    return key;
}

static void put_value(char place[VALUE_BYTES], const char *text) {
    if (strlen(text) >= VALUE_BYTES) {
        fprintf(stderr, "kv: \"%s\" is too long; a value has up to 47 bytes\n", text);
        exit(2);
    }
    strncpy(place, text, VALUE_BYTES);
}

/* The server. */

static void share(clearway_channel *channel, const char *name, uint32_t start, uint32_t length,
                  uint32_t rights) {
    clearway_grant grant = {.to = CLEARWAY_TO_ANYBODY, .rights = rights};
    clearway_region_options options = {.size = sizeof options, .start = start, .length = length};
    options.name = name;
    options.grants = &grant;
    options.grant_count = 1;
    check(clearway_share(channel, &options, CLEARWAY_FOREVER, NULL));
}

static void fill(uint8_t *memory, int count, char **pairs) {
    place *table = (place *)memory;
    record *records = (record *)(memory + TABLE_BYTES);
    for (int i = 0; i < count && i < PLACES; i++) {
        const char *equals = strchr(pairs[i], '=');
        if (!equals) fprintf(stderr, "kv: \"%s\" is not KEY=VALUE\n", pairs[i]), exit(2);
        put_value(records[i].value, equals + 1);
        table[i].key = key_of(pairs[i], equals - pairs[i]);
        table[i].entry = CLEARWAY_ENTRY(i * sizeof(record), sizeof(record));
    }
}

/* Fills the table before it shares it; from then on it does nothing. */
static void serve(clearway_channel *channel, int count, char **pairs) {
    clearway_event event;
    void *memory;
    check(clearway_shared_memory(channel, &memory, NULL));
    fill(memory, count, pairs);
    share(channel, "table", 0, TABLE_BYTES, CLEARWAY_RIGHT_READ);
    share(channel, "records", TABLE_BYTES, RECORDS_BYTES,
          CLEARWAY_RIGHT_READ | CLEARWAY_RIGHT_WRITE | CLEARWAY_RIGHT_ATOMIC);
    check(clearway_listen(channel, NULL, PORT, NULL, NULL));
    puts("listening");
    fflush(stdout);
    while (check(clearway_next_event(channel, CLEARWAY_FOREVER, &event)) == 0)
        if (event.kind == CLEARWAY_EVENT_MESSAGE) clearway_release(channel, &event.message);
}

/* Clients. */

typedef struct {
    clearway_channel *channel;
    uint64_t connection, table, records;
} client;

static clearway_operated operate(const client *c, clearway_operation operation) {
    clearway_operated operated;
    check(clearway_operate(c->channel, c->connection, &operation, CLEARWAY_FOREVER, &operated));
    return operated;
}

static uint64_t find(const client *c, const char *name) {
    clearway_operation by_name = {.kind = CLEARWAY_OPERATION_FIND, .data = name};
    by_name.data_length = strlen(name);
    return operate(c, by_name).value;
}

/* The record that an operation has read. */
static record take(const client *c, clearway_operated *operated) {
    record found = {0};
    if (operated->length == sizeof found) memcpy(&found, operated->data, sizeof found);
    clearway_operated_release(c->channel, operated);
    return found;
}

/* Looks a key up, and reads its record in the same operation; then again, by its entry, while it is
 * being changed. Returns the place in the table. */
static uint64_t look_up(const client *c, const char *key, record *found) {
    clearway_operation scan = {.kind = CLEARWAY_OPERATION_SCAN_READ, .region = c->table};
    scan.count = PLACES;
    scan.stride = sizeof(place);
    scan.value = key_of(key, strlen(key));
    scan.target = c->records;
    scan.length = sizeof(record);
    clearway_operated operated = operate(c, scan);
    uint64_t index = operated.value;
    clearway_operation again = {.kind = CLEARWAY_OPERATION_INDIRECT_READ, .region = c->table};
    again.offset = index * sizeof(place) + sizeof(uint64_t);
    again.target = c->records;
    again.length = sizeof(record);
    for (int i = 0; i < TRIES; i++) {
        *found = take(c, &operated);
        if (found->begin == found->end) return index;
        operated = operate(c, again);
    }
    clearway_operated_release(c->channel, &operated);
    fprintf(stderr, "kv: %s is being changed all the time, or whoever changed it died\n", key);
    exit(1);
}

static uint64_t swap(const client *c, uint64_t at, uint64_t expected, uint64_t value) {
    clearway_operation swap = {.kind = CLEARWAY_OPERATION_COMPARE_SWAP, .region = c->records};
    swap.offset = at;
    swap.expected = expected;
    swap.value = value;
    return operate(c, swap).value;
}

static void put(const client *c, uint64_t at, const void *data, size_t length) {
    clearway_operation write = {.kind = CLEARWAY_OPERATION_WRITE, .region = c->records};
    write.offset = at;
    write.data = data;
    write.data_length = length;
    operate(c, write);
}

static void set(const client *c, const char *key, const char *value) {
    record changed;
    char text[VALUE_BYTES];
    uint64_t at;
    put_value(text, value);
    do at = look_up(c, key, &changed) * sizeof(record);
    while (swap(c, at, changed.end, changed.end + 1) != changed.end); /* another was faster */
    uint64_t end = changed.end + 2;
    put(c, at + END_AT, &end, sizeof end);
    put(c, at + sizeof(uint64_t), text, sizeof text);
    swap(c, at, end - 1, end);
}

static void ask(clearway_channel *channel, const char *server, const char *key, const char *value) {
    client c = {.channel = channel};
    record found;
    check(clearway_connect(channel, server, PORT, CLEARWAY_FOREVER, &c.connection));
    c.table = find(&c, "table");
    c.records = find(&c, "records");
    if (value) set(&c, key, value);
    look_up(&c, key, &found);
    printf("%s=%.*s\n", key, VALUE_BYTES, found.value);
}

int main(int count, char **words) {
    int is_server = count >= 2 && !strcmp(words[1], "server");
    int is_get = count == 4 && !strcmp(words[1], "get");
    int is_set = count == 5 && !strcmp(words[1], "set");
    if (!is_server && !is_get && !is_set)
        return fputs("usage: kv server KEY=VALUE... | kv get ADDRESS KEY |"
                     " kv set ADDRESS KEY VALUE\n", stderr), 2;
    clearway_options options = {.size = sizeof options};
    if (is_server) options.shared_bytes = 1 << 15; /* a power of two, for both regions */
    clearway_channel *channel;
    check(clearway_attach("kv", &options, &channel));
    if (is_server) serve(channel, count - 2, words + 2);
    ask(channel, words[2], words[3], is_set ? words[4] : NULL);
    return check(clearway_detach(channel, CLEARWAY_FOREVER));
}
