/* Gives the frames that a pattern matches to AF_XDP sockets and leaves everything else to the kernel.
 *
 * It runs for every frame that the interface receives, before the kernel's stack does:
 *
 *   frame ─▶ digest ─▶ for each mask in use ─┬─ digest & mask is a value of it ─▶ socket of this queue
 *            (digest.h)  (at most 64)        └─ none is, or the queue has no socket ─▶ kernel (XDP_PASS)
 *
 * Nothing is dropped here, ever. Patterns are grouped by mask, because a hash table finds one of any
 * number of values in the same time. A group knows which bits all of its values have in common: most
 * frames differ there from most groups, and are spared the hash table. A group of one value has all
 * bits in common, and needs no table at all.
 *
 * The groups in use are one value of `groups`, which is replaced as a whole: a frame sees all of a
 * change or nothing of it. `src/af_xdp/patterns.rs` makes the changes and has the same layouts.
 *
 * The file needs no kernel or libbpf header: the few structures are the stable kernel and wire
 * formats, written down where they are used.
 */

#include "bpf.h"
#include "digest.h"

/* `GROUPS_MAX` in patterns.rs. */
#define GROUPS_MAX 64

/* One mask, and the values under it. */
struct group {
	u64 mask[WORDS];
	u64 common_mask[WORDS]; /* bits of `mask` in which all values agree */
	u64 common_value[WORDS];
	u32 id; /* which values in `values` are of this mask */
	u32 many; /* zero: `common_value` is the only value */
};

struct groups {
	u64 count;
	/* One more than is used: the compiler may step a pointer past the last one that is, which the
	 * verifier forbids to those without CAP_PERFMON if nothing is there. */
	struct group group[GROUPS_MAX + 1];
};

/* In bytes, because compilers leave the types of an inner map out of the type information. */
struct groups_map {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	NUMBER(key_size, sizeof(u32));
	NUMBER(value_size, sizeof(struct groups));
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	struct groups_map *values[];
} groups SECTION(".maps");

struct value {
	u64 group; /* the id */
	u64 words[WORDS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 131072); /* `VALUES_MAX` in patterns.rs */
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct value);
	TYPE(value, u32);
} values SECTION(".maps");

/* One slot per receive queue of the interface. */
struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	NUMBER(max_entries, 256);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SECTION(".maps");

/* What became of frames, by reason; the order is that of `Steered` in steering.rs. */
enum reason { REDIRECTED, PASSED_MALFORMED, PASSED_FRAGMENT, PASSED_OTHER, REASONS };

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, REASONS);
	TYPE(key, u32);
	TYPE(value, u64);
} reasons SECTION(".maps");

INLINE int is_one_of_many(const struct digest *digest, const struct group *group)
{
	struct value value = { group->id, { 0 } };
#pragma unroll
	for (int word = 0; word < WORDS; word++)
		value.words[word] = digest->words[word] & group->mask[word];
	return bpf_map_lookup_elem(&values, &value) != 0;
}

INLINE int matches(const struct digest *digest, const struct group *group)
{
	/* The first word has protocols and ports: it differs oftenest. */
	if ((digest->words[0] & group->common_mask[0]) != group->common_value[0])
		return 0;
	u64 different = 0;
#pragma unroll
	for (int word = 1; word < WORDS; word++)
		different |= (digest->words[word] & group->common_mask[word]) ^ group->common_value[word];
	if (different)
		return 0;
	return !group->many || is_one_of_many(digest, group);
}

VERIFIED_ALONE int is_ours(const struct digest *digest)
{
	if (!digest)
		return 0;
	u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&groups, &zero);
	if (!inner)
		return 0;
	const struct groups *in_use = bpf_map_lookup_elem(inner, &zero);
	if (!in_use)
		return 0;
	for (u32 index = 0; index < GROUPS_MAX; index++) {
		if (index >= in_use->count)
			break;
		if (matches(digest, &in_use->group[index]))
			return 1;
	}
	return 0;
}

INLINE enum reason why_passed(const struct digest *digest)
{
	u32 network = digest->words[0] >> 20 & 7, layer = digest->words[0] >> 16 & 7;
	if (network == NETWORK_RUNT || network == NETWORK_BROKEN || layer == LAYER_UNINTELLIGIBLE)
		return PASSED_MALFORMED;
	if (layer == LAYER_LATER_FRAGMENT || digest->words[0] & FIRST_FRAGMENT)
		return PASSED_FRAGMENT;
	return PASSED_OTHER;
}

INLINE int steer_or_pass(struct xdp_md *context)
{
	struct digest digest = digest_of(context);
	enum reason reason = is_ours(&digest) ? REDIRECTED : why_passed(&digest);
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
