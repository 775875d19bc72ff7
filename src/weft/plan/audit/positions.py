"""A plan to audit against: its cables and the positions of its devices.

read_plan("plan/")              the folder that `weft plan` wrote: its cables.csv, or else its fabric.yaml
read_plan("plan/cables.csv")    a cable schedule: racks and heights of both ends
read_plan("site.ndt")           a plan of UFM; in the long form it has racks and heights too
read_today("plan/")             the fabric of a plan that was built, to grow it
read_plan("superpod:su=1")      any file or topology that weft reads, without positions
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.build import MAX_PORTS, FabricBuilder
from weft.fabric.files import ndt
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import parse_label
from weft.fabric.spec import load

_COLUMNS = ("port_a", "rack_a", "u_a", "port_b", "rack_b", "u_b", "speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    fabric: Fabric
    positions: Mapping[str, Position] = field(default_factory=dict)  # by server, or by switch


def read_plan(source: str) -> Planned:
    path = Path(source)
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".csv" and path.is_file() and (planned := _read_schedule(path)) is not None:
        return planned
    fabric = load(source)
    return Planned(fabric=fabric, positions=_read_racks(path) if _is_ndt(path) else {})


def read_today(source: str) -> Planned:
    """Read the built fabric: from the folder of a plan its fabric with the plan's spec, else as `read_plan`."""
    folder = Path(source)
    if not (folder / "fabric.yaml").is_file():
        return read_plan(source)
    fabric, plan = load(str(folder / "fabric.yaml")), folder / "plan.json"
    if plan.is_file():
        try:
            fabric = replace(fabric, spec=str(json.loads(read_text(plan))["spec"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(plan, None, str(error), "a file that `weft plan` wrote") from None
    positions = read_plan(source).positions if (folder / "cables.csv").is_file() else {}
    return Planned(fabric=fabric, positions=positions)


def _is_ndt(path: Path) -> bool:
    return path.suffix in (".ndt", ".csv") and path.is_file()


def _read_racks(path: Path) -> dict[str, Position]:
    """Return positions from UFM's long form: rack and height of the start, location of the end (`B07-U40` or text)."""
    positions: dict[str, Position] = {}
    for _, row in ndt.rows(path):
        if row.get("rack #"):
            positions[_box(row["StartDevice"])] = Position(row["rack #"], _height(row.get("U height", "")))
        if row.get("EndDeviceLocation"):
            rack, _, unit = row["EndDeviceLocation"].rpartition("-U")
            is_unit = rack and unit.isascii() and unit.isdecimal()
            where = (
                Position(rack, int(unit))
                if is_unit
                else Position(row["EndDeviceLocation"], _height(row.get("U height_1", "")))
            )
            positions.setdefault(_box(row["EndDevice"]), where)
    return positions


def _box(device: str) -> str:
    """Return the server of a device column with an adapter: `dgx1` of `dgx1 mlx5_0`."""
    return device.split()[0]


def _height(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _read_folder(folder: Path) -> Planned:
    for name in ("cables.csv", "fabric.yaml"):
        if (folder / name).is_file():
            return read_plan(str(folder / name))
    raise ConfigError(f"{folder} is not the folder of a plan; it has neither cables.csv nor fabric.yaml")


@dataclass(slots=True)
class _Schedule:
    """The contents of a cable schedule."""

    last_port: dict[str, int] = field(default_factory=dict)  # by node
    positions: dict[str, Position] = field(default_factory=dict)
    links: dict[str, list[tuple[str, int, str, int]]] = field(default_factory=dict)  # by speed


def _read_schedule(path: Path) -> Planned | None:
    """Read a schedule of `weft plan`; return None for other CSV files."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    if not set(_COLUMNS) <= set(reader.fieldnames or ()):
        return None
    schedule = _Schedule()
    for row in reader:
        _add_row(schedule, path, reader.line_num, row)
    return Planned(fabric=_build(str(path), schedule), positions=schedule.positions)


def _add_row(schedule: _Schedule, path: Path, line: int, row: dict[str, str]) -> None:
    ends: list[tuple[str, int]] = []
    for end in ("a", "b"):
        node, _, number = (row[f"port_{end}"] or "").rpartition("/")
        if not node or not (number.isascii() and number.isdecimal() and 1 <= int(number) <= MAX_PORTS):
            raise FileError(
                path, line, row[f"port_{end}"] or "", f"a port, a node and a number to {MAX_PORTS}: leaf3/17"
            )
        ends.append((node, int(number)))
        schedule.last_port[node] = max(int(number), schedule.last_port.get(node, 0))
        if row[f"rack_{end}"]:
            schedule.positions[node.partition("/")[0]] = Position(
                row[f"rack_{end}"], _unit(path, line, row[f"u_{end}"])
            )
    schedule.links.setdefault(row["speed"], []).append((*ends[0], *ends[1]))


def _unit(path: Path, line: int, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise FileError(path, line, text, "the lowest unit of a rack that the box fills: 12")
    return int(text)


def _build(spec: str, schedule: _Schedule) -> Fabric:
    """Build the fabric; nodes named `server/device` or with a single port are adapters, all others switches."""
    builder = FabricBuilder(spec)
    nodes: dict[str, int] = {}
    for name, last in schedule.last_port.items():
        server, _, device = name.partition("/")
        if device or last == 1:
            box = builder.add_servers([server])
            nodes[name] = int(builder.add_nodes(NodeKind.HCA, [name], n_ports=last, server=box)[0])
        else:
            nodes[name] = int(builder.add_nodes(NodeKind.SWITCH, [name], n_ports=last)[0])
    for speed, links in schedule.links.items():
        a, a_port, b, b_port = zip(*links, strict=True)
        builder.add_links([nodes[n] for n in a], a_port, [nodes[n] for n in b], b_port, parse_label(speed))
    return builder.build()


# The walking order of a technician: by row, rack, unit from the top, then port; without positions by name.
#
# A01, A02, ... B01, ... Z09, AA01: shorter runs of letters come first, and numbers sort by value.

Order = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a box: rack and lowest unit; 0 if the unit is unknown."""

    rack: str
    u: int = 0

    def __str__(self) -> str:
        return f"{self.rack}-U{self.u}" if self.u else self.rack


def natural(text: str) -> Order:
    """Return a key for natural order: leaf2 before leaf10, Z before AA."""
    return tuple((int(run), 0, "") if run.isdecimal() else (-1, len(run), run) for run in re.findall(r"\d+|\D+", text))


def by_walk(position: Position | None, port: str) -> tuple[bool, Order, int, Order]:
    """Return a key for walking order; devices of unknown position come last."""
    rack, u = (position.rack, position.u) if position else ("", 0)
    return position is None, natural(rack), -u, natural(port)
