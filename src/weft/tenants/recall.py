"""Ports that were there before: a host that is down keeps its name, so that it keeps its members.

A name is believed only as long as the fabric does not contradict it:

    the name is a present port's now        its card was replaced: the old GUID is nobody's
    the GUID is there by another name       it moved, or was renamed
    nobody of those known is there          it is another fabric, which is called the same: all of it is forgotten

A name that says less than before contradicts nothing: H-0002c90300000300 of a server that boots, and h1 of what was
h1/mlx5_1 until its other adapters went away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.tenants.partitions import EndPort, Inventory

KnownPorts = Mapping[int, EndPort]  # by GUID, as they are when they are gone


def recall(now: Inventory, known: KnownPorts) -> Inventory:
    """What is there, and those of `known` that are gone."""
    guids, names = {port.guid for port in now.ports}, {port.name for port in now.ports}
    if guids.isdisjoint(known) and guids:
        return now
    there = []
    for port in now.ports:
        old = known.get(port.guid)
        if old and old.name not in names and _says_less(port, old):
            port = replace(port, name=old.name, host=old.host)
        there.append(port)
    names |= {port.name for port in there}
    gone = (port for guid, port in known.items() if guid not in guids and port.name not in names)
    return replace(now, ports=(*there, *gone))


def remember(inventory: Inventory) -> KnownPorts:
    """What is to be known the next time."""
    return {
        port.guid: replace(port, is_there=False, is_active=False, lid=0) if port.is_there else port
        for port in inventory.ports
    }


def _says_less(port: EndPort, old: EndPort) -> bool:
    if port.host == node_id(NodeKind.HCA, port.node_guid):  # its operating system names an adapter, when it is up
        return True
    return port.host == old.host and port.name == f"{port.host}/{port.number}"
