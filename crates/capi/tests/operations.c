/* One-sided operations through the C API. With one argument, the control socket of the daemon of
 * `tests/c_program.rs`: what the library itself refuses. With two, that and a memfd, which it has
 * at the next daemon as well. With three, the sockets of two daemons, or of one twice, and the
 * address of the first: an owner there that does nothing, and an asker at the second that uses
 * every operation. */
#include <clearway.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static const int64_t SECOND = 1000000000;

#define SHARED_BYTES (1 << 20)
#define LONG_BYTES 700000

static clearway_channel *attach(const char *socket, uint32_t shared_bytes) {
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = socket;
    options.shared_bytes = shared_bytes;
    options.transmit_pool_bytes = options.receive_pool_bytes = 1 << 22;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("operations", &options, &channel) == 0);
    return channel;
}

/* An asker, its connection, and the owner's region and memory. */
typedef struct {
    clearway_channel *owner, *asker;
    uint64_t connection, region;
    uint8_t *memory;
} pair;

static uint64_t share(clearway_channel *owner, const char *name, uint32_t length,
                      const clearway_grant *grants, size_t count) {
    clearway_region_options options = {0};
    options.size = sizeof options;
    options.length = length;
    options.name = name;
    options.grants = grants;
    options.grant_count = count;
    uint64_t region = 0;
    CHECK(clearway_share(owner, &options, 10 * SECOND, &region) == 0 && region);
    return region;
}

static void operate(const pair *p, clearway_operation operation, clearway_operated *operated) {
    CHECK(!clearway_operate(p->asker, p->connection, &operation, 10 * SECOND, operated));
    CHECK(operated->token && operated->status == CLEARWAY_STATUS_DONE);
}

static uint64_t value_of(const pair *p, clearway_operation operation) {
    clearway_operated operated;
    operate(p, operation, &operated);
    CHECK(!operated.data && !operated.length);
    return operated.value;
}

/* What comes of an operation that is not done. */
static uint32_t refusal_of(const pair *p, clearway_operation operation, int code) {
    clearway_operated operated;
    CHECK(clearway_operate(p->asker, p->connection, &operation, 10 * SECOND, &operated) == code);
    CHECK(operated.token && operated.status != CLEARWAY_STATUS_DONE && !operated.data);
    CHECK(strstr(clearway_last_error(), clearway_status_text(operated.status)));
    return operated.status;
}

static void find(const pair *p) {
    clearway_operation by_name = {.kind = CLEARWAY_OPERATION_FIND, .data = "all", .data_length = 3};
    clearway_operated found;
    operate(p, by_name, &found);
    CHECK(found.value == p->region && found.region_length == SHARED_BYTES);
    by_name.data_length = 2;
    CHECK(refusal_of(p, by_name, CLEARWAY_INVALID) == CLEARWAY_STATUS_NOT_FOUND);
}

static void read_and_write(const pair *p) {
    static uint8_t bytes[LONG_BYTES];
    const uint32_t lengths[] = {0, 1, 8, 1400, 4096, LONG_BYTES};
    for (uint32_t i = 0; i < LONG_BYTES; i++) bytes[i] = (uint8_t)(i * 7 + i / 256);
    for (int i = 0; i < 6; i++) {
        clearway_operation write = {.kind = CLEARWAY_OPERATION_WRITE, .region = p->region};
        write.offset = 4096;
        write.data = bytes;
        write.data_length = lengths[i];
        CHECK(value_of(p, write) == 0 && !memcmp(p->memory + 4096, bytes, lengths[i]));
        clearway_operation read = {.kind = CLEARWAY_OPERATION_READ, .region = p->region};
        read.offset = 4096;
        read.length = lengths[i];
        clearway_operated operated, copy;
        operate(p, read, &operated);
        CHECK(operated.length == lengths[i] && !operated.data == !lengths[i]);
        if (lengths[i]) CHECK(!memcmp(operated.data, bytes, lengths[i]));
        copy = operated;
        clearway_operated_release(i % 2 ? p->asker : NULL, &operated);
        clearway_operated_release(i % 2 ? NULL : p->asker, &copy);
        CHECK(!operated.data && !operated.length);
    }
}

static void words(const pair *p) {
    clearway_operation add = {.kind = CLEARWAY_OPERATION_FETCH_ADD, .region = p->region};
    add.offset = 8;
    add.value = 5;
    CHECK(value_of(p, add) == 0 && value_of(p, add) == 5);
    clearway_operation swap = {.kind = CLEARWAY_OPERATION_COMPARE_SWAP, .region = p->region};
    swap.offset = 8;
    swap.expected = 10;
    swap.value = 3;
    uint64_t word;
    CHECK(value_of(p, swap) == 10 && value_of(p, swap) == 3);
    memcpy(&word, p->memory + 8, 8);
    CHECK(word == 3);
    swap.offset = 12;
    CHECK(refusal_of(p, swap, CLEARWAY_INVALID) == CLEARWAY_STATUS_MISALIGNED);
    swap.offset = SHARED_BYTES;
    CHECK(refusal_of(p, swap, CLEARWAY_INVALID) == CLEARWAY_STATUS_OUT_OF_BOUNDS);
}

/* Three keys with an entry each, 24 bytes apart, from 1024 on; what they point to, from 2048 on. */
static void tables(const pair *p) {
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t entry[2] = {10 + i, CLEARWAY_ENTRY(2048 + 8 * i, 4 + i)};
        memcpy(p->memory + 1024 + 24 * i, entry, sizeof entry);
    }
    memcpy(p->memory + 2048, "zero....one.....two.....", 24);
    clearway_operated operated;
    clearway_operation read = {.kind = CLEARWAY_OPERATION_INDIRECT_READ, .length = 8};
    read.region = read.target = p->region;
    read.offset = 1024 + 24 + 8;
    operate(p, read, &operated);
    CHECK(operated.value == CLEARWAY_ENTRY(2056, 5));
    CHECK(operated.length == 5 && !memcmp(operated.data, "one..", 5));
    clearway_operated_release(p->asker, &operated);

    const uint64_t offsets[] = {1032, 1080, 1033};
    clearway_batch_read list[4];
    read.kind = CLEARWAY_OPERATION_BATCH_READ;
    read.offset = 0;
    read.data = offsets;
    read.data_length = sizeof offsets;
    operate(p, read, &operated);
    CHECK(operated.value == 2);
    CHECK(clearway_batch_list(p->owner, &operated, list, 3) == CLEARWAY_INVALID);
    CHECK(clearway_batch_list(p->asker, &operated, NULL, 3) == CLEARWAY_INVALID);
    CHECK(clearway_batch_list(p->asker, &operated, list, 1000) == CLEARWAY_INVALID);
    CHECK(clearway_batch_list(p->asker, &operated, list, 3) == 0);
    CHECK(list[0].status == 0 && list[0].length == 4 && !memcmp(list[0].data, "zero", 4));
    CHECK(list[1].status == 0 && list[1].length == 6 && !memcmp(list[1].data, "two...", 6));
    CHECK(list[2].status == CLEARWAY_STATUS_MISALIGNED && list[2].length == 0);
    clearway_operated_release(p->asker, &operated);
    CHECK(clearway_batch_list(p->asker, &operated, list, 3) == CLEARWAY_INVALID);

    clearway_operation scan = {.kind = CLEARWAY_OPERATION_SCAN_READ, .offset = 1024, .length = 8};
    scan.region = scan.target = p->region;
    scan.stride = 24;
    scan.count = 3;
    scan.value = 12;
    operate(p, scan, &operated);
    CHECK(operated.value == 2 && operated.length == 6 && !memcmp(operated.data, "two", 3));
    clearway_operated_release(p->asker, &operated);
    scan.value = 13;
    CHECK(refusal_of(p, scan, CLEARWAY_INVALID) == CLEARWAY_STATUS_NOT_FOUND);
    scan.value = 12;
    scan.length = 5;
    CHECK(refusal_of(p, scan, CLEARWAY_TOO_LARGE) == CLEARWAY_STATUS_TOO_LARGE);
}

/* Waits for an event as a program with an event loop does. */
static void next_event(clearway_channel *channel, clearway_event *event) {
    int code;
    while ((code = clearway_next_event(channel, 0, event)) == CLEARWAY_WOULD_BLOCK) {
        int armed = clearway_arm(channel);
        struct pollfd waiting = {clearway_fd(channel), POLLIN, 0};
        CHECK(armed >= 0 && waiting.fd >= 0);
        if (armed) CHECK(poll(&waiting, 1, 10000) == 1);
        CHECK(clearway_disarm(channel) == 0);
    }
    CHECK(code == 0);
}

static void notifications(const pair *p) {
    clearway_operation write = {.kind = CLEARWAY_OPERATION_WRITE_NOTIFY, .region = p->region};
    clearway_notified notified;
    clearway_event event;
    write.offset = 16;
    write.data = "news";
    write.data_length = 4;
    write.value = 77;
    for (int round = 0; round < 2; round++) {
        CHECK(clearway_next_notified(p->owner, 0, &notified) == CLEARWAY_WOULD_BLOCK);
        CHECK(value_of(p, write) == 0);
        if (round) {
            do next_event(p->owner, &event);
            while (event.kind == CLEARWAY_EVENT_ACCEPTED);
            CHECK(event.kind == CLEARWAY_EVENT_NOTIFIED && event.connection);
        }
        CHECK(clearway_next_notified(p->owner, 10 * SECOND, &notified) == 0);
        CHECK(notified.region == p->region && notified.offset == 16 && notified.length == 4);
        CHECK(notified.value == 77 && notified.connection);
        CHECK(!memcmp(p->memory + 16, "news", 4));
    }
}

/* Many at once, whose ends are told in order: by a call of their own, and by events. */
static void many(const pair *p, int by_events) {
    enum { ALL = 40000 };
    clearway_operation add = {.kind = CLEARWAY_OPERATION_FETCH_ADD, .region = p->region};
    clearway_operated operated;
    clearway_event event = {0};
    uint64_t last = 0, token = 0;
    int begun = 0, was_full = 0, is_writable = 0;
    add.offset = 64;
    add.value = 1;
    memset(p->memory + 64, 0, 8);
    for (uint64_t ended = 0; ended < ALL;) {
        int code = 0;
        while (begun < ALL && code == 0) {
            code = clearway_start_operation(p->asker, p->connection, &add, 0, &token);
            CHECK(code == 0 || code == CLEARWAY_WOULD_BLOCK);
            if (code == 0 && begun++ == 0) last = token - 1;
        }
        was_full |= code == CLEARWAY_WOULD_BLOCK;
        if (by_events) {
            next_event(p->asker, &event);
            is_writable |= event.kind == CLEARWAY_EVENT_WRITABLE;
            if (event.kind != CLEARWAY_EVENT_OPERATED) continue;
        }
        int64_t patience = by_events ? 0 : 10 * SECOND;
        CHECK(clearway_next_operated(p->asker, patience, &operated) == 0);
        CHECK(operated.status == CLEARWAY_STATUS_DONE && operated.value == ended);
        CHECK(operated.token > last && (!by_events || operated.token == event.token));
        last = operated.token;
        ended++;
    }
    CHECK(is_writable || !was_full || !by_events);
    CHECK(clearway_next_operated(p->asker, 0, &operated) == CLEARWAY_WOULD_BLOCK);
}

/* Operations of several kinds in one go, on two connections: each has its own end, in order. */
static void vectors(const pair *p, const char *address) {
    enum { COUNT = 5 };
    clearway_vector_entry entries[COUNT] = {0};
    clearway_operated operated;
    uint64_t second;
    size_t wrong = 77;
    CHECK(clearway_connect(p->asker, address, 4000, 10 * SECOND, &second) == 0);
    for (int i = 0; i < COUNT; i++) {
        entries[i].connection = i == 3 ? second : p->connection;
        entries[i].operation.region = p->region;
        entries[i].operation.offset = 4096;
    }
    entries[0].operation.kind = CLEARWAY_OPERATION_WRITE;
    entries[0].operation.data = "vector";
    entries[0].operation.data_length = 6;
    entries[1].operation.kind = CLEARWAY_OPERATION_READ;
    entries[1].operation.length = 6;
    entries[2].operation.kind = CLEARWAY_OPERATION_FETCH_ADD; /* and misaligned */
    entries[2].operation.offset = 4097;
    entries[3].operation.kind = CLEARWAY_OPERATION_FIND;
    entries[3].operation.data = "all";
    entries[3].operation.data_length = 3;
    entries[4].operation.kind = CLEARWAY_OPERATION_COMPARE_SWAP;
    entries[4].operation.offset = 4104;
    entries[4].operation.value = 1;

    entries[4].connection = 12345;
    memset(p->memory + 4096, 0, 16);
    CHECK(clearway_start_vector(p->asker, entries, COUNT, SECOND, &wrong) == CLEARWAY_CLOSED);
    CHECK(wrong == 4 && strstr(clearway_last_error(), "operation 4 of the vector"));
    CHECK(entries[0].token == 0);
    CHECK(clearway_next_operated(p->asker, 0, &operated) == CLEARWAY_WOULD_BLOCK);
    entries[4].connection = p->connection;
    CHECK(clearway_start_vector(p->asker, entries, COUNT, 10 * SECOND, &wrong) == 0);

    uint32_t statuses[COUNT] = {0, 0, CLEARWAY_STATUS_MISALIGNED, 0, 0};
    uint64_t values[COUNT] = {0, 0, 0, p->region, 0};
    int ended = 0;
    while (ended < COUNT) {
        CHECK(clearway_next_operated(p->asker, 10 * SECOND, &operated) == 0);
        int at = 0;
        while (at < COUNT && entries[at].token != operated.token) at++;
        CHECK(at < COUNT && operated.status == statuses[at] && operated.value == values[at]);
        CHECK(at != 1 || (operated.length == 6 && !memcmp(operated.data, "vector", 6)));
        clearway_operated_release(p->asker, &operated);
        entries[at].token = 0;
        ended++;
    }
    CHECK(!memcmp(p->memory + 4096, "vector", 6) && p->memory[4104] == 1);
    CHECK(clearway_close(p->asker, second) == 0);
}

/* What is read and never released by the program fills the channel's memory, and no more. */
static void held(const pair *p) {
    clearway_operation read = {.kind = CLEARWAY_OPERATION_READ, .length = 1 << 17};
    clearway_operated kept, operated;
    read.region = p->region;
    operate(p, read, &kept);
    for (int round = 0; round < 40; round++) { /* more than all of the memory */
        operate(p, read, &operated);
        clearway_operated_release(round % 2 ? p->asker : NULL, &operated);
    }
    CHECK(kept.length == 1 << 17 && !memcmp(kept.data, p->memory, kept.length));
    clearway_operated_release(p->asker, &kept);
    memset(&kept, 0xff, sizeof kept);
    clearway_operated_release(p->asker, &kept);
    clearway_operated_release(NULL, &kept);
    clearway_operated_release(NULL, NULL);
}

static void grants(const pair *p) {
    const clearway_grant nobody[] = {
        {CLEARWAY_TO_USER, CLEARWAY_RIGHT_ALL, 4000000000u, NULL, NULL},
        {CLEARWAY_TO_PREFIX, CLEARWAY_RIGHT_ALL, 0, "fd00::/8", NULL},
        {CLEARWAY_TO_PREFIX, CLEARWAY_RIGHT_ALL, 0, "10.8.0.77", NULL},
        {CLEARWAY_TO_ANYBODY, CLEARWAY_RIGHT_WRITE, 0, NULL, NULL},
    };
    const clearway_grant some[] = {
        {CLEARWAY_TO_PREFIX, CLEARWAY_RIGHT_READ, 0, "10.8.0.0/24", NULL},
    };
    clearway_operation read = {.kind = CLEARWAY_OPERATION_READ, .length = 8};
    clearway_operated operated;
    read.region = share(p->owner, "nobody's", 64, nobody, 4);
    CHECK(refusal_of(p, read, CLEARWAY_DENIED) == CLEARWAY_STATUS_NOT_ALLOWED);
    read.region = share(p->owner, NULL, 64, some, 1);
    operate(p, read, &operated);
    clearway_operated_release(p->asker, &operated);
    CHECK(clearway_unshare(p->owner, read.region, 10 * SECOND) == 0);
    CHECK(refusal_of(p, read, CLEARWAY_INVALID) == CLEARWAY_STATUS_NO_REGION);
    CHECK(clearway_unshare(p->owner, read.region, 10 * SECOND) == CLEARWAY_INVALID);
}

/* Who is in a group may read until it is taken from it. */
static void groups(const pair *p) {
    const clearway_grant grant = {CLEARWAY_TO_GROUP, CLEARWAY_RIGHT_READ, 0, NULL, "readers"};
    const clearway_member members[] = {
        {CLEARWAY_TO_USER, 4000000000u, NULL},
        {CLEARWAY_TO_PREFIX, 0, "10.8.0.0/24"},
    };
    clearway_operation read = {.kind = CLEARWAY_OPERATION_READ, .length = 8};
    clearway_operated operated;
    read.region = share(p->owner, "readers' own", 64, &grant, 1);
    for (int round = 0; round < 2; round++) {
        CHECK(refusal_of(p, read, CLEARWAY_DENIED) == CLEARWAY_STATUS_NOT_ALLOWED);
        CHECK(clearway_set_group(p->owner, "readers", members, 2, 10 * SECOND) == 0);
        operate(p, read, &operated);
        clearway_operated_release(p->asker, &operated);
        CHECK(clearway_set_group(p->owner, "readers", members, 1, 10 * SECOND) == 0);
    }
    char name[16];
    for (int group = 1; group < 64; group++) {
        snprintf(name, sizeof name, "%d", group);
        CHECK(clearway_set_group(p->owner, name, members, 1, 10 * SECOND) == 0);
    }
    CHECK(clearway_set_group(p->owner, "more", members, 1, 10 * SECOND) == CLEARWAY_LIMIT);
    const char *text = clearway_status_text(CLEARWAY_STATUS_TOO_MANY_GROUPS);
    CHECK(!strcmp(clearway_last_error(), text));
    CHECK(clearway_set_group(p->owner, "readers", NULL, 0, 10 * SECOND) == 0);
    CHECK(clearway_set_group(p->owner, "more", members, 1, 10 * SECOND) == 0);
}

static void refused_shares(clearway_channel *owner) {
    clearway_region_options options = {0};
    options.size = sizeof options;
    options.name = "all";
    options.length = 8;
    CHECK(clearway_share(owner, &options, 10 * SECOND, NULL) == CLEARWAY_ADDRESS_IN_USE);
    options.name = NULL;
    options.start = SHARED_BYTES;
    CHECK(clearway_share(owner, &options, 10 * SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(!strcmp(clearway_last_error(), clearway_status_text(CLEARWAY_STATUS_OUT_OF_BOUNDS)));
    options.start = 4;
    CHECK(clearway_share(owner, &options, 10 * SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(!strcmp(clearway_last_error(), clearway_status_text(CLEARWAY_STATUS_MISALIGNED)));
}

/* The connection ends while operations go on: each is told of, once. */
static void ends(const pair *p) {
    enum { COUNT = 100 };
    clearway_operation add = {.kind = CLEARWAY_OPERATION_FETCH_ADD, .region = p->region};
    clearway_operated operated;
    for (int i = 0; i < COUNT; i++)
        CHECK(!clearway_start_operation(p->asker, p->connection, &add, SECOND, NULL));
    CHECK(clearway_abort(p->asker, p->connection) == 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK(clearway_next_operated(p->asker, 10 * SECOND, &operated) == 0);
        CHECK(operated.status == CLEARWAY_STATUS_DONE || operated.status == CLEARWAY_STATUS_UNKNOWN
              || operated.status == CLEARWAY_STATUS_FAILED);
    }
    CHECK(clearway_operate(p->asker, p->connection, &add, SECOND, &operated) == CLEARWAY_CLOSED);
    CHECK(operated.token == 0);
}

static int between(const char *owners, const char *askers, const char *address) {
    const clearway_grant all = {CLEARWAY_TO_ANYBODY, CLEARWAY_RIGHT_ALL, 0, NULL, NULL};
    pair p = {attach(owners, SHARED_BYTES), attach(askers, 0), 0, 0, NULL};
    size_t length = 1;
    void *memory = &p;
    CHECK(clearway_shared_memory(p.asker, &memory, &length) == 0 && !memory && !length);
    CHECK(clearway_shared_memory(p.owner, &memory, &length) == 0 && length == SHARED_BYTES);
    p.memory = memory;
    for (size_t i = 0; i < length; i++) CHECK(p.memory[i] == 0);
    p.region = share(p.owner, "all", SHARED_BYTES, &all, 1);
    CHECK(clearway_listen(p.owner, NULL, 4000, NULL, NULL) == 0);
    CHECK(clearway_connect(p.asker, address, 4000, 10 * SECOND, &p.connection) == 0);
    find(&p);
    read_and_write(&p);
    words(&p);
    tables(&p);
    notifications(&p);
    many(&p, 0);
    many(&p, 1);
    vectors(&p, address);
    held(&p);
    grants(&p);
    groups(&p);
    refused_shares(p.owner);
    ends(&p);
    CHECK(clearway_detach(p.asker, 10 * SECOND) == 0);
    CHECK(clearway_detach(p.owner, 10 * SECOND) == 0);
    return 0;
}

/* What the library itself refuses: no daemon hears of it. */
static void misuse(clearway_channel *channel, uint64_t connection) {
    static const uint64_t offsets[65];
    clearway_grant grant = {4, 0, 0, NULL, NULL};
    clearway_region_options options = {0};
    clearway_operation operation = {0};
    clearway_operated operated;
    CHECK(clearway_shared_memory(NULL, NULL, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_memory_again(channel, 1, NULL, NULL, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_share(channel, NULL, SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "sizeof(struct clearway_region_options)"));
    CHECK(!strstr(clearway_last_error(), "daemon")); /* which was not asked */
    options.size = sizeof options;
    options.grant_count = 1;
    CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
    options.grants = &grant;
    CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "clearway_grantee"));
    grant.to = CLEARWAY_TO_PREFIX;
    const char *prefixes[] = {NULL, "10.0.0.0/33", "fd00::/129", "10/8", "10.0.0.0/", "host"};
    for (int i = 0; i < 6; i++) {
        grant.prefix = prefixes[i];
        CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
        CHECK(strstr(clearway_last_error(), "prefix"));
    }
    grant.to = CLEARWAY_TO_GROUP;
    const char *names[] = {NULL, "", "seventeen letters"};
    clearway_member members[257] = {{CLEARWAY_TO_ANYBODY, 0, NULL}};
    for (int i = 0; i < 3; i++) {
        grant.group = names[i];
        CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
        CHECK(strstr(clearway_last_error(), "group"));
        CHECK(clearway_set_group(channel, names[i], NULL, 0, SECOND) == CLEARWAY_INVALID);
    }
    CHECK(clearway_set_group(NULL, "g", NULL, 0, SECOND) == CLEARWAY_INVALID);
    CHECK(clearway_set_group(channel, "g", NULL, 1, SECOND) == CLEARWAY_INVALID);
    CHECK(clearway_set_group(channel, "g", members, 1, SECOND) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "CLEARWAY_TO_PREFIX"));
    for (int i = 0; i < 257; i++)
        members[i] = (clearway_member){CLEARWAY_TO_PREFIX, 0, i ? "10.0.0.1" : "10/8"};
    CHECK(clearway_set_group(channel, "g", members, 1, SECOND) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "\"10/8\" is not addresses"));
    members[0].prefix = "10.0.0.0/8";
    CHECK(clearway_set_group(channel, "g", members, 257, SECOND) == CLEARWAY_TOO_LARGE);
    CHECK(strstr(clearway_last_error(), "257 members, and 256"));
    grant.to = CLEARWAY_TO_ANYBODY;
    grant.rights = CLEARWAY_RIGHT_ALL + 1;
    CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);
    CHECK(strstr(clearway_last_error(), "rights"));
    options.start = 8;
    options.length = 0xfffffff8;
    CHECK(clearway_share(channel, &options, SECOND, NULL) == CLEARWAY_INVALID);

    CHECK(clearway_start_operation(channel, connection, NULL, 0, NULL) == CLEARWAY_INVALID);
    for (uint32_t kind = 0; kind <= 10; kind += 10) {
        operation.kind = kind;
        int code = clearway_start_operation(channel, connection, &operation, 0, NULL);
        CHECK(code == CLEARWAY_INVALID);
        CHECK(strstr(clearway_last_error(), "clearway_operation_kind"));
    }
    const size_t lengths[] = {0, 12, sizeof offsets};
    operation.kind = CLEARWAY_OPERATION_BATCH_READ;
    operation.data = offsets;
    for (int i = 0; i < 3; i++) {
        operation.data_length = lengths[i];
        int code = clearway_operate(channel, connection, &operation, SECOND, &operated);
        CHECK(code == CLEARWAY_INVALID && operated.token == 0);
    }
    operation.kind = CLEARWAY_OPERATION_FIND;
    for (int i = 0; i < 3; i += 2) {
        operation.data_length = lengths[i];
        int code = clearway_operate(channel, connection, &operation, SECOND, &operated);
        CHECK(code == CLEARWAY_INVALID && operated.token == 0);
    }
    operation.data = NULL;
    CHECK(clearway_start_operation(channel, connection, &operation, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_operate(channel, connection, &operation, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_next_operated(channel, 0, NULL) == CLEARWAY_INVALID);
    CHECK(clearway_next_operated(channel, 0, &operated) == CLEARWAY_WOULD_BLOCK);
    CHECK(clearway_next_notified(channel, 0, NULL) == CLEARWAY_WOULD_BLOCK);

    clearway_vector_entry entries[3] = {0};
    size_t wrong = 0;
    CHECK(clearway_start_vector(channel, NULL, 1, 0, &wrong) == CLEARWAY_INVALID && wrong == 1);
    CHECK(clearway_start_vector(channel, NULL, 0, 0, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        entries[i].connection = connection;
        entries[i].operation.kind = CLEARWAY_OPERATION_READ;
    }
    entries[2].operation.kind = 10;
    CHECK(clearway_start_vector(channel, entries, 3, 0, &wrong) == CLEARWAY_INVALID && wrong == 2);
    CHECK(strstr(clearway_last_error(), "clearway_operation_kind"));
    entries[1].operation.kind = CLEARWAY_OPERATION_FIND;
    CHECK(clearway_start_vector(channel, entries, 2, 0, &wrong) == CLEARWAY_INVALID && wrong == 1);
    CHECK(clearway_next_operated(channel, 0, &operated) == CLEARWAY_WOULD_BLOCK);

    operation.kind = CLEARWAY_OPERATION_READ;
    operation.data_length = 0;
    CHECK(clearway_start_operation(channel, 12345, &operation, 0, NULL) == CLEARWAY_CLOSED);
}

static void texts(void) {
    for (uint32_t status = 1; status <= CLEARWAY_STATUS_INVALID; status++)
        CHECK(strlen(clearway_status_text(status)) > 20);
    CHECK(!strcmp(clearway_status_text(CLEARWAY_STATUS_DONE), "done"));
    CHECK(strstr(clearway_status_text(CLEARWAY_STATUS_UNKNOWN), "may have been done"));
    CHECK(strstr(clearway_status_text(31), "not a status"));
}

/* Programs that were built before `shared_bytes` came give the size that they know. */
static void earlier_options(const char *socket) {
    clearway_options options = {0};
    options.size = offsetof(clearway_options, shared_bytes);
    options.socket = socket;
    options.shared_bytes = 12345;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("earlier", &options, &channel) == 0);
    uint64_t connection;
    CHECK(clearway_connect(channel, "10.0.0.2", 7, 10 * SECOND, &connection) == 0);
    misuse(channel, connection);
    CHECK(clearway_detach(channel, 10 * SECOND) == 0);
}

/* Memory of the program's own, at one daemon and at the next. */
static int again(const char *socket, int memfd) {
    clearway_channel *channel = attach(socket, 0);
    uint64_t memory = 0, now = 0;
    size_t length = 0;
    void *data = NULL;
    clearway_event event;
    CHECK(clearway_add_memory(channel, memfd, &memory, &data, &length) == 0);
    CHECK(memory && data && length == 4096);
    memcpy(data, "kept", 4);
    CHECK(clearway_memory_again(channel, memory, NULL, NULL, NULL) == CLEARWAY_INVALID);
    puts("added");
    fflush(stdout);
    int code;
    while ((code = clearway_next_event(channel, 20 * SECOND, &event)) == 0) {}
    CHECK(clearway_what_ended(code) == CLEARWAY_ENDED_CHANNEL);
    CHECK(clearway_reattach(channel, 20 * SECOND, NULL, 0) == 0);
    data = NULL;
    CHECK(clearway_memory_again(channel, memory, &now, &data, &length) == 0);
    CHECK(now && length == 4096 && !memcmp(data, "kept", 4));
    CHECK(clearway_memory_again(channel, memory + 7, &now, &data, &length) == CLEARWAY_INVALID);
    CHECK(clearway_detach(channel, 10 * SECOND) == 0);
    return 0;
}

int main(int count, char **words) {
    if (count == 3) return again(words[1], atoi(words[2]));
    if (count == 4) return between(words[1], words[2], words[3]);
    CHECK(count == 2);
    texts();
    earlier_options(words[1]);
    return 0;
}
