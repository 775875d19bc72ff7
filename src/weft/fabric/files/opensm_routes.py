"""OpenSM's dumps of unicast routes, opensm.fdbs and opensm-lfts.dump, into and out of a fabric's forwarding tables.

    dump_ucast_routes: Switch 0x1c34da0300728866        Unicast lids [0-5] of switch Lid 4 guid 0x1c34... ('leaf1'):
    LID    : Port : Hops : Optimal                      0x0001 001 # Channel Adapter portguid 0x...: 'h1 mlx5_0'
    0x0001 : 001  : 01   : yes                          0x0003 007 # Channel Adapter portguid 0x...: 'h3 mlx5_0'
    0x0002 : UNREACHABLE                                5 lids dumped

The second is also the output of `dump_fts` of infiniband-diags, but for the comments. A big subnet has millions of such
lines: LID and port are in fixed columns, and are read from there by whole arrays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.errors import FileError
from weft.fabric.files.subnet import Subnet
from weft.fabric.files.text import read_bytes
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE

_NO_PATH = 255  # hops if there is no path
_TYPES = {
    NodeKind.SWITCH: "Switch",
    NodeKind.HCA: "Channel Adapter",
    NodeKind.AGGREGATION: "Channel Adapter",
    NodeKind.ROUTER: "Router",
}
_HEX_DIGIT = np.full(256, 255, np.uint8)
_HEX_DIGIT[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_HEX_DIGIT[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The format of a routes file: `0x` and 4 digits of the LID, a gap, 3 digits of the port, a blank."""

    switch: re.Pattern[str]  # the line that begins the table of a switch, with its GUID
    between: re.Pattern[str]  # other lines that are not routes
    gap: bytes
    expected: str


_FDBS = _Form(
    switch=re.compile(r"\w*dump_ucast_routes: Switch 0x([0-9a-f]{1,16})"),
    between=re.compile(r"LID +: Port : Hops : Optimal"),
    gap=b" : ",
    expected="dump_ucast_routes: Switch 0x<guid>, or a route such as 0x0001 : 025  : 04   : yes",
)
_LFTS = _Form(
    switch=re.compile(r"Unicast lids \[.*\] of switch .*\bguid 0x([0-9a-f]{1,16}) .*"),
    between=re.compile(r"[0-9]+ (valid )?lids dumped|Lid +Out +Destination|Port +Info"),
    gap=b" ",
    expected="Unicast lids [0-9] of switch ... guid 0x<guid> ('name'):, or a route such as 0x0001 025 # ...",
)
_NO_ROUTE_TEXT = b"UNREACHABLE"
_NO_OWNER_TEXT = "unknown node and type"


def read_fdbs(path: Path, fabric: Fabric) -> None:
    """Fill a fabric's forwarding tables from an opensm.fdbs."""
    _Routes(path, _FDBS).fill(fabric)


def read_lfts(path: Path, fabric: Fabric) -> None:
    """Fill a fabric's forwarding tables from an opensm-lfts.dump, or from the output of dump_fts."""
    _Routes(path, _LFTS).fill(fabric)


class _Routes:
    def __init__(self, path: Path, form: _Form) -> None:
        self.path, self.form = path, form
        self.data = read_bytes(path)
        # pad the end of the file with line feeds, so that every line has all columns
        self.text = np.frombuffer(self.data + b"\n" * 32, np.uint8)
        self.ends = np.append(np.flatnonzero(self.text[: len(self.data)] == ord("\n")), len(self.data))
        self.starts = np.append(0, self.ends[:-1] + 1)

    def fill(self, fabric: Fabric) -> None:
        """Replace the tables of the fabric once the whole file has been read."""
        is_route = self.has_text(slice(None), 0, b"0x")
        lines = np.flatnonzero(is_route)
        lid, port = self.parse(lines)
        opens, rows = self.read_switches(fabric, np.flatnonzero(~is_route))
        if not len(lines):
            raise FileError(self.path, None, "no route", self.form.expected)
        table = np.searchsorted(opens, lines) - 1
        if table[0] < 0:
            self.refuse(lines[0], "a line with the switch before its routes")
        self.check_complete(fabric, rows)
        row = rows[table]
        last_port = fabric.nodes.n_ports[fabric.of_kind(NodeKind.SWITCH)][row]
        for wrong in np.flatnonzero((port != NO_ROUTE) & (port > last_port))[:1]:
            self.refuse(lines[wrong], f"a port of the switch, from 0 to {last_port[wrong]}")
        self.check_lids(fabric, lines[port != NO_ROUTE], lid[port != NO_ROUTE])
        columns = max(len(_lid_owners(fabric)), int(lid.max()) + 1)
        lft = np.full((len(fabric.of_kind(NodeKind.SWITCH)), columns), NO_ROUTE, np.uint8)
        lft[row, lid] = port
        for wrong in np.flatnonzero(lft[row, lid] != port)[:1]:
            self.refuse(lines[wrong], "one route for each LID of a switch; another line has a different one")
        fabric.tables.lft = lft

    def parse(self, lines: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the LID and port of each route."""
        gap = self.form.gap
        port_at = 6 + len(gap)
        lid, port = self.digits(lines, 2, 4, base=16), self.digits(lines, port_at, 3, base=10)
        unreachable = self.has_text(lines, port_at, _NO_ROUTE_TEXT)
        has_port = (port >= 0) & self.has_text(lines, port_at + 3, b" ")
        right = (lid >= 0) & self.has_text(lines, 6, gap) & (has_port | unreachable)
        for wrong in np.flatnonzero(~right)[:1]:
            self.refuse(lines[wrong], self.form.expected)
        return lid, np.where(unreachable, NO_ROUTE, port)

    def digits(self, lines: NDArray[np.intp], first: int, count: int, *, base: int) -> NDArray[np.int64]:
        """Return the number in these columns of each line, -1 if there is none."""
        value = np.zeros(len(lines), np.int64)
        for column in range(first, first + count):
            digit = _HEX_DIGIT[self.text[self.starts[lines] + column]]
            value = np.where((digit < base) & (value >= 0), value * base + digit, -1)
        return value

    def has_text(self, lines: NDArray[np.intp] | slice, first: int, text: bytes) -> NDArray[np.bool_]:
        """Return a mask of the lines that have this text at a column."""
        starts = self.starts[lines] + first
        matches = np.ones(len(starts), bool)
        for i, character in enumerate(text):
            matches &= self.text[starts + i] == character
        return matches

    def read_switches(self, fabric: Fabric, lines: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lines that begin the table of a switch, and the row of that switch."""
        switches = fabric.of_kind(NodeKind.SWITCH)
        row_of_guid = {guid: row for row, guid in enumerate(fabric.nodes.guid[switches].tolist())}
        opens, rows = [], []
        for index in lines.tolist():
            line = self.line(index)
            match = self.form.switch.fullmatch(line)
            if match:
                row = row_of_guid.get(int(match[1], 16))
                if row is None:
                    self.refuse(index, f"a switch of {fabric.spec}; it has none with that GUID")
                opens.append(index)
                rows.append(row)
            elif line and not self.form.between.fullmatch(line):
                self.refuse(index, self.form.expected)
        return np.array(opens, np.int64), np.array(rows, np.int64)

    def check_complete(self, fabric: Fabric, rows: NDArray[np.int64]) -> None:
        switches = fabric.of_kind(NodeKind.SWITCH)
        has_lid = fabric.tables.lid[fabric.first_port[switches]] > 0
        for row in np.setdiff1d(np.flatnonzero(has_lid), rows)[:1]:
            name = fabric.nodes.name[switches[row]]
            raise FileError(self.path, None, f"no table of {name}", "one for each switch that has a LID")

    def check_lids(self, fabric: Fabric, lines: NDArray[np.intp], lid: NDArray[np.int64]) -> None:
        owner = _lid_owners(fabric)
        has_owner = np.zeros(1 << 16, bool)
        has_owner[: len(owner)] = owner >= 0
        for index in lines[~has_owner[lid]].tolist():
            if _NO_OWNER_TEXT not in self.line(index):
                self.refuse(
                    index,
                    f"a LID of a port of {fabric.spec}; apply its guid2lid first, or use the opensm-subnet.lst of "
                    "the same run as the fabric",
                )

    def line(self, index: int) -> str:
        return self.data[self.starts[index] : self.ends[index]].decode("utf-8", "replace").strip()

    def refuse(self, index: int, expected: str) -> NoReturn:
        raise FileError(self.path, int(index) + 1, self.line(index), expected)


def _lid_owners(fabric: Fabric) -> NDArray[np.int64]:
    """Return the slot of the port that owns each LID, -1 for none."""
    lid, lmc = fabric.tables.lid, fabric.tables.lmc
    ports = np.flatnonzero(lid)
    top = int((lid[ports] + (1 << lmc[ports].astype(np.int64))).max(initial=1))
    owner = np.full(top, -1, np.int64)
    for port in ports[lmc[ports] > 0].tolist():
        owner[lid[port] : lid[port] + (1 << int(lmc[port]))] = port
    owner[lid[ports]] = ports
    return owner


def _switches(fabric: Fabric, subnet: Subnet) -> list[tuple[int, int]]:
    """Return the row in the forwarding tables and the node of each switch of the subnet."""
    visible = set(subnet.nodes)
    return [(row, node) for row, node in enumerate(fabric.of_kind(NodeKind.SWITCH).tolist()) if node in visible]


def lfts_text(fabric: Fabric) -> str:
    """Return the opensm-lfts.dump of a fabric's forwarding tables."""
    subnet = Subnet.of(fabric)
    lft = fabric.tables.lft
    top_lid = lft.shape[1] - 1
    port_text = [f"{port:03d} # " for port in range(256)]
    lid_text = [f"0x{lid:04x} " for lid in range(top_lid + 1)]
    owner_text = ["unknown node and type\n"] * (top_lid + 1)
    for lid, slot in enumerate(_lid_owners(fabric)[: top_lid + 1].tolist()):
        if slot >= 0:
            node = subnet.node[slot]
            port_owner = f"{_TYPES[subnet.kind[node]]} portguid 0x{subnet.port_guid[slot]:016x}"
            owner_text[lid] = f"{port_owner}: '{subnet.description[node]}'\n"
    parts = []
    for row, node in _switches(fabric, subnet):
        switch = f"switch Lid {subnet.lid[subnet.first_port[node]]} guid 0x{subnet.guid[node]:016x}"
        parts.append(f"Unicast lids [0-{top_lid}] of {switch} ('{subnet.description[node]}'):\n")
        lids = np.flatnonzero(lft[row] <= subnet.n_ports[node])
        for lid, port in zip(lids.tolist(), lft[row, lids].tolist(), strict=True):
            parts += (lid_text[lid], port_text[port], owner_text[lid])
        parts.append(f"{top_lid} lids dumped\n")
    return "".join(parts)


def fdbs_text(fabric: Fabric) -> str:
    """Return the opensm.fdbs of a fabric's forwarding tables.

    Hops count the following switches and the adapter. A route is optimal if no port of its switch leads there in fewer
    hops; otherwise the first such port is named.
    """
    subnet = Subnet.of(fabric)
    network = _Hops(fabric, subnet)
    lft = fabric.tables.lft
    owner = np.full(lft.shape[1], -1, np.int64)
    owners = _lid_owners(fabric)[: lft.shape[1]]
    owner[: len(owners)] = owners
    lid_text = [f"0x{lid:04X} : " for lid in range(lft.shape[1])]
    parts = []
    for row, node in _switches(fabric, subnet):
        parts.append(f"dump_ucast_routes: Switch 0x{subnet.guid[node]:016x}\nLID    : Port : Hops : Optimal\n")
        routes, index = np.unique(network.routes(row, lft[row, 1:], owner[1:]), return_inverse=True)
        tails = [_route_text(route) for route in routes.tolist()]
        parts += [lid + tails[i] for lid, i in zip(lid_text[1:], index.tolist(), strict=True)]
    return "".join(parts)


def _route_text(route: int) -> str:
    """Return a line without its LID."""
    port, hops, best, best_port = route.to_bytes(4, "big")
    if port == NO_ROUTE:
        return "UNREACHABLE\n"
    if hops >= _NO_PATH:
        return f"{port:03d}  : HOPS UNKNOWN\n"
    optimal = "yes" if hops == best else f"No {best} hop path possible via port {best_port}!"
    return f"{port:03d}  : {hops:02d}   : {optimal}\n"


class _Hops:
    """The distances from each port of each switch to each LID."""

    def __init__(self, fabric: Fabric, subnet: Subnet) -> None:
        switches = fabric.of_kind(NodeKind.SWITCH)
        row = fabric.tables.switch_row.astype(np.int64)[fabric.ports.node]  # [slot] -> row of its switch, -1 for others
        peer = np.array(subnet.peer, np.int64)
        self.beyond = np.where(peer >= 0, row[peer], -1)  # [slot] -> row of the switch at the other end, -1 for none
        self.is_adapter = row < 0  # [slot]
        self.at = np.where(self.is_adapter, self.beyond, row)  # [slot] -> row of the switch it is at, -1 for none
        self.first_port, self.n_ports = fabric.first_port[switches], np.array(subnet.n_ports)[switches]
        cable = np.flatnonzero((row >= 0) & (self.beyond >= 0))
        self.between = _switch_hops(len(switches), row[cable], self.beyond[cable])

    def routes(self, row: int, port: NDArray[np.uint8], owner: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return port, hops, fewest hops and the first port with those for each LID, packed into one number."""
        first = self.first_port[row]
        beyond = self.beyond[first : first + self.n_ports[row] + 1]
        through = np.full((256, len(self.between)), _NO_PATH, np.int64)  # [port, switch] -> hops
        numbers = np.flatnonzero(beyond >= 0)
        through[numbers] = np.minimum(self.between[beyond[numbers]].astype(np.int64) + 1, _NO_PATH)
        through[0, row] = 0
        at, is_adapter = self.at[owner], self.is_adapter[owner]
        hops = np.where(is_adapter & (at == row), 0, through[port, at]) + is_adapter
        best = self.between[row, at] + is_adapter
        best_port = 1 + through[1:].argmin(axis=0)[at]
        hops = np.where(at < 0, _NO_PATH, np.minimum(hops, _NO_PATH))
        route = port.astype(np.int64) << 24 | hops << 16 | np.minimum(best, _NO_PATH) << 8 | best_port
        return np.where((owner < 0) | (port == NO_ROUTE), NO_ROUTE << 24, route)


def _switch_hops(n: int, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[switch, switch] -> hops over links a-b, given in both directions; _NO_PATH if not connected.

    Breadth first from all switches at once: a row of bits for the nodes that each one reaches, joined over its links.
    """
    hops = np.full((n, n), _NO_PATH, np.int64)
    np.fill_diagonal(hops, 0)
    order = np.argsort(a, kind="stable")
    rows, starts = np.unique(a[order], return_index=True)
    reached = np.packbits(np.eye(n, dtype=bool), axis=1)
    for step in range(1, _NO_PATH):
        joined = reached.copy()
        if len(rows):
            joined[rows] |= np.bitwise_or.reduceat(reached[b[order]], starts, axis=0)
        new = np.unpackbits(joined ^ reached, axis=1, count=n).astype(bool)
        if not new.any():
            break
        hops[new] = step
        reached = joined
    return hops
