"""`sendmsg` and `recvmsg`: what they have in several pieces, and what is told beside it."""

import ctypes
import socket
import struct

from .lab import TOLERANCE_NS
from .values import NAMES

CONTROL_BYTES = 512
WORD_BYTES = ctypes.sizeof(ctypes.c_size_t)
# struct sock_extended_err.
ERROR = struct.Struct("=IBBBxII")
ERROR_FIELDS = ("ee_errno", "ee_origin", "ee_type", "ee_code", "ee_info", "ee_data")
RECEIVED_ERRORS = (
    (socket.SOL_IP, NAMES["IP_RECVERR"]),
    (NAMES["SOL_IPV6"], NAMES["IPV6_RECVERR"]),
)
STAMPS = (socket.SOL_SOCKET, NAMES["SCM_TIMESTAMPING"])


class Piece(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Header(ctypes.Structure):
    """struct msghdr."""

    _fields_ = [
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32),
        ("pieces", ctypes.POINTER(Piece)), ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]  # fmt: skip


class Place:
    """Where a message comes to."""

    def __init__(self, lengths):
        self.buffers = [ctypes.create_string_buffer(max(1, length)) for length in lengths]
        bases = (ctypes.cast(buffer, ctypes.c_void_p) for buffer in self.buffers)
        self.control = ctypes.create_string_buffer(CONTROL_BYTES)
        self.header = Header(
            pieces=(Piece * len(lengths))(*zip(bases, lengths)), piece_count=len(lengths),
            control=ctypes.cast(self.control, ctypes.c_void_p), control_length=CONTROL_BYTES,
        )  # fmt: skip


class Messages:
    """The calls, for `Calls`."""

    def make_sendmsg(self, fd, message, flags):
        data = b"".join((data or b"").ljust(length, b"\0") for data, length in message["msg_iov"])
        return self.make_send(fd, data, len(data), flags)

    def make_recvmsg(self, fd, message, flags):
        place = Place([length for _data, length in message["msg_iov"]])
        header = place.header

        def after(result):
            if result < 0:
                return []
            told = list(read_control(place.control.raw[: header.control_length]))
            problems = self.differences(message.get("msg_control") or [], told)
            if message.get("msg_flags") not in (None, header.flags):
                wanted = message["msg_flags"]
                problems.append(f"msg_flags: expected {wanted:#x}, seen {header.flags:#x}")
            return problems

        return self.simple("recvmsg", self.fd(fd), ctypes.byref(header), flags)[0], after

    def differences(self, wanted, told):
        """What differs of control messages."""
        kinds = [(each["cmsg_level"], each["cmsg_type"]) for each in wanted]
        seen = [kind for kind, _data in told]
        if kinds != seen:
            return [f"msg_control: expected {kinds}, seen {seen}"]
        problems = []
        for each, (kind, data) in zip(wanted, told):
            expected, got = each["cmsg_data"], self.read(kind, data)
            if kind == STAMPS:
                expected = expected["scm_sec"] * 10**9 + expected["scm_nsec"]
                is_right = abs(expected - got) <= TOLERANCE_NS
            else:
                is_right = expected == got
            if not is_right:
                problems.append(f"cmsg_data: expected {expected}, seen {got}")
        return problems

    def read(self, kind, data):
        """A control message: a number, a time since the script began, or an error."""
        if kind == STAMPS:
            seconds, ns = struct.unpack_from("=qq", data)
            return seconds * 10**9 + ns - self.begin_ns
        if kind in RECEIVED_ERRORS:
            return dict(zip(ERROR_FIELDS, ERROR.unpack_from(data)))
        return int.from_bytes(data[:4], "little")


def read_control(control):
    """Each control message: its level and type, and its bytes."""
    at, head = 0, struct.Struct("@Nii")
    while at + head.size <= len(control):
        length, level, kind = head.unpack_from(control, at)
        yield (level, kind), control[at + head.size : at + length]
        # As CMSG_NXTHDR has it: at the next multiple of a word.
        at += -(-max(length, head.size) // WORD_BYTES) * WORD_BYTES
