"""Cables done wrongly on purpose, and the actions of an audit carried out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.plan.audit.findings import Audit, Do
from weft.plan.audit.identity import cables

Cables = dict[frozenset[str], str]  # ports -> speed


def cables_of(fabric: Fabric) -> Cables:
    rows = fabric.links.take(cables(fabric))
    node, number = fabric.ports.node.tolist(), fabric.ports.number.tolist()

    def name(slot: int) -> str:
        return f"{fabric.nodes.name[node[slot]]}/{number[slot]}"

    columns = (rows.a.tolist(), rows.b.tolist(), rows.speed.tolist(), rows.width.tolist())
    return {
        frozenset((name(a), name(b))): speeds()[speed].label(width) for a, b, speed, width in zip(*columns, strict=True)
    }


def exchange(fabric: Fabric, *ports: str) -> Fabric:
    """Move the plug of each port into the next port, that of the last into the first."""
    slots = np.array([fabric.find_port(port).slot for port in ports])
    assert (fabric.ports.peer[slots[:-1]] >= 0).all()
    into = np.arange(len(fabric.ports))
    into[slots] = np.roll(slots, -1)
    return fabric.with_links(replace(fabric.links, a=into[fabric.links.a], b=into[fabric.links.b]))


def plug(fabric: Fabric, one: str, other: str) -> Fabric:
    """Add a cable of the kind of the first link."""
    ends = fabric.find_port(one).slot, fabric.find_port(other).slot
    assert (fabric.ports.peer[list(ends)] < 0).all()
    links = fabric.links.take(np.r_[np.arange(len(fabric.links)), 0])
    a, b = links.a.copy(), links.b.copy()
    a[-1], b[-1] = ends
    return fabric.with_links(replace(links, a=a, b=b))


def renamed(fabric: Fabric, names: dict[str, str]) -> Fabric:
    name = tuple(names.get(item, item) for item in fabric.nodes.name)
    return replace(fabric, nodes=replace(fabric.nodes, name=name, description=name))


def free_ports(fabric: Fabric) -> np.ndarray:
    """Return the slots of free switch ports."""
    of_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    return np.flatnonzero(of_switch & (fabric.ports.number > 0) & (fabric.ports.peer < 0))


def carry_out(audit: Audit, found: Fabric, plan: Fabric) -> Cables:
    """Return the cables of FOUND after the steps of the walk: all plugs are pulled, then all are plugged in."""
    present, planned = cables_of(found), cables_of(plan)
    at = {port: cable for cable in present for port in cable}
    pulled, plugged = [], {}
    for number, action in audit.walk():
        own = [frozenset(ends) for ends in audit.findings[number - 1].cables]
        if action.do is Do.MOVE:
            pulled.append(at[action.at])
            plugged[at[action.at] - {action.at} | {action.to}] = present[at[action.at]]
        elif action.do in (Do.PULL, Do.REMOVE):
            pulled += own if action.do is Do.REMOVE else [frozenset((action.at, action.to))]
        elif action.do in (Do.PLUG, Do.INSTALL):
            new = own if action.do is Do.INSTALL else [frozenset((action.at, action.to))]
            plugged |= {cable: planned[cable] for cable in new}
    for cable in pulled:
        del present[cable]
    assert not present.keys() & plugged.keys()
    present |= plugged
    for _, action in audit.walk():
        if action.do is Do.REPLACE:
            present[frozenset((action.at, action.to))] = planned[frozenset((action.at, action.to))]
    return present
