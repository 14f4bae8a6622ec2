"""IPv4 and IPv6: addresses, headers, and errors that routers send."""

import ctypes
import re
import socket
import struct
from dataclasses import dataclass

TCP, ICMP, ICMPV6 = 6, 1, 58
# How many hops a packet of the peer may take.
HOPS = 64
# With the segment that it quotes at the end, as Linux's scripts have it, or at the beginning.
QUOTED = r"\[(?P<start{0}>\d+):\d+\((?P<length{0}>\d+)\)\]"
ERROR = re.compile(
    rf"\s*(?:{QUOTED.format(1)}\s*)?icmp\s+(?P<type>\w+)(?:\s+(?P<code>[a-z]\w*))??"
    rf"(?:\s+mtu\s+(?P<mtu>\d+))?(?:\s+{QUOTED.format(2)})?\s*$"
)
# What the header of an error says, by the words of a script: the type, and the codes in order.
# The first is that of an error without a word.
ERRORS_V4 = {
    "unreachable": (
        3, "net_unreachable host_unreachable protocol_unreachable port_unreachable frag_needed"
        " source_route_failed net_unknown host_unknown source_host_isolated net_prohibited"
        " host_prohibited net_unreachable_for_tos host_unreachable_for_tos packet_filtered"
        " precedence_violation precedence_cutoff",
    ),
    "source_quench": (4, "code_0"), "redirect": (5, "code_0"),
    "time_exceeded": (11, "ttl_exceeded_in_transit frag_reass_exceeded"),
    "parameter_problem": (12, "code_0 code_1 code_2"),
}  # fmt: skip
ERRORS_V6 = {
    "unreachable": (
        1, "no_route admin_prohibited not_neighbour address_unreachable port_unreachable",
    ),
    "packet_too_big": (2, "code_0"),
    "time_exceeded": (3, "exceeded_hop_limit exceeded_frag_time"),
    "parameter_problem": (4, "header_field unknown_next_header unknown_option"),
}  # fmt: skip
# As Linux's scripts call it.
SYNONYMS = {"addr_unreachable": "address_unreachable"}


@dataclass(frozen=True)
class Version:
    """What a script is played over: its addresses, and those that sockets have."""

    family: int
    socket_family: int
    local: str
    remote: str
    mtu: int

    def packed(self, host):
        return socket.inet_pton(self.family, host)

    def address(self, host, port):
        """A sockaddr of a socket, and its length; `host` None: any."""
        if self.socket_family == socket.AF_INET:
            return sockaddr(host or "0.0.0.0", port)
        mapped = host and self.family == socket.AF_INET
        return sockaddr(f"::ffff:{host}" if mapped else host or "::", port)


# The addresses of Linux's suites.
VERSIONS = {
    "ipv4": Version(socket.AF_INET, socket.AF_INET, "192.168.0.1", "192.0.2.1", 1500),
    "ipv6": Version(
        socket.AF_INET6, socket.AF_INET6, "fd3d:a0b:17d6::1", "fd3d:fa7b:d17d::1", 1520
    ),
    "ipv4-mapped-ipv6": Version(
        socket.AF_INET, socket.AF_INET6, "192.168.0.1", "192.0.2.1", 1500
    ),
}


def sockaddr(host, port):
    """A sockaddr_in or sockaddr_in6, and its length."""
    if ":" in host:
        packed = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0)
        packed += socket.inet_pton(socket.AF_INET6, host) + bytes(4)
    else:
        packed = struct.pack("=H", socket.AF_INET) + struct.pack("!H", port)
        packed += socket.inet_aton(host) + bytes(8)
    return packed, ctypes.c_uint32(len(packed))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def summed(version, protocol, payload, at):
    """A payload from the peer, with its checksum at that place."""
    pseudo = version.packed(version.remote) + version.packed(version.local)
    pseudo += struct.pack("!II", len(payload), protocol)
    total = checksum((pseudo if protocol != ICMP else b"") + payload)
    return payload[:at] + struct.pack("!H", total) + payload[at + 2 :]


def header(version, source, destination, length, protocol, service, hops):
    """The header before a payload of that length."""
    ends = version.packed(source) + version.packed(destination)
    if version.family == socket.AF_INET6:
        return struct.pack("!IHBB", 6 << 28 | service << 20, length, protocol, hops) + ends
    fields = (0x45, service, 20 + length, 0, 0x4000, hops, protocol, 0)
    head = struct.pack("!BBHHHBBH", *fields) + ends
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:]


def from_peer(version, payload, protocol, service=0, hops=HOPS):
    ends = version.remote, version.local
    return header(version, *ends, len(payload), protocol, service, hops) + payload


def error(version, text, ports, lab_isn):
    """An ICMP error from the peer about a segment of the lab's: `ports` are the peer's and its."""
    match = ERROR.match(text)
    start = match and (match["start1"] or match["start2"])
    if not start:
        raise ValueError(f"{text.strip()} is not understood")
    is_v6 = version.family == socket.AF_INET6
    kind = error_kind(ERRORS_V6 if is_v6 else ERRORS_V4, match["type"], match["code"])
    length = int(match["length1"] or match["length2"])
    start = (int(start) + lab_isn) & 0xFFFFFFFF
    quoted = struct.pack("!HHIIHHHH", ports[1], ports[0], start, 0, 5 << 12 | 16, 0, 0, 0)
    ends = version.local, version.remote
    quoted = header(version, *ends, len(quoted) + length, TCP, 0, HOPS) + quoted
    message = struct.pack("!BBHI", *kind, 0, int(match["mtu"] or 0)) + quoted
    protocol = ICMPV6 if is_v6 else ICMP
    return from_peer(version, summed(version, protocol, message, 2), protocol)


def error_kind(errors, word, code):
    """Type and code."""
    number, codes = errors.get(word, (0, ""))
    codes, code = codes.split(), SYNONYMS.get(code, code)
    if not number or code and code not in codes:
        raise ValueError(f"icmp {word} {code or ''}: there is no such error")
    return number, codes.index(code) if code else 0


def open_tcp(packet):
    """Of a packet that has left: its service with its marks, its hops, and the TCP segment."""
    if packet[0] >> 4 == 6 and packet[6] == TCP:
        return int.from_bytes(packet[:2], "big") >> 4 & 0xFF, packet[7], packet[40:]
    if packet[0] >> 4 == 4 and packet[9] == TCP:
        return packet[1], packet[8], packet[packet[0] % 16 * 4 :]
    raise ValueError("what has left is no TCP")
