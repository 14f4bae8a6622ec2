/* As packetdrill drives a stack: by the interface alone that examples/packetdrill.c fills. */
#define _GNU_SOURCE
#include "packetdrill.h"

#include <clearway_lab.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include "segment.h"

static struct packetdrill_interface ifc;
static void *u;

static void put(int flags, uint32_t seq, uint32_t ack, size_t length) {
  struct segment s;
  size_t all = make(&s, flags, seq, ack, length);
  CHECK(ifc.netdev_send(u, &s, all) == 0);
}

/* The next packet is this one, and leaves at that time. */
static void expect(const char *expected, long long at_us) {
  unsigned char packet[4096];
  size_t length = sizeof packet;
  long long time_us = 0;
  char text[64];
  CHECK(ifc.netdev_receive(u, packet, &length, &time_us) == 0);
  show(packet, length, text);
  if (strcmp(text, expected) != 0 || llabs(time_us - at_us) > 1000) {
    fprintf(stderr, "%s at %lld, and not %s at %lld\n", text, time_us, expected, at_us);
    exit(1);
  }
}

static long long now_us(void) {
  struct timeval now;
  CHECK(ifc.gettimeofday(u, &now, NULL) == 0);
  return now.tv_sec * 1000000LL + now.tv_usec;
}

static long long read_us;

static void *accept_and_read(void *result) {
  char data[100];
  int fd = ifc.accept(u, 3, NULL, NULL);
  CHECK(ifc.read(u, fd, data, sizeof data) == 10);
  *(int *)result = fd;
  usleep(20000); /* time goes on, and what this thread is told of it does not */
  read_us = now_us();
  return NULL;
}

/* The thread waits in a call. packetdrill looks at /proc for that. */
static void await_thread(void) {
  CHECK(clearway_lab_await_waiting((int)(intptr_t)u, 1) == 0);
}

/* As packetdrill waits for an event: it sleeps, and then spins. */
static void wait_until(long long us) {
  while (now_us() < us)
    if (us - now_us() > 20) CHECK(ifc.usleep(u, (useconds_t)(us - now_us() - 20)) == 0);
}

int main(void) {
  alarm(120); /* what waits for ever ends */
  packetdrill_interface_init("isn=0,tcp_timestamps=0,tcp_sack=0,tcp_window_scaling=0", &ifc);
  u = ifc.userdata;
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(80)};
  int one = 1, nothing = 0;
  socklen_t length = sizeof one;

  CHECK(ifc.socket(u, AF_INET, SOCK_STREAM, IPPROTO_TCP) == 3);
  CHECK(ifc.setsockopt(u, 3, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
  CHECK(ifc.getsockopt(u, 3, SOL_SOCKET, SO_REUSEADDR, &nothing, &length) == 0 && nothing == 1);
  CHECK(ifc.bind(u, 3, (void *)&any, sizeof any) == 0);
  CHECK(ifc.listen(u, 3, 1) == 0);

  /* A thread waits in accept, and then in read. */
  int fd = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, accept_and_read, &fd);
  long long start_us = now_us();
  wait_until(start_us + 100000);
  put(TH_SYN, 0, 0, 0);
  expect("12 0 0 1", now_us());
  await_thread();
  put(TH_ACK, 1, 1, 0);
  await_thread();
  long long put_us = now_us();
  put(TH_ACK | TH_PUSH, 1, 1, 10);
  wait_until(put_us + 30000);
  pthread_join(thread, NULL);
  CHECK(fd == 4 && llabs(read_us - put_us) < 100);
  expect("10 1 0 11", put_us);

  /* Written in two pieces, sent as one segment, and again when nobody answers. */
  struct iovec iov[2] = {{.iov_base = "abc", .iov_len = 3}, {.iov_base = "defg", .iov_len = 4}};
  CHECK(ifc.fcntl(u, fd, F_SETFL, ifc.fcntl(u, fd, F_GETFL) | O_NONBLOCK) == 0);
  CHECK(ifc.writev(u, fd, iov, 2) == 7);
  expect("18 1 7 11", now_us());
  CHECK(ifc.ioctl(u, fd, TIOCOUTQ, &nothing) == 0 && nothing == 7);
  long long sent_us = now_us();
  expect("18 1 7 11", sent_us + 200000);
  put(TH_ACK, 11, 8, 0);

  int epfd = ifc.epoll_create(u, 1);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd}, told;
  CHECK(ifc.epoll_ctl(u, epfd, EPOLL_CTL_ADD, fd, &event) == 0);
  CHECK(ifc.epoll_wait(u, epfd, &told, 1, 0) == 0);
  CHECK(ifc.read(u, fd, &nothing, 1) == -1 && errno == EAGAIN);
  put(TH_ACK | TH_FIN, 11, 8, 0);
  expect("10 8 0 12", now_us());
  CHECK(ifc.epoll_wait(u, epfd, &told, 1, 0) == 1 && told.data.fd == fd);
  struct pollfd polled = {.fd = fd, .events = POLLIN | POLLOUT};
  CHECK(ifc.poll(u, &polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLOUT));
  CHECK(ifc.read(u, fd, &nothing, 1) == 0);
  CHECK(ifc.shutdown(u, fd, SHUT_WR) == 0);
  expect("11 8 0 12", now_us());
  CHECK(ifc.send(u, fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
  put(TH_ACK, 12, 9, 0);
  CHECK(ifc.close(u, fd) == 0 && ifc.close(u, fd) == -1 && errno == EBADF);

  /* Connects with its first bytes. Nobody has given a cookie, so only a SYN leaves. */
  struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(5000)};
  peer.sin_addr.s_addr = inet_addr("192.0.2.1");
  struct msghdr message = {
      .msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = iov, .msg_iovlen = 2};
  fd = ifc.socket(u, AF_INET, SOCK_STREAM, IPPROTO_TCP);
  CHECK(ifc.sendmsg(u, fd, &message, MSG_FASTOPEN | MSG_DONTWAIT) == -1 && errno == EINPROGRESS);
  expect("02 0 0 0", now_us());
  CHECK(ifc.close(u, fd) == 0);

  int fds[2];
  CHECK(ifc.pipe(u, fds) == -1 && errno == ENOSYS);
  ifc.free(u);
  return 0;
}
