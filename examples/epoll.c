/* One event loop for Clearway and ordinary sockets: what comes by either is sent back where it came
 * from. `epoll TCP-PORT` listens on Clearway's port 4000 of the host, and on that of 127.0.0.1.
 * Build: cc epoll.c $(pkg-config --cflags --libs clearway) -o epoll */
#include <arpa/inet.h>
#include <clearway.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 4000, EVENTS = 64 };

static int must(int result, const char *what) {
    if (result >= 0) return result;
    perror(what);
    exit(1);
}

static int check(int result) {
    if (result >= 0) return result;
    fprintf(stderr, "epoll: %s\n", clearway_last_error());
    exit(1);
}

/* On `port`, or on one that the kernel chooses if that is 0. */
static int tcp_listener(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
    must(listen(listener, 16), "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
    printf("listening; TCP port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
}

static void echo_tcp(int epoll, int descriptor, int listener) {
    char bytes[4096];
    if (descriptor == listener) {
        int client = accept(listener, NULL, NULL);
        if (client >= 0) watch(epoll, client);
        return;
    }
    ssize_t length = read(descriptor, bytes, sizeof bytes);
    if (length <= 0 || write(descriptor, bytes, length) != length) close(descriptor);
}

/* Takes all that has happened on the channel. A peer that has gone is no reason to stop. */
static void echo_clearway(clearway_channel *channel) {
    clearway_event event;
    int code;
    while ((code = clearway_next_event(channel, 0, &event)) == 0) {
        if (event.kind != CLEARWAY_EVENT_MESSAGE) continue;
        clearway_message *message = &event.message;
        /* Without waiting: a peer that reads no answers loses them, and holds up nobody. */
        clearway_send(channel, message->connection, message->data, message->length, 0);
        clearway_release(channel, message);
    }
    if (code != CLEARWAY_WOULD_BLOCK) check(code);
}

int main(int argc, char **words) {
    if (argc != 2) return fputs("usage: epoll TCP-PORT\n", stderr), 2;
    clearway_channel *channel;
    check(clearway_attach("epoll", NULL, &channel));
    check(clearway_listen(channel, NULL, PORT, NULL, NULL));
    int epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    int listener = tcp_listener(atoi(words[1]));
    int doorbell = check(clearway_fd(channel));
    watch(epoll, listener);
    watch(epoll, doorbell);
    for (;;) {
        struct epoll_event events[EVENTS];
        /* Armed, the channel makes its descriptor readable; if there is something, do not wait. */
        int patience = check(clearway_arm(channel)) ? -1 : 0;
        int count = epoll_wait(epoll, events, EVENTS, patience);
        check(clearway_disarm(channel));
        if (count < 0 && errno != EINTR) must(count, "epoll_wait");
        for (int i = 0; i < count; i++)
            if (events[i].data.fd != doorbell) echo_tcp(epoll, events[i].data.fd, listener);
        echo_clearway(channel);
    }
}
