"""Data of the packet engine through a lab that goes on serving: MADs and commands are answered meanwhile.

It runs in the thread of who asks, on the cabling and the tables of the moment when it began; kernels let other threads
run. What the ports counted is added when it ends. Who asked can end it: an error of `progress` does.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.lab.ibsim import Server
from weft.routing.patterns import host_ports
from weft.sim.engine import Options, Progress
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import PATTERNS, make, takes

MESSAGE_BYTES = 1_300  # of memory; measured, of all-to-all between 2,328 adapters
MOST_BYTES = 2 << 30  # of memory, beside what the lab has already
MOST_PACKETS = 1_000_000_000
_PACKET_BYTES = 4096


class LabTraffic:
    """One at a time, as there is one fabric."""

    def __init__(self, server: Server, fabric_now: Callable[[], Fabric]) -> None:
        """`fabric_now` is called in the server's thread."""
        self._server, self._fabric_now = server, fabric_now
        self._one = threading.Lock()
        self.now = ""  # what runs

    def run(self, pattern: str, size_bytes: int, *, paths: str, seed: int, progress: Progress | None) -> dict[str, Any]:
        """The engine's report."""
        if not self._one.acquire(blocking=False):
            raise ConfigError(f"traffic is on its way through this lab, {self.now}: wait until it has arrived")
        self.now = pattern
        try:
            return self._run(pattern, size_bytes, paths, seed, progress)
        finally:
            self.now = ""
            self._one.release()

    def _run(self, pattern: str, size_bytes: int, paths: str, seed: int, progress: Progress | None) -> dict[str, Any]:
        fabric = self._server.call(lambda: _still(self._fabric_now()))
        given: dict[str, Any] = {"size_bytes": size_bytes}
        if pattern in PATTERNS and "seed" in takes(pattern):
            given["seed"] = seed
        options: dict[str, Any] = {"paths": paths, "seed": seed}  # checked there
        if pattern == "all-to-all":  # before it is made
            hosts = len(host_ports(fabric))
            _refuse_too_much(pattern, hosts * (hosts - 1), hosts * (hosts - 1) * _packets(size_bytes))
        traffic = make(pattern, fabric, **given)
        _refuse_too_much(traffic.description, len(traffic), len(traffic) * _packets(size_bytes))

        def tell(delivered: int, messages: int) -> None:
            self.now = f"{pattern}, {delivered:,} of {messages:,} messages delivered"
            if progress is not None:
                progress(delivered, messages)

        result = PacketEngine().run(fabric, traffic, Options(**options), progress=tell)
        self._server.call(result.write_counters)
        return result.report()


def _still(fabric: Fabric) -> Fabric:
    """With tables that nobody writes while the engine reads them."""
    return replace(fabric, tables=copy.deepcopy(fabric.tables))


def _packets(size_bytes: int) -> int:
    return max(1, -(-size_bytes // _PACKET_BYTES))


def _refuse_too_much(what: str, messages: int, packets: int) -> None:
    memory_bytes = messages * MESSAGE_BYTES
    if memory_bytes > MOST_BYTES or packets > MOST_PACKETS:
        raise ConfigError(
            f"{what} is too much for a lab: {messages:,} messages, {packets:,} packets, some {memory_bytes / 1e9:,.1f} "
            f"GB of memory; at most {MOST_PACKETS:,} packets and {MOST_BYTES / 1e9:,.1f} GB go"
            "\n  Take smaller messages or a pattern with fewer, permutation or shift; or `weft sim`, beside the lab."
        )
