/* One channel for many connections and several threads: one thread owns the channel, receives for
 * all and sends for all; workers take messages from a queue, read them in place, and hand answers
 * back by another. An eventfd wakes the owner. `workers COUNT` listens on port 4000.
 * Build: cc workers.c $(pkg-config --cflags --libs clearway) -pthread -o workers */
#include <clearway.h>
#include <ctype.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PORT = 4000, QUEUE = 1024, WORKERS_MAX = 64 };

/* A request, and later its answer, which stands in memory of its own. */
typedef struct {
    clearway_message message;
    char *answer;
} job;

typedef struct {
    job jobs[QUEUE];
    unsigned first, count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} queue;

static queue requests = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static queue answers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static int bell;

static int check(int result) {
    if (result >= 0) return result;
    fprintf(stderr, "workers: %s\n", clearway_last_error());
    exit(1);
}

/* Each queue has room for all that the owner lets in, so that nobody waits to put. */
static void put(queue *queue, job job) {
    pthread_mutex_lock(&queue->lock);
    queue->jobs[(queue->first + queue->count++) % QUEUE] = job;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static int take(queue *queue, job *job, int waits) {
    pthread_mutex_lock(&queue->lock);
    while (waits && queue->count == 0) pthread_cond_wait(&queue->changed, &queue->lock);
    int found = queue->count > 0;
    if (found) {
        *job = queue->jobs[queue->first];
        queue->first = (queue->first + 1) % QUEUE;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return found;
}

/* Reads a request where the daemon put it, which any thread may. */
static void *work(void *unused) {
    job job;
    while (take(&requests, &job, 1)) {
        job.answer = malloc(job.message.length + 1);
        if (!job.answer) abort();
        const char *request = job.message.data;
        for (size_t i = 0; i < job.message.length; i++)
            job.answer[i] = (char)toupper((unsigned char)request[i]);
        put(&answers, job);
        if (eventfd_write(bell, 1)) abort();
    }
    return unused;
}

/* How many requests are under way afterwards. */
static int send_answers(clearway_channel *channel, int under_way) {
    job job;
    for (; take(&answers, &job, 0); under_way--) {
        /* Without waiting: a client that does not read its answers, or has gone, loses them. */
        clearway_message *message = &job.message;
        int code = clearway_send(channel, message->connection, job.answer, message->length, 0);
        if (clearway_what_ended(code) == CLEARWAY_ENDED_CHANNEL) check(code);
        clearway_release(channel, message);
        free(job.answer);
    }
    return under_way;
}

static int take_requests(clearway_channel *channel, int under_way) {
    clearway_event event;
    while (under_way < QUEUE) {
        int code = clearway_next_event(channel, 0, &event);
        if (code == CLEARWAY_WOULD_BLOCK) break;
        check(code);
        if (event.kind != CLEARWAY_EVENT_MESSAGE) continue;
        put(&requests, (job){.message = event.message});
        under_way++;
    }
    return under_way;
}

int main(int words_count, char **words) {
    int count = words_count == 2 ? atoi(words[1]) : 0;
    if (count < 1 || count > WORKERS_MAX)
        return fputs("usage: workers COUNT (1 to 64)\n", stderr), 2;
    clearway_channel *channel;
    pthread_t thread;
    check(clearway_attach("workers", NULL, &channel));
    check(clearway_listen(channel, NULL, PORT, NULL, NULL));
    if ((bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) return perror("eventfd"), 1;
    for (int i = 0; i < count; i++)
        if (pthread_create(&thread, NULL, work, NULL)) return perror("workers"), 1;
    puts("listening");
    fflush(stdout);
    for (int under_way = 0;;) {
        struct pollfd ready[2] = {{bell, POLLIN, 0}, {clearway_fd(channel), POLLIN, 0}};
        eventfd_t rung;
        int may_wait = check(clearway_arm(channel)) || under_way == QUEUE;
        poll(ready, under_way < QUEUE ? 2 : 1, may_wait ? -1 : 0);
        check(clearway_disarm(channel));
        if (ready[0].revents) (void)eventfd_read(bell, &rung);
        under_way = send_answers(channel, under_way);
        under_way = take_requests(channel, under_way);
    }
}
