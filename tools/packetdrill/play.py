"""Plays one script, and says what differs."""

import math
import re

from . import ip, packets, script
from .calls import PORT, Calls
from .lab import TOLERANCE_NS, Lab, error_name

# What part of an interval packetdrill tolerates.
TOLERANCE_PART = 8
FIRST_PEER_PORT = 50_000

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

# docs/lab.md: what defaults.sh of Linux's suites sets, and what Linux does besides.
DEFAULTS = {
    "receive_buffer_max": 15_728_640, "send_buffer": 262_144, "tcp_syn_retries": 5, "tcp_ecn": 0,
    "tcp_slow_start_after_idle": 0, "tcp_fastopen": 3, "tcp_fastopen_key_0": 0xA1A1A1A1,
    "tcp_fastopen_key_1": 0xB2B2B2B2, "tcp_fastopen_key_2": 0xC3C3C3C3,
    "tcp_fastopen_key_3": 0xD4D4D4D4,
}  # fmt: skip
LINUX = {
    "empty_window_probes": 1, "tolerate_missing_ts": 1, "tcp_syn_linear_timeouts": 4,
    "unreachable_ends_opening": 1,
}  # fmt: skip
MTU = re.compile(r"\bip link set .*\bmtu (\d+)")
SYSCTL = re.compile(r'(?:net[./]ipv[46][./]|sys/net/ipv4/)(\w+)=("[^"]*"|\S+)')


class Differs(Exception):
    """The script expects something else."""


class Player:
    """A script on its way."""

    def __init__(self, path, target, version, defines, settings):
        text = path.read_text()
        version = script.version(text) or version
        self.options, self.events = script.read(text, DEFINES[version] | defines)
        self.version = ip.VERSIONS[version]
        self.lab = Lab(target, self.version)
        self.calls = Calls(self.lab, self.version)
        self.notes = []
        # What no line of the script sets.
        self.fixed = {}
        for name, value in (LINUX | settings).items():
            self.set(name, value)
        self.fixed = settings
        self.tolerance_ns = max(TOLERANCE_NS, 1000 * int(self.options.get("tolerance_usecs", 0)))
        self.tick_ns = 1000 * int(self.options.get("tcp_ts_tick_usecs", 0))
        self.begin_ns = self.last_ns = self.lab.now()
        # The ports of the peer and of the lab.
        self.ports = (FIRST_PEER_PORT, PORT)
        # The first sequence numbers: the peer's, the lab's (None: it has not been seen), and what
        # the script has instead. There they are in segments with SYN; all others count from 0.
        self.peer_isn, self.lab_isn, self.script_isn = 0, None, 0
        # Timestamps of the lab, by what the script calls them.
        self.stamps = {}
        # What `%{ }%` knows, and has set before.
        self.names = {}
        self.pending = None
        self.taken = []

    def play(self):
        """The first line that differs, with its number, and how; None if all agrees."""
        line = 0
        try:
            for event in self.events:
                line = event.line
                self.step(event)
            line = self.finish(line)
        except (Differs, ValueError, AssertionError, NameError) as problem:
            return f"line {line}: {problem or 'an assertion'}"
        finally:
            self.lab.close()
        return None

    def finish(self, line):
        if self.pending:
            line = self.pending.line
            self.lab.advance_to(self.pending.end_ns + self.tolerance_ns)
            self.end_pending()
        return line

    def step(self, event):
        from_ns = self.last_ns if event.is_relative else self.begin_ns
        at_ns = from_ns + event.time_ns
        end_ns = None if event.end_ns is None else from_ns + event.end_ns
        if event.kind == ">":
            return self.expect(event, at_ns, end_ns, from_ns)
        self.lab.advance_to(at_ns)
        self.last_ns = self.lab.now()
        if event.kind == "<":
            self.put(event.text)
        elif event.kind == "call":
            self.call(event, end_ns)
        elif event.kind == "shell":
            self.shell(event.text)
        else:
            self.assert_python(event.text)

    def expect(self, event, at_ns, end_ns, from_ns):
        tolerance_ns = max(self.tolerance_ns, (at_ns - from_ns) // TOLERANCE_PART)
        latest_ns = (at_ns if end_ns is None else end_ns) + tolerance_ns
        if "icmp" in event.text:
            raise Differs("ICMP that leaves is not understood")
        segment = packets.parse(event.text)
        seen = self.take(latest_ns, segment.length)
        self.last_ns = max(self.lab.now(), seen.time_ns)
        problems = self.compare(segment, seen)
        if not at_ns - tolerance_ns <= seen.time_ns <= latest_ns:
            wanted, got = ((ns - self.begin_ns) / 1e9 for ns in (at_ns, seen.time_ns))
            problems.append(f"time: expected {wanted:.6f}, seen {got:.6f}")
        if problems:
            raise Differs("; ".join(problems))

    def take(self, latest_ns, length):
        """The next segment, put together with those that follow if the script has them as one."""
        seen = self.take_one(latest_ns)
        if not seen:
            raise Differs("nothing leaves")
        while seen.length < length and (more := self.take_one(latest_ns)):
            if not more.follows(seen):
                self.taken.insert(0, more)
                break
            seen.join(more)
        return seen

    def take_one(self, latest_ns):
        """As packetdrill does it, what is of other connections than the last one is skipped."""
        if self.taken:
            return self.taken.pop(0)
        self.lab.run_to(latest_ns)
        while taken := self.lab.take():
            seen = packets.Seen(*taken)
            opens = seen.flags & 18 == packets.FLAGS["S"]
            if opens or (seen.destination, seen.source) == self.ports:
                return seen
            self.lab.run_to(latest_ns)
        return None

    def compare(self, segment, seen):
        if segment.flags & packets.FLAGS["S"]:
            self.on_syn(segment, seen)
            segment = packets.shifted(segment, self.lab_isn - self.script_isn, 0)
        else:
            segment = packets.shifted(segment, self.lab_isn or 0, self.peer_isn)
        return packets.differences(segment, seen, self.stamp_of(seen))

    def on_syn(self, segment, seen):
        ports = (seen.destination, seen.source)
        if ports != self.ports or self.lab_isn is None:
            self.ports, self.lab_isn = ports, seen.start
        self.script_isn = segment.start

    def stamp_of(self, seen):
        """What the script's timestamp has to be: the lab's, if that is as late as it says."""

        def stamp(value, echo):
            live = seen.stamp() or 0
            if self.tick_ns and self.stamps:
                script_first, live_first = next(iter(self.stamps.items()))
                late = (live - live_first) - (value - script_first)
                if abs(late) > self.tolerance_ns // self.tick_ns:
                    return value - script_first + live_first, echo
            self.stamps[value] = live
            return live, echo

        return stamp

    def put(self, text):
        if "icmp" in text:
            self.lab.put(ip.error(self.version, text, self.ports, self.lab_isn or 0))
            return
        segment = packets.parse(text)
        is_syn = segment.flags & 18 == packets.FLAGS["S"]
        if is_syn and self.calls.connected is not None:
            self.ports = (self.ports[0] + 1, PORT)
            self.calls.connected = None
        elif is_syn:
            self.ports = (self.ports[0], PORT)
        if is_syn:
            self.lab_isn, self.script_isn = None, 0
        lab_isn = self.lab_isn or 0
        if segment.flags & packets.FLAGS["S"]:
            self.peer_isn = segment.start
            segment = packets.shifted(segment, 0, lab_isn - self.script_isn)
        else:
            segment = packets.shifted(segment, self.peer_isn, lab_isn)

        def stamp(value, echo):
            return value, self.stamps.get(echo, echo)

        self.lab.put(packets.build(self.version, segment, self.ports, stamp))

    def call(self, event, end_ns):
        if self.pending:
            self.end_pending()
        function, judge = self.calls.prepare(event.text)
        call = self.lab.start(function)
        call.judge, call.end_ns, call.line = judge, end_ns, event.line
        is_done = call.is_done()
        if event.waits:
            self.pending = call
        elif not is_done:
            raise Differs("the call waits")
        else:
            self.report(judge(call.result), call.result)

    def end_pending(self):
        call, self.pending = self.pending, None
        if not call.is_done():
            raise Differs(f"the call of line {call.line} still waits")
        late_ns = abs(call.returned_ns - call.end_ns)
        problems = call.judge(call.result)
        if late_ns > self.tolerance_ns:
            problems.append(f"the call of line {call.line} ended {late_ns / 1e6:.3f} ms off")
        self.report(problems, call.result)

    def report(self, problems, result):
        if problems:
            error = f" ({error_name(result)})" if result < 0 else ""
            raise Differs("; ".join(problems) + error)

    def shell(self, text):
        """What a command sets, as far as the lab has it."""
        if "defaults.sh" in text:
            for name, value in DEFAULTS.items():
                self.set(name, value)
        for mtu in MTU.findall(text):
            self.set("mtu", int(mtu))
        for name, value in SYSCTL.findall(text):
            self.sysctl(name, value.strip('"').split())

    def sysctl(self, name, values):
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

    def set(self, name, value):
        if name not in self.fixed and not self.lab.set(name, value):
            self.notes.append(f"the lab has no setting {name}={value}")

    def assert_python(self, text):
        lines = [line.strip().rstrip("\\") for line in text.strip().splitlines()]
        self.names |= self.calls.facts()
        exec("\n".join(lines), self.names)


def number(word):
    """A number as shells have it, or a product of some: `$((15*1024*1024))`."""
    return math.prod(int(factor, 0) for factor in word.strip("$()").split("*"))
