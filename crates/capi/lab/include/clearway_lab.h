/* The lab of Clearway: hosts of its TCP stack in one process, with a clock that only the program
 * moves. docs/lab.md explains it.
 *
 * Results    Negative error numbers of Linux (-EAGAIN), else what each call says. errno is not
 *            touched.
 * Hosts      Numbers above 0. What is no host, or no descriptor of it, is -EBADF.
 * Times      In ns, but for the timeouts of poll and epoll, which are in ms. All are of the host's
 *            clock, which stands still but for clearway_lab_advance and clearway_lab_run.
 * Packets    IPv4 and IPv6, from the IP header on, with right checksums.
 * Threads    Every call may come from any thread. Those that wait do so until another thread lets
 *            time pass or puts a packet in; and that returns when they are done.
 *
 * Generated from crates/capi/lab by its test `header`. Do not edit.
 */

#ifndef CLEARWAY_LAB_H
#define CLEARWAY_LAB_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/**
 * What a host begins with. All zero is the default.
 */
struct clearway_lab_options {
  /**
   * What the clock says at first, in ns; 0: a thousand seconds.
   */
  uint64_t start_ns;
  /**
   * What ports and sequence numbers are chosen by: the same for the same. 0: 1.
   */
  uint64_t seed;
};

/**
 * A connection, as `ss -ti` shows it. Sizes are in bytes of the stream, times in ns.
 */
struct clearway_lab_info {
  /**
   * The state: TCP_ESTABLISHED and so on, as <netinet/tcp.h> has them; TCP_TIME_WAIT, too.
   */
  uint32_t state;
  /**
   * What is done about loss: 0 nothing, 1 fast recovery, 2 a timeout.
   */
  uint32_t recovery;
  /**
   * By how much windows are shifted: those of the peer, and of this host.
   */
  uint32_t send_window_scale;
  /**
   * See `send_window_scale`.
   */
  uint32_t receive_window_scale;
  /**
   * 1 if agreed on: timestamps, selective acknowledgements, congestion notification.
   */
  uint32_t timestamps;
  /**
   * See `timestamps`.
   */
  uint32_t sack;
  /**
   * See `timestamps`.
   */
  uint32_t ecn;
  /**
   * 1 if packets have been seen to overtake each other.
   */
  uint32_t reordering;
  /**
   * Payload of a full segment; the path's MTU.
   */
  uint32_t segment_bytes;
  /**
   * See `segment_bytes`.
   */
  uint32_t path_mtu;
  /**
   * How often the retransmission timeout has been doubled; how often what is outstanding was
   * sent again for nothing.
   */
  uint32_t rto_doublings;
  /**
   * See `rto_doublings`.
   */
  uint32_t retries;
  /**
   * The retransmission timeout.
   */
  uint64_t rto_ns;
  /**
   * The smoothed round-trip time, its variation, the lowest; 0 if nothing was measured.
   */
  uint64_t rtt_ns;
  /**
   * See `rtt_ns`.
   */
  uint64_t rtt_variation_ns;
  /**
   * See `rtt_ns`.
   */
  uint64_t min_rtt_ns;
  /**
   * The congestion window, and how much of it is in flight.
   */
  uint64_t window_bytes;
  /**
   * See `window_bytes`.
   */
  uint64_t in_flight_bytes;
  /**
   * The window at which slow start ends; UINT64_MAX if there is none.
   */
  uint64_t slow_start_threshold_bytes;
  /**
   * What the peer has room for, and this host; the latter's buffer.
   */
  uint64_t send_window_bytes;
  /**
   * See `send_window_bytes`.
   */
  uint64_t receive_window_bytes;
  /**
   * See `send_window_bytes`.
   */
  uint64_t receive_buffer_bytes;
  /**
   * Of what is outstanding: what has arrived, what is lost.
   */
  uint64_t sacked_bytes;
  /**
   * See `sacked_bytes`.
   */
  uint64_t lost_bytes;
  /**
   * What is acknowledged; what is not; what of that was never sent.
   */
  uint64_t acknowledged_bytes;
  /**
   * See `acknowledged_bytes`.
   */
  uint64_t queued_bytes;
  /**
   * See `acknowledged_bytes`.
   */
  uint64_t unsent_bytes;
  /**
   * What has come in order; what of that was not read; what has come out of order.
   */
  uint64_t received_bytes;
  /**
   * See `received_bytes`.
   */
  uint64_t unread_bytes;
  /**
   * See `received_bytes`.
   */
  uint64_t out_of_order_bytes;
  /**
   * Segments sent, of those sent again, and come.
   */
  uint64_t segments_sent;
  /**
   * See `segments_sent`.
   */
  uint64_t segments_retransmitted;
  /**
   * See `segments_sent`.
   */
  uint64_t segments_received;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A host without addresses: its number, which is above 0. `options` may be NULL.
 */
int clearway_lab_create(const struct clearway_lab_options *options);

/**
 * Ends a host. Calls that wait there end with -EBADF.
 */
int clearway_lab_destroy(int host);

/**
 * Gives a host an address, of IPv4 or IPv6, on a link to everybody of that family. `prefix_bits`
 * says which addresses near it are broadcast ones. The port means nothing.
 */
int clearway_lab_add_address(int host,
                             const struct sockaddr *address,
                             socklen_t length,
                             uint8_t prefix_bits);

/**
 * Sets what docs/lab.md names: -ENOENT if there is no such setting, -EINVAL if it has another
 * range. What is of sockets is for those that are made from then on.
 */
int clearway_lab_set(int host, const char *name, int64_t value);

/**
 * What is set, or counted, under a name of docs/lab.md.
 */
int clearway_lab_get(int host, const char *name, int64_t *value);

/**
 * What the host's clock says, in ns.
 */
int clearway_lab_now(int host, uint64_t *now_ns);

/**
 * What the host's clock said, in ns, when the last call of a socket in this thread was done: by
 * now another thread may have moved it.
 */
int clearway_lab_returned(uint64_t *returned_ns);

/**
 * In how many ns something may happen by itself, or a call that waits gives up. 1 if ever, else 0.
 */
int clearway_lab_next(int host, uint64_t *in_ns);

/**
 * Lets time pass. Each thing happens at its time, and each call that it wakes is done before time
 * goes on.
 */
int clearway_lab_advance(int host, uint64_t ns);

/**
 * The same, but no longer than until there is a packet to take. 1 if there is one, else 0.
 */
int clearway_lab_run(int host, uint64_t ns);

/**
 * An IP packet comes. 0 whatever it is: the host drops what it does not like, and counts it.
 */
int clearway_lab_put_packet(int host, const void *packet, size_t length);

/**
 * The next IP packet that has left: how long it is, 0 if there is none, -EMSGSIZE if it is longer
 * than `length`. `time_ns`, which may be NULL, is when it has left.
 */
int64_t clearway_lab_take_packet(int host, void *packet, size_t length, uint64_t *time_ns);

/**
 * How many calls wait.
 */
int clearway_lab_waiting(int host);

/**
 * Returns when so many calls wait: for whoever has started threads that are to wait. It waits for
 * the threads to come so far, and not for time.
 */
int clearway_lab_await_waiting(int host, int count);

/**
 * socket(2): AF_INET or AF_INET6, SOCK_STREAM with SOCK_NONBLOCK if wanted, 0 or IPPROTO_TCP. A
 * descriptor, 3 or above.
 */
int clearway_lab_socket(int host, int domain, int kind, int protocol);

/**
 * bind(2).
 */
int clearway_lab_bind(int host, int fd, const struct sockaddr *address, socklen_t length);

/**
 * listen(2).
 */
int clearway_lab_listen(int host, int fd, int backlog);

/**
 * accept4(2): waits, unless the listener is SOCK_NONBLOCK. `address` and `length` may be NULL.
 * `flags`: 0, SOCK_NONBLOCK, SOCK_CLOEXEC.
 */
int clearway_lab_accept(int host, int fd, struct sockaddr *address, socklen_t *length, int flags);

/**
 * connect(2): waits, unless the socket is SOCK_NONBLOCK. An address of AF_UNSPEC disconnects.
 */
int clearway_lab_connect(int host, int fd, const struct sockaddr *address, socklen_t length);

/**
 * send(2), and write(2) with `flags` of 0: waits, unless the socket is SOCK_NONBLOCK or `flags`
 * has MSG_DONTWAIT. MSG_MORE and MSG_EOR work; MSG_OOB is refused. How many bytes were taken.
 */
int64_t clearway_lab_send(int host, int fd, const void *data, size_t length, int flags);

/**
 * sendto(2), and sendmsg(2) with what its buffers have: the same as `clearway_lab_send` with an
 * address, to which MSG_FASTOPEN connects. Without that flag it means nothing, but with `freebsd`.
 */
int64_t clearway_lab_sendto(int host,
                            int fd,
                            const void *data,
                            size_t length,
                            int flags,
                            const struct sockaddr *address,
                            socklen_t address_length);

/**
 * recv(2), and read(2) with `flags` of 0: waits, unless the socket is SOCK_NONBLOCK or `flags` has
 * MSG_DONTWAIT. MSG_PEEK, MSG_WAITALL and MSG_TRUNC work. How many bytes there were, 0 at the end.
 */
int64_t clearway_lab_recv(int host, int fd, void *data, size_t length, int flags);

/**
 * shutdown(2): SHUT_RD, SHUT_WR, SHUT_RDWR.
 */
int clearway_lab_shutdown(int host, int fd, int how);

/**
 * close(2), of whatever descriptor. With SO_LINGER it waits.
 */
int clearway_lab_close(int host, int fd);

/**
 * getsockname(2).
 */
int clearway_lab_getsockname(int host, int fd, struct sockaddr *address, socklen_t *length);

/**
 * getpeername(2).
 */
int clearway_lab_getpeername(int host, int fd, struct sockaddr *address, socklen_t *length);

/**
 * fcntl(2): F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD, F_SETFD.
 */
int clearway_lab_fcntl(int host, int fd, int command, int argument);

/**
 * ioctl(2): FIONREAD, SIOCOUTQ, SIOCOUTQNSD and SIOCATMARK store in `argument`, FIONBIO reads it.
 */
int clearway_lab_ioctl(int host, int fd, unsigned long request, int *argument);

/**
 * recvmsg(2): the same as `clearway_lab_recv`, with MSG_ERRQUEUE of what is told there, and with
 * what TCP_INQ tells. `msg_name` is not touched.
 */
int64_t clearway_lab_recvmsg(int host, int fd, struct msghdr *message, int flags);

/**
 * setsockopt(2): the options of docs/lab.md, -ENOPROTOOPT for others.
 */
int clearway_lab_setsockopt(int host,
                            int fd,
                            int level,
                            int name,
                            const void *value,
                            socklen_t length);

/**
 * getsockopt(2): the options of docs/lab.md, TCP_INFO among them, -ENOPROTOOPT for others.
 */
int clearway_lab_getsockopt(int host, int fd, int level, int name, void *value, socklen_t *length);

/**
 * poll(2), with the timeout in ms of the host's time: 0 does not wait, -1 waits for ever.
 */
int clearway_lab_poll(int host, struct pollfd *fds, size_t count, int timeout_ms);

/**
 * epoll_create1(2).
 */
int clearway_lab_epoll_create(int host);

/**
 * epoll_ctl(2): EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL. EPOLLET and EPOLLONESHOT work.
 */
int clearway_lab_epoll_ctl(int host,
                           int epfd,
                           int operation,
                           int fd,
                           const struct epoll_event *event);

/**
 * epoll_wait(2), with the timeout in ms of the host's time: 0 does not wait, -1 waits for ever.
 */
int clearway_lab_epoll_wait(int host,
                            int epfd,
                            struct epoll_event *events,
                            int most,
                            int timeout_ms);

/**
 * What can be told of a connection. -ENOTCONN if the descriptor has none.
 */
int clearway_lab_get_info(int host, int fd, struct clearway_lab_info *info);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CLEARWAY_LAB_H */
