/* What the dpdk driver needs of DPDK and cannot call from Rust: functions that are static inline,
 * and structures whose layout differs from one version to the next. Decides nothing. The
 * declarations for Rust are in sys.rs, and have to agree with what is here. */

#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

#define BURST_FRAMES 32
/* For what takes microseconds where all is well. */
#define SETTLE_SECONDS 2
#define NAME_BYTES RTE_ETH_NAME_MAX_LEN

/* Facts about a port that is there; struct rte_eth_dev_info changes too often to be mirrored. */
struct clearway_facts {
    char driver[64];
    uint8_t mac[RTE_ETHER_ADDR_LEN];
    uint16_t queues_max;
    uint16_t mtu_max;
    uint16_t segments_max;
    uint32_t offloads;
    int32_t node;
    uint16_t nodes;
    uint8_t has_huge_pages;
    uint8_t spreads;
};

struct clearway_settings {
    uint16_t queues;
    uint16_t descriptors;
    uint16_t mtu;
    uint8_t wants_interrupts;
    uint32_t offloads;
};

/* A received frame: private memory of ours until the mbuf is freed. */
struct clearway_frame {
    uint8_t *bytes;
    uint32_t length;
    /* What of it is at `bytes`: all of it, unless it `is_several`. */
    uint16_t head_length;
    /* The payload of each of several; 0 if the port does not say. */
    uint16_t segment_bytes;
    uint8_t ip_checksum;
    uint8_t transport_checksum;
    /* Several packets that came as one, or a frame that is too long. */
    uint8_t is_several;
};

/* What a port says of a checksum. */
enum { UNKNOWN, RIGHT, MISSING };

/* What a port can do with the frame in an mbuf. */
struct clearway_offload {
    uint16_t link_bytes;
    uint16_t network_bytes;
    uint16_t transport_bytes;
    /* The payload of each packet, if it is to be parted; 0 otherwise. */
    uint16_t segment_bytes;
    uint16_t checksum_at;
    uint8_t is_v4;
    uint8_t is_tcp;
    /* The port fills in the checksum of IPv4, too. */
    uint8_t sums_ip;
};

int clearway_dpdk_errno(void)
{
    return rte_errno;
}

int clearway_dpdk_find(const char *name, uint16_t *port)
{
    return rte_eth_dev_get_port_by_name(name, port);
}

/* The name of the first port from `*port` on, and its number; 0 if there is none. */
int clearway_dpdk_next(uint16_t *port, char name[NAME_BYTES])
{
    uint64_t next = rte_eth_find_next(*port);
    if (next >= RTE_MAX_ETHPORTS)
        return 0;
    *port = (uint16_t)next;
    return rte_eth_dev_get_name_by_port(*port, name) == 0;
}

/* Offloads, as sys.rs has them. */
#define VERIFIES 1
#define COALESCES 2
#define SUMS_TCP 4
#define SUMS_UDP 8
#define SUMS_IP 16
#define SEGMENTS 32

#define RX_SUMS (RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM)
#define RX_LRO (RTE_ETH_RX_OFFLOAD_TCP_LRO | RTE_ETH_RX_OFFLOAD_SCATTER)
#define TX_TSO (RTE_ETH_TX_OFFLOAD_TCP_TSO | RTE_ETH_TX_OFFLOAD_MULTI_SEGS)
#define SPREAD_BY (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP)

static uint32_t bit_if(uint64_t capable, uint64_t wanted, uint32_t bit)
{
    return (capable & wanted) == wanted ? bit : 0;
}

/* Frames that were put together have to be verified ones, and to be parted is to be summed. */
static uint32_t offloads(const struct rte_eth_dev_info *info)
{
    uint64_t rx = info->rx_offload_capa, tx = info->tx_offload_capa;
    return bit_if(rx, RX_SUMS, VERIFIES) | bit_if(rx, RX_SUMS | RX_LRO, COALESCES)
        | bit_if(tx, RTE_ETH_TX_OFFLOAD_TCP_CKSUM, SUMS_TCP)
        | bit_if(tx, RTE_ETH_TX_OFFLOAD_UDP_CKSUM, SUMS_UDP)
        | bit_if(tx, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, SUMS_IP)
        | bit_if(tx, RTE_ETH_TX_OFFLOAD_TCP_CKSUM | TX_TSO, SEGMENTS);
}

int clearway_dpdk_facts(uint16_t port, struct clearway_facts *facts)
{
    struct rte_eth_dev_info info;
    struct rte_ether_addr mac;
    int error = rte_eth_dev_info_get(port, &info);
    if (error == 0)
        error = rte_eth_macaddr_get(port, &mac);
    if (error != 0)
        return error;
    memset(facts, 0, sizeof(*facts));
    strncpy(facts->driver, info.driver_name, sizeof(facts->driver) - 1);
    memcpy(facts->mac, mac.addr_bytes, sizeof(facts->mac));
    facts->queues_max = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
    facts->mtu_max = info.max_mtu;
    facts->segments_max = info.tx_desc_lim.nb_seg_max;
    if (facts->segments_max == 0) /* no limit */
        facts->segments_max = UINT16_MAX;
    facts->offloads = offloads(&info);
    facts->node = rte_eth_dev_socket_id(port);
    facts->nodes = rte_socket_count();
    facts->has_huge_pages = rte_eal_has_hugepages();
    facts->spreads = (info.flow_type_rss_offloads & SPREAD_BY) != 0;
    return 0;
}

static uint64_t if_used(uint32_t used, uint32_t bit, uint64_t offloads)
{
    return (used & bit) != 0 ? offloads : 0;
}

/* `used` is some of what the port has said that it can do. */
static void use_offloads(struct rte_eth_conf *conf, const struct rte_eth_dev_info *info,
                         uint32_t used)
{
    uint64_t ip = info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
    conf->rxmode.offloads = if_used(used, VERIFIES, RX_SUMS | ip)
        | if_used(used, COALESCES, RX_LRO);
    if ((used & COALESCES) != 0)
        conf->rxmode.max_lro_pkt_size = info->max_lro_pkt_size;
    conf->txmode.offloads = if_used(used, SUMS_TCP, RTE_ETH_TX_OFFLOAD_TCP_CKSUM)
        | if_used(used, SUMS_UDP, RTE_ETH_TX_OFFLOAD_UDP_CKSUM)
        | if_used(used, SUMS_IP, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) | if_used(used, SEGMENTS, TX_TSO);
}

/* The key and the table of RSS stay as the NIC has them. */
int clearway_dpdk_configure(uint16_t port, struct clearway_settings *settings)
{
    struct rte_eth_dev_info info;
    struct rte_eth_conf conf;
    uint16_t receive = settings->descriptors, transmit = settings->descriptors;
    int error = rte_eth_dev_info_get(port, &info);
    if (error != 0)
        return error;
    memset(&conf, 0, sizeof(conf));
    conf.rxmode.mtu = settings->mtu;
    conf.intr_conf.rxq = settings->wants_interrupts;
    use_offloads(&conf, &info, settings->offloads);
    if (settings->queues > 1 && (info.flow_type_rss_offloads & SPREAD_BY) != 0) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = info.flow_type_rss_offloads & SPREAD_BY;
    }
    error = rte_eth_dev_configure(port, settings->queues, settings->queues, &conf);
    if (error == 0)
        error = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &transmit);
    settings->descriptors = RTE_MIN(receive, transmit);
    return error;
}

int clearway_dpdk_set_mtu(uint16_t port, uint16_t mtu)
{
    uint16_t now;
    if (rte_eth_dev_get_mtu(port, &now) == 0 && now == mtu)
        return 0;
    return rte_eth_dev_set_mtu(port, mtu);
}

/* A pool of mbufs, each with room for a whole frame; not less than the usual size, because some
 * devices take no smaller buffers. On this NUMA node, or on any if that is negative. */
struct rte_mempool *clearway_dpdk_pool(const char *name, int32_t node, uint32_t mbufs,
                                       uint32_t cached, uint16_t frame_bytes)
{
    uint16_t room = RTE_PKTMBUF_HEADROOM + frame_bytes;
    return rte_pktmbuf_pool_create(name, mbufs, cached, 0, RTE_MAX(room, RTE_MBUF_DEFAULT_BUF_SIZE),
                                   node);
}

void clearway_dpdk_free_pool(struct rte_mempool *pool)
{
    rte_mempool_free(pool);
}

int clearway_dpdk_set_up_queue(uint16_t port, uint16_t queue, uint16_t descriptors,
                               int32_t node, struct rte_mempool *pool)
{
    int error = rte_eth_rx_queue_setup(port, queue, descriptors, node, NULL, pool);
    return error != 0 ? error : rte_eth_tx_queue_setup(port, queue, descriptors, node, NULL);
}

int clearway_dpdk_start(uint16_t port)
{
    return rte_eth_dev_start(port);
}

static void pass(void *passed)
{
    __atomic_store_n((int *)passed, 1, __ATOMIC_RELEASE);
}

/* Waits until DPDK's interrupt thread has done what it was doing. Devices such as net_memif tear
 * down a link there when the peer goes, without a lock against being closed meanwhile. False if it
 * is stuck: a driver may wait there for hardware that is gone. */
static int settle(void)
{
    int passed = 0;
    uint64_t deadline = rte_get_timer_cycles() + SETTLE_SECONDS * rte_get_timer_hz();
    if (rte_eal_alarm_set(1, pass, &passed) != 0)
        return 1;
    while (!__atomic_load_n(&passed, __ATOMIC_ACQUIRE)) {
        if (rte_get_timer_cycles() > deadline) {
            /* Nobody writes to `passed` after this, which waits for `pass` and nothing else. */
            rte_eal_alarm_cancel(pass, &passed);
            return __atomic_load_n(&passed, __ATOMIC_ACQUIRE);
        }
        sched_yield();
    }
    return 1;
}

/* Stops and closes a port, and removes its device if `remove`. False if that cannot be done beside
 * the interrupt thread: then the port goes on as it is. */
int clearway_dpdk_close(uint16_t port, int remove)
{
    struct rte_eth_dev_info info;
    struct rte_device *device = NULL;
    if (!settle())
        return 0;
    if (remove && rte_eth_dev_info_get(port, &info) == 0)
        device = info.device;
    rte_eth_dev_stop(port);
    if (device != NULL)
        rte_dev_remove(device);
    else
        rte_eth_dev_close(port);
    return 1;
}

int clearway_dpdk_link_is_up(uint16_t port)
{
    struct rte_eth_link link;
    memset(&link, 0, sizeof(link));
    return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Frames that the port dropped for want of descriptors or of mbufs, or because they were
 * damaged. */
uint64_t clearway_dpdk_missed(uint16_t port)
{
    struct rte_eth_stats stats;
    return rte_eth_stats_get(port, &stats) == 0
        ? stats.imissed + stats.ierrors + stats.rx_nombuf : 0;
}

static uint8_t ip_checksum(uint64_t flags)
{
    switch (flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) {
    case RTE_MBUF_F_RX_IP_CKSUM_GOOD: return RIGHT;
    case RTE_MBUF_F_RX_IP_CKSUM_NONE: return MISSING;
    default: return UNKNOWN;
    }
}

static uint8_t transport_checksum(uint64_t flags)
{
    switch (flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
    case RTE_MBUF_F_RX_L4_CKSUM_GOOD: return RIGHT;
    case RTE_MBUF_F_RX_L4_CKSUM_NONE: return MISSING;
    default: return UNKNOWN;
    }
}

/* Says what an mbuf has. A frame of several parts is made one. False if that cannot be, or there
 * is nothing. */
static int describe(struct rte_mbuf *mbuf, uint32_t frame_bytes_max, struct clearway_frame *frame)
{
    uint32_t length = rte_pktmbuf_pkt_len(mbuf);
    int is_coalesced = (mbuf->ol_flags & RTE_MBUF_F_RX_LRO) != 0;
    frame->is_several = is_coalesced || length > frame_bytes_max;
    if (length == 0)
        return 0;
    if (!frame->is_several && !rte_pktmbuf_is_contiguous(mbuf) && rte_pktmbuf_linearize(mbuf) != 0)
        return 0;
    frame->bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
    frame->length = length;
    frame->head_length = rte_pktmbuf_data_len(mbuf);
    frame->segment_bytes = is_coalesced ? mbuf->tso_segsz : 0;
    frame->ip_checksum = ip_checksum(mbuf->ol_flags);
    frame->transport_checksum = transport_checksum(mbuf->ol_flags);
    return 1;
}

/* Receives up to `count` frames, at most BURST_FRAMES. Those that cannot be used are freed, and
 * added to `*dropped`. */
uint16_t clearway_dpdk_receive(uint16_t port, uint16_t queue, uint16_t count,
                               uint32_t frame_bytes_max, struct rte_mbuf **mbufs,
                               struct clearway_frame *frames, uint64_t *dropped)
{
    uint16_t kept = 0, got = rte_eth_rx_burst(port, queue, mbufs, RTE_MIN(count, BURST_FRAMES));
    for (uint16_t at = 0; at < got; at++) {
        struct rte_mbuf *mbuf = mbufs[at];
        if (unlikely(!describe(mbuf, frame_bytes_max, &frames[kept]))) {
            rte_pktmbuf_free(mbuf);
            *dropped += 1;
            continue;
        }
        mbufs[kept++] = mbuf;
    }
    return kept;
}

/* Copies a frame into `pieces`, in order, which may be shorter than it. False if it is shorter. */
int clearway_dpdk_copy(const struct rte_mbuf *mbuf, const struct iovec *pieces, size_t count)
{
    uint32_t at = 0;
    for (size_t index = 0; index < count; index++) {
        uint32_t length = (uint32_t)pieces[index].iov_len;
        const void *read = rte_pktmbuf_read(mbuf, at, length, pieces[index].iov_base);
        if (read == NULL)
            return 0;
        if (read != pieces[index].iov_base)
            memcpy(pieces[index].iov_base, read, length);
        at += length;
    }
    return 1;
}

void clearway_dpdk_free(struct rte_mbuf **mbufs, unsigned int count)
{
    rte_pktmbuf_free_bulk(mbufs, count);
}

/* An empty mbuf and where its frame is to be written; NULL if the pool is used up. */
struct rte_mbuf *clearway_dpdk_buffer(struct rte_mempool *pool, uint8_t **bytes)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf != NULL)
        *bytes = rte_pktmbuf_mtod(mbuf, uint8_t *);
    return mbuf;
}

void clearway_dpdk_set_length(struct rte_mbuf *mbuf, uint16_t length)
{
    rte_pktmbuf_data_len(mbuf) = length;
    rte_pktmbuf_pkt_len(mbuf) = length;
}

/* Makes one packet of `count` frames: the payloads of all, and the headers of the first. */
void clearway_dpdk_join(struct rte_mbuf *const *mbufs, uint16_t count, uint16_t header_bytes)
{
    struct rte_mbuf *first = mbufs[0], *last = first;
    for (uint16_t at = 1; at < count; at++) {
        struct rte_mbuf *next = mbufs[at];
        rte_pktmbuf_adj(next, header_bytes);
        first->pkt_len += rte_pktmbuf_data_len(next);
        last->next = next;
        last = next;
    }
    first->nb_segs = count;
}

/* Leaves to the port what `offload` says, and writes what it has to find: the sum over the pseudo
 * header, without the length if it parts the packet. */
void clearway_dpdk_offload(struct rte_mbuf *mbuf, const struct clearway_offload *offload)
{
    uint8_t *bytes = rte_pktmbuf_mtod(mbuf, uint8_t *), *ip = bytes + offload->link_bytes;
    uint64_t flags = offload->is_v4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;
    uint16_t sum;
    flags |= offload->is_tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM;
    if (offload->segment_bytes != 0)
        flags |= RTE_MBUF_F_TX_TCP_SEG;
    if (offload->is_v4 && offload->sums_ip) {
        flags |= RTE_MBUF_F_TX_IP_CKSUM;
        ((struct rte_ipv4_hdr *)ip)->hdr_checksum = 0;
    }
    sum = offload->is_v4 ? rte_ipv4_phdr_cksum((struct rte_ipv4_hdr *)ip, flags)
                         : rte_ipv6_phdr_cksum((struct rte_ipv6_hdr *)ip, flags);
    memcpy(bytes + offload->checksum_at, &sum, sizeof(sum));
    mbuf->ol_flags |= flags;
    mbuf->l2_len = offload->link_bytes;
    mbuf->l3_len = offload->network_bytes;
    mbuf->l4_len = offload->transport_bytes;
    mbuf->tso_segsz = offload->segment_bytes;
}

/* Makes packets ready in the port's own way. If it returns less than `count`, the port refuses the
 * next one, for the reason in errno. */
uint16_t clearway_dpdk_prepare(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs,
                               uint16_t count)
{
    return rte_eth_tx_prepare(port, queue, mbufs, count);
}

/* Hands over as many frames as the port takes; the rest stays the caller's. */
uint16_t clearway_dpdk_transmit(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs,
                                uint16_t count)
{
    return rte_eth_tx_burst(port, queue, mbufs, count);
}

/* Makes the calling thread known, so that pools keep a cache for it. */
int clearway_dpdk_enter(void)
{
    return rte_lcore_id() != LCORE_ID_ANY ? 0 : rte_thread_register();
}

void clearway_dpdk_leave(void)
{
    rte_thread_unregister();
}

int clearway_dpdk_watch(uint16_t port, uint16_t queue, int epoll)
{
    return rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_ADD, NULL);
}

void clearway_dpdk_unwatch(uint16_t port, uint16_t queue, int epoll)
{
    rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_DEL, NULL);
}

int clearway_dpdk_arm(uint16_t port, uint16_t queue)
{
    return rte_eth_dev_rx_intr_enable(port, queue);
}

/* Ends what `arm` began, and consumes what woke us. */
void clearway_dpdk_disarm(uint16_t port, uint16_t queue, int epoll)
{
    struct rte_epoll_event event;
    rte_eth_dev_rx_intr_disable(port, queue);
    while (rte_epoll_wait(epoll, &event, 1, 0) > 0)
        ;
}
