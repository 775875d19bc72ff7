"""Simulate a QoS policy: latency of one tenant's small messages under another's bulk load, with and without it.

    quality = simulate_quality(compile_intent(intent, planned_inventory(fabric)), fabric)

Lanes matter only if both classes use the same cable. So the receiver is a port in partitions of both classes, such as a
host that reads from a storage service and takes part in a job. Among these cases the load with senders on most leaves
is chosen: load from a single leaf is no faster than the receiver's cable and fills no buffers. The packet engine runs
the case three times: without load, on one lane, and on the lanes of the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from weft.errors import ConfigError, SimulationBug
from weft.fabric.forwarding import DATA_VLS
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.mad.power_up import VL_CAP
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.under_load import UnderLoad
from weft.sm.conf.qos_options import Qos, QosOptions
from weft.sm.qos.tables import fill_qos
from weft.tenants.compile import Compiled
from weft.tenants.partitions import EndPort, Inventory, Partition

MOST_SENDERS = 6  # per class; more take longer and show the same
_ARBITRATION_ENTRIES = 64
TRUST = (
    "Packets, credits, buffers and arbitration are simulated in detail. The waiting time on one lane is proportional "
    "to buffer sizes that vendors do not publish; that a separate lane shortens it is not. Many senders to one "
    "port are the worst case: with congestion control all three rows are better."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run."""

    name: str
    p50_us: float
    p99_us: float
    max_us: float
    load_gbit_s: float | None  # throughput of the bulk senders


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The results with and without a policy."""

    tenant: str  # the tenant of the timed messages
    load: str  # the partition of the load
    case: UnderLoad
    outcomes: tuple[Outcome, Outcome, Outcome]  # without load, before the policy, with it
    trust: str = TRUST

    def explain(self) -> str:
        alone, before, after = self.outcomes
        return (
            f"{len(self.case.ranks)} ports of {self.tenant} send {self.case.size_bytes} bytes at a time to "
            f"{self.case.receiver} while {len(self.case.bulk)} of {self.load} fill its cable: median "
            f"{alone.p50_us:.2f} µs without that load, {before.p50_us:.2f} before the policy, {after.p50_us:.2f} with "
            f"it (p99 {before.p99_us:.2f} and {after.p99_us:.2f}); {self.load} gets {before.load_gbit_s:.0f} Gbit/s "
            f"before, {after.load_gbit_s:.0f} with it"
        )


def planned_inventory(fabric: Fabric) -> Inventory:
    """Return the ports of a planned fabric, as its lab will have them."""
    ports, end_ports = fabric.ports, []
    for slot in np.flatnonzero(fabric.nodes.kind[ports.node] == NodeKind.HCA).tolist():
        if ports.link[slot] >= 0 and fabric.network_links[ports.link[slot]]:
            node = int(ports.node[slot])
            end_ports.append(
                EndPort(
                    guid=int(ports.guid[slot]),
                    name=fabric.port(slot).name,
                    host=fabric.nodes.name[node].partition("/")[0],
                    node_guid=int(fabric.nodes.guid[node]),
                    number=int(ports.number[slot]),
                    data_vls=DATA_VLS[VL_CAP],
                )
            )
    return Inventory(tuple(end_ports))


def simulate_quality(
    compiled: Compiled, fabric: Fabric, *, messages: int = 600, size_bytes: int = 64, seed: int = 1
) -> Quality:
    """Simulate the worst case of an intent. Raise ConfigError if it has no classes, or no port of two classes."""
    lanes = compiled.allocation.lanes
    if lanes is None:
        raise ConfigError(
            "the intent has no [class.NAME], so there is no policy to simulate: all traffic is on one lane"
        )
    tenant, load, case = _worst_case(compiled, _Places(fabric))
    case = replace(case, messages=messages, size_bytes=size_bytes, seed=seed)
    vls = f"on {len({lane.vl for lane in compiled.needs})} lanes"
    outcomes = (
        _run("without load", fabric, replace(case, bulk=()), None),
        _run("on one lane", fabric, case, None),
        _run(vls, fabric, case, lanes),
    )
    return Quality(tenant=tenant.name, load=load.name, case=case, outcomes=outcomes)


class _Places:
    """The names and leaf switches of ports, by GUID."""

    def __init__(self, fabric: Fabric) -> None:
        ports = fabric.ports
        slots = {int(ports.guid[slot]): slot for slot in np.flatnonzero((ports.guid > 0) & (ports.peer >= 0)).tolist()}
        self.name = {guid: fabric.port(slot).name for guid, slot in slots.items()}
        self.leaf = {guid: int(ports.node[ports.peer[slot]]) for guid, slot in slots.items()}

    def spread(self, guids: Iterable[int]) -> list[int]:
        """Return a few ports, spread over the leaves."""
        used: Counter[int] = Counter()
        turns = []
        for guid in sorted(guids):
            turns.append((used[self.leaf[guid]], guid))
            used[self.leaf[guid]] += 1
        return [guid for _, guid in sorted(turns)][:MOST_SENDERS]


def _worst_case(compiled: Compiled, places: _Places) -> tuple[Partition, Partition, UnderLoad]:
    """Return the tenant, the load and the case to simulate; high priority against low if there is such a case."""
    is_high = {lane.sl: lane.is_high for lane in compiled.needs}
    best, worst = (False, 0, 0, 0), None
    for tenant, load, guid in _contended_ports(compiled.allocation.partitions.values()):
        bulk = places.spread(_senders(load, guid, places))
        ranks = places.spread(set(_senders(tenant, guid, places)) - set(bulk))
        from_leaves = {places.leaf[sender] for sender in bulk} - {places.leaf.get(guid, -1)}
        badness = (is_high[tenant.sl] > is_high[load.sl], len(from_leaves), len(bulk), len(ranks))
        if ranks and bulk and guid in places.name and is_high[tenant.sl] >= is_high[load.sl] and badness > best:
            best, worst = badness, (tenant, load, guid, ranks, bulk)
    if worst is None:
        raise ConfigError(
            "no port is a member of partitions of two classes with senders in both, so no cable carries both classes\n"
            "  Give a service one class, and the tenants that use it another."
        )
    tenant, load, guid, ranks, bulk = worst
    senders = [[places.name[sender] for sender in some] for some in (ranks, bulk)]
    case = UnderLoad(receiver=places.name[guid], ranks=senders[0], bulk=senders[1], sl=tenant.sl, bulk_sl=load.sl)
    return tenant, load, case


def _contended_ports(partitions: Iterable[Partition]) -> Iterator[tuple[Partition, Partition, int]]:
    """Yield pairs of partitions on different service levels, with a port of both."""
    for tenant, load in permutations(partitions, 2):
        if tenant.sl != load.sl:
            for guid in sorted(tenant.members.keys() & load.members.keys()):
                yield tenant, load, guid


def _senders(partition: Partition, guid: int, places: _Places) -> Iterator[int]:
    hears_all = partition.members[guid].full
    return (
        far
        for far, member in partition.members.items()
        if far != guid and far in places.name and (member.full or hears_all)
    )


def _run(name: str, fabric: Fabric, case: UnderLoad, lanes: QosOptions | None) -> Outcome:
    routed = route(fabric).fabric
    if lanes is not None:
        ports = len(routed.ports)
        room = np.full(ports, _ARBITRATION_ENTRIES, np.uint8)
        fill_qos(
            routed.tables,
            routed,
            Qos.of(lanes),
            operational_vls=np.full(ports, VL_CAP, np.uint8),
            vlarb_high_cap=room,
            vlarb_low_cap=room,
        )
    result = PacketEngine().run(routed, case.traffic(routed, name), Options(seed=case.seed))
    if not result.done:
        raise SimulationBug(f"{name}: {int((result.finish_ps < 0).sum()):,} messages never arrived")
    p50_us, p99_us, max_us = np.percentile(case.latency_us(result), (50, 99, 100)).tolist()
    load_gbit_s = case.bulk_gbit_s(result)
    return Outcome(name=name, p50_us=p50_us, p99_us=p99_us, max_us=max_us, load_gbit_s=load_gbit_s)
