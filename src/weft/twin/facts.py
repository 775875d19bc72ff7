"""The facts of a subnet that a history follows: nodes, links, LIDs, routes, partitions, manager and errors."""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.fabric.tables import NO_ROUTE
from weft.ids import Guid
from weft.monitor.columns import Column
from weft.monitor.poll import Reading
from weft.twin.history import Subject
from weft.wire.bulk import column
from weft.wire.port_info import Capability, PortInfo

_ERRORS = (
    Column.SYMBOL_ERROR,
    Column.LINK_ERROR_RECOVERY,
    Column.LINK_DOWNED,
    Column.PORT_RCV_ERRORS,
    Column.PORT_XMIT_DISCARDS,
)
Facts = dict[Subject, str]
_MEMBER = 0x7FFF  # P_Key 0 is an empty entry


def read_facts(fabric: Fabric) -> Facts:
    """Return the facts of a subnet; files may have no forwarding tables and no P_Keys, a subnet has them."""
    nodes = fabric.nodes
    facts: Facts = {
        ("node", name): f"{NodeKind(kind).name.lower()} {Guid(guid)}"
        for name, kind, guid in zip(nodes.name, nodes.kind.tolist(), nodes.guid.tolist(), strict=True)
    }
    names = _port_names(fabric)
    links = fabric.links
    for a, b, speed, width in zip(
        *(each.tolist() for each in (links.a, links.b, links.speed, links.width)), strict=True
    ):
        label = _label(speed, width)
        facts["link", names[a]] = f"{names[b]} {label}"
        facts["link", names[b]] = f"{names[a]} {label}"
    _add_tables(facts, fabric, names)
    return facts


def _port_names(fabric: Fabric) -> list[str]:
    """Return the names of all ports: objects of each would take most of the time of a poll."""
    nodes = fabric.nodes.name
    return [
        f"{nodes[node]}/{number}"
        for node, number in zip(fabric.ports.node.tolist(), fabric.ports.number.tolist(), strict=True)
    ]


@lru_cache(maxsize=64)
def _label(speed: int, width: int) -> str:
    return speeds()[speed].label(width)


def _add_tables(facts: Facts, fabric: Fabric, names: list[str]) -> None:
    tables = fabric.tables
    lids = column(tables.port_info, PortInfo.lid)
    facts.update({("lid", names[slot]): str(lids[slot]) for slot in np.flatnonzero(lids).tolist()})
    facts.update({("manager", node): text for node, text in find_managers(fabric).items()})
    if "lft" in vars(tables):
        _add_routes(facts, fabric)
    if "pkey" in vars(tables):
        _add_keys(facts, fabric, names)


def _add_routes(facts: Facts, fabric: Fabric) -> None:
    tables = fabric.tables
    for row, node in enumerate(fabric.of_kind(NodeKind.SWITCH).tolist()):
        table = tables.lft[row]
        routes = np.flatnonzero(table != NO_ROUTE)
        checksum = zlib.crc32(table[: routes[-1] + 1].tobytes()) if len(routes) else 0
        facts["routes", fabric.nodes.name[node]] = f"{len(routes)} LIDs, checksum {checksum:08x}"


def _add_keys(facts: Facts, fabric: Fabric, names: list[str]) -> None:
    tables = fabric.tables
    texts: dict[bytes, str] = {}  # few ports have keys of their own
    for slot in np.flatnonzero(tables.pkey.any(axis=1)).tolist():
        row = tables.pkey[slot].tobytes()
        if row not in texts:
            keys = tables.pkey[slot]
            texts[row] = " ".join(f"{key:#06x}" for key in keys[keys & _MEMBER > 0].tolist())
        facts["pkeys", names[slot]] = texts[row]


def find_managers(fabric: Fabric) -> dict[str, str]:
    """Return the nodes with a subnet manager: the master of some port, or a port with IsSM."""
    infos = fabric.tables.port_info
    fields = (PortInfo.lid, PortInfo.master_sm_lid, PortInfo.capability_mask)
    lids, masters, abilities = (column(infos, field).astype(np.int64) for field in fields)
    managers = {}
    for slot in np.flatnonzero((abilities & Capability.IS_SM > 0) & (lids > 0)).tolist():
        managers[fabric.port(slot).node.name] = f"LID {lids[slot]}, not the master"
    for lid in np.unique(masters[masters > 0]).tolist():
        ports = np.flatnonzero(lids == lid)
        name = fabric.port(int(ports[0])).node.name if len(ports) else f"LID {lid}"
        managers[name] = f"LID {lid}"
    return managers


def error_facts(reading: Reading) -> Facts:
    """Return the facts of counters: those of errors that are not zero."""
    counts = np.where(reading.known, reading.counters, 0)[:, _ERRORS]
    facts = {}
    for slot in np.flatnonzero(counts.any(axis=1)).tolist():
        values = zip(_ERRORS, counts[slot].tolist(), strict=True)
        facts["errors", reading.ports.name(slot)] = ", ".join(
            f"{each.name.lower()} {count}" for each, count in values if count
        )
    return facts
