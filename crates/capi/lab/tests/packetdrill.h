/* What packetdrill loads a stack by (its packetdrill.h): the members are those of its ABI, in its
 * order. For the test of examples/packetdrill.c, which has no packetdrill. */
#ifndef PACKETDRILL_H
#define PACKETDRILL_H

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct sockaddr address;

struct packetdrill_interface {
  void *userdata;
  void (*free)(void *);
  int (*socket)(void *, int, int, int);
  int (*bind)(void *, int, const address *, socklen_t);
  int (*listen)(void *, int, int);
  int (*accept)(void *, int, address *, socklen_t *);
  int (*connect)(void *, int, const address *, socklen_t);
  ssize_t (*read)(void *, int, void *, size_t);
  ssize_t (*readv)(void *, int, const struct iovec *, int);
  ssize_t (*recv)(void *, int, void *, size_t, int);
  ssize_t (*recvfrom)(void *, int, void *, size_t, int, address *, socklen_t *);
  ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
  ssize_t (*write)(void *, int, const void *, size_t);
  ssize_t (*writev)(void *, int, const struct iovec *, int);
  ssize_t (*send)(void *, int, const void *, size_t, int);
  ssize_t (*sendto)(void *, int, const void *, size_t, int, const address *, socklen_t);
  ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
  int (*fcntl)(void *, int, int, ...);
  int (*ioctl)(void *, int, unsigned long, ...);
  int (*close)(void *, int);
  int (*shutdown)(void *, int, int);
  int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
  int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
  int (*poll)(void *, struct pollfd *, nfds_t, int);
  int (*netdev_send)(void *, const void *, size_t);
  int (*netdev_receive)(void *, void *, size_t *, long long *);
  int (*usleep)(void *, useconds_t);
  int (*gettimeofday)(void *, struct timeval *, struct timezone *);
  int (*epoll_create)(void *, int);
  int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
  int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
  int (*pipe)(void *, int[2]);
  int (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned);
};

void packetdrill_interface_init(const char *flags, struct packetdrill_interface *ifc);

#endif
