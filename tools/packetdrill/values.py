"""Arguments of calls, as a script writes them: numbers, names, strings, structures."""

import errno
import re
import select
import socket
import struct

NAMES = {
    "TCP_INQ": 36, "TCP_NOTSENT_LOWAT": 25, "TCP_FASTOPEN_CONNECT": 30, "TCP_FASTOPEN": 23,
    "TCP_FASTOPEN_KEY": 33, "TCP_FASTOPEN_NO_COOKIE": 34, "TCP_USER_TIMEOUT": 18,
    "SO_ZEROCOPY": 60, "MSG_ZEROCOPY": 0x4000000, "MSG_FASTOPEN": 0x20000000, "MSG_EOR": 0x80,
    "MSG_MORE": 0x8000, "MSG_ERRQUEUE": 0x2000, "MSG_NOSIGNAL": 0x4000, "MSG_DONTWAIT": 0x40,
    "SIOCINQ": 0x541B, "FIONREAD": 0x541B, "SIOCOUTQ": 0x5411, "FIONBIO": 0x5421,
    "F_GETFL": 3, "F_SETFL": 4, "O_RDWR": 2, "O_RDONLY": 0, "O_WRONLY": 1, "O_NONBLOCK": 0x800,
    "SO_MAX_PACING_RATE": 47, "SO_SNDBUFFORCE": 32, "SO_RCVBUFFORCE": 33,
    "SO_TIMESTAMPING": 37, "SCM_TIMESTAMPING": 37, "TCP_CM_INQ": 36, "SOL_IPV6": 41,
    "IP_MTU_DISCOVER": 10, "IP_PMTUDISC_DONT": 0, "IP_RECVERR": 11, "IP_FREEBIND": 15,
    "IPV6_RECVERR": 25, "SO_EE_ORIGIN_TIMESTAMPING": 4, "SO_EE_ORIGIN_ZEROCOPY": 5,
    "SO_EE_CODE_ZEROCOPY_COPIED": 1, "SCM_TSTAMP_SND": 0, "SCM_TSTAMP_SCHED": 1,
    "SCM_TSTAMP_ACK": 2, "SOF_TIMESTAMPING_TX_SOFTWARE": 2, "SOF_TIMESTAMPING_SOFTWARE": 16,
    "SOF_TIMESTAMPING_OPT_ID": 128, "SOF_TIMESTAMPING_TX_SCHED": 256,
    "SOF_TIMESTAMPING_TX_ACK": 512, "EPOLL_CTL_ADD": 1, "EPOLL_CTL_DEL": 2, "EPOLL_CTL_MOD": 3,
    # FreeBSD's.
    "TCP_NOOPT": 8, "TCP_KEEPINIT": 128,
}  # fmt: skip
# A pointer to nothing; `...` is what the script does not say.
NULL = object()


class Struct(dict):
    """`{events=POLLIN, fd=3}`."""


def value_of(word):
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", word):
        return int(word, 0)
    if word in NAMES:
        return NAMES[word]
    if match := re.fullmatch(r"IPTOS_DSCP_CS(\d)", word):
        return int(match[1]) << 5
    for module in (socket, select, errno):
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
    if text == "NULL":
        return NULL
    if text[0] == '"':
        return text[1:-1].encode().decode("unicode_escape").encode("latin-1")
    if text[0] == "[":
        return [evaluate(part) for part in split(text[1:-1])]
    if text[0] == "{":
        return structure(split(text[1:-1]))
    bits = 0
    for word in text.split("|"):
        bits |= value_of(word.strip())
    return bits


def structure(parts):
    """A structure, or the list of its values if they have no names, as of `{..., 1000}`."""
    if not all("=" in part for part in parts):
        return [evaluate(part) for part in parts]
    named = Struct()
    for part in parts:
        name, what = part.split("=", 1)
        # `msg_iov(1)` says how many there are.
        named[name.split("(")[0].strip().lstrip(".")] = evaluate(what.strip())
    return named


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
