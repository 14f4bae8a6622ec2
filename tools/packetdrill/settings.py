"""What a suite begins with, and what the commands of its scripts set in the lab."""

import math
import re

# What ksft_runner.sh of Linux's suites defines.
DEFINES = {
    "ipv4": {
        "TFO_COOKIE": "3021b9d889017eeb", "TFO_COOKIE_ZERO": "b7c12350a90dc8f5",
        "CMSG_LEVEL_IP": "SOL_IP", "CMSG_TYPE_RECVERR": "IP_RECVERR",
    },
    "ipv6": {
        "TFO_COOKIE": "c1d1e9742a47a9bc", "TFO_COOKIE_ZERO": "82af1a8f9a205c34",
        "CMSG_LEVEL_IP": "SOL_IPV6", "CMSG_TYPE_RECVERR": "IPV6_RECVERR",
    },
}  # fmt: skip
# What such a socket is told has the level of IPv6.
DEFINES["ipv4-mapped-ipv6"] = DEFINES["ipv4"] | {
    name: value for name, value in DEFINES["ipv6"].items() if name.startswith("CMSG")
}

# docs/lab.md: what each system does besides, set at first, in this order.
SUITES = {
    "linux": {
        "empty_window_probes": 1, "tolerate_missing_ts": 1, "tcp_syn_linear_timeouts": 4,
        "unreachable_ends_opening": 1,
    },
    "freebsd": {
        "freebsd": 1, "receive_buffer": 65_536, "receive_buffer_max": 2_097_152,
        "send_buffer": 32_768, "quick_acks": 0, "tcp_early_retrans": 0, "mtu": 1500,
    },
}  # fmt: skip
# What the branches of its scripts call it.
SYSTEMS = {"linux": "Linux", "freebsd": "FreeBSD"}
# What defaults.sh of Linux's suites sets.
DEFAULTS = {
    "receive_buffer_max": 15_728_640, "send_buffer": 262_144, "tcp_syn_retries": 5, "tcp_ecn": 0,
    "tcp_slow_start_after_idle": 0, "tcp_fastopen": 3, "tcp_fastopen_key_0": 0xA1A1A1A1,
    "tcp_fastopen_key_1": 0xB2B2B2B2, "tcp_fastopen_key_2": 0xC3C3C3C3,
    "tcp_fastopen_key_3": 0xD4D4D4D4,
}  # fmt: skip
# FreeBSD's sysctls: settings that have another name, and by what their values are multiplied.
FREEBSD = {
    "net.inet.tcp.sack.enable": ("tcp_sack", 1), "net.inet.tcp.ecn.enable": ("tcp_ecn", 1),
    "net.inet.tcp.ecn.maxretries": ("ecn_maxretries", 1),
    "net.inet.tcp.ecn.plusplus": ("ecn_plusplus", 1),
    "net.inet.tcp.recvspace": ("receive_buffer", 1),
    "net.inet.tcp.sendspace": ("send_buffer", 1),
    "net.inet.tcp.fastopen.client_enable": ("fastopen_client_enable", 1),
    "net.inet.tcp.fastopen.server_enable": ("fastopen_server_enable", 1),
    "net.inet.tcp.initcwnd_segments": ("initial_window", 1),
    "net.inet.tcp.rexmit_initial": ("rto_initial_us", 1000),
    "net.inet.tcp.rexmit_slop": ("rto_min_us", 1000),
    "net.inet.tcp.syncookies": ("tcp_syncookies", 1),
}  # fmt: skip
# The lab's largest window.
BUFFER_MAX = 1 << 30
MTU = re.compile(r"\b(?:ip link set|ifconfig) .*\bmtu (\d+)")
LINUX_SYSCTL = re.compile(r'(?:net[./]ipv[46][./]|sys/net/ipv4/)(\w+)=("[^"]*"|\S+)')
FREEBSD_SYSCTL = re.compile(r"((?:net\.inet|kern\.ipc)\.[\w.]+)=(\d+)")


class Settings:
    """The settings of one lab. `fixed` is what no line of the script sets."""

    def __init__(self, lab, suite, fixed):
        self.lab = lab
        self.notes = []
        self.fixed = {}
        for name, value in (SUITES[suite] | fixed).items():
            self.set(name, value)
        self.fixed = fixed

    def set(self, name, value):
        if name not in self.fixed and not self.lab.set(name, value):
            self.notes.append(f"the lab has no setting {name}={value}")

    def shell(self, text):
        """What a command sets, as far as the lab has it."""
        if "defaults.sh" in text:
            for name, value in DEFAULTS.items():
                self.set(name, value)
        for mtu in MTU.findall(text):
            self.set("mtu", int(mtu))
        for name, value in LINUX_SYSCTL.findall(text):
            self.of_linux(name, value.strip('"').split())
        for name, value in FREEBSD_SYSCTL.findall(text):
            self.of_freebsd(name, int(value))

    def of_linux(self, name, values):
        if name == "tcp_rmem":
            self.set("receive_buffer", number(values[1]) // 2)
            self.set("receive_buffer_max", number(values[2]))
        elif name == "tcp_rto_max_ms":
            self.set("rto_max_us", 1000 * number(values[0]))
        elif name == "tcp_fastopen_key":
            for at, word in enumerate(values[0].split(",")[0].split("-")):
                self.set(f"tcp_fastopen_key_{at}", int(word, 16))
        elif not values[0].lstrip("-")[:1].isdigit():
            self.notes.append(f"{name}={values[0]} is not set")
        else:
            self.set(name, number(values[0]))

    def of_freebsd(self, name, value):
        if name == "net.inet.tcp.rfc1323":
            self.set("tcp_window_scaling", value in (1, 2))
            self.set("tcp_timestamps", value in (1, 3))
        elif name == "kern.ipc.maxsockbuf":
            self.set("receive_buffer_max", min(value, BUFFER_MAX))
        else:
            named, factor = FREEBSD.get(name, (name.removeprefix("net.inet.tcp."), 1))
            self.set(named, factor * value)


def number(word):
    """A number as shells have it, or a product of some: `$((15*1024*1024))`."""
    return math.prod(int(factor, 0) for factor in word.strip("$()").split("*"))
