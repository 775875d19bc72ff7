"""Port GUIDs that several ports have, and which of these ports keeps its GUID.

A subnet manager keys LIDs and path records by port GUID, so of ports with the same one only one can be served. OpenSM
serves the port that it happens to discover first (ERR 0D15). Here the choice does not depend on where the manager
runs, except that its own port is never given up: without it the manager would have no subnet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.ids import Guid

NO_SLOT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGuid:
    """A port whose GUID belongs to another port. Names are those of ports; of a switch, that of the switch."""

    guid: Guid
    winner: str
    loser: str

    def __str__(self) -> str:
        return f"{self.loser} has the port GUID {self.guid} of {self.winner}"


def _end_ports(fabric: Fabric) -> NDArray[np.intp]:
    """Return the slots that have a port GUID of their own: port 0 of switches, plugged ports of other nodes."""
    ports = fabric.ports
    is_switch = fabric.nodes.kind[ports.node] == NodeKind.SWITCH
    is_end = np.isin(fabric.nodes.kind[ports.node], (NodeKind.HCA, NodeKind.ROUTER, NodeKind.AGGREGATION))
    return np.flatnonzero(np.where(is_switch, ports.number == 0, is_end & (ports.peer >= 0)))


def duplicate_guids(fabric: Fabric, own_slot: int = NO_SLOT) -> list[tuple[int, DuplicateGuid]]:
    """Return each port that loses its GUID, with its slot (port 0 of a switch).

    The port at `own_slot` keeps its GUID; else that of the node with the lowest node GUID, its lowest port first.
    """
    slots = _end_ports(fabric)
    guids = fabric.ports.guid[slots]
    values, counts = np.unique(guids[guids > 0], return_counts=True)
    duplicates = []
    for guid in values[counts > 1].tolist():
        owners = sorted(slots[guids == guid].tolist(), key=lambda slot: _rank(fabric, slot, own_slot))
        names = [_name(fabric, slot) for slot in owners]
        duplicates += [
            (slot, DuplicateGuid(guid=Guid(guid), winner=names[0], loser=name))
            for slot, name in zip(owners[1:], names[1:], strict=True)
        ]
    return duplicates


def _rank(fabric: Fabric, slot: int, own_slot: int) -> tuple[bool, int, int]:
    return slot != own_slot, int(fabric.nodes.guid[fabric.ports.node[slot]]), slot


def _name(fabric: Fabric, slot: int) -> str:
    port = fabric.port(slot)
    return port.node.name if port.node.kind is NodeKind.SWITCH else port.name
