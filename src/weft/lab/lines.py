"""Room for what programs send to a lab: made once, and known to `smp_loop` and to the system by its address."""

from __future__ import annotations

import platform
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
MOST = 16  # datagrams, or events, at a time
MAD_BYTES, HEADER_BYTES = 256, 32
ROW_BYTES = 2 * (HEADER_BYTES + MAD_BYTES)  # per datagram in the inbox: one more, to detect longer ones
CONTROL_BYTES = 32  # with a datagram: who sent it
USER_MAD_BYTES = 64
FRAME_BYTES = 4 + USER_MAD_BYTES + MAD_BYTES
STREAM, STREAM_BYTES = MOST * ROW_BYTES, 256 * FRAME_BYTES  # offset in the inbox
AGENTS = 32  # stream
# struct epoll_event is packed on x86-64, and only there.
EVENT_BYTES, EVENT_FD = (12, 4) if platform.machine() == "x86_64" else (16, 8)


class Kind(IntEnum):
    """The kind of a file descriptor."""

    STRANGE = 0  # Python's
    DATAGRAMS = 1
    STREAM = 2
    NESTED = 3


class Why(IntEnum):
    """The kernel returns."""

    QUIET = 0  # the time is over, or a signal came
    READY = 1  # something that it does not know is ready
    REST = 2  # `Lines.rest` is for Python


class Number(IntEnum):
    """The indexes of `Lines.numbers`."""

    EVENTS = 0  # addresses, of this and the next four
    INNER = 1
    INCOMING = 2
    OUTGOING = 3
    STREAM = 4
    TIME = 5  # address of the two that follow
    SECONDS = 6
    NANOSECONDS = 7
    USER = 8  # user whose datagrams are accepted, besides root
    REST = 9  # file descriptor whose rest is for Python
    UNSENT = 10  # answers from here
    UNANSWERED = 11  # to here, and requests from here
    END = 12  # to here: datagrams, or bytes of a stream
    READY = 13  # file descriptors, from here on


class Of(IntEnum):
    """The columns of `Lines.files`."""

    KIND = 0
    SLOT = 1
    TAG = 2  # the upper 16 bits of a client's transaction ids
    TIDS = 3  # the upper 32 bits of each agent's, 0 if there is none


class Lines(NamedTuple):
    """The programs by file descriptor, and buffers for their data. Few arrays: each costs compile time."""

    files: Array  # int64[fd, Of and agent]
    events: Array  # uint8[bytes]: of the server, then those of a nested epoll
    messages: Array  # uint64[0 in | 1 out, datagram, 8]: struct mmsghdr
    control: Array  # uint32[datagram, 8]: what came with it
    inbox: Array  # uint8[bytes]: rows of datagrams, then bytes of a stream
    numbers: Array  # int64[Number]
    pieces: Array  # uint64[0 in | 1 out, datagram, 2]: struct iovec


def new_lines(most_files: int, user: int) -> Lines:
    """Return buffers for file descriptors below `most_files`."""
    lines = Lines(
        files=np.zeros((most_files, Of.TIDS + AGENTS), np.int64),
        events=np.zeros(2 * MOST * EVENT_BYTES, np.uint8),
        messages=np.zeros((2, MOST, 8), np.uint64),
        control=np.zeros((MOST, CONTROL_BYTES // 4), np.uint32),
        inbox=np.zeros(STREAM + STREAM_BYTES, np.uint8),
        numbers=np.zeros(Number.READY + MOST * MOST, np.int64),
        pieces=np.zeros((2, MOST, 2), np.uint64),
    )
    events, inbox, numbers = (array.ctypes.data for array in (lines.events, lines.inbox, lines.numbers))
    lines.numbers[Number.EVENTS], lines.numbers[Number.INNER] = events, events + MOST * EVENT_BYTES
    lines.numbers[[Number.INCOMING, Number.OUTGOING]] = [way.ctypes.data for way in lines.messages]
    lines.numbers[Number.STREAM], lines.numbers[Number.TIME] = inbox + STREAM, numbers + 8 * Number.SECONDS
    lines.numbers[Number.USER] = user
    each = np.arange(MOST, dtype=np.uint64)
    for way, size in enumerate((ROW_BYTES, HEADER_BYTES + MAD_BYTES)):
        lines.pieces[way, :, 0], lines.pieces[way, :, 1] = inbox + ROW_BYTES * each, size
        lines.messages[way, :, 2], lines.messages[way, :, 3] = lines.pieces[way].ctypes.data + 16 * each, 1
    lines.messages[0, :, 4] = lines.control.ctypes.data + CONTROL_BYTES * each
    return lines
