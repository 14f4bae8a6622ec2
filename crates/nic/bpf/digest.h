/* The digest of a frame, word for word that of `clearway_wire::digest`, which says what it is and
 * why; a test compares the two. What comes first in nearly every packet is read in place, the rest
 * (IPv4 options, IPv6 extension headers) through a helper: without CAP_PERFMON the verifier lets
 * nobody add a variable to a packet pointer.
 *
 * The eighth word is not the one that `clearway_wire` has there, which is not for patterns: it has
 * what a neighbour solicitation or advertisement is about (RFC 4861, 4.3 and 4.4), so that those
 * about the kernel's addresses stay with the kernel. */
#pragma once

#include "bpf.h"

enum { WORDS = 8, NEIGHBOUR_TARGET = 7 };

struct digest { u64 words[WORDS]; };

enum {
	NETWORK_RUNT = 0,
	NETWORK_OTHER = 1,
	NETWORK_ARP = 2,
	NETWORK_AOE = 3,
	NETWORK_BROKEN = 4,
	NETWORK_IPV4 = 6,
	NETWORK_IPV6 = 7
};
enum {
	LAYER_NONE = 0,
	LAYER_PORTS = 1,
	LAYER_ICMP = 2,
	LAYER_LATER_FRAGMENT = 3,
	LAYER_UNINTELLIGIBLE = 4
};
enum { FIRST_FRAGMENT = 1 << 19, TAGGED = 1 << 23 };
enum {
	ETHERNET_BYTES = 14,
	TAG_BYTES = 4,
	IPV4_BYTES = 20,
	IPV6_BYTES = 40,
	ARP_BYTES = 28,
	AOE_BYTES = 10,
	NEIGHBOUR_BYTES = 24
};
enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_VLAN = 0x8100,
	ETHERTYPE_IPV6 = 0x86dd,
	ETHERTYPE_AOE = 0x88a2
};
enum {
	HOP_BY_HOP = 0,
	ICMPV4 = 1,
	TCP = 6,
	UDP = 17,
	DCCP = 33,
	ROUTING = 43,
	FRAGMENT = 44,
	ICMPV6 = 58,
	DESTINATION_OPTIONS = 60,
	SCTP = 132,
	UDP_LITE = 136
};
enum { NEIGHBOUR_SOLICITATION = 135, NEIGHBOUR_ADVERTISEMENT = 136 };
/* `EXTENSION_HEADERS_MAX` of `clearway_wire::ipv6`. */
enum { EXTENSION_HEADERS_MAX = 7 };

/* The frame, and how far it has been understood. */
struct frame {
	CONTEXT *context;
	const void *end; /* of what can be read in place */
	u32 length; /* with what cannot */
};

INLINE u64 u64_at(const void *packet, u32 at)
{
	return __builtin_bswap64(*(const u64 *)(packet + at));
}

INLINE u64 u32_at(const void *packet, u32 at)
{
	return __builtin_bswap32(*(const u32 *)(packet + at));
}

INLINE u64 u16_at(const void *packet, u32 at)
{
	return __builtin_bswap16(*(const u16 *)(packet + at));
}

INLINE u32 u8_at(const void *packet, u32 at) { return *(const u8 *)(packet + at); }

/* The least length of what must be there of a protocol's header, or 0 if it has no ports. */
INLINE u32 header_bytes(u32 protocol)
{
	switch (protocol) {
	case TCP:
		return 20;
	case UDP:
	case UDP_LITE:
		return 8;
	case SCTP:
	case DCCP:
		return 12;
	default:
		return 0;
	}
}

/* What is known beyond the IP headers of a packet that ends at `end`. Its transport header is at
 * `at`. */
INLINE u64 layer(u32 first_bytes, u32 at, u32 end, u32 protocol, u32 icmp)
{
	u32 needed = protocol == icmp ? 4 : header_bytes(protocol);
	if (!needed)
		return 0;
	if (end - at < needed)
		return (u64)LAYER_UNINTELLIGIBLE << 16;
	if (protocol == icmp)
		return (u64)(first_bytes >> 16) << 32 | LAYER_ICMP << 16;
	return (u64)first_bytes << 32 | LAYER_PORTS << 16;
}

/* The same for a header whose place is not known beforehand. */
INLINE u64 distant_layer(CONTEXT *context, u32 at, u32 end, u32 protocol, u32 icmp)
{
	u32 first_bytes = 0;
	/* Without effect where there are fewer. */
	load_bytes(context, at, &first_bytes, sizeof first_bytes);
	return layer(__builtin_bswap32(first_bytes), at, end, protocol, icmp);
}

/* True for a loose or strict source route (RFC 791, 3.1), and for options that break off. */
VERIFIED_ALONE int has_source_route(CONTEXT *context, u32 at, u32 end)
{
	for (u32 index = 0; index < 40; index++) {
		u8 kind, length;
		if (at >= end)
			return 0;
		if (load_bytes(context, at, &kind, 1))
			return 1;
		if (kind == 0)
			return 0;
		if (kind == 131 || kind == 137)
			return 1;
		if (kind == 1) {
			at++;
			continue;
		}
		if (at + 1 >= end || load_bytes(context, at + 1, &length, 1))
			return 1;
		if (length < 2 || length > end - at)
			return 1;
		at += length;
	}
	return 0;
}

INLINE u32 ipv4(const struct frame *frame, const void *packet, u32 at, struct digest *digest)
{
	if (packet + IPV4_BYTES > frame->end)
		return NETWORK_BROKEN;
	u32 header = (u8_at(packet, 0) & 0xf) * 4, total = u16_at(packet, 2);
	if (u8_at(packet, 0) >> 4 != 4 || header < IPV4_BYTES || total < header ||
	    total > frame->length - at)
		return NETWORK_BROKEN;
	digest->words[3] = u64_at(packet, 12);
	u32 protocol = u8_at(packet, 9), fragment = u16_at(packet, 6);
	digest->words[0] |= (u64)protocol << 24;
	if (header > IPV4_BYTES && has_source_route(frame->context, at + IPV4_BYTES, at + header)) {
		digest->words[0] |= LAYER_UNINTELLIGIBLE << 16;
		return NETWORK_IPV4;
	}
	if (fragment & 0x1fff) {
		digest->words[0] |= LAYER_LATER_FRAGMENT << 16;
		return NETWORK_IPV4;
	}
	/* The flag is bit 13 there and bit 19 here. */
	digest->words[0] |= (fragment & 0x2000) << 6;
	const void *payload = packet + IPV4_BYTES;
	if (header == IPV4_BYTES && payload + 4 <= frame->end)
		digest->words[0] |= layer(u32_at(payload, 0), at + header, at + total, protocol, ICMPV4);
	else
		digest->words[0] |= distant_layer(frame->context, at + header, at + total, protocol, ICMPV4);
	return NETWORK_IPV4;
}

INLINE int is_extension(u32 next_header)
{
	return next_header == HOP_BY_HOP || next_header == ROUTING || next_header == FRAGMENT ||
	       next_header == DESTINATION_OPTIONS;
}

/* Follows the extension headers, of which the first is `next_header`; what the first word of the
 * digest says of them and of what comes behind. */
VERIFIED_ALONE u64 extensions(CONTEXT *context, u32 at, u32 end, u32 next_header)
{
	u32 start = at, fragment_seen = 0;
	u64 word = 0;
	for (u32 index = 0; index <= EXTENSION_HEADERS_MAX; index++) {
		u8 header[8] __attribute__((aligned(8)));
		if (!is_extension(next_header)) {
			word |= (u64)next_header << 24;
			return word | distant_layer(context, at, end, next_header, ICMPV6);
		}
		if (end - at < sizeof header || load_bytes(context, at, header, sizeof header))
			break;
		u32 length = 8 + header[1] * 8;
		if (next_header == FRAGMENT) {
			if (fragment_seen)
				break;
			fragment_seen = 1;
			length = 8;
			u32 offset_and_more = header[2] << 8 | header[3];
			if (offset_and_more >> 3)
				return word | (u64)FRAGMENT << 24 | LAYER_LATER_FRAGMENT << 16;
			word |= (u64)(offset_and_more & 1) << 19;
		}
		if (next_header == HOP_BY_HOP && at != start)
			break;
		if (next_header == ROUTING && header[3])
			break;
		if (length > end - at)
			break;
		next_header = header[0];
		at += length;
	}
	return word | (u64)next_header << 24 | (u64)LAYER_UNINTELLIGIBLE << 16;
}

/* What a neighbour solicitation or advertisement right behind the IPv6 header is about: RFC 4861
 * has no others, since nodes drop those with fragment headers (RFC 6980). Folded into one word: the
 * group or the address that it went to says more. */
INLINE u64 neighbour_target(const struct frame *frame, const void *icmp, u32 length)
{
	if (length < NEIGHBOUR_BYTES || icmp + NEIGHBOUR_BYTES > frame->end)
		return 0;
	u32 kind = u8_at(icmp, 0);
	if (kind != NEIGHBOUR_SOLICITATION && kind != NEIGHBOUR_ADVERTISEMENT)
		return 0;
	return u64_at(icmp, 8) ^ u64_at(icmp, 16);
}

/* True for a neighbour advertisement, unless it is right behind the IPv6 header, where `icmp` is
 * then, and about the packet's source. */
INLINE int advertises_another(const struct frame *frame, const void *icmp, u32 length, int at_once,
			      const struct digest *digest)
{
	u64 word = digest->words[0];
	if ((word >> 24 & 0xff) != ICMPV6 || (word >> 16 & 7) != LAYER_ICMP ||
	    (word >> 40 & 0xff) != NEIGHBOUR_ADVERTISEMENT)
		return 0;
	if (!at_once || length < NEIGHBOUR_BYTES || icmp + NEIGHBOUR_BYTES > frame->end)
		return 1;
	return u64_at(icmp, 8) != digest->words[3] || u64_at(icmp, 16) != digest->words[4];
}

INLINE u32 ipv6(const struct frame *frame, const void *packet, u32 at, struct digest *digest)
{
	if (packet + IPV6_BYTES > frame->end)
		return NETWORK_BROKEN;
	u32 length = u16_at(packet, 4), next_header = u8_at(packet, 6);
	if (u8_at(packet, 0) >> 4 != 6 || IPV6_BYTES + length > frame->length - at)
		return NETWORK_BROKEN;
	digest->words[3] = u64_at(packet, 8);
	digest->words[4] = u64_at(packet, 16);
	digest->words[5] = u64_at(packet, 24);
	digest->words[6] = u64_at(packet, 32);
	const void *payload = packet + IPV6_BYTES;
	at += IPV6_BYTES;
	if (is_extension(next_header)) {
		digest->words[0] |= extensions(frame->context, at, at + length, next_header);
		digest->words[2] |= advertises_another(frame, payload, length, 0, digest);
		return NETWORK_IPV6;
	}
	digest->words[0] |= (u64)next_header << 24;
	if (payload + 4 <= frame->end)
		digest->words[0] |= layer(u32_at(payload, 0), at, at + length, next_header, ICMPV6);
	else
		digest->words[0] |= distant_layer(frame->context, at, at + length, next_header, ICMPV6);
	if (next_header == ICMPV6)
		digest->words[NEIGHBOUR_TARGET] = neighbour_target(frame, payload, length);
	digest->words[2] |= advertises_another(frame, payload, length, 1, digest);
	return NETWORK_IPV6;
}

INLINE u32 arp(const struct frame *frame, const void *packet, struct digest *digest)
{
	if (packet + ARP_BYTES > frame->end)
		return NETWORK_BROKEN;
	/* RFC 826: Ethernet, IPv4, and the lengths of their addresses. */
	if (u32_at(packet, 0) != 0x00010800 || u16_at(packet, 4) != 0x0604)
		return NETWORK_BROKEN;
	digest->words[0] |= u16_at(packet, 6) << 32;
	digest->words[3] = u32_at(packet, 14) << 32 | u32_at(packet, 24);
	digest->words[4] = u64_at(packet, 8) >> 16;
	digest->words[5] = u64_at(packet, 18) >> 16;
	return NETWORK_ARP;
}

INLINE u32 aoe(const struct frame *frame, const void *packet, struct digest *digest)
{
	if (packet + AOE_BYTES > frame->end)
		return NETWORK_BROKEN;
	digest->words[3] = u64_at(packet, 2);
	return NETWORK_AOE;
}

INLINE u32 network(const struct frame *frame, const void *packet, u32 at, u32 kind,
		   struct digest *digest)
{
	switch (kind) {
	case ETHERTYPE_IPV4:
		return ipv4(frame, packet, at, digest);
	case ETHERTYPE_IPV6:
		return ipv6(frame, packet, at, digest);
	case ETHERTYPE_ARP:
		return arp(frame, packet, digest);
	case ETHERTYPE_AOE:
		return aoe(frame, packet, digest);
	default:
		return NETWORK_OTHER;
	}
}

/* Priority and id; the drop eligible indicator has no place. */
INLINE void put_tag(struct digest *digest, u64 control)
{
	digest->words[0] = TAGGED;
	digest->words[1] |= (control >> 13) << 12 | (control & 0xfff);
}

INLINE struct digest digest_of(CONTEXT *context)
{
	struct digest digest = { { 0 } };
	struct frame frame = { context, (const void *)(u64)context->data_end, frame_bytes(context) };
	const void *packet = (const void *)(u64)context->data;
	if (packet + ETHERNET_BYTES > frame.end)
		return digest;
	digest.words[1] = u64_at(packet, 0) & ~0xffffull;
	digest.words[2] = u64_at(packet, 6) & ~0xffffull;
	u32 kind = u16_at(packet, 12), at = ETHERNET_BYTES;
	packet += ETHERNET_BYTES;
#ifdef ON_SKB
	/* The outer tag is beside the frame. */
	if (context->vlan_present) {
		u32 kind_of_tag = __builtin_bswap16(context->vlan_proto);
		if (kind_of_tag != ETHERTYPE_VLAN) {
			digest.words[0] = (u64)NETWORK_OTHER << 20 | kind_of_tag;
			return digest;
		}
		put_tag(&digest, context->vlan_tci);
	} else
#endif
	if (kind == ETHERTYPE_VLAN) {
		if (packet + TAG_BYTES > frame.end) {
			digest.words[0] = (u64)NETWORK_BROKEN << 20 | ETHERTYPE_VLAN;
			return digest;
		}
		put_tag(&digest, u16_at(packet, 0));
		kind = u16_at(packet, 2);
		packet += TAG_BYTES;
		at += TAG_BYTES;
	}
	u64 found = network(&frame, packet, at, kind, &digest);
	digest.words[0] |= found << 20 | kind;
	return digest;
}
