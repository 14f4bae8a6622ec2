"""Calls of sockets: `write(4, ..., 1000) = 1000`, and how each is made in the lab."""

import ctypes
import errno
import re
import socket

from . import info
from .messages import Messages
from .readiness import Readiness
from .values import NULL, evaluate, pack, split, value_of

PORT = 8080
SO_MEMINFO = 55
CALL = re.compile(
    r"^(?P<name>\w+)\s*\((?P<arguments>.*)\)\s*=\s*(?P<result>-?\w+|\.\.\.)"
    r"(?:\s+(?P<error>E[A-Z]+))?(?:\s*\(.*\))?\s*$"
)


class Calls(Messages, Readiness):
    """The calls of a script, with its numbers of descriptors."""

    def __init__(self, lab, version):
        self.lab = lab
        self.version = version
        self.begin_ns = lab.now()
        self.descriptors = {}
        # The socket that `%{ }%` asks about.
        self.connected = None
        # A socket has listened, and no SYN has come since; one has listened or connected before.
        self.listens = False
        self.is_open = False
        # Sockets that have connected or were accepted; the last one connects, and no SYN has left.
        self.begun = set()
        self.connects = False

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
        return self.simple("socket", self.version.socket_family, kind, protocol)

    def make_bind(self, fd, _address, _length):
        return self.simple("bind", self.fd(fd), *self.version.address(None, PORT))

    def make_listen(self, fd, backlog):
        self.listens = self.is_open = True
        return self.simple("listen", self.fd(fd), backlog)

    def make_accept(self, fd, _address=None, _length=None, flags=0):
        number = self.fd(fd)

        def after(result):
            self.connected = result
            self.begun.add(result)
            return []

        return (lambda: self.lab.call("accept", number, None, None, flags)), after

    def make_connect(self, fd, to, _length):
        self.begin(fd)
        return self.simple("connect", self.fd(fd), *self.peer(to))

    def begin(self, fd):
        """`%{ }%` asks about this one from now on, and segments are of it."""
        self.connected, self.is_open = self.fd(fd), True
        self.connects |= self.connected not in self.begun
        self.begun.add(self.connected)

    def peer(self, to):
        packed, length = self.version.address(self.version.remote, PORT)
        return (bytes(len(packed)) if to == socket.AF_UNSPEC else packed), length

    def make_close(self, fd):
        number = self.descriptors.pop(fd, fd)
        self.begun.discard(number)
        return self.simple("close", number)

    def make_shutdown(self, fd, how):
        return self.simple("shutdown", self.fd(fd), how)

    def make_write(self, fd, data, length):
        return self.make_send(fd, data, length, 0)

    def make_send(self, fd, data, length, flags):
        data = content(data, length)
        return self.simple("send", self.fd(fd), data, ctypes.c_size_t(length), flags)

    def make_sendto(self, fd, data, length, flags, to, _length):
        self.begin(fd)
        data, to = content(data, length), self.peer(to)
        return self.simple("sendto", self.fd(fd), data, ctypes.c_size_t(length), flags, *to)

    def make_read(self, fd, data, length):
        return self.make_recv(fd, data, length, 0)

    def make_recv(self, fd, data, length, flags, *_address):
        buffer = None if data is NULL else ctypes.create_string_buffer(max(1, length))
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

    def facts(self):
        """TCP_INFO and SO_MEMINFO of the socket that was connected or accepted last."""
        if self.connected is None:
            return {}
        tcp = self.option_bytes(socket.IPPROTO_TCP, socket.TCP_INFO)
        return info.read_tcp_info(tcp) | info.read_meminfo(
            self.option_bytes(socket.SOL_SOCKET, SO_MEMINFO)
        )

    def option_bytes(self, level, name):
        buffer = ctypes.create_string_buffer(512)
        size = ctypes.c_uint32(len(buffer))
        result = self.lab.call(
            "getsockopt", self.connected, level, name, buffer, ctypes.byref(size)
        )
        return buffer.raw[: size.value] if result >= 0 else b""


def content(data, length):
    """What is sent: what the script has, and zeroes."""
    return None if data is NULL else (data or b"").ljust(length, b"\0")
