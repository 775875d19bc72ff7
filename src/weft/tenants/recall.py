"""Remember ports: a host that is down keeps its name, and so its memberships.

A remembered name is dropped if the current fabric contradicts it:

    another port has the name now           the adapter was replaced: the old GUID has no owner
    the GUID has another name now           the adapter was moved or the host renamed
    no remembered port is present           another fabric with the same title: everything is forgotten

A less specific name is no contradiction: H-0002c90300000300 while a server boots, or h1 instead of h1/mlx5_1 while its
other adapters are down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.tenants.partitions import EndPort, Inventory

KnownPorts = Mapping[int, EndPort]  # by GUID, marked as down


def recall(now: Inventory, remembered: KnownPorts) -> Inventory:
    """Return the present ports with their remembered names, and the remembered ports that are down."""
    guids, names = {port.guid for port in now.ports}, {port.name for port in now.ports}
    if guids.isdisjoint(remembered) and guids:
        return now
    present = []
    for port in now.ports:
        old = remembered.get(port.guid)
        if old and old.name not in names and _is_less_specific(port, old):
            port = replace(port, name=old.name, host=old.host)
        present.append(port)
    names |= {port.name for port in present}
    down = (port for guid, port in remembered.items() if guid not in guids and port.name not in names)
    return replace(now, ports=(*present, *down))


def remember(inventory: Inventory) -> KnownPorts:
    """Return the ports to remember, marked as down."""
    return {
        port.guid: replace(port, is_there=False, is_active=False, lid=0) if port.is_there else port
        for port in inventory.ports
    }


def _is_less_specific(port: EndPort, old: EndPort) -> bool:
    if port.host == node_id(NodeKind.HCA, port.node_guid):  # the operating system sets the description after boot
        return True
    return port.host == old.host and port.name == f"{port.host}/{port.number}"
