"""Answer the SMPs of sweeping programs without Python, with the kernel of `smp_loop`.

    fast_path.add(fd, line)               from then on SMPs of this program that are plain are answered in the kernel
    events = fast_path.wait(timeout_s)    instead of epoll.poll; what the kernel leaves is handed back before it returns

The kernel comes with Numba, half a second and 50 MB: a lab loads it beside its work, when its fabric is large enough or
so many MADs have come that it pays. Until then, and while a node is off, Python answers all; and what crosses a cable
that loses MADs.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.lab.lines import HEADER_BYTES, MAD_BYTES, ROW_BYTES, STREAM, Kind, Number, Of, Why, new_lines
from weft.mad.subnet import Subnet

if TYPE_CHECKING:
    from weft.mad.fast_path import FastPathState

MANY_PORTS = 1_000  # in a fabric whose first sweep takes longer than loading the kernel
MANY_MADS = 20_000
_MOST_FILES = 4096  # file descriptors above have no room in the kernel's tables
_CREDENTIALS_BYTES = 28  # with a datagram: struct cmsghdr and struct ucred
_COMPILE = "from weft.lab.fast_path import compile_kernel; compile_kernel()"
log = logging.getLogger("weft.lab")
Ancillary = list[tuple[int, int, bytes]]  # as `recvmsg` returns it


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Line:
    """A program, as the kernel knows it."""

    slot: int
    is_idle: Callable[[], bool]  # does nothing of it wait in Python?
    # They take answers that the kernel could not send and requests that it does not serve: datagrams, or a stream.
    take: Callable[[list[bytes], list[tuple[bytes, Ancillary]]], None] | None = None
    take_bytes: Callable[[bytes, bytes], None] | None = None
    tag: int = 0  # upper 16 bits of the transaction IDs of datagram clients
    tids: dict[int, int] = field(default_factory=dict)  # agent of a stream -> upper 32 bits of its transaction ids

    def kind(self) -> Kind:
        return Kind.DATAGRAMS if self.take is not None else Kind.STREAM


class FastPath:
    """A server of lines by a kernel, once it is loaded; other requests are left to Python."""

    def __init__(self, subnet: Subnet, epoll: select.epoll) -> None:
        self._subnet, self._epoll = subnet, epoll
        self._lines: dict[int, Line] = {}  # by file descriptor
        self._kernel: Callable[..., int] | None = None
        self._state: FastPathState
        self._room = new_lines(_MOST_FILES, os.geteuid())
        self._loading: threading.Thread | None = None
        self._compiling: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def add(self, fd: int, line: Line) -> None:
        if fd < _MOST_FILES:
            self._lines[fd], row = line, self._room.files[fd]
            row[Of.SLOT], row[Of.TAG] = line.slot, line.tag
            for agent, tid in line.tids.items():
                row[Of.TIDS + agent] = tid

    def add_nested(self, fd: int) -> None:
        """Add an epoll with lines in it, which is part of the server's epoll."""
        if fd < _MOST_FILES:
            self._room.files[fd, Of.KIND] = Kind.NESTED

    def forget(self, fd: int) -> None:
        """Remove a file descriptor before it is closed."""
        if self._lines.pop(fd, None) is not None:
            self._room.files[fd] = 0

    def __contains__(self, fd: int) -> bool:
        return fd in self._lines

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """Wait like epoll.poll until Python has something to handle, or the time is over."""
        if self._kernel is None or not self._lines or not self._state.is_plain():
            if self._loading is None and self._pays():
                self._loading = threading.Thread(target=self._try_to_load, name="weft kernel", daemon=True)
                self._loading.start()
            return self._epoll.poll(timeout_s)
        for fd, line in self._lines.items():
            self._room.files[fd, Of.KIND] = line.kind() if line.is_idle() else Kind.STRANGE
        why = self._kernel(self._state.state(), self._room, self._epoll.fileno(), int(1000 * timeout_s))
        self._state.settle()
        if why == Why.REST:
            self._hand_back()
        return self._epoll.poll(0) if why == Why.READY else []

    def _hand_back(self) -> None:
        """Return to Python the requests that the kernel did not answer, and the answers that it could not send."""
        fd, unsent, unanswered, end = self._room.numbers[Number.REST : Number.END + 1].tolist()
        line = self._lines[fd]
        if line.take is not None:
            line.take(
                [self._datagram(i)[: HEADER_BYTES + MAD_BYTES] for i in range(unsent, unanswered)],
                [(self._datagram(i), self._ancillary(i)) for i in range(unanswered, end)],
            )
        elif line.take_bytes is not None:
            raw = self._room.inbox[STREAM + unsent : STREAM + end].tobytes()
            line.take_bytes(raw[: unanswered - unsent], raw[unanswered - unsent :])

    def _datagram(self, i: int) -> bytes:
        size = min(int(self._room.messages[0, i, 7]) & 0xFFFF_FFFF, ROW_BYTES)
        return self._room.inbox[i * ROW_BYTES : i * ROW_BYTES + size].tobytes()

    def _ancillary(self, i: int) -> Ancillary:
        """Return the credentials of a datagram's sender, if the system sent them."""
        words = self._room.control[i]
        has_credentials = int(self._room.messages[0, i, 5]) >= _CREDENTIALS_BYTES
        return [(int(words[2]), int(words[3]), words[4:7].tobytes())] if has_credentials else []

    # -- loading ------------------------------------------------------------------------------------------------------

    def _pays(self) -> bool:
        return len(self._subnet.devices.cable) >= MANY_PORTS or self._subnet.mads >= MANY_MADS

    def load(self) -> None:
        """Load the kernel. If it is not in the cache, another process compiles it: this one keeps serving."""
        import numba

        from weft.jit import cache_folder

        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            return  # kernels are interpreted: this one calls the system
        if not any(cache_folder("weft.lab.smp_loop").glob("*.nbi")):
            self._compiling = subprocess.Popen([sys.executable, "-c", _COMPILE], stdin=subprocess.DEVNULL)
            if self._compiling.wait() or self._is_closed:  # it was ended, or cannot compile: the lab does without
                return
        self._state, self._kernel = _loaded(self._subnet)

    def _try_to_load(self) -> None:
        try:
            self.load()
        except Exception as error:  # without it the lab is slower, and whole
            log.warning("the kernel for SMPs cannot be loaded: %s", error, exc_info=error)

    def close(self) -> None:
        self._is_closed = True
        if self._compiling is not None:
            self._compiling.terminate()
        if self._loading is not None:
            self._loading.join()


def _loaded(subnet: Subnet) -> tuple[FastPathState, Callable[..., int]]:
    """Call the kernel once, so that it is compiled for its arguments."""
    from weft.lab.smp_loop import smp_loop
    from weft.mad.fast_path import FastPathState

    fast_path = FastPathState(subnet)
    with select.epoll() as empty:
        smp_loop(fast_path.state(), new_lines(1, 0), empty.fileno(), 0)
    return fast_path, smp_loop


def compile_kernel() -> None:
    """Compile the kernel into the cache, in a process of its own."""
    from weft.fabric.spec import load

    _loaded(Subnet(load("star:hosts=2")))
