"""Which virtual lanes paths take, in the two forms that ibdmchk reads beside OpenSM's dumps. OpenSM dumps neither.

    opensm.psl     0x0002c90300000100 17 1                   from a node to a LID, the service level   (ibdmchk -c)
    opensm.slvl    0x0002c90300001100 5 1 0x01 0x23 ... 0xef   in port, out port, VLs of SL 0 to 15    (ibdmchk -d)

ibdmchk knows one service level for each node and LID: an adapter with ports on several switches gets its first one's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.subnet import Subnet
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import lid_block


def path_sl_text(fabric: Fabric) -> str:
    """Of every path from a node to a LID of another."""
    subnet, tables = Subnet.of(fabric), fabric.tables
    owned = [(node, lid) for node in subnet.nodes for lid in _lids_of(subnet, node)]
    lids = [lid for _, lid in owned]
    lid_text = [(node, f" {lid} ") for node, lid in owned]
    parts = []
    for node in subnet.nodes:
        row = tables.switch_row[_switch_of(subnet, node)]
        if row < 0:
            continue  # an adapter that is plugged into another adapter, or into nothing
        name = f"0x{subnet.guid[node]:016x}"
        levels = tables.path_sl[row, lids].tolist()
        parts += [
            f"{name}{text}{level}\n" for (other, text), level in zip(lid_text, levels, strict=True) if other != node
        ]
    return "".join(parts)


def _lids_of(subnet: Subnet, node: int) -> list[int]:
    slots = {subnet.lid_slot(slot) for slot, _ in subnet.cables(node)}
    return [lid for slot in sorted(slots) if subnet.lid[slot] for lid in lid_block(subnet.lid[slot], subnet.lmc[slot])]


def _switch_of(subnet: Subnet, node: int) -> int:
    """Where its packets are first looked up in a table."""
    if subnet.kind[node] == NodeKind.SWITCH:
        return node
    return next((subnet.node[peer] for _, peer in subnet.cables(node)), node)


def sl2vl_text(fabric: Fabric) -> str:
    """Of every switch, for the ports that have a cable, and port 0."""
    subnet, tables = Subnet.of(fabric), fabric.tables
    parts = []
    for node in subnet.nodes:
        if subnet.kind[node] != NodeKind.SWITCH:
            continue
        name, width = f"0x{subnet.guid[node]:016x}", int(fabric.nodes.n_ports[node]) + 1
        ports = [0, *(subnet.number[slot] for slot, _ in subnet.cables(node))]
        first = int(tables.first_pair[node])
        for in_port in ports:
            rows = first + in_port * width + np.array(ports)
            for out_port, vls in zip(ports, tables.sl2vl[rows].tolist(), strict=True):
                pairs = " ".join(f"0x{vls[sl]:x}{vls[sl + 1]:x}" for sl in range(0, len(vls), 2))
                parts.append(f"{name} {in_port} {out_port} {pairs}\n")
    return "".join(parts)


def write_vls(fabric: Fabric, directory: Path) -> None:
    """Write both files into a directory that exists, each whole or not at all."""
    write_atomically(directory / "opensm.psl", path_sl_text(fabric))
    write_atomically(directory / "opensm.slvl", sl2vl_text(fabric))
