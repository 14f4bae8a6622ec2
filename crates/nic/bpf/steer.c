/* Gives the frames that a pattern matches to AF_XDP sockets and leaves everything else to the
 * kernel.
 *
 * It runs for every frame that the interface receives, before the kernel's stack does:
 *
 *   frame ─▶ digest ─▶ for each mask in use ─┬─ digest & mask is a value of it ─▶ socket of this queue
 *            (digest.h)  (at most 64)        └─ none is, or the queue has no socket ─▶ kernel (XDP_PASS)
 *
 * Nothing is dropped here, ever.
 *
 * Where the kernel has made packets of frames before (generic mode), some are super-frames: several
 * packets in one, which it would part for whoever takes no such, but not for us. Nothing here says
 * which. But all of them are longer than a frame, or have no checksum yet but the sum over the
 * pseudo header, which is left to whoever parts them. These go on, to a packet socket of ours that
 * is told more, and then no further (hide.c).
 *
 * The file needs no kernel or libbpf header: the few structures are the stable kernel and wire
 * formats, written down where they are used.
 */

#include "bpf.h"
#include "digest.h"
#include "patterns.h"

/* One slot per receive queue of the interface. */
struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	NUMBER(max_entries, 256);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SECTION(".maps");

/* What became of frames, by reason; the order is that of `Steered` in steering.rs. */
enum reason {
	REDIRECTED,
	PASSED_MALFORMED,
	PASSED_FRAGMENT,
	PASSED_OTHER,
	PASSED_UNFINISHED,
	REASONS
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, REASONS);
	TYPE(key, u32);
	TYPE(value, u64);
} reasons SECTION(".maps");

INLINE enum reason why_passed(const struct digest *digest)
{
	u32 network = digest->words[0] >> 20 & 7, layer = digest->words[0] >> 16 & 7;
	if (network == NETWORK_RUNT || network == NETWORK_BROKEN || layer == LAYER_UNINTELLIGIBLE)
		return PASSED_MALFORMED;
	if (layer == LAYER_LATER_FRAGMENT || digest->words[0] & FIRST_FRAGMENT)
		return PASSED_FRAGMENT;
	return PASSED_OTHER;
}

/* The sum of the four numbers of two bytes in a word. */
INLINE u64 sum_of(u64 word)
{
	return (word >> 48) + (word >> 32 & 0xffff) + (word >> 16 & 0xffff) + (word & 0xffff);
}

/* True if the checksum of UDP or TCP is the sum over the pseudo header (RFC 768, RFC 9293, section
 * 3.1; RFC 8200, section 8.1), which a right one is once in 65,536 times. Headers with options are
 * not looked at: super-frames that have such and are as short as a frame are not found. */
INLINE int is_unfinished(struct xdp_md *context, const struct digest *digest)
{
	u64 word = digest->words[0], sum = sum_of(digest->words[3]);
	u32 protocol = word >> 24 & 0xff, is_v4 = (word >> 20 & 7) == NETWORK_IPV4;
	u32 ip_at = ETHERNET_BYTES + (word & TAGGED ? TAG_BYTES : 0);
	u32 transport_at = ip_at + (is_v4 ? IPV4_BYTES : IPV6_BYTES);
	u16 header[2], checksum;
	if ((word >> 16 & 7) != LAYER_PORTS || (protocol != UDP && protocol != TCP))
		return 0;
	if (load_bytes(context, transport_at + (protocol == UDP ? 6 : 16), &checksum, 2) || !checksum)
		return 0;
	/* Version, length and total length; payload length, protocol and hop limit. */
	if (load_bytes(context, is_v4 ? ip_at : ip_at + 4, header, sizeof header))
		return 0;
	if (is_v4) {
		if ((header[0] & 0xff) != 0x45)
			return 0;
		sum += __builtin_bswap16(header[1]) - IPV4_BYTES;
	} else {
		if ((header[1] & 0xff) != protocol)
			return 0;
		sum += sum_of(digest->words[4]) + sum_of(digest->words[5]) + sum_of(digest->words[6]);
		sum += __builtin_bswap16(header[0]);
	}
	sum += protocol;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == __builtin_bswap16(checksum);
}

INLINE enum reason reason_for(struct xdp_md *context, const struct digest *digest)
{
	int owner = whose(digest, frame_bytes(context));
	if (owner == KERNELS)
		return why_passed(digest);
	if (owner == OURS_TOO_LONG || (owner == OURS_ASKED && is_unfinished(context, digest)))
		return PASSED_UNFINISHED;
	return REDIRECTED;
}

INLINE int steer_or_pass(struct xdp_md *context)
{
	struct digest digest = digest_of(context);
	enum reason reason = reason_for(context, &digest);
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
