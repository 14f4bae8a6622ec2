"""The lab's library, as far as a script needs it: clearway_lab.h through ctypes."""

import ctypes
import errno
import os
import threading
from pathlib import Path

from .ip import sockaddr

LONGEST_PACKET = 65_535
# packetdrill's own tolerance.
TOLERANCE_NS = 4_000_000


class Lab:
    """One host of the lab."""

    def __init__(self, target, version):
        self.library = ctypes.CDLL(str(find(target)))
        for name in ("take_packet", "send", "sendto", "recv", "recvmsg"):
            getattr(self.library, f"clearway_lab_{name}").restype = ctypes.c_int64
        self.number = self.library.clearway_lab_create(None)
        self.call("add_address", *sockaddr(version.local, 0), ctypes.c_uint8(16))
        self.set("mtu", version.mtu)
        self.set("isn", 0)

    def call(self, name, *arguments):
        return getattr(self.library, f"clearway_lab_{name}")(self.number, *arguments)

    def close(self):
        self.call("destroy")

    def set(self, name, value):
        """True if the lab has such a setting."""
        return self.call("set", name.encode(), ctypes.c_int64(value)) >= 0

    def now(self):
        now_ns = ctypes.c_uint64()
        self.call("now", ctypes.byref(now_ns))
        return now_ns.value

    def advance_to(self, time_ns):
        self.call("advance", ctypes.c_uint64(max(0, time_ns - self.now())))

    def run_to(self, time_ns):
        """Until there is a packet to take, at most until then."""
        return self.call("run", ctypes.c_uint64(max(0, time_ns - self.now()))) == 1

    def put(self, packet):
        self.call("put_packet", packet, ctypes.c_size_t(len(packet)))

    def take(self):
        """The next packet, and when it left; None if there is none."""
        packet = ctypes.create_string_buffer(LONGEST_PACKET)
        time_ns = ctypes.c_uint64()
        size = ctypes.c_size_t(LONGEST_PACKET)
        length = self.call("take_packet", packet, size, ctypes.byref(time_ns))
        return (packet.raw[:length], time_ns.value) if length > 0 else None

    def waiting(self):
        return self.call("waiting")

    def start(self, function):
        return Call(self, function)


class Call:
    """A call of a socket, in a thread of its own, since it may wait."""

    def __init__(self, lab, function):
        self.result = None
        self.returned_ns = None
        self.done = threading.Event()
        self.lab = lab
        threading.Thread(target=self.run, args=(lab, function), daemon=True).start()

    def is_done(self):
        """True if it has returned, False if it waits: for a moment it does neither."""
        while not self.done.is_set() and self.lab.waiting() == 0:
            os.sched_yield()
        return self.done.is_set()

    def run(self, lab, function):
        self.result = function()
        returned_ns = ctypes.c_uint64()
        lab.library.clearway_lab_returned(ctypes.byref(returned_ns))
        self.returned_ns = returned_ns.value
        self.done.set()


def find(target):
    for build in ("", "debug", "release"):
        path = Path(target, build, "libclearway_lab.so")
        if path.exists():
            return path
    raise SystemExit(f"{target}: no libclearway_lab.so; run `cargo build -p clearway-lab-capi`")


def error_name(result):
    return errno.errorcode.get(-result, str(result))
