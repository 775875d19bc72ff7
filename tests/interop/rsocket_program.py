"""Test calls of rsockets that the programs of rdmacm-utils do not use, with both ends in one process, by ctypes.

Its last output is "well". With a port it is one end: `wait PORT` prints how its connection ended, `stay PORT` connects
to it and stays for ever.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import struct
import sys

lib = ctypes.CDLL("librdmacm.so.1", use_errno=True)
lib.rsend.argtypes = lib.rrecv.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
lib.rsend.restype = lib.rrecv.restype = lib.riowrite.restype = ctypes.c_ssize_t
lib.riomap.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
lib.riowrite.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int]
lib.riounmap.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
lib.riomap.restype = ctypes.c_int64
MIB = 1 << 20


class Pollfd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def fails(result: int, code: int) -> bool:
    return result == -1 and ctypes.get_errno() == code


def stream(*, waits: bool = True) -> int:
    return lib.rsocket(socket.AF_INET, socket.SOCK_STREAM | (0 if waits else socket.SOCK_NONBLOCK), 0)


def address(port: int) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, bytes([127, 0, 0, 1]))


def polled(fd: int, events: int, timeout_ms: int = -1) -> int:
    item = Pollfd(fd, events)
    lib.rpoll(ctypes.byref(item), 1, timeout_ms)
    return item.revents


def option(fd: int, name: int) -> int:
    value = ctypes.c_int()
    assert lib.rgetsockopt(fd, socket.SOL_SOCKET, name, ctypes.byref(value), ctypes.byref(ctypes.c_int(4))) == 0
    return value.value


def receive(fd: int, most: int, flags: int = 0) -> bytes:
    buffer = ctypes.create_string_buffer(most)
    received = lib.rrecv(fd, buffer, most, flags)
    assert received >= 0, os.strerror(ctypes.get_errno())
    return buffer.raw[:received]


def pair() -> tuple[int, int]:
    """Return the connecting socket, which is non-blocking, and the accepted one."""
    listener, asks = stream(), stream(waits=False)
    assert lib.rbind(listener, address(0), 16) == 0
    assert lib.rlisten(listener, 1) == 0
    own = ctypes.create_string_buffer(16)
    assert lib.rgetsockname(listener, own, ctypes.byref(ctypes.c_int(16))) == 0
    assert fails(lib.rconnect(asks, own, 16), errno.EINPROGRESS)
    assert polled(listener, select.POLLIN) == select.POLLIN
    accepted = lib.raccept(listener, None, None)
    assert polled(asks, select.POLLOUT) == select.POLLOUT
    assert option(asks, socket.SO_ERROR) == 0
    peer = ctypes.create_string_buffer(16)
    assert lib.rgetpeername(asks, peer, ctypes.byref(ctypes.c_int(16))) == 0
    assert peer.raw == own.raw
    assert lib.rclose(listener) == 0
    return asks, accepted


def nobody_listens() -> None:
    alone = stream()
    assert fails(lib.rconnect(alone, address(1), 16), errno.ECONNREFUSED)
    assert lib.rclose(alone) == 0
    assert fails(lib.rclose(alone), errno.EBADF)
    assert fails(lib.rsocket(socket.AF_INET, socket.SOCK_DGRAM, 0), errno.EPROTONOSUPPORT)


def who_does_not_read_stops_the_sender() -> None:
    asks, accepted = pair()
    assert fails(lib.rrecv(asks, b" ", 1, 0), errno.EAGAIN)
    data, sent = os.urandom(4 * MIB), 0
    while (removed := lib.rsend(asks, data[sent : sent + 100_001], 100_001, 0)) > 0:
        sent += removed
    assert ctypes.get_errno() == errno.EAGAIN
    assert MIB <= sent <= option(asks, socket.SO_SNDBUF)
    assert not polled(asks, select.POLLOUT, 0)
    assert receive(accepted, 70_000, socket.MSG_PEEK) == receive(accepted, 70_000) == data[:70_000]
    assert receive(accepted, sent - 70_000, socket.MSG_WAITALL) == data[70_000:sent]
    assert polled(asks, select.POLLOUT) == select.POLLOUT
    assert lib.rclose(asks) == 0
    assert lib.rclose(accepted) == 0


def one_direction_ends_before_the_other() -> None:
    asks, accepted = pair()
    assert lib.rsend(asks, b"question", 8, 0) == 8
    assert lib.rshutdown(asks, socket.SHUT_WR) == 0
    assert fails(lib.rsend(asks, b"more", 4, 0), errno.EPIPE)
    assert receive(accepted, 100) + receive(accepted, 100) == b"question"
    assert lib.rsend(accepted, b"answer", 6, 0) == 6
    assert lib.rclose(accepted) == 0
    assert polled(asks, select.POLLIN) & select.POLLIN
    assert receive(asks, 100) + receive(asks, 100) == b"answer"
    assert lib.rclose(asks) == 0


def what_is_no_file_is_told_by_select_too() -> None:
    asks, accepted = pair()
    count, never = max(asks, accepted) + 1, struct.pack("=qq", 0, 0)
    reads = ctypes.create_string_buffer((1 << accepted).to_bytes(128, "little"), 128)
    assert lib.rselect(count, reads, None, None, never) == 0
    assert reads.raw == bytes(128)
    reads.raw = requests = (1 << accepted | 1 << asks).to_bytes(128, "little")
    assert lib.rsend(asks, b"hello", 5, 0) == 5
    assert lib.rselect(count, reads, None, None, None) == 1
    assert reads.raw == (1 << accepted).to_bytes(128, "little")
    assert lib.rclose(asks) == 0
    reads.raw = requests
    assert fails(lib.rselect(count, reads, None, None, never), errno.EBADF)
    assert reads.raw == requests
    assert fails(lib.rselect(-1, reads, None, None, never), errno.EINVAL)
    assert lib.rclose(accepted) == 0


def memory_is_there_when_it_was_mapped_and_not_when_it_is_no_more() -> None:
    """Check riomap, riowrite and riounmap without any other call between them."""
    asks, accepted = pair()
    memory = ctypes.create_string_buffer(100)
    assert lib.riomap(accepted, memory, 100, mmap.PROT_WRITE, 0, 7) == 7
    assert lib.riowrite(asks, b"hello", 5, 7 + 95, 0) == 5
    assert fails(lib.riowrite(asks, b"hello", 5, 7 + 96, 0), errno.EINVAL)
    assert fails(lib.riowrite(asks, b"hello", 5, -1, 0), errno.EINVAL)
    assert lib.riounmap(accepted, memory, 100) == 0
    assert fails(lib.riowrite(asks, b"hello", 5, 7, 0), errno.EINVAL)
    assert lib.rclose(asks) == 0
    assert memory.raw == bytes(95) + b"hello"
    assert lib.rclose(accepted) == 0


def wait(port: int) -> None:
    listener = stream()
    assert lib.rbind(listener, address(port), 16) == 0
    assert lib.rlisten(listener, 1) == 0
    accepted = lib.raccept(listener, None, None)
    assert receive(accepted, 5) == b"hello"
    print("hello", flush=True)
    assert lib.rrecv(accepted, b" ", 1, 0) == -1
    print(errno.errorcode[ctypes.get_errno()])


def stay(port: int) -> None:
    asks = stream()
    assert lib.rconnect(asks, address(port), 16) == 0
    assert lib.rsend(asks, b"hello", 5, 0) == 5
    signal.pause()


if len(sys.argv) > 1:
    {"wait": wait, "stay": stay}[sys.argv[1]](int(sys.argv[2]))
else:
    nobody_listens()
    who_does_not_read_stops_the_sender()
    one_direction_ends_before_the_other()
    what_is_no_file_is_told_by_select_too()
    memory_is_there_when_it_was_mapped_and_not_when_it_is_no_more()
    print("well")
