/* What the dpdk driver needs of DPDK and cannot call from Rust: functions that are static inline,
 * and structures whose layout differs from one version to the next. Decides nothing. The
 * declarations for Rust are in sys.rs, and have to agree with what is here. */

#include <sched.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK 22.11 or newer is needed"
#endif

#define BURST_FRAMES 32
#define NAME_BYTES RTE_ETH_NAME_MAX_LEN

/* Facts about a port that is there; struct rte_eth_dev_info changes too often to be mirrored. */
struct clearway_facts {
    char driver[64];
    uint8_t mac[RTE_ETHER_ADDR_LEN];
    uint16_t queues_max;
    uint16_t mtu_max;
    uint8_t offers_checksums;
    uint8_t spreads;
};

struct clearway_settings {
    uint16_t queues;
    uint16_t descriptors;
    uint16_t mtu;
    uint8_t wants_interrupts;
};

/* A received frame: private memory of ours until the mbuf is freed. */
struct clearway_frame {
    const uint8_t *bytes;
    size_t length;
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

#define CHECKSUMS \
    (RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM)
#define SPREAD_BY (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP)

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
    facts->offers_checksums = (info.rx_offload_capa & CHECKSUMS) == CHECKSUMS;
    facts->spreads = (info.flow_type_rss_offloads & SPREAD_BY) != 0;
    return 0;
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
 * devices take no smaller buffers. */
struct rte_mempool *clearway_dpdk_pool(const char *name, uint16_t port, uint32_t mbufs,
                                       uint32_t cached, uint16_t frame_bytes)
{
    uint16_t room = RTE_PKTMBUF_HEADROOM + frame_bytes;
    return rte_pktmbuf_pool_create(name, mbufs, cached, 0, RTE_MAX(room, RTE_MBUF_DEFAULT_BUF_SIZE),
                                   rte_eth_dev_socket_id(port));
}

void clearway_dpdk_free_pool(struct rte_mempool *pool)
{
    rte_mempool_free(pool);
}

int clearway_dpdk_set_up_queue(uint16_t port, uint16_t queue, uint16_t descriptors,
                               struct rte_mempool *pool)
{
    unsigned int socket = rte_eth_dev_socket_id(port);
    int error = rte_eth_rx_queue_setup(port, queue, descriptors, socket, NULL, pool);
    return error != 0 ? error : rte_eth_tx_queue_setup(port, queue, descriptors, socket, NULL);
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
 * down a link there when the peer goes, without a lock against being closed meanwhile. */
static void settle(void)
{
    int passed = 0;
    if (rte_eal_alarm_set(1, pass, &passed) != 0)
        return;
    while (!__atomic_load_n(&passed, __ATOMIC_ACQUIRE))
        sched_yield();
}

/* Stops and closes a port, and removes its device if `remove`. */
void clearway_dpdk_close(uint16_t port, int remove)
{
    struct rte_eth_dev_info info;
    struct rte_device *device = NULL;
    settle();
    if (remove && rte_eth_dev_info_get(port, &info) == 0)
        device = info.device;
    rte_eth_dev_stop(port);
    if (device != NULL)
        rte_dev_remove(device);
    else
        rte_eth_dev_close(port);
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

/* Makes a frame of several parts one, if it fits. */
static int is_usable(struct rte_mbuf *mbuf, uint32_t frame_bytes_max)
{
    if (rte_pktmbuf_pkt_len(mbuf) > frame_bytes_max || rte_pktmbuf_pkt_len(mbuf) == 0)
        return 0;
    return rte_pktmbuf_is_contiguous(mbuf) || rte_pktmbuf_linearize(mbuf) == 0;
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
        if (unlikely(!is_usable(mbuf, frame_bytes_max))) {
            rte_pktmbuf_free(mbuf);
            *dropped += 1;
            continue;
        }
        frames[kept].bytes = rte_pktmbuf_mtod(mbuf, const uint8_t *);
        frames[kept].length = rte_pktmbuf_data_len(mbuf);
        mbufs[kept++] = mbuf;
    }
    return kept;
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

uint32_t clearway_dpdk_length(const struct rte_mbuf *mbuf)
{
    return rte_pktmbuf_pkt_len(mbuf);
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
