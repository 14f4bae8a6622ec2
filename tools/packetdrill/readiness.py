"""`poll` and `epoll`."""

import ctypes
import platform
import struct

# struct epoll_event is packed on x86-64 only.
EVENT = struct.Struct("=IQ" if platform.machine() == "x86_64" else "=IxxxxQ")


class Readiness:
    """The calls, for `Calls`."""

    def make_poll(self, entries, count, timeout_ms):
        packed = b"".join(
            struct.pack("=ihh", self.fd(e["fd"]), e.get("events", 0), 0) for e in entries
        )
        buffer = ctypes.create_string_buffer(packed, len(packed))

        def after(_result):
            seen = [struct.unpack_from("=ihh", buffer, 8 * at)[2] for at in range(count)]
            wanted = [e.get("revents", 0) for e in entries]
            return [] if seen == wanted else [f"events: expected {wanted}, seen {seen}"]

        return self.simple("poll", buffer, ctypes.c_size_t(count), timeout_ms)[0], after

    def make_epoll_create(self, _size):
        return self.simple("epoll_create")

    def make_epoll_create1(self, _flags):
        return self.simple("epoll_create")

    def make_epoll_ctl(self, epfd, operation, fd, event):
        packed = EVENT.pack(event["events"] & 0xFFFFFFFF, event.get("fd", 0))
        return self.simple("epoll_ctl", self.fd(epfd), operation, self.fd(fd), packed)

    def make_epoll_wait(self, epfd, event, most, timeout_ms):
        buffer = ctypes.create_string_buffer(EVENT.size * most)

        def after(result):
            if result <= 0:
                return []
            wanted, seen = (event["events"], event["fd"]), EVENT.unpack_from(buffer)
            return [] if seen == wanted else [f"event: expected {wanted}, seen {seen}"]

        return self.simple("epoll_wait", self.fd(epfd), buffer, most, timeout_ms)[0], after
