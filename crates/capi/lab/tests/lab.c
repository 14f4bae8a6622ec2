/* A program in plain C that tests the stack by the lab: what docs/lab.md says, call by call. */
#define _GNU_SOURCE
#include <clearway_lab.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Of <netinet/tcp.h>, which cannot stand beside <linux/tcp.h>, where all of tcp_info is. */
#define _NETINET_TCP_H 1
enum { TCP_ESTABLISHED = 1, TH_FIN = 1, TH_SYN = 2, TH_PUSH = 8, TH_ACK = 16 };
#include "segment.h"

static int host;

static void put(int flags, uint32_t seq, uint32_t ack, size_t length) {
  struct segment s;
  size_t all = make(&s, flags, seq, ack, length);
  CHECK(clearway_lab_put_packet(host, &s, all) == 0);
}

static void expect(const char *expected) {
  unsigned char packet[4096];
  char text[64];
  int64_t length = clearway_lab_take_packet(host, packet, sizeof packet, NULL);
  CHECK(length > 0);
  show(packet, (size_t)length, text);
  if (strcmp(text, expected) == 0) return;
  fprintf(stderr, "%s, and not %s\n", text, expected);
  exit(1);
}

static int64_t number(const char *name) {
  int64_t value = -1;
  CHECK(clearway_lab_get(host, name, &value) == 0);
  return value;
}

static void *read_all(void *fd) {
  char data[100];
  return (void *)clearway_lab_recv(host, *(int *)fd, data, sizeof data, MSG_WAITALL);
}

static void *poll_one(void *fd) {
  struct pollfd polled = {.fd = *(int *)fd, .events = POLLIN};
  return (void *)(intptr_t)clearway_lab_poll(host, &polled, 1, 1500);
}

static void hosts_and_settings(void) {
  struct clearway_lab_options options = {.start_ns = 5, .seed = 7};
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.168.0.1")};
  uint64_t ns = 0;
  host = clearway_lab_create(&options);
  CHECK(host > 0);
  CHECK(clearway_lab_now(host, &ns) == 0 && ns == 5);
  CHECK(clearway_lab_advance(host, 999999995) == 0);
  CHECK(clearway_lab_now(host, &ns) == 0 && ns == 1000000000);
  CHECK(clearway_lab_next(host, &ns) == 0);
  CHECK(clearway_lab_run(host, 1000) == 0);
  CHECK(clearway_lab_add_address(host, (void *)&address, sizeof address, 24) == 0);
  CHECK(clearway_lab_add_address(host, (void *)&address, 4, 24) == -EINVAL);
  CHECK(clearway_lab_add_address(host, NULL, sizeof address, 24) == -EFAULT);
  CHECK(clearway_lab_set(host, "isn", 0) == 0 && number("isn") == 0);
  CHECK(clearway_lab_set(host, "tcp_timestamps", 2) == -EINVAL);
  CHECK(clearway_lab_set(host, "nothing", 2) == -ENOENT);
  CHECK(clearway_lab_set(host, NULL, 2) == -EFAULT);
  CHECK(clearway_lab_set(host, "tcp_timestamps", 0) == 0);
  CHECK(clearway_lab_set(host, "tcp_sack", 0) == 0);
  CHECK(clearway_lab_socket(host + 1000, AF_INET, SOCK_STREAM, 0) == -EBADF);
  CHECK(clearway_lab_socket(host, AF_UNIX, SOCK_STREAM, 0) == -EAFNOSUPPORT);
  CHECK(clearway_lab_socket(host, AF_INET, SOCK_DGRAM, 0) == -ESOCKTNOSUPPORT);
}

/* A connection that a listener accepts. */
static int accepted(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
  socklen_t length = sizeof address;
  int fd = clearway_lab_socket(host, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
  CHECK(fd == 3);
  CHECK(clearway_lab_bind(host, fd, (void *)&address, sizeof address) == 0);
  CHECK(clearway_lab_listen(host, fd, 5) == 0);
  put(TH_SYN, 0, 0, 0);
  expect("12 0 0 1");
  CHECK(clearway_lab_accept(host, fd, NULL, NULL, 0) == -EAGAIN);
  put(TH_ACK, 1, 1, 0);
  int connection = clearway_lab_accept(host, fd, (void *)&address, &length, 0);
  CHECK(connection == 4 && length == sizeof address && address.sin_port == htons(5000));
  CHECK(clearway_lab_getsockname(host, connection, (void *)&address, &length) == 0);
  CHECK(address.sin_port == htons(80) && address.sin_addr.s_addr == inet_addr("192.168.0.1"));
  length = 4; /* less than there is: as much as fits, and how much that is */
  CHECK(clearway_lab_getpeername(host, connection, (void *)&address, &length) == 0);
  CHECK(length == sizeof address && address.sin_port == htons(5000));
  return connection;
}

/* Connects with its first bytes. Nobody has given a cookie, so only a SYN leaves. */
static void sending_to_connect(void) {
  struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(5000)};
  peer.sin_addr.s_addr = inet_addr("192.0.2.1");
  int fd = clearway_lab_socket(host, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  CHECK(clearway_lab_sendto(host, fd, "x", 1, MSG_FASTOPEN, NULL, 0) == -EDESTADDRREQ);
  CHECK(clearway_lab_sendto(host, fd, NULL, 1, MSG_FASTOPEN, (void *)&peer, sizeof peer) ==
        -EFAULT);
  CHECK(clearway_lab_sendto(host, fd, "x", 1, MSG_FASTOPEN, (void *)&peer, sizeof peer) ==
        -EINPROGRESS);
  expect("02 0 0 0");
  CHECK(clearway_lab_close(host, fd) == 0);
}

static void calls_that_wait(int fd) {
  pthread_t thread;
  void *result;
  pthread_create(&thread, NULL, read_all, &fd);
  CHECK(clearway_lab_await_waiting(host, 1) == 0);
  put(TH_ACK, 1, 1, 60);
  CHECK(clearway_lab_waiting(host) == 1);
  put(TH_ACK | TH_PUSH, 61, 1, 40);
  CHECK(clearway_lab_waiting(host) == 0);
  pthread_join(thread, &result);
  CHECK((intptr_t)result == 100);
  expect("10 1 0 61");
  expect("10 1 0 101");

  uint64_t ns = 0;
  pthread_create(&thread, NULL, poll_one, &fd);
  CHECK(clearway_lab_await_waiting(host, 1) == 0);
  CHECK(clearway_lab_next(host, &ns) == 1 && ns <= 1500000000);
  CHECK(clearway_lab_advance(host, 1499999999) == 0 && clearway_lab_waiting(host) == 1);
  CHECK(clearway_lab_advance(host, 1) == 0 && clearway_lab_waiting(host) == 0);
  pthread_join(thread, &result);
  CHECK(result == NULL);
}

static void sending_and_options(int fd) {
  int value = 1;
  socklen_t length = sizeof value;
  CHECK(clearway_lab_fcntl(host, fd, F_SETFL, O_NONBLOCK) == 0);
  CHECK(clearway_lab_fcntl(host, fd, F_GETFL, 0) == (O_RDWR | O_NONBLOCK));
  CHECK(clearway_lab_setsockopt(host, fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
  value = 0;
  CHECK(clearway_lab_getsockopt(host, fd, IPPROTO_TCP, TCP_NODELAY, &value, &length) == 0);
  CHECK(value == 1 && length == sizeof value);
  CHECK(clearway_lab_setsockopt(host, fd, IPPROTO_TCP, 9999, &value, sizeof value) == -ENOPROTOOPT);
  CHECK(clearway_lab_setsockopt(host, fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0);
  CHECK(clearway_lab_setsockopt(host, fd, IPPROTO_TCP, TCP_CONGESTION, "none", 4) == -ENOENT);
  CHECK(clearway_lab_send(host, fd, "hello", 5, 0) == 5);
  expect("18 1 5 101");
  CHECK(clearway_lab_ioctl(host, fd, SIOCOUTQ, &value) == 0 && value == 5);
  CHECK(clearway_lab_ioctl(host, fd, SIOCOUTQNSD, &value) == 0 && value == 0);
  CHECK(clearway_lab_ioctl(host, fd, FIONREAD, NULL) == -EFAULT);
  CHECK(clearway_lab_run(host, 1000000000) == 1);
  expect("18 1 5 101");

  struct clearway_lab_info info;
  CHECK(clearway_lab_get_info(host, fd, &info) == 0);
  CHECK(info.state == TCP_ESTABLISHED && info.queued_bytes == 5 && info.received_bytes == 100);
  CHECK(info.segments_retransmitted == 1 && info.recovery == 2);
  CHECK(clearway_lab_get_info(host, 3, &info) == -ENOTCONN);

  struct tcp_info linux_info;
  length = sizeof linux_info;
  memset(&linux_info, 0xff, sizeof linux_info);
  CHECK(clearway_lab_getsockopt(host, fd, IPPROTO_TCP, TCP_INFO, &linux_info, &length) == 0);
  CHECK(length >= offsetof(struct tcp_info, tcpi_snd_wnd) && length <= sizeof linux_info);
  CHECK(linux_info.tcpi_state == TCP_ESTABLISHED && linux_info.tcpi_unacked == 1);
  CHECK(linux_info.tcpi_total_retrans == 1 && linux_info.tcpi_snd_mss == info.segment_bytes);
  CHECK(linux_info.tcpi_bytes_received == 100 && linux_info.tcpi_snd_cwnd > 0);
  /* After a timeout. */
  CHECK(linux_info.tcpi_snd_cwnd == 1 && info.window_bytes == info.segment_bytes);
  CHECK(linux_info.tcpi_snd_ssthresh * info.segment_bytes >= info.slow_start_threshold_bytes);
  CHECK(info.slow_start_threshold_bytes >= info.segment_bytes);
  CHECK(linux_info.tcpi_snd_wnd == 10000 && linux_info.tcpi_rto == info.rto_ns / 1000);
  put(TH_ACK, 101, 6, 0);
}

/* In two places, with how much there is after them; and where there is no room for that. */
static void messages(int fd) {
  int one = 1;
  char first[3], second[4], control[64];
  struct iovec iov[2] = {{.iov_base = first, .iov_len = 3}, {.iov_base = second, .iov_len = 4}};
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2, .msg_control = control,
                           .msg_controllen = sizeof control};
  CHECK(clearway_lab_setsockopt(host, fd, IPPROTO_TCP, 36 /* TCP_INQ */, &one, sizeof one) == 0);
  CHECK(clearway_lab_recvmsg(host, fd, NULL, 0) == -EFAULT);
  CHECK(clearway_lab_recvmsg(host, fd, &message, 0) == -EAGAIN);
  CHECK(clearway_lab_recvmsg(host, fd, &message, MSG_ERRQUEUE) == -EAGAIN);
  put(TH_ACK | TH_PUSH, 101, 6, 20);
  CHECK(clearway_lab_recvmsg(host, fd, &message, 0) == 7 && message.msg_flags == 0);
  struct cmsghdr *told = CMSG_FIRSTHDR(&message);
  CHECK(told && told->cmsg_level == IPPROTO_TCP && told->cmsg_type == 36);
  CHECK(told->cmsg_len == CMSG_LEN(sizeof one) && !CMSG_NXTHDR(&message, told));
  CHECK(*(int *)CMSG_DATA(told) == 13);
  message.msg_controllen = CMSG_LEN(0);
  CHECK(clearway_lab_recvmsg(host, fd, &message, 0) == 7 && message.msg_flags == MSG_CTRUNC);
  message.msg_controllen = 0;
  iov[1].iov_len = SIZE_MAX; /* more than there is memory */
  CHECK(clearway_lab_recvmsg(host, fd, &message, 0) == 6);
  CHECK(clearway_lab_run(host, 1000000000) == 1);
  expect("10 6 0 121");
}

static void many_at_once(int fd) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 77}, told[2];
  int epfd = clearway_lab_epoll_create(host);
  CHECK(epfd == 5);
  CHECK(clearway_lab_epoll_ctl(host, epfd, EPOLL_CTL_ADD, fd, NULL) == -EFAULT);
  CHECK(clearway_lab_epoll_ctl(host, epfd, EPOLL_CTL_ADD, fd, &event) == 0);
  CHECK(clearway_lab_epoll_wait(host, epfd, told, 2, 0) == 0);
  put(TH_ACK | TH_FIN, 121, 6, 0);
  expect("10 6 0 122");
  CHECK(clearway_lab_epoll_wait(host, epfd, told, 2, 0) == 1 && told[0].data.u64 == 77);
  CHECK(clearway_lab_epoll_wait(host, epfd, told, 2, 0) == 0);
  CHECK(clearway_lab_epoll_ctl(host, epfd, EPOLL_CTL_DEL, fd, NULL) == 0);
  CHECK(clearway_lab_close(host, epfd) == 0);
}

static void closing(int fd) {
  unsigned char small[10];
  CHECK(clearway_lab_shutdown(host, fd, 99) == -EINVAL);
  CHECK(clearway_lab_shutdown(host, fd, SHUT_WR) == 0);
  CHECK(clearway_lab_take_packet(host, small, sizeof small, NULL) == -EMSGSIZE);
  expect("11 6 0 122");
  CHECK(clearway_lab_take_packet(host, small, sizeof small, NULL) == 0);
  CHECK(clearway_lab_send(host, fd, "x", 1, 0) == -EPIPE);
  put(TH_ACK, 122, 7, 0);
  CHECK(clearway_lab_close(host, fd) == 0 && clearway_lab_close(host, fd) == -EBADF);
  CHECK(clearway_lab_close(host, 3) == 0);
  CHECK(number("sockets") == 0 && number("buffers") == 0 && number("packets_dropped") == 0);
  CHECK(clearway_lab_put_packet(host, "nonsense", 8) == 0 && number("packets_dropped") == 1);
}

/* A host that is destroyed lets go of who waits there. */
static void destroyed(void) {
  int other = clearway_lab_create(NULL), epfd = clearway_lab_epoll_create(other);
  pthread_t thread;
  void *result;
  CHECK(clearway_lab_destroy(host) == 0 && clearway_lab_destroy(host) == -EBADF);
  host = other;
  pthread_create(&thread, NULL, poll_one, &epfd);
  CHECK(clearway_lab_await_waiting(other, 1) == 0);
  CHECK(clearway_lab_destroy(other) == 0);
  pthread_join(thread, &result);
  CHECK((intptr_t)result == -EBADF);
}

int main(void) {
  alarm(120); /* what waits for ever ends */
  hosts_and_settings();
  int fd = accepted();
  calls_that_wait(fd);
  sending_and_options(fd);
  messages(fd);
  many_at_once(fd);
  closing(fd);
  sending_to_connect();
  destroyed();
  return 0;
}
