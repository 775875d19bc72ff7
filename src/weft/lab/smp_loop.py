"""Rounds of a lab's server in one kernel: wait, take what programs sent, answer it, send, and wait again.

A subnet manager has four SMPs on the wire and waits for their answers: a round of the server in Python takes longer
than the manager and the system together. So what `mad.kernels.answer` can answer never leaves this kernel. All else
ends it: a program or a socket that it does not know, an SMP that is for Python, a program that does not read.

    datagrams    ibsim's: a header of 32 bytes and a MAD, with who sent it, which is looked at first
    stream       of weft's preload: frames of a length, struct user_mad and a MAD, answered in place
    nested       an epoll of streams
"""

from __future__ import annotations

import socket

import numpy as np
from numba.core import types

from weft.jit import Kernel, handler, lean_kernel, part
from weft.jit.references import by_reference
from weft.lab.lines import (
    AGENTS,
    CONTROL_BYTES,
    EVENT_BYTES,
    EVENT_FD,
    FRAME_BYTES,
    HEADER_BYTES,
    MAD_BYTES,
    MOST,
    ROW_BYTES,
    STREAM,
    STREAM_BYTES,
    USER_MAD_BYTES,
    Kind,
    Number,
    Of,
    Why,
)
from weft.mad.kernels.answer import answer
from weft.mad.kernels.tables import NONE

_TICK_MS = 20  # no wait after the first is longer: a signal that comes between two waits is heard then
_EPOLLIN = 1
_SOL_SOCKET, _SCM_CREDENTIALS, _ROOT = int(socket.SOL_SOCKET), int(socket.SCM_CREDENTIALS), 0
_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_MONOTONIC = 1
_MESSAGE_BYTES, _CREDENTIALS_BYTES = 64, 28  # struct mmsghdr; struct cmsghdr with struct ucred

_number = types.int32
_epoll_wait: Kernel = types.ExternalFunction("epoll_wait", _number(_number, types.uintp, _number, _number))
_recvmmsg: Kernel = types.ExternalFunction(
    "recvmmsg", _number(_number, types.uintp, types.uint32, _number, types.uintp)
)
_sendmmsg: Kernel = types.ExternalFunction("sendmmsg", _number(_number, types.uintp, types.uint32, _number))
_recv: Kernel = types.ExternalFunction("recv", types.intp(_number, types.uintp, types.uintp, _number))
_send: Kernel = types.ExternalFunction("send", types.intp(_number, types.uintp, types.uintp, _number))
_clock: Kernel = types.ExternalFunction("clock_gettime", _number(_number, types.uintp))


_QUIET, _READY, _REST = (int(why) for why in Why)
_DATAGRAMS, _STREAM, _NESTED = int(Kind.DATAGRAMS), int(Kind.STREAM), int(Kind.NESTED)
_KIND, _SLOT, _TAG, _TIDS = (int(column) for column in Of)
_EVENTS, _INNER, _INCOMING, _OUTGOING, _BYTES, _TIME, _S, _NS, _USER = (int(number) for number in list(Number)[:9])
_LEFT, _UNSENT, _UNANSWERED, _END = (int(number) for number in list(Number)[9:13])
_READY_LINES = int(Number.READY)


@part
def _four(b, at):
    """Return the number in four bytes, in the byte order of this machine."""
    return np.int64(b[at]) | np.int64(b[at + 1]) << 8 | np.int64(b[at + 2]) << 16 | np.int64(b[at + 3]) << 24


@part
def _leave(lines, fd, unsent, unanswered, end):
    """Leave the rest to Python; return what to do next."""
    if unsent == end:
        return _QUIET
    n = lines.numbers
    n[_LEFT], n[_UNSENT], n[_UNANSWERED], n[_END] = fd, unsent, unanswered, end
    return _REST


# -- datagrams --------------------------------------------------------------------------------------------------------


@part
def _take_datagrams(lines, fd):
    for i in range(MOST):
        lines.messages[0, i, 5] = CONTROL_BYTES
    return np.int64(_recvmmsg(fd, lines.numbers[_INCOMING], MOST, _AT_ONCE, 0))


@part
def _is_whole(lines, i):
    """Return whether it is a directed MAD whose sender, by the kernel, is the lab's user or root."""
    b, at, user = lines.inbox, i * ROW_BYTES, np.int64(lines.control[i, 5])
    has_sender = lines.messages[0, i, 5] >= _CREDENTIALS_BYTES
    has_sender &= lines.control[i, 2] == _SOL_SOCKET and lines.control[i, 3] == _SCM_CREDENTIALS
    if not has_sender or (user != lines.numbers[_USER] and user != _ROOT):
        return False
    if np.int64(lines.messages[0, i, 7]) & 0xFFFF_FFFF != HEADER_BYTES + MAD_BYTES:
        return False
    odd = (b[at] ^ 0xFF) | (b[at + 1] ^ 0xFF)  # DLID
    for k in range(24, 32):  # the length
        odd |= b[at + k] ^ (MAD_BYTES >> 8 if k == 30 else 0)
    return odd == 0


@part
def _address_back(lines, fd, i):
    """Write the header of the answer, as `protocol.answer_to` does, and restore the transaction id."""
    b, at, tag = lines.inbox, i * ROW_BYTES, lines.files[fd, _TAG]
    b[at + HEADER_BYTES + 8], b[at + HEADER_BYTES + 9] = tag >> 8, tag & 0xFF
    for k in range(4):
        b[at + 4 + k] = b[at + k]
        b[at + 8 + k], b[at + 12 + k] = b[at + 12 + k], b[at + 8 + k]
        b[at + 16 + k] = b[at + 20 + k] = 0
    b[at], b[at + 1], b[at + 2], b[at + 3] = 0xFF, 0xFF, 0, 0


@part
def _send_datagrams(lines, fd, count):
    """Send datagrams; return how many the socket accepted."""
    sent = np.int64(0)
    while sent < count:
        more = _sendmmsg(fd, lines.numbers[_OUTGOING] + _MESSAGE_BYTES * sent, count - sent, _AT_ONCE)
        if more <= 0:
            break
        sent += more
    return sent


# -- streams ----------------------------------------------------------------------------------------------------------


@part
def _is_frame(lines, fd, at):
    """Return whether it is a MAD of an agent that expects an answer. See struct user_mad in preload.c."""
    b, agent = lines.inbox, _four(lines.inbox, at + 4)
    if _four(b, at) != USER_MAD_BYTES + MAD_BYTES or not 0 <= agent < AGENTS or not _four(b, at + 12):
        return False
    return lines.files[fd, _TIDS + agent] != 0


@part
def _frame_back(lines, fd, at):
    """Write the header of the answer, and restore the transaction id. LID and P_Key index stay."""
    b, head, mad = lines.inbox, at + 4, at + 4 + USER_MAD_BYTES
    tid = lines.files[fd, _TIDS + _four(b, head)]
    for k in range(4):
        b[mad + 8 + k] = tid >> (24 - 8 * k) & 0xFF
    for k in range(4, USER_MAD_BYTES):
        if k not in (28, 29, 56, 57):
            b[head + k] = 0
    b[head + 16], b[head + 17] = (USER_MAD_BYTES + MAD_BYTES) & 0xFF, (USER_MAD_BYTES + MAD_BYTES) >> 8


@part
def _send_bytes(lines, fd, count):
    sent = np.int64(0)
    while sent < count:
        more = _send(fd, lines.numbers[_BYTES] + sent, count - sent, _AT_ONCE)
        if more <= 0:
            break
        sent += more
    return sent


# -- the loop ---------------------------------------------------------------------------------------------------------


@part
def _now_ms(lines):
    _clock(_MONOTONIC, lines.numbers[_TIME])
    return lines.numbers[_S] * 1000 + lines.numbers[_NS] // 1_000_000


@handler
def _serve(s, lines, fd):
    """Answer what a program has sent; why that is not all, if it is not."""
    done, slot = np.int64(0), lines.files[fd, _SLOT]
    if lines.files[fd, _KIND] == _DATAGRAMS:
        came = _take_datagrams(lines, fd)
        while done < came and _is_whole(lines, done) and answer(s, slot, lines.inbox, done * ROW_BYTES + HEADER_BYTES):
            _address_back(lines, fd, done)
            done += 1
        return _leave(lines, fd, _send_datagrams(lines, fd, done), done, came) if came > 0 else _READY
    came = np.int64(_recv(fd, lines.numbers[_BYTES], STREAM_BYTES, _AT_ONCE))
    while came - done >= FRAME_BYTES and _is_frame(lines, fd, STREAM + done):
        if not answer(s, slot, lines.inbox, STREAM + done + FRAME_BYTES - MAD_BYTES):
            break
        _frame_back(lines, fd, STREAM + done)
        done += FRAME_BYTES
    return _leave(lines, fd, _send_bytes(lines, fd, done), done, came) if came > 0 else _READY


@part
def _ready_line(lines, at):
    """Return the file descriptor of an event if it is a line or an epoll of lines; else NONE."""
    fd = _four(lines.events, at + EVENT_FD)
    is_line = _four(lines.events, at) == _EPOLLIN and fd < len(lines.files)
    return fd if is_line and lines.files[fd, _KIND] else NONE


@part
def _gather(lines, count):
    """Note which lines are ready, those in nested epolls too: how many; NONE if something else is ready as well."""
    ready, strange, n = 0, False, lines.numbers
    for i in range(count):
        fd = _ready_line(lines, i * EVENT_BYTES)
        if fd != NONE and lines.files[fd, _KIND] == _NESTED:
            inner = _epoll_wait(fd, n[_INNER], MOST, 0)
            for k in range(inner):
                n[_READY_LINES + ready] = _ready_line(lines, (MOST + k) * EVENT_BYTES)
                strange |= n[_READY_LINES + ready] == NONE
                ready += 1
        else:
            n[_READY_LINES + ready] = fd
            strange |= fd == NONE
            ready += 1
    return NONE if strange else ready


@lean_kernel
def smp_loop(s, lines, epoll, timeout_ms):
    """Serve until there is something for Python, at most for `timeout_ms`; a Why."""
    s = by_reference(s)
    end_ms, wait_ms = _now_ms(lines) + timeout_ms, timeout_ms
    while True:
        count = _epoll_wait(epoll, lines.numbers[_EVENTS], MOST, wait_ms)
        if count <= 0:
            return _QUIET
        ready = _gather(lines, count)
        if ready == NONE:
            return _READY
        for i in range(ready):
            why = _serve(s, lines, lines.numbers[_READY_LINES + i])
            if why != _QUIET:
                return why
        if _now_ms(lines) >= end_ms:
            return _QUIET
        wait_ms = min(_TICK_MS, timeout_ms)
