/* packetdrill's scripts against the lab: the shared object that `packetdrill --so_filename` loads.
 *
 * Build it with the directory of packetdrill's own packetdrill.h in the include path:
 *
 *     cc -shared -fPIC -I PACKETDRILL -I include -o liblab.so packetdrill.c -lclearway_lab
 *
 * `--so_flags` has settings of docs/lab.md and addresses, separated by commas:
 * `address=192.168.0.1/16,tcp_sack=0`. What is not supported (pipes, splice) is ENOSYS.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <clearway_lab.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "packetdrill.h"

/* How long a packet is waited for that never leaves. */
static const uint64_t PATIENCE_NS = 600000000000;

static pthread_t main_thread; /* the one that plays the script */
static int only_host;

static int host(void *userdata) { return (int)(intptr_t)userdata; }

/* What the lab says, as C libraries say it. */
static long told(long result) {
  if (result >= 0) return result;
  errno = (int)-result;
  return -1;
}

static void lab_free(void *u) { clearway_lab_destroy(host(u)); }
static int lab_socket(void *u, int domain, int type, int protocol) {
  return told(clearway_lab_socket(host(u), domain, type, protocol));
}
static int lab_bind(void *u, int fd, const struct sockaddr *address, socklen_t length) {
  return told(clearway_lab_bind(host(u), fd, address, length));
}
static int lab_listen(void *u, int fd, int backlog) {
  return told(clearway_lab_listen(host(u), fd, backlog));
}
static int lab_accept(void *u, int fd, struct sockaddr *address, socklen_t *length) {
  return told(clearway_lab_accept(host(u), fd, address, length, 0));
}
static int lab_connect(void *u, int fd, const struct sockaddr *address, socklen_t length) {
  return told(clearway_lab_connect(host(u), fd, address, length));
}

static ssize_t lab_recv(void *u, int fd, void *data, size_t length, int flags) {
  return told(clearway_lab_recv(host(u), fd, data, length, flags));
}
static ssize_t lab_read(void *u, int fd, void *data, size_t length) {
  return lab_recv(u, fd, data, length, 0);
}
static ssize_t lab_recvfrom(void *u, int fd, void *data, size_t length, int flags,
                            struct sockaddr *address, socklen_t *address_length) {
  (void)address;
  if (address_length) *address_length = 0;
  return lab_recv(u, fd, data, length, flags);
}

static ssize_t recv_into(void *u, int fd, const struct iovec *iov, int count, int flags) {
  struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
  return told(clearway_lab_recvmsg(host(u), fd, &message, flags));
}
static ssize_t lab_readv(void *u, int fd, const struct iovec *iov, int count) {
  return recv_into(u, fd, iov, count, 0);
}
static ssize_t lab_recvmsg(void *u, int fd, struct msghdr *message, int flags) {
  return told(clearway_lab_recvmsg(host(u), fd, message, flags));
}

static size_t total(const struct iovec *iov, int count) {
  size_t length = 0;
  for (int i = 0; i < count; i++) length += iov[i].iov_len;
  return length;
}
static ssize_t lab_send(void *u, int fd, const void *data, size_t length, int flags) {
  return told(clearway_lab_send(host(u), fd, data, length, flags));
}
static ssize_t lab_write(void *u, int fd, const void *data, size_t length) {
  return lab_send(u, fd, data, length, 0);
}
static ssize_t lab_sendto(void *u, int fd, const void *data, size_t length, int flags,
                          const struct sockaddr *address, socklen_t address_length) {
  return told(clearway_lab_sendto(host(u), fd, data, length, flags, address, address_length));
}
static ssize_t lab_sendmsg(void *u, int fd, const struct msghdr *message, int flags) {
  size_t length = total(message->msg_iov, message->msg_iovlen);
  char *data = malloc(length + 1), *to = data;
  const struct iovec *iov = message->msg_iov;
  for (size_t i = 0; i < message->msg_iovlen; i++)
    to = mempcpy(to, iov[i].iov_base, iov[i].iov_len);
  ssize_t sent = lab_sendto(u, fd, data, length, flags, message->msg_name, message->msg_namelen);
  free(data);
  return sent;
}
static ssize_t lab_writev(void *u, int fd, const struct iovec *iov, int count) {
  struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
  return lab_sendmsg(u, fd, &message, 0);
}

static int lab_fcntl(void *u, int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  int argument = command == F_SETFL || command == F_SETFD ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return told(clearway_lab_fcntl(host(u), fd, command, argument));
}
static int lab_ioctl(void *u, int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  int *argument = va_arg(arguments, int *);
  va_end(arguments);
  return told(clearway_lab_ioctl(host(u), fd, request, argument));
}
static int lab_close(void *u, int fd) { return told(clearway_lab_close(host(u), fd)); }
static int lab_shutdown(void *u, int fd, int how) {
  return told(clearway_lab_shutdown(host(u), fd, how));
}
static int lab_getsockopt(void *u, int fd, int level, int name, void *value, socklen_t *length) {
  return told(clearway_lab_getsockopt(host(u), fd, level, name, value, length));
}
static int lab_setsockopt(void *u, int fd, int level, int name, const void *value,
                          socklen_t length) {
  return told(clearway_lab_setsockopt(host(u), fd, level, name, value, length));
}

/* What %{ }% asserts about comes from the C library, not from the interface: with this file in
 * LD_PRELOAD it comes from the lab. */
int getsockopt(int fd, int level, int name, void *value, socklen_t *length) {
  return told(clearway_lab_getsockopt(only_host, fd, level, name, value, length));
}

static int lab_poll(void *u, struct pollfd *fds, nfds_t count, int timeout) {
  return told(clearway_lab_poll(host(u), fds, count, timeout));
}
static int lab_epoll_create(void *u, int size) {
  return size > 0 ? told(clearway_lab_epoll_create(host(u))) : told(-EINVAL);
}
static int lab_epoll_ctl(void *u, int epfd, int operation, int fd, struct epoll_event *event) {
  return told(clearway_lab_epoll_ctl(host(u), epfd, operation, fd, event));
}
static int lab_epoll_wait(void *u, int epfd, struct epoll_event *events, int most, int timeout) {
  return told(clearway_lab_epoll_wait(host(u), epfd, events, most, timeout));
}

static int lab_netdev_send(void *u, const void *packet, size_t length) {
  return told(clearway_lab_put_packet(host(u), packet, length));
}
/* The next packet, however long it takes to leave. packetdrill would ask for ever. */
static int lab_netdev_receive(void *u, void *packet, size_t *length, long long *time_us) {
  uint64_t time_ns = 0;
  if (clearway_lab_run(host(u), PATIENCE_NS) == 0) {
    fprintf(stderr, "packetdrill.c: the script expects a packet, and none leaves\n");
    exit(EXIT_FAILURE);
  }
  long result = told(clearway_lab_take_packet(host(u), packet, *length, &time_ns));
  *length = result > 0 ? (size_t)result : 0;
  *time_us = (long long)(time_ns / 1000);
  return result < 0 ? -1 : 0;
}
static int lab_usleep(void *u, useconds_t us) {
  return told(clearway_lab_advance(host(u), (uint64_t)us * 1000));
}
/* packetdrill spins on the clock until an event is due, so a look at it takes a microsecond.
 * Threads of calls that wait look at it to see when such a call was done. */
static int lab_gettimeofday(void *u, struct timeval *now, struct timezone *zone) {
  uint64_t now_ns = 0;
  (void)zone;
  int is_main = pthread_equal(pthread_self(), main_thread);
  if (is_main) clearway_lab_advance(host(u), 1000);
  int result = told(is_main ? clearway_lab_now(host(u), &now_ns) : clearway_lab_returned(&now_ns));
  now->tv_sec = (time_t)(now_ns / 1000000000);
  now->tv_usec = (suseconds_t)(now_ns / 1000 % 1000000);
  return result;
}

static int lab_pipe(void *u, int fds[2]) { return (void)u, (void)fds, told(-ENOSYS); }
static int lab_splice(void *u, int in, loff_t *in_at, int out, loff_t *out_at, size_t length,
                      unsigned flags) {
  (void)u, (void)in, (void)in_at, (void)out, (void)out_at, (void)length, (void)flags;
  return told(-ENOSYS);
}

/* `address=10.0.0.1/24`, or a setting. */
static void set(int host, char *word) {
  char *value = strchr(word, '=');
  if (!value) return;
  *value++ = 0;
  if (strcmp(word, "address") != 0) {
    if (clearway_lab_set(host, word, strtoll(value, NULL, 0)) < 0)
      fprintf(stderr, "packetdrill.c: %s=%s is no setting of the lab\n", word, value);
    return;
  }
  char *bits = strchr(value, '/');
  if (bits) *bits++ = 0;
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  if (inet_pton(AF_INET, value, &v4.sin_addr) == 1)
    clearway_lab_add_address(host, (void *)&v4, sizeof v4, bits ? (uint8_t)atoi(bits) : 32);
  else if (inet_pton(AF_INET6, value, &v6.sin6_addr) == 1)
    clearway_lab_add_address(host, (void *)&v6, sizeof v6, bits ? (uint8_t)atoi(bits) : 128);
}

void packetdrill_interface_init(const char *flags, struct packetdrill_interface *ifc) {
  int host = only_host = clearway_lab_create(NULL);
  main_thread = pthread_self();
  char *words = strdup(flags ? flags : ""), *rest = NULL;
  if (!strstr(words, "address=")) {
    set(host, (char[]){"address=192.168.0.1/16"});
    set(host, (char[]){"address=fd3d:fa7b:d17d::1/48"});
  }
  for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
    set(host, word);
  free(words);
  *ifc = (struct packetdrill_interface){
      .userdata = (void *)(intptr_t)host, .free = lab_free, .socket = lab_socket,
      .bind = lab_bind, .listen = lab_listen, .accept = lab_accept, .connect = lab_connect,
      .read = lab_read, .readv = lab_readv, .recv = lab_recv, .recvfrom = lab_recvfrom,
      .recvmsg = lab_recvmsg, .write = lab_write, .writev = lab_writev, .send = lab_send,
      .sendto = lab_sendto, .sendmsg = lab_sendmsg, .fcntl = lab_fcntl, .ioctl = lab_ioctl,
      .close = lab_close, .shutdown = lab_shutdown, .getsockopt = lab_getsockopt,
      .setsockopt = lab_setsockopt, .poll = lab_poll, .netdev_send = lab_netdev_send,
      .netdev_receive = lab_netdev_receive, .usleep = lab_usleep,
      .gettimeofday = lab_gettimeofday, .epoll_create = lab_epoll_create,
      .epoll_ctl = lab_epoll_ctl, .epoll_wait = lab_epoll_wait, .pipe = lab_pipe,
      .splice = lab_splice,
  };
}
