"""Output of ibdiagnet 2, `ibdiagnet2.db_csv`: tables of CSV between START_ and END_ lines, each with a line of names.

    START_LINKS
    NodeGuid1,PortNum1,NodeGuid2,PortNum2
    0x0002c90300000100,1,0x0002c90300000301,1
    END_LINKS

    NODES    NodeDesc, NumPorts, NodeType, SystemImageGUID, NodeGUID, DeviceID, VendorID
    PORTS    NodeGuid, PortGuid, PortNum, LID, LMC, LinkWidthActv, LinkSpeedActv, MSMLID, CapMsk
    LINKS    a cable once
    PM_INFO  NodeGUID, PortNumber and counters (`read_errors`); absent without `--pc` or in files of discovery alone

Columns are found by their names, since versions of ibdiagnet have different ones; other tables are skipped. Numbers are
decimal or 0x. LinkSpeedActv has a byte for each field of PortInfo: LinkSpeed, LinkSpeedExt, Mellanox's (FDR10), and
LinkSpeedExt2. The routes of the same run, `ibdiagnet2.fdbs`, are read as those of OpenSM.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import FileError
from weft.fabric.files.discovered import Claim, Discovery, NodeRecord, PortRecord
from weft.fabric.files.naming import adapter_kind
from weft.fabric.files.subnet import Subnet
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import parse_label
from weft.wire.bulk import fill
from weft.wire.port_info import LANES, WIDTHS, LinkSpeed, PortInfo, join_speeds, split_speeds

_BORDER = re.compile(r"(START|END)_([A-Z0-9_]+)")
_KINDS = {1: NodeKind.HCA, 2: NodeKind.SWITCH, 3: NodeKind.ROUTER}
_TYPES = {NodeKind.HCA: 1, NodeKind.AGGREGATION: 1, NodeKind.SWITCH: 2, NodeKind.ROUTER: 3}
_NEEDED = {
    "NODES": ("NodeDesc", "NumPorts", "NodeType", "NodeGUID"),
    "PORTS": ("NodeGuid", "PortGuid", "PortNum", "LID"),
    "LINKS": ("NodeGuid1", "PortNum1", "NodeGuid2", "PortNum2"),
    "PM_INFO": ("NodeGUID", "PortNumber"),
}
_LARGEST_GUID = 1 << 64
_MISSING = ("", "N/A", "NA")
ERRORS = {  # names of counters in `weft follow`, and the columns that have them; the widest first
    "symbol_error": ("SymbolErrorCounterExt", "SymbolErrorCounter"),
    "link_error_recovery": ("LinkErrorRecoveryCounterExt", "LinkErrorRecoveryCounter"),
    "link_downed": ("LinkDownedCounterExt", "LinkDownedCounter"),
    "port_rcv_errors": ("PortRcvErrorsExt", "PortRcvErrors"),
    "port_xmit_discards": ("PortXmitDiscardsExt", "PortXmitDiscards"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table, by the names of its columns."""

    path: Path
    line: int
    text: str
    values: Mapping[str, str]

    def number(self, name: str, *, most: int = _LARGEST_GUID - 1, otherwise: int | None = None) -> int:
        """Return a number; `otherwise` if the column is missing or not available."""
        text = self.values.get(name, "")
        if text in _MISSING and otherwise is not None:
            return otherwise
        try:
            value = int(text, 0)
        except ValueError:
            value = -1
        if not 0 <= value <= most:
            raise FileError(self.path, self.line, self.text, f"{name} as a number from 0 to {most:,}, not {text!r}")
        return value


def read_tables(path: Path, lines: Sequence[str], names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of some tables of a db_csv; raise FileError if it is damaged."""
    tables: dict[str, list[Row]] = {}
    name, began, header = "", 0, None
    for number, line in enumerate(lines, 1):
        border = _BORDER.fullmatch(line.strip())
        if border is not None:
            if (border[1] == "START") == bool(name) or (border[1] == "END" and border[2] != name):
                raise FileError(path, number, line, f"END_{name} for line {began}" if name else "START_ of a table")
            if border[1] == "START" and border[2] in tables:
                raise FileError(path, number, line, "each table once")
            name, began, header = (border[2], number, None) if border[1] == "START" else ("", 0, None)
            if name:
                tables[name] = []
        elif name in names and line.strip():
            values = next(csv.reader([line], skipinitialspace=True))
            if header is None:
                header = _check_header(path, number, line, name, values)
                continue
            if len(values) != len(header):
                raise FileError(path, number, line, f"{len(header)} values for the names of {name}, not {len(values)}")
            row = dict(zip(header, (value.strip() for value in values), strict=True))
            tables[name].append(Row(path=path, line=number, text=line, values=row))
    if name:
        raise FileError(path, began, lines[began - 1], f"END_{name} before the end of the file")
    return tables


def _check_header(path: Path, number: int, line: str, name: str, values: list[str]) -> list[str]:
    header = [value.strip() for value in values]
    missing = [column for column in _NEEDED[name] if column not in header]
    if missing:
        raise FileError(path, number, line, f"the names of {name}, with {', '.join(missing)}")
    return header


def read(path: Path) -> Fabric:
    """Return the fabric of an ibdiagnet2.db_csv."""
    lines = read_text(path).split("\n")
    tables = read_tables(path, lines, ("NODES", "PORTS", "LINKS"))
    for name in ("NODES", "PORTS", "LINKS"):
        if not tables.get(name):
            raise FileError(path, None, f"no table {name}", "NODES, PORTS and LINKS, as ibdiagnet 2 writes them")
    nodes, index = _read_nodes(tables["NODES"])
    ports, rates = _read_ports(tables["PORTS"], nodes, index)
    claims = list(_read_links(tables["LINKS"], index, rates))
    fabric = Discovery(path=path, lines=lines, nodes=nodes, ports=ports, claims=claims).build()
    _fill_port_info(fabric, tables["PORTS"], index)
    return fabric


def _read_nodes(rows: list[Row]) -> tuple[list[NodeRecord], dict[int, int]]:
    """Return the nodes, and their index by GUID."""
    nodes: list[NodeRecord] = []
    index: dict[int, int] = {}
    for row in rows:
        kind = _KINDS.get(row.number("NodeType"))
        if kind is None:
            raise FileError(row.path, row.line, row.text, "a NodeType of 1 (adapter), 2 (switch) or 3 (router)")
        device_id = row.number("DeviceID", most=0xFFFF, otherwise=0)
        description, guid = row.values["NodeDesc"], row.number("NodeGUID")
        nodes.append(
            NodeRecord(
                line=row.line,
                kind=adapter_kind(device_id, description) if kind == NodeKind.HCA else kind,
                n_ports=row.number("NumPorts", most=254),
                guid=guid,
                description=description,
                vendor_id=row.number("VendorID", most=0xFF_FFFF, otherwise=0),
                device_id=device_id,
                system_guid=row.number("SystemImageGUID", otherwise=0),
            )
        )
        if guid in index:
            raise FileError(row.path, row.line, row.text, f"another NodeGUID: that of line {nodes[index[guid]].line}")
        index[guid] = len(nodes) - 1
    return nodes, index


def _find(row: Row, column: str, index: Mapping[int, int]) -> int:
    node = index.get(row.number(column))
    if node is None:
        raise FileError(row.path, row.line, row.text, f"a {column} that NODES has")
    return node


def _read_ports(
    rows: list[Row], nodes: list[NodeRecord], index: Mapping[int, int]
) -> tuple[list[PortRecord], dict[tuple[int, int], str]]:
    """Return the ports that may have a LID, and the rate of each port."""
    ports, rates = [], {}
    for row in rows:
        node, number = _find(row, "NodeGuid", index), row.number("PortNum", most=254)
        if number > nodes[node].n_ports:
            raise FileError(row.path, row.line, row.text, f"a PortNum of at most {nodes[node].n_ports}")
        if (node, number) in rates:
            raise FileError(row.path, row.line, row.text, "each port once")
        rates[node, number] = _rate(row)
        if (number == 0) == (nodes[node].kind == NodeKind.SWITCH):
            guid, lid = row.number("PortGuid"), row.number("LID", most=0xFFFF)
            ports.append(PortRecord(node, number, guid, lid, row.number("LMC", most=7, otherwise=0), row.line))
    return ports, rates


def _rate(row: Row) -> str:
    """Return `4xHDR`; empty if the port is down, or the columns are missing."""
    width, speeds = row.number("LinkWidthActv", otherwise=0), row.number("LinkSpeedActv", otherwise=0)
    slow, ext, vendor, ext2 = (speeds >> shift & 0xFF for shift in (0, 8, 16, 24))
    speed = LinkSpeed.highest(join_speeds(slow, ext, ext2, vendor))
    return f"{LANES[width]}x{speed.name}" if width in LANES and speed else ""


def _read_links(rows: list[Row], index: Mapping[int, int], rates: Mapping[tuple[int, int], str]) -> Iterator[Claim]:
    for row in rows:
        ends = [(_find(row, f"NodeGuid{end}", index), row.number(f"PortNum{end}", most=254)) for end in (1, 2)]
        labels = [rates.get(end, "") for end in ends]
        if all(labels) and labels[0] != labels[1]:
            raise FileError(row.path, row.line, row.text, f"ends of one rate in PORTS, not {' and '.join(labels)}")
        yield *ends[0], *ends[1], labels[0] or labels[1], row.line


def _fill_port_info(fabric: Fabric, rows: list[Row], index: Mapping[int, int]) -> None:
    """Set the subnet manager's LID and the capabilities of ports, which say where subnet managers are."""
    slots = [int(fabric.first_port[index[row.number("NodeGuid")]]) + row.number("PortNum") for row in rows]
    info = fabric.tables.port_info[slots]
    fill(info, PortInfo.master_sm_lid, np.array([row.number("MSMLID", most=0xFFFF, otherwise=0) for row in rows]))
    fill(info, PortInfo.capability_mask, np.array([_capabilities(row) for row in rows]))
    fabric.tables.port_info[slots] = info


def _capabilities(row: Row) -> int:
    return row.number("CapMsk", most=0xFFFF_FFFF, otherwise=0)


def read_errors(path: Path, fabric: Fabric) -> dict[str, dict[str, int]]:
    """Return the error counters that are not zero by port; none if the file has no counters."""
    tables = read_tables(path, read_text(path).split("\n"), ("PM_INFO",))
    index = {guid: node for node, guid in enumerate(fabric.nodes.guid.tolist())}
    errors = {}
    for row in tables.get("PM_INFO", []):
        node, number = _find(row, "NodeGUID", index), row.number("PortNumber", most=254)
        counts = {name: _count(row, columns) for name, columns in ERRORS.items()}
        if any(counts.values()):
            errors[f"{fabric.nodes.name[node]}/{number}"] = {name: count for name, count in counts.items() if count}
    return errors


def _count(row: Row, columns: tuple[str, ...]) -> int:
    for column in columns:
        if row.values.get(column, "") not in _MISSING:
            return row.number(column)
    return 0


# -- writing ----------------------------------------------------------------------------------------------------------


def to_text(fabric: Fabric) -> str:
    """Return the tables NODES, PORTS and LINKS that ibdiagnet would write for the InfiniBand part of a fabric."""
    subnet = Subnet.of(fabric)
    parts = ["# This database file was written by weft in the format of ibdiagnet 2\n"]
    for name, header, rows in (
        ("NODES", _NODES, _node_rows(subnet)),
        ("PORTS", _PORTS, _port_rows(subnet)),
        ("LINKS", _NEEDED["LINKS"], _link_rows(subnet)),
    ):
        lines = (",".join(map(str, row)) for row in rows)
        parts.append("\n".join((f"\nSTART_{name}", ",".join(header), *lines, f"END_{name}\n")))
    return "".join(parts)


_NODES = ("NodeDesc", "NumPorts", "NodeType", "SystemImageGUID", "NodeGUID", "PortGUID", "DeviceID", "VendorID")
_PORTS = ("NodeGuid", "PortGuid", "PortNum", "LID", "LMC", "LinkWidthActv", "LinkSpeedActv")


def _node_rows(subnet: Subnet) -> Iterator[tuple[object, ...]]:
    for node in subnet.nodes:
        description = subnet.description[node].replace('"', '""')
        ids = (_guid(subnet.system_guid[node]), _guid(subnet.guid[node]), _guid(subnet.own_port_guid(node)))
        kind = _TYPES[subnet.kind[node]]
        yield f'"{description}"', subnet.n_ports[node], kind, *ids, subnet.device_id[node], subnet.vendor_id[node]


def _port_rows(subnet: Subnet) -> Iterator[tuple[object, ...]]:
    for node in subnet.nodes:
        is_switch, first = subnet.kind[node] == NodeKind.SWITCH, subnet.first_port[node]
        for slot in range(first + (not is_switch), first + subnet.n_ports[node] + 1):
            own = subnet.lid_slot(slot)
            ids = (_guid(subnet.guid[node]), _guid(subnet.port_guid[slot]), subnet.number[slot])
            yield *ids, subnet.lid[own], subnet.lmc[own], *_codes(subnet.rate[slot])


def _codes(rate: str) -> tuple[int, int]:
    """Return LinkWidthActv and LinkSpeedActv of `4xHDR`."""
    if not rate:
        return 0, 0
    speed, lanes = parse_label(rate)
    slow, ext, ext2, vendor = split_speeds(LinkSpeed.called(speed.name))
    return int(WIDTHS[lanes]), slow | ext << 8 | vendor << 16 | ext2 << 24


def _link_rows(subnet: Subnet) -> Iterator[tuple[object, ...]]:
    for node in subnet.nodes:
        for slot, peer in subnet.cables(node):
            if slot < peer:
                far = subnet.node[peer]
                yield _guid(subnet.guid[node]), subnet.number[slot], _guid(subnet.guid[far]), subnet.number[peer]


def _guid(value: int) -> str:
    return f"0x{value:016x}"
