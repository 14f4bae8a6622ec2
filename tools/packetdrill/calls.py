"""Calls of sockets: `write(4, ..., 1000) = 1000`, and how each is made in the lab."""

import ctypes
import errno
import re
import select
import socket
import struct

from .lab import REMOTE, address

PORT = 8080
NAMES = {
    "TCP_INQ": 36, "TCP_NOTSENT_LOWAT": 25, "TCP_FASTOPEN_CONNECT": 30, "TCP_FASTOPEN": 23,
    "TCP_FASTOPEN_KEY": 33, "TCP_FASTOPEN_NO_COOKIE": 34, "TCP_USER_TIMEOUT": 18,
    "SO_ZEROCOPY": 60, "MSG_ZEROCOPY": 0x4000000, "MSG_FASTOPEN": 0x20000000, "MSG_EOR": 0x80,
    "MSG_MORE": 0x8000, "MSG_ERRQUEUE": 0x2000, "MSG_NOSIGNAL": 0x4000, "MSG_DONTWAIT": 0x40,
    "SIOCINQ": 0x541B, "FIONREAD": 0x541B, "SIOCOUTQ": 0x5411, "FIONBIO": 0x5421,
    "F_GETFL": 3, "F_SETFL": 4, "O_RDWR": 2, "O_RDONLY": 0, "O_WRONLY": 1, "O_NONBLOCK": 0x800,
    "SO_MAX_PACING_RATE": 47, "SO_SNDBUFFORCE": 32, "SO_RCVBUFFORCE": 33,
}  # fmt: skip
CALL = re.compile(
    r"^(?P<name>\w+)\s*\((?P<arguments>.*)\)\s*=\s*(?P<result>-?\w+|\.\.\.)"
    r"(?:\s+(?P<error>E[A-Z]+))?(?:\s*\(.*\))?\s*$"
)


class Struct(dict):
    """`{events=POLLIN, fd=3}`."""


def value_of(word):
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", word):
        return int(word, 0)
    if word in NAMES:
        return NAMES[word]
    for module in (socket, select):
        if hasattr(module, word):
            return int(getattr(module, word))
    raise ValueError(f"{word} is not understood")


def split(text):
    """Arguments, at the commas that are in no brackets and no quotes."""
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == '"'
        depth += (char in "([{") - (char in ")]}") if not quoted else 0
        if char == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def evaluate(text):
    """An argument: a number, names joined by `|`, a string, a list, a structure, None for `...`."""
    if text == "...":
        return None
    if text[0] == '"':
        return text[1:-1].encode().decode("unicode_escape").encode("latin-1")
    if text[0] == "[":
        return [evaluate(part) for part in split(text[1:-1])]
    if text[0] == "{":
        pairs = (part.split("=", 1) for part in split(text[1:-1]))
        return Struct({name.strip().lstrip("."): evaluate(what.strip()) for name, what in pairs})
    bits = 0
    for word in text.split("|"):
        bits |= value_of(word.strip())
    return bits


class Calls:
    """The calls of a script, with its numbers of descriptors."""

    def __init__(self, lab):
        self.lab = lab
        self.descriptors = {}
        # The socket that `%{ }%` asks about.
        self.connected = None

    def prepare(self, text):
        """What is to be called, and how its result is judged: two functions."""
        match = CALL.match(text)
        if not match:
            raise ValueError(f"no call: {text}")
        arguments = [evaluate(part) for part in split(match["arguments"])]
        make = getattr(self, f"make_{match['name']}", None)
        if not make:
            raise ValueError(f"{match['name']}: no such call")
        function, after = make(*arguments)
        return function, lambda result: self.judge(match, result) + (after(result) if after else [])

    def judge(self, match, result):
        """What differs of a result."""
        if match["result"] == "..." or match["result"] == "?":
            return []
        wanted = value_of(match["result"])
        if wanted < 0:
            number = getattr(errno, match["error"]) if match["error"] else None
            is_right = result < 0 and (number is None or result == -number)
            return [] if is_right else [f"result: expected {match['error']}, seen {result}"]
        if match["name"] in ("socket", "accept", "epoll_create", "epoll_create1"):
            if result >= 0:
                self.descriptors[wanted] = result
            return [] if result >= 0 else [f"result: expected a descriptor, seen {result}"]
        return [] if result == wanted else [f"result: expected {wanted}, seen {result}"]

    def fd(self, number):
        return self.descriptors.get(number, number)

    def simple(self, name, *arguments):
        return (lambda: self.lab.call(name, *arguments)), None

    def make_socket(self, _domain, kind, protocol):
        return self.simple("socket", socket.AF_INET, kind, protocol)

    def make_bind(self, fd, _address, _length):
        return self.simple("bind", self.fd(fd), *address("0.0.0.0", PORT))

    def make_listen(self, fd, backlog):
        return self.simple("listen", self.fd(fd), backlog)

    def make_accept(self, fd, _address=None, _length=None, flags=0):
        number = self.fd(fd)

        def after(result):
            self.connected = result
            return []

        return (lambda: self.lab.call("accept", number, None, None, flags)), after

    def make_connect(self, fd, _address, _length):
        self.connected = self.fd(fd)
        return self.simple("connect", self.fd(fd), *address(REMOTE, PORT))

    def make_close(self, fd):
        return self.simple("close", self.descriptors.pop(fd, fd))

    def make_shutdown(self, fd, how):
        return self.simple("shutdown", self.fd(fd), how)

    def make_write(self, fd, data, length):
        return self.make_send(fd, data, length, 0)

    def make_send(self, fd, data, length, flags):
        data = (data or b"").ljust(length, b"\0")
        return self.simple("send", self.fd(fd), data, ctypes.c_size_t(length), flags)

    def make_sendto(self, fd, data, length, flags, _address, _length):
        self.connected = self.fd(fd)
        data = (data or b"").ljust(length, b"\0")
        to = address(REMOTE, PORT)
        return self.simple("sendto", self.fd(fd), data, ctypes.c_size_t(length), flags, *to)

    def make_read(self, fd, data, length):
        return self.make_recv(fd, data, length, 0)

    def make_recv(self, fd, _data, length, flags):
        buffer = ctypes.create_string_buffer(max(1, length))
        return self.simple("recv", self.fd(fd), buffer, ctypes.c_size_t(length), flags)

    make_recvfrom = make_recv

    def make_fcntl(self, fd, command, argument=0):
        return self.simple("fcntl", self.fd(fd), command, argument)

    def make_ioctl(self, fd, request, values=None):
        value = ctypes.c_int(0)
        call = ("ioctl", self.fd(fd), ctypes.c_ulong(request), ctypes.byref(value))
        wanted = values[0] if isinstance(values, list) and values else None

        def after(_result):
            is_right = wanted is None or value.value == wanted
            return [] if is_right else [f"value: expected {wanted}, seen {value.value}"]

        return (lambda: self.lab.call(*call)), after

    def make_setsockopt(self, fd, level, name, value, _length=None):
        packed = pack(value)
        size = ctypes.c_uint32(len(packed))
        return self.simple("setsockopt", self.fd(fd), level, name, packed, size)

    def make_getsockopt(self, fd, level, name, value, _length=None):
        wanted = pack(value)
        buffer = ctypes.create_string_buffer(max(4, len(wanted)))
        size = ctypes.c_uint32(len(buffer))
        call = ("getsockopt", self.fd(fd), level, name, buffer, ctypes.byref(size))

        def after(_result):
            seen = buffer.raw[: len(wanted)]
            return [] if seen == wanted else [f"value: expected {wanted}, seen {seen}"]

        return (lambda: self.lab.call(*call)), after

    def make_poll(self, entries, count, timeout_ms):
        packed = b"".join(
            struct.pack("=ihh", self.fd(e["fd"]), e.get("events", 0), 0) for e in entries
        )
        buffer = ctypes.create_string_buffer(packed, len(packed))

        def after(_result):
            seen = [struct.unpack_from("=ihh", buffer, 8 * at)[2] for at in range(count)]
            wanted = [e.get("revents", 0) for e in entries]
            return [] if seen == wanted else [f"events: expected {wanted}, seen {seen}"]

        return (lambda: self.lab.call("poll", buffer, ctypes.c_size_t(count), timeout_ms)), after

    def tcp_info(self):
        """`struct tcp_info` of the socket that was connected or accepted last."""
        buffer = ctypes.create_string_buffer(512)
        size = ctypes.c_uint32(len(buffer))
        level, name = socket.IPPROTO_TCP, 11
        if self.connected is None:
            return {}
        self.lab.call("getsockopt", self.connected, level, name, buffer, ctypes.byref(size))
        return read_tcp_info(buffer.raw[: size.value])


def pack(value):
    if value is None:
        return bytes(4)
    if isinstance(value, bytes):
        return value
    if isinstance(value, Struct) and "onoff" in value:
        return struct.pack("=ii", value["onoff"], value["linger"])
    if isinstance(value, Struct):
        return struct.pack("=qq", value.get("tv_sec", 0), value.get("tv_usec", 0))
    numbers = value if isinstance(value, list) else [value]
    return struct.pack(f"={len(numbers)}I", *(number & 0xFFFFFFFF for number in numbers))


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


# What scripts compare fields with.
INFO_NAMES = {
    "TCP_CA_Open": 0, "TCP_CA_Disorder": 1, "TCP_CA_CWR": 2, "TCP_CA_Recovery": 3,
    "TCP_CA_Loss": 4, "TCPI_OPT_TIMESTAMPS": 1, "TCPI_OPT_SACK": 2, "TCPI_OPT_WSCALE": 4,
    "TCPI_OPT_ECN": 8, "TCPI_OPT_ECN_SEEN": 16, "TCPI_OPT_SYN_DATA": 32,
    "TCP_INFINITE_SSTHRESH": 0x7FFFFFFF,
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
