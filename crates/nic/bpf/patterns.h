/* Which frames are ours: those that a pattern matches.
 *
 * Patterns are grouped by mask, because a hash table finds one of any number of values in the same
 * time. A group knows which bits all of its values have in common: most frames differ there from
 * most groups, and are spared the hash table. A group of one value has all bits in common, and
 * needs no table at all.
 *
 * The groups in use are one value of `groups`, which is replaced as a whole: a frame sees all of a
 * change or nothing of it. `src/ebpf/patterns.rs` makes the changes and has the same layouts. */
#pragma once

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
	u64 frame_bytes_max; /* what is longer is no frame of the wire; zero if nobody asks */
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

/* Whose a frame of `length` bytes is, and whether that is more than the wire carries, or whether
 * somebody asks. */
enum whose { KERNELS = 0, OURS, OURS_ASKED, OURS_TOO_LONG };

VERIFIED_ALONE int whose(const struct digest *digest, u32 length)
{
	if (!digest)
		return KERNELS;
	u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&groups, &zero);
	if (!inner)
		return KERNELS;
	const struct groups *in_use = bpf_map_lookup_elem(inner, &zero);
	if (!in_use)
		return KERNELS;
	for (u32 index = 0; index < GROUPS_MAX; index++) {
		if (index >= in_use->count)
			break;
		if (!matches(digest, &in_use->group[index]))
			continue;
		if (!in_use->frame_bytes_max)
			return OURS;
		return length > in_use->frame_bytes_max ? OURS_TOO_LONG : OURS_ASKED;
	}
	return KERNELS;
}
