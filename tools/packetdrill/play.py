"""Plays one script, and says what differs."""

from . import ip, packets, script
from .calls import PORT, Calls
from .lab import TOLERANCE_NS, Lab, error_name
from .settings import DEFINES, SYSTEMS, Settings

# What part of an interval packetdrill tolerates.
TOLERANCE_PART = 8
FIRST_PEER_PORT = 50_000


class Differs(Exception):
    """The script expects something else."""


class Player:
    """A script on its way."""

    def __init__(self, path, target, version, suite, defines, settings):
        text = path.read_text()
        version = script.version(text) or version
        self.options, self.events = script.read(
            text, DEFINES[version] | defines, SYSTEMS[suite]
        )
        self.version = ip.VERSIONS[version]
        self.lab = Lab(target, self.version)
        self.calls = Calls(self.lab, self.version)
        self.settings = Settings(self.lab, suite, settings)
        if "mtu" in self.options:
            self.settings.set("mtu", int(self.options["mtu"]))
        self.tolerance_ns = max(TOLERANCE_NS, 1000 * int(self.options.get("tolerance_usecs", 0)))
        self.tick_ns = 1000 * int(self.options.get("tcp_ts_tick_usecs", 0))
        self.begin_ns = self.last_ns = self.lab.now()
        # The ports of the peer and of the lab.
        self.ports = (FIRST_PEER_PORT, PORT)
        # The first sequence numbers: the peer's, the lab's (None: it is not known), and what the
        # script has instead of that. There they are in segments with SYN; all others count from 0.
        self.peer_isn, self.lab_isn, self.script_isn = None, None, 0
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
            self.settings.shell(event.text)
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
            self.calls.connects &= not opens
            is_of_the_last = (seen.destination, seen.source) == self.ports
            if opens or is_of_the_last and not self.calls.connects:
                return seen
            self.lab.run_to(latest_ns)
        return None

    def compare(self, segment, seen):
        if segment.flags & packets.FLAGS["S"]:
            self.on_syn(segment, seen)
            segment = packets.shifted(segment, self.lab_isn - self.script_isn, 0)
        else:
            segment = packets.shifted(segment, self.lab_isn or 0, self.peer_isn or 0)
        return packets.differences(segment, seen, self.stamp_of(seen))

    def on_syn(self, segment, seen):
        ports = (seen.destination, seen.source)
        if ports != self.ports or self.lab_isn is None or segment.start is None:
            self.ports, self.lab_isn = ports, seen.start
            if not segment.flags & packets.FLAGS["."]:
                self.peer_isn = None
        self.script_isn = segment.start or 0

    def stamp_of(self, seen):
        """What the script's timestamp has to be: the lab's, if that is as late as it says."""

        def stamp(value, echo):
            live, live_echo = seen.stamps()
            echo = live_echo if echo is None else echo
            if value is None:
                return live, echo
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
        # As packetdrill does it, only the first SYN after `listen` begins a connection.
        if segment.flags & 18 == packets.FLAGS["S"] and self.calls.listens:
            port = self.ports[0] + (self.calls.connected is not None)
            self.ports, self.calls.connected = (port, PORT), None
            self.lab_isn, self.peer_isn, self.script_isn = None, None, 0
            self.calls.listens = self.calls.connects = False
        lab_isn = self.lab_isn or 0
        if segment.flags & packets.FLAGS["S"]:
            # What nobody can take begins no connection, from which others would count.
            if self.peer_isn is None and self.calls.is_open:
                self.peer_isn = segment.start
            segment = packets.shifted(segment, 0, lab_isn - self.script_isn)
        else:
            segment = packets.shifted(segment, self.peer_isn or 0, lab_isn)

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

    def assert_python(self, text):
        lines = [line.strip().rstrip("\\") for line in text.strip().splitlines()]
        self.names |= self.calls.facts()
        exec("\n".join(lines), self.names)
