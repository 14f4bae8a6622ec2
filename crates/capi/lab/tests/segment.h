/* Segments for the tests in C: made, and understood. Over IPv4, from port 5000 of 192.0.2.1 to port
 * 80 of 192.168.0.1, without options. */
#ifndef SEGMENT_H
#define SEGMENT_H

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The test ends where something is not so. */
#define CHECK(is_so) check(is_so, #is_so, __LINE__)

static inline void check(int is_so, const char *what, int line) {
  if (is_so) return;
  fprintf(stderr, "line %d: not so: %s\n", line, what);
  exit(1);
}

struct segment {
  struct iphdr ip;
  struct tcphdr tcp;
  unsigned char data[2000];
};

static inline uint32_t sum(const void *bytes, size_t length, uint32_t before) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < length; i++) before += i % 2 ? at[i] : (uint32_t)at[i] << 8;
  return before;
}

static inline uint16_t checksum(uint32_t all) {
  while (all >> 16) all = (all & 0xffff) + (all >> 16);
  return htons((uint16_t)~all);
}

/* A segment with `length` bytes, all 'x'. Its own length is returned. */
static inline size_t make(struct segment *s, int flags, uint32_t seq, uint32_t ack, size_t length) {
  size_t tcp_length = sizeof s->tcp + length, all = sizeof s->ip + tcp_length;
  memset(s, 0, sizeof *s);
  s->ip.version = 4;
  s->ip.ihl = 5;
  s->ip.ttl = 64;
  s->ip.protocol = IPPROTO_TCP;
  s->ip.tot_len = htons((uint16_t)all);
  s->ip.saddr = inet_addr("192.0.2.1");
  s->ip.daddr = inet_addr("192.168.0.1");
  s->ip.check = checksum(sum(&s->ip, sizeof s->ip, 0));
  s->tcp.source = htons(5000);
  s->tcp.dest = htons(80);
  s->tcp.seq = htonl(seq);
  s->tcp.ack_seq = htonl(ack);
  s->tcp.doff = 5;
  ((unsigned char *)&s->tcp)[13] = (unsigned char)flags;
  s->tcp.window = htons(10000);
  memset(s->data, 'x', length);
  uint32_t pseudo = sum(&s->ip.saddr, 8, IPPROTO_TCP + (uint32_t)tcp_length);
  s->tcp.check = checksum(sum(&s->tcp, tcp_length, pseudo));
  return all;
}

/* What a packet that has left says, as "FLAGS SEQ LENGTH ACK", with the flags in hexadecimal. */
static inline void show(const void *packet, size_t length, char text[64]) {
  struct segment s;
  memcpy(&s, packet, length < sizeof s ? length : sizeof s);
  unsigned flags = ((unsigned char *)&s.tcp)[13];
  size_t payload = ntohs(s.ip.tot_len) - sizeof s.ip - s.tcp.doff * 4u;
  snprintf(text, 64, "%02x %u %zu %u", flags, ntohl(s.tcp.seq), payload, ntohl(s.tcp.ack_seq));
}

#endif
