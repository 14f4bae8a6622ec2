/* What an eBPF program takes from the kernel: types, helpers, and how maps are declared. From
 * linux/bpf.h, which is a stable interface. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_XSKMAP = 17
};
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_F_INGRESS = 1 };
enum { XDP_PASS = 2 };
enum { TCX_NEXT = -1, TCX_DROP = 2 };
struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
	u32 priority, ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_clone_redirect)(struct __sk_buff *skb, u32 interface,
                                        u64 flags) = (void *)13;
static long (*const bpf_redirect)(u32 interface, u64 flags) = (void *)23;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const bpf_skb_load_bytes)(const void *skb, u32 at, void *to, u32 length) = (void *)26;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, u32 length) = (void *)39;
/* These two since Linux 5.18. */
static u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *context) = (void *)188;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *context, u32 at, void *to, u32 length) =
	(void *)189;

/* What a program is run for: a frame that the kernel has made a packet of (`ON_SKB`), or one as it
 * came. The verifier knows the structures by their names. */
#ifdef ON_SKB
#define CONTEXT struct __sk_buff
#define load_bytes bpf_skb_load_bytes
#define frame_bytes(context) ((context)->len)
#else
#define CONTEXT struct xdp_md
#define load_bytes bpf_xdp_load_bytes
#define frame_bytes bpf_xdp_get_buff_len
#endif

/* Map definitions are read from type information: a number is the length of an array type. */
#define SECTION(name) __attribute__((section(name), used))
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name
#define INLINE static __attribute__((always_inline)) inline
/* The verifier looks at such a function once, whatever it is called with, instead of once for every
 * way that leads to a call. What it is called with is unknown to it: pointers may be null. */
#define VERIFIED_ALONE __attribute__((noinline))
