"""The facts of a subnet that a history follows: nodes, links, LIDs, routes, partitions, manager and errors."""

from __future__ import annotations

import zlib

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.ids import Guid
from weft.monitor.columns import Column
from weft.monitor.poll import Reading
from weft.twin.history import Subject
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

_ERRORS = (
    Column.SYMBOL_ERROR,
    Column.LINK_ERROR_RECOVERY,
    Column.LINK_DOWNED,
    Column.PORT_RCV_ERRORS,
    Column.PORT_XMIT_DISCARDS,
)
_MEMBER = 0x7FFF  # P_Key 0 is an empty entry


def read_facts(fabric: Fabric, reading: Reading | None = None) -> dict[Subject, str]:
    """Return the facts of a subnet that was read with its tables, and of its counters."""
    facts: dict[Subject, str] = {}
    nodes = fabric.nodes
    for name, kind, guid in zip(nodes.name, nodes.kind.tolist(), nodes.guid.tolist(), strict=True):
        facts["node", name] = f"{NodeKind(kind).name.lower()} {Guid(guid)}"
    for link in map(fabric.link, range(len(fabric.links))):
        facts["link", link.a.name] = f"{link.b.name} {link.label}"
        facts["link", link.b.name] = f"{link.a.name} {link.label}"
    _add_tables(facts, fabric)
    if reading is not None:
        _add_errors(facts, reading)
    return facts


def _add_tables(facts: dict[Subject, str], fabric: Fabric) -> None:
    lids, managers = (column(fabric.tables.port_info, field) for field in (PortInfo.lid, PortInfo.master_sm_lid))
    owner = {}
    for slot in np.flatnonzero(lids).tolist():
        port = fabric.port(slot)
        facts["lid", port.name] = str(lids[slot])
        owner[int(lids[slot])] = port.node.name
    for lid in np.unique(managers[managers > 0]).tolist():
        facts["manager", owner.get(lid, f"LID {lid}")] = f"LID {lid}"
    for row, node in enumerate(fabric.of_kind(NodeKind.SWITCH).tolist()):
        table = fabric.tables.lft[row]
        routes = np.flatnonzero(table != NO_ROUTE)
        checksum = zlib.crc32(table[: routes[-1] + 1].tobytes()) if len(routes) else 0
        facts["routes", fabric.nodes.name[node]] = f"{len(routes)} LIDs, checksum {checksum:08x}"
    for slot in np.flatnonzero(fabric.tables.pkey.any(axis=1)).tolist():
        keys = fabric.tables.pkey[slot]
        facts["pkeys", fabric.port(slot).name] = " ".join(f"{key:#06x}" for key in keys[keys & _MEMBER > 0].tolist())


def _add_errors(facts: dict[Subject, str], reading: Reading) -> None:
    counts = np.where(reading.known, reading.counters, 0)[:, _ERRORS]
    for slot in np.flatnonzero(counts.any(axis=1)).tolist():
        values = zip(_ERRORS, counts[slot].tolist(), strict=True)
        facts["errors", reading.ports.name(slot)] = ", ".join(
            f"{each.name.lower()} {count}" for each, count in values if count
        )
