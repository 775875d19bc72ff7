"""Virtual lanes of paths, in the two formats that ibdmchk reads beside OpenSM's dumps. OpenSM writes neither.

    opensm.psl     0x0002c90300000100 17 1                   from a node to a LID, the service level   (ibdmchk -c)
    opensm.slvl    0x0002c90300001100 5 1 0x01 0x23 ... 0xef   in port, out port, VLs of SL 0 to 15    (ibdmchk -d)

ibdmchk has one service level for each node and LID: an adapter with ports on several switches gets that of the first.
The SL to VL tables of adapters have in port 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import FileError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.subnet import Subnet
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import SERVICE_LEVELS, lid_block

PATH_SL, SL2VL = "opensm.psl", "opensm.slvl"
_EXAMPLE_SL = "0x0002c90300000100 17 1"
_PATH_SL_LINE = re.compile(r"0x([0-9a-fA-F]{1,16})\s+(\d{1,5})\s+(\d{1,2})")
_SL2VL_LINE = re.compile(r"0x([0-9a-fA-F]{1,16})\s+(\d{1,3})\s+(\d{1,3})\s+((?:0x[0-9a-fA-F]{2} ?){8})")


def path_sl_text(fabric: Fabric) -> str:
    """Return a line for every path from a node to a LID of another."""
    subnet, tables = Subnet.of(fabric), fabric.tables
    owned = [(node, lid) for node in subnet.nodes for lid in _lids_of(subnet, node)]
    lids = [lid for _, lid in owned]
    lid_text = [(node, f" {lid} ") for node, lid in owned]
    parts = []
    for node in subnet.nodes:
        row = tables.switch_row[_switch_of(subnet, node)]
        if row < 0:
            continue  # an adapter that is cabled to another adapter, or not at all
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
    """Return the switch that first looks up a node's packets."""
    if subnet.kind[node] == NodeKind.SWITCH:
        return node
    return next((subnet.node[peer] for _, peer in subnet.cables(node)), node)


def sl2vl_text(fabric: Fabric) -> str:
    """Return the lines of port 0 and all cabled ports of switches, and of the cabled ports of adapters."""
    subnet, tables = Subnet.of(fabric), fabric.tables
    parts = []
    for node in subnet.nodes:
        name, is_switch = f"0x{subnet.guid[node]:016x}", subnet.kind[node] == NodeKind.SWITCH
        cabled = [subnet.number[slot] for slot, _ in subnet.cables(node)]
        in_ports, out_ports = ([0, *cabled], [0, *cabled]) if is_switch else ([0], cabled)
        for in_port in in_ports:
            rows = _pair_row(fabric, node, in_port) + np.array(out_ports, np.int64)
            for out_port, vls in zip(out_ports, tables.sl2vl[rows].tolist(), strict=True):
                pairs = " ".join(f"0x{vls[sl]:x}{vls[sl + 1]:x}" for sl in range(0, len(vls), 2))
                parts.append(f"{name} {in_port} {out_port} {pairs}\n")
    return "".join(parts)


def _pair_row(fabric: Fabric, node: int, in_port: int) -> int:
    """Return the row of the SL to VL tables that this in port begins at."""
    return int(fabric.tables.first_pair[node]) + in_port * (int(fabric.nodes.n_ports[node]) + 1)


def write_vls(fabric: Fabric, directory: Path) -> None:
    """Write both files into an existing directory, or remove older ones if the fabric has no SL to VL tables."""
    if "sl2vl" in vars(fabric.tables):
        write_atomically(directory / PATH_SL, path_sl_text(fabric))
        write_atomically(directory / SL2VL, sl2vl_text(fabric))
    else:
        for name in (PATH_SL, SL2VL):
            (directory / name).unlink(missing_ok=True)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_vls(directory: Path, fabric: Fabric) -> bool:
    """Fill service levels and SL to VL from both files; return False if the directory has neither.

    Service levels are stored by switch: hosts of one switch must agree. Without SL to VL tables the lanes are unknown.
    """
    paths, tables = directory / PATH_SL, directory / SL2VL
    present = [path.is_file() for path in (paths, tables)]
    if any(present) and not all(present):
        lone, missing = (paths, tables) if present[0] else (tables, paths)
        raise FileError(lone, None, f"no {missing.name} beside it", "both files: together they give the lane of a path")
    if not any(present):
        return False
    path_sl, sl2vl = _read_path_sl(paths, fabric), _read_sl2vl(tables, fabric)
    fabric.tables.path_sl, fabric.tables.sl2vl = path_sl, sl2vl
    return True


def _read_path_sl(path: Path, fabric: Fabric) -> NDArray[np.uint8]:
    subnet, tables = Subnet.of(fabric), fabric.tables
    row_of = {subnet.guid[node]: int(tables.switch_row[_switch_of(subnet, node)]) for node in subnet.nodes}
    unknown = 255
    levels = np.full_like(tables.lft, unknown)
    for number, line, (guid, lid, level) in _fields(
        path, _PATH_SL_LINE, f"a node GUID, a LID and an SL: {_EXAMPLE_SL}"
    ):
        row = _row(path, number, line, row_of, guid)
        to, sl = int(lid), int(level)
        if not (0 < to < levels.shape[1] and sl < SERVICE_LEVELS):
            raise FileError(path, number, line, f"a LID from 1 to {levels.shape[1] - 1} and an SL from 0 to 15")
        if levels[row, to] not in (unknown, sl):
            raise FileError(path, number, line, f"SL {levels[row, to]}, as for other nodes of the same switch")
        levels[row, to] = sl
    levels[levels == unknown] = 0
    return levels


def _read_sl2vl(path: Path, fabric: Fabric) -> NDArray[np.uint8]:
    subnet = Subnet.of(fabric)
    node_of = {subnet.guid[node]: node for node in subnet.nodes}
    sl2vl = np.zeros_like(fabric.tables.sl2vl)
    expected = "a node GUID, in port, out port and the VLs of SL 0 to 15 in 8 bytes"
    for number, line, (guid, in_port, out_port, vls) in _fields(path, _SL2VL_LINE, expected):
        node = _row(path, number, line, node_of, guid)
        last = int(fabric.nodes.n_ports[node])
        if int(in_port) > (last if subnet.kind[node] == NodeKind.SWITCH else 0) or int(out_port) > last:
            raise FileError(path, number, line, f"ports of the node, from 0 to {last}; in port 0 of an adapter")
        row = _pair_row(fabric, node, int(in_port)) + int(out_port)
        sl2vl[row] = [int(digit, 16) for digit in vls.replace("0x", "").replace(" ", "")]
    return sl2vl


def _fields(path: Path, form: re.Pattern[str], expected: str) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield number, text and fields of every line that is not empty."""
    for number, text in enumerate(read_text(path).split("\n"), 1):
        if line := text.strip():
            match = form.fullmatch(line)
            if match is None:
                raise FileError(path, number, line, expected)
            yield number, line, match.groups()


def _row(path: Path, number: int, line: str, row_of: dict[int, int], guid: str) -> int:
    row = row_of.get(int(guid, 16), -1)
    if row < 0:
        raise FileError(path, number, line, "the GUID of a node that is cabled to a switch of the fabric")
    return row
