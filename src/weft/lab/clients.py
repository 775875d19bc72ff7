"""Programs attached to ports, and which of them a MAD is for."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from socket import socket as Socket  # noqa: N812

from weft.lab.fast_path import Ancillary, Line
from weft.wire.mad import RESPONSE, Method, MgmtClass

_NUMBERS = 0x8000  # the upper half of what fits belongs to `agents`
_OF_MANAGER = frozenset((MgmtClass.SUBN_LID_ROUTED, MgmtClass.SUBN_DIRECTED_ROUTE, MgmtClass.SUBN_ADM))


@dataclass(slots=True, eq=False)
class Client:
    """A process that attached at a port."""

    number: int
    slot: int
    name: str  # port
    _: KW_ONLY
    socket: Socket
    pid: int  # as the process calls itself: its socket has it in its name
    control: bytes  # name of the socket of its requests; requests from other sockets are refused
    process: int = -1  # file descriptor that says when it dies, -1 if there is none
    is_known: bool = False  # its first datagram has shown whose it is
    is_sm: bool = False
    classes: set[int] = field(default_factory=set)  # management classes in which it asked something
    queue: deque[bytes] = field(default_factory=deque)  # to be sent
    is_full: bool = False  # its socket takes no more for now
    tag: bytes = b""  # the upper 16 bits of its transaction ids

    def __post_init__(self) -> None:
        self.tag = self.number.to_bytes(2, "big")

    def line(self, take: Callable[[list[bytes], list[tuple[bytes, Ancillary]]], None]) -> Line:
        """Return the client as the kernel knows it, which answers while nothing is queued here."""
        return Line(slot=self.slot, tag=self.number, is_idle=lambda: not self.queue, take=take)

    def flush(self) -> bool:
        """Send what its socket takes; is there more?"""
        with contextlib.suppress(BlockingIOError):
            while self.queue:
                self.socket.send(self.queue[0])
                self.queue.popleft()
        return bool(self.queue)

    def lives(self, base: str) -> bool:
        """Return whether the client is alive: by its process descriptor, else by its socket."""
        if self.process >= 0:
            return True
        with contextlib.suppress(OSError):
            names = Path("/proc/net/unix").read_text(encoding="ascii", errors="replace")
            return any(line.endswith((f"@{base}:in{self.pid}@", f"@{base}:in{self.pid}")) for line in names.split())
        return True


def free_number(used: Container[int], last: int) -> int:
    """Return the next free number, in rotation, so that late MADs of a former client do not reach its successor."""
    number = (last + 1) % _NUMBERS
    while number in used:
        number = (number + 1) % _NUMBERS
    return number


def pick(clients: Iterable[Client], mad: bytes, sender: Client | None) -> Client | None:
    """Return the client that a MAD at a port is for.

    libumad2sim does not report which classes a program listens to, and a MAD of another class crashes it. So a response
    goes to the client of its transaction id; MADs for a subnet manager, to the manager; a report, to a client that sent
    requests in its class; any other MAD, to a client that never sent a request: it listens, as `ibping -S` does.
    """
    mgmt_class, method = mad[1], mad[3]
    if method & RESPONSE:
        return next((client for client in clients if client.tag == mad[8:10]), None)
    if method == Method.REPORT:
        return next((client for client in clients if mgmt_class in client.classes and client is not sender), None)
    if mgmt_class in _OF_MANAGER:
        return next((client for client in clients if client.is_sm), None)
    listening = [client for client in clients if not client.is_sm and client is not sender]
    silent = [client for client in listening if not client.classes]
    return next(iter(silent + [client for client in listening if mgmt_class in client.classes]), None)
