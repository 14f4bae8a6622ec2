/* Turns frames around that leave by an interface and are for this host: a virtual interface with an
 * Ethernet address of its own and the kernel are on the same side of the wire, which brings back
 * nothing.
 *
 *   to_kernel.rs ─▶ here ── marked ───────────────────────▶ in again ─▶ hide.c ─▶ the kernel
 *   the kernel ──▶ here ─┬─ to a virtual interface ───────▶ in again ─▶ sockets of ours, hide.c
 *                        ├─ to a group ─┬─ a copy ────────▶ in again ─▶ sockets of ours, hide.c
 *                        │              └─▶ the wire
 *                        └─ all else ──────────────────────▶ the wire
 *
 * What the daemon's queues send goes past this. What comes in again is left by hide.c to nobody but
 * whom it is for. Nothing is dropped here.
 */

#define ON_SKB
#include "bpf.h"
#include "marks.h"

/* `GROUPS` in turning.rs: stands for all groups. It is there if any address is. */
#define GROUPS (1ull << 40)

/* The Ethernet addresses of virtual interfaces. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 65536);
	NUMBER(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, u64);
	TYPE(value, u32);
} macs SECTION(".maps");

SECTION("classifier") int turn(struct __sk_buff *context)
{
	const u8 *frame = (const void *)(u64)context->data;
	u64 mac = GROUPS;
	if (context->mark == TO_KERNEL)
		return bpf_redirect(context->ifindex, BPF_F_INGRESS);
	if ((const void *)(frame + 6) > (const void *)(u64)context->data_end)
		return TCX_NEXT;
	u32 is_group = frame[0] & 1, mark = context->mark;
	if (!is_group)
		mac = (u64)frame[0] << 40 | (u64)frame[1] << 32 | (u64)frame[2] << 24 | frame[3] << 16 |
		      frame[4] << 8 | frame[5];
	if (!bpf_map_lookup_elem(&macs, &mac))
		return TCX_NEXT;
	context->mark = FROM_KERNEL;
	if (!is_group)
		return bpf_redirect(context->ifindex, BPF_F_INGRESS);
	bpf_clone_redirect(context, context->ifindex, BPF_F_INGRESS);
	context->mark = mark;
	return TCX_NEXT;
}

/* No helper used here is reserved to GPL programs. */
char program_license[] SECTION("license") = "Apache-2.0";
