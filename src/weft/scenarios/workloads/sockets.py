"""The methods of `weft.collectives.live.world` on plain TCP sockets, with the same programs for collectives.

Data that the kernel does not accept at once is copied, and sent whenever this rank waits.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from weft import runtime
from weft.collectives.kinds import Collective
from weft.collectives.live.arrays import Array, flat
from weft.collectives.live.calls import choose
from weft.collectives.live.link import FRAGMENT_BYTES
from weft.collectives.live.plan import steps
from weft.collectives.live.store import JobStore
from weft.errors import SubnetError

_TIMEOUT_S = 60.0
_ADDRESS = "127.0.0.1"


class Sockets:
    """A set of connections, one between each pair of ranks."""

    def __init__(self, store: JobStore, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._peers: dict[int, socket.socket] = {}
        self._left: dict[int, deque[memoryview]] = {peer: deque() for peer in range(size)}
        self._place = np.empty(FRAGMENT_BYTES, np.uint8)
        with socket.create_server((_ADDRESS, 0), backlog=size) as server:
            server.settimeout(_TIMEOUT_S)
            store.set(f"tcp {rank}", str(server.getsockname()[1]).encode())
            for peer in range(rank):
                port = int(store.get(f"tcp {peer}", _TIMEOUT_S))
                connection = socket.create_connection((_ADDRESS, port), _TIMEOUT_S)
                connection.sendall(bytes([rank]))
                self._peers[peer] = connection
            for _ in range(rank + 1, size):
                connection, _ = server.accept()
                self._peers[connection.recv(1)[0]] = connection
        for connection in self._peers.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)

    def send(self, data: Any, to: int) -> None:
        self._send(to, flat(data).data)

    def receive(self, data: Any, source: int) -> None:
        self._take(source, flat(data).data)

    def exchange(self, data: Any, to: int, place: Any, source: int) -> None:
        self.send(data, to)
        self.receive(place, source)

    def all_reduce(self, data: Any) -> None:
        self._run(Collective.ALL_REDUCE, data)

    def barrier(self) -> None:
        self._run(Collective.BARRIER, np.empty(0))

    def close(self) -> None:
        """Close the connections after all data has been sent."""
        while any(self._left.values()):
            self._wait(None)
        for connection in self._peers.values():
            connection.close()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _run(self, kind: Collective, data: Any) -> None:
        memory, raw, place = Array(data), flat(data), self._place
        program = choose(kind, self.size, memory.size_bytes)
        for step in steps(program, self.rank, memory.size_bytes, memory.item_bytes, FRAGMENT_BYTES):
            if step.is_send:
                for piece in step.pieces:
                    self._send(step.peer, raw[piece.begin : piece.begin + piece.length].data)
                if not step.length:
                    self._send(step.peer, memoryview(b"\0"))  # a sign of progress
                continue
            self._take(step.peer, place[: max(1, step.length)].data)
            at = 0
            for piece in step.pieces:
                (memory.add if step.add else memory.put)(piece.begin, place[at : at + piece.length])
                at += piece.length

    def _send(self, peer: int, data: memoryview) -> None:
        if not self._left[peer]:
            with suppress(BlockingIOError):
                data = data[self._peers[peer].send(data) :]
        if data:
            self._left[peer].append(memoryview(bytes(data)))

    def _take(self, peer: int, place: memoryview) -> None:
        while place:
            try:
                count = self._peers[peer].recv_into(place)
            except BlockingIOError:
                self._wait(peer)
                continue
            if not count:
                raise SubnetError(f"rank {peer} closed its connection to rank {self.rank}")
            place = place[count:]

    def _wait(self, peer: int | None) -> None:
        """Wait until data from a peer has arrived, or data can be sent."""
        full = [self._peers[each] for each, left in self._left.items() if left]
        runtime.wait_ready([self._peers[peer]] if peer is not None else [], full, _TIMEOUT_S)
        for each, left in self._left.items():
            while left:
                try:
                    left[0] = left[0][self._peers[each].send(left[0]) :]
                except BlockingIOError:
                    break
                if not left[0]:
                    left.popleft()
