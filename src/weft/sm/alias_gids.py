"""Alias GIDs: where routers lead to other subnets, each adapter port gets the GUID that is its LID, at index 1.

A router takes the DLID of a packet from such a GID (prefix, zeros, LID: NVIDIA's rule) without a query. The
permanent GUID stays at index 0, and programs may use either.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.kinds import NodeKind
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.smp import SmpAttribute

_GUID_BYTES, _ATTRIBUTE_BYTES = 8, 64


def upload_alias_gids(sender: Sender, view: View, contents: Known) -> list[str]:
    """Write the alias GUIDs that are missing or name an old LID; return the ports that refused."""
    if not adjacent_prefixes(view):
        return []
    fabric = view.fabric
    lid = fabric.tables.lid.astype(np.int64)
    due = (fabric.nodes.kind == NodeKind.HCA)[fabric.ports.node] & (lid > 0) & (fabric.ports.peer >= 0)
    due &= (column(view.port_info, PortInfo.guid_cap) > 1) & (contents.alias_lid != lid)
    slots = np.flatnonzero(due)
    if not len(slots):
        return []
    data = np.zeros((len(slots), _ATTRIBUTE_BYTES), np.uint8)
    guids = np.stack((fabric.ports.guid[slots], lid[slots].astype(np.uint64)), axis=1)
    data[:, : 2 * _GUID_BYTES] = guids.astype(">u8").view(np.uint8)
    _, took = sender.set(view.to_ports(slots), SmpAttribute.GUID_INFO, 0, data)
    contents.alias_lid[slots[took]] = lid[slots[took]]
    return [view.name(slot) for slot in slots[~took].tolist()]
