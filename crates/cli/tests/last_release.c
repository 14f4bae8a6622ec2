/* An app of the last release: what version 1 of the channel was to an app, in plain numbers, and
 * nothing of today's code. It listens on a port, says "ready", and echoes what one peer sends until
 * that closes the connection. Not to be changed with the channel: if today's daemon cannot serve
 * it, today's daemon is wrong, or no longer serves that version (docs/channel.md).
 *
 * last_release SOCKET PORT
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

#define SIZES \
    "{\"submission_entries\":16,\"completion_entries\":16," \
    "\"transmit_pool_bytes\":65536,\"receive_pool_bytes\":65536}"

enum { ENTRIES = 16, POOL = 65536 };
enum { SUBMISSIONS = 8192, COMPLETIONS = 12288, TRANSMIT = 16384, RECEIVE = TRANSMIT + POOL };
enum { TOTAL = RECEIVE + POOL };
enum { SUBMISSION_HEAD = 4096, COMPLETION_HEAD = 4224, DAEMON_SLEEPING = 4352 };
enum { SEND = 2, RELEASE = 3 };
enum { ACCEPTED = 3, RECEIVED = 4, SENT = 5, CLOSED = 6 };

static int control;
static int daemon_bell;
static char *memory;
static uint32_t submitted;

static _Atomic uint64_t *word(size_t at) {
    return (_Atomic uint64_t *)(memory + at);
}

static _Atomic uint32_t *sync_word(size_t at) {
    return (_Atomic uint32_t *)(memory + at);
}

static void say(const char *text) {
    CHECK(send(control, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

/* A reply, with the descriptors that come with it. */
static const char *hear(int *descriptors, size_t count) {
    static char text[65536];
    _Alignas(struct cmsghdr) char space[CMSG_SPACE(3 * sizeof(int))];
    struct iovec bytes = {text, sizeof text - 1};
    struct msghdr message = {0};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    ssize_t length = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    CHECK(length > 0);
    text[length] = 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK((header != NULL) == (count > 0));
    if (count > 0) {
        CHECK(header->cmsg_len == CMSG_LEN(count * sizeof(int)));
        memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
    }
    return text;
}

static void attach(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(connect(control, (struct sockaddr *)&address, sizeof address) == 0);
    say("{\"attach\":{\"layout\":\"9644cc9668d65243\",\"app\":\"last\",\"sizes\":" SIZES "}}");
    int descriptors[3], end = 0;
    unsigned channel, engine;
    const char *reply = hear(descriptors, 3);
    /* That release refused replies with a field that it did not know. */
    sscanf(reply, "{\"attached\":{\"channel\":%u,\"engine\":%u,\"engine_name\":\"%*[^\"]\","
           "\"sizes\":" SIZES "}}%n", &channel, &engine, &end);
    CHECK(end > 0 && reply[end] == 0);
    struct stat found;
    CHECK(fstat(descriptors[0], &found) == 0 && found.st_size == TOTAL);
    memory = mmap(NULL, TOTAL, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[0], 0);
    CHECK(memory != MAP_FAILED);
    CHECK(*word(0) == 0x434c454152574159 && *word(8) == 0x9644cc9668d65243 && *word(16) == TOTAL);
    CHECK(*word(24) == ENTRIES && *word(32) == ENTRIES && *word(40) == POOL && *word(48) == POOL);
    /* F_ADD_SEALS of F_SEAL_FUTURE_WRITE and F_SEAL_SEAL. */
    CHECK(fcntl(descriptors[0], 1033, 0x10 | 0x1) == 0);
    daemon_bell = descriptors[1];
    say("{\"mapped\":{}}");
    CHECK(strcmp(hear(NULL, 0), "{\"mapped\":{}}") == 0);
}

/* Words 1 and 2 of a command, and what is in word 0 beside the turn. */
static void submit(uint64_t head, uint64_t first, uint64_t second) {
    while (submitted - atomic_load(sync_word(SUBMISSION_HEAD)) == ENTRIES)
        sched_yield();
    size_t entry = SUBMISSIONS + submitted % ENTRIES * 64;
    atomic_store(word(entry + 8), first);
    atomic_store(word(entry + 16), second);
    atomic_store(word(entry), head << 32 | (submitted / ENTRIES + 1));
    submitted++;
    uint32_t asleep = 1;
    if (atomic_compare_exchange_strong(sync_word(DAEMON_SLEEPING), &asleep, 0)) {
        uint64_t one = 1;
        CHECK(write(daemon_bell, &one, sizeof one) == sizeof one);
    }
}

/* Sends back what lies in the receive pool, and gives its buffer back. */
static void echo(uint64_t connection, uint64_t extent, uint32_t buffer, uint32_t number) {
    uint32_t from = (uint32_t)extent, length = extent >> 32, at = number % 4 * (POOL / 4);
    CHECK(length <= POOL / 4);
    memcpy(memory + TRANSMIT + at, memory + RECEIVE + from, length);
    submit(SEND, connection, at | (uint64_t)length << 32);
    submit(RELEASE | 1 << 8, buffer, 0);
}

/* The next completion; false if there is none. */
static int serve(void) {
    static uint32_t taken, echoed;
    static uint64_t peer;
    size_t entry = COMPLETIONS + taken % ENTRIES * 64;
    uint64_t head = atomic_load(word(entry));
    if ((uint32_t)head != taken / ENTRIES + 1)
        return 1;
    uint64_t first = *word(entry + 8), second = *word(entry + 16), third = *word(entry + 24);
    taken++;
    atomic_store(sync_word(COMPLETION_HEAD), taken);
    switch ((uint8_t)(head >> 32)) {
    case ACCEPTED:
        CHECK(peer == 0 && first != 0 && second == 1);
        peer = first;
        break;
    case RECEIVED:
        CHECK(first == peer && third >> 32 <= echoed);
        echo(peer, second, (uint32_t)third, echoed++);
        break;
    case SENT:
        CHECK(first == peer && (uint32_t)second <= echoed);
        break;
    case CLOSED:
        CHECK(first == peer && (int32_t)second == -3 && second >> 32 <= echoed);
        return 0;
    default:
        CHECK(!"an opcode that version 1 does not have");
    }
    return 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    alarm(60);
    attach(argv[1]);
    char listen[64];
    snprintf(listen, sizeof listen, "{\"listen\":{\"port\":%s}}", argv[2]);
    say(listen);
    CHECK(strncmp(hear(NULL, 0), "{\"listening\":{\"listener\":1,\"address\":\"", 37) == 0);
    puts("ready");
    fflush(stdout);
    while (serve())
        sched_yield();
    say("{\"leave\":{\"linger_ms\":1000}}");
    return 0;
}
