"""What `%{ }%` can ask about: TCP_INFO and SO_MEMINFO of a socket."""

# linux/tcp.h: where each field of `struct tcp_info` stands, and how long it is.
INFO = {
    "state": (0, 1), "ca_state": (1, 1), "retransmits": (2, 1), "probes": (3, 1),
    "backoff": (4, 1), "options": (5, 1), "rto": (8, 4), "ato": (12, 4), "snd_mss": (16, 4),
    "rcv_mss": (20, 4), "unacked": (24, 4), "sacked": (28, 4), "lost": (32, 4),
    "retrans": (36, 4), "last_data_sent": (44, 4), "last_ack_sent": (48, 4),
    "last_data_recv": (52, 4), "last_ack_recv": (56, 4), "pmtu": (60, 4),
    "rcv_ssthresh": (64, 4), "rtt": (68, 4), "rttvar": (72, 4), "snd_ssthresh": (76, 4),
    "snd_cwnd": (80, 4), "advmss": (84, 4), "reordering": (88, 4), "rcv_rtt": (92, 4),
    "rcv_space": (96, 4), "total_retrans": (100, 4), "pacing_rate": (104, 8),
    "max_pacing_rate": (112, 8), "bytes_acked": (120, 8), "bytes_received": (128, 8),
    "segs_out": (136, 4), "segs_in": (140, 4), "notsent_bytes": (144, 4), "min_rtt": (148, 4),
    "data_segs_in": (152, 4), "data_segs_out": (156, 4), "delivery_rate": (160, 8),
    "busy_time": (168, 8), "rwnd_limited": (176, 8), "sndbuf_limited": (184, 8),
    "delivered": (192, 4), "delivered_ce": (196, 4), "bytes_sent": (200, 8),
    "bytes_retrans": (208, 8), "dsack_dups": (216, 4), "reord_seen": (220, 4),
    "rcv_ooopack": (224, 4), "snd_wnd": (228, 4), "rcv_wnd": (232, 4), "rehash": (236, 4),
    "received_ce": (248, 4), "delivered_e1_bytes": (252, 4), "delivered_e0_bytes": (256, 4),
    "delivered_ce_bytes": (260, 4), "received_e1_bytes": (264, 4),
    "received_e0_bytes": (268, 4), "received_ce_bytes": (272, 4),
}  # fmt: skip

STATES = {
    f"TCP_{name}": number
    for number, name in enumerate(
        "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK"
        " LISTEN CLOSING".split(),
        start=1,
    )
}
# What scripts compare fields with.
INFO_NAMES = {
    "TCP_CA_Open": 0, "TCP_CA_Disorder": 1, "TCP_CA_CWR": 2, "TCP_CA_Recovery": 3,
    "TCP_CA_Loss": 4, "TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4,
    "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32,
    "TCP_INFINITE_SSTHRESH": 0x7FFFFFFF, **STATES,
}  # fmt: skip
# FreeBSD's names of states, but with Linux's numbers, which are those that the lab tells.
INFO_NAMES |= {f"TCPI_{name[4:]}": number for name, number in STATES.items()}
INFO_NAMES |= {
    "TCPI_CLOSED": STATES["TCP_CLOSE"], "TCPI_SYN_RECEIVED": STATES["TCP_SYN_RECV"],
    "TCPI_FIN_WAIT_1": STATES["TCP_FIN_WAIT1"], "TCPI_FIN_WAIT_2": STATES["TCP_FIN_WAIT2"],
}  # fmt: skip


def read_tcp_info(info):
    fields = {
        f"tcpi_{name}": int.from_bytes(info[at : at + size], "little")
        for name, (at, size) in INFO.items()
        if at + size <= len(info)
    }
    if len(info) > 6:
        fields |= {"tcpi_snd_wscale": info[6] & 15, "tcpi_rcv_wscale": info[6] >> 4}
    return INFO_NAMES | fields


def read_meminfo(info):
    """SO_MEMINFO: numbers of 32 bits, in the order of linux/sock_diag.h."""
    names = "RMEM_ALLOC RCVBUF WMEM_ALLOC SNDBUF FWD_ALLOC WMEM_QUEUED OPTMEM BACKLOG DROPS".split()
    numbers = (int.from_bytes(info[at : at + 4], "little") for at in range(0, len(info), 4))
    return {f"SK_MEMINFO_{name}": number for name, number in zip(names, numbers)}
