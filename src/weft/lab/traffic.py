"""Run the packet engine's traffic through a lab while it serves MADs and commands.

Each host queries its paths from the subnet administrator, as real hosts do: they determine SL, P_Key, MTU and rate, and
a host without a path sends nothing. For multicast all hosts join a group of the administrator, and leave it at the end.

The engine runs in the thread of the caller, on the cabling and the tables at its start; kernels let other threads run.
The counts are added to the ports when it ends. The caller can end it by an error of `progress`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError
from weft.fabric.forwarding import ANY, Plane, Reason, follow, matching_key
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.model import Fabric
from weft.fabric.subnets import require_one_subnet
from weft.fabric.tables import HostPaths
from weft.ids import PKey
from weft.lab.ibsim import Server
from weft.lab.planes import without_unused_planes
from weft.mad.administrator import NoAnswer, Rows, ask_paths, data_gbit_s, join_group, known, leave_group
from weft.mad.carrier import Carrier
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.keyed import KeyedCarrier
from weft.routing.patterns import host_ports
from weft.sim.engine import Options, Progress
from weft.sim.packet.engine import PacketEngine
from weft.sim.packet.trees import plane_of
from weft.sim.patterns import PATTERNS, make, parameters_of
from weft.sim.planes import has_route
from weft.sim.traffic import Traffic
from weft.units import format_items
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.sa import MCMemberRecord, PathRecord

MESSAGE_BYTES = 1_300  # bytes of memory; measured for all-to-all between 2,328 adapters
MOST_BYTES = 2 << 30  # bytes of memory, besides the lab's
MOST_PACKETS = 1_000_000_000
_PACKET_BYTES = 4096
_PLANTED_S, _LOOK_S = 60.0, 0.02
_ONE_BY_ONE = 8  # paths of a host that are asked for so; more come in one table


class LabTraffic:
    """The traffic of a lab; one run at a time."""

    def __init__(self, server: Server, fabric_now: Callable[[], Fabric]) -> None:
        """Set up; `fabric_now` is called in the server's thread."""
        self._server, self._fabric_now = server, fabric_now
        self._one = threading.Lock()
        self.now = ""  # the current run

    def run(
        self,
        pattern: str,
        size_bytes: int,
        *,
        paths: str,
        senders: int | None,
        seed: int,
        progress: Progress | None,
    ) -> dict[str, Any]:
        """Run a pattern and return the engine's report."""
        parameters: dict[str, Any] = {"size_bytes": size_bytes}
        parameters |= {"seed": seed} if pattern in PATTERNS and "seed" in parameters_of(pattern) else {}
        parameters |= {} if senders is None else {"senders": senders}
        options: dict[str, Any] = {"paths": paths, "seed": seed}  # checked there
        if not self._one.acquire(blocking=False):
            raise ConfigError(f"traffic is on its way through this lab, {self.now}: wait until it has arrived")
        self.now = pattern
        try:
            if pattern == "multicast":
                return self._run_multicast(parameters, Options(**options), progress)
            return self._run(pattern, parameters, Options(**options), progress)
        finally:
            self.now = ""
            self._one.release()

    def _run(
        self, pattern: str, parameters: dict[str, Any], options: Options, progress: Progress | None
    ) -> dict[str, Any]:
        fabric, size_bytes = self._fabric(), parameters["size_bytes"]
        if pattern == "all-to-all":  # before it is made
            hosts = len(host_ports(fabric))
            _refuse_too_much(pattern, hosts * (hosts - 1), hosts * (hosts - 1) * _packets(size_bytes))
        traffic = make(pattern, fabric, **parameters)
        _refuse_too_much(traffic.description, len(traffic), len(traffic) * _packets(size_bytes))
        fabric = join_subnets(without_unused_planes(fabric))
        fabric.tables.paths, has_path = self._learn_paths(fabric, traffic)
        if not has_path.any():
            raise SubnetError(f"the subnet administrator has no path for {traffic.description}: nothing can be sent")
        report = self._send(pattern, fabric, traffic.take(has_path), options, progress)
        return report | {"without_path": int((~has_path).sum())}

    def _fabric(self) -> Fabric:
        """Return the fabric as it is now; SubnetError if no subnet manager has brought it up."""
        fabric = self._server.call(lambda: still(self._fabric_now()))
        if not len(host_ports(fabric)):
            raise SubnetError(
                "no host of this lab has a LID: bring it up with a subnet manager first, `weft sm --once` or "
                "`weft exec HOST opensm -o`"
            )
        return fabric

    def _send(
        self, pattern: str, fabric: Fabric, traffic: Traffic, options: Options, progress: Progress | None
    ) -> dict[str, Any]:
        def tell(delivered: int, messages: int) -> None:
            self.now = f"{pattern}, {delivered:,} of {format_items(messages, 'message')} delivered"
            if progress is not None:
                progress(delivered, messages)

        result = PacketEngine().run(fabric, traffic, options, progress=tell)
        self._server.call(result.write_counters)
        return result.report()

    def _run_multicast(self, parameters: dict[str, Any], options: Options, progress: Progress | None) -> dict[str, Any]:
        """Run multicast: all hosts that may join a group of the first host."""
        require_one_subnet(self._server.subnet.devices.fabric, "multicast of a lab")
        members: dict[int, MCMemberRecord] = {}
        hosts = host_ports(self._fabric()).tolist()
        try:
            self._join(members, hosts)
            fabric = self._planted(members)
            mlid, most = next(iter(members.values())).mlid, parameters["size_bytes"]
            traffic = make("multicast", fabric, mlid=mlid, **parameters)
            _refuse_too_much(traffic.description, len(traffic), len(traffic) * len(members) * _packets(most))
            report = self._send("multicast", fabric, traffic, options, progress)
        except BaseException:
            with suppress(SubnetError):  # report the first error
                self._leave(members)
            raise
        self._leave(members)
        return report | {"without_path": len(hosts) - len(members)}

    def _join(self, members: dict[int, MCMemberRecord], hosts: list[int]) -> None:
        for slot in hosts:
            self.now = f"multicast, joined by {len(members):,} of {format_items(len(hosts), 'host')}"
            mgid = next(iter(members.values())).mgid if members else 0
            p_key = self._server.subnet.devices.keys(slot)[0] | PKey.FULL_MEMBER
            with self._as_host(slot) as (carrier, gid):
                member = join_group(carrier, gid, p_key, mgid)
            if member is not None:
                members[slot] = member
        if not members:
            raise SubnetError("no host may make a multicast group: does a subnet manager run (`weft up --sm`)?")

    def _leave(self, members: dict[int, MCMemberRecord]) -> None:
        for slot, member in members.items():
            with self._as_host(slot) as (carrier, gid):
                leave_group(carrier, gid, member.mgid)

    def _planted(self, members: dict[int, MCMemberRecord]) -> Fabric:
        """Return the fabric when switches lead to all members: the SA answers before it has written their tables."""
        until_s = time.monotonic() + _PLANTED_S
        records = list(members.values())
        mlid, sl = records[0].mlid, records[0].sl
        while True:
            fabric = self._fabric()
            plane = plane_of(fabric)
            if all(members.keys() - {slot} <= _reached(plane, slot, mlid, sl) for slot in members):
                break
            if time.monotonic() > until_s:
                raise SubnetError(f"no tables lead to all members of the group {mlid:#06x} within {_PLANTED_S:g} s")
            time.sleep(_LOOK_S)
        keys: list[list[int]] = [fabric.tables.pkey[slot].tolist() for slot in members]
        p_key = [own[matching_key(own, record.p_key)] for own, record in zip(keys, records, strict=True)]
        mtu_bytes, rates = [128 << record.mtu for record in records], data_gbit_s()[[record.rate for record in records]]
        fabric.tables.paths = HostPaths.of(list(members), mlid, [sl] * len(records), p_key, mtu_bytes, rates)
        return fabric

    @contextmanager
    def _as_host(self, slot: int) -> Iterator[tuple[Carrier, int]]:
        """Yield a carrier for queries to the subnet administrator, and the GID of its port."""
        devices = self._server.subnet.devices
        info = devices.info(slot)
        if not PortInfo.master_sm_lid.get(info) or not devices.is_active(slot):
            raise SubnetError(f"no subnet manager has configured {devices.name(slot)}: `weft up --sm` starts one")
        gid = self._gid(slot)
        with closing(IbsimCarrier(self._server.places.sim_host(slot), self._server.base)) as carrier:
            try:
                yield KeyedCarrier(carrier, lambda: PortInfo.m_key.get(devices.info(slot))), gid
            except NoAnswer as error:
                raise SubnetError(f"{devices.name(slot)} has {error}") from None

    def _learn_paths(self, fabric: Fabric, traffic: Traffic) -> tuple[HostPaths, NDArray[np.bool_]]:
        """Query the paths of all pairs, both ways, in every plane; return them, and which messages have one."""
        both = ((traffic.src, traffic.dst), (traffic.dst, traffic.src))
        ends = np.concatenate([np.column_stack(direction) for direction in both]).astype(np.int64)
        planes = fabric.planes if fabric.expanded else 1
        in_planes = [ends + plane for plane in range(planes)]
        used = [
            (fabric.ports.peer[pairs] >= 0).all(axis=1) & has_route(fabric, *pairs.T) | (planes == 1)
            for pairs in in_planes
        ]
        asked = [pairs[mask] for pairs, mask in zip(in_planes, used, strict=True)]
        paths = self._ask(traffic.description, fabric, np.concatenate(asked))
        lid, knows = fabric.tables.lid, np.ones(len(ends), np.bool_)
        for pairs, mask in zip(in_planes, used, strict=True):
            knows &= ~mask | (paths.find(pairs[:, 0], lid[pairs[:, 1]]) >= 0)
        has_path: NDArray[np.bool_] = knows.reshape(2, -1).all(axis=0) & np.any(used, axis=0).reshape(2, -1).all(axis=0)
        return paths, has_path

    def _ask(self, description: str, fabric: Fabric, ends: NDArray[np.int64]) -> HostPaths:
        """Query the paths of these pairs: as a table for hosts with many peers in their subnet, else one by one."""
        subnet, lid = fabric.tables.subnet, fabric.tables.lid
        slots: list[int] = []
        lids: list[NDArray[np.int64]] = []
        tables: list[Rows] = []
        asking = np.unique(ends[:, 0]).tolist()
        for done, slot in enumerate(asking):
            self.now = f"{description}, paths read by {done:,} of {format_items(len(asking), 'host')}"
            to = np.unique(ends[ends[:, 0] == slot, 1])
            with self._as_host(slot) as (carrier, gid):
                if subnet is None and len(to) > _ONE_BY_ONE:
                    rows = [ask_paths(carrier, gid)]
                    lids.append(column(rows[0], PathRecord.dlid).astype(np.int64))
                else:
                    rows = [ask_paths(carrier, gid, self._gid(far)) for far in to.tolist()]
                    lids += [np.full(len(row), lid[far], np.int64) for far, row in zip(to, rows, strict=True)]
            tables += rows
            slots += [slot] * sum(map(len, rows))
        return known(np.array(slots, np.int64), np.concatenate(tables), np.concatenate(lids))

    def _gid(self, slot: int) -> int:
        """Return the first GID of a port."""
        devices = self._server.subnet.devices
        return PortInfo.gid_prefix.get(devices.info(slot)) << 64 | int(devices.fabric.ports.guid[slot])


def _reached(plane: Plane, slot: int, mlid: int, sl: int) -> set[int]:
    """Return the ports that a group's packet reaches from this one, for any P_Key."""
    hops = follow(plane, slot, dlid=mlid, sl=sl, p_key=ANY, size_bytes=0)
    return {hop.slot for _, _, hop in hops if hop.reason is Reason.ARRIVED}


def still(fabric: Fabric) -> Fabric:
    """Return a copy of the fabric whose tables do not change while the engine reads them."""
    return replace(fabric, tables=copy.deepcopy(fabric.tables))


def _packets(size_bytes: int) -> int:
    return max(1, -(-size_bytes // _PACKET_BYTES))


def _refuse_too_much(description: str, messages: int, packets: int) -> None:
    memory_bytes = messages * MESSAGE_BYTES
    if memory_bytes > MOST_BYTES or packets > MOST_PACKETS:
        raise ConfigError(
            f"{description} is too much for a lab: {messages:,} messages, {packets:,} packets, "
            f"some {memory_bytes / 1e9:,.1f} GB of memory; at most {MOST_PACKETS:,} packets and "
            f"{MOST_BYTES / 1e9:,.1f} GB go"
            "\n  Take smaller messages or a pattern with fewer, permutation or shift; or `weft sim`, beside the lab."
        )
