"""The cables that a fabric should have: those of a plan, and those that earlier polls saw.

    cabling = cabling_of(fabric)              or `Cabling(...)` with port names, from a lab for example
    cabling = cabling.updated(now)            after each walk: add new cables, drop old cables of recabled ports
    cabling.missing(now)                      expected cables that are absent

Cables are pairs of port names, so that a plan without GUIDs can be used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric

Cable = tuple[str, str]  # names of its ports, in alphabetical order
_CABLED = (NodeKind.SWITCH, NodeKind.HCA, NodeKind.ROUTER)


@dataclass(frozen=True, kw_only=True)
class Cabling:
    """A set of cables by port names, and the names of the switches."""

    cables: frozenset[Cable] = field(default_factory=frozenset)
    switches: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Return the names of all nodes at cables."""
        return frozenset(node_of(end) for cable in self.cables for end in cable)

    def updated(self, now: Cabling) -> Cabling:
        """Return this cabling with the cables of `now`, and without others of the same ports."""
        used_ports = {end for cable in now.cables for end in cable}
        absent = {cable for cable in self.cables - now.cables if not used_ports.intersection(cable)}
        return Cabling(cables=now.cables | absent, switches=self.switches | now.switches)

    def missing(self, now: Cabling) -> list[Cable]:
        """Return the cables that are not in `now`, in the parts of this cabling that `now` belongs to.

        A plan may have several subnets, of which a poller sees one.
        """
        if self.cables <= now.cables:
            return []
        index = {name: i for i, name in enumerate(self.nodes)}
        a, b = np.array([(index[node_of(near)], index[node_of(far)]) for near, far in self.cables]).T
        part = components(len(index), a, b)
        parts_present = {int(part[index[name]]) for name in now.nodes if name in index}
        return sorted(
            cable for cable in self.cables - now.cables if int(part[index[node_of(cable[0])]]) in parts_present
        )


def cabling_of(fabric: Fabric) -> Cabling:
    """Return the network cables of a fabric."""
    kinds = fabric.nodes.kind
    a, b = fabric.link_nodes
    links = np.flatnonzero(fabric.network_links & np.isin(kinds[a], _CABLED) & np.isin(kinds[b], _CABLED))
    ends = zip(fabric.links.a[links].tolist(), fabric.links.b[links].tolist(), strict=True)
    return Cabling(
        cables=frozenset(cable(fabric.port(near).name, fabric.port(far).name) for near, far in ends),
        switches=frozenset(fabric.nodes.name[node] for node in fabric.of_kind(NodeKind.SWITCH).tolist()),
    )


def cable(near: str, far: str) -> Cable:
    """Return the cable between two ports."""
    return (near, far) if near < far else (far, near)


def node_of(port: str) -> str:
    """Return the node of a port's name: `leaf1` of `leaf1/5`."""
    return port.rpartition("/")[0]
