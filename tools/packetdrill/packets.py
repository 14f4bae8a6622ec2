"""Packets: as a script writes them, as bytes, and how the two are compared."""

import re
import struct
from dataclasses import dataclass, field, replace

from . import ip

ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}
ECN_NAMES = {bits: name for name, bits in ECN.items()}
IP_FIELDS = {"tos": "service", "class": "service", "ttl": "hops", "hlim": "hops"}
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32, "E": 64, "W": 128, "A": 256}
# RFC 9768, table 5: the order of the counters by the option's kind.
COUNTERS = {172: ("e0b", "ceb", "e1b"), 174: ("e1b", "ceb", "e0b")}


@dataclass
class Segment:
    """What a script says of a segment. None: nothing."""

    flags: int = 0
    start: int | None = 0
    length: int = 0
    ack: int | None = None
    window: int | None = None
    urgent: int = 0
    ecn: int | None = None
    # The whole byte of which ECN is a part: `(tos 0x20)`; and `(ttl 4)` or `(hlim 4)`.
    service: int | None = None
    hops: int | None = None
    # A list of (name, what else it says); None if the script has `<...>`.
    options: list | None = field(default_factory=list)


SEGMENT = re.compile(
    r"(?P<flags>[FSRP.UEWA0-7-]+)\s+(?:(?P<start>\d+):\d+|\.\.\.)\s*\((?P<length>\d+)\)"
    r"(?:\s+ack\s+(?P<ack>\d+))?(?:\s+win\s+(?P<window>\d+))?(?:\s+urg\s+(?P<urgent>\d+))?"
    r"\s*(?:<(?P<options>.*)>)?\s*$"
)


def parse(text):
    """A segment as it stands behind `<` or `>`."""
    segment = Segment()
    text = parse_marks(text.strip(), segment)
    match = SEGMENT.match(text)
    if not match:
        raise ValueError(f"no segment: {text}")
    for flag in match["flags"].replace("-", ""):
        segment.flags |= int(flag) << 6 if flag.isdigit() else FLAGS[flag]
    segment.length = int(match["length"])
    for name in ("start", "ack", "window"):
        setattr(segment, name, None if match[name] is None else int(match[name]))
    segment.urgent = int(match["urgent"] or 0)
    segment.options = parse_options(match["options"] or "")
    return segment


def parse_marks(text, segment):
    """What the IP header says of it: `[ect0]`, or FreeBSD's `(tos 0x20)`. The rest is returned."""
    while marks := re.match(r"\[([^]]*)\]\s*|\((\w+) (\w+)\)\s*", text):
        for word in re.split(r",\s*", marks[1] or ""):
            if word and word not in ECN:
                raise ValueError(f"[{word}] is not understood")
            segment.ecn = ECN.get(word, segment.ecn)
        if marks[2]:
            if marks[2] not in IP_FIELDS:
                raise ValueError(f"({marks[2]}) is not understood")
            setattr(segment, IP_FIELDS[marks[2]], int(marks[3], 0))
        text = text[marks.end() :]
    return text


def shifted(segment, start, ack):
    """The same segment with other sequence numbers, those of its SACK blocks with those of ack."""

    def shift(value, by):
        return (value + by) & 0xFFFFFFFF

    def of_option(name, words):
        if name != "sack":
            return name, words
        edges = (block.split(":") for block in words)
        return name, [":".join(str(shift(int(edge), ack)) for edge in pair) for pair in edges]

    return replace(
        segment,
        start=None if segment.start is None else shift(segment.start, start),
        ack=None if segment.ack is None else shift(segment.ack, ack),
        options=segment.options and [of_option(*option) for option in segment.options],
    )


def parse_options(text):
    if text.strip() == "...":
        return None
    options = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, *words = part.split()
        options.append((name, words))
    return options


def option_bytes(name, words, stamp):
    """One option. `stamp` gives the two numbers of a timestamp."""
    if name in ("nop", "eol"):
        return bytes([name == "nop"])
    if name == "mss":
        return struct.pack("!BBH", 2, 4, int(words[0]))
    if name == "wscale":
        return bytes([3, 3, int(words[0])])
    if name == "sackOK":
        return bytes([4, 2])
    if name == "sack":
        blocks = [int(edge) for block in words for edge in block.split(":")]
        return bytes([5, 2 + 4 * len(blocks)]) + struct.pack(f"!{len(blocks)}I", *blocks)
    if name == "TS":
        return bytes([8, 10]) + struct.pack("!II", *stamp(*stamps_of(words)))
    if name == "ECN":
        return ecn_bytes(words)
    if name == "md5":
        return bytes([19, 18]) + bytes.fromhex(words[0])
    if name in ("FO", "FOEXP"):
        cookie = bytes.fromhex(words[0]) if words else b""
        head = bytes([34]) if name == "FO" else bytes([254])
        tail = b"" if name == "FO" else bytes([0xF9, 0x89])
        return head + bytes([2 + len(tail) + len(cookie)]) + tail + cookie
    raise ValueError(f"option {name} is not understood")


def stamps_of(words):
    """The two numbers of `val 1 ecr ...`: None is any."""
    return (None if word == "..." else int(word) for word in words[1::2])


def ecn_bytes(words):
    """RFC 9768, section 3.2.3: `e1b 1 ceb 0 e0b 1`, in either order, or less of it."""
    kind = 172 if words and words[0] == "e0b" else 174
    names, values = words[::2], words[1::2]
    if tuple(names) != COUNTERS[kind][: len(names)]:
        raise ValueError(f"ECN {' '.join(words)}: no such order")
    counters = b"".join(int(value).to_bytes(3, "big") for value in values)
    return bytes([kind, 2 + len(counters)]) + counters


def describe(options):
    """Bytes of options as a script would write them."""
    words = []
    while options:
        kind = options[0]
        if kind in (0, 1):
            words.append("nop" if kind else "eol")
            options = options[1:]
            continue
        length = options[1] if len(options) > 1 else 0
        if length < 2 or length > len(options):
            return ",".join([*words, options.hex()])
        words.append(describe_one(kind, options[2:length]))
        options = options[length:]
    return ",".join(words)


def describe_one(kind, body):
    if kind == 2 and len(body) == 2:
        return f"mss {int.from_bytes(body, 'big')}"
    if kind == 3 and len(body) == 1:
        return f"wscale {body[0]}"
    if kind == 4 and not body:
        return "sackOK"
    if kind == 5:
        edges = struct.unpack(f"!{len(body) // 4}I", body)
        return "sack " + " ".join(f"{a}:{b}" for a, b in zip(edges[::2], edges[1::2]))
    if kind == 8 and len(body) == 8:
        return "TS val {} ecr {}".format(*struct.unpack("!II", body))
    if kind in COUNTERS:
        values = [int.from_bytes(body[at : at + 3], "big") for at in range(0, len(body), 3)]
        return " ".join(["ECN", *(f"{n} {v}" for n, v in zip(COUNTERS[kind], values))])
    if kind == 34:
        return f"FO {body.hex()}".strip()
    return f"{kind} {body.hex()}".strip()


def flag_names(flags):
    return "".join(name for name, bit in FLAGS.items() if flags & bit) or "-"


def build(version, segment, ports, stamp):
    """A segment from the peer: `ports` are the peer's and the lab's."""
    options = b"".join(option_bytes(*option, stamp) for option in segment.options or [])
    if len(options) % 4:
        raise ValueError("options that do not fill words of 32 bits")
    tcp = struct.pack(
        "!HHIIHHHH", *ports, segment.start, segment.ack or 0,
        (20 + len(options)) // 4 << 12 | segment.flags, segment.window or 0, 0, segment.urgent,
    )  # fmt: skip
    tcp += options + bytes(segment.length)
    service = (segment.service or 0) | (segment.ecn or 0)
    tcp = ip.summed(version, ip.TCP, tcp, 16)
    return ip.from_peer(version, tcp, ip.TCP, service, segment.hops or ip.HOPS)


class Seen:
    """A segment that has left the lab."""

    def __init__(self, packet, time_ns):
        self.time_ns = time_ns
        self.service, self.hops, tcp = ip.open_tcp(packet)
        fields = struct.unpack("!HHIIHHHH", tcp[:20])
        self.source, self.destination, self.start, self.ack = fields[:4]
        self.flags, self.window, self.urgent = fields[4] & 0x1FF, fields[5], fields[7]
        length = fields[4] >> 12 << 2
        self.options = tcp[20:length]
        self.length = len(tcp) - length

    def stamps(self):
        """TSval and TSecr, 0 if there are none."""
        match = re.search(r"TS val (\d+) ecr (\d+)", describe(self.options))
        return (int(match[1]), int(match[2])) if match else (0, 0)

    def follows(self, other):
        """True if this one is the next part of the same stream, as a NIC cuts segments."""
        return self.start == other.start + other.length and other.length and self.length

    def join(self, other):
        self.length += other.length
        # PSH is that of the last one.
        self.flags = self.flags & ~FLAGS["P"] | other.flags & (FLAGS["P"] | FLAGS["F"])


def differences(segment, seen, stamp):
    """What of `seen` is not as the script has it, field by field."""
    expected = [("flags", flag_names(segment.flags), flag_names(seen.flags))]
    if segment.start is not None:
        expected.append(("sequence number", segment.start, seen.start))
    expected.append(("length", segment.length, seen.length))
    if segment.ack is not None:
        expected.append(("acknowledgement", segment.ack, seen.ack))
    if segment.window is not None:
        expected.append(("window", segment.window, seen.window))
    if segment.ecn is not None:
        expected.append(("IP", ECN_NAMES[segment.ecn], ECN_NAMES[seen.service & 3]))
    for name in ("service", "hops"):
        if getattr(segment, name) is not None:
            expected.append((name, getattr(segment, name), getattr(seen, name)))
    if segment.options is not None:
        options = b"".join(option_bytes(*option, stamp) for option in segment.options)
        if options != seen.options:
            expected.append(("options", describe(options), describe(seen.options)))
    return [
        f"{name}: expected {wanted}, seen {got}" for name, wanted, got in expected if wanted != got
    ]
