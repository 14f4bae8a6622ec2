/* Hides from the kernel's stack the frames that a pattern matches and that packet sockets have
 * seen.
 *
 *   frame ─▶ XDP (steer.c, if it is there) ─▶ packet sockets ─▶ here ─┬─ a pattern matches ─▶ dropped
 *                                                                     └─ none does ─▶ the kernel
 *
 * Without it the kernel has a copy of its own of what is ours, and answers: to TCP with a reset.
 *
 * Some frames have not come by the wire, but from this host (turn.c): the kernel's own end here,
 * and what is for the kernel goes on to it.
 */

#define ON_SKB
#include "bpf.h"
#include "digest.h"
#include "marks.h"
#include "patterns.h"

/* The headers that the digest reads in place. */
enum { IN_PLACE = ETHERNET_BYTES + TAG_BYTES + IPV6_BYTES + NEIGHBOUR_BYTES };

SECTION("classifier") int hide(struct __sk_buff *context)
{
	if (context->mark == FROM_KERNEL)
		return TCX_DROP;
	if (context->mark == TO_KERNEL) {
		context->mark = 0;
		return TCX_NEXT;
	}
	if ((const void *)(u64)context->data + IN_PLACE > (const void *)(u64)context->data_end) {
		u32 length = context->len;
		bpf_skb_pull_data(context, length < IN_PLACE ? length : IN_PLACE);
	}
	struct digest digest = digest_of(context);
	return whose(&digest, 0) == KERNELS ? TCX_NEXT : TCX_DROP;
}

/* No helper used here is reserved to GPL programs. */
char program_license[] SECTION("license") = "Apache-2.0";
