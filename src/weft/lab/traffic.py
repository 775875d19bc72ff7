"""Data of the packet engine through a lab that goes on serving: MADs and commands are answered meanwhile.

Each host asks the subnet administrator for its paths, as real ones do: SL, P_Key and MTU are as it says, and who has no
path sends nothing. The engine runs in the thread of who asks, on the cabling and the tables of the moment when it
began; kernels let other threads run. What the ports counted is added when it ends. Who asked can end it: an error of
`progress` does.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from weft.errors import ConfigError, SubnetError
from weft.fabric.model import Fabric
from weft.fabric.paths import HostPaths
from weft.lab.ibsim import Server
from weft.mad.carrier import Address
from weft.mad.host_paths import NoAnswer, Rows, ask_paths, known
from weft.mad.ibsim_client import IbsimCarrier
from weft.routing.patterns import host_ports
from weft.sim.engine import Options, Progress
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import PATTERNS, make, takes
from weft.sim.traffic import Traffic
from weft.wire.port_info import PortInfo

MESSAGE_BYTES = 1_300  # of memory; measured, of all-to-all between 2,328 adapters
MOST_BYTES = 2 << 30  # of memory, beside what the lab has already
MOST_PACKETS = 1_000_000_000
_PACKET_BYTES = 4096
_ONE_BY_ONE = 8  # paths of a host that are asked for so; more come in one table


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
        paths_known = self._learn_paths(fabric, traffic)
        fabric.tables.paths = paths_known
        told = paths_known.find(traffic.src, fabric.tables.lid[traffic.dst]) >= 0
        told &= paths_known.find(traffic.dst, fabric.tables.lid[traffic.src]) >= 0
        if not told.any():
            raise SubnetError(f"the subnet administrator has no path for {traffic.description}: nothing can be sent")

        def tell(delivered: int, messages: int) -> None:
            self.now = f"{pattern}, {delivered:,} of {messages:,} messages delivered"
            if progress is not None:
                progress(delivered, messages)

        result = PacketEngine().run(fabric, traffic.take(told), Options(**options), progress=tell)
        self._server.call(result.write_counters)
        return result.report() | {"without_path": int((~told).sum())}

    def _learn_paths(self, fabric: Fabric, traffic: Traffic) -> HostPaths:
        """Of all pairs of the traffic, both ways: a table for who talks to many, else one after the other."""
        both = ((traffic.src, traffic.dst), (traffic.dst, traffic.src))
        ends = np.concatenate([np.column_stack(one) for one in both])
        devices, places = self._server.subnet.devices, self._server.places
        slots: list[int] = []
        found: list[Rows] = []
        asking = np.unique(ends[:, 0]).tolist()
        for done, slot in enumerate(asking):
            self.now = f"{traffic.description}, {done:,} of {len(asking):,} hosts have asked for their paths"
            to = np.unique(ends[ends[:, 0] == slot, 1])
            info = devices.info(slot)
            sm = Address(PortInfo.master_sm_lid.get(info))
            if not sm.lid or not devices.is_active(slot):
                raise SubnetError(f"no subnet manager has configured {devices.name(slot)}: `weft up --sm` starts one")
            gids = [PortInfo.gid_prefix.get(info) << 64 | int(fabric.ports.guid[one]) for one in (slot, *to.tolist())]
            with closing(IbsimCarrier(places.sim_host(slot), self._server.base)) as carrier:
                many = len(to) > _ONE_BY_ONE
                try:
                    rows = [ask_paths(carrier, sm, gids[0], to_gid) for to_gid in ([None] if many else gids[1:])]
                except NoAnswer as error:
                    raise SubnetError(f"{devices.name(slot)} has {error}") from None
            found += rows
            slots += [slot] * sum(map(len, rows))
        return known(np.array(slots, np.int64), np.concatenate(found))


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
