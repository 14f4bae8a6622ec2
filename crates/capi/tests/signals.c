/* Signals come all the time while the daemon of `tests/c_program.rs`, whose control socket is the
 * argument, answers nothing: a call ends when its time is up. It begins when the standard input
 * ends. */
#include <clearway.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/check.h"

static const int64_t MILLISECOND = 1000000;

/* Signals in twenty seconds. */
enum { TICKS_MAX = 1000 };

static volatile sig_atomic_t ticks;

static void tick(int number) {
    static const char text[] = "the call never ends\n";
    (void)number;
    if (++ticks < TICKS_MAX) return;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}

int main(int count, char **words) {
    CHECK(count == 2);
    clearway_options options = {0};
    options.size = sizeof options;
    options.socket = words[1];
    options.transmit_pool_bytes = options.receive_pool_bytes = 1 << 18;
    clearway_channel *channel = NULL;
    CHECK(clearway_attach("signals", &options, &channel) == 0);
    puts("attached");
    fflush(stdout);
    while (getchar() != EOF) {}
    struct sigaction action = {0};
    action.sa_handler = tick;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 20000}, {0, 20000}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    /* It has to ask the daemon for a port. */
    uint64_t connection;
    CHECK(clearway_tcp_connect(channel, 0, "10.0.0.2", 80, 200 * MILLISECOND, &connection) ==
          CLEARWAY_TIMED_OUT);
    CHECK(clearway_detach(channel, 0) == 0);
    return 0;
}
