/* Steers registered frames to AF_XDP sockets and leaves everything else to the kernel.
 *
 * It runs for every frame that the interface receives, before the kernel's stack does:
 *
 *   Ethernet, up to two VLAN tags
 *    ├─ IPv4/IPv6 UDP, (destination, port) in `udp_ports` ──────────────▶ socket of this queue
 *    ├─ ARP, target in `own_addresses` ─────────────────────────────────▶ socket of this queue
 *    ├─ ICMP/ICMPv6 to, or NDP about, an address in `own_addresses` ────▶ socket of this queue
 *    └─ all else, and all frames of a queue without a socket ───────────▶ the kernel (XDP_PASS)
 *
 * It is not a parser of everything: fragments and IPv6 extension headers go to the kernel, which
 * reassembles and answers errors. Nothing is dropped here, ever.
 *
 * The file needs no kernel or libbpf header: the few structures are the stable kernel and wire
 * formats, written down below. `src/af_xdp/program.rs` has the same map names and keys.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* From linux/bpf.h, which is a stable interface. */
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_XSKMAP = 17 };
enum { XDP_PASS = 2 };
struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

/* Map definitions are read from type information: a number is the length of an array type. */
#define SECTION(name) __attribute__((section(name), used))
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name
#define INLINE static __attribute__((always_inline)) inline

/* Multi-byte fields are compared in network order, constants are swapped at compile time. */
#define NET16(value) ((u16)__builtin_bswap16(value))

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_SERVICE_VLAN = 0x88a8,
	PROTOCOL_ICMP = 1,
	PROTOCOL_UDP = 17,
	PROTOCOL_ICMPV6 = 58,
	NEIGHBOUR_SOLICITATION = 135,
	NEIGHBOUR_ADVERTISEMENT = 136,
};

struct ethernet { u8 destination[6], source[6]; u16 type; } __attribute__((packed));
struct vlan { u16 control, type; } __attribute__((packed));
struct arp {
	u16 hardware, protocol;
	u8 hardware_length, protocol_length;
	u16 operation;
	u8 sender_mac[6];
	u32 sender;
	u8 target_mac[6];
	u32 target;
} __attribute__((packed));
struct ipv4 {
	u8 version_length, service;
	u16 total_length, id, fragment;
	u8 ttl, protocol;
	u16 checksum;
	u32 source, destination;
} __attribute__((packed));
struct ipv6 {
	u32 version_class_flow;
	u16 payload_length;
	u8 next_header, hop_limit;
	u32 source[4], destination[4];
} __attribute__((packed));
struct udp { u16 source, destination, length, checksum; } __attribute__((packed));
struct neighbour { u8 type, code; u16 checksum; u32 reserved, target[4]; } __attribute__((packed));

/* An IPv4 address is kept as its IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2). */
struct address { u32 words[4]; };
struct endpoint {
	struct address address; /* all zero: any address */
	u16 port; /* network order */
	u16 zero;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, struct endpoint);
	TYPE(value, u32);
} udp_ports SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 256);
	TYPE(key, struct address);
	TYPE(value, u32);
} own_addresses SECTION(".maps");

/* One slot per receive queue of the interface. */
struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	NUMBER(max_entries, 256);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SECTION(".maps");

/* What became of frames, by reason; the order is that of `Steered` in program.rs. */
enum reason { REDIRECTED, PASSED_MALFORMED, PASSED_FRAGMENT, PASSED_UNREGISTERED, PASSED_OTHER, REASONS };

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, REASONS);
	TYPE(key, u32);
	TYPE(value, u64);
} reasons SECTION(".maps");

INLINE struct address mapped(u32 ipv4_address)
{
	return (struct address){ { 0, 0, __builtin_bswap32(0xffff), ipv4_address } };
}

INLINE struct address copied(const u32 *words)
{
	return (struct address){ { words[0], words[1], words[2], words[3] } };
}

INLINE enum reason own(struct address address)
{
	return bpf_map_lookup_elem(&own_addresses, &address) ? REDIRECTED : PASSED_UNREGISTERED;
}

INLINE enum reason steer_udp(struct address destination, const struct udp *udp, const void *end)
{
	if ((const void *)(udp + 1) > end)
		return PASSED_MALFORMED;
	struct endpoint endpoint = { destination, udp->destination, 0 };
	if (bpf_map_lookup_elem(&udp_ports, &endpoint))
		return REDIRECTED;
	endpoint.address = (struct address){ { 0, 0, 0, 0 } };
	return bpf_map_lookup_elem(&udp_ports, &endpoint) ? REDIRECTED : PASSED_UNREGISTERED;
}

INLINE enum reason steer_arp(const struct arp *arp, const void *end)
{
	if ((const void *)(arp + 1) > end)
		return PASSED_MALFORMED;
	if (arp->protocol != NET16(ETHERTYPE_IPV4) || arp->protocol_length != 4 || arp->hardware_length != 6)
		return PASSED_OTHER;
	return own(mapped(arp->target));
}

/* Skips the options word by word, in straight code: without CAP_PERFMON the verifier lets nobody
 * add a variable to a packet pointer, and the assembler keeps the compiler from doing so. */
#define SKIP_WORD(words) case words: asm volatile("%0 += 4" : "+r"(payload)); __attribute__((fallthrough))
INLINE const void *after_options(const struct ipv4 *ip, u32 header_words)
{
	const void *payload = ip + 1;
	switch (header_words) {
	SKIP_WORD(15);
	SKIP_WORD(14);
	SKIP_WORD(13);
	SKIP_WORD(12);
	SKIP_WORD(11);
	SKIP_WORD(10);
	SKIP_WORD(9);
	SKIP_WORD(8);
	SKIP_WORD(7);
	SKIP_WORD(6);
	default:
		return payload;
	}
}

INLINE enum reason steer_ipv4(const struct ipv4 *ip, const void *end)
{
	if ((const void *)(ip + 1) > end)
		return PASSED_MALFORMED;
	u32 header_words = ip->version_length & 0xf;
	if (header_words < 5)
		return PASSED_MALFORMED;
	/* RFC 791: more-fragments flag or an offset. The first fragment goes to the kernel too: it
	 * needs all of them to put the datagram together. */
	if (ip->fragment & NET16(0x3fff))
		return PASSED_FRAGMENT;
	if (ip->protocol == PROTOCOL_UDP)
		return steer_udp(mapped(ip->destination), after_options(ip, header_words), end);
	if (ip->protocol == PROTOCOL_ICMP)
		return own(mapped(ip->destination));
	return PASSED_OTHER;
}

INLINE enum reason steer_icmpv6(const struct ipv6 *ip, const struct neighbour *icmp, const void *end)
{
	if (own(copied(ip->destination)) == REDIRECTED)
		return REDIRECTED;
	/* Solicitations go to a multicast group and unsolicited advertisements to all nodes
	 * (RFC 4861, 4.3 and 4.4): there the target says whom it is about. */
	if ((const void *)(icmp + 1) > end)
		return PASSED_UNREGISTERED;
	if (icmp->type != NEIGHBOUR_SOLICITATION && icmp->type != NEIGHBOUR_ADVERTISEMENT)
		return PASSED_UNREGISTERED;
	return own(copied(icmp->target));
}

INLINE enum reason steer_ipv6(const struct ipv6 *ip, const void *end)
{
	if ((const void *)(ip + 1) > end)
		return PASSED_MALFORMED;
	if (ip->next_header == PROTOCOL_UDP)
		return steer_udp(copied(ip->destination), (const void *)(ip + 1), end);
	if (ip->next_header == PROTOCOL_ICMPV6)
		return steer_icmpv6(ip, (const void *)(ip + 1), end);
	return PASSED_OTHER;
}

INLINE int is_vlan(u16 type)
{
	return type == NET16(ETHERTYPE_VLAN) || type == NET16(ETHERTYPE_SERVICE_VLAN);
}

INLINE enum reason steer_frame(const void *frame, const void *end)
{
	const struct ethernet *ethernet = frame;
	if ((const void *)(ethernet + 1) > end)
		return PASSED_MALFORMED;
	u16 type = ethernet->type;
	const void *payload = ethernet + 1;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		if (!is_vlan(type))
			break;
		const struct vlan *vlan = payload;
		if ((const void *)(vlan + 1) > end)
			return PASSED_MALFORMED;
		type = vlan->type;
		payload = vlan + 1;
	}
	if (type == NET16(ETHERTYPE_IPV4))
		return steer_ipv4(payload, end);
	if (type == NET16(ETHERTYPE_IPV6))
		return steer_ipv6(payload, end);
	if (type == NET16(ETHERTYPE_ARP))
		return steer_arp(payload, end);
	return PASSED_OTHER;
}

INLINE int steer_or_pass(struct xdp_md *context)
{
	const void *frame = (const void *)(u64)context->data, *end = (const void *)(u64)context->data_end;
	enum reason reason = steer_frame(frame, end);
	u32 key = reason;
	u64 *count = bpf_map_lookup_elem(&reasons, &key);
	if (count)
		*count += 1; /* per CPU: nobody else writes it */
	if (reason != REDIRECTED)
		return XDP_PASS;
	/* The low bits of the flags are the action when the slot is empty. */
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

SECTION("xdp") int steer(struct xdp_md *context)
{
	return steer_or_pass(context);
}

/* The same for drivers that have frames in several buffers, which they do when the MTU is larger
 * than one. Headers are in the first. */
SECTION("xdp.frags") int steer_fragments(struct xdp_md *context)
{
	return steer_or_pass(context);
}

/* No helper used here is reserved to GPL programs. */
char program_license[] SECTION("license") = "Apache-2.0";
